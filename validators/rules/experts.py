"""Format of a model's experts, as far as the flags, the checkpoint or the architecture say it."""

from __future__ import annotations

from validators.rules.context import Context

FP8, NVFP4, MXFP4, MXFP8 = "fp8", "nvfp4", "mxfp4", "mxfp8"
_BY_METHOD = {
    "fp8": FP8,
    "modelopt_fp4": NVFP4,
    "nvfp4_online": NVFP4,
    "mxfp4": MXFP4,
    "mxfp8": MXFP8,
}


def kind(c: Context) -> str:
    """One of the formats above; "" for any other, and where nobody says."""
    config = c.case.checkpoint.get("quantization_config")
    named = (
        c.args.get("quantization"),
        c.case.checkpoint.get("quantization"),
        config.get("quant_method") if isinstance(config, dict) else None,
    )
    said = next((str(one) for one in named if one), "")
    if not said and c.arch == "GptOssForCausalLM":
        return MXFP4  # published in this format only
    return _BY_METHOD.get(said, "")
