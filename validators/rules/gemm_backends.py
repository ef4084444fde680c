"""Back ends of FP8, FP4 and BF16 matrix products: the dispatcher of each release says which GPU it takes them on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules import constructors, evaluated
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

SUBJECT = "Back ends of FP8, FP4 and BF16 matrix products"
FP8, FP4, BF16 = "fp8-gemm-backend", "fp4-gemm-backend", "bf16-gemm-backend"
FLAGS = (FP8, FP4, BF16)
SITES = ("deep-gemm.off",)

_DISPATCHER = {FP8: "_dispatch_explicit_backend", BF16: "initialize_bf16_gemm_config"}
# what the engine takes on any GPU it runs on; `auto` is its own choice
_ANYWHERE = {FP8: ("auto", "triton"), FP4: ("auto",), BF16: ("auto", "torch")}
_TRTLLM_GEMM = "gen_trtllm_gen_gemm_module"
# FlashInfer's modules behind an FP4 back end: one of them must be built for the GPU
_FP4_MODULES = {
    "flashinfer_trtllm": (_TRTLLM_GEMM,),
    "flashinfer_cutlass": ("gen_gemm_sm100_module_cutlass_fp4", "gen_gemm_sm120_module_cutlass_fp4"),
}
# how releases up to 0.5.8 ask for a value, before there was a second one of the family
_ASKED_ONCE = {"flashinfer_trtllm": ("backend.is_flashinfer()",)}
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if isinstance(value, str) and c.has(flag):
            yield _judge(c, flag, value)


def _judge(c: Context, flag: str, value: str) -> Part:
    if value in _ANYWHERE[flag]:
        return _taken(c, flag, value)
    if flag == FP8 and value == "deep_gemm":
        return _deep_gemm(c, flag)
    if flag == FP4:
        return _fp4(c, value)
    asked = (f"backend.is_{value}()", *_ASKED_ONCE.get(value, ()))
    row = next((r for last in asked if (r := evaluated.site(c, _DISPATCHER[flag], last))), None)
    if row is None:
        return c.unsure(flag, f"Where {c.release.version} takes {value} for --{flag}")
    found = evaluated.part(c, flag, f"{value} for --{flag}", row, instead=_LEAVE_OUT)
    return _fp8_library(c, found) if (flag, value) == (FP8, "flashinfer_trtllm") else found


def _fp8_library(c: Context, passed: Part) -> Part:
    """The engine asks FlashInfer for the product of this name; older releases do so on more GPUs than have one."""
    if passed.outcome is not Outcome.ACTIVE or c.builds(_TRTLLM_GEMM) is not False:
        return passed
    proof = c.library_proof(_TRTLLM_GEMM)
    reason = f"FlashInfer {c.flashinfer_version} has no FP8 product of flashinfer_trtllm for SM {c.sm_text}."
    steps = (*passed.steps, Step(Gate.LIBRARY, False, reason, proof[0]))
    return replace(passed, outcome=Outcome.FAILS, reason=reason, evidence=proof, steps=steps, instead=_LEAVE_OUT)


def _taken(c: Context, flag: str, value: str) -> Part:
    proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
    reason = f"{c.release.version} takes {value} on every GPU."
    return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),))


def _deep_gemm(c: Context, flag: str) -> Part:
    off = c.test("deep-gemm.off")
    proof = c.proof("deep-gemm.off")
    if off is None or not proof or (not off and c.sm >= (11, 0)):
        return c.unsure(flag, f"Whether {c.release.version} has DeepGEMM on SM {c.sm_text}", "deep-gemm.off")
    verb = "does not have" if off else "has"
    reason = f"{c.release.version} {verb} DeepGEMM on SM {c.sm_text}."
    step = Step(Gate.LIBRARY, not off, reason, proof[0])
    outcome = Outcome.FAILS if off else Outcome.ACTIVE
    return Part(flag, outcome, reason, proof, (step,), instead=_LEAVE_OUT if off else ())


def _fp4(c: Context, value: str) -> Part:
    if value == "marlin":
        return _taken(c, FP4, value) if c.sm >= (8, 0) else c.unsure(FP4, f"Marlin for FP4 on SM {c.sm_text}")
    native = constructors.part(
        c,
        FP4,
        f"the FP4 product of {value}",
        "ModelOptFp4LinearMethod.process_weights_after_loading",
        instead=_LEAVE_OUT,
        known={"get_fp4_gemm_runner_backend().is_marlin()": False},
    )
    if native is not None and native.outcome is Outcome.FAILS:
        return native
    modules = _FP4_MODULES.get(value, ())
    built = [c.builds(name) for name in modules]
    proofs = tuple(p for name in modules for p in c.library_proof(name))
    if modules and built and not any(b is not False for b in built):
        reason = f"FlashInfer {c.flashinfer_version} builds no FP4 product for {value} on SM {c.sm_text}."
        return Part(
            FP4, Outcome.FAILS, reason, proofs, (Step(Gate.LIBRARY, False, reason, proofs[0]),), instead=_LEAVE_OUT
        )
    if True in built:
        reason = f"FlashInfer {c.flashinfer_version} builds the FP4 product of {value} for SM {c.sm_text}."
        return Part(FP4, Outcome.ACTIVE, reason, proofs, (Step(Gate.LIBRARY, True, reason, proofs[0]),))
    return c.unsure(FP4, f"Whether {value} has an FP4 product for SM {c.sm_text} in {c.release.version}")
