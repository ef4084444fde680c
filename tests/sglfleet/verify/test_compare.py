"""Two arms of runs to a verdict: what is left out, what is paired, what is said."""

from __future__ import annotations

import random

import pytest

from sglfleet.verify.compare import compare
from sglfleet.verify.runs import Run
from tests.sglfleet.verify.test_statistics import arms
from tests.sglfleet.verify.test_validity import GPU, run


def arm(name: str, throughputs: list[float], concurrency: int = 16, **changes: object) -> list[Run]:
    return [
        run(arm=name, block=i, seed=i, concurrency=concurrency, metrics={"output_throughput": v}, **changes)
        for i, v in enumerate(throughputs)
    ]


def test_a_real_effect_of_the_fusion_kernel():
    """Tokens/s seen on two H200 with the fusion off and on, two runs each, at concurrency 16: the ratio is
    large, and two pairs still say nothing for certain."""
    out = compare(arm("off", [4427.1, 4274.4]), arm("on", [5972.5, 6066.3]))
    (effect,) = out.effects
    assert 1.3 < effect.ratio < 1.45
    assert out.verdict() == "inconclusive"
    assert effect.more is not None


def test_five_pairs_settle_it():
    off, on = arms(random.Random(1), cv=0.015, change=0.36)
    assert compare(arm("off", off), arm("on", on)).verdict() == "faster"


def test_an_invalid_run_takes_its_pair_with_it():
    off, on = arms(random.Random(2), cv=0.01, change=0.3)
    left, right = arm("off", off), arm("on", on)
    right[2] = right[2].model_copy(update={"completed": 10})
    out = compare(left, right)
    assert out.effects[0].pairs == 4
    assert [(where, p.code) for where, p in out.problems if p.code == "failed"] == [("on seed 2 at 16", "failed")]


def test_a_flag_that_was_not_proven_gives_no_number():
    """A published benchmark measured a fusion that the engine had turned off with a log line."""
    off, on = arms(random.Random(3), cv=0.01, change=0.3)
    out = compare(arm("off", off), arm("on", on, unproven=("flashinfer-allreduce-fusion-backend",)))
    assert out.effects == ()
    assert out.verdict() == "inconclusive"
    assert {p.code for _, p in out.problems} == {"unproven"}


def test_arms_with_unequal_cache_hits_give_no_number():
    warm = arm("b", [1860.0] * 3, cached_tokens=48000, cache_expected=True)
    cold = arm("a", [1000.0, 1001.0, 999.0], cached_tokens=0, cache_expected=True)
    out = compare(cold, warm)
    assert out.effects == ()
    assert [p.code for _, p in out.problems] == ["cache-differs"]


def test_runs_that_scatter_end_inconclusive_with_advice():
    """Mean times to the first token of five equal runs, seen at 330 concurrent requests."""
    wild = [2533.0, 1735.0, 1747.0, 11675.0, 47593.0]
    out = compare(arm("a", wild), arm("b", wild[::-1]))
    assert out.verdict() == "inconclusive"
    assert any("lower the load below saturation" in note for note in out.notes)


def test_arms_that_were_not_interleaved_are_compared_and_it_is_said():
    left = [r.model_copy(update={"block": None}) for r in arm("a", [1000, 1004, 998, 1001])]
    right = [r.model_copy(update={"block": None}) for r in arm("b", [900, 904, 898, 901])]
    (effect,) = compare(left, right).effects
    assert (effect.verdict, effect.paired) == ("slower", False)
    assert "not interleaved" in effect.note


def test_opposite_effects_at_two_concurrencies_are_no_verdict():
    up, down = arms(random.Random(4), cv=0.003, change=0.2), arms(random.Random(5), cv=0.003, change=-0.2)
    a = arm("a", up[0], 1) + arm("a", down[0], 64)
    b = arm("b", up[1], 1) + arm("b", down[1], 64)
    out = compare(a, b)
    assert [(e.concurrency, e.verdict) for e in out.effects] == [(1, "faster"), (64, "slower")]
    assert out.verdict() == "inconclusive"


def test_nothing_measured_is_said():
    assert compare([], []).verdict() == "inconclusive"


def test_power_far_below_the_limit_is_a_line_and_no_fault():
    """250 W of 600 W on busy cards: the four flags under test "made no difference"."""
    cool = GPU.model_copy(update={"power_w": 250, "power_limit_w": 600})
    off, on = arms(random.Random(6), cv=0.003)
    out = compare(arm("off", off, telemetry=cool), arm("on", on, telemetry=GPU))
    (note,) = [note for note in out.notes if "drawing" in note]
    assert note.startswith("off, concurrency 16: busy, but drawing 250 W of 600 W")
    assert out.verdict() == "no effect"


FLAG = "flashinfer-allreduce-fusion-backend"


@pytest.mark.parametrize(
    ("status", "fatal", "says"),
    [
        ("contradicted", True, f"{FLAG} auto was given and does not work"),
        ("not proven", True, f"{FLAG} auto was not proven active"),
        ("nothing to see", False, "the effect is that of giving it"),
        (None, False, "was not looked for"),
        ("proven", None, ""),
    ],
)
def test_only_a_flag_that_was_seen_working_has_an_effect(status, fatal, says):
    off, on = arms(random.Random(3), cv=0.01, change=0.3)
    proofs = {} if status is None else {FLAG: status}
    args = {"tp-size": "2", "port": "1"}
    left = arm("off", off, args=args, proofs={})
    right = arm("on", on, args={**args, "port": "2", FLAG: "auto"}, proofs=proofs)
    out = compare(left, right)
    assert [p.fatal for _, p in out.problems] == ([] if fatal is None else [fatal])
    assert all(says in p.what for _, p in out.problems)
    assert out.verdict() == ("inconclusive" if fatal else "faster")
    assert compare(left, right, as_released=True).verdict() == "faster"


def test_flags_that_both_arms_were_given_are_not_under_test():
    off, on = arms(random.Random(3), cv=0.01, change=0.3)
    same = {"args": {FLAG: "auto"}, "proofs": {FLAG: "contradicted"}}
    assert compare(arm("off", off, **same), arm("on", on, **same)).problems == ()
