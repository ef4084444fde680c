"""Back ends of DeepSeek sparse attention: the start-up validation of the newer ones, the kernels behind the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validators.rules import constructors
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step, Value

SUBJECT = "Back ends of DeepSeek sparse attention (NSA, DSA)"
PREFILL = ("nsa-prefill-backend", "dsa-prefill-backend")
DECODE = ("nsa-decode-backend", "dsa-decode-backend")
V4_PREFILL, LOGITS = "dsv4-prefill-backend", "dsa-paged-mqa-logits-backend"
FLAGS = (*PREFILL, *DECODE, V4_PREFILL, LOGITS)
SITES: tuple[str, ...] = ()

# back end -> function that validates the GPU for it before the first request
_VALIDATED = {
    "flashmla_sparse_q8": "_validate_flashmla_sparse_q8_backend",
    "triton_sparse_mla": "_validate_triton_sparse_mla_backend",
    "flashinfer_sparse_mla": "_validate_flashinfer_sparse_mla_backend",
}
# (flag, value) -> function that tests the GPU for it, and what must be known there
_TESTED: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    (V4_PREFILL, "flashmla_sparse_q8"): (
        "DeepseekV4AttnBackend.__init__",
        {"use_dsv4_q8kv8_sparse_prefill(self.dsv4_prefill_backend)": True},
    ),
    (LOGITS, "cutedsl"): ("DSAPagedMQALogitsBackend.resolve", {"value": "cutedsl", "is_hip()": False}),
}
_CONSTRUCTOR = "DeepseekSparseAttnBackend.__init__"  # where the test of flashmla_sparse_q8 stood up to 0.5.18
_PREFILL_ONLY = ("flashmla_sparse_q8", "triton_sparse_mla")
_TRTLLM_GEN = "gen_trtllm_gen_fmha_module"
# SMs on which published recipes of the engine run the back end; elsewhere nothing was read that settles it
_USED_ON = {"flashmla_sparse": (9, 10), "flashmla_kv": (9, 10), "flashmla_auto": (9, 10), "fa3": (9,), "tilelang": (9,)}
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if isinstance(value, str) and c.has(flag):
            yield _tested(c, flag, value) if flag in (V4_PREFILL, LOGITS) else _judge(c, flag, value)


def _tested(c: Context, flag: str, value: str) -> Part:
    symbol, known = _TESTED.get((flag, value), ("", {}))
    found = (
        constructors.part(c, flag, f"{value} for --{flag}", symbol, instead=_LEAVE_OUT, known=known) if symbol else None
    )
    if found is None and value == "auto":
        proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
        reason = f"{c.release.version} chooses by itself."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),))
    return found or c.unsure(flag, f"Where {c.release.version} takes {value} for --{flag}")


def _judge(c: Context, flag: str, backend: str) -> Part:
    if backend in _VALIDATED and (flag in PREFILL or backend not in _PREFILL_ONLY):
        stage = "prefill" if flag in PREFILL else "decode"
        known: dict[str, Any] = {"device_sm_major": c.sm[0], f"{stage}_impl": backend, "model_arch": c.arch}
        found = constructors.part(
            c, flag, f"sparse attention by {backend}", _VALIDATED[backend], instead=_LEAVE_OUT, known=known
        )
        if found is not None:
            return found
    if backend == "flashmla_sparse_q8" and flag in PREFILL:
        known = {"self.dsa_prefill_impl": backend, "self.device_sm_major": c.sm[0]}
        found = constructors.part(
            c, flag, f"sparse attention by {backend}", _CONSTRUCTOR, instead=_LEAVE_OUT, known=known
        )
        if found is not None and found.outcome is Outcome.FAILS:
            return found
    if backend == "trtllm":
        return _trtllm(c, flag)
    if c.sm[0] in _USED_ON.get(backend, ()):
        proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
        reason = f"{c.release.version} takes {backend} for sparse attention and tests no GPU for it."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.PARSER, True, reason, proof),))
    return c.unsure(flag, f"Whether {c.release.version} has kernels of {backend} for SM {c.sm_text}")


def _trtllm(c: Context, flag: str) -> Part:
    if c.sm[0] != 10:
        return c.unsure(flag, f"Whether {c.release.version} has the sparse kernels of trtllm for SM {c.sm_text}")
    proof = c.library_proof(_TRTLLM_GEN) or (c.release.evidence(c.release.flags[flag].place, "--" + flag),)
    reason = f"FlashInfer {c.flashinfer_version} builds trtllm attention kernels for SM {c.sm_text}."
    return Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.LIBRARY, True, reason, proof[0]),))
