"""Back ends of FP8, FP4 and BF16 matrix products: the dispatcher of each release says which GPU it takes them on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from validators.rules import constructors, deep_gemm, evaluated, experts, library, mxfp8, places
from validators.rules.asked import LEAVE_OUT, anywhere, unread, values
from validators.rules.context import Context, place
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step
from validators.rules.quantization import capability

SUBJECT = "Back ends of FP8, FP4 and BF16 matrix products"
FP8, FP4, BF16 = "fp8-gemm-backend", "fp4-gemm-backend", "bf16-gemm-backend"
FLAGS = (FP8, FP4, BF16)
SITES: tuple[str, ...] = ()

_DISPATCHER = {FP8: "_dispatch_explicit_backend", BF16: "initialize_bf16_gemm_config"}
# what the engine takes on any GPU it runs on; `auto` is its own choice
_ANYWHERE = {FP8: ("auto", "triton"), FP4: ("auto",), BF16: ("auto", "torch")}
_TRTLLM_GEMM = "gen_trtllm_gen_gemm_module"
# other forms in which a release asks for a value: before there was a second one of the family, or with one beside it
_ASKED_AS = {
    "flashinfer_trtllm": ("backend.is_flashinfer()",),
    "cutedsl": ("backend.is_optimized()",),
    "flashinfer_pr4266": ("backend.is_optimized()",),
}
# FlashInfer's requirement behind a value; the FP8 ones are those of block scales
_FP8_ASKS = {
    "flashinfer_trtllm": "_trtllm_gemm_fp8_nt_groupwise_requirement",
    "flashinfer_cutlass": "_cutlass_gemm_fp8_nt_groupwise_requirement",
}
_FP4_ASKS = {
    "flashinfer_cudnn": "_cudnn_gemm_fp4_requirement",
    "flashinfer_cutedsl": "_cute_dsl_gemm_fp4_requirement",
    "flashinfer_cutlass": "_cutlass_gemm_fp4_requirement",
    "flashinfer_trtllm": "_trtllm_gemm_fp4_requirement",
}


def judge(c: Context) -> Iterator[Part]:
    for flag, value in values(c, FLAGS):
        if value in _ANYWHERE[flag]:
            yield anywhere(c, flag, value)
        elif flag != BF16 and experts.integers(c):
            why = f"The weights of this model are integers ({experts.method(c)}): no layer asks for the flag's product."
            yield unread(c, flag, why, "fp8.unknown")
        else:
            yield {FP8: _fp8, FP4: _fp4, BF16: _asked}[flag](c, flag, value)


def _asked(c: Context, flag: str, value: str) -> Part:
    """What the dispatcher itself asks of the GPU."""
    refused = places.place(c, "bf16.deterministic")
    if flag == BF16 and value == "cutedsl" and refused and c.args.get("enable-deterministic-inference") is True:
        return _refused(c, flag, f"{value} for runs that need not be deterministic", refused)
    asked = (f"backend.is_{value}()", *_ASKED_AS.get(value, ()))
    row = next((r for last in asked if (r := evaluated.site(c, _DISPATCHER[flag], last))), None)
    if row is None:
        return c.unsure(flag, f"Where {c.release.version} takes {value} for --{flag}")
    return evaluated.part(c, flag, f"{value} for --{flag}", row, instead=LEAVE_OUT)


def _fp8(c: Context, flag: str, value: str) -> Part:
    if mxfp8.asked(c) or value == "flashinfer_cutedsl":
        found = mxfp8.product(c, flag, value)
        if found is not None:
            return found
    if value == "aiter":
        proof = places.place(c, "fp8.aiter")
        if proof is not None:
            return _refused(c, flag, f"{value} for AMD GPUs: it takes it nowhere else", proof)
    if value == "deep_gemm":
        return _deep_gemm(c, flag)
    passed = _asked(c, flag, value)
    if passed.outcome is not Outcome.ACTIVE:
        return passed
    built, proofs = library.takes(c, _FP8_ASKS.get(value, ""))
    if built is None and value == "flashinfer_trtllm" and c.builds(_TRTLLM_GEMM) is False:
        built, proofs = False, c.library_proof(_TRTLLM_GEMM)
    return _lacking(c, passed, value, "FP8", proofs) if built is False else passed


def _lacking(c: Context, passed: Part, value: str, kind: str, proofs: tuple[Evidence, ...]) -> Part:
    """The engine lets the GPU pass, and the product that it then asks FlashInfer for is none for it."""
    reason = f"FlashInfer {c.flashinfer_version} has no {kind} product of {value} for SM {c.sm_text}."
    steps = (*passed.steps, Step(Gate.LIBRARY, False, reason, proofs[0]))
    return replace(passed, outcome=Outcome.FAILS, reason=reason, evidence=proofs, steps=steps, instead=LEAVE_OUT)


def _refused(c: Context, flag: str, what: str, proof: Evidence) -> Part:
    reason = f"{c.release.version} has {what}."
    step = Step(Gate.ENGINE, False, reason, proof)
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), instead=LEAVE_OUT)


def _deep_gemm(c: Context, flag: str) -> Part:
    on, proof = deep_gemm.state(c)
    if on is None:
        return replace(
            c.unsure(flag, f"Whether the DeepGEMM of {c.release.version} has kernels for SM {c.sm_text}"),
            evidence=proof,
            todo=f"Leave {flag} out: the release chooses for this GPU.",
        )
    if on:
        reason = f"{c.release.version} has DeepGEMM on SM {c.sm_text}."
        return Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.LIBRARY, True, reason, proof[0]),))
    raised = places.place(c, "fp8.deep_gemm")
    reason = f"{c.release.version} goes without DeepGEMM on SM {c.sm_text}, and stops where the flag asks for it."
    evidence = (raised, *proof) if raised else proof
    return Part(
        flag, Outcome.FAILS, reason, evidence, (Step(Gate.LIBRARY, False, reason, evidence[0]),), instead=LEAVE_OUT
    )


def _fp4(c: Context, flag: str, value: str) -> Part:
    if value == "marlin":
        return anywhere(c, flag, value) if c.sm >= (8, 0) else c.unsure(flag, f"Marlin for FP4 on SM {c.sm_text}")
    native = constructors.part(
        c,
        flag,
        f"the FP4 product of {value}",
        "ModelOptFp4LinearMethod.process_weights_after_loading",
        instead=LEAVE_OUT,
        known={"get_fp4_gemm_runner_backend().is_marlin()": False},
    )
    if native is not None and native.outcome is Outcome.FAILS:
        return native
    row = capability(c, "modelopt_fp4")
    if row is not None and c.sm_text not in row["sms"]:
        proof = place(c.release, row)
        reason = f"{c.release.version} loads no FP4 checkpoint on SM {c.sm_text}, and the flag is for those."
        step = Step(Gate.ENGINE, False, reason, proof)
        return Part(flag, Outcome.FAILS, reason, (proof,), (step,), instead=LEAVE_OUT)
    built, proofs = library.takes(c, _FP4_ASKS.get(value, ""))
    if built is None:
        return c.unsure(flag, f"Whether {value} has an FP4 product for SM {c.sm_text} in {c.release.version}")
    reason = f"FlashInfer {c.flashinfer_version} lets the FP4 product of {value} run on SM {c.sm_text}."
    passed = Part(flag, Outcome.ACTIVE, reason, proofs, (Step(Gate.LIBRARY, True, reason, proofs[0]),))
    return passed if built else _lacking(c, replace(passed, steps=()), value, "FP4", proofs)
