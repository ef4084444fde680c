"""Which hosts change, in which order, how many at a time. Pure: the plan that is printed is what happens.

A *unit of change* is a host, or all hosts of a multi-node group. Hosts stand in the order of the inventory throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["change", "gate", "keep", "out", "outside", "split"]
ROLES = ("prefill", "decode", "")  # one role at a time, in this order; "" serves both


@dataclass(frozen=True, slots=True)
class Policy:
    """`rollout:` of a service file. Times in seconds."""

    canary: tuple[str, ...] = ()
    max_unavailable: int | str = 1  # nodes, or "25%" of the nodes of the service; at least one
    soak: float = 30.0  # a changed node has to stay healthy for so long
    on_failure: Literal["rollback", "halt"] = "rollback"
    drain: float = 60.0  # wait for running requests at most so long, then the stop drains the rest
    gate_deadline: float = 300.0  # from "started" to the last answer of the health gate
    lost_after: float = 60.0  # a host in its turn that cannot be reached for so long has failed
    margin: float = 60.0  # beyond gate, soak and lost_after, until a host goes back by itself


@dataclass(frozen=True, slots=True)
class Node:
    """One host of the service, as it was found."""

    host: str
    target: str  # the release it is to serve
    running: str = ""  # the release of the running process; empty: none runs
    serving: bool = False  # the unit is active
    reachable: bool = True
    settled: bool = True  # False: a turn was begun here and nobody accepted or undid it
    group: str = ""  # hosts of one multi-node group change together
    rank: int = 0  # in the group; the first rank is the one that answers
    role: str = ""  # "", "prefill", "decode"
    rack: str = ""
    outside: bool = False  # of --limit: never changed, but it counts


@dataclass(frozen=True, slots=True)
class Unit:
    """What changes as one: a host or a multi-node group."""

    nodes: tuple[Node, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(node.host for node in self.nodes)

    @property
    def role(self) -> str:
        return self.nodes[0].role

    @property
    def racks(self) -> frozenset[str]:
        return frozenset(node.rack for node in self.nodes if node.rack)

    @property
    def serving(self) -> bool:
        """Does it serve now? A group with one rank missing serves nobody."""
        return all(node.serving and node.running for node in self.nodes)

    @property
    def action(self) -> Action:
        if any(node.outside for node in self.nodes):
            return "outside" if all(node.outside for node in self.nodes) else "split"
        if not all(node.reachable for node in self.nodes):
            return "out"
        if any(node.running != node.target or not node.serving for node in self.nodes):
            return "change"
        return "keep" if all(node.settled for node in self.nodes) else "gate"


@dataclass(frozen=True, slots=True)
class Batch:
    """Units whose turns run at the same time. The next batch begins when all of them are done."""

    kind: Literal["canary", "batch"]
    units: tuple[Unit, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host for unit in self.units for host in unit.hosts)


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole of it. `blocked` names units that may not be touched, because too many nodes are out already."""

    width: int  # nodes that may be out at the same time
    total: int
    batches: tuple[Batch, ...] = ()
    kept: tuple[Unit, ...] = ()
    out: tuple[Unit, ...] = ()
    blocked: tuple[Unit, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def changes(self) -> tuple[str, ...]:
        """Hosts in the order in which their turns begin."""
        return tuple(host for batch in self.batches for host in batch.hosts)


def allowed_out(total: int, max_unavailable: int | str) -> int:
    """`max_unavailable` as a number of nodes: a percentage is rounded down, and one is always allowed.

    Raises ValueError where it is neither a positive number nor a percentage.
    """
    text = str(max_unavailable).strip()
    number = text.removesuffix("%")
    if not number.isdigit() or int(number) < 1 or (text.endswith("%") and int(number) > 100):
        raise ValueError(
            f"max_unavailable {max_unavailable!r}: neither a number of nodes nor a percentage: give 2 or 25%"
        )
    count = total * int(number) // 100 if text.endswith("%") else int(number)
    return max(1, min(count, total))


def units_of(nodes: Sequence[Node]) -> list[Unit]:
    """Hosts of one group become one unit, where the first of them stands."""
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(f"group {node.group}" if node.group else f"host {node.host}", []).append(node)
    return [Unit(tuple(sorted(members, key=lambda node: node.rank))) for members in groups.values()]


def plan(nodes: Sequence[Node], policy: Policy) -> Plan:
    """Canaries, then batches. Counts nodes that are out already against `max_unavailable`."""
    units = units_of(nodes)
    width = allowed_out(len(nodes), policy.max_unavailable)
    todo = [unit for unit in units if unit.action in ("change", "gate")]
    kept = tuple(unit for unit in units if unit.action == "keep")
    lost = tuple(unit for unit in units if unit.action == "out")
    beyond = [unit for unit in units if unit.action in ("outside", "split")]
    canaries, notes = _canaries([unit for unit in units if unit not in beyond], todo, kept, policy)
    notes += [
        f"{' + '.join(unit.hosts)}: one group, partly outside of --limit: not changed"
        for unit in beyond
        if unit.action == "split"
    ]
    stages: list[tuple[Literal["canary", "batch"], list[Unit]]] = [("canary", canaries)]
    rest = [unit for unit in todo if unit not in canaries]
    stages += [("batch", [unit for unit in rest if unit.role == role]) for role in ROLES]
    stages += [("batch", [unit for unit in rest if unit.role not in ROLES])]

    down = {host for unit in todo if not unit.serving for host in unit.hosts}
    down |= {host for unit in lost for host in unit.hosts}
    absent = {host for unit in beyond if not unit.serving for host in unit.hosts}
    if absent:
        notes.append(f"{', '.join(sorted(absent))}: outside of --limit and not serving: counts as unavailable")
    down |= absent
    batches: list[Batch] = []
    blocked: list[Unit] = [unit for unit in beyond if unit.action == "split"]
    for kind, waiting in stages:
        while waiting:
            repair = [unit for _, queue in stages for unit in queue if not unit.serving]
            # the last ones that serve go only where nothing can be mended first
            most = len(nodes) - 1 if repair else len(nodes)
            taken = _take(waiting, down, min(width, most), _role_width(units, waiting[0].role, width))
            if not taken:  # no serving node may go: mend those first that are down anyway
                taken = _take(repair, down, width, width)
            if not taken:
                blocked += waiting
                waiting.clear()
                continue
            for _, queue in stages:
                queue[:] = [unit for unit in queue if unit not in taken]
            down -= {host for unit in taken for host in unit.hosts}
            batches.append(Batch(kind, tuple(taken)))
    return Plan(width, len(nodes), tuple(batches), kept, lost, tuple(blocked), tuple(notes))


def _canaries(
    units: list[Unit], todo: list[Unit], kept: tuple[Unit, ...], policy: Policy
) -> tuple[list[Unit], list[str]]:
    """The named ones; else the inventory's first; else, while nobody has the release, the first that can change."""
    hosts = {host for unit in units for host in unit.hosts}
    notes = [f"canary {name}: no host of this service in this run" for name in policy.canary if name not in hosts]
    named = [unit for unit in units if any(host in policy.canary for host in unit.hosts)] or units[:1]
    chosen = [unit for unit in todo if unit in named]
    if not chosen and todo and not kept:
        chosen = todo[:1]
        notes.append(f"canary {todo[0].hosts[0]}: stands in, the usual one cannot be changed")
    return chosen, notes


def _role_width(units: list[Unit], role: str, width: int) -> int:
    """Of prefill or decode nodes one unit always stays, where there is more than one."""
    same = [unit for unit in units if unit.role == role]
    if not role or len(same) < 2:
        return width
    return max(1, min(width, sum(len(unit.nodes) for unit in same) - min(len(unit.nodes) for unit in same)))


def _take(waiting: Sequence[Unit], down: set[str], width: int, most: int) -> list[Unit]:
    """The next batch: from the front of the queue, racks spread where named, never more than `most` nodes at a time.

    A node that is down already costs nothing more; a serving one needs room left by those that are down elsewhere.
    """
    taken: list[Unit] = []

    def fits(unit: Unit) -> bool:
        members = [host for chosen in taken for host in chosen.hosts] + list(unit.hosts)
        elsewhere = len(down - set(members))
        if not taken and not elsewhere:
            return True  # one unit may always go, also a group larger than the limit
        if len(members) > most:
            return not taken and not unit.serving  # a group that is down as a whole
        return not unit.serving or len(members) + elsewhere <= width

    for spread in (True, False):
        racks = frozenset(rack for unit in taken for rack in unit.racks)
        for unit in waiting:
            if unit in taken or unit.role != waiting[0].role:
                continue
            if spread and unit.racks & racks:
                continue
            if not fits(unit):
                break  # nobody overtakes
            taken.append(unit)
            racks |= unit.racks
    return [unit for unit in waiting if unit in taken]


def lines(service: str, chosen: Plan, targets: dict[str, str]) -> list[str]:
    """The plan for people."""
    done = f"{service}: {chosen.total} host{'s' * (chosen.total != 1)}, {chosen.width} may be out at a time"
    text = [done if chosen.batches or chosen.blocked else f"{done}; nothing to change"]
    number = 0
    for batch in chosen.batches:
        number += batch.kind == "batch"
        title = "canary" if batch.kind == "canary" else f"batch {number}"
        for unit in batch.units:
            what = "health gate only" if unit.action == "gate" else ""
            steps = [
                f"{n.host} {n.running[:12] or 'nothing'} -> {targets.get(n.host, n.target)[:12]}" for n in unit.nodes
            ]
            text.append(f"  {title:<9} {' + '.join(steps)}{' ' + what if what else ''}")
            title = ""
    text += [f"  keep      {unit.hosts[0]} serves {unit.nodes[0].running[:12]}" for unit in chosen.kept]
    text += [f"  out       {' + '.join(u.hosts)}: cannot be reached, counts as unavailable" for u in chosen.out]
    text += [
        f"  blocked   {' + '.join(unit.hosts)}: too many nodes are out already; mend those first"
        for unit in chosen.blocked
    ]
    return text + [f"  note      {note}" for note in chosen.notes]
