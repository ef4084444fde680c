"""`sglfleet resume`: go on with a roll that was stopped."""

from __future__ import annotations

import click


@click.command("resume", epilog="Exit codes: 0 fine, 2 bad input, 4 a host failed or somebody else holds the lock.")
@click.argument("inventory")
@click.argument("service")
@click.option("--dry", is_flag=True, help="Show the plan and touch nothing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(inventory: str, service: str, dry: bool, form: str) -> None:
    """Go on with the last roll of SERVICE: to the releases it was about, on the hosts it did not get to."""
    from sglfleet.roll import again, commands

    commands.roll_again(inventory, service, again.intended, dry=dry, form=form)
