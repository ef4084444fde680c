"""Real measurements of real cards, compared again: what was recorded on H200s, and what may be said of it."""

from __future__ import annotations

import pytest

from sglfleet.verify.compare import PRIMARY, compare
from sglfleet.verify.statistics import noise
from tests.sglfleet.verify.h200 import runs, throughputs


def primary(comparison):
    return next(e for e in comparison.effects if e.metric == PRIMARY)


def test_the_noise_of_the_card():
    """About one percent at concurrency 16; several at concurrency 1, where one request is most of a run."""
    assert noise([throughputs("first start", 16), throughputs("second start", 16)]) == pytest.approx(0.012, abs=0.002)
    assert 0.05 < noise([throughputs("first start", 1), throughputs("second start", 1)]) < 0.10


def test_a_service_against_itself_in_turns_is_no_effect():
    """Eight runs of one start, dealt out to two arms in the order A B B A."""
    made = runs("first start")
    a = [r.model_copy(update={"block": i}) for i, r in enumerate([made[0], made[3], made[4], made[7]])]
    b = [r.model_copy(update={"block": i}) for i, r in enumerate([made[1], made[2], made[5], made[6]])]
    effect = primary(compare(a, b))
    assert (effect.verdict, effect.pairs) in (("no effect", 4), ("inconclusive", 4))
    assert effect.low < 1 < effect.high


@pytest.mark.parametrize("concurrency", [1, 16])
def test_the_same_service_started_twice_is_never_an_effect(concurrency):
    """At concurrency 1 the second start was up to 15 % slower for no reason."""
    out = compare(runs("first start", concurrency), runs("second start", concurrency))
    assert out.verdict() in ("no effect", "inconclusive")
    assert "not interleaved" in primary(out).note


def test_the_fusion_alone_on_its_cards_is_faster():
    out = compare(runs("fusion off"), runs("fusion on"))
    effect = primary(out)
    assert (effect.verdict, effect.pairs) == ("faster", 2)
    assert effect.ratio == pytest.approx(1.384, abs=0.001)
    assert effect.low > 1.1


def test_the_fusion_with_both_servers_on_the_same_cards_cannot_be_told():
    """Each server disturbs the other; thirteen runs do not settle what four did."""
    out = compare(runs("shared cards, off"), runs("shared cards, on"))
    assert out.verdict() == "inconclusive"
    assert primary(out).pairs == 6
    assert (primary(out).more or 999) > 50


def test_cuda_graphs_off_is_slower_whatever_the_noise():
    out = compare(runs("graphs"), runs("no graphs"))
    assert out.verdict() == "slower"
    assert primary(out).paired
    assert primary(out).ratio < 0.15


def test_the_warm_up_that_was_measured_again_is_remarked():
    problems = compare(runs("fusion off"), runs("fusion on")).problems
    assert {(p.code, p.fatal) for _, p in problems} == {("warmup", False)}


def test_one_card_is_not_compared_with_two():
    out = compare(runs("first start"), runs("fusion on"))
    assert out.effects == ()
    assert "different" in {p.code for _, p in out.problems}
