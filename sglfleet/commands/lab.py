"""`sglfleet lab`: real systemd hosts on this machine, from the command line."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from lab.fleet import Lab

P = ParamSpec("P")


def errors(function: Callable[P, None]) -> Callable[P, None]:
    """Show a LabError as text and end with `bad input`; anything else is a bug and may show its traceback."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        from lab.settings import LabError

        try:
            function(*args, **kwargs)
        except LabError as error:
            click.echo(str(error), err=True)
            sys.exit(Exit.BAD_INPUT)

    return wrapped


def chosen_lab() -> Lab:
    """The lab that --name and --net, or the environment, mean."""
    from lab.fleet import Lab
    from lab.settings import settings

    options = click.get_current_context().find_root().meta
    return Lab(settings(options.get("sglfleet.lab.name"), options.get("sglfleet.lab.net")))


@click.group(name="lab", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--name", help="Name of the lab. Default: LAB_NAME, or `lab`.")
@click.option("--net", help="Its network. Default: LAB_NET, or 10.77.0.0/24.")
@click.pass_context
def command(context: click.Context, name: str | None, net: str | None) -> None:
    """Real systemd hosts on this machine: h1, h2, … with an address, sshd and a journal each.

    Needs root on Linux. Several labs stand side by side by name and network.
    """
    context.find_root().meta.update({"sglfleet.lab.name": name, "sglfleet.lab.net": net})


@command.command()
@click.argument("count", type=click.IntRange(1, 200))
@click.option(
    "--profile", "wanted", multiple=True, metavar="[HOST=]PROFILE",
    help="GPUs that hosts play: for all of them, or for one (h2=l40s-x2). May be given several times.",
)  # fmt: skip
@errors
def up(count: int, wanted: tuple[str, ...]) -> None:
    """Bring up COUNT fresh hosts; a lab of the same name is taken down first."""
    import time

    from lab.fleet import DEFAULT_PROFILE

    everywhere = [entry for entry in wanted if "=" not in entry]
    single = dict(entry.split("=", 1) for entry in wanted if "=" in entry)
    lab, start = chosen_lab(), time.monotonic()
    hosts = lab.up(count, single, everywhere[-1] if everywhere else DEFAULT_PROFILE)
    chosen = lab.profiles()
    for host in hosts:
        click.echo(f"{host.name}  {host.ip}  {chosen[host.name]}")
    click.echo(f"{count} hosts in {time.monotonic() - start:.1f} s. Log in: ssh -F {lab.ssh_config} h1")


@command.command()
@errors
def down() -> None:
    """Remove the lab and everything its hosts wrote."""
    chosen_lab().down()


@command.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@errors
def status(as_json: bool) -> None:
    """Hosts, addresses, power, profiles."""
    import json
    from dataclasses import asdict

    lab = chosen_lab()
    rows = lab.status()
    if as_json:
        document = {"schema_version": 1, "lab": lab.name, "hosts": [asdict(row) for row in rows]}
        click.echo(json.dumps(document, indent=1))
        return
    for row in rows:
        click.echo(f"{row.host}  {row.ip}  {row.state}  {row.profile}")
    if not rows:
        click.echo(f"lab {lab.name} is not up: sglfleet lab up 3")


PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@command.command(name="exec", context_settings=PASS_ON)
@click.argument("host")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@errors
def exec_(host: str, argv: tuple[str, ...]) -> None:
    """Run a program in a host as root, past its network and sshd."""
    command_line = chosen_lab().host(host).exec_argv(argv)
    os.execvp(command_line[0], command_line)  # noqa: S606


@command.command(context_settings=PASS_ON)
@click.argument("host")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option("--user", default="root", help="`root`, or `deploy`, who has sudo.")
@errors
def ssh(host: str, argv: tuple[str, ...], user: str) -> None:
    """Log in over the network, or run a shell command there."""
    command_line = chosen_lab().host(host).ssh_argv(*argv, user=user)
    os.execvp(command_line[0], command_line)  # noqa: S606


def each(name: str, help_text: str) -> None:
    """Add a command that does one thing to one or more hosts; `name` is the method of lab.host.Host."""

    @errors
    def callback(hosts: tuple[str, ...]) -> None:
        lab = chosen_lab()
        for host in [lab.host(one) for one in hosts]:
            getattr(host, name)()
            if name == "boot":
                host.wait()

    argument = click.Argument(["hosts"], nargs=-1, required=True)
    command.add_command(click.Command(name, callback=callback, params=[argument], help=help_text))


each("cut", "Pull the network plug of hosts.")
each("heal", "Put the plug back.")
each("crash", "Cut the power of hosts: no process gets a word.")
each("halt", "Shut hosts down in order.")
each("boot", "Switch hosts on and wait for sshd.")
each("freeze", "Let hosts hang: connections are accepted, nobody answers.")
each("thaw", "Let them go on.")


@command.command(name="profile")
@click.argument("host", required=False)
@click.argument("profile", required=False)
@errors
def profile_(host: str | None, profile: str | None) -> None:
    """List profiles, or let a running HOST play another PROFILE."""
    from lab import profiles

    if host and profile:
        chosen_lab().set_profile(host, profile)
        return
    for name in profiles.names():
        click.echo(f"{name:20} {profiles.load(name)['about']}")


@command.command()
@errors
def check() -> None:
    """Say whether this machine can hold a lab, and if not, why."""
    from lab.machine import cannot_hold_a_lab

    why = cannot_hold_a_lab()
    for reason in why:
        click.echo(reason)
    if why:
        sys.exit(Exit.BAD_INPUT)
    click.echo("this machine can hold a lab")
