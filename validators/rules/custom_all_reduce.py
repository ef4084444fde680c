"""SGLang's own all-reduce over PCIe: the engine turns it off by itself for more than two GPUs without NVLink."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Expectation, Gate, Outcome, Part, Step

SUBJECT = "Custom all-reduce on PCIe"
FLAGS = ("disable-custom-all-reduce",)
SITES = ("custom-all-reduce.pcie",)


def judge(c: Context) -> Iterator[Part]:
    flag = FLAGS[0]
    if c.args.get(flag) is not True or not c.has(flag):
        return
    known = c.release.flags[flag]
    flag_proof = c.release.evidence(known.place, "--" + flag)
    proof = c.proof("custom-all-reduce.pcie") or (flag_proof,)
    if c.tp <= 1:
        reason = "With one tensor-parallel rank there is no all-reduce."
        yield Part(flag, Outcome.INERT, reason, (flag_proof,), (Step(Gate.TOPOLOGY, False, reason, flag_proof),))
        return
    redundant = c.case.interconnect == "pcie" and c.tp > 2 and bool(c.proof("custom-all-reduce.pcie"))
    reason = f"{c.release.version} leaves the all-reduce to NCCL."
    if redundant:
        reason += " Over PCIe with more than two GPUs it does so by itself."
    expects = (Expectation("server_info", present="disable_custom_all_reduce=true", source=flag_proof),)
    yield Part(
        flag,
        Outcome.ACTIVE,
        reason,
        proof,
        (Step(Gate.TOPOLOGY, True, reason, proof[0]),),
        expects,
        redundant=redundant,
    )
