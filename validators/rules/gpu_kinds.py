"""The GPUs of one service: known, of one kind, enough of them, and able to talk to each other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "The GPUs of one service: known, of one kind, enough of them"
FLAGS = ("tp-size", "pp-size", "dp-size", "base-gpu-id", "gpu-id-step")
SITES: tuple[str, ...] = ()
ALWAYS = True
WITHOUT_GPU = True


def judge(c: Context) -> Iterator[Part]:
    if not c.case.sm:
        reason = "No GPU facts: what the flags do here is not known."
        step = Step(Gate.TOPOLOGY, None, reason)
        yield Part("gpus", Outcome.UNKNOWN, reason, steps=(step,), todo="Record the host's facts.", final=True)
    if len(c.case.sm) > 1:
        shown = " and ".join(c.case.sm)
        reason = f"The GPUs of this service are of SM {shown}: one engine runs one set of kernels on all of them."
        step = Step(Gate.TOPOLOGY, False, reason)
        todo = "Choose GPUs of one kind with `gpus:`."
        yield Part("gpus", Outcome.FAILS, reason, steps=(step,), todo=todo, final=True, value=", ".join(c.case.sm))
    yield from _enough(c)
    if c.case.p2p is False and c.tp > 1 and c.case.env.get("NCCL_P2P_DISABLE") not in ("1", "true"):
        reason = "A transfer between the GPUs was tried and did not finish; what the driver reports is no evidence."
        step = Step(Gate.TOPOLOGY, False, reason)
        todo = "Set NCCL_P2P_DISABLE=1 in `env:`, or repair IOMMU and ACS settings of the host."
        yield Part("p2p", Outcome.FAILS, reason, steps=(step,), todo=todo, final=True, value=False)


def _enough(c: Context) -> Iterator[Part]:
    if c.case.gpus is None:
        return
    replicas = 1 if c.dp_attention else c.dp
    sizes = {"tp-size": c.tp, "pp-size": c.pp, "dp-size": replicas}
    wanted, there = prod(sizes.values()), c.case.gpus * c.nnodes
    if wanted <= there:
        yield from _numbered(c, wanted)
        return
    shown = [f"TP {c.tp}", *([f"PP {c.pp}"] if c.pp > 1 else []), *([f"{replicas} replicas"] if replicas > 1 else [])]
    reason = f"{' × '.join(shown)} needs {wanted} GPUs, {there} {'is' if there == 1 else 'are'} there."
    # each size that is more than one has a part in it
    flags = [name for name, size in sizes.items() if name in c.args and size > 1]
    for flag in flags or ["tp-size"]:
        yield _too_many(c, flag, reason, f"Lower {flag}, or give the service more GPUs.")


def _too_many(c: Context, flag: str, reason: str, todo: str, outcome: Outcome = Outcome.FAILS) -> Part:
    known = c.flag(flag)
    proof = (c.release.evidence(known.place, "--" + flag),) if known else ()
    passed = None if outcome is Outcome.UNKNOWN else False
    step = Step(Gate.TOPOLOGY, passed, reason, proof[0] if proof else None)
    final = outcome is Outcome.FAILS
    return Part(flag, outcome, reason, proof, (step,), todo=todo, final=final, value=c.get(flag))


def _numbered(c: Context, wanted: int) -> Iterator[Part]:
    """The first GPU and the step between two: the last rank of a node takes the last number."""
    base, step, there = c.number("base-gpu-id", 0), c.number("gpu-id-step"), c.case.gpus or 0
    given = [name for name in ("base-gpu-id", "gpu-id-step") if name in c.args]
    ranks = wanted // max(c.nnodes, 1)
    last = base + (ranks - 1) * step
    if not given or c.pp > 1 or base < 0 or step < 1 or last < there:
        return
    # where no more GPUs are named than ranks, the numbers may be meant of a host that has more
    outcome = Outcome.FAILS if there > ranks else Outcome.UNKNOWN
    reason = f"The last of {ranks} ranks takes GPU {last}, and the GPUs here are numbered 0 to {there - 1}."
    for flag in given:
        yield _too_many(c, flag, reason, f"Lower {flag}, or choose the GPUs by CUDA_VISIBLE_DEVICES.", outcome)
