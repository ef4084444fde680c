"""Fused sum of the experts' outputs: no GPU test, but only the Triton runner reads the flag."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Expectation, Gate, Outcome, Part, Step

SUBJECT = "Fused sum and all-reduce of expert outputs"
FLAGS = ("enable-fused-moe-sum-all-reduce",)
SITES = ("moe-sum.applies",)
DENSE = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM")


def judge(c: Context) -> Iterator[Part]:
    flag = FLAGS[0]
    if c.args.get(flag) is not True or not c.has(flag):
        return
    proof = c.proof("moe-sum.applies")
    if not proof:
        yield c.unsure(flag, f"Where {c.release.version} reads it")
        return
    if c.arch in DENSE:
        reason = f"{c.arch} has no experts."
        yield Part(flag, Outcome.INERT, reason, proof, (Step(Gate.MODEL, False, reason, proof[0]),))
        return
    runner = c.args.get("moe-runner-backend")
    if runner not in (None, "auto", "triton"):
        reason = f"Only the triton runner reads it, and --moe-runner-backend is {runner}."
        yield Part(flag, Outcome.INERT, reason, proof, (Step(Gate.RESOLUTION, False, reason, proof[0]),))
        return
    quantized = bool(c.args.get("quantization") or c.case.checkpoint.get("quantization"))
    sure = runner == "triton" or (c.arch and not quantized and c.sm[0] != 10 and not c.given("moe-a2a-backend"))
    if not sure:
        reason = f"Only the triton runner reads it; which one {c.release.version} picks here is not known."
        yield Part(flag, Outcome.UNKNOWN, reason, proof, (Step(Gate.RESOLUTION, None, reason, proof[0]),))
        return
    reason = f"The triton runner of {c.release.version} reads it, on any GPU."
    expects = (
        Expectation("kernel", absent=r"^triton_per_fused_copy__mul_sum_0$", where="decode", source=proof[0]),
        Expectation("kernel", absent=r"moe_sum_reduce_", where="prefill", source=proof[0]),
    )
    needs = ("more than two experts per token", "no INT8 or INT4 expert weights")
    yield Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.ENGINE, True, reason, proof[0]),), expects, needs=needs)
