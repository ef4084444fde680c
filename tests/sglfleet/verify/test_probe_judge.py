"""A release that nothing is known of is judged by its own engine; what that cannot say stays unknown."""

from __future__ import annotations

from datetime import date

import pytest

from sglfleet.verify.asking import Question, heard
from sglfleet.verify.probe_judge import ENGINE, neighbours, pending, unknown
from validators.case import Case, Waiver
from validators.judge import judge
from validators.verdict import Decision, Outcome, Overall, Policy

FUSION = "enable-flashinfer-allreduce-fusion"
ARGS = {"tp-size": 2, "max-running-requests": 8, "attention-backend": "triton", FUSION: True}
SETS = {
    "tp-size": {"tp_size": 2}, "max-running-requests": {"max_running_requests": 8},
    "attention-backend": {"attention_backend": "triton"}, FUSION: {"enable_flashinfer_allreduce_fusion": True},
}  # fmt: skip
RESOLVED = {k: v for one in SETS.values() for k, v in one.items()}


def case(**more):
    return Case(**{"sglang": "0.5.99", "args": ARGS, "sm": ("12.0",), "gpus": 2, **more})


def asked(one, **told):
    judged = pending(one)
    said = {"raised": "", "resolved": RESOLVED, "sets": SETS, "said": [], **told}
    gpu = {"devices": [{"sm": "12.0"}]} if one.sm else {}
    question = Question("python", (), {}, judged.verdicts, one.sglang, case=one)
    return heard(question, {"gpu": gpu, "arguments": said, "gaps": {}})


def by_flag(word):
    return {v.flag: v for v in word.verdicts}


def test_before_the_engine_is_asked_everything_is_unknown_and_loud():
    one = case()
    assert unknown(judge(one))
    got = pending(one)
    assert got.decision is Overall.WARN
    assert {v.flag for v in got.verdicts} == {*ARGS, ENGINE}
    assert all(v.outcome is Outcome.UNKNOWN and "0.5.99" in v.reason for v in got.verdicts)
    assert sum("NO KNOWLEDGE of SGLang 0.5.99" in v.reason for v in got.verdicts) == 1
    assert got.argv[:2] == ("--attention-backend", "triton")
    assert f"--{FUSION}" in got.argv
    assert pending(case(on_unsupported=Policy.REFUSE)).decision is Overall.REFUSE


def test_what_the_engine_takes_and_nobody_gates_is_active_and_the_rest_stays_unknown():
    word = asked(case())
    got = by_flag(word)
    assert not word.stops
    assert (got["max-running-requests"].outcome, got["max-running-requests"].decision) == (
        Outcome.ACTIVE,
        Decision.KEEP,
    )
    assert (got[FUSION].outcome, got[FUSION].decision) == (Outcome.UNKNOWN, Decision.WARN)
    assert "Whether it acts is not known" in got[FUSION].reason
    assert got[ENGINE].outcome is Outcome.UNKNOWN
    assert word.said[0].startswith("NO KNOWLEDGE of SGLang 0.5.99")
    assert len([line for line in word.said if FUSION in line]) == 1


@pytest.mark.parametrize(
    ("told", "flag", "outcome"),
    [
        ({"raised": f"error: unrecognized arguments: --{FUSION}", "rejected": True}, FUSION, Outcome.REJECTED),
        ({"raised": "ValueError: attention_backend triton cannot run here"}, "attention-backend", Outcome.FAILS),
        ({"resolved": {**RESOLVED, "max_running_requests": 4}}, "max-running-requests", Outcome.ALTERED),
        ({"said": ["WARNING: FlashInfer allreduce fusion is disabled on SM120"]}, FUSION, Outcome.INERT),
        ({"said": [f"WARNING: x is disabled because of --{FUSION}"]}, FUSION, Outcome.UNKNOWN),
    ],
)
def test_what_the_engine_refuses_raises_or_changes(told, flag, outcome):
    word = asked(case(), **told)
    got = by_flag(word)[flag]
    assert got.outcome is outcome
    assert got.rule == "probe"
    assert bool(word.stops) is (outcome in (Outcome.REJECTED, Outcome.FAILS))


def test_kernels_that_the_neighbours_need_and_this_library_lacks():
    one = case(sm=("9.0",), model_arch="Qwen3MoeForCausalLM", sglang="0.5.16.post9")
    no = "No supported CUDA architectures found for major versions [10]."
    answer = {
        "gpu": {"devices": [{"sm": "9.0"}]}, "generators": {"9.0": {"jit.comm.gen_trtllm_comm_module": no}},
        "arguments": {"raised": "", "resolved": RESOLVED, "sets": SETS, "said": []},
    }  # fmt: skip
    question = Question("python", (), {}, pending(one).verdicts, one.sglang, case=one)
    got = by_flag(heard(question, answer))[FUSION]
    assert got.outcome is Outcome.UNKNOWN
    assert "gen_trtllm_comm_module has no kernels for SM 9.0" in got.reason


def test_a_raise_that_names_no_flag_stops_it_too():
    assert asked(case(), raised="RuntimeError: this model is not supported").stops


def test_without_a_gpu_a_raise_decides_nothing_and_the_parser_everything():
    word = asked(case(sm=()), raised="ValueError: triton needs a GPU")
    assert not word.stops
    assert {v.outcome for v in word.verdicts} == {Outcome.UNKNOWN}
    assert asked(case(sm=()), raised=f"error: argument --{FUSION}: bad", rejected=True).stops
    changed = by_flag(asked(case(sm=()), resolved={**RESOLVED, "max_running_requests": 4}))["max-running-requests"]
    assert changed.outcome is Outcome.UNKNOWN
    assert "it becomes 4" in changed.reason


def test_an_engine_that_could_not_be_asked_either_stops_it():
    one = case()
    question = Question("python", (), {}, pending(one).verdicts, one.sglang, case=one)
    word = heard(question, {"gaps": {"everything": "no answer in 200 s"}})
    assert "sglfleet knowledge add 0.5.99" in word.stops[0]


def test_waivers_hold():
    allowed = (Waiver(FUSION, "tried", date(2027, 1, 1)),)
    got = pending(case(allow=allowed, today=date(2026, 11, 1), on_unsupported=Policy.REFUSE))
    assert {v.flag: v.decision for v in got.verdicts}[FUSION] is Decision.WARN


@pytest.mark.parametrize(("release", "near"), [("0.5.23.post1", "0.5.23"), ("99.0", "0.5.23"), ("0.0.1", "0.4")])
def test_neighbours(release, near):
    assert any(name.startswith(near) for name in neighbours(release))
    assert release not in neighbours(release)
