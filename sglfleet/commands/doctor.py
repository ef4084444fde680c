"""`sglfleet doctor`: the same proof for a server that sglfleet did not deploy."""

from __future__ import annotations

import sys

import click

FORMATS = ("text", "json", "junit", "html")


@click.command(
    "doctor",
    epilog="Exit codes: 0 fine, 1 contradicted, 2 bad input, 3 with --strict: not proven, 4 could not be asked.",
)
@click.argument("url", required=False)
@click.option("--host", metavar="HOST", help="Ask on this host by SSH (`@local`: here): process, journal, profile too.")
@click.option("--unit", metavar="UNIT", help="The server's systemd unit on the host; default: the SGLang server found.")
@click.option("--port", type=int, help="The server's port, where several run on the host.")
@click.option("--user", metavar="USER", help="SSH user.")
@click.option("--ssh-config", type=click.Path(exists=True, dir_okay=False), help="SSH client configuration to use.")
@click.option("--sm", metavar="SM", help="Compute capability (9.0, 12.0 …), where the host does not tell.")
@click.option("--gpus", type=int, help="Number of GPUs, where the host does not tell.")
@click.option("--key-env", metavar="NAME", help="Environment variable here that holds the server's API key.")
@click.option("--no-profile", is_flag=True, help="Leave the profile out.")
@click.option(
    "--format", "form", type=click.Choice(("text", "json", "junit", "html")), default="text", show_default=True
)
@click.option("--evidence", is_flag=True, help="Show what was seen also for what is proven.")
@click.option("--strict", is_flag=True, help="End with 3 when a flag is not proven.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write there instead of standard output.")
def command(
    url: str | None,
    host: str | None,
    unit: str | None,
    port: int | None,
    user: str | None,
    ssh_config: str | None,
    sm: str | None,
    gpus: int | None,
    key_env: str | None,
    no_profile: bool,
    form: str,
    evidence: bool,
    strict: bool,
    output: str | None,
) -> None:
    """Judge and prove a running server by its URL, or on its HOST.

    What was asked of it is read from its command line and from /server_info. By URL alone there is no journal and no
    profile, so little can be proven; with --host everything is looked at.

    \b
      sglfleet doctor http://127.0.0.1:30000 --sm 9.0
      sglfleet doctor --host gpu-7 --unit sglang.service
    """
    import os

    from sglfleet.guard import check_validators
    from sglfleet.verify.showing import show

    check_validators()
    if bool(url) == bool(host):
        click.echo("doctor: neither or both of URL and --host: give one of them", err=True)
        sys.exit(2)
    if key_env and key_env not in os.environ:
        click.echo(f"--key-env {key_env}: not in the environment: export it first", err=True)
        sys.exit(2)
    from sglfleet.verify.doctor import examine

    document = examine(
        url=url, host=host, unit=unit, port=port, user=user, ssh_config=ssh_config, sm=sm, gpus=gpus,
        key=os.environ.get(key_env, "") if key_env else "", profile=not no_profile,
    )  # fmt: skip
    show(document, form, evidence=evidence, strict=strict, output=output)
    sys.exit(int(document.exit(strict)))
