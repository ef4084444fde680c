"""Cases of the rules that stop on any NVIDIA GPU, read from the releases by hand, and what holds in every release."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.validators.opening import stands
from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang, releases
from validators.rules import fused_models, library, places
from validators.verdict import Outcome

RULES = (
    "allreduce_fusion",
    "attention_aliases",
    "attention_backends",
    "attention_default",
    "other_accelerators",
    "package_minimums",
    "triton_assembler",
    "value_ranges",
)


def cases() -> Iterator[Any]:
    for stem in RULES:
        for line in Path(__file__).with_name(f"{stem}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield pytest.param(row, id=f"{stem}-{row['id']}")


def outcomes(case: dict[str, Any]) -> dict[str, Outcome]:
    return {verdict.flag: verdict.outcome for verdict in judge(Case.from_json(case)).verdicts}


@pytest.mark.parametrize("row", list(cases()))
def test_case(row: dict[str, Any]) -> None:
    case = {key: value for key, value in row.items() if key not in ("why", "expect")}
    found = [v for v in judge(Case.from_json(case)).verdicts if v.flag == row["expect"]["flag"]]
    assert len(found) == 1, f"{len(found)} verdicts"
    assert found[0].outcome == row["expect"]["outcome"], found[0].reason
    if found[0].outcome is Outcome.FAILS and found[0].flag != "driver":
        assert found[0].evidence, "a claim without evidence"
        assert not found[0].evidence[0].condition.startswith("--"), "the flag's declaration is not what fails"


@pytest.mark.parametrize("release", releases("sglang"))
def test_numbers_that_a_release_takes_are_not_refused(release: str) -> None:
    args = {
        "tp-size": 8,
        "pp-size": 1,
        "dp-size": 2,
        "nnodes": 2,
        "node-rank": 1,
        "port": 30000,
        "mem-fraction-static": 0.9,
        "enable-dp-attention": True,
    }
    case = {"sglang": release, "sm": "9.0", "gpus": 8, "args": args}
    refused = {Outcome.FAILS, Outcome.REJECTED}
    assert {flag: outcome for flag, outcome in outcomes(case).items() if outcome in refused} == {}


@pytest.mark.parametrize("release", releases("sglang"))
def test_the_releases_own_packages_are_never_too_old(release: str) -> None:
    """A minimum above the release's own pin would refuse every engine."""
    known = load_sglang(release)
    names = ("flashinfer-python", "sgl-kernel", "sglang-kernel")
    packages = {name: known.pin(name) for name in names if known.pin(name)}
    assert packages
    case = {"sglang": release, "sm": "9.0", "args": {"attention-backend": "flashinfer"}, "packages": packages}
    found = outcomes(case)
    assert {name: found[name] for name in packages if found.get(name) is Outcome.FAILS} == {}


@pytest.mark.parametrize("release", releases("sglang"))
def test_every_release_has_its_places(release: str) -> None:
    always = {"serve", "device", "fraction", "ranks.tp", "ranks.pp", "minimum.flashinfer-python", "attention.ascend"}
    assert always <= set(places.all_of(release))


@pytest.mark.skipif("SGLFLEET_TREES" not in os.environ, reason="SGLFLEET_TREES: folder of unpacked artifacts, by name")
@pytest.mark.full
@pytest.mark.parametrize("release", releases("sglang"))
def test_the_places_stand_in_the_unpacked_releases(release: str) -> None:
    root = Path(os.environ["SGLFLEET_TREES"]) / f"sglang-{release}"
    proofs = [*places.all_of(release).values(), *fused_models.all_of(release).values()]
    assert [proof for proof in proofs if not stands(root, proof)] == []


@pytest.mark.parametrize("release", releases("sglang"))
def test_every_release_says_what_a_model_builds_to_be_fused(release: str) -> None:
    assert "home" in fused_models.all_of(release)


def test_only_one_release_stops_on_its_own_choice() -> None:
    """Read in all releases: the branch that picks and the check that refuses differ in 0.5.6.post2 alone."""
    stopping = set()
    for release in releases("sglang"):
        for sm in ("8.0", "9.0", "10.0", "12.0"):
            case = {"sglang": release, "sm": sm, "model_arch": "Qwen3ForCausalLM", "args": {}}
            if outcomes(case).get("attention-backend") is Outcome.FAILS:
                stopping.add((release, sm))
    assert stopping == {("0.5.6.post2", "12.0")}


@pytest.mark.parametrize("release", releases("flashinfer"))
def test_what_flashinfer_asks_is_read_of_every_release(release: str) -> None:
    """From 0.5.0 on each back end of an FP4 product names the GPUs that it is for."""
    named = {"_cudnn_gemm_fp4_requirement", "_trtllm_gemm_fp4_requirement", "_cutlass_gemm_fp4_requirement"}
    assert (named if Version(release) >= Version("0.5.0") else set()) <= set(library.all_of(release))


@pytest.mark.skipif("SGLFLEET_TREES" not in os.environ, reason="SGLFLEET_TREES: folder of unpacked artifacts, by name")
@pytest.mark.full
@pytest.mark.parametrize("release", releases("flashinfer"))
def test_what_flashinfer_asks_stands_in_the_unpacked_releases(release: str) -> None:
    root = Path(os.environ["SGLFLEET_TREES"]) / f"flashinfer-python-{release}"
    assert [proof for proof in library.all_of(release).values() if not stands(root, proof)] == []


@pytest.mark.parametrize(
    "more",
    [
        {"packages": {"triton": "3.6.0"}},
        {"packages": {"triton": "3.5.1"}, "env": {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}},
        {"packages": {"torch": "2.11.0"}},
        {"sm": "10.0"},
    ],
)
def test_an_assembler_that_knows_the_gpu_is_not_spoken_of(more: dict[str, Any]) -> None:
    assert "triton" not in outcomes({"sglang": "0.5.9", "sm": "10.3", "args": {}, **more})
