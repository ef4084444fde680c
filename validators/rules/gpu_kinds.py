"""The GPUs of one service: known, of one kind, enough of them, and able to talk to each other."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "The GPUs of one service: known, of one kind, enough of them"
FLAGS = ("tp-size", "pp-size", "dp-size")
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
    wanted, there = c.tp * c.pp * replicas, c.case.gpus * c.nnodes
    if wanted <= there:
        return
    flag = next((name for name in ("tp-size", "pp-size", "dp-size") if name in c.args), "tp-size")
    known = c.flag(flag)
    proof = (c.release.evidence(known.place, "--" + flag),) if known else ()
    sizes = [f"TP {c.tp}", *([f"PP {c.pp}"] if c.pp > 1 else []), *([f"{replicas} replicas"] if replicas > 1 else [])]
    reason = f"{' × '.join(sizes)} needs {wanted} GPUs, {there} {'is' if there == 1 else 'are'} there."
    step = Step(Gate.TOPOLOGY, False, reason, proof[0] if proof else None)
    todo = f"Lower {flag}, or give the service more GPUs."
    yield Part(flag, Outcome.FAILS, reason, proof, (step,), todo=todo, final=True, value=c.get(flag))
