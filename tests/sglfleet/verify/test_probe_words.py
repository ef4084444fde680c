"""What the engine says while it resolves arguments, and what becomes of verdicts by it. Lines are of real releases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglfleet.verify.asking import Question, heard
from sglfleet.verify.probe import RULE, could_matter, disagreements, mended
from sglfleet.verify.probe_arguments import names, taken_back
from tests.sglfleet.verify.recorded import verdict
from validators.verdict import Decision, Evidence, Outcome

GPU = {"devices": [{"sm": "12.0"}]}
FUSION = "enable-flashinfer-allreduce-fusion"
DISABLED = "WARNING: FlashInfer allreduce fusion is disabled because SM120 is not supported."
MOVED = (
    "WARNING: \x1b[1;33m--enable-flashinfer-allreduce-fusion is deprecated. "
    "Please use --flashinfer-allreduce-fusion-backend=auto instead.\x1b[0m"
)


@pytest.mark.parametrize(
    ("flag", "line", "what"),
    [
        (FUSION, DISABLED, "off"),
        (FUSION, "WARNING: --enable-flashinfer-allreduce-fusion is ignored on this GPU", "off"),
        (FUSION, "WARNING: enable_flashinfer_allreduce_fusion will be disabled", "off"),
        (FUSION, "WARNING: overlap is disabled because of --enable-flashinfer-allreduce-fusion.", "doubt"),
        (FUSION, "INFO: FlashInfer allreduce fusion is disabled", ""),
        (FUSION, MOVED.replace("\x1b[1;33m", "").replace("\x1b[0m", ""), ""),
        (FUSION, "WARNING: FlashInfer allreduce fusion is enabled", ""),
        ("tp-size", "WARNING: the size is not supported", ""),
        ("tp-size", "WARNING: --tp-size is ignored", "off"),
        ("disable-radix-cache", "WARNING: radix cache is disabled because of the draft model", ""),
        ("mixed", "WARNING: mixed is disabled", ""),  # one word says too little
    ],
)
def test_a_warning_takes_a_flag_back(flag, line, what):
    assert taken_back(flag, line) == what


@pytest.mark.parametrize(
    ("flag", "text", "does"),
    [
        ("kv-cache-dtype", "ValueError: --kv-cache-dtype fp8_e4m3 needs SM100", True),
        ("kv-cache-dtype", "error: argument --kv-cache-dtype: invalid choice: 'x'", True),
        ("kv-cache-dtype", "AssertionError: kv_cache_dtype=fp8 is wrong", True),
        ("dtype", "ValueError: --kv-cache-dtype fp8_e4m3 needs SM100", False),
        ("tp-size", "error: unrecognized arguments: --tp-size-x 3", False),
        ("port", "RuntimeError: no support", False),
    ],
)
def test_a_text_names_a_flag(flag, text, does):
    assert names(flag, text) is does


def answer(said=(), gpu=True, sets=None, asked=None, **resolved):
    told = {"raised": "", "resolved": resolved, "said": list(said), "sets": sets or {}}
    return {"gpu": GPU if gpu else {}, "arguments": told, **({"asked": asked} if asked else {})}


def after(one, said):
    return mended([one], disagreements(said, [one]))[0]


ACTIVE = verdict(FUSION, value=True)
FIELD = {FUSION: {"enable_flashinfer_allreduce_fusion": True}}


def test_what_the_engine_changes_is_altered_and_says_to_what():
    got = after(verdict("kv-cache-dtype", value="fp8_e4m3"), answer(kv_cache_dtype="bf16"))
    assert (got.outcome, got.decision, got.becomes, got.rule) == (Outcome.ALTERED, Decision.WARN, "bf16", RULE)
    assert "it becomes bf16" in got.reason
    assert got.evidence[0].artifact == "the engine on the host"
    without = after(verdict("kv-cache-dtype", value="fp8_e4m3"), answer(gpu=False, kv_cache_dtype="bf16"))
    assert without.outcome is Outcome.ACTIVE  # it could not ask a GPU


def test_what_the_engine_warns_of_is_not_active():
    got = after(ACTIVE, answer([DISABLED], sets=FIELD, enable_flashinfer_allreduce_fusion=True))
    assert (got.outcome, got.decision, got.rule) == (Outcome.INERT, Decision.WARN, RULE)
    doubt = "WARNING: --enable-flashinfer-allreduce-fusion falls back to auto"
    got = after(ACTIVE, answer([doubt], sets=FIELD, enable_flashinfer_allreduce_fusion=True))
    assert got.outcome is Outcome.UNKNOWN


def test_a_deprecated_flag_that_moves_is_not_changed():
    moved = answer([MOVED], sets=FIELD, enable_flashinfer_allreduce_fusion=False)
    moved["arguments"]["resolved"]["flashinfer_allreduce_fusion_backend"] = "auto"
    assert after(ACTIVE, moved) is ACTIVE
    moved["arguments"]["resolved"]["flashinfer_allreduce_fusion_backend"] = None
    assert after(ACTIVE, moved).outcome is Outcome.ALTERED
    del moved["arguments"]["resolved"]["flashinfer_allreduce_fusion_backend"]
    assert after(ACTIVE, moved) is ACTIVE  # where it went cannot be seen


@pytest.mark.parametrize("outcome", [Outcome.ALTERED, Outcome.FAILS])
def test_the_other_direction_on_the_command_line(outcome):
    one = verdict("kv-cache-dtype", value="bf16", outcome=outcome, decision=Decision.WARN)
    got = after(one, answer(kv_cache_dtype="bf16"))
    assert (got.outcome, got.rule) == (Outcome.UNKNOWN, RULE)
    assert after(one, answer(gpu=False, kv_cache_dtype="bf16")) is one


def test_the_other_direction_for_what_was_left_out():
    one = verdict("kv-cache-dtype", value="bf16", outcome=Outcome.ALTERED, decision=Decision.DROP)
    assert could_matter([one])
    would = {"raised": "", "resolved": {"kv_cache_dtype": "bf16"}, "said": []}
    got = after(one, answer(x=1, asked=would))
    assert (got.outcome, got.decision) == (Outcome.UNKNOWN, Decision.DROP)
    assert after(one, answer(x=1, asked={**would, "resolved": {"kv_cache_dtype": "auto"}})) is one
    assert after(one, answer(x=1, asked={**would, "raised": "ValueError"})) is one
    idle = replace(one, outcome=Outcome.INERT)
    assert not could_matter([idle])
    assert after(idle, answer(x=1, asked=would)) is idle  # what does nothing resolves as well


def test_kernels_that_the_installed_library_refuses_for_this_host():
    proof = Evidence("flashinfer-0.6.14", "flashinfer/jit/comm.py", "gen_trtllm_comm_module")
    no = "No supported CUDA architectures found for major versions [9, 10]."
    said = {"gpu": GPU, "generators": {"12.0": {"jit.comm.gen_trtllm_comm_module": no}}}
    got = after(replace(ACTIVE, evidence=(proof,)), said)
    assert (got.outcome, got.rule) == (Outcome.UNKNOWN, RULE)
    assert after(ACTIVE, said) is ACTIVE
    other = Evidence("flashinfer-0.6.14", "flashinfer/jit/comm.py", "gen_other_module")
    said["generators"]["12.0"]["jit.comm.gen_other_module"] = "ok"  # one of two is enough
    both = replace(ACTIVE, evidence=(proof, other))
    assert after(both, said) is both


def test_a_policy_that_refuses_what_does_not_act_hears_the_engine():
    said = answer([DISABLED], sets=FIELD, enable_flashinfer_allreduce_fusion=True)
    asked = Question("python", (), {}, (ACTIVE,), "0.5.16", refuses=frozenset({FUSION}))
    assert len(heard(asked, said).stops) == 1
    assert heard(replace(asked, refuses=frozenset()), said).stops == ()
