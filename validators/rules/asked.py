"""What rules about a flag with named values begin with: the values given, and the ones that are taken anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validators.rules import places
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)  # the engine's own choice works on any GPU that the release runs on


def values(c: Context, flags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Flag and value, of the flags that were given and that the release has."""
    for flag in flags:
        value = c.args.get(flag)
        if isinstance(value, str) and c.has(flag):
            yield flag, value


def anywhere(c: Context, flag: str, value: str, needs: tuple[str, ...] = ()) -> Part:
    """Taken on every GPU: nothing of the release tests for one."""
    proof = places.declared(c, flag)
    reason = f"{c.release.version} takes {value} for --{flag} on every GPU."
    return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),), needs=needs)


def unread(c: Context, flag: str, why: str, name: str) -> Part:
    """Taken and never read: what would read it is not part of this model. `name`: the place that would."""
    proof = places.place(c, name) or places.declared(c, flag)
    step = Step(Gate.MODEL, False, why, proof)
    return Part(flag, Outcome.INERT, why, (proof,), (step,), instead=LEAVE_OUT)
