"""`sglfleet check`: validate a fleet before a merge; touches no host."""

from __future__ import annotations

import importlib
import sys

import click

from sglfleet.outfile import write_out

FORMATS = ("text", "json", "github", "sarif", "junit", "markdown")
_MODULES = {"text": "console"}


@click.command(
    "check",
    epilog="Exit codes: 0 fine, 1 refused, 2 bad input, 3 with --strict: dropped, replaced or let through.",
)
@click.argument("inventory", default="inventory/prod.py")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Of the output.")
@click.option("--base", metavar="REV", help="Show what changes against this git revision.")
@click.option("--strict", is_flag=True, help="End with 3 when a flag is dropped, replaced or let through.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write there instead of standard output.")
def command(inventory: str, form: str, base: str | None, strict: bool, output: str | None) -> None:
    """Validate every host and service of INVENTORY from recorded or declared facts.

    Needs no network, no GPU and no root. `sglfleet facts` records facts; group data may declare hardware
    with `gpu = "h100 x8"`.
    """
    from datetime import date

    from sglfleet.checking import check
    from sglfleet.guard import check_validators

    check_validators()
    today = date.today()  # a waiver's date is a local day
    if base:
        from sglfleet.changing import check_against

        report = check_against(inventory, base, today, strict=strict)
    else:
        report = check(inventory, today, strict=strict)
    text: str = importlib.import_module(f"sglfleet.report.{_MODULES.get(form, form)}").render(report)
    if output:
        write_out(output, click.unstyle(text))
    else:
        click.echo(text, nl=False)
    sys.exit(int(report.exit))
