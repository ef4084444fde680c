"""`sglfleet facts`: record what hosts are, for review in git, or report drift."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from sglfleet.inventory import Inventory
    from validators.state import Collected


@click.command(
    "facts", epilog="Exit codes: 0 fine, 1 drift found by --check, 2 bad input, 4 a host could not be asked."
)
@click.argument("inventory", default="inventory/prod.py")
@click.argument("hosts", nargs=-1)
@click.option("--check", "only_check", is_flag=True, help="Compare with what is recorded, and write nothing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(inventory: str, hosts: tuple[str, ...], only_check: bool, form: str) -> None:
    """Ask every host of INVENTORY (or only HOSTS) what it is, and record it in facts/, one file per host class."""
    from sglfleet import record
    from sglfleet.guard import check_validators
    from sglfleet.inventory import project_root, read_inventory
    from validators.source import InputError

    check_validators()
    root = project_root(inventory)
    try:
        found = read_inventory(inventory, root)
        unknown = sorted(set(hosts) - found.hosts.keys())
        if unknown:
            raise click.UsageError(f"{inventory}: no host {', '.join(unknown)}: name hosts as the inventory does")
        known = record.load(root)
    except InputError as error:
        click.echo(str(error), err=True)
        sys.exit(int(Exit.BAD_INPUT))
    collected, failed = ask(found, root, hosts)
    measured = {name: one.facts for name, one in collected.items() if not one.error}
    failed |= {name: one.error for name, one in collected.items() if one.error}
    drift = _drift(measured, known)
    changed: list[str] = []
    if not only_check:
        changed = record.write(root, record.merged(known, measured))
    if form == "json":
        click.echo(json.dumps(_plain(inventory, measured, failed, drift, changed), indent=1))
    else:
        _show(measured, failed, drift, changed, only_check)
    codes = [Exit.HOST_FAILED] * bool(failed) + [Exit.REFUSED] * bool(only_check and drift)
    sys.exit(int(Exit.worst(codes)))


def ask(inventory: Inventory, root: Path, names: tuple[str, ...] = ()) -> tuple[dict[str, Collected], dict[str, str]]:
    """Answers of all hosts at the same time, and the reasons of those that gave none."""
    from sglfleet import fleet

    fleet.patch()
    from sglfleet.facts import wanted
    from sglfleet.hostreport import HostReport
    from sglfleet.intent import intents

    placements: dict[str, list[Any]] = {}
    for placement in intents(inventory, root).placements:
        placements.setdefault(placement.host.name, []).append(placement)

    def one(host: Any) -> Collected:
        found: Collected = host.get_fact(HostReport, host=host.name, spec=wanted(placements.get(host.name, ())))
        return found

    with fleet.connect(inventory, names or None) as reached:
        answers = reached.each(one, progress="asking hosts")
        failed = dict(reached.failed)
    good = {name: answer for name, answer in answers.items() if not isinstance(answer, fleet.HostError)}
    failed |= {name: answer.reason for name, answer in answers.items() if isinstance(answer, fleet.HostError)}
    return good, failed


def _drift(measured: dict[str, Any], known: list[Any]) -> dict[str, list[str]]:
    """What differs from the record, per host; an empty list for a host that was never recorded."""
    from validators.classes import differences

    recorded = {host: one.facts for one in known for host in one.hosts}
    found: dict[str, list[str]] = {}
    for name, facts in measured.items():
        if name not in recorded:
            found[name] = []
        elif said := differences(recorded[name], facts):
            found[name] = said
    return found


def _show(
    measured: dict[str, Any],
    failed: dict[str, str],
    drift: dict[str, list[str]],
    changed: list[str],
    only_check: bool,
) -> None:
    from sglfleet.report.model import counted, named

    groups: dict[tuple[str, ...], list[str]] = {}
    for name, texts in drift.items():
        groups.setdefault(tuple(texts), []).append(name)
    for said, names in groups.items():
        if said or only_check:
            click.echo(f"{named(names)}:")
        for text in said or (("not recorded yet: run `sglfleet facts`",) if only_check else ()):
            click.echo(f"  {text}")
    for name, why in sorted(failed.items()):
        click.echo(f"{name}: could not be asked: {why}", err=True)
    if only_check:
        same = len(measured) - len(drift)
        click.echo(f"{counted(same, 'host')} as recorded, {len(drift)} not, {len(failed)} could not be asked")
        return
    for file in changed:
        click.echo(f"changed {file}")
    rest = f", {len(failed)} could not be asked" if failed else ""
    click.echo(f"{counted(len(measured), 'host')} recorded, {counted(len(changed), 'file')} changed{rest}")


def _plain(
    inventory: str, measured: dict[str, Any], failed: dict[str, str], drift: dict[str, list[str]], changed: list[str]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "inventory": inventory,
        "hosts": {name: json.loads(facts.model_dump_json()) for name, facts in measured.items()},
        "failed": failed,
        "drift": drift,
        "changed": changed,
    }
