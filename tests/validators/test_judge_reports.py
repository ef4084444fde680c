"""What people who run this reported, and what the gate says before the launch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.validators.asking import ask

FUSION = "enable-flashinfer-allreduce-fusion"
PCIE4 = {"gpus": 4, "interconnect": "pcie"}
REPORTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # what happened: (decision, a word of the reason, case)
    "turns the fusion on by itself on SM 12.0 and dies in graph capture, no off switch yet": (
        "refuse",
        "no switch",
        {"sglang": "0.5.6.post2", "sm": "12.0", "model_arch": "GptOssForCausalLM", "args": {"tp-size": 2}, "gpus": 2},
    ),
    "flag accepted on SM 12.0 and never applied": (
        "downgrade",
        "never applies",
        {
            "sglang": "0.5.9",
            "sm": "12.0",
            "model_arch": "Glm4MoeForCausalLM",
            "args": {"tp-size": 4, FUSION: True},
            **PCIE4,
        },
    ),
    "the same flag stops the start in later releases": (
        "refuse",
        "requires SM90 or SM10X",
        {"sglang": "0.5.23", "sm": "12.0", "args": {"tp-size": 4, FUSION: True}, **PCIE4},
    ),
    "three FlashInfer packages of two versions: ABI error": (
        "refuse",
        "must carry one version",
        {
            "sglang": "0.5.16",
            "sm": "10.3",
            "args": {"tp-size": 8, "flashinfer-allreduce-fusion-backend": "auto"},
            "gpus": 8,
            "packages": {
                "flashinfer-python": "0.6.12",
                "flashinfer-cubin": "0.6.12",
                "flashinfer-jit-cache": "0.6.11.post1+cu130",
            },
        },
    ),
    "MLA prefill goes to a runner for SM 10.x only": (
        "refuse",
        "10.0, 10.3",
        {
            "sglang": "0.5.10",
            "sm": "12.0",
            "model_arch": "DeepseekV3ForCausalLM",
            "args": {"attention-backend": "trtllm_mla"},
        },
    ),
    "FA3 asked for on a consumer Blackwell card": (
        "refuse",
        "flashinfer_trtllm",
        {
            "sglang": "0.5.10",
            "sm": "12.0",
            "args": {
                "attention-backend": "fa3",
                "kv-cache-dtype": "fp8_e5m2",
                "fp8-gemm-backend": "flashinfer_trtllm",
            },
        },
    ),
    "a nightly image, of which nothing is known": (
        "refuse",
        "not a release number",
        {"sglang": "nightly-dev-20251128-bce40fa2", "sm": "10.3", "args": {}},
    ),
    "kernel package without code for GB10": (
        "refuse",
        "no device code for SM 12.1",
        {
            "sglang": "0.5.9",
            "sm": "12.1",
            "args": {},
            "packages": {"sgl-kernel": "0.3.21"},
            "kernel_images": ["sm_80", "sm_90a", "sm_100a", "sm_120a"],
        },
    ),
    "the assembler in Triton does not know a B300": (
        "refuse",
        "does not know sm_103a",
        {"sglang": "0.5.6", "sm": "10.3", "gpus": 8, "args": {}, "packages": {"triton": "3.5.1"}},
    ),
    "DeepEP needs DeepGEMM": (
        "refuse",
        "DeepGEMM",
        {"sglang": "0.5.9", "sm": "8.6", "model_arch": "DeepseekV3ForCausalLM", "args": {"moe-a2a-backend": "deepep"}},
    ),
    "the first collective never ends, though the driver reports peer access": (
        "refuse",
        "no evidence",
        {"sglang": "0.5.9", "sm": "12.0", "gpus": 2, "p2p": False, "interconnect": "pcie", "args": {"tp-size": 2}},
    ),
    "scales file that the back end may not read": (
        "warn",
        "not known to take effect",
        {
            "sglang": "0.5.9",
            "sm": "9.0",
            "args": {"kv-cache-dtype": "fp8_e4m3", "quantization-param-path": "scales.json"},
        },
    ),
    "recipe with an FP8 cache for a checkpoint without scales": (
        "warn",
        "scale 1.0",
        {
            "sglang": "0.5.9",
            "sm": "9.0",
            "args": {"kv-cache-dtype": "fp8_e4m3"},
            "checkpoint": {"quantization_config": {"quant_method": "fp8"}},
        },
    ),
    "underscore in a flag's name": (
        "refuse",
        "did you mean --reasoning-parser",
        {"sglang": "0.5.3", "sm": "9.0", "args": {"reasoning_parser": "kimi_k2"}},
    ),
    "an A100 offered for a model with experts in FP8 blocks": (
        "refuse",
        "SM 8.9",
        {
            "sglang": "0.5.9",
            "sm": "8.0",
            "model_arch": "DeepseekV3ForCausalLM",
            "args": {},
            "checkpoint": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        },
    ),
    "environment variable whose name changed": (
        "refuse",
        "does not read",
        {"sglang": "0.5.23", "sm": "10.3", "args": {}, "env": {"SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK": "true"}},
    ),
    "two back ends of the data-centre cards asked for on a workstation card with SM 12.0": (
        "refuse",
        "flashinfer_trtllm for SM 12.0",
        {
            "sglang": "0.5.8",
            "sm": "12.0",
            "gpus": 8,
            "model_arch": "DeepseekV3ForCausalLM",
            "args": {
                "tp-size": 8,
                "quantization": "modelopt_fp4",
                "moe-runner-backend": "flashinfer_trtllm",
                "attention-backend": "trtllm_mla",
                "fp4-gemm-backend": "flashinfer_cutlass",
                "page-size": 64,
            },
        },
    ),
    "experts in NVFP4 come out as garbage on SM 12.0 with one FlashInfer release": (
        "warn",
        "wrong results",
        {
            "sglang": "0.5.9",
            "sm": "12.0",
            "flashinfer": "0.6.5",
            "gpus": 4,
            "interconnect": "pcie",
            "model_arch": "Qwen3MoeForCausalLM",
            "args": {"tp-size": 4, "quantization": "modelopt_fp4", "moe-runner-backend": "flashinfer_cutlass"},
        },
    ),
    "an image of a day on B300, whose assembler does not know SM 10.3": (
        "refuse",
        "not a release number",
        {"sglang": "nightly-dev-20251128-bce40fa2", "sm": "10.3", "gpus": 8, "gpu_name": "B300", "args": {}},
    ),
    "mooncake on a host without RDMA": (
        "refuse",
        "no RDMA device",
        {
            "sglang": "0.5.9",
            "sm": "9.0",
            "rdma_nics": 0,
            "args": {"disaggregation-mode": "prefill", "disaggregation-transfer-backend": "mooncake"},
        },
    ),
}


@pytest.mark.parametrize("what", REPORTS)
def test_report(what: str) -> None:
    decision, word, case = REPORTS[what]
    judgement = ask(**case)
    reasons = [one.reason for one in judgement.verdicts if one.decision != "keep"]
    assert judgement.decision == decision, reasons
    assert any(word in reason for reason in reasons), reasons


def test_false_of_a_tri_state_flag_is_written_out() -> None:
    judgement = ask("0.5.23", "9.0", args={"dllm-fdfo": False, "enable-tf32-matmul": True})
    assert judgement.decision == "accept"
    assert judgement.argv == ("--no-dllm-fdfo", "--enable-tf32-matmul")


def test_every_back_end_that_cannot_run_is_named_at_once() -> None:
    """A start stops at the first; the report says both."""
    _, _, case = REPORTS["two back ends of the data-centre cards asked for on a workstation card with SM 12.0"]
    refused = {one.flag for one in ask(**case).verdicts if one.decision == "refuse"}
    assert refused >= {"moe-runner-backend", "attention-backend"}
    assert "fp4-gemm-backend" not in refused
