"""Kernels and operators in profiles: which rank, which stage, and would the trace look different without the flag?"""

from __future__ import annotations

import re
from collections import Counter

from sglfleet.verify.evidence import Seen
from sglfleet.verify.sight import Sight, contradicted, open_, proven
from sglfleet.verify.trace import Trace
from validators.verdict import Expectation

STAGES = ("prefill", "decode")
# seen to come and go with the shape of a batch on one and the same service (NVIDIA H200, SGLang 0.5.16)
SHAPE_DEPENDENT = (
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
    "CatArrayBatchedCopy_alignedK_contig",
    "Memcpy DtoD (Device -> Device)",
    "void at::native::index_elementwise_kernel<128, 4>",
    "void at::native::vectorized_elementwise_kernel<4>",
    "void at::native::unrolled_elementwise_kernel<4>",
)


def ran(expectation: Expectation, seen: Seen, flag: str, removes: bool) -> Sight:
    """Kind `kernel` or `operator`: names that ran, or must not have run, on every rank."""
    pattern = expectation.present or expectation.absent
    expression = re.compile(pattern)
    kind = expectation.kind
    if not seen.traces:
        return open_(seen.gap("profile", "no profile was taken"))
    if any(expression.search(name) for name in SHAPE_DEPENDENT):
        return open_(f"{pattern} also matches names that change with the batch: it does not discriminate")
    names = [name for trace in seen.traces for name in _names(trace, kind)]
    if not names:
        what = "GPU kernel" if kind == "kernel" else "operator"
        return open_(f"the profile holds no {what} at all: nothing of that kind could be seen here")
    if kind == "operator" and "cuda" in pattern and not any(name.startswith("cuda") for name in names):
        return open_("the profile holds no CUDA call at all: nothing of that kind could be seen here")
    distinct = set(names)
    if len(distinct) > 3 and sum(bool(expression.search(name)) for name in distinct) * 2 > len(distinct):
        return open_(f"{pattern} matches more than half of all names: it does not discriminate")
    stage = next((s for s in STAGES if s in expectation.where), "")
    if expectation.present:
        return _present(expression, kind, stage, seen, flag)
    return _absent(expression, kind, stage, seen, flag, removes)


def _present(expression: re.Pattern[str], kind: str, stage: str, seen: Seen, flag: str) -> Sight:
    evidence: list[str] = []
    missing: list[int] = []
    unseen: list[str] = []
    for rank in seen.ranks():
        traces = [t for t in _of_rank(seen, rank) if not stage or t.stage == stage]
        hits = _hits(expression, kind, traces)
        if hits:
            evidence += [f"rank {rank}{_in(stage)}: {count} x {name[:160]}" for name, count in hits.most_common(2)]
            continue
        if why := _not_covered(seen, rank, kind, stage):
            unseen.append(why)
        else:
            missing.append(rank)
    shown = tuple(evidence)
    if missing:
        where = ", ".join(map(str, missing))
        return contradicted(f"profiled{_in(stage)}, and no such {kind} ran on rank {where}", shown)
    if unseen:
        return open_("; ".join(unseen), shown)
    control = seen.controls.get(flag) or ()
    if control and _hits(expression, kind, [t for t in control if not stage or t.stage in (stage, "")]):
        return open_(f"the same {kind} runs in the service without the flag: it does not discriminate", shown)
    reason = f"ran on every rank{_in(stage)}" + (", and not in the service without the flag" if control else "")
    return proven(reason, shown)


def _absent(expression: re.Pattern[str], kind: str, stage: str, seen: Seen, flag: str, removes: bool) -> Sight:
    unseen: list[str] = []
    for rank in seen.ranks():
        traces = [t for t in _of_rank(seen, rank) if not stage or t.stage in (stage, "")]
        hits = _hits(expression, kind, [t for t in traces if not stage or t.stage == stage])
        if hits:
            name, count = hits.most_common(1)[0]
            return contradicted(f"it ran on rank {rank}{_in(stage)}", (f"rank {rank}: {count} x {name[:160]}",))
        if stage and _hits(expression, kind, traces):
            unseen.append(f"rank {rank}: it ran in a trace that does not tell prefill from decode")
        elif why := _not_covered(seen, rank, kind, stage, mixed=True):
            unseen.append(why)
    if unseen:
        return open_("; ".join(unseen))
    if kind == "operator" and not removes and _graphs(seen) and expression.search("cudaGraphLaunch") is None:
        return open_("operators inside CUDA graphs are not in a trace: their absence proves nothing")
    control = seen.controls.get(flag) or ()
    total = sum(sum(_names(t, kind).values()) for t in seen.traces)
    shown = (f"{total} launches in {len(seen.traces)} traces, none matches {expression.pattern}",)
    if not removes:
        return proven(f"profiled on every rank{_in(stage)}, and it did not run", shown)
    hits = _hits(expression, kind, [t for t in control if not stage or t.stage in (stage, "")])
    if not control:
        return open_("it did not run, but no profile without the flag shows that it would have", shown)
    if not hits:
        return open_("it does not run in the service without the flag either: it does not discriminate", shown)
    name, count = hits.most_common(1)[0]
    return proven("gone with the flag, there without it", (*shown, f"without the flag: {count} x {name[:160]}"))


def _of_rank(seen: Seen, rank: int) -> list[Trace]:
    """A trace that names no rank counts only where there is but one."""
    alone = len(seen.ranks()) == 1
    return [t for t in seen.traces if t.rank == rank or (t.rank is None and alone)]


def _names(trace: Trace, kind: str) -> Counter[str]:
    return trace.kernels if kind == "kernel" else trace.operators


def _hits(expression: re.Pattern[str], kind: str, traces: list[Trace]) -> Counter[str]:
    found: Counter[str] = Counter()
    for trace in traces:
        for name, count in _names(trace, kind).items():
            if expression.search(name):
                found[name] += count
    return found


def _not_covered(seen: Seen, rank: int, kind: str, stage: str, mixed: bool = False) -> str:
    """Why nothing can be said of what did not show up; "" where rank and stage were profiled completely."""
    traces = [t for t in _of_rank(seen, rank) if t.complete and _names(t, kind)]
    if not traces:
        return f"rank {rank} was not profiled completely"
    stages = {t.stage for t in traces}
    if stage:
        fits = stage in stages or (mixed and "" in stages)
        return "" if fits else f"rank {rank}: no profile of {stage} alone"
    return "" if "" in stages or stages >= set(STAGES) else f"rank {rank}: prefill and decode were not both profiled"


def _graphs(seen: Seen) -> bool:
    return any("cudaGraphLaunch" in t.operators for t in seen.traces)


def _in(stage: str) -> str:
    return f" in {stage}" if stage else ""
