"""`sglfleet rollback`: back to a kept release, with the same care as a deploy."""

from __future__ import annotations

import click


@click.command("rollback", epilog="Exit codes: 0 fine, 2 bad input, 4 a host failed or somebody else holds the lock.")
@click.argument("inventory")
@click.argument("service")
@click.argument("release", required=False)
@click.option("--dry", is_flag=True, help="Show the plan and touch nothing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(inventory: str, service: str, release: str | None, dry: bool, form: str) -> None:
    """Take SERVICE on the hosts of INVENTORY back to RELEASE, or each host to the one before.

    RELEASE is an id, or the beginning of one, that every host has kept; `sglfleet status` lists them.
    """
    from sglfleet.roll import again, commands

    commands.roll_again(inventory, service, again.named(release) if release else again.previous, dry=dry, form=form)
