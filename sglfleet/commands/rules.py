"""`sglfleet rules`: what the gate looks at, one rule a line, or one rule's page."""

from __future__ import annotations

import json

import click

from sglfleet.exits import Exit


@click.command()
@click.argument("rule", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(rule: str | None, form: str) -> None:
    """List the rules of the gate, or print the page of one RULE."""
    from validators.rules import page, rules

    if rule is not None:
        text = page(rule)
        if text is None:
            known = ", ".join(one.stem for one in rules())
            click.echo(f"{rule}: no such rule: known are {known}", err=True)
            raise SystemExit(Exit.BAD_INPUT)
        click.echo(text.rstrip())
        return
    if form == "json":
        rows = [{"rule": r.stem, "subject": r.subject, "flags": r.flags, "sites": r.sites} for r in rules()]
        click.echo(json.dumps({"schema_version": 1, "rules": rows}, indent=2))
        return
    width = max(len(one.stem) for one in rules())
    for one in rules():
        click.echo(f"{one.stem:<{width}}  {one.subject}")
