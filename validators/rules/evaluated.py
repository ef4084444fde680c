"""Raise sites with the SM set that the extractor evaluated: for conditions that only a helper function spells out."""

from __future__ import annotations

from typing import Any

from validators.rules.context import Context, place
from validators.rules.interface import Gate, Outcome, Part, Step, Value


def site(c: Context, symbol: str, last: str) -> dict[str, Any] | None:
    """The raise in `symbol` whose nearest other condition is `last`, or None where the release has no such one."""
    sites = c.release.sites
    rows = sites.get("raises", ()) if isinstance(sites, dict) else ()
    for row in rows:
        if row["symbol"].endswith(symbol) and row.get("when", [""])[-1] == last:
            found: dict[str, Any] = row
            return found
    return None


def alone(c: Context, symbol: str) -> dict[str, Any] | None:
    """The first raise in `symbol`, where no other condition stands around it."""
    sites = c.release.sites
    rows = sites.get("raises", ()) if isinstance(sites, dict) else ()
    return next((row for row in rows if row["symbol"].endswith(symbol) and not row.get("when")), None)


def part(c: Context, flag: str, what: str, row: dict[str, Any], *, instead: tuple[dict[str, Value], ...] = ()) -> Part:
    """What the site makes of `flag` on this SM; unknown where its set was not evaluated or depends on more."""
    proof = place(c.release, row)
    sms = row.get("sms")
    if sms is None or c.sm_text in row.get("maybe", ()):
        reason = f"Whether {c.release.version} takes {what} on SM {c.sm_text} depends on more than is known here."
        return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(Gate.ENGINE, None, reason, proof),))
    passed = c.sm_text in sms
    said = f": {row['text'].rstrip('. ')}" if row.get("text") else ""
    verb = "takes" if passed else "does not take"
    reason = f"{c.release.version} {verb} {what} on SM {c.sm_text}{'' if passed else said}."
    outcome = Outcome.ACTIVE if passed else Outcome.FAILS
    step = Step(Gate.ENGINE, passed, reason, proof)
    return Part(flag, outcome, reason, (proof,), (step,), instead=() if passed else instead)
