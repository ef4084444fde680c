"""An ablation's own record: what is done, what was proven, what may be said. Its hosts come in test_measured.py."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sglfleet.report.effects import comparison_json
from sglfleet.verify import ablating
from sglfleet.verify.ablating import Answer, Study, as_json
from sglfleet.verify.ablation import Question
from sglfleet.verify.arms import Arms, other_value, works
from tests.sglfleet.verify.test_validity import run
from validators.service import Benchmark, Service
from validators.verdict import Decision, Outcome, Verdict

FLAG = "enable-fused-moe-sum-all-reduce"
QUESTION = Question(FLAG, (), (FLAG,))


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "ablation.jsonl"
    unused = cast(Arms, None)  # nothing here starts a server
    return Study(unused, "add", 5, Benchmark(concurrency=(1, 16)), file, print, [QUESTION])


def keep(study: Study, arm: str, block: int, concurrency: int, throughput: float, **more: Any) -> None:
    args = {FLAG: "true"} if arm == "with" else {"tp-size": "1"}
    changes = {"block": block, "concurrency": concurrency, "args": args, "metrics": {"output_throughput": throughput}}
    made = run(arm=f"{FLAG} {arm}", **changes, **more)
    with study.file.open("a") as out:
        out.write(made.model_dump_json() + "\n")


def test_a_step_is_done_when_every_concurrency_was_measured(study):
    keep(study, "without", 0, 1, 100)
    assert ablating._done(study, FLAG) == []
    keep(study, "without", 0, 16, 1000)
    assert ablating._done(study, FLAG) == [(FLAG, "without", 0)]
    assert ablating._done(study, "another") == []


def test_what_was_proven_at_the_first_start_holds_for_the_arm(study):
    assert study.proofs(f"{FLAG} with") == {}
    keep(study, "with", 0, 1, 100, proofs={FLAG: "proven"})
    assert study.proofs(f"{FLAG} with") == {FLAG: "proven"}


@pytest.mark.parametrize(
    ("status", "verdict", "codes"),
    [
        ("proven", "faster", set()),
        ("contradicted", "inconclusive", {"unproven"}),
        ("nothing to see", "faster", {"unseen"}),
    ],
)
def test_a_flag_that_was_not_seen_working_has_no_effect(study, status, verdict, codes):
    for block in range(3):
        for concurrency, speed in ((1, 100.0), (16, 1000.0)):
            keep(study, "without", block, concurrency, speed + block, proofs={"tp-size": "proven"})
            keep(study, "with", block, concurrency, 1.5 * speed + block, proofs={FLAG: status})
    found = ablating._compare(study, QUESTION, 3)
    assert found.verdict() == verdict
    assert {p.code for _, p in found.problems if "tp-size" not in p.what} == codes


def test_one_pair_is_never_an_effect(study):
    for arm, speed in (("without", 100.0), ("with", 900.0)):
        keep(study, arm, 0, 1, speed)
    assert ablating._compare(study, QUESTION, 1).effects == ()


def test_later_pairs_are_not_looked_at_before_their_time(study):
    for block in range(4):
        keep(study, "without", block, 16, 1000.0 + block)
        keep(study, "with", block, 16, 1500.0 + block)
    (effect,) = ablating._compare(study, QUESTION, 3).effects
    assert (effect.pairs, effect.verdict) == (3, "faster")
    assert effect.level > 0.98, "two looks share the promise"


def verdict(outcome, **more):
    return Verdict(FLAG, True, outcome, Decision.KEEP, "why", "rule", **more)


@pytest.mark.parametrize(
    ("own", "value", "other"),
    [(None, True, None), (True, True, None), ("flashinfer", "triton", "flashinfer"), (8, 4, 8), (False, True, False)],
)
def test_a_changed_flag_is_compared_with_what_the_service_file_has(own, value, other):
    assert other_value(own, value) is other


def test_only_an_active_flag_is_worth_a_run():
    assert works(verdict(Outcome.ACTIVE)) == ""
    assert works(None) == ""
    assert works(verdict(Outcome.INERT)) == "inert: why"
    assert works(verdict(Outcome.ACTIVE, redundant=True)) == "the engine turns it on anyway: why"


def test_the_document_has_every_flag(study):
    keep(study, "without", 0, 1, 100.0)
    measured = ablating._compare(study, QUESTION, 1)
    answers = [Answer(FLAG, verdict(Outcome.ACTIVE), "", measured, 1), Answer("x", None, "inert: why")]
    told = as_json("s", answers)
    assert [(f["flag"], f["effect"], f["outcome"]) for f in told["flags"]] == [
        (FLAG, "inconclusive", "active"),
        ("x", "not measured", "unknown"),
    ]
    assert told["flags"][0]["comparison"] == comparison_json(measured)


def test_another_service_file_is_another_question():
    spec = {"service": "s", "engine": {"sglang": "0.5.23"}, "model": "/m", "gpus": [0], "args": {"tp-size": 1}}

    def key(changed=None, flags=None, **benchmark):
        return ablating._key(
            Service.model_validate({**spec, **(changed or {})}), flags or {FLAG: True}, "add", Benchmark(**benchmark)
        )

    assert key() == key({"rollout": {"soak": "5s"}})
    others = [key(), key({"args": {"tp-size": 2}}), key({"model": "/n"}), key(flags={FLAG: False}), key(input_len=7)]
    assert len(set(others)) == len(others)
