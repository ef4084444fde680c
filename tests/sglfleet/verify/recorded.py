"""Evidence recorded on real NVIDIA H200 cards with SGLang 0.5.16 (FlashInfer 0.6.14), one or two of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from sglfleet.verify.evidence import Seen
from sglfleet.verify.journal import from_text
from sglfleet.verify.trace import Trace
from validators.verdict import Decision, Expectation, Outcome, Verdict

H200 = Path(__file__).parents[2] / "fixtures" / "h200"
FUSION = "flashinfer-allreduce-fusion-backend"
FUSION_KERNEL = "allreduce_fusion_kernel"
FUSION_LINE = "FlashInfer AllReduce Fusion enabled and workspace initialized: backend="


def traces(service: str) -> tuple[Trace, ...]:
    return tuple(Trace.from_json(t) for t in json.loads((H200 / service / "traces.json").read_text()))


def seen(service: str) -> Seen:
    """Everything that was recorded of one service."""
    folder = H200 / service
    log = (folder / "server.log").read_text()
    info = folder / "server_info.json"
    command = log.splitlines()[0].removeprefix("$ ").split()
    return Seen(
        journal=from_text(log),
        info=json.loads(info.read_text()) if info.exists() else None,
        argv=tuple(command),
        env={},
        traces=traces(service),
    )


def against(service: str, control: str, flag: str) -> Seen:
    """The same, with the service without the flag beside it."""
    return replace(seen(service), controls={flag: traces(control)})


def verdict(
    flag: str,
    *expects: Expectation,
    outcome: Outcome = Outcome.ACTIVE,
    decision: Decision = Decision.KEEP,
    value: str | bool = True,
) -> Verdict:
    return Verdict(flag, value, outcome, decision, "as judged", "test", expects=expects)


ACTIVE_FUSION = (
    Expectation("kernel", present=FUSION_KERNEL, where="every rank"),
    Expectation("log", present=FUSION_LINE, where="every rank"),
    Expectation("server_info", present="flashinfer_allreduce_fusion_backend=auto"),
)
NO_FUSION = (Expectation("kernel", absent=FUSION_KERNEL), Expectation("log", absent=FUSION_LINE))
TRITON = (
    Expectation("kernel", present="^_fwd_kernel$", where="prefill"),
    Expectation("kernel", present="^_fwd_grouped_kernel_stage1$", where="decode"),
    Expectation("kernel", absent="PrefillWith(Paged)?KVCacheKernel"),
)
FLASHINFER = (
    Expectation("kernel", present=r"flashinfer::(Batch)?PrefillWith\w*KVCacheKernel<", where="prefill"),
    Expectation("kernel", present="Batch(Decode|Prefill)WithPagedKVCacheKernel", where="decode"),
    Expectation("kernel", absent="^_fwd_grouped_kernel_stage1$"),
)
