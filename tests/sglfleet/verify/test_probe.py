"""The engine's own word beside the judgement: it wins, except where it could not ask."""

from __future__ import annotations

import pytest

from sglfleet.verify.probe import could_not_ask, disagreements
from tests.sglfleet.verify.recorded import verdict
from validators.verdict import Decision, Outcome

GPU = {"devices": [{"sm": "12.0"}]}
RAISES = "ValueError: --kv-cache-dtype fp8_e4m3 needs SM100"


def answer(gpu=True, raised="", resolved=None, rejected=False, **more):
    told = {"raised": raised, "resolved": resolved or {}, "rejected": rejected}
    return {"gpu": GPU if gpu else {}, "arguments": told, **more}


KEPT = verdict("kv-cache-dtype", value="fp8_e4m3")
FAILS = verdict("kv-cache-dtype", value="fp8_e4m3", outcome=Outcome.FAILS, decision=Decision.WARN)


@pytest.mark.parametrize(
    ("said", "judged", "count", "wins", "becomes"),
    [
        (answer(), KEPT, 0, None, None),
        (answer(raised=RAISES), KEPT, 1, True, Outcome.FAILS),
        (answer(gpu=False, raised=RAISES), KEPT, 1, False, Outcome.FAILS),
        (
            answer(gpu=False, raised="error: unrecognized arguments: --kv-cache-dtype", rejected=True),
            KEPT,
            1,
            True,
            Outcome.REJECTED,
        ),
        (answer(raised=RAISES), FAILS, 0, None, None),
        (answer(resolved={"kv_cache_dtype": "fp8_e4m3"}), KEPT, 0, None, None),
        (answer(resolved={"kv_cache_dtype": "auto"}), KEPT, 1, True, Outcome.ALTERED),
        (answer(gpu=False, resolved={"kv_cache_dtype": "auto"}), KEPT, 1, False, Outcome.ALTERED),
        (answer(resolved={"kv_cache_dtype": "bf16"}), verdict("kv-cache-dtype", value="auto"), 0, None, None),
        (answer(resolved={"x": [4]}), verdict("x", value=4), 0, None, None),
        (answer(resolved={"x": '{"a": 1}'}), verdict("x", value={"a": 1}), 0, None, None),
    ],
)
def test_arguments(said, judged, count, wins, becomes):
    found = disagreements(said, [judged])
    assert len(found) == count, found
    for one in found:
        assert (one.wins, one.becomes) == (wins, becomes)
        assert ("could not ask" in str(one)) is not wins


def test_a_raise_that_names_no_flag_is_still_told():
    (found,) = disagreements(answer(raised="RuntimeError: no"), [KEPT])
    assert found.subject == "argument resolution"


def test_versions_and_generators():
    said = answer(packages={"torch": "2.11.0+cu130", "flashinfer-python": "0.6.14"})
    pins = {"torch": "2.11.0", "flashinfer-python": "0.6.13", "triton": "3.6.0"}
    assert [d.subject for d in disagreements(said, [], pins=pins)] == ["flashinfer-python", "triton"]
    no = "No supported CUDA architectures found for major versions [9, 10]."
    said = {"generators": {"12.0": {"jit.comm.gen_trtllm_comm_module": no, "jit.comm.gen_vllm_comm_module": "ok"}}}
    agreed = {"gen_trtllm_comm_module": (9, 10), "gen_vllm_comm_module": None}
    assert disagreements(said, [], majors=agreed) == ()
    (one,) = disagreements(said, [], majors={"gen_trtllm_comm_module": (9, 10, 12)})
    assert one.subject == "gen_trtllm_comm_module on SM 12.0"
    said["generators"]["12.0"]["jit.comm.gen_trtllm_comm_module"] = "could not ask: FileNotFoundError: nvcc"
    assert disagreements(said, [], majors={"gen_trtllm_comm_module": (12,)}) == ()


def test_what_could_not_be_asked_is_said():
    assert could_not_ask({"gaps": {"gpu": "no GPU"}}) == ("gpu: no GPU",)
