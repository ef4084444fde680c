"""KV-cache types: scales that a checkpoint does not bring, and a scales file that the back end does not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validators.rules.context import Context
from validators.rules.interface import Expectation, Gate, Outcome, Part, Step

SUBJECT = "KV-cache types and their scales"
FLAGS = ("kv-cache-dtype", "quantization-param-path")
SITES: tuple[str, ...] = ()
_TORCH = {"fp8_e4m3": r"torch\.float8_e4m3fn", "fp8_e5m2": r"torch\.float8_e5m2", "bf16": r"torch\.bfloat16"}


def judge(c: Context) -> Iterator[Part]:
    value = c.args.get("kv-cache-dtype")
    if isinstance(value, str) and value in _TORCH and c.has("kv-cache-dtype"):
        yield _dtype(c, value)
    if c.given("quantization-param-path") and c.has("quantization-param-path"):
        yield _scales_file(c)


def _dtype(c: Context, value: str) -> Part:
    flag = "kv-cache-dtype"
    proof = c.release.evidence(c.release.flags[flag].place, "--" + flag)
    reason = f"{c.release.version} keeps the cache in {value}."
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
