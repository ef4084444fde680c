"""What a check has to say, as plain data. Every format is made of this and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sglfleet.exits import Exit
from validators.source import Mark, Problem

SCHEMA_VERSION = 1
LEVELS = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing to say, and every host it is true for."""

    level: str  # error: refused · warning: dropped, replaced, let through · note
    rule: str
    service: str  # several that clash: "one, two"
    what: str  # "tp-size: 8", or "" where no key is meant
    reason: str
    todo: str
    mark: Mark
    hosts: tuple[str, ...] = ()
    outcome: str = ""
    decision: str = ""
    evidence: tuple[str, ...] = ()  # "sglang-0.5.9 sglang/srt/x.py:12 function"
    becomes: str = ""  # what stands in its place
    waiver: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """One service over all its hosts."""

    service: str
    file: str
    sglang: str
    accept: int = 0
    downgrade: int = 0
    warn: int = 0
    refuse: int = 0

    @property
    def hosts(self) -> int:
        return self.accept + self.downgrade + self.warn + self.refuse


@dataclass(frozen=True, slots=True)
class Pair:
    """One service on one host: what is decided and what would run."""

    host: str
    service: str
    decision: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole check."""

    inventory: str
    hosts: int
    classes: int
    summaries: tuple[Summary, ...] = ()
    causes: tuple[Cause, ...] = ()
    problems: tuple[Problem, ...] = ()  # input that cannot be read
    notes: tuple[Problem, ...] = ()
    pairs: tuple[Pair, ...] = ()
    change: Any = None  # sglfleet.report.change.Change, with --base
    strict: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def exit(self) -> Exit:
        codes = [Exit.BAD_INPUT] * bool(self.problems)
        codes += [Exit.REFUSED] * any(cause.level == "error" for cause in self.causes)
        codes += [Exit.STRICT] * (self.strict and any(cause.level == "warning" for cause in self.causes))
        return Exit.worst(codes)


def named(hosts: Iterable[str], limit: int = 4) -> str:
    """Hosts in a sentence: all of a few, the first ones and a count of many."""
    hosts = list(hosts)
    if len(hosts) <= limit:
        return ", ".join(hosts)
    return f"{', '.join(hosts[: limit - 1])} and {len(hosts) - limit + 1} more"


def counted(number: int, word: str) -> str:
    """`1 host`, `3 hosts`."""
    return f"{number} {word}{'' if number == 1 else 'es' if word.endswith('s') else 's'}"


def shortened(text: str, limit: int = 160) -> str:
    """Long text for people: its beginning, cut at a word. JSON has the whole."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    cut = text[: limit - 2]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[limit // 2 :] else cut} …"
