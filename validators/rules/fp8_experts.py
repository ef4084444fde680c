"""Experts in FP8 blocks on GPUs older than SM 8.9: the checkpoint asks for it, no flag does."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Checkpoints with experts in FP8 blocks, below SM 8.9"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True


def judge(c: Context) -> Iterator[Part]:
    if c.sm >= (8, 9) or not _blocks(c) or not _experts(c):
        return
    if c.given("quantization") or c.args.get("moe-runner-backend") not in (None, "auto", "triton"):
        return  # another path was asked for; its own rule speaks
    reason = (
        f"The experts of this checkpoint are FP8 blocks, which the triton runner multiplies in E4M3: Triton has that "
        f"from SM 8.9 on, and no other path of {c.release.version} is known for SM {c.sm_text}."
    )
    todo = "Use an INT8, AWQ or BF16 checkpoint, or GPUs of SM 8.9 or newer."
    yield Part(
        "checkpoint",
        Outcome.UNKNOWN,
        reason,
        steps=(Step(Gate.MODEL, None, reason),),
        todo=todo,
        refuse=True,
        value="fp8 blocks",
    )


def _blocks(c: Context) -> bool:
    found = c.case.checkpoint.get("quantization_config")
    return isinstance(found, dict) and found.get("quant_method") == "fp8" and bool(found.get("weight_block_size"))


def _experts(c: Context) -> bool:
    counts = ("n_routed_experts", "num_experts", "num_local_experts", "experts")
    return c.arch.startswith("DeepseekV3") or any(c.case.checkpoint.get(name) for name in counts)
