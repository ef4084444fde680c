"""DeepGEMM, which several rules ask about: the release's own switch, condition by condition."""

from __future__ import annotations

from typing import Any

from validators.conditions import UNKNOWN
from validators.rules import places
from validators.rules.context import Context
from validators.verdict import Evidence

_RUNS = (9, 10)  # SM majors for which DeepGEMM has kernels in every release; newer ones not in all


def state(c: Context) -> tuple[bool | None, tuple[Evidence, ...]]:
    """Is it on; None: the release does not switch it off, and whether its kernels take this SM is not known."""
    proof, *tests = places.row(c, "deep_gemm.off")
    if proof is None:
        return None, ()
    # torch of CUDA 12.9 is for a host to choose; every other name is what an NVIDIA host is
    known: dict[str, Any] = {
        "sm_version": c.sm[0] * 10 + c.sm[1],
        "_is_cuda": True,
        "_is_musa": False,
        "torch.version.cuda": c.case.cuda or "12.8",
        "_sm120_deep_gemm_apis_available()": UNKNOWN,
    }
    held = [c.holds(test, **known) for test in tests]
    if True in held:
        return False, (proof,)
    if None in held or c.sm[0] not in _RUNS:
        return None, (proof,)
    return True, (proof,)
