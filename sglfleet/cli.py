"""The command line: a table of commands, each in a module of its own that is imported only when it is called.

`sglfleet --help` must answer at once, so nothing heavier than click is imported here.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import click

from sglfleet import __version__

COMMANDS = {  # name: (module below sglfleet.commands, one line of help), in the order people meet them
    "init": ("init", "Make a project of your own that deploys with sglfleet."),
    "lint": ("lint", "Say what the gate says of a launch command, as people have it."),
    "import": ("import_", "Turn a launch command into a service file."),
    "explain": ("explain", "Show the chain of gates of one flag, with evidence."),
    "matrix": ("matrix", "Flags against SM versions, for one release."),
    "upgrade": ("upgrade", "Same service file, new engine: what changes."),
    "check": ("check", "Validate every host and service before a merge; touches no host."),
    "judge": ("judge", "The bare gate: JSON lines in, JSON lines out."),
    "rules": ("rules", "List the rules of the gate."),
    "schema": ("schema", "JSON Schema of service files for one release."),
    "facts": ("facts", "Record host facts for review, or report drift."),
    "knowledge": ("knowledge", "What is known of engine releases, read from their wheels."),
    "status": ("status", "What each host runs, since when, and how it is."),
    "rollback": ("rollback", "Go back to a kept release, with the same care."),
    "resume": ("resume", "Go on with a roll that was stopped."),
    "verify": ("verify", "Prove that every flag does what it says on the running servers."),
    "doctor": ("doctor", "The same for a server that sglfleet did not deploy."),
    "bench": ("bench", "Measure a service, or compare two measurements."),
    "ablate": ("ablate", "Tell each changed flag's own effect."),
    "report": ("report", "Show the report of a run."),
    "lab": ("lab", "Real systemd hosts on this machine."),
}


class Lazy(click.Group):
    """A group that imports a command when it is called, and lists all of them without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _) in COMMANDS.items() if find_spec(f"sglfleet.commands.{module}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not find_spec(f"sglfleet.commands.{COMMANDS[cmd_name][0]}"):
            return None
        from sglfleet.guard import check_validators

        try:
            check_validators()
        except RuntimeError as error:
            raise click.UsageError(str(error)) from None
        command: click.Command = importlib.import_module(f"sglfleet.commands.{COMMANDS[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sglfleet")
def main() -> None:
    """Deploy SGLang to GPU fleets with pyinfra, and prove that every flag does what it says.

    The deploy itself is `pyinfra INVENTORY deploy.py`; everything else is here. Try, on any machine:

    \b
      sglfleet lint --sglang 0.5.9 --sm 12.0 "sglang serve --tp 4 --enable-flashinfer-allreduce-fusion"
    """
