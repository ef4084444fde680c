"""Expectations and what was seen -> findings, and from them one answer per flag. Pure.

A flag is `proven` only when something that would look different without it was seen, and nothing that would show it is
missing. Its own presence, in the command line or in server_info, never makes it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sglfleet.exits import Exit
from sglfleet.verify.evidence import Seen
from sglfleet.verify.look import Question, look
from sglfleet.verify.sight import Sight, contradicted, open_
from validators.verdict import Decision, Expectation, Outcome, Status, Verdict

_WORST = (Status.CONTRADICTED, Status.NOT_PROVEN, Status.PROVEN)
UNSEEN = "nothing this flag does can be seen from outside with what is known of this release"


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation of one flag, and what was seen. Without an expectation: what is known of the flag at all."""

    flag: str
    status: Status
    reason: str  # one sentence
    expectation: Expectation | None = None
    evidence: tuple[str, ...] = ()
    decisive: bool = True  # evidence that would look different if the flag did nothing

    def to_json(self) -> dict[str, Any]:
        """Plain data, for reports."""
        e = self.expectation
        wanted = {"kind": e.kind, "present": e.present, "absent": e.absent, "where": e.where} if e else None
        return {
            "flag": self.flag, "status": str(self.status), "reason": self.reason, "expectation": wanted,
            "evidence": list(self.evidence), "decisive": self.decisive,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Proof:
    """One flag on one host: what became of it, and every finding behind it."""

    flag: str
    value: Any
    status: Status
    reason: str
    outcome: str  # as judged before launch
    decision: str
    findings: tuple[Finding, ...] = ()
    forced: bool = False  # left on the command line against the judgement

    def to_json(self) -> dict[str, Any]:
        """Plain data, for reports."""
        return {
            "flag": self.flag, "value": self.value, "status": str(self.status), "reason": self.reason,
            "outcome": self.outcome, "decision": self.decision, "forced": self.forced,
            "findings": [f.to_json() for f in self.findings],
        }  # fmt: skip


def prove(verdicts: Iterable[Verdict], seen: Seen) -> tuple[Proof, ...]:
    """One proof per verdict, in their order. Flags that were refused never ran and have none."""
    return tuple(_prove(v, seen) for v in verdicts if v.decision is not Decision.REFUSE)


def exit_code(proofs: Iterable[Proof], strict: bool = False) -> Exit:
    """1 for anything contradicted; with `strict` 3 for anything not proven."""
    statuses = {proof.status for proof in proofs}
    if Status.CONTRADICTED in statuses:
        return Exit.REFUSED
    return Exit.STRICT if strict and Status.NOT_PROVEN in statuses else Exit.FINE


def worst(proofs: Iterable[Proof]) -> Status:
    """The status of a service as a whole; with nothing to prove, `proven`."""
    statuses = {proof.status for proof in proofs}
    return next((s for s in _WORST if s in statuses), Status.PROVEN)


def _prove(verdict: Verdict, seen: Seen) -> Proof:
    idle = verdict.outcome in (Outcome.INERT, Outcome.FAILS, Outcome.REJECTED) or _turned_off(verdict)
    forced = idle and verdict.decision in (Decision.KEEP, Decision.WARN) and not verdict.automatic
    dropped = verdict.decision in (Decision.DROP, Decision.REPLACE)
    # of what is to act, or may, the absence of something else is no sign unless it is there without the flag
    acts = not idle and not dropped
    expects = _promised(verdict.expects) if forced else verdict.expects
    findings = [_finding(verdict.flag, e, seen, acts and bool(e.absent) and not _off(verdict)) for e in expects]
    if dropped:
        findings.append(_gone(verdict, seen))
    if not findings:
        findings.append(Finding(verdict.flag, Status.NOT_PROVEN, UNSEEN))
    findings = _kernels_outrank_logs(findings)
    status, reason = _sum(findings, needs_decisive=not dropped and not (idle and not forced))
    if forced and status is Status.PROVEN:
        reason = f"judged {verdict.outcome} before launch, yet seen working: the judgement is wrong; {reason}"
    elif forced and status is Status.CONTRADICTED:
        reason = f"left on the command line although judged {verdict.outcome}: {reason}"
    judged = (str(verdict.outcome), str(verdict.decision))
    return Proof(verdict.flag, verdict.value, status, reason, *judged, tuple(findings), forced)


def _turned_off(verdict: Verdict) -> bool:
    """Altered by the engine into nothing: all that can be expected is that it does not run."""
    return verdict.outcome is Outcome.ALTERED and bool(verdict.expects) and all(e.absent for e in verdict.expects)


def _off(verdict: Verdict) -> bool:
    """An off switch: that nothing runs is its effect itself, not a sign of something else that does."""
    return verdict.value is False or verdict.flag.startswith(("disable-", "enforce-disable-", "no-"))


def _promised(expects: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
    """What a flag must show that was judged idle and is on the command line all the same: what it promises."""
    out = []
    for e in expects:
        if e.absent and e.kind in ("kernel", "operator", "log", "metric", "response"):
            out.append(replace(e, present=e.absent, absent=""))
        elif e.present and e.kind == "log":
            out.append(e)
    return tuple(out)


def _finding(flag: str, expectation: Expectation, seen: Seen, removes: bool) -> Finding:
    sight = look(Question(expectation, flag, removes), seen)
    return Finding(flag, sight.status, sight.reason, expectation, sight.evidence, sight.decisive)


def _gone(verdict: Verdict, seen: Seen) -> Finding:
    """A flag that was dropped or replaced must not be in the running process."""
    spelled = f"--{verdict.flag}"
    shown = f"--{verdict.flag} is not given to the running process"
    expectation = Expectation("process", absent=rf"(?:^|\s){spelled}(?:[\s=]|$)")
    if seen.argv is None:
        sight: Sight = open_(seen.gap("process", "argv of the process could not be read"))
    elif any(token == spelled or token.startswith(spelled + "=") for token in seen.argv):
        kept = verdict.replacement.get(verdict.flag)
        if verdict.flag in verdict.replacement and _given(seen.argv, spelled, kept):
            return Finding(verdict.flag, Status.PROVEN, f"given as {kept}", expectation, (f"{spelled} {kept}",), False)
        sight = contradicted("dropped before launch, yet given to the running process", (f"process: {spelled}",))
    else:
        return Finding(verdict.flag, Status.PROVEN, shown, expectation, ("argv of the main process",))
    return Finding(verdict.flag, sight.status, sight.reason, expectation, sight.evidence, sight.decisive)


def _given(argv: tuple[str, ...], spelled: str, value: Any) -> bool:
    text = str(value)
    if f"{spelled}={text}" in argv:
        return True
    return any(a == spelled and b == text for a, b in pairwise(argv)) or value is True


def _kernels_outrank_logs(findings: list[Finding]) -> list[Finding]:
    """Where the kernels were seen, a line that is missing says something of the line only."""
    ran = any(
        f.status is Status.PROVEN and f.expectation and f.expectation.kind in ("kernel", "operator")
        and f.expectation.present for f in findings
    )  # fmt: skip
    if not ran:
        return findings
    out = []
    for f in findings:
        e = f.expectation
        missing = f.status is Status.CONTRADICTED and "taken back" not in f.reason
        silent = missing and e is not None and e.kind == "log" and bool(e.present)
        why = f"{f.reason}; the kernels were seen, so the text is not this release's"
        out.append(replace(f, status=Status.NOT_PROVEN, reason=why, decisive=False) if silent else f)
    return out


def _sum(findings: list[Finding], needs_decisive: bool) -> tuple[Status, str]:
    """The flag's status, and the reason of the finding that decided it."""
    against = [f for f in findings if f.status is Status.CONTRADICTED]
    if against:
        return Status.CONTRADICTED, against[0].reason
    decisive = [f for f in findings if f.decisive]
    missing = [f for f in decisive if f.status is Status.NOT_PROVEN]
    if missing:
        return Status.NOT_PROVEN, missing[0].reason
    seen = [f for f in decisive if f.status is Status.PROVEN]
    if seen:
        return Status.PROVEN, seen[0].reason
    others = [f for f in findings if f.status is Status.PROVEN]
    if others and not needs_decisive:
        return Status.PROVEN, others[0].reason
    open_ones = [f for f in findings if f.status is Status.NOT_PROVEN]
    return Status.NOT_PROVEN, open_ones[0].reason if open_ones else "only what must not be there was looked for"


def summary(proofs: Iterable[Proof]) -> Mapping[str, int]:
    """How many flags ended how."""
    counts = {str(status): 0 for status in (Status.PROVEN, Status.CONTRADICTED, Status.NOT_PROVEN)}
    for proof in proofs:
        counts[str(proof.status)] += 1
    return counts
