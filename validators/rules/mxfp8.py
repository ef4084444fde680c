"""MXFP8 weights: which product of dense layers a release runs on this GPU, by the flag's value or by itself."""

from __future__ import annotations

from validators.rules import constructors, evaluated, library, places
from validators.rules.asked import LEAVE_OUT
from validators.rules.context import Context, place
from validators.rules.interface import Gate, Outcome, Part, Step

_RESOLVER = "resolve_mxfp8_dense_gemm_backend"
_TRITON = ("triton_mxfp8_blockscaled_linear", "_raw_triton_mxfp8_blockscaled_linear")
_ASKS = {
    "flashinfer_trtllm": "_trtllm_gemm_mxfp8_requirement",
    "flashinfer_cutedsl": "_cute_dsl_gemm_mxfp8_requirement",
    "flashinfer_cutlass": "_cutlass_gemm_mxfp8_requirement",
}


def asked(c: Context) -> bool:
    return "mxfp8" in (c.args.get("quantization"), c.case.checkpoint.get("quantization"))


def product(c: Context, flag: str, value: str) -> Part | None:
    """What `--fp8-gemm-backend value` does with dense MXFP8 layers; None where it is none of theirs."""
    if value not in _ASKS:
        return None
    what = f"{value} for dense MXFP8 layers"
    row = evaluated.site(c, _RESOLVER, f"backend.is_{value}()")
    known = row is not None and row.get("sms") is not None
    if row is not None and known:
        passed = evaluated.part(c, flag, what, row, instead=LEAVE_OUT)
        if passed.outcome is not Outcome.ACTIVE:
            return passed
    built, proofs = library.takes(c, _ASKS[value])
    if row is not None:
        proofs = (place(c.release, row), *proofs)
    if value == "flashinfer_cutedsl" and not asked(c):
        refused = places.place(c, "fp8.unknown")
        proofs = (*proofs, refused) if refused else proofs
    if built is None or not proofs:
        return c.unsure(flag, f"Whether {what} run on SM {c.sm_text} in {c.release.version}")
    verb = "runs" if built else "has no product that runs"
    reason = f"{c.release.version} with FlashInfer {c.flashinfer_version} {verb} {what} on SM {c.sm_text}."
    outcome = Outcome.ACTIVE if built else Outcome.FAILS
    needs = () if asked(c) else ("a checkpoint in MXFP8: no other has this product",)
    step = Step(Gate.LIBRARY, built, reason, proofs[0])
    return Part(flag, outcome, reason, proofs, (step,), instead=() if built else LEAVE_OUT, needs=needs)


def dense(c: Context, flag: str) -> Part | None:
    """What dense layers of `--quantization mxfp8` run into when no product was named; None where it is not known."""
    named = c.args.get("fp8-gemm-backend")
    if named in _ASKS:
        return None  # the flag's own rule speaks
    for name in _TRITON:
        found = constructors.part(c, flag, "the product of dense MXFP8 layers", name)
        if found is not None:
            return found
    built, proofs = library.takes(c, _ASKS["flashinfer_cutlass"])
    if evaluated.site(c, _RESOLVER, "backend.is_flashinfer_cutlass()") is not None and built:
        reason = f"{c.release.version} runs dense MXFP8 layers by a product of FlashInfer on SM {c.sm_text}."
        return Part(flag, Outcome.ACTIVE, reason, proofs, (Step(Gate.LIBRARY, True, reason, proofs[0]),))
    return None
