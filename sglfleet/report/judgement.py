"""A judgement as lines for people: what matters first, each with its reason, what to do, and where it was read."""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence

from sglfleet.report.model import shortened
from validators.verdict import Decision, Evidence, Judgement, Outcome, Verdict

SIGNS = {
    Outcome.ACTIVE: "works",
    Outcome.INERT: "does nothing",
    Outcome.ALTERED: "is changed",
    Outcome.FAILS: "crashes",
    Outcome.REJECTED: "is refused by the parser",
    Outcome.UNKNOWN: "is unknown",
}
DONE = {
    Decision.DROP: "dropped",
    Decision.REPLACE: "replaced",
    Decision.REFUSE: "refused",
    Decision.WARN: "kept, with a warning",
    Decision.KEEP: "kept",
}


def matters(verdict: Verdict) -> bool:
    """Whether a person has to hear of it: anything but a plain flag that works as given."""
    quiet = verdict.outcome is Outcome.ACTIVE and verdict.decision is Decision.KEEP
    return not quiet or bool(verdict.redundant or verdict.automatic or verdict.todo or verdict.waiver)


def summary(judgement: Judgement) -> str:
    """«2 crash, 1 does nothing, 14 work»."""
    order = (Outcome.REJECTED, Outcome.FAILS, Outcome.UNKNOWN, Outcome.INERT, Outcome.ALTERED, Outcome.ACTIVE)
    plural = {
        Outcome.REJECTED: "refused by the parser",
        Outcome.FAILS: "crash",
        Outcome.UNKNOWN: "unknown",
        Outcome.INERT: "without effect",
        Outcome.ALTERED: "changed by the engine",
        Outcome.ACTIVE: "active",
    }
    given = [v for v in judgement.verdicts if not v.automatic]
    counts = [(outcome, sum(v.outcome is outcome for v in given)) for outcome in order]
    text = ", ".join(f"{count} {plural[outcome]}" for outcome, count in counts if count)
    return text or "no flags"


def lines(judgement: Judgement, *, everything: bool = False, quiet: Container[str] = ()) -> list[str]:
    """Verdicts that matter (or all of them), gravest first; not the working flags in `quiet`, told elsewhere."""
    gravity = [Decision.REFUSE, Decision.REPLACE, Decision.DROP, Decision.WARN, Decision.KEEP]

    def told(v: Verdict) -> bool:
        return v.flag in quiet and v.outcome is Outcome.ACTIVE and v.decision is Decision.KEEP

    chosen = [v for v in judgement.verdicts if everything or (matters(v) and not told(v))]
    chosen.sort(key=lambda v: (gravity.index(v.decision), v.flag))
    return [line for verdict in chosen for line in verdict_lines(verdict)]


def verdict_lines(verdict: Verdict) -> list[str]:
    """One verdict: headline, reason, what to do, evidence."""
    value = "" if verdict.value in (True, None) else f" = {verdict.value}"
    state = SIGNS[verdict.outcome]
    if verdict.redundant:
        state += " without being given"
    if verdict.automatic:
        state += " (nobody asked for it: the engine turns it on)"
    out = [f"{verdict.flag or 'a word'}{value}: {state}: {DONE[verdict.decision]}{_instead(verdict)}"]
    out.append(f"    {verdict.reason}")
    if verdict.todo:
        out.append(f"    {verdict.todo}")
    if verdict.waiver:
        out.append(f"    waived: {verdict.waiver}")
    out += [f"    needs, not checked: {need}" for need in verdict.needs]
    out += [f"    {evidence_line(item)}" for item in verdict.evidence if item.line]
    return out


def evidence_line(item: Evidence) -> str:
    """«sglang-0.5.9 sglang/srt/x.py:97 function: condition», a long one shortened."""
    text = f"{item.artifact} {item.file}:{item.line} {item.symbol}".rstrip()
    return f"{text}: {shortened(item.condition)}" if item.condition else text


def command_line(argv: Sequence[str]) -> str:
    """Effective flags as one line to paste."""
    return shlex.join(argv)


def _instead(verdict: Verdict) -> str:
    if not verdict.replacement:
        return f" (the engine makes it {verdict.becomes})" if verdict.becomes else ""
    return " by " + ", ".join(f"{flag} = {value}" for flag, value in sorted(verdict.replacement.items()))
