"""Attention back ends, for both stages and for images: what the constructor of the chosen one demands of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from validators.rules import (
    attention_kernels,
    attention_models,
    constructors,
    hybrid_attention,
    kernel_places,
    places,
    resolved,
    start_up_checks,
)
from validators.rules.context import Context
from validators.rules.interface import Evidence, Expectation, Gate, Outcome, Part, Step, Value
from validators.rules.other_accelerators import MAKERS

SUBJECT = "Attention back ends of prefill, decode and images"
STAGES = {
    "attention-backend": "",
    "prefill-attention-backend": "prefill",
    "decode-attention-backend": "decode",
    "speculative-draft-attention-backend": "",
}
IMAGES = "mm-attention-backend"
FLAGS = (*STAGES, IMAGES)
DRAFT = "speculative-draft-attention-backend"
SITES = ("mla.archs",)

# back end -> function or class whose checks stand between it and the start
_BUILT_BY = {
    "fa3": "create_flashattention_v3_backend",
    "hpc_ops": "HPCOpsAttnBackend.__init__",
    "flashmla": "create_flashmla_backend",
    "cutlass_mla": "create_cutlass_mla_backend",
    "trtllm_mla": "create_trtllm_mla_backend",
    "trtllm_mha": "create_trtllm_mha_backend",
    "cutedsl_mla": "create_cutedsl_mla_backend",
}
_CHAIN = "ModelRunner._get_attention_backend_from_str"  # one function for all back ends, before the registry of 0.5.3
# back end -> is it for models with multi-head latent attention only (True) or for all others only (False): every
# release whose registry knows the back end refuses the other kind when it builds it
_FOR_MLA = {
    **{"trtllm_mla": True, "tokenspeed_mla": True, "cutedsl_mla": True},
    **{"trtllm_mha": False, "hpc_ops": False},
}
_DECODE_ONLY = ("cutedsl_mla",)  # "CuteDSL MLA only supports decoding for now": 0.5.13, the first with it, to 0.5.23
_FA4_FOR_PREFILL_ONLY = ("0.5.4", "0.5.5", "0.5.6", "0.5.7")  # "FA4 backend is only supported for prefill"
_RUNNER = "TllmGenFmhaRunner"  # FlashInfer's class behind trtllm_mla prefill; its constructor tests the SM
# kernels seen on a real GPU, by stage; what is missing here has not been seen
_KERNELS = {
    "triton": {"prefill": r"^_fwd_kernel$", "decode": r"^_fwd_grouped_kernel_stage1$|^_fwd_kernel_stage1$"},
    "flashinfer": {
        "prefill": r"flashinfer::(Batch)?PrefillWith\w*KVCacheKernel<",
        "decode": r"Batch(Decode|Prefill)WithPagedKVCacheKernel",
    },
    "fa3": {"prefill": r"flash::FlashAttnFwdSm90", "decode": r"flash::FlashAttnFwdSm90"},
}


def judge(c: Context) -> Iterator[Part]:
    for flag, stage in STAGES.items():
        backend = c.args.get(flag)
        if isinstance(backend, str) and c.has(flag) and not _changed(c, flag, backend):
            yield from _stage(c, flag, stage, backend)
    backend = c.args.get(IMAGES)
    if isinstance(backend, str) and c.has(IMAGES):
        yield from _images(c, backend)


def _changed(c: Context, flag: str, backend: str) -> bool:
    """Does argument resolution make another back end of it: then that rule tells, and this one is never built."""
    found = resolved.decided(c, flag.replace("-", "_"))
    return found is not None and found[0] is not None and found[0] != backend


def _stage(c: Context, flag: str, stage: str, backend: str) -> Iterator[Part]:
    instead = _instead(c, flag)
    stages = _decides(c, flag)
    if flag != DRAFT:  # the draft is another model
        found = attention_models.stopped(c, flag, backend, instead) or _eager(c, flag, backend, instead)
        found = found or hybrid_attention.part(c, flag, backend, instead)
        found = found or (attention_models.listed(c, flag, backend, instead) if stages else None)
        if found is not None:
            yield found
            return
    symbol = _BUILT_BY.get(backend)
    what = f"attention back end {backend}"
    built = constructors.part(c, flag, what, symbol, instead=instead) if symbol else None
    if built is None and backend == "fa3":
        known = {"backend_str": backend, "self.server_args.attention_backend": backend}
        built = constructors.part(c, flag, what, _CHAIN, instead=instead, known=known)
    if built is not None:
        yield replace(built, expects=_expects(c, stage, backend, built.evidence[0]) if _runs(built) else ())
    elif backend in _KERNELS:
        yield _plain(c, flag, stage, backend)
    elif backend not in MAKERS and not places.value(c, f"alias.{backend}"):  # rules of their own speak of those
        found = _kernels_decide(c, flag, backend, stages, instead)
        told = backend == "trtllm_mla" and flag == "prefill-attention-backend" and list(_trtllm_mla(c, flag, instead))
        if not told or found.outcome is not Outcome.UNKNOWN:
            yield found
    if flag != DRAFT:
        yield from _kind_of_model(c, flag, backend, instead)
        yield from _stage_refused(c, flag, backend, instead)
    if backend == "trtllm_mla":
        yield from _trtllm_mla(c, flag, instead)
        yield from _trtllm_mla_decode(c, flag, instead)
    if flag == "attention-backend" and c.given("prefill-attention-backend") and c.given("decode-attention-backend"):
        # not idle: several releases look at the common one elsewhere, as for CUDA graphs and hybrid models
        reason = "Both stages have a back end of their own; what else the common one decides is not followed."
        step = Step(Gate.RESOLUTION, None, reason)
        flag_place = c.release.flags[flag]
        proof = c.release.evidence(flag_place.place, "--" + flag)
        yield Part(flag, Outcome.UNKNOWN, reason, (proof,), (step,))


def _decides(c: Context, flag: str) -> frozenset[str]:
    """The stages of the served model that a flag decides."""
    if flag == DRAFT:
        return frozenset()
    if flag != "attention-backend":
        return frozenset({STAGES[flag]})
    return frozenset(stage for stage in ("prefill", "decode") if not c.given(f"{stage}-attention-backend"))


def _eager(c: Context, flag: str, backend: str, instead: tuple[dict[str, Value], ...]) -> Part | None:
    """Back ends without CUDA graphs: the common flag turns graphs off, the one of decoding alone does not."""
    if flag != "decode-attention-backend" or backend in (c.args.get("attention-backend"), _prefill(c)):
        return None
    proof = places.place(c, "attn.graphs")
    if proof is None or places.place(c, f"attn.eager.{backend}") is None:
        return None
    if any("graph" in name for name in c.args) or c.args.get("device", "cuda") != "cuda":
        return None
    reason = f"{c.release.version} captures CUDA graphs of decoding, and back end {backend} has none."
    return Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.ENGINE, False, reason, proof),), instead=instead)


def _prefill(c: Context) -> Any:
    return c.args.get("prefill-attention-backend")


def _runs(part: Part) -> bool:
    return part.outcome is Outcome.ACTIVE


def _plain(c: Context, flag: str, stage: str, backend: str) -> Part:
    known = c.release.flags[flag]
    proof = c.release.evidence(known.place, "--" + flag)
    reason = f"{c.release.version} takes back end {backend}; it tests no GPU for it."
    return Part(
        flag,
        Outcome.ACTIVE,
        reason,
        (proof,),
        (Step(Gate.PARSER, True, reason, proof),),
        _expects(c, stage, backend, proof),
    )


def _kernels_decide(
    c: Context, flag: str, backend: str, stages: frozenset[str], instead: tuple[dict[str, Value], ...]
) -> Part:
    """Back ends for which the release tests nothing: plain PyTorch runs anywhere, of others the packages tell."""
    proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
    known = attention_kernels.part(c, flag, backend, stages, instead)
    if known is not None:
        return known
    why = _anywhere(c, backend)
    if why:
        reason = f"{c.release.version} takes back end {backend}: {why}, of which nothing depends on the SM."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.LIBRARY, True, reason, proof),))
    if _default(c) == backend:
        reason = f"{c.release.version} picks {backend} by itself on SM {c.sm_text}."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.ENGINE, True, reason, proof),))
    tested = None if backend == "trtllm_mla" and c.sm[0] == 12 else start_up_checks.passed(c, backend)
    if tested is not None:
        reason = f"{c.release.version} tests the GPU for attention back end {backend}, and SM {c.sm_text} passes."
        return Part(flag, Outcome.ACTIVE, reason, (tested,), (Step(Gate.RESOLUTION, True, reason, tested),))
    if attention_models.own(c, backend) and c.sm[0] in (9, 10):
        reason = f"{backend} is what {c.release.version} picks for {c.arch} on SM {c.sm_text}."
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.MODEL, True, reason, proof),))
    reason = (
        f"No test of {c.release.version} decides whether the kernels of {backend} run on SM {c.sm_text}: not known."
    )
    todo = f"Leave {flag} out, or try it on this GPU."
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(Gate.LIBRARY, None, reason, proof),), todo=todo)


def _anywhere(c: Context, backend: str) -> str:
    if backend == "torch_native" and attention_models.latent(c) is not True:  # 0.5.16 stopped there, on an H200
        return "plain PyTorch"
    if backend == "llada2_cfg_flashinfer" and attention_models.latent(c) is False:
        return "FlashInfer's attention with a mask of its own for LLaDA"
    return ""


def _kind_of_model(c: Context, flag: str, backend: str, instead: tuple[dict[str, Value], ...]) -> Iterator[Part]:
    wanted = _FOR_MLA.get(backend)
    has = c.holds("runner.use_mla_backend")
    if wanted is None or has is None or has is wanted or c.holds("is_deepseek_dsa(x)"):
        return
    if any(part.flag == flag and part.outcome is Outcome.FAILS for part in start_up_checks.judge(c)):
        return  # argument resolution comes first and has stopped the start already
    proof = c.proof("mla.archs")
    reason = f"{backend} is for models {'with' if wanted else 'without'} latent attention (MLA); {c.arch} is not one."
    yield Part(flag, Outcome.FAILS, reason, proof, (Step(Gate.MODEL, False, reason, proof[0]),), instead=instead)


def _stage_refused(c: Context, flag: str, backend: str, instead: tuple[dict[str, Value], ...]) -> Iterator[Part]:
    """Back ends of one stage that the release refuses for the other, on any GPU."""
    if flag == "prefill-attention-backend" and backend in _DECODE_ONLY:
        reason = f"{c.release.version} stops the start: {backend} is for decoding only."
    elif backend == "fa4" and flag in ("attention-backend", "decode-attention-backend") and _fa4_is_for_prefill(c):
        reason = f"{c.release.version} stops the start: fa4 is for prefill only."
    else:
        return
    proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
    yield Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.RESOLUTION, False, reason, proof),), instead=instead)


def _fa4_is_for_prefill(c: Context) -> bool:
    return c.release.version.partition(".post")[0] in _FA4_FOR_PREFILL_ONLY


def _trtllm_mla(c: Context, flag: str, instead: tuple[dict[str, Value], ...]) -> Iterator[Part]:
    """The engine's own gate is wider than the library's: prefill runs a kernel that tests for SM 10.x by itself."""
    if flag == "decode-attention-backend" or (flag == "attention-backend" and c.given("prefill-attention-backend")):
        return
    runner = c.generator(_RUNNER)
    if runner is None or not runner.archs:
        return
    if c.sm_text in runner.archs:
        if flag == "prefill-attention-backend" and attention_models.latent(c):
            yield _prefills(c, flag)
        return
    proof = c.library_proof(_RUNNER)
    shown = ", ".join(runner.archs)
    reason = (
        f"trtllm_mla prefill of FlashInfer {c.flashinfer_version} runs on SM {shown} only, and stops on SM {c.sm_text}."
    )
    yield Part(flag, Outcome.FAILS, reason, proof, (Step(Gate.LIBRARY, False, reason, proof[0]),), instead=instead)


def _prefills(c: Context, flag: str) -> Part:
    proof = c.library_proof(_RUNNER)
    reason = f"trtllm_mla prefill of FlashInfer {c.flashinfer_version} runs on SM {c.sm_text}."
    return Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.LIBRARY, True, reason, proof[0]),))


def _trtllm_mla_decode(c: Context, flag: str, instead: tuple[dict[str, Value], ...]) -> Iterator[Part]:
    """On SM 12.x FlashInfer decodes with another kernel, which does not take the buffer that newer releases hand it."""
    if flag == "prefill-attention-backend" or (flag == "attention-backend" and c.given("decode-attention-backend")):
        return
    xqa = kernel_places.row("flashinfer-python", c.flashinfer_version, "flashinfer.xqa_mla")
    if c.sm[0] not in (10, 12) and xqa is not None:
        reason = f"FlashInfer {c.flashinfer_version} decodes MLA on SM 10.x, and on SM 12.x by XQA: it stops elsewhere."
        step = Step(Gate.LIBRARY, False, reason, xqa.proof)
        yield Part(flag, Outcome.FAILS, reason, (xqa.proof,), (step,), instead=instead)
    if c.sm[0] != 12:
        return
    proof = places.place(c, "trtllm_mla.counter")
    known = c.flashinfer_version
    if proof is None or known != c.release.flashinfer or c.given("speculative-algorithm"):
        if flag == "decode-attention-backend":
            what = f"Whether FlashInfer {known} decodes for trtllm_mla on SM {c.sm_text}"
            yield c.unsure(flag, what)
        return
    reason = (
        f"{c.release.version} hands FlashInfer a counter buffer for trtllm_mla; on SM {c.sm_text} FlashInfer decodes "
        "with XQA, which refuses it with the first batch."
    )
    yield Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.LIBRARY, False, reason, proof),), instead=instead)


def _images(c: Context, backend: str) -> Iterator[Part]:
    if attention_models.full(c):
        proof = places.declared(c, IMAGES)
        reason = f"{c.arch} has no image encoder, and {c.release.version} asks --{IMAGES} for it nowhere else."
        step = Step(Gate.MODEL, False, reason, proof)
        yield Part(IMAGES, Outcome.INERT, reason, (proof,), (step,), instead=({},))
        return
    built = constructors.part(
        c,
        IMAGES,
        f"the image encoder's back end {backend}",
        "VisionAttention._determine_attention_backend",
        instead=({},),
        known={"backend": backend},
    )
    if built is not None and _runs(built) and backend == "fa3" and c.sm >= (10, 0):
        yield c.unsure(IMAGES, f"Whether the kernels of fa3, which end at SM 9.0 elsewhere, run on SM {c.sm_text}")
    elif built is not None:
        yield built


def _default(c: Context) -> Any:
    """What this release picks by itself on this SM, where the table is known."""
    tables = c.release.gates.get("tables") or {}
    kind = "mla" if c.holds("runner.use_mla_backend") else "mha"
    row = tables.get(f"attention.default.{kind}") if isinstance(tables, dict) else None
    return row["by_sm"].get(c.sm_text) if row else None


def _instead(c: Context, flag: str) -> tuple[dict[str, Value], ...]:
    """The release's own choice, named where it is known; else the flag is left out."""
    value = _default(c)
    if value is not None and value == c.args.get(flag):
        return ({flag: "triton"},)  # what the release picks by itself is what does not run
    if isinstance(value, str) and c.choice(flag, value):
        return ({flag: value},)
    return ({},)


def _expects(c: Context, stage: str, backend: str, source: Evidence) -> tuple[Expectation, ...]:
    found = _KERNELS.get(backend, {})
    if backend == "fa3" and c.sm != (9, 0):
        return ()  # the name seen is the SM 9.0 kernel's
    return tuple(
        Expectation("kernel", present=pattern, where=where, source=source)
        for where, pattern in found.items()
        if not stage or stage == where
    )
