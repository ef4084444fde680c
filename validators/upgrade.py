"""Same flags, new engine: what breaks, changes meaning, is renamed or opens up. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang
from validators.knowledge.model import Sglang
from validators.verdict import Outcome, Value, Verdict

_WORKS = (Outcome.ACTIVE,)
_STOPS = (Outcome.FAILS, Outcome.REJECTED)


class Kind(StrEnum):
    """What an upgrade does to one flag, gravest first."""

    BREAKS = "breaks"  # it started before, and does not now
    RENAMED = "renamed"  # it breaks as it is written, and has a new name
    STOPS = "stops working"  # active before, without effect or changed now
    UNKNOWN = "unknown"  # nobody can tell what it does now
    TURNS_ON = "turns on by itself"
    TURNS_OFF = "no longer turns on by itself"
    DEPRECATED = "deprecated"
    OPENS = "opens up"  # not active before, active now
    DEFAULT = "default changes"  # of a flag that is not given


@dataclass(frozen=True, slots=True)
class Change:
    """One flag, before and after."""

    kind: Kind
    flag: str
    text: str
    before: Verdict | None = None
    after: Verdict | None = None
    rename: tuple[str, Value] | None = None  # flag and value to write instead


def changes(case: Case, to: str) -> list[Change]:
    """What `to` changes for a case, gravest first. Pins of the case are the new release's own from then on.

    Raises UnknownReleaseError where one of the two releases has no knowledge.
    """
    old, new = load_sglang(case.sglang), load_sglang(to)
    before = {v.flag: v for v in judge(case).verdicts}
    after = {v.flag: v for v in judge(replace(case, sglang=to, flashinfer="", packages={})).verdicts}
    found = [
        change
        for flag in sorted(before.keys() | after.keys())
        if (change := _change(flag, before.get(flag), after.get(flag), case, old, new))
    ]
    found = _without_renamed(found, new)
    found += _defaults(case, old, new)
    order = list(Kind)
    return sorted(found, key=lambda c: (order.index(c.kind), c.flag))


def _without_renamed(found: list[Change], new: Sglang) -> list[Change]:
    """What turns on by itself under another name is the same feature, and nothing changes."""
    on = {c.flag for c in found if c.kind is Kind.TURNS_ON}
    off = {c.flag: new.flag(c.flag) for c in found if c.kind is Kind.TURNS_OFF}
    same = {old: flag.replacement.partition("=")[0] for old, flag in off.items() if flag}
    gone = {name for pair in same.items() if pair[1] in on for name in pair}
    return [c for c in found if c.flag not in gone or c.kind not in (Kind.TURNS_ON, Kind.TURNS_OFF)]


def _change(flag: str, was: Verdict | None, now: Verdict | None, case: Case, old: Sglang, new: Sglang) -> Change | None:
    automatic = [v for v in (was, now) if v is not None and v.automatic]
    if automatic:
        on_before, on_now = _on(was), _on(now)
        if on_before == on_now:
            return None
        kind = Kind.TURNS_ON if on_now else Kind.TURNS_OFF
        return Change(kind, flag, (now or automatic[0]).reason, was, now)
    if was is None or now is None or flag not in case.args:
        return None
    if now.outcome in _STOPS and was.outcome not in _STOPS:
        if now.outcome is Outcome.REJECTED and len(now.replacement) == 1:
            ((name, value),) = now.replacement.items()
            return Change(Kind.RENAMED, flag, now.reason, was, now, (name, value))
        return Change(Kind.BREAKS, flag, now.reason, was, now)
    if now.outcome is Outcome.UNKNOWN and was.outcome is not Outcome.UNKNOWN:
        return Change(Kind.UNKNOWN, flag, now.reason, was, now)
    if was.outcome in _WORKS and now.outcome not in _WORKS:
        return Change(Kind.STOPS, flag, now.reason, was, now)
    if was.outcome not in _WORKS and now.outcome in _WORKS:
        return Change(Kind.OPENS, flag, now.reason, was, now)
    then, today = old.flag(flag), new.flag(flag)
    if then and today and today.deprecated and not then.deprecated:
        return Change(Kind.DEPRECATED, flag, f"--{flag}: {today.deprecated}", was, now)
    return None


def _on(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.automatic and verdict.outcome is Outcome.ACTIVE


def _defaults(case: Case, old: Sglang, new: Sglang) -> Iterator[Change]:
    given = {flag.name for name in case.args if (flag := new.flag(name))}
    for name, flag in sorted(new.flags.items()):
        then = old.flags.get(name)
        if then is None or name in given or flag.default_source or then.default_source:
            continue
        if then.default != flag.default:
            yield Change(Kind.DEFAULT, name, f"--{name} was {then.default!r} by default, and is {flag.default!r} now.")
