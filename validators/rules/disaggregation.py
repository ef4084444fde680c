"""Prefill-decode disaggregation: a transfer back end that needs RDMA on hosts that have none."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Transfer back ends of disaggregation that need RDMA"
FLAGS = ("disaggregation-transfer-backend", "disaggregation-mode")
SITES = ("mooncake.protocol",)


def judge(c: Context) -> Iterator[Part]:
    mode = c.args.get("disaggregation-mode")
    back_end = c.get("disaggregation-transfer-backend")
    if mode not in ("prefill", "decode") or back_end != "mooncake" or c.case.rdma_nics != 0:
        return
    if "MOONCAKE_PROTOCOL" in c.release.env and c.case.env.get("MOONCAKE_PROTOCOL", "rdma") != "rdma":
        return
    flag = FLAGS[0] if c.given(FLAGS[0]) else FLAGS[1]
    proof = c.proof("mooncake.protocol")
    reason = f"The host has no RDMA device, and mooncake of {c.release.version} speaks rdma here."
    step = Step(Gate.TOPOLOGY, False, reason, proof[0] if proof else None)
    todo = "Use hosts with RDMA, or another --disaggregation-transfer-backend."
    if "MOONCAKE_PROTOCOL" in c.release.env:
        todo = "Use hosts with RDMA, or set MOONCAKE_PROTOCOL=tcp."
    yield Part(flag, Outcome.FAILS, reason, proof, (step,), todo=todo)
