"""KV-cache types: scales that a checkpoint does not bring, and a scales file that the back end does not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validators.rules import resolved
from validators.rules.asked import LEAVE_OUT
from validators.rules.context import Context
from validators.rules.interface import Expectation, Gate, Outcome, Part, Step
from validators.rules.package_minimums import PLAIN

SUBJECT = "KV-cache types and their scales"
FLAGS = ("kv-cache-dtype", "quantization-param-path")
SITES: tuple[str, ...] = ()
_FP4 = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")
_STAGES = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
_LATENT = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
)  # their choice on SM 10.x is their own, and not in the table
_TORCH = {"fp8_e4m3": r"torch\.float8_e4m3fn", "fp8_e5m2": r"torch\.float8_e5m2", "bf16": r"torch\.bfloat16"}


def judge(c: Context) -> Iterator[Part]:
    value = c.args.get("kv-cache-dtype")
    if isinstance(value, str) and value in _TORCH and c.has("kv-cache-dtype"):
        yield _dtype(c, value)
    if value in _FP4 and c.has("kv-cache-dtype"):
        yield from _fp4(c)
    if c.given("quantization-param-path") and c.has("quantization-param-path"):
        yield _scales_file(c)


def _dtype(c: Context, value: str) -> Part:
    flag = "kv-cache-dtype"
    proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
    reason = f"{c.release.version} keeps the cache in {value}."
    if value == "fp8_e4m3" and c.sm < (8, 9) and "triton" in [c.args.get(stage) for stage in _STAGES]:
        found = f"Triton converts E4M3 from SM 8.9 on; whether {c.release.version} reads such a cache by it on SM"
        return c.unsure(flag, f"{found} {c.sm_text}")
    bare = value == "fp8_e4m3" and scales(c.case.checkpoint) is False and not c.given("quantization-param-path")
    if bare:
        reason = "The checkpoint brings no KV scales: the cache in FP8 runs with scale 1.0 and loses accuracy."
    expects = (
        Expectation(
            "log", present=rf"KV Cache is allocated\. dtype: {_TORCH[value]}", where="every rank", source=proof
        ),
    )
    step = Step(Gate.MODEL, True, reason, proof)
    return Part(flag, Outcome.ACTIVE, reason, (proof,), (step,), expects, advice=bare)


def _fp4(c: Context) -> Iterator[Part]:
    """A named back end need not read a cache in FP4, and the one that a release picks by itself neither."""
    yield from _fp4_prefill(c)
    kind = "mha" if c.arch in PLAIN else "mla" if c.arch in _LATENT and c.sm[0] != 10 else ""
    tables = c.release.gates.get("tables") or {}
    row = tables.get(f"attention.default.{kind}") if isinstance(tables, dict) else None
    picked = row["by_sm"].get(c.sm_text) if row else None
    chosen = any(c.given(flag) for flag in _STAGES) or c.args.get("enable-deterministic-inference") is True
    if not c.arch and not chosen and not _follows(c):
        yield c.unsure("kv-cache-dtype", f"Whether {c.release.version} picks a back end that reads a cache in FP4")
        return
    if not isinstance(picked, str) or chosen or _follows(c):
        return
    there = Context(c.case, c.release, {**c.args, "attention-backend": picked}, c.sm_text)
    known = {f"{owner}use_mla_backend({argument})": kind == "mla" for owner, argument in _ASKS_LATENT}
    for stop in resolved.stops(c.release):
        if not stop.text.startswith(f"KV4 {kind.upper()} expects attention_backend"):
            continue
        if all(there.holds(guard, **known, **resolved.local(there, guard)) for guard in stop.guards):
            reason = f"{c.release.version} picks {picked} on SM {c.sm_text}, which reads no cache in FP4, and stops."
            step = Step(Gate.RESOLUTION, False, reason, stop.proof)
            todo = "Name an attention back end that the release takes for it, such as triton."
            flag = "kv-cache-dtype"
            yield Part(flag, Outcome.FAILS, reason, (stop.proof,), (step,), todo=todo, instead=LEAVE_OUT)
            return


def _fp4_prefill(c: Context) -> Iterator[Part]:
    """Newer releases turn an NVFP4 cache into what one of two back ends prefills with, and stop at any other."""
    backend = c.args.get("prefill-attention-backend") or c.args.get("attention-backend")
    if c.args.get("kv-cache-dtype") != "nvfp4" or backend in (None, *_PREFILLS_NVFP4):
        return
    if c.args.get("prefill-kv-cache-dequant-dtype", "auto") != "auto":
        return
    stop = next((one for one in resolved.stops(c.release) if one.text.startswith(_NEITHER)), None)
    if stop is not None:
        reason = (
            f"{c.release.version} prefills from a cache in NVFP4 by flashinfer or trtllm_mha, and stops at {backend}."
        )
        step = Step(Gate.RESOLUTION, False, reason, stop.proof)
        yield Part("kv-cache-dtype", Outcome.FAILS, reason, (stop.proof,), (step,), instead=LEAVE_OUT)


_NEITHER = "NVFP4 prefill supports an FP8 E4M3 workspace"
_PREFILLS_NVFP4 = ("flashinfer", "trtllm_mha")  # `_NVFP4_PREFILL_BACKEND`
_ASKS_LATENT = (("self.", ""), ("", "server_args"))


def _follows(c: Context) -> bool:
    """Newer releases choose the back ends of both stages by the type of the cache."""
    changes = resolved.table(c.release).changes
    fields = ("prefill_attention_backend", "decode_attention_backend")
    return any("kv_cache_dtype" in guard for name in fields for one in changes.get(name, ()) for guard in one.guards)


def scales(checkpoint: Any) -> bool | None:
    """Does the checkpoint say that it brings KV scales; None where it says nothing about quantization."""
    told = checkpoint.get("kv_scales")
    if isinstance(told, bool):
        return told
    found = checkpoint.get("quantization_config")
    if not isinstance(found, dict):
        return None
    return bool(found.get("kv_cache_scheme") or found.get("kv_cache_quant_algo"))


def _scales_file(c: Context) -> Part:
    flag = "quantization-param-path"
    proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
    back_end = c.args.get("attention-backend") or "the one the engine picks"
    reason = f"The scales of {flag} are not known to take effect with attention back end {back_end}."
    if c.get("kv-cache-dtype") in (None, "auto"):
        reason = "Scales are read only for a cache in FP8, and --kv-cache-dtype is not given."
        return Part(flag, Outcome.INERT, reason, (proof,), (Step(Gate.RESOLUTION, False, reason, proof),))
    todo = "Compare outputs with and without it before relying on it."
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(Gate.ENGINE, None, reason, proof),), todo=todo)
