"""What a rule is, and what it answers.

A rule is a module in this folder with a page of the same stem beside it. It has

    SUBJECT: str              one line for `sglfleet rules`
    FLAGS: tuple[str, ...]    flags it speaks about, without dashes
    SITES: tuple[str, ...]    named places in the engine's source that it rests on (knowledge of each release)
    ALWAYS: bool              optional; True: asked in every case, for what the engine does unasked
    WITHOUT_GPU: bool         optional; True: can answer where no GPU facts are there (c.sm is then (0, 0))
    def judge(c: Context) -> Iterator[Part]

and it is asked when one of its flags is given. It yields one `Part` per flag it has something to say about, and nothing
for a flag that this release does not have: the parser speaks of those. Where a site it rests on is missing or new in a
release it answers `unknown`, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from validators.verdict import Evidence, Expectation, Gate, Outcome, Step, Value

if TYPE_CHECKING:
    from validators.rules.context import Context

__all__ = ["SEVERITY", "Evidence", "Expectation", "Gate", "Outcome", "Part", "Rule", "Step", "Value"]


@dataclass(frozen=True, slots=True)
class Part:
    """What one rule says of one flag; the policy makes a verdict of it.

    `instead` are substitutes that are known to work here, best first, each a set of flags that stands in for this one.
    `off` is what must be rendered when the flag is left out, because the engine would otherwise turn the thing on by
    itself and stop. `needs` are conditions that nobody could check.
    """

    flag: str
    outcome: Outcome
    reason: str
    evidence: tuple[Evidence, ...] = ()
    steps: tuple[Step, ...] = ()
    expects: tuple[Expectation, ...] = ()
    becomes: str = ""
    todo: str = ""
    instead: tuple[dict[str, Value], ...] = ()
    off: dict[str, Value] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    automatic: bool = False
    redundant: bool = False
    value: Value = None  # for what is no flag that was given: a package's version, a variable's value
    refuse: bool = False  # refused under every policy but `warn`, although it would start
    final: bool = False  # refused whatever the policy: nothing can be known, or nothing can be made to work
    beside: str = ""  # stops only together with this flag, which has the say: where that one gives way, nothing is said
    advice: bool = False  # works, but must be shown: the decision is `warn` and nothing is dropped


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the registry knows it."""

    stem: str
    subject: str
    flags: tuple[str, ...]
    sites: tuple[str, ...]
    always: bool
    without_gpu: bool  # can answer where no GPU facts are there
    judge: Callable[[Context], Iterator[Part]]


# When several rules speak of one flag, the first of these that one of them says is what happens.
SEVERITY = (
    Outcome.REJECTED,
    Outcome.FAILS,
    Outcome.INERT,
    Outcome.ALTERED,
    Outcome.UNKNOWN,
    Outcome.ACTIVE,
)
