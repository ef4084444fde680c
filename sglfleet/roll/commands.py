"""What `sglfleet rollback` and `sglfleet resume` share: from the command line to the report."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from sglfleet.inventory import Inventory
    from sglfleet.roll.again import Choose


def read(inventory: str, service: str | None = None) -> tuple[Inventory, Path]:
    """The inventory and its project. Ends the process with exit 2 where it is wrong or does not have the service."""
    from sglfleet.guard import check_validators
    from sglfleet.inventory import project_root, read_inventory
    from sglfleet.roll.again import services_of
    from validators.source import InputError

    check_validators()
    root = project_root(inventory)
    try:
        found = read_inventory(inventory, root)
    except InputError as error:
        click.echo(str(error), err=True)
        sys.exit(int(Exit.BAD_INPUT))
    if service is not None and service not in (known := services_of(found)):
        listed = ", ".join(known) or "none"
        click.echo(f"{inventory}: no host has service {service}: its services are {listed}", err=True)
        sys.exit(int(Exit.BAD_INPUT))
    return found, root


def roll_again(inventory: str, service: str, choose: Choose, *, dry: bool, form: str) -> None:
    """Connect, choose each host's release, roll, report. Ends the process."""
    found, root = read(inventory, service)
    from sglfleet import fleet as fleets

    fleets.patch()
    from sglfleet.roll import again
    from sglfleet.roll.plan import lines, plan
    from sglfleet.roll.service import nodes_of

    order = again.hosts_of(found, service)
    routers = [name for name, host in found.hosts.items() if (host.get("router") or {}).get("service") == service]
    say = _say if form == "text" else _quiet
    with fleets.connect(found, [*order, *routers]) as fleet:
        view = again.look(fleet, service, order)
        try:
            targets = again.chosen(view, choose)
        except again.NotPossibleError as error:
            click.echo(str(error), err=True)
            sys.exit(int(Exit.BAD_INPUT))
        policy = again.policy_for(found, root, service, order, routed=bool(routers))
        if dry:
            nodes = nodes_of(targets, view.states, view.failed)
            text = lines(service, plan(nodes, policy), {name: target.release for name, target in targets.items()})
            click.echo("\n".join(text))
            sys.exit(int(Exit.HOST_FAILED if view.failed else Exit.FINE))
        report = again.run(view, targets, policy, fleet, say)
    click.echo(json.dumps(report.as_json(), indent=1) if form == "json" else "\n".join(report.lines()))
    sys.exit(int(report.exit))


def _say(text: str) -> None:
    click.echo(text, err=True)


def _quiet(_: str) -> None:
    return
