"""Cases of the rules about kernels, read from the releases by hand, and what must hold of them whatever the release."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang, releases
from validators.verdict import Decision, Outcome, Verdict

RULES = (
    "deterministic_inference",
    "dsa_backends",
    "gemm_backends",
    "kv_cache_types",
    "linear_attention",
    "moe_all_to_all",
    "moe_runners",
    "quantization",
    "speculative_decoding",
)
SMS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")


def cases() -> Iterator[Any]:
    for stem in RULES:
        path = Path(__file__).with_name(f"{stem}.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield pytest.param(row, id=row["id"])


def verdict(row: dict[str, Any], flag: str) -> Verdict:
    case = Case.from_json({key: value for key, value in row.items() if key not in ("why", "expect")})
    found = [v for v in judge(case).verdicts if v.flag == flag]
    assert len(found) == 1, f"{len(found)} verdicts on {flag}"
    return found[0]


@pytest.mark.parametrize("row", list(cases()))
def test_case(row: dict[str, Any]) -> None:
    found = verdict(row, row["expect"]["flag"])
    assert found.outcome == row["expect"]["outcome"], found.reason
    if found.outcome in (Outcome.FAILS, Outcome.ACTIVE):
        assert found.evidence, "a claim without evidence"


@pytest.mark.parametrize("release", releases("sglang"))
def test_every_release_answers_for_every_method(release: str) -> None:
    """More capability never turns a pass of the minimum into a refusal below it, in any release."""
    known = load_sglang(release)
    table = {row["method"]: row for row in known.sites["capabilities"]}
    assert {"fp8", "w8a8_fp8"} <= set(table)
    for method, row in table.items():
        if row["sms"] is not None and "value" in row:
            least = row["value"]
            assert row["sms"] == [sm for sm in row_sms() if int(sm.replace(".", "")) >= least], method


def row_sms() -> tuple[str, ...]:
    from sglfleet.extract.evaluate import SMS as KNOWN

    return KNOWN


@pytest.mark.parametrize(
    ("release", "flag"),
    [
        (release, flag)
        for release in releases("sglang")
        for flag in ("fp8-gemm-backend", "moe-runner-backend")
        if flag in load_sglang(release).flags
    ],
)
def test_the_engines_own_choice_is_never_refused(release: str, flag: str) -> None:
    for sm in SMS:
        row = {
            "id": sm,
            "sglang": release,
            "sm": sm,
            "gpus": 1,
            "model_arch": "LlamaForCausalLM",
            "args": {flag: "auto"},
        }
        assert verdict(row, flag).decision is Decision.KEEP


def test_an_unread_site_is_unknown_and_not_a_guess(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same case over knowledge in which the sites are gone: nothing is claimed."""
    shipped = load_sglang("0.5.9")
    from validators import knowledge
    from validators.knowledge import loader

    source = loader.path_of("sglang", "0.5.9")
    assert source is not None
    raw = json.loads(source.read_text())
    raw["sites"] = {"raises": [], "capabilities": [], "resolution": []}
    raw["checks"], raw["tests"], raw["tables"] = [], [], {}
    folder = tmp_path / "knowledge" / "sglang"
    folder.mkdir(parents=True)
    raw["release"] = "0.5.9.post99"
    (folder / "0.5.9.post99.json").write_text(json.dumps(raw))
    monkeypatch.chdir(tmp_path)
    assert knowledge.load_sglang("0.5.9.post99").flags.keys() == shipped.flags.keys()
    for args in (
        {"fp8-gemm-backend": "cutlass"},
        {"quantization": "w8a8_fp8"},
        {"enable-deterministic-inference": True},
    ):
        (flag,) = args
        row = {
            "id": flag,
            "sglang": "0.5.9.post99",
            "sm": "8.0",
            "gpus": 1,
            "model_arch": "LlamaForCausalLM",
            "args": args,
        }
        assert verdict(row, flag).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("args", "checkpoint", "outcome"),
    [
        ({"moe-runner-backend": "deep_gemm"}, {"torch_dtype": "bfloat16"}, Outcome.INERT),
        ({"moe-runner-backend": "deep_gemm"}, {"num_experts": 8}, Outcome.FAILS),
        ({"moe-a2a-backend": "deepep"}, {"torch_dtype": "bfloat16"}, Outcome.INERT),
        ({"fp8-gemm-backend": "cutlass"}, {"quantization": "awq"}, Outcome.INERT),
        ({"fp8-gemm-backend": "cutlass"}, {"quantization": "fp8"}, Outcome.FAILS),
        ({"fp4-gemm-backend": "flashinfer_trtllm"}, {"quantization_config": {"quant_method": "gptq"}}, Outcome.INERT),
    ],
)
def test_what_the_model_does_not_have_is_not_refused(
    args: dict[str, Any], checkpoint: dict[str, Any], outcome: Outcome
) -> None:
    """On a GPU that each of them would stop on, for a checkpoint that could be read."""
    case = {"sglang": "0.5.9", "sm": "8.0", "model_arch": "LlamaForCausalLM", "args": args, "checkpoint": checkpoint}
    flag = next(iter(args))
    assert [v.outcome for v in judge(Case.from_json(case)).verdicts if v.flag == flag] == [outcome]
