"""All-reduce over torch's symmetric memory: a table of sizes per SM major, and what becomes of other GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from validators.rules import places
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "All-reduce over torch's symmetric memory"
FLAGS = ("enable-torch-symm-mem",)
SITES = ("symm-mem.sizes", "symm-mem.guard")


def judge(c: Context) -> Iterator[Part]:
    flag = FLAGS[0]
    if c.args.get(flag) is not True or not c.has(flag):
        return
    row = c.row("symm-mem.sizes")
    if row is None:
        yield c.unsure(flag, f"For which GPUs {c.release.version} has sizes of symmetric memory")
        return
    proof = c.proof("symm-mem.sizes")
    majors = {int(found) for found in re.findall(r"(\d+): \{", row["test"])}
    if c.tp <= 1:
        reason = "With one tensor-parallel rank there is no all-reduce."
        yield Part(flag, Outcome.INERT, reason, proof, (Step(Gate.TOPOLOGY, False, reason, proof[0]),))
        return
    if c.sm[0] in majors:
        reason = f"{c.release.version} has sizes for SM major {c.sm[0]}."
        needs = () if c.case.interconnect == "nvswitch" or c.case.multicast else ("NVLink multicast",)
        yield Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.ENGINE, True, reason, proof[0]),), needs=needs)
        return
    oldest = places.place(c, "symm-mem.oldest")
    if c.sm[0] < 9 and oldest is not None:
        reason = f"{c.release.version} warns that SM major {c.sm[0]} is too old for it, and goes on without."
        step = Step(Gate.ENGINE, False, reason, oldest)
        yield Part(flag, Outcome.ALTERED, reason, (oldest, *proof), (step,), becomes="off")
        return
    guard = c.proof("symm-mem.guard")
    shown = ", ".join(map(str, sorted(majors)))
    if guard:
        reason = f"{c.release.version} has sizes for SM majors {shown} only; it warns and goes on without."
        step = Step(Gate.ENGINE, False, reason, guard[0])
        yield Part(flag, Outcome.ALTERED, reason, (*guard, *proof), (step,), becomes="off")
        return
    reason = f"{c.release.version} looks SM major {c.sm[0]} up in a table that has {shown} only: KeyError at start-up."
    step = Step(Gate.ENGINE, False, reason, proof[0])
    yield Part(flag, Outcome.FAILS, reason, proof, (step,), instead=({},))
