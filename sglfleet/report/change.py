"""What a change does, as data and in words."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sglfleet.report.escape import code, esc
from sglfleet.report.model import counted, named
from validators.source import printable

MOST = 60  # lines of a unit diff that people are shown


@dataclass(frozen=True, slots=True)
class Moved:
    """One service on hosts where it changes in the same way. Pairs are (before, after)."""

    service: str
    hosts: tuple[str, ...]
    decision: tuple[str, str]
    appeared: tuple[str, ...]  # verdicts: "flag: value | outcome | decision"
    vanished: tuple[str, ...]
    argv: tuple[tuple[str, ...], tuple[str, ...]]
    unit: tuple[str, str]
    engine: tuple[str, str]
    restarts: bool
    upgrade: tuple[str, ...] = ()  # what the other engine does with the same flags

    @property
    def fate(self) -> str:
        """What becomes of the servers that run."""
        return "restart" if self.restarts else "refused" if self.decision[1] == "refuse" else "no restart"

    def diff(self) -> list[str]:
        """The unit files, as a unified diff; empty where one of them is refused and does not exist."""
        if not all(self.unit):
            return []
        old, new = (text.splitlines() for text in self.unit)
        return list(difflib.unified_diff(old, new, "before", "after", lineterm="", n=1))

    def flags(self) -> list[str]:
        """Changed command-line words: `- --tp-size 4`, `+ --tp-size 8`."""
        old, new = (_options(argv) for argv in self.argv)
        return [f"- {word}" for word in old if word not in new] + [f"+ {word}" for word in new if word not in old]


@dataclass(frozen=True, slots=True)
class Roll:
    """The order in which hosts of a service would restart."""

    service: str
    batches: tuple[tuple[str, tuple[str, ...]], ...]  # kind, hosts


@dataclass(frozen=True, slots=True)
class Change:
    """The working tree against a revision."""

    base: str
    moved: tuple[Moved, ...] = ()
    arrived: dict[str, tuple[str, ...]] = field(default_factory=dict)  # service -> hosts that get it
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)  # service -> hosts that lose it
    rolls: tuple[Roll, ...] = ()
    unreadable: tuple[str, ...] = ()  # what was wrong with the base itself

    @property
    def empty(self) -> bool:
        return not (self.moved or self.arrived or self.left or self.unreadable)


def _options(argv: tuple[str, ...]) -> list[str]:
    """A flag and its values as one text."""
    found: list[str] = []
    for word in argv:
        if word.startswith("--") or not found:
            found.append(word)
        else:
            found[-1] += f" {shlex.quote(word)}"
    return found


def lines(change: Change) -> Iterator[str]:
    """For the console."""
    yield f"against {printable(change.base)}:"
    if change.empty:
        yield "  nothing changes on any host"
    for problem in change.unreadable[:3]:
        yield f"  the base itself is not right: {problem}"
    for one in change.moved:
        yield f"  {one.service} on {counted(len(one.hosts), 'host')} ({named(one.hosts)}): {one.fate}"
        for text in (
            *_headline(one),
            *one.flags(),
            *(f"no more: {v}" for v in one.vanished),
            *(f"new: {v}" for v in one.appeared),
        ):
            yield f"      {printable(text)}"
        diff = one.diff()[2:]
        for text in diff[:MOST]:
            yield f"      | {printable(text)}"
        if len(diff) > MOST:
            yield f"      | … {len(diff) - MOST} more lines; --format json has them all"
    for word, hosts in (("gets", change.arrived), ("loses", change.left)):
        for service, names in hosts.items():
            yield f"  {counted(len(names), 'host')} {word if len(names) == 1 else word[:-1]} {service}: {named(names)}"
    for roll in change.rolls:
        yield f"  {roll.service} rolls: " + ", then ".join(f"{kind} {named(hosts)}" for kind, hosts in _short(roll))


def _short(roll: Roll) -> list[tuple[str, tuple[str, ...]]]:
    if len(roll.batches) <= 6:
        return list(roll.batches)
    rest = roll.batches[5:]
    hosts = tuple(host for _, names in rest for host in names)
    return [*roll.batches[:5], (f"{len(rest)} more batches of at most {max(len(n) for _, n in rest)}:", hosts)]


def _headline(one: Moved) -> list[str]:
    found = []
    if one.engine[0] != one.engine[1]:
        found.append(f"engine {one.engine[0]} → {one.engine[1]}")
        found += [f"  {text}" for text in one.upgrade]
    if one.decision[0] != one.decision[1]:
        found.append(f"{one.decision[0]} → {one.decision[1]}")
    return found


def markdown(change: Change) -> list[str]:
    """For a comment."""
    parts = [f"**Against {code(change.base)}**", ""]
    if change.empty:
        return [*parts, "Nothing changes on any host."]
    parts += [f"- the base itself is not right: {esc(problem)}" for problem in change.unreadable[:3]]
    for one in change.moved:
        restart = "**restart**" if one.restarts else one.fate
        parts.append(f"- {code(one.service)} on {counted(len(one.hosts), 'host')} ({esc(named(one.hosts))}): {restart}")
        parts += [f"  - {esc(text)}" for text in _headline(one)]
        parts += [f"  - {code(text)}" for text in one.flags()]
        parts += [f"  - no more: {esc(text)}" for text in one.vanished]
        parts += [f"  - new: {esc(text)}" for text in one.appeared]
        if diff := one.diff()[2:]:
            fence = "`" * max(3, 1 + max((len(run) for text in diff for run in _ticks(text)), default=0))
            parts += [
                "  <details><summary>unit</summary>",
                "",
                f"  {fence}diff",
                *(f"  {text}" for text in diff[:MOST]),
                f"  {fence}",
            ]
            parts += ["  </details>"]
    for word, hosts in (("new on", change.arrived), ("leaves", change.left)):
        parts += [
            f"- {code(service)} {word} {counted(len(names), 'host')}: {esc(named(names))}"
            for service, names in hosts.items()
        ]
    for roll in change.rolls:
        parts.append(
            f"- {code(roll.service)} rolls: "
            + ", then ".join(f"{kind} {esc(named(hosts))}" for kind, hosts in _short(roll))
        )
    return parts


def _ticks(text: str) -> list[str]:
    import re

    return re.findall(r"`+", text)


def plain(change: Change) -> dict[str, Any]:
    """For JSON."""
    return {
        "base": change.base,
        "moved": [
            {
                "service": one.service,
                "hosts": list(one.hosts),
                "decision": list(one.decision),
                "appeared": list(one.appeared),
                "vanished": list(one.vanished),
                "argv": [list(argv) for argv in one.argv],
                "unit_diff": one.diff(),
                "engine": list(one.engine),
                "restarts": one.restarts,
                "upgrade": list(one.upgrade),
            }
            for one in change.moved
        ],
        "arrived": {name: list(hosts) for name, hosts in change.arrived.items()},
        "left": {name: list(hosts) for name, hosts in change.left.items()},
        "rolls": [
            {"service": roll.service, "batches": [{"kind": kind, "hosts": list(hosts)} for kind, hosts in roll.batches]}
            for roll in change.rolls
        ],
        "unreadable": list(change.unreadable),
    }
