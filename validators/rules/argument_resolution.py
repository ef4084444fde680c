"""What argument resolution makes of the flags together: which combination stops the start, which value is changed."""

from __future__ import annotations

from collections.abc import Iterator
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
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


@answered_once
def judge(c: Context) -> Iterator[Part]:
    told: set[str] = set()
    for stop in resolved.met(c):
        flags = resolved.given(c, stop.fields)
        flag = blamed(c, stop.text, flags, partial(_met, stop), stop.proof.symbol)
        if flag and flag not in told:
            told.add(flag)
            yield _stopped(c, flag, stop)
    if not told:  # what stops the start changes nothing any more
        yield from _changed(c)


def _met(stop: resolved.Step, bare: Context) -> bool:
    return resolved.sure(bare, stop)


def _stopped(c: Context, flag: str, stop: resolved.Step) -> Part:
    said = stop.text.rstrip(". ") or f"a condition is not met: {stop.proof.condition}"
    reason = f"{c.release.version} stops the start: {said}."
    step = Step(Gate.RESOLUTION, False, reason, stop.proof)
    instead = _LEAVE_OUT if optional(flag) else ()
    return Part(flag, Outcome.FAILS, reason, (stop.proof,), (step,), instead=instead)


def optional(flag: str) -> bool:
    """Can the engine choose by itself: a back end, a switch. Not what the checkpoint or the fleet's shape decides."""
    return flag.endswith("-backend") or flag.startswith(("enable-", "disable-"))


def _changed(c: Context) -> Iterator[Part]:
    changes = resolved.table(c.release).changes
    for name, flag in atoms.fields(c.release).items():
        if flag not in c.args or name not in changes:
            continue
        found = resolved.decided(c, name)
        if found is None or _same(found[0], c.args[flag]):
            continue
        value, change = found
        if change.fields <= {name} and not _asks_for_more(change.guards):
            continue  # another spelling of the same value
        yield _altered(c, flag, value, change)


def _asks_for_more(guards: tuple[str, ...]) -> bool:
    return any(word in guard for guard in guards for word in ("sm", "arch", "capability", "blackwell"))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or str(one) == str(other))


def _altered(c: Context, flag: str, value: Any, change: resolved.Step) -> Part:
    shown = {None: "nothing", False: "off", True: "on"}.get(value, value) if not isinstance(value, tuple) else value
    reason = f"{c.release.version} changes --{flag} from {c.args[flag]} to {shown} here."
    step = Step(Gate.RESOLUTION, False, reason, change.proof)
    known = c.release.flags[flag]
    plain = isinstance(value, str | int | float) and not isinstance(value, bool) and known.takes_value
    instead: tuple[dict[str, Value], ...] = ({flag: value},) if plain else _LEAVE_OUT
    return Part(flag, Outcome.ALTERED, reason, (change.proof,), (step,), becomes=str(shown), instead=instead)
