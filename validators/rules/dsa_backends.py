"""Back ends of DeepSeek sparse attention: what prefill and decode know, start-up validation, the kernels behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validators.rules import attention_kernels, attention_models, constructors, places
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step, Value
from validators.rules.other_accelerators import MAKERS

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
_CHOOSES = "flashmla_auto"  # prefill takes one of two for it; decode does not know it
_SM12 = "flashinfer_sparse_mla"
_TRTLLM_GEN = "gen_trtllm_gen_fmha_module"
_RUNNER = "TllmGenFmhaRunner"  # FlashInfer's class behind it; its constructor tests the SM
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if isinstance(value, str) and c.has(flag):
            found = _tested(c, flag, value) if flag in (V4_PREFILL, LOGITS) else _judge(c, flag, value)
            if found is not None:
                yield found


def _part(c: Context, flag: str, runs: bool, reason: str, proof: Evidence, gate: Gate = Gate.LIBRARY) -> Part:
    step = Step(gate, runs, reason, proof)
    if runs:
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (step,))
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), instead=_LEAVE_OUT)


def _not_asked(c: Context, flag: str, what: str, proof: Evidence | None) -> Part:
    reason = f"{c.release.version} asks --{flag} for {what} only; {c.arch} is none, and the flag does nothing."
    place = proof or places.declared(c, flag)
    step = Step(Gate.MODEL, False, reason, place)
    return Part(flag, Outcome.INERT, reason, (place,), (step,), instead=_LEAVE_OUT)


def _tested(c: Context, flag: str, value: str) -> Part | None:
    if flag == V4_PREFILL and attention_models.full(c) and not c.arch.startswith("DeepseekV4"):
        return _not_asked(c, flag, "DeepSeek V4", places.place(c, "attn.model.dsv4"))
    if flag == LOGITS and attention_models.sparse(c) is False:
        return _not_asked(c, flag, "models with DeepSeek's sparse attention", places.place(c, "attn.model.dsa"))
    if value in MAKERS:
        return None  # a rule of its own speaks of those
    symbol, known = _TESTED.get((flag, value), ("", {}))
    found = (
        constructors.part(c, flag, f"{value} for --{flag}", symbol, instead=_LEAVE_OUT, known=known) if symbol else None
    )
    proof = places.declared(c, flag)
    if found is None and value == "auto":
        return _part(c, flag, True, f"{c.release.version} chooses by itself.", proof, Gate.PARSER)
    if found is None and c.sm[0] in (9, 10) and value in ("flashmla_sparse", "deepgemm"):
        reason = f"{c.release.version} takes {value} for --{flag}, and uses it by itself on SM {c.sm_text}."
        return _part(c, flag, True, reason, proof, Gate.PARSER)
    return found or c.unsure(flag, f"Where {c.release.version} takes {value} for --{flag}")


def _judge(c: Context, flag: str, backend: str) -> Part | None:
    if attention_models.sparse(c) is False:
        what = "models with DeepSeek's sparse attention"
        return _not_asked(c, flag, what, places.place(c, "attn.model.dsa"))
    if backend in MAKERS:
        return _refused(c, flag, backend)  # and a rule of its own speaks of those
    return (
        _refused(c, flag, backend)
        or _validated(c, flag, backend)
        or _kernels(c, flag, backend)
        or c.unsure(flag, f"Whether {c.release.version} has kernels of {backend} for SM {c.sm_text}")
    )


def _refused(c: Context, flag: str, backend: str) -> Part | None:
    """What prefill or decode does not know, and what is for other GPUs or models by name."""
    stage = "prefill" if flag in PREFILL else "decode"
    rocm = places.place(c, "dsa.rocm")
    if rocm is not None and backend in places.value(c, "dsa.rocm").split():
        reason = f"{c.release.version} takes {backend} for sparse attention on AMD GPUs only, and stops."
        return _part(c, flag, False, reason, rocm, Gate.RESOLUTION)
    last = places.place(c, f"dsa.{stage}")
    known = places.value(c, f"dsa.{stage}").split()
    if last is not None and backend not in known and not (stage == "prefill" and backend == _CHOOSES):
        reason = f"{c.release.version} does not know {backend} when it comes to {stage}: the first batch stops."
        return _part(c, flag, False, reason, last, Gate.ENGINE)
    if backend == "tilelang" and c.args.get("kv-cache-dtype") == "fp8_e4m3":
        found = _tilelang(c, flag)
        if found is not None:
            return found
    glm = c.arch in attention_models.SPARSE_GLM
    only = places.place(c, "dsa.sm12")
    if only is None or not c.arch:
        return None
    cache = c.get("kv-cache-dtype", "auto")
    if backend == _SM12:
        runs = glm and c.sm[0] == 12 and cache in ("auto", "fp8_e4m3")
        reason = f"{c.release.version} has {backend} for GLM with an FP8 cache on SM 12.x only: "
        return _part(c, flag, runs, reason + ("this is it." if runs else "the start stops."), only, Gate.ENGINE)
    others = places.place(c, "dsa.glm")
    allowed = backend == "triton_sparse_mla" and flag in PREFILL
    if others is not None and glm and c.sm[0] == 12 and cache == "fp8_e4m3" and not allowed:
        reason = f"{c.release.version} runs GLM with an FP8 cache on SM 12.x by {_SM12} only, and stops at {backend}."
        return _part(c, flag, False, reason, others, Gate.ENGINE)
    return None


def _tilelang(c: Context, flag: str) -> Part | None:
    """With an FP8 cache tilelang is for both stages or none, and for GPUs that have the type."""
    other = {**dict(zip(PREFILL, DECODE, strict=True)), **dict(zip(DECODE, PREFILL, strict=True))}[flag]
    both, least = places.place(c, "dsa.tilelang.both"), places.place(c, "dsa.tilelang.sm89")
    if both is not None and c.args.get(other) != "tilelang":
        reason = f"{c.release.version} takes tilelang over an FP8 cache for both stages only: --{other} is another."
        return _part(c, flag, False, reason, both, Gate.RESOLUTION)
    if least is not None and c.sm < (8, 9):
        reason = f"{c.release.version} takes tilelang over an FP8 cache from SM 8.9 on."
        return _part(c, flag, False, reason, least, Gate.RESOLUTION)
    return None


def _validated(c: Context, flag: str, backend: str) -> Part | None:
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
        if c.sm[0] == 9:
            reason = f"{c.release.version} has {backend} for SM 9.0."
            return _part(c, flag, True, reason, places.declared(c, flag), Gate.PARSER)
    return None


def _kernels(c: Context, flag: str, backend: str) -> Part | None:
    """Device code of the packages behind a back end that the release tests no GPU for."""
    if backend.startswith("flashmla"):
        return _images(c, flag, backend, "flashmla", (9, 10))
    if backend == "fa3":
        return _images(c, flag, backend, "flash", (9,))
    if backend == "trtllm":
        return _trtllm(c, flag)
    if backend == "tilelang" and c.sm[0] == 9:
        reason = f"{c.release.version} takes {backend} for sparse attention and tests no GPU for it."
        return _part(c, flag, True, reason, places.declared(c, flag), Gate.PARSER)
    return None


def _images(c: Context, flag: str, backend: str, name: str, used: tuple[int, ...]) -> Part | None:
    row = attention_kernels.images(c, name)
    if row is not None and c.sm[0] not in row.majors:
        shown = ", ".join(row.words)
        reason = f"{backend} runs kernels of {row.proof.artifact} for SM {shown}: none for SM {c.sm_text}."
        return _part(c, flag, False, reason, row.proof)
    if c.sm[0] in used:
        proof = row.proof if row is not None else places.declared(c, flag)
        reason = f"{c.release.version} takes {backend} for sparse attention and tests no GPU for it."
        return _part(c, flag, True, reason, proof)
    return None


def _trtllm(c: Context, flag: str) -> Part | None:
    if c.sm[0] == 10:
        proof = c.library_proof(_TRTLLM_GEN) or (places.declared(c, flag),)
        reason = f"FlashInfer {c.flashinfer_version} builds trtllm attention kernels for SM {c.sm_text}."
        return _part(c, flag, True, reason, proof[0])
    named, runner = places.place(c, "dsa.trtllm"), c.generator(_RUNNER)
    if named is not None and runner is not None and runner.archs and c.sm_text not in runner.archs:
        shown = ", ".join(runner.archs)
        reason = f"{c.release.version} asks FlashInfer {c.flashinfer_version} for trtllm-gen, which is for SM {shown}."
        step = Step(Gate.LIBRARY, False, reason, named)
        return Part(flag, Outcome.FAILS, reason, (named, *c.library_proof(_RUNNER)), (step,), instead=_LEAVE_OUT)
    return None
