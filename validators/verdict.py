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

    kind: Literal["log", "server_info", "kernel", "operator", "metric", "process"]
    present: str = ""
    absent: str = ""
    where: str = ""  # "every rank", "prefill", "decode", …; empty: anywhere
    source: Evidence | None = None


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


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts of one service on one host, and the command line that follows from them."""

    decision: Overall
    verdicts: tuple[Verdict, ...]
    argv: tuple[str, ...]  # effective flags, one token each, without the launcher
    args: dict[str, Value]  # the same as flag -> value, before rendering
    id: str = ""
