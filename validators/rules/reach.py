"""What argument resolution found out, remembered for all cases that it cannot tell apart.

Whether a step of it is taken hangs on a few flags: those in its conditions, and those through which the engine may
change the fields in them. Cases that differ in other flags only, share the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from validators.knowledge.model import Sglang
from validators.rules import atoms
from validators.rules.context import Context

_KEPT: dict[tuple[object, ...], Any] = {}
_MOST = 60_000  # answers kept; then all are forgotten
_FIELDS: dict[tuple[str, str], frozenset[str]] = {}
_FLAGS: dict[tuple[str, tuple[Any, ...]], frozenset[str]] = {}


Found = TypeVar("Found")


class Taken(Protocol):
    """A stop, or a change of a field."""

    @property
    def guards(self) -> tuple[str, ...]: ...
    @property
    def fields(self) -> frozenset[str]: ...
    @property
    def text(self) -> str: ...
    @property
    def needs(self) -> frozenset[str]: ...
    @property
    def field(self) -> str: ...


Changes = Mapping[str, tuple[Taken, ...]]


def once(
    c: Context,
    what: tuple[Any, ...],
    flag: str,
    steps: Iterable[Taken],
    changes: Changes,
    find: Callable[[], Found],
) -> Found:
    """What `find` finds out of a case about a flag and steps of its release, asked once for all cases alike to them.

    `what` names the question; flag, steps and changes are those of the release, always the same for one question.
    """
    named = (c.release.key, what)
    flags = _FLAGS.get(named)
    if flags is None:
        flags = _FLAGS[named] = frozenset({flag}).union(*(of_step(c.release, changes, one) for one in steps))
    place = (what, c.host(), *[item for item in c.shown().items() if item[0] in flags])
    if place in _KEPT:
        known: Found = _KEPT[place]
        return known
    found = find()
    if len(_KEPT) >= _MOST:
        _KEPT.clear()
    _KEPT[place] = found
    return found


def of_step(release: Sglang, changes: Changes, step: Taken) -> frozenset[str]:
    """Flags on which a step can hang: those it asks for, and those on which its fields can hang."""
    direct, asked = _asks(release, step)
    return direct.union(*(of_field(release, changes, name) for name in asked))


def of_field(release: Sglang, changes: Changes, name: str) -> frozenset[str]:
    """Flags on which the value of a field can hang."""
    found = _FIELDS.get((release.key, name))
    if found is not None:
        return found
    known = atoms.fields(release)
    flags: set[str] = set()
    seen, open_ = {name}, [name]
    while open_:
        one = open_.pop()
        flags.add(known.get(one) or atoms.own(one))
        for change in changes.get(one, ()):
            direct, asked = _asks(release, change)
            flags |= direct
            open_ += asked - seen
            seen |= asked
    found = _FIELDS[release.key, name] = frozenset(flags)
    return found


def _asks(release: Sglang, step: Taken) -> tuple[frozenset[str], frozenset[str]]:
    """Flags and fields that a step itself asks for."""
    texts: Iterable[str] = (*step.guards, step.text) if step.field else step.guards
    flags = {flag for text in texts for flag in atoms.flags_of(release, text)}
    named = {release.flags[flag].field for flag in flags if flag in release.flags}
    own = {atoms.fields(release).get(step.field) or atoms.own(step.field)} if step.field else set()
    return frozenset(flags | step.needs | own), step.fields | {name for name in named if name}
