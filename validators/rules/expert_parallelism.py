"""Expert parallelism that is declared and not used, or changed by the all-to-all back end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.fused_moe_sum import DENSE
from validators.rules.interface import Expectation, Gate, Outcome, Part, Step

SUBJECT = "Expert parallelism declared and not used"
FLAGS = ("ep-size",)
SITES: tuple[str, ...] = ()
_READ_ANYWAY = ("speculative-algorithm", "enable-eplb", "moe-a2a-backend", "ep-num-redundant-experts")
_FORCES_TP = re.compile(r"deepep|mooncake|nixl|ascend_fuseep|mori|megamoe")


def judge(c: Context) -> Iterator[Part]:
    flag = "ep-size"
    value = c.args.get(flag)
    if not isinstance(value, int) or not c.has(flag):
        return
    known = c.release.flags[flag]
    proof = c.release.evidence(known.place, "--" + flag)
    back_end = str(c.args.get("moe-a2a-backend", "none"))
    if value > 1 and c.arch in DENSE and c.tp % value == 0:  # groups that do not fit are built for every model
        reason = f"{c.arch} has no experts to spread."
        read = [name for name in _READ_ANYWAY if c.given(name)]
        if read:
            yield c.unsure(flag, f"{reason} What --{read[0]} makes of it")
        else:
            yield Part(flag, Outcome.INERT, reason, (proof,), (Step(Gate.MODEL, False, reason, proof),))
    elif value != c.tp and _FORCES_TP.search(back_end):
        reason = f"With --moe-a2a-backend {back_end} the engine sets it to the tensor-parallel size, {c.tp}."
        step = Step(Gate.RESOLUTION, False, reason, proof)
        yield Part(flag, Outcome.ALTERED, reason, (proof,), (step,), becomes=str(c.tp), instead=({flag: c.tp},))
    elif value > c.tp:
        reason = f"Expert parallelism of {value} needs as many tensor-parallel ranks; there are {c.tp}."
        yield Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.TOPOLOGY, False, reason, proof),))
    else:
        reason = f"{c.release.version} spreads the experts over {value} ranks."
        expects = (Expectation("server_info", present=f"ep_size={value}", source=proof),)
        yield Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(Gate.TOPOLOGY, True, reason, proof),), expects)
