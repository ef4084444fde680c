"""The order of arms, what an interrupted run still has to do, and that stopping early raises no false alarms."""

from __future__ import annotations

import random

from sglfleet.verify.ablation import Question, duration_s, left_over, looks, questions, schedule, stop_level
from sglfleet.verify.statistics import at_level, paired
from tests.sglfleet.verify.test_statistics import arms

FLAGS = ["enable-fused-moe-sum-all-reduce", "enable-flashinfer-allreduce-fusion", "disable-radix-cache"]


def test_an_inert_flag_costs_no_run():
    asked = questions(FLAGS, inert=FLAGS[1:2], direction="add")
    assert [q.flag for q in asked] == [FLAGS[0], FLAGS[2]]
    assert asked[0] == Question(FLAGS[0], (), (FLAGS[0],))


def test_removing_starts_from_the_full_set_without_inert_flags():
    (first, _) = questions(FLAGS, inert=FLAGS[1:2], direction="remove")
    assert first == Question(FLAGS[0], (FLAGS[2],), (FLAGS[0], FLAGS[2]))


def test_arms_differ_in_exactly_one_flag():
    for direction in ("add", "remove"):
        for q in questions(FLAGS, [], direction):
            assert set(q.with_) ^ set(q.without) == {q.flag}


def test_arms_alternate_a_b_b_a():
    steps = schedule(Question("x", (), ("x",)), pairs=3)
    assert [s.arm for s in steps] == ["without", "with", "with", "without", "without", "with"]
    assert [s.block for s in steps] == [0, 0, 1, 1, 2, 2]
    assert all((s.on == ("x",)) == (s.arm == "with") for s in steps)


def test_an_interrupted_run_goes_on_where_it_was():
    steps = schedule(Question("x", (), ("x",)), pairs=2)
    done = [("x", "without", 0), ("x", "with", 0), ("x", "with", 1)]
    assert [(s.arm, s.block) for s in left_over(steps, done)] == [("without", 1)]
    assert left_over(steps, []) == steps


def test_the_time_is_known_before():
    assert duration_s([Question("x", (), ("x",))], pairs=5, start_s=60, run_s=10) == 5 * (2 * 60 + 2 * 10)


def test_stopping_early_keeps_the_promise():
    rng = random.Random(5)
    level, alarms = stop_level(most=5, asked=3), 0
    for _ in range(500):
        wrong = False
        for _ in range(3):
            a, b = arms(rng, cv=0.015)
            wrong |= any(at_level(paired(a[:n], b[:n]), level).verdict in ("faster", "slower") for n in looks(5))
        alarms += wrong
    assert alarms / 500 <= 0.05


def test_a_large_effect_is_settled_at_the_first_look():
    rng = random.Random(6)
    a, b = arms(rng, cv=0.003, change=-0.3)
    assert at_level(paired(a[:3], b[:3]), stop_level(5, 1)).verdict == "slower"
