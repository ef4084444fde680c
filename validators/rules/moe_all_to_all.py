"""All-to-all back ends of mixture-of-experts layers: what they need beside argument resolution's own checks."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "All-to-all back ends of mixture-of-experts layers"
FLAGS = ("moe-a2a-backend", "enable-deepep-moe")
SITES = ("deep-gemm.off",)
_ON_DEEP_GEMM = ("deepep", "deepep_v2", "mooncake", "nixl")


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if not c.has(flag) or not (value is True or value in _ON_DEEP_GEMM):
            continue
        off = c.test("deep-gemm.off")
        proof = c.proof("deep-gemm.off")
        name = "deepep" if value is True else value
        if off is None:
            yield c.unsure(
                flag, f"Whether {c.release.version} has DeepGEMM for {name} on SM {c.sm_text}", "deep-gemm.off"
            )
        elif off:
            reason = f"{name} computes the experts with DeepGEMM, which {c.release.version} has from SM 9.0 on."
            step = Step(Gate.LIBRARY, False, reason, proof[0])
            yield Part(flag, Outcome.FAILS, reason, proof, (step,), instead=({},) if c.ep <= 1 else ())
        else:
            reason = f"{name} computes the experts with DeepGEMM, which {c.release.version} allows on SM {c.sm_text}."
            needs = (f"the {name} package and its network on every host",)
            yield Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.LIBRARY, True, reason, proof[0]),), needs=needs)
