"""Runners whose kernels are FlashInfer's: what it builds for the GPU, and what it asks before it runs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packaging.version import InvalidVersion, Version

from validators.conditions import UNKNOWN
from validators.rules import experts, library
from validators.rules.asked import LEAVE_OUT
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

TRTLLM = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "experimental_sgl_trtllm")
_TRTLLM_MODULE = "gen_trtllm_gen_fused_moe_sm100_module"
# FlashInfer's CUTLASS runner picks a module by the exact SM
_CUTLASS_MODULES = {
    (8, 9): "gen_cutlass_fused_moe_sm89_module",
    (9, 0): "gen_cutlass_fused_moe_sm90_module",
    (10, 0): "gen_cutlass_fused_moe_sm100_module",
    (10, 3): "gen_cutlass_fused_moe_sm103_module",
    (11, 0): "gen_cutlass_fused_moe_sm100_module",
    (12, 0): "gen_cutlass_fused_moe_sm120_module",
    (12, 1): "gen_cutlass_fused_moe_sm120_module",
}
# FlashInfer releases whose NVFP4 experts were reported to compute garbage on SM 12.x: flashinfer-ai/flashinfer#2723
_GARBAGE = ("0.6.5",)


def answer(c: Context, flag: str, runner: str, built: bool | None, proofs: tuple[Evidence, ...]) -> Part | None:
    """Runs, stops in the library, or None where nothing is known."""
    if built is None or not proofs:
        return None
    has = "has the kernels" if built else "has no kernel"
    reason = f"FlashInfer {c.flashinfer_version} {has} of {runner} for SM {c.sm_text}."
    step = Step(Gate.LIBRARY, built, reason, proofs[0])
    outcome = Outcome.ACTIVE if built else Outcome.FAILS
    return Part(flag, outcome, reason, proofs, (step,), instead=() if built else LEAVE_OUT)


def trtllm(c: Context, flag: str, runner: str) -> Part | None:
    """Kernels for SM 10.x; where a release builds the module for 12.x too, what it has there is not read."""
    built, proofs = c.builds(_TRTLLM_MODULE), c.library_proof(_TRTLLM_MODULE)
    if built is None:
        built, proofs = library.takes(c, "moe.trtllm")
        if not built and c.sm[0] == 10:
            return None  # built for 10.0 alone, by name; whether that covers the others is not read
    runs, kernels = library.takes(c, "moe.trtllm.kernels")
    if built and runs is False:
        built, proofs = False, kernels  # the module is built, and no kernel in it runs there
    if built and c.sm[0] != 10:
        what = f"FlashInfer {c.flashinfer_version} builds {runner} for SM {c.sm_text}; whether it has a kernel there"
        return replace(c.unsure(flag, what), evidence=proofs, todo=f"Leave {flag} out, or write triton.")
    return answer(c, flag, runner, built, proofs)


def cutlass(c: Context, flag: str) -> Part | None:
    """The module is picked by the exact SM, and then built for it."""
    picked, proofs = library.takes(c, "moe.cutlass")
    module = _CUTLASS_MODULES.get(c.sm, "")
    built = c.builds(module) if module else None
    if picked is False:
        return answer(c, flag, "flashinfer_cutlass", False, proofs)
    if built is None and picked and c.builds("gen_cutlass_fused_moe_sm100_module") and c.sm[0] in (10, 11):
        built, module = True, "gen_cutlass_fused_moe_sm100_module"  # before 10.3 had a module of its own
    found = answer(c, flag, "flashinfer_cutlass", built, (*c.library_proof(module), *proofs))
    return _reported(c, found) if found is not None else None


def _reported(c: Context, passed: Part) -> Part:
    """It starts, and people saw wrong results: shown, not refused."""
    nvfp4 = experts.kind(c) == experts.NVFP4
    if passed.outcome is not Outcome.ACTIVE or not nvfp4 or c.sm[0] != 12 or c.flashinfer_version not in _GARBAGE:
        return passed
    reason = f"NVFP4 experts of FlashInfer {c.flashinfer_version} gave wrong results on SM {c.sm_text} (issue 2723)."
    todo = "Check answers after the start, and compare with --moe-runner-backend marlin."
    return replace(passed, reason=f"{passed.reason} {reason}", advice=True, todo=todo)


def has_mixed_gemm(c: Context) -> Any:
    """FlashInfer carries the weight helpers of the SM 9.0 kernel from 0.6.11 on, says the engine's own error text."""
    try:
        return Version(c.flashinfer_version) >= Version("0.6.11")
    except InvalidVersion:
        return UNKNOWN
