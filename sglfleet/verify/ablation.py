"""Which changed flag does what: arms that differ in one flag, measured side by side, one question after another.

Pure: the plan, what is to be run next given what was seen, and when to stop. `sglfleet ablate` starts the servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sglfleet.verify.statistics import LEVEL

Direction = Literal["add", "remove"]
LEAST_PAIRS = 3  # fewer say nothing whatever they show


@dataclass(frozen=True, slots=True)
class Question:
    """One flag's own effect: arm `without` against arm `with_`, which differ in nothing else."""

    flag: str
    without: tuple[str, ...]  # changed flags that are on in the first arm
    with_: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One server start and the runs made on it."""

    flag: str  # the question it belongs to
    arm: Literal["without", "with"]
    on: tuple[str, ...]  # changed flags that are on
    block: int


def questions(flags: Sequence[str], inert: Sequence[str], direction: Direction) -> list[Question]:
    """One question for each flag that can do something; an inert flag costs no run.

    `add`: each flag alone against none of them, so effects are seen apart. `remove`: the full set against the full set
    without the flag, so effects are seen as they are together.
    """
    live = tuple(flag for flag in flags if flag not in inert)
    if direction == "add":
        return [Question(flag, (), (flag,)) for flag in live]
    return [Question(flag, tuple(f for f in live if f != flag), live) for flag in live]


def schedule(question: Question, pairs: int) -> list[Step]:
    """A B B A A B …: a drift of the host falls on both arms alike, and no start is made twice in a row for nothing.

    Two neighbouring steps of the same arm, B B, run on one start of the server where the caller allows it.
    """
    steps = []
    for block in range(pairs):
        order: tuple[Literal["without", "with"], ...] = ("without", "with") if block % 2 == 0 else ("with", "without")
        for arm in order:
            steps.append(Step(question.flag, arm, question.without if arm == "without" else question.with_, block))
    return steps


def left_over(steps: Sequence[Step], done: Sequence[tuple[str, str, int]]) -> list[Step]:
    """What an interrupted run still has to do; `done` holds (flag, arm, block) of every run that was kept."""
    finished = set(done)
    return [step for step in steps if (step.flag, step.arm, step.block) not in finished]


def looks(most: int) -> tuple[int, ...]:
    """After how many pairs the data may be looked at. Every look is a chance for a false alarm, so there are two."""
    return (LEAST_PAIRS, most) if most > LEAST_PAIRS else (most,)


def stop_level(most: int, asked: int) -> float:
    """Confidence level at which one of `asked` questions may be settled at one look, so that over all questions and
    looks together false alarms stay where `statistics.LEVEL` puts them (Bonferroni: looks are few and dependent)."""
    return 1 - (1 - LEVEL) / (len(looks(most)) * max(1, asked))


def duration_s(questions: Sequence[Question], pairs: int, start_s: float, run_s: float, restarts: int = 2) -> float:
    """Seconds at most: every pair starts the server `restarts` times and makes two runs."""
    return len(questions) * pairs * (restarts * start_s + 2 * run_s)
