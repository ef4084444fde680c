"""`sglfleet report`: show a kept proof again, as text, JUnit or one offline HTML page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

FORMATS = ("text", "json", "junit", "html")


@click.command("report", epilog="Exit codes: 0 fine, 2 bad input.")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--format", "form", type=click.Choice(("text", "json", "junit", "html")), default="html", show_default=True
)
@click.option("--output", type=click.Path(dir_okay=False), help="Write there instead of standard output.")
def command(file: str | None, form: str, output: str | None) -> None:
    """Show FILE, a JSON proof kept by `verify` (default: the newest in reports/)."""
    from sglfleet.verify.showing import REPORTS, load, show

    kept = sorted(Path(REPORTS).glob("proof-*.json"))
    if file is None and not kept:
        click.echo(f"{REPORTS}/: no proof is kept: run sglfleet verify first", err=True)
        sys.exit(2)
    try:
        document = load(Path(file) if file else kept[-1])
    except (OSError, ValueError, KeyError, TypeError) as error:
        click.echo(f"{file}: not a proof kept by sglfleet verify ({error}): give one of reports/*.json", err=True)
        sys.exit(2)
    show(document, form, evidence=True, output=output)
