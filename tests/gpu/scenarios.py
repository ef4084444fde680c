"""What is run on real cards: services, what each is compared with, and what must come out.

SGLang 0.5.16 with FlashInfer 0.6.14 and dummy weights of a Qwen3-MoE shape, on SM 9.0. `expected` is what the kernels
were seen to do on such cards, not what the tool said; the tool has to find it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validators.verdict import Expectation

ARCH = "Qwen3MoeForCausalLM"
FUSION = "flashinfer-allreduce-fusion-backend"
OLD_FUSION = "enable-flashinfer-allreduce-fusion"
OFF = "enforce-disable-flashinfer-allreduce-fusion"
MOE_SUM = "enable-fused-moe-sum-all-reduce"
FUSION_KERNEL = "allreduce_fusion_kernel"
FUSION_LINE = "FlashInfer AllReduce Fusion enabled and workspace initialized: backend="
SUMS = r"^triton_per_fused_copy__mul_sum_0$|moe_sum_reduce_"

BASE: dict[str, Any] = {"load-format": "dummy", "enable-metrics": True, "random-seed": 1, "attention-backend": "triton"}

# what each flag must show; used where a rule brings nothing of its own for the flag
EXPECTS: dict[tuple[str, Any], tuple[Expectation, ...]] = {
    ("attention-backend", "triton"): (
        Expectation("kernel", present="^_fwd_kernel$", where="prefill"),
        Expectation("kernel", present="^_fwd_grouped_kernel_stage1$", where="decode"),
        Expectation("kernel", absent="PrefillWith(Paged)?KVCacheKernel"),
    ),
    ("attention-backend", "flashinfer"): (
        Expectation("kernel", present=r"flashinfer::(Batch)?PrefillWith\w*KVCacheKernel<", where="prefill"),
        Expectation("kernel", present="Batch(Decode|Prefill)WithPagedKVCacheKernel", where="decode"),
        Expectation("kernel", absent="^_fwd_grouped_kernel_stage1$"),
    ),
    ("attention-backend", "torch_native"): (Expectation("operator", present="^aten::scaled_dot_product_attention$"),),
    ("disable-cuda-graph", True): (Expectation("operator", absent="^cudaGraphLaunch$"),),
    ("kv-cache-dtype", "fp8_e4m3"): (
        Expectation("log", present=r"KV Cache is allocated\. dtype: torch\.float8_e4m3fn", where="every rank"),
    ),
    (MOE_SUM, True): (Expectation("kernel", absent=SUMS),),
    (OFF, True): (Expectation("kernel", absent=FUSION_KERNEL), Expectation("log", absent=FUSION_LINE)),
    (FUSION, "auto"): (
        Expectation("kernel", present=FUSION_KERNEL, where="every rank"),
        Expectation("log", present=FUSION_LINE, where="every rank"),
    ),
}
EXPECTS[OLD_FUSION, True] = EXPECTS[FUSION, "auto"]


@dataclass(frozen=True)
class Scenario:
    """One server, and what must be found of the flag it is about."""

    name: str
    args: dict[str, Any]
    flag: str = ""
    expected: str = ""  # status of the flag: proven, contradicted, "not proven"; "crash" where it must not start
    control: str = ""  # scenario whose profile is the negative control
    wave: int = 1
    forced: bool = False  # judged idle or failing, and left on the command line by a waiver


ONE = (
    Scenario("triton", {}, "attention-backend", "proven", "flashinfer"),
    Scenario("flashinfer", {"attention-backend": "flashinfer"}, "attention-backend", "proven", "triton"),
    Scenario("fusion-forced", {OLD_FUSION: True}, OLD_FUSION, "contradicted", "triton", forced=True),
    Scenario("moe-sum", {MOE_SUM: True}, MOE_SUM, "proven", "triton"),
    Scenario("no-graph", {"disable-cuda-graph": True}, "disable-cuda-graph", "proven", "triton"),
    Scenario("kv-fp8", {"kv-cache-dtype": "fp8_e4m3"}, "kv-cache-dtype", "proven", "triton", wave=2),
    Scenario("same", {}, "", "", wave=2),
    Scenario("refused", {"attention-backend": "trtllm_mha"}, "attention-backend", "crash", forced=True),
    Scenario("rejected", {"no-such-flag": True}, "no-such-flag", "crash", forced=True),
)

TP2 = {"tp-size": 2}
TWO = (
    # these need no fusion kernels: they run while FlashInfer builds them
    Scenario("off", {**TP2, OFF: True}, OFF, "proven"),
    Scenario("moe-sum", {**TP2, OFF: True, MOE_SUM: True, "moe-runner-backend": "triton"}, MOE_SUM, "proven", "off"),
    # data-parallel attention keeps the fusion off whatever is asked
    Scenario(
        "dp", {**TP2, "dp-size": 2, "enable-dp-attention": True, OLD_FUSION: True}, OLD_FUSION, "contradicted", "off",
        forced=True,
    ),
    Scenario("on", {**TP2, OLD_FUSION: True}, OLD_FUSION, "proven", "off", wave=2),
    Scenario("automatic", {**TP2}, FUSION, "proven", "off", wave=2),
)  # fmt: skip
# the same chain without a card, to try the driver itself
CPU = (
    Scenario("torch", {"chunked-prefill-size": 64}, "attention-backend", "proven"),
    Scenario("fusion-forced", {OLD_FUSION: True}, OLD_FUSION, "contradicted", "torch", forced=True),
    Scenario("rejected", {"no-such-flag": True}, "no-such-flag", "crash", wave=2, forced=True),
)
ALL = {"one": ONE, "two": TWO, "cpu": CPU}
RELEASES = {"one": ("0.5.16", "0.6.14"), "two": ("0.5.16", "0.6.14"), "cpu": ("0.5.23", "0.7.2")}
GPU_FLAGS = {**BASE, "max-total-tokens": 120000, "mem-fraction-static": 0.7, "cuda-graph-max-bs-decode": 32}
CPU_FLAGS = {"enable-metrics": True, "attention-backend": "torch_native", "device": "cpu", "max-total-tokens": 16384}
FLAGS = {"one": GPU_FLAGS, "two": GPU_FLAGS, "cpu": CPU_FLAGS}


@dataclass(frozen=True)
class Bench:
    """Two arms, measured in turn on servers that were never profiled, and how much of the time left they get."""

    arms: tuple[str, str]
    prompts: int
    concurrency: int
    length: int  # tokens in and out
    share: float


BENCH: dict[str, tuple[Bench, ...]] = {
    "one": (Bench(("triton", "same"), 32, 16, 1000, 0.6), Bench(("triton", "no-graph"), 8, 8, 200, 1.0)),
    "two": (Bench(("off", "on"), 48, 16, 1000, 1.0),),
    "cpu": (),
}
