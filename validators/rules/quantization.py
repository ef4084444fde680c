"""Quantization methods: registered on this host, the least capability that the loader compares, what stands behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from validators.rules import constructors, experts, mxfp8, places
from validators.rules.asked import values
from validators.rules.context import Context, place
from validators.rules.fused_moe_sum import DENSE
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step

SUBJECT = "Quantization methods: registered here, least capability, what stands behind"
DRAFT = "speculative-draft-model-quantization"
FLAGS = ("quantization", DRAFT)
SITES: tuple[str, ...] = ()

# methods for other makers' hardware: what stops them on an NVIDIA GPU, and the package that would change that
_FOREIGN = {
    "petit_nvfp4": ("AMD GPUs: its kernels are a package that no NVIDIA host has", "petit-kernel"),
    "quark_int4fp8_moe": ("AMD GPUs: its expert layers refuse any other", ""),
    "mxfp_w4a8": ("Ascend NPUs: its layers refuse any other device", ""),
    "modelslim": ("Ascend NPUs: its layers call operators that only torch_npu has", "torch-npu"),
}
# methods that stop without the checkpoint's own words on its quantization ("Cannot find the config file for …"), in
# config.json or in a file beside it, which only the model's folder shows
_OF_THE_CHECKPOINT = (
    *("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "auto-round", "compressed-tensors", "quark"),
    *("modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", "mxfp4", "marlin"),
)
_UNREAD = ("quark_mxfp4",)  # for AMD GPUs; what its layers do elsewhere is not read
# kernels beyond the minimum: the method's minimum passes, and whether its kernel takes the GPU is not read
_NARROW = {"w4afp8": ((9, 0), (9, 0))}
_MXFP8_EXPERTS = "Fp8MoEMethod._process_mxfp8_moe_weights"
_NVFP4_EXPERTS = "ModelOptNvFp4FusedMoEMethod.__init__"
_MIXTURE = re.compile(
    r"Moe(?!d)|^(Deepseek(V2|V3|V4)|GptOss|Glm4Moe|GlmMoe|Mixtral|Kimi|Llama4|MiniMax|Qwen3Next|Step3|BailingMoe)"
)


def judge(c: Context) -> Iterator[Part]:
    for flag, method in values(c, FLAGS):
        if flag == DRAFT and not c.given("speculative-algorithm"):
            continue  # there is no draft model to load
        yield _judge(c, flag, method)


def _judge(c: Context, flag: str, method: str) -> Part:
    if method == "unquant":
        unset = places.place(c, "quant.unquant") or places.declared(c, flag)
        reason = f"{c.release.version} quantizes nothing of its own accord."
        return Part(flag, Outcome.ACTIVE, reason, (unset,), (Step(Gate.RESOLUTION, True, reason, unset),))
    row = capability(c, method)
    proof = place(c.release, row) if row else None
    least = _written(row["value"]) if row and "value" in row else "a capability of its own"
    if row is not None and proof is not None and c.sm_text not in row["sms"]:
        reason = f"{c.release.version} refuses to load {method} below SM {least}; this is SM {c.sm_text}."
        return Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.ENGINE, False, reason, proof),))
    if flag != DRAFT and method in _OF_THE_CHECKPOINT and experts.told(c) and not _says_how(c):
        reason = f"{method} stops where the checkpoint does not say how it was quantized, and its config.json does not."
        todo = "Take a checkpoint that was quantized so, or leave the flag out."
        return Part(flag, Outcome.UNKNOWN, reason, steps=(Step(Gate.MODEL, None, reason),), todo=todo)
    unknown = _other_name(c, flag, method) or _unregistered(c, flag, method)
    if unknown is not None:
        return unknown
    if proof is None:
        return c.unsure(flag, f"Which GPUs {c.release.version} takes {method} on")
    reason = f"{c.release.version} loads {method} from SM {least} on."
    passed = Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.ENGINE, True, reason, proof),))
    return _beyond(c, method, passed)


def _other_name(c: Context, flag: str, method: str) -> Part | None:
    """A name that is no method of the release and that a checkpoint of the right kind turns into one."""
    named, *names = places.row(c, "quant.other_names")
    _, *known = places.row(c, "quant.methods")
    real = "gptq_marlin"
    if named is None or method in known or method not in names or real not in known:
        return None
    row = capability(c, real)
    if row is None or c.sm_text not in row["sms"]:
        return c.unsure(flag, f"What {c.release.version} makes of {method} on SM {c.sm_text}")
    reason = f"{c.release.version} takes {method} for the Marlin method of the checkpoint's own kind."
    step = Step(Gate.ENGINE, True, reason, named)
    return Part(flag, Outcome.ACTIVE, reason, (named,), (step,), needs=("a checkpoint of GPTQ or AWQ in 4 bits",))


def _unregistered(c: Context, flag: str, method: str) -> Part | None:
    """The parser takes names that the table of methods has only on other hosts, or has no more."""
    table, *known = places.row(c, "quant.methods")
    _, *of_vllm = places.row(c, "quant.vllm")
    if table is None or method in known:
        return None
    if method in of_vllm:
        found = c.unsure(flag, f"{method} takes operators of vLLM, which {c.release.version} does not install. That")
        return replace(found, reason=f"{method} needs vLLM, which {c.release.version} does not install.")
    raised = places.place(c, "quant.unknown") or table
    reason = f"{c.release.version} takes {method} on the command line and has no such method on an NVIDIA host."
    step = Step(Gate.ENGINE, False, reason, raised)
    return Part(flag, Outcome.FAILS, reason, (raised, table), (step,))


def capability(c: Context, method: str) -> dict[str, Any] | None:
    """The method's minimum in this release, with the SMs that pass; None where it could not be read."""
    sites = c.release.sites
    listed = sites.get("capabilities", ()) if isinstance(sites, dict) else ()
    row = next((row for row in listed if row["method"] == method), None)
    return None if row is None or row.get("sms") is None else row


