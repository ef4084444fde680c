"""Runners of mixture-of-experts layers: the engine's own checks, then the kernels of the library behind the runner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packaging.version import InvalidVersion, Version

from validators.conditions import UNKNOWN
from validators.rules import constructors, evaluated
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

SUBJECT = "Runners of mixture-of-experts layers"
FLAGS = ("moe-runner-backend", "speculative-moe-runner-backend")
SITES = ("deep-gemm.off",)

_TRTLLM = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "experimental_sgl_trtllm")
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
# runner -> (function that checks the GPU, what must be known there)
_CHECKED: dict[str, tuple[str, dict[str, Any]]] = {
    "cutlass": ("Fp8MoEMethod.__init__", {"get_moe_runner_backend().is_cutlass()": True}),
    "flashinfer_mxfp4": ("Mxfp4MoEMethod.__init__", {"self.use_flashinfer": True, "self.use_marlin": False}),
}
_MXFP4_WEIGHTS = "Mxfp4MoEMethod.process_weights_after_loading"
_SUBSTITUTE: tuple[dict[str, Value], ...] = ({},)


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if isinstance(value, str) and c.has(flag):
            yield _judge(c, flag, value)


def _judge(c: Context, flag: str, runner: str) -> Part:
    if runner in ("auto", "triton"):
        proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
        reason = f"{c.release.version} runs {runner} on every GPU."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),))
    if runner == "deep_gemm":
        return _deep_gemm(c, flag)
    refused = _nvfp4(c, flag, runner)
    if refused is not None:
        return refused
    if runner in _TRTLLM:
        return _library(c, flag, runner, _TRTLLM_MODULE, settled=c.sm[0] == 10)
    if runner == "flashinfer_cutlass":
        module = _CUTLASS_MODULES.get(c.sm)
        if module is not None:
            return _reported(c, _library(c, flag, runner, module, settled=True))
    if runner == "hpc_ops":
        row = evaluated.site(c, "MoeRunner.__init__", "runner_backend.is_hpc_ops()")
        if row is not None:
            return evaluated.part(c, flag, f"runner {runner}", row, instead=_SUBSTITUTE)
    if runner == "marlin" and _is_mxfp4(c):
        row = evaluated.site(c, _MXFP4_WEIGHTS, "self.use_marlin and not self.use_mega_moe")
        row = row or evaluated.site(c, _MXFP4_WEIGHTS, "self.use_marlin")
        if row is not None:
            return evaluated.part(c, flag, "MXFP4 experts by marlin", row, instead=_SUBSTITUTE)
    if runner in _CHECKED:
        symbol, known = _CHECKED[runner]
        known = known | {"_FI_HAS_SM90_CUTLASS_MXFP4": _has_mixed_gemm(c)}
        found = constructors.part(c, flag, f"runner {runner}", symbol, instead=_SUBSTITUTE, known=known)
        if found is not None:
            return found
    return c.unsure(flag, f"Where {c.release.version} runs {runner}")


# FlashInfer releases whose NVFP4 experts were reported to compute garbage on SM 12.x: flashinfer-ai/flashinfer#2723
_GARBAGE = ("0.6.5",)


def _reported(c: Context, passed: Part) -> Part:
    """It starts, and people saw wrong results: shown, not refused."""
    nvfp4 = "modelopt_fp4" in (c.args.get("quantization"), c.case.checkpoint.get("quantization"))
    if passed.outcome is not Outcome.ACTIVE or not nvfp4 or c.sm[0] != 12 or c.flashinfer_version not in _GARBAGE:
        return passed
    reason = f"NVFP4 experts of FlashInfer {c.flashinfer_version} gave wrong results on SM {c.sm_text} (issue 2723)."
    todo = "Check answers after the start, and compare with --moe-runner-backend marlin."
    return replace(passed, reason=f"{passed.reason} {reason}", advice=True, todo=todo)


def _nvfp4(c: Context, flag: str, runner: str) -> Part | None:
    """An NVFP4 checkpoint asks for Blackwell in its expert layer, unless Marlin runs it."""
    if "modelopt_fp4" not in (c.args.get("quantization"), c.case.checkpoint.get("quantization")):
        return None
    found = constructors.part(
        c,
        flag,
        f"NVFP4 experts by {runner}",
        "ModelOptNvFp4FusedMoEMethod.__init__",
        instead=_SUBSTITUTE,
        known={"use_marlin_fallback": runner == "marlin"},
    )
    return found if found is not None and found.outcome is Outcome.FAILS else None


def _is_mxfp4(c: Context) -> bool:
    """The flag, the checkpoint, or a model that is published in this format only."""
    named = (c.args.get("quantization"), c.case.checkpoint.get("quantization"))
    return "mxfp4" in named or (c.arch == "GptOssForCausalLM" and named == (None, None))


def _has_mixed_gemm(c: Context) -> Any:
    """FlashInfer carries the weight helpers of the SM 9.0 kernel from 0.6.11 on, says the engine's own error text."""
    try:
        return Version(c.flashinfer_version) >= Version("0.6.11")
    except InvalidVersion:
        return UNKNOWN


def _deep_gemm(c: Context, flag: str) -> Part:
    off = c.test("deep-gemm.off")
    proof = c.proof("deep-gemm.off")
    if off is None or not proof or (not off and c.sm >= (11, 0)):
        return c.unsure(flag, f"Whether {c.release.version} has DeepGEMM on SM {c.sm_text}", "deep-gemm.off")
    verb = "does not have" if off else "has"
    reason = f"{c.release.version} {verb} DeepGEMM on SM {c.sm_text}."
    outcome = Outcome.FAILS if off else Outcome.ACTIVE
    step = Step(Gate.LIBRARY, not off, reason, proof[0])
    return Part(flag, outcome, reason, proof, (step,), instead=_SUBSTITUTE if off else ())


def _library(c: Context, flag: str, runner: str, module: str, *, settled: bool) -> Part:
    """`settled`: the engine is known to use the module on this SM; elsewhere a kernel alone proves nothing."""
    built, proof = c.builds(module), c.library_proof(module)
    if built is False:
        reason = f"FlashInfer {c.flashinfer_version} has no kernel of {runner} for SM {c.sm_text}."
        step = Step(Gate.LIBRARY, False, reason, proof[0])
        return Part(flag, Outcome.FAILS, reason, proof, (step,), instead=_SUBSTITUTE)
    if built and settled:
        reason = f"FlashInfer {c.flashinfer_version} builds the kernels of {runner} for SM {c.sm_text}."
        return Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.LIBRARY, True, reason, proof[0]),))
    has = f"FlashInfer {c.flashinfer_version} has kernels of {runner}" if built else f"Nothing is known of {runner}"
    what = f"{has} for SM {c.sm_text}; whether {c.release.version} uses them there"
    return replace(c.unsure(flag, what), todo=f"Leave {flag} out, or write triton, which runs on every GPU.")
