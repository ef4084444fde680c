"""What is done about a flag: outcome and policy in, decision out. One table, and waivers."""

from __future__ import annotations

from datetime import date

from validators.case import Waiver
from validators.rules.interface import Part
from validators.verdict import Decision, Outcome, Overall, Policy, Value, Verdict

_BLOCKED = (Outcome.FAILS, Outcome.REJECTED)


def decide(part: Part, policy: Policy) -> tuple[Decision, dict[str, Value]]:
    """The decision, and what stands in for the flag."""
    if part.final:
        return Decision.REFUSE, {}
    if part.outcome is Outcome.ACTIVE:
        return (Decision.WARN if part.advice else Decision.KEEP), {}
    if part.automatic:
        return _automatic(part, policy)
    if policy is Policy.REFUSE or (part.refuse and policy is not Policy.WARN):
        return Decision.REFUSE, {}
    if part.outcome is Outcome.UNKNOWN:
        return Decision.WARN, {}  # never silently allowed
    if part.outcome in _BLOCKED:
        if policy is not Policy.DOWNGRADE or not part.instead:
            return Decision.REFUSE, {}
        return _stand_in(part)
    if policy is Policy.WARN:
        return Decision.WARN, {}
    return _stand_in(part)


def _stand_in(part: Part) -> tuple[Decision, dict[str, Value]]:
    chosen = {**(part.instead[0] if part.instead else {}), **part.off}
    return (Decision.REPLACE, chosen) if chosen else (Decision.DROP, {})


def _automatic(part: Part, policy: Policy) -> tuple[Decision, dict[str, Value]]:
    """What the engine does unasked. Nobody asked for it, so switching it off takes nothing from anybody."""
    if part.outcome in _BLOCKED:
        if part.off and policy is not Policy.REFUSE:
            return Decision.REPLACE, dict(part.off)
        return Decision.REFUSE, {}
    return (Decision.WARN if part.outcome is Outcome.UNKNOWN else Decision.KEEP), {}


def waive(verdict: Verdict, waivers: tuple[Waiver, ...], today: date | None, name: str = "") -> Verdict | None:
    """The verdict under a waiver, or None where no waiver speaks of the flag or none is needed.

    `name`: the flag's own, where it was written by another of its names; a waiver may use either, as a policy may.
    """
    if verdict.decision is Decision.KEEP and verdict.outcome is Outcome.ACTIVE:
        return None
    from dataclasses import replace

    for waiver in waivers:
        if waiver.flag not in (verdict.flag, name or verdict.flag):
            continue
        if today is None:
            reason = f"{verdict.reason} A waiver is there ({waiver.text}), but the day is not known."
            return replace(verdict, decision=Decision.REFUSE, reason=reason, replacement={})
        if today > waiver.until:
            reason = f"{verdict.reason} The waiver for it has expired ({waiver.text})."
            return replace(
                verdict,
                decision=Decision.REFUSE,
                reason=reason,
                replacement={},
                todo=f"Renew the waiver for {waiver.flag}, or remove the flag.",
            )
        return replace(verdict, decision=Decision.WARN, waiver=waiver.text, replacement={})
    return None


def overall(verdicts: tuple[Verdict, ...]) -> Overall:
    """Of all verdicts of one service on one host."""
    decisions = {verdict.decision for verdict in verdicts}
    if Decision.REFUSE in decisions:
        return Overall.REFUSE
    if decisions & {Decision.DROP, Decision.REPLACE}:
        return Overall.DOWNGRADE
    return Overall.WARN if Decision.WARN in decisions else Overall.ACCEPT