def _says_how(c: Context) -> bool:
    return any(c.case.checkpoint.get(name) for name in ("quantization_config", "compression_config", "quantization"))


def _written(value: int) -> str:
    return f"{value // 10}.{value % 10}"


def _beyond(c: Context, method: str, passed: Part) -> Part:
    """The minimum passes; what stands behind it may still stop, or not be known."""
    if method in _FOREIGN:
        return _foreign(c, method, passed)
    if method == "mxfp8":
        return _mxfp8(c, passed)
    if method == "modelopt_fp4" and _MIXTURE.search(c.arch):
        return _nvfp4(c, passed)
    least, most = _NARROW.get(method, ((0, 0), (99, 0)))
    if method in _UNREAD or not least <= c.sm <= most:
        return c.unsure(passed.flag, f"Whether the kernels of {method} take SM {c.sm_text}")
    return passed


def _foreign(c: Context, method: str, passed: Part) -> Part:
    who, package = _FOREIGN[method]
    proof: Evidence | None = places.place(c, f"quant.{method}")
    installed = {name.lower().replace("_", "-") for name in c.case.packages}
    only_experts = method == "quark_int4fp8_moe" and c.arch in DENSE
    if proof is None or package in installed or only_experts:
        return c.unsure(passed.flag, f"What {c.release.version} does with {method} on an NVIDIA GPU")
    reason = f"{method} is for {who}."
    steps = (*passed.steps, Step(Gate.LIBRARY, False, reason, proof))
    return replace(passed, outcome=Outcome.FAILS, reason=reason, evidence=(proof,), steps=steps)


def _nvfp4(c: Context, passed: Part) -> Part:
    """Expert layers have a check of their own, which newer releases let Marlin pass on older GPUs."""
    runner = c.args.get("moe-runner-backend", "auto")
    marlin = runner == "marlin" or (runner == "auto" and (8, 0) <= c.sm < (10, 0))
    found = constructors.part(
        c, passed.flag, "NVFP4 expert layers", _NVFP4_EXPERTS, known={"use_marlin_fallback": marlin}
    )
    if found is not None and found.outcome is Outcome.FAILS:
        return replace(found, steps=(*passed.steps, *found.steps))
    return passed


def _mxfp8(c: Context, passed: Part) -> Part:
    """The expert layer asks for SM 10.x; dense layers have products of their own."""
    experts = constructors.part(c, passed.flag, "the expert layers of MXFP8", _MXFP8_EXPERTS)
    dense = mxfp8.dense(c, passed.flag)
    for found, certain in ((dense, True), (experts, bool(_MIXTURE.search(c.arch)))):
        if found is not None and found.outcome is Outcome.FAILS and certain:
            return replace(found, steps=(*passed.steps, *found.steps))
    if c.sm[0] == 10:
        return passed
    if dense is not None and dense.outcome is Outcome.ACTIVE and c.arch in DENSE:
        return replace(dense, steps=(*passed.steps, *dense.steps))
    return c.unsure(passed.flag, f"Whether the layers of mxfp8 take SM {c.sm_text}")
