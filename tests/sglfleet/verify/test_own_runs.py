"""Runs that `sglfleet`'s own benchmark made on real H200 cards: what may be said of them.

SGLang 0.5.16, a Qwen3-MoE shape whose tokenizer has 1,024 words, 32 prompts a run: two of 32 random prompts are the
same in many runs, and such a run measures the prefix cache.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sglfleet.verify import validity
from sglfleet.verify.compare import PRIMARY, compare
from sglfleet.verify.runs import load

RUNS = load([Path(__file__).parents[2] / "fixtures/bench/h200-0.5.16-own.jsonl"])


def arm(name):
    return [run for run in RUNS if run.arm == name]


def valid(run):
    return not any(problem.fatal for problem in validity.of_run(run))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.arm} {run.block}")
def test_a_run_counts_where_no_prompt_came_from_the_cache(run):
    assert (run.completed, run.shortest_output) == (32, 1000)
    assert valid(run) == (not run.cached_tokens)


def test_a_service_against_itself_is_no_effect():
    """The last runs fell together with other work on the host's CPUs, one of them by 16 %."""
    out = compare(arm("A"), arm("B"))
    assert out.verdict() == "inconclusive"
    assert {p.code for _, p in out.problems} == {"cache"}


def test_the_fusion_with_starts_of_its_own_cannot_be_told():
    """Both arms ran a third faster at the end than at the beginning: what changed was the host."""
    out = compare(arm("fusion off"), arm("fusion on"))
    effect = next(e for e in out.effects if e.metric == PRIMARY)
    assert out.verdict() == "inconclusive"
    assert effect.low < 1 < effect.high
    assert {p.code for _, p in out.problems if not p.fatal} == {"unseen"}


def test_cards_that_are_not_full_are_remarked():
    out = compare(arm("fusion off"), arm("fusion on"))
    assert any("of 1400 W" in note for note in out.notes)
