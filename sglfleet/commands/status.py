"""`sglfleet status`: what each host runs, since when, and how it is."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from sglfleet.roll.again import View
    from sglfleet.roll.remote import Probe

SCHEMA_VERSION = 1


@click.command("status", epilog="Exit codes: 0 all serve, 2 bad input, 4 a host cannot be reached or does not serve.")
@click.argument("inventory")
@click.argument("service", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(inventory: str, service: str | None, form: str) -> None:
    """Show what the hosts of INVENTORY serve, asked of the running processes; only SERVICE where one is named."""
    from sglfleet.roll.commands import read

    found, _ = read(inventory, service)
    from sglfleet import fleet as fleets

    fleets.patch()
    from sglfleet.roll import again

    rows: list[dict[str, Any]] = []
    services = [service] if service else list(again.services_of(found))
    names = {name for item in services for name in again.hosts_of(found, item)}
    with fleets.connect(found, names) as fleet:
        for item in services:
            order = again.hosts_of(found, item)
            view = again.look(fleet, item, order)
            health = fleet.each(partial(_health, view), view.states)
            for name in order:
                if name in view.states:
                    state = view.states[name]
                    told = health[name]
                    rows.append(row(name, item, state, told if isinstance(told, str) else told.reason))
                else:
                    rows.append({"host": name, "service": item, "health": "unreachable", "reason": view.failed[name]})
    if form == "json":
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "inventory": inventory, "rows": rows}, indent=1))
    else:
        _table(rows)
    bad = [entry for entry in rows if entry["health"] != "ok"]
    sys.exit(int(Exit.HOST_FAILED if bad else Exit.FINE))


def row(host: str, service: str, state: Probe, health: str) -> dict[str, Any]:
    """One host's line. `drift`: why what runs is not what the files say, or why nobody accepted it yet."""
    drift = []
    if state.active and state.release != state.current:
        drift.append(f"runs {state.release or 'an unnamed release'}, current is {state.current or 'none'}")
    if not state.settled:
        drift.append(f"a roll was not finished ({state.phase})")
    if int(state.values.get("unit_NRestarts", "0") or 0):
        drift.append(f"{state.values['unit_NRestarts']} automatic restarts")
    last = state.history
    return {
        "host": host,
        "service": service,
        "release": state.release,
        "since": _since(state),
        "health": health,
        "drift": "; ".join(drift),
        "last": f"{last.get('result', '')} {last.get('time', '')} by {last.get('who', '')}" if last else "",
        "last_reason": str(last.get("reason") or ""),
        "kept": list(state.releases),
        "locked_by": state.lock.get("who", ""),
    }


def _since(state: Probe) -> str:
    """How long the process runs, by the host's own monotonic clock: no matter what its wall clock says."""
    entered = state.values.get("unit_ActiveEnterTimestampMonotonic", "0")
    if not state.active or not entered.isdigit() or entered == "0":
        return ""
    seconds = max(0, int(state.values.get("uptime", "0")) - int(entered) // 1_000_000)
    days, rest = divmod(seconds, 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def _health(view: View, host: Host) -> str:
    """`ok` where the server generates a token now."""
    from sglfleet import health

    name = str(host.name)
    remote, state = view.remotes[name], view.states[name]
    if not state.active:
        return str(state.values.get("unit_ActiveState") or "not there")
    target = view.known[name].get(state.release)
    if target is None:
        return "unknown: not rolled by sglfleet"
    if target.rank:
        return "ok"  # only the first rank of a group answers
    job = {"url": target.base_url, "key_file": target.key_file, "quick": True, "deadline": 40.0}
    job |= {"health_timeout": health.HEALTH_TIMEOUT, "health_failures": 1}
    gate = health.judge(remote.ask(job, 75.0), state.release)
    return "ok" if gate.passed else "; ".join(gate.problems)


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("host", "service", "release", "since", "health", "drift", "last result"):
        table.add_column(title, overflow="fold")
    for entry in rows:
        colour = {"ok": "green"}.get(entry["health"], "red")
        said = entry["health"] + (f": {entry['reason']}" if entry.get("reason") else "")
        cells = [entry["host"], entry["service"], entry.get("release", "")[:12], entry.get("since", "")]
        table.add_row(*cells, f"[{colour}]{escape(said)}[/]", entry.get("drift", ""), entry.get("last", ""))
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)
