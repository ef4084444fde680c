"""The words of a judgement: what one flag does on one host, what is done about it, and on what evidence.

Frozen dataclasses rather than pydantic models: ten thousand judgements are made in one call, and nothing here comes
from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Value = str | int | float | bool | list[Any] | None


class Outcome(StrEnum):
    """What the engine does with a flag on a host."""

    ACTIVE = "active"  # the code path will run
    INERT = "inert"  # accepted, no effect
    ALTERED = "altered"  # the engine changes it, with or without a warning
    FAILS = "fails"  # start-up raises or crashes
    REJECTED = "rejected"  # the parser refuses it
    UNKNOWN = "unknown"  # no evidence


class Decision(StrEnum):
    """What is done about one flag."""

    KEEP = "keep"
    DROP = "drop"
    REPLACE = "replace"
    REFUSE = "refuse"
    WARN = "warn"


class Overall(StrEnum):
    """What is done about a service on a host."""

    ACCEPT = "accept"
    DOWNGRADE = "downgrade"
    WARN = "warn"
    REFUSE = "refuse"


class Policy(StrEnum):
    """`on_unsupported` of a service or of one flag."""

    AUTO = "auto"
    DOWNGRADE = "downgrade"
    REFUSE = "refuse"
    WARN = "warn"


class Gate(StrEnum):
    """The gates in the order in which a flag meets them."""

    PARSER = "parser"
    RESOLUTION = "resolution"  # one flag changes another before anything runs
    ENGINE = "engine"  # SGLang's own test at run time
    LIBRARY = "library"  # FlashInfer, sglang-kernel: is there a kernel for this SM
    TOPOLOGY = "topology"  # TP, DP attention, nodes, interconnect
    MODEL = "model"  # architecture and checkpoint


class Status(StrEnum):
    """What became of an expectation once the server ran."""

    PROVEN = "proven"
    CONTRADICTED = "contradicted"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a fact was read: a place in a published artifact, never an opinion."""

    artifact: str  # "sglang-0.5.9"
    file: str  # path inside the artifact
    symbol: str = ""  # function or class, dotted
    line: int = 0  # 1-based; 0 where there is none
    condition: str = ""  # the source text of the condition, on one line


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must, or must not, be seen on the running server if the verdict was right.

    Exactly one of `present` and `absent` is set. Both are regular expressions (Python `re`, searched), for
    `server_info` and `metric` in the form `name=value-regex`.
    """

    kind: Literal["log", "server_info", "kernel", "operator", "metric", "process", "response"]
    present: str = ""
    absent: str = ""
    where: str = ""  # "every rank", "prefill", "decode", …; empty: anywhere
    source: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One gate on the way of one flag: passed, stopped there, or nobody can tell (None)."""

    gate: Gate
    passed: bool | None
    text: str
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Flag + outcome + decision + reason + evidence, before launch."""

    flag: str  # SGLang's own name without dashes, as given; for automatic features the off switch or the flag's name
    value: Value
    outcome: Outcome
    decision: Decision
    reason: str  # one sentence
    rule: str  # stem of the rule's file
    evidence: tuple[Evidence, ...] = ()
    expects: tuple[Expectation, ...] = ()
    automatic: bool = False  # nobody gave it: the engine would turn it on by itself
    redundant: bool = False  # given, but the engine would turn it on anyway
    replacement: dict[str, Value] = field(default_factory=dict)  # flag -> value that stands in for it
    becomes: str = ""  # altered: what the engine makes of it
    todo: str = ""  # what the person should do, one sentence
    waiver: str = ""  # reason and date of the waiver that let it through
    steps: tuple[Step, ...] = ()  # the chain of gates it met, in order
    needs: tuple[str, ...] = ()  # conditions that nobody could check


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts of one service on one host, and the command line that follows from them."""

    decision: Overall
    verdicts: tuple[Verdict, ...]
    argv: tuple[str, ...]  # effective flags, one token each, without the launcher
    args: dict[str, Value]  # the same as flag -> value, before rendering
    id: str = ""

    def to_json(self) -> dict[str, Any]:
        """The JSON of one judgement; what is empty is left out, except what readers rely on."""
        return {
            "schema_version": 1,
            "id": self.id,
            "decision": self.decision.value,
            "verdicts": [_verdict(verdict) for verdict in self.verdicts],
            "argv": list(self.argv),
        }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    out: dict[str, Any] = {
        "flag": verdict.flag,
        "value": verdict.value,
        "outcome": verdict.outcome.value,
        "decision": verdict.decision.value,
        "reason": verdict.reason,
        "rule": verdict.rule,
        "evidence": [_evidence(item) for item in verdict.evidence],
        "expects": [_expectation(item) for item in verdict.expects],
    }
    for name in ("automatic", "redundant", "replacement", "becomes", "todo", "waiver"):
        value = getattr(verdict, name)
        if value:
            out[name] = value
    if verdict.needs:
        out["needs"] = list(verdict.needs)
    if verdict.steps:
        out["gates"] = [_step(step) for step in verdict.steps]
    return out


def _evidence(item: Evidence) -> dict[str, Any]:
    return {
        "artifact": item.artifact,
        "file": item.file,
        "symbol": item.symbol,
        "line": item.line,
        "condition": item.condition,
    }


def _expectation(item: Expectation) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": item.kind}
    out["present" if item.present else "absent"] = item.present or item.absent
    if item.where:
        out["where"] = item.where
    if item.source:
        out["source"] = _evidence(item.source)
    return out


def _step(step: Step) -> dict[str, Any]:
    """The evidence of a step stands in the verdict's own list; here its line is enough to find it."""
    out: dict[str, Any] = {"gate": step.gate.value, "passed": step.passed, "text": step.text}
    if step.evidence:
        out["at"] = f"{step.evidence.file}:{step.evidence.line}"
    return out
