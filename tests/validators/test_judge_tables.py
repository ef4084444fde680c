"""Outcomes that were read from the wheels of each release and audited, by SM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.validators.asking import ask, rows, verdict
from validators.verdict import Decision, Outcome, Overall


def spread(name: str, *words: str) -> Iterator[Any]:
    """One case per SM of every row."""
    for row in rows(name):
        by_word = row.get("by_outcome") or {word: row[word] for word in words if word in row}
        for word, sms in by_word.items():
            for sm in sms:
                yield pytest.param(
                    row, sm, word, id=f"{row['sglang']}-{row['flag']}-tp{row['args'].get('tp-size')}-{sm}"
                )


def judged(row: dict[str, Any], sm: str) -> Any:
    keys = ("sglang", "flashinfer", "model_arch", "gpus", "args")
    return ask(sm=sm, nnodes=1, **{key: row[key] for key in keys if key in row})


@pytest.mark.parametrize(("row", "sm", "outcome"), list(spread("fusion")))
def test_fusion(row: dict[str, Any], sm: str, outcome: str) -> None:
    found = verdict(judged(row, sm), row["flag"])
    assert found.outcome == outcome, found.reason
    assert found.evidence


@pytest.mark.parametrize(("row", "sm", "word"), list(spread("gates", "blocked", "runs")))
def test_gate(row: dict[str, Any], sm: str, word: str) -> None:
    judgement = judged(row, sm)
    found = verdict(judgement, row["flag"])
    if word == "blocked":
        assert found.outcome is Outcome.FAILS, found.reason
        assert judgement.decision is not Overall.ACCEPT
    else:
        assert judgement.decision is not Overall.REFUSE, found.reason
        assert found.decision not in (Decision.DROP, Decision.REFUSE), found.reason


FUSION = "enable-flashinfer-allreduce-fusion"
BACKEND = "flashinfer-allreduce-fusion-backend"
DP = {"dp-size": 4, "enable-dp-attention": True}


@pytest.mark.parametrize(
    ("release", "sm", "more", "args", "outcome"),
    [
        ("0.5.16", "9.0", {"nnodes": 2}, {FUSION: True}, "fails"),
        ("0.5.16", "10.0", {"nnodes": 2}, {FUSION: True}, "active"),
        ("0.5.23", "10.0", {"nnodes": 2}, {BACKEND: "trtllm"}, "fails"),
        ("0.5.23", "9.0", {"nnodes": 2}, {BACKEND: "mnnvl"}, "fails"),
        ("0.5.23", "9.0", {}, {BACKEND: "mnnvl"}, "active"),
        ("0.5.23", "9.0", {}, {BACKEND: "cutedsl"}, "fails"),
        ("0.5.23", "10.0", {}, {BACKEND: "cutedsl"}, "unknown"),
        ("0.5.9", "9.0", {"nnodes": 2}, {FUSION: True}, "unknown"),
        ("0.5.12", "9.0", {"interconnect": "pcie"}, {FUSION: True}, "altered"),
        ("0.5.16", "9.0", {"multicast": False}, {FUSION: True}, "altered"),
        ("0.5.9", "9.0", {"interconnect": "pcie"}, {FUSION: True}, "unknown"),
        ("0.5.9", "9.0", {"interconnect": "pcie", "p2p": True}, {FUSION: True}, "active"),
        ("0.5.23", "9.0", {}, {FUSION: True, **DP}, "inert"),
        ("0.5.23", "12.0", {}, {FUSION: True, **DP}, "fails"),
        ("0.5.9", "9.0", {}, {FUSION: True, "dp-size": 1, "enable-dp-attention": True}, "active"),
        ("0.5.12", "9.0", {}, {FUSION: True, "enable-deterministic-inference": True}, "altered"),
        ("0.5.23", "12.0", {}, {FUSION: True, "enable-deterministic-inference": True}, "altered"),
        ("0.5.23", "12.0", {}, {FUSION: True, "enforce-disable-flashinfer-allreduce-fusion": True}, "inert"),
        ("0.5.3.post3", "12.0", {"flashinfer": "0.7.2"}, {FUSION: True}, "unknown"),
        ("0.5.3.post3", "12.0", {"flashinfer": "0.3.1"}, {FUSION: True}, "fails"),
        ("0.5.9", "12.0", {"flashinfer": "0.7.2"}, {FUSION: True}, "inert"),
        ("0.5.9", "9.0", {"flashinfer": "0.7.2"}, {FUSION: True}, "unknown"),
    ],
)
def test_fusion_beside_other_settings(
    release: str, sm: str, more: dict[str, Any], args: dict[str, Any], outcome: str
) -> None:
    judgement = ask(release, sm, gpus=4, model_arch="Qwen3MoeForCausalLM", args={"tp-size": 4, **args}, **more)
    flag = BACKEND if BACKEND in args else FUSION
    assert verdict(judgement, flag).outcome == outcome, verdict(judgement, flag).reason


@pytest.mark.parametrize(
    ("release", "sm", "arch", "outcome", "decision"),
    [
        ("0.5.6.post2", "12.0", "GptOssForCausalLM", "fails", "refuse"),
        ("0.5.7", "12.0", "Qwen3MoeForCausalLM", "fails", "refuse"),
        ("0.5.7", "9.0", "Qwen3MoeForCausalLM", "active", "keep"),
        ("0.5.8", "12.0", "Qwen3MoeForCausalLM", None, None),
        ("0.5.23", "9.0", "Qwen3MoeForCausalLM", "active", "keep"),
        ("0.5.23", "9.0", "LlamaForCausalLM", None, None),
        ("0.5.23", "12.0", "Qwen3MoeForCausalLM", None, None),
    ],
)
def test_what_the_engine_turns_on_by_itself(
    release: str, sm: str, arch: str, outcome: str | None, decision: str | None
) -> None:
    judgement = ask(release, sm, gpus=4, model_arch=arch, args={"tp-size": 4})
    found = [one for one in judgement.verdicts if one.automatic]
    assert [(one.outcome.value, one.decision.value) for one in found] == ([(outcome, decision)] if outcome else [])


def test_the_flag_is_redundant_where_the_engine_turns_it_on() -> None:
    found = verdict(
        ask("0.5.9", "9.0", gpus=4, model_arch="Qwen3MoeForCausalLM", args={"tp-size": 4, FUSION: True}), FUSION
    )
    assert found.redundant
    other = verdict(
        ask("0.5.9", "9.0", gpus=4, model_arch="Qwen3ForCausalLM", args={"tp-size": 4, FUSION: True}), FUSION
    )
    assert other.outcome is Outcome.ACTIVE
    assert not other.redundant
