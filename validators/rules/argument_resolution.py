"""What argument resolution makes of the flags together: which combination stops the start, which value is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from validators.rules import atoms, resolved
from validators.rules.blame import blamed
from validators.rules.context import Context, answered_once
from validators.rules.interface import Gate, Outcome, Part, Step, Value

SUBJECT = "Flags that argument resolution refuses or changes because of each other"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
_SHAPE = ("tp-size", "pp-size", "dp-size", "nnodes", "ep-size")
_LONGEST = 80  # characters that are kept of what a stop says; what stood for a value is a blank
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


@answered_once
def judge(c: Context) -> Iterator[Part]:
    told: set[str] = set()
    for stop in resolved.met(c):
        flag = ""
        for flags in (resolved.given(c, stop.fields), c.args):  # asked for, else what led to a value that is
            flag = flag or blamed(c, stop.text, flags, partial(_met, stop), stop.proof.symbol)
        # without it the engine makes the same choice by itself
        flag = flag or min(resolved.given(c, stop.fields), key=lambda one: (one not in stop.needs, one), default="")
        if flag and flag not in told:
            told.add(flag)
            yield _stopped(c, flag, stop)
            for other in _needed(c, stop, flag):
                if other not in told:
                    told.add(other)
                    yield replace(_stopped(c, other, stop), beside=flag)
    if not told:  # what stops the start changes nothing any more
        yield from _changed(c)


def _needed(c: Context, stop: resolved.Step, flag: str) -> Iterator[str]:
    """The other flags without which the stop would not be met, but for the fleet's shape."""
    for other in resolved.given(c, stop.fields):
        rest = {name: value for name, value in c.args.items() if name != other}
        bare = Context(c.case, c.release, rest, c.sm_text)
        if other != flag and not other.endswith(_SHAPE) and not resolved.sure(bare, stop):
            yield other


def _met(stop: resolved.Step, bare: Context) -> bool:
    return resolved.sure(bare, stop)


def _stopped(c: Context, flag: str, stop: resolved.Step) -> Part:
    cut = "…" if len(stop.text) >= _LONGEST else ""
    said = stop.text.rstrip(". ").replace("' '", "'…'") + cut or f"a condition is not met: {stop.proof.condition}"
    reason = f"{c.release.version} stops the start: {said}."
    step = Step(Gate.RESOLUTION, False, reason, stop.proof)
    instead = _LEAVE_OUT if optional(flag) else ()
    return Part(flag, Outcome.FAILS, reason, (stop.proof,), (step,), instead=instead)


def optional(flag: str) -> bool:
    """Can the engine choose by itself: a back end, a switch. Not what the checkpoint or the fleet's shape decides."""
    return flag.endswith("-backend") or flag.startswith(("enable-", "disable-"))


def _changed(c: Context) -> Iterator[Part]:
    changes = resolved.table(c.release).changes
    for flag in c.args:
        name = atoms.field_of(c.release, flag)
        if name not in changes:
            continue
        found = resolved.decided(c, name)
        if found is None or _same(found[0], c.args[flag]):
            continue
        value, change = found
        if change.fields <= {name} and not _asks_for_more(change.guards):
            continue  # another spelling of the same value
        if resolved.moved(c.release, name, change):
            continue  # an old spelling: the engine puts the value where it belongs now
        yield _altered(c, flag, value, change)


def _asks_for_more(guards: tuple[str, ...]) -> bool:
    return any(word in guard for guard in guards for word in ("sm", "arch", "capability", "blackwell"))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or str(one) == str(other))


def _altered(c: Context, flag: str, value: Any, change: resolved.Step) -> Part:
    switch = isinstance(value, bool)
    shown = "nothing" if value is None else ("on" if value else "off") if switch else value
    reason = f"{c.release.version} changes --{flag} from {c.args[flag]} to {shown} here."
    step = Step(Gate.RESOLUTION, False, reason, change.proof)
    known = c.release.flags[flag]
    plain = isinstance(value, str | int | float) and not isinstance(value, bool) and known.takes_value
    instead: tuple[dict[str, Value], ...] = ({flag: value},) if plain else _LEAVE_OUT
    return Part(flag, Outcome.ALTERED, reason, (change.proof,), (step,), becomes=str(shown), instead=instead)
