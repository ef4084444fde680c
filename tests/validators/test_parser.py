"""The first gate: names, abbreviations, types, choices; and the command line that comes out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.validators.asking import ask, verdict
from validators.case import Case, CaseError
from validators.knowledge import load_sglang
from validators.parser import render
from validators.verdict import Outcome


@pytest.mark.parametrize(
    ("args", "flag", "words"),
    [
        ({"tp-size": "four"}, "tp-size", "needs a whole number"),
        ({"tp-size": True}, "tp-size", "needs a number"),
        ({"tp-size": "8.0"}, "tp-size", "needs a whole number"),
        ({"mem-fraction-static": "much"}, "mem-fraction-static", "needs a number"),
        ({"tp-size": [1, 2]}, "tp-size", "takes one value"),
        ({"enable-metrics": "yes"}, "enable-metrics", "takes no value"),
        ({"attention-backend": "flashinfr"}, "attention-backend", "did you mean flashinfer?"),
        ({"attention-backend": "nonsense"}, "attention-backend", "this release takes"),
        ({"attention-backend": False}, "attention-backend", "needs a value"),
        ({"atention-backend": "triton"}, "atention-backend", "did you mean --attention-backend"),
        ({"attention_backend": "triton"}, "attention_backend", "did you mean --attention-backend"),
        ({"tensor-parallel-size": 4, "tp-size": 2}, "tp-size", "is given twice"),
        ({"no-such-thing-at-all": 1}, "no-such-thing-at-all", "unknown to 0.5.23"),
        ({"mem-frac": 0.9, "mem-fraction-static": 0.8}, "mem-fraction-static", "is given twice"),
        ({"enable-deepep-moe": True}, "enable-deepep-moe", "is gone since 0.5."),
    ],
)
def test_refused(args: dict[str, Any], flag: str, words: str) -> None:
    found = verdict(ask(args=args, gpus=8), flag)
    assert found.outcome is Outcome.REJECTED, found.reason
    assert words in found.reason
    assert found.todo


def test_a_flag_of_a_later_release_says_which() -> None:
    found = verdict(
        ask("0.5.9", args={"flashinfer-allreduce-fusion-backend": "auto"}), "flashinfer-allreduce-fusion-backend"
    )
    assert "it came with 0.5.14" in found.reason


@pytest.mark.parametrize(
    ("args", "argv"),
    [
        ({"tp": 4}, ("--tp-size", "4")),
        ({"tensor-parallel-size": "4"}, ("--tp-size", "4")),
        ({"tp": 4, "tp-size": 4}, ("--tp-size", "4")),
        ({"chunked-prefill-size": -1}, ("--chunked-prefill-size", "-1")),
        ({"enable-metrics": True, "disable-radix-cache": False}, ("--enable-metrics",)),
        ({"lora-strict-loading": False}, ("--no-lora-strict-loading",)),
        ({"no-lora-strict-loading": True}, ("--no-lora-strict-loading",)),
        ({"served-model-name": "-odd"}, ("--served-model-name=-odd",)),
        ({"context-length": None}, ()),
    ],
)
def test_rendered(args: dict[str, Any], argv: tuple[str, ...]) -> None:
    assert ask(args=args, gpus=8).argv == argv


def test_lists_and_json() -> None:
    release = load_sglang("0.5.23")
    assert render(release, {"cuda-graph-bs-decode": [1, 2]}) == ("--cuda-graph-bs-decode", "1", "2")
    assert render(release, {"json-model-override-args": '{"a": 1}'}) == ("--json-model-override-args", '{"a": 1}')


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "must be a JSON object"),
        ({}, "sglang: missing"),
        ({"sglang": "0.5.9", "sm": "Blackwell"}, "compute capability"),
        ({"sglang": "0.5.9", "sm": 120}, "compute capability"),
        ({"sglang": "0.5.9", "gpus": "4"}, "whole number"),
        ({"sglang": "0.5.9", "gpus": True}, "whole number"),
        ({"sglang": "0.5.9", "args": []}, "should be an object"),
        ({"sglang": "0.5.9", "args": {"a": {}}}, "not an object"),
        ({"sglang": "0.5.9", "on_unsupported": "maybe"}, "auto, downgrade, refuse, warn"),
        ({"sglang": "0.5.9", "allow": [{"flag": "x"}]}, "a waiver needs reason, until"),
        ({"sglang": "0.5.9", "allow": [{"flag": "x", "reason": "y", "until": "soon"}]}, "should be a day"),
        ({"sglang": "0.5.9", "model_arc": "x"}, "unknown key"),
        ({"sglang": "0.5.9", "interconnect": "infiniband"}, "nvswitch, nvlink, pcie"),
    ],
)
def test_a_case_that_cannot_be_read(raw: Any, words: str) -> None:
    with pytest.raises(CaseError) as caught:
        Case.from_json(raw)
    assert any(words in message for message in caught.value.messages)


def test_no_gpu_facts_is_unknown_and_refused() -> None:
    judgement = ask(sm=None, args={"attention-backend": "fa3"}, on_unsupported="warn")
    assert judgement.decision == "refuse"
    assert verdict(judgement, "gpus").outcome is Outcome.UNKNOWN
    assert verdict(judgement, "attention-backend").outcome is Outcome.UNKNOWN


def test_two_kinds_of_gpu_in_one_service() -> None:
    judgement = ask(sm=["9.0", "12.0"], args={}, on_unsupported="downgrade")
    assert judgement.decision == "refuse"
    assert "SM 9.0 and 12.0" in verdict(judgement, "gpus").reason


@pytest.mark.parametrize(
    ("args", "gpus", "nnodes", "fits"),
    [
        ({"tp-size": 4}, 4, 1, True),
        ({"tp-size": 4}, 2, 1, False),
        ({"tp-size": 16}, 8, 2, True),
        ({"tp-size": 4, "pp-size": 2}, 4, 1, False),
        ({"tp-size": 4, "dp-size": 2}, 4, 1, False),
        ({"tp-size": 4, "dp-size": 4, "enable-dp-attention": True}, 4, 1, True),
    ],
)
def test_enough_gpus(args: dict[str, Any], gpus: int, nnodes: int, fits: bool) -> None:
    judgement = ask(args=args, gpus=gpus, nnodes=nnodes)
    assert (judgement.decision != "refuse") is fits, [one.reason for one in judgement.verdicts]
