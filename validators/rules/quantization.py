"""Quantization methods: the model loader compares the GPU with the method's minimum before it loads anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from validators.rules import constructors
from validators.rules.context import Context, place
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Minimum compute capability of quantization methods"
FLAGS = ("quantization",)
SITES: tuple[str, ...] = ()

# methods that another vendor's hardware is for; the table's minimum says nothing of an NVIDIA GPU
_FOREIGN = ("modelslim", "petit_nvfp4", "quark_int4fp8_moe", "mxfp_w4a8", "mlx", "quark_mxfp4")
# kernels beyond the minimum: the method's minimum passes, and whether its kernel takes the GPU is not read
_NARROW = {"w4afp8": ((9, 0), (9, 0))}
# MXFP8: the expert layer's check, and the dense product's where a release has one product only (0.5.9)
_EXPERTS = "Fp8MoEMethod._process_mxfp8_moe_weights"
_DENSE = "triton_mxfp8_blockscaled_linear"
_MIXTURE = re.compile(r"Moe|^(Deepseek|GptOss|Glm4Moe|GlmMoe|Mixtral|Kimi|Llama4|MiniMax|Qwen3Next|Step3|BailingMoe)")


def judge(c: Context) -> Iterator[Part]:
    method = c.args.get("quantization")
    if not isinstance(method, str) or not c.has("quantization"):
        return
    row = _rows(c).get(method)
    if row is None or row.get("sms") is None or method in _FOREIGN:
        yield c.unsure("quantization", f"Which GPUs {c.release.version} takes {method} on")
        return
    proof = place(c.release, row)
    least = _written(row["value"]) if "value" in row else "a capability of its own"
    if c.sm_text not in row["sms"]:
        reason = f"{c.release.version} refuses to load {method} below SM {least}; this is SM {c.sm_text}."
        yield Part("quantization", Outcome.FAILS, reason, (proof,), (Step(Gate.ENGINE, False, reason, proof),))
        return
    reason = f"{c.release.version} loads {method} from SM {least} on."
    step = Step(Gate.ENGINE, True, reason, proof)
    yield _beyond(c, method, Part("quantization", Outcome.ACTIVE, reason, (proof,), (step,)))


def _rows(c: Context) -> dict[str, dict[str, Any]]:
    sites = c.release.sites
    listed = sites.get("capabilities", ()) if isinstance(sites, dict) else ()
    return {row["method"]: row for row in listed}


def _written(value: int) -> str:
    return f"{value // 10}.{value % 10}"


def _beyond(c: Context, method: str, passed: Part) -> Part:
    """The minimum passes; what stands behind it may still stop, or not be known."""
    if method == "mxfp8":
        return _mxfp8(c, passed)
    least, most = _NARROW.get(method, ((0, 0), (99, 0)))
    if not least <= c.sm <= most:
        return c.unsure("quantization", f"Whether the kernels of {method} take SM {c.sm_text}")
    return passed


def _mxfp8(c: Context, passed: Part) -> Part:
    """The expert layer asks for SM 10.x; dense layers do in 0.5.9, and later have other products to choose from."""
    dense = constructors.part(c, "quantization", "the product of dense MXFP8 layers", _DENSE)
    experts = constructors.part(c, "quantization", "the expert layers of MXFP8", _EXPERTS)
    for found, certain in ((dense, True), (experts, bool(_MIXTURE.search(c.arch)))):
        if found is not None and found.outcome is Outcome.FAILS and certain:
            return replace(found, steps=(*passed.steps, *found.steps))
    if c.sm[0] != 10:
        return c.unsure("quantization", f"Whether the layers of mxfp8 take SM {c.sm_text}")
    return passed
