"""Format of a model's weights and experts, as far as the flags, the checkpoint or the architecture say it."""

from __future__ import annotations

from validators.rules.context import Context
from validators.rules.fused_moe_sum import DENSE

FP8, NVFP4, MXFP4, MXFP8 = "fp8", "nvfp4", "mxfp4", "mxfp8"
_BY_METHOD = {
    "fp8": FP8,
    "modelopt_fp4": NVFP4,
    "nvfp4_online": NVFP4,
    "mxfp4": MXFP4,
    "mxfp8": MXFP8,
}


# methods with integer weights: none of their layers asks for a product of FP8 or FP4
_INTEGERS = (
    "awq",
    "awq_marlin",
    "gptq",
    "gptq_marlin",
    "marlin",
    "w8a8_int8",
    "moe_wna16",
    "qoq",
    "bitsandbytes",
    "gguf",
)
_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "experts")


def method(c: Context) -> str:
    """The quantization method by the flag, else by the checkpoint; "" where nobody says one."""
    config = c.case.checkpoint.get("quantization_config")
    named = (
        c.args.get("quantization"),
        c.case.checkpoint.get("quantization"),
        config.get("quant_method") if isinstance(config, dict) else None,
    )
    return next((str(one) for one in named if one), "")


def integers(c: Context) -> bool:
    """Is the model known to have integer weights, and no draft model beside it that may have others."""
    return method(c) in _INTEGERS and not c.given("speculative-algorithm")


def none(c: Context) -> bool:
    """Is the model known to have no experts: by its architecture and by its own configuration."""
    told = c.case.checkpoint
    return bool(told) and c.arch in DENSE and not any(told.get(name) for name in _COUNTS)


def told(c: Context) -> bool:
    """Is the checkpoint's own configuration known, which names its quantization where there is one."""
    return "architectures" in c.case.checkpoint


def kind(c: Context) -> str:
    """One of the formats above; "" for any other, and where nobody says."""
    said = method(c)
    if not said and c.arch == "GptOssForCausalLM":
        return MXFP4  # published in this format only
    return _BY_METHOD.get(said, "")
