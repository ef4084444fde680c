"""Two arms of runs to a comparison: valid runs only, paired by block, one effect per metric and concurrency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from sglfleet.verify import statistics, undertest, validity
from sglfleet.verify.runs import METRICS, Run
from sglfleet.verify.statistics import Effect

PRIMARY = "output_throughput"  # the verdict people act on; the other metrics are a family of their own
SECONDARY = ("median_ttft_ms", "median_tpot_ms", "p99_itl_ms", "p99_e2e_latency_ms")
SPREAD = 0.10  # run-to-run noise of an arm, on the log scale, from which more runs are not the first advice


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A. Without `effects` nothing may be said, and `problems` or `notes` say why."""

    a: str
    b: str
    effects: tuple[Effect, ...]  # primary first, then secondary, each by concurrency
    problems: tuple[tuple[str, validity.Problem], ...]  # (which run or "both arms", what)
    notes: tuple[str, ...]

    def verdict(self) -> statistics.Word:
        """The primary metric over all concurrencies: faster or slower only if none of them says the opposite."""
        words = {e.verdict for e in self.effects if e.metric == PRIMARY}
        if {"faster", "slower"} <= words or not words:
            return "inconclusive"
        order: tuple[statistics.Word, ...] = ("slower", "faster", "inconclusive", "no effect")
        return next(word for word in order if word in words)


def compare(
    a: Sequence[Run], b: Sequence[Run], *, margin: float = statistics.MARGIN, as_released: bool = False
) -> Comparison:
    """Effect of arm B against arm A over all concurrencies that both were measured at.

    `as_released`: the releases are compared as a whole, so flags that were not proven are remarks.
    """
    names = (_name(a), _name(b))
    problems: list[tuple[str, validity.Problem]] = []
    good: dict[int, tuple[list[Run], list[Run]]] = defaultdict(lambda: ([], []))
    for side, arm in enumerate((a, b)):
        for run in arm:
            found = validity.of_run(run)
            problems += [(f"{names[side]} seed {run.seed} at {run.concurrency}", p) for p in found]
            if not any(p.fatal for p in found):
                good[run.concurrency][side].append(run)
    untested = undertest.between(a, b, fatal=not as_released)
    problems += [("both arms", p) for p in untested]
    if any(p.fatal for p in untested):
        good.clear()
    primary: list[Effect] = []
    secondary: list[Effect] = []
    notes: list[str] = []
    for concurrency, (left, right) in sorted(good.items()):
        if not left or not right:
            notes.append(f"concurrency {concurrency}: no valid run of {names[0] if not left else names[1]}")
            continue
        unequal = validity.between(left, right)
        problems += [(f"both arms at {concurrency}", p) for p in unequal]
        if any(p.fatal for p in unequal):
            continue
        for metric in (PRIMARY, *SECONDARY):
            if metric != PRIMARY and not any(metric in run.metrics for run in (*left, *right)):
                continue  # another client, which does not tell it
            try:
                effect = _effect(left, right, metric, margin, concurrency)
            except ValueError as error:
                notes.append(f"concurrency {concurrency}: {error}")
                continue
            (primary if metric == PRIMARY else secondary).append(effect)
            if effect.verdict == "inconclusive" and effect.spread > SPREAD and metric == PRIMARY:
                notes.append(
                    f"concurrency {concurrency}: runs differ by {effect.spread:.0%} among themselves, far above the"
                    " effect looked for: lower the load below saturation before adding runs"
                )
    for side, name in enumerate(names):
        notes += _idle_power([run for arms in good.values() for run in arms[side]], name)
    effects = (*statistics.correct(primary), *statistics.correct(secondary))
    return Comparison(*names, effects, tuple(problems), tuple(notes))


def _idle_power(arm: list[Run], name: str) -> list[str]:
    """A line where busy GPUs draw little of what they may: something else is the limit, and flags may hide behind it.

    Seen in the field: 250 W of 600 W, and four flags that "made no difference".
    """
    low: list[tuple[int, float, float]] = []
    for run in arm:
        seen = run.telemetry
        busy = seen is not None and seen.utilisation >= validity.BUSY and seen.power_limit_w
        if seen is not None and busy and seen.power_w < validity.POWER_FLOOR * (seen.power_limit_w or 0):
            low.append((run.concurrency, seen.power_w, seen.power_limit_w or 0))
    if not low:
        return []
    at = ", ".join(str(c) for c in sorted({c for c, _, _ in low}))
    watts, limit = median(w for _, w, _ in low), median(m for _, _, m in low)
    return [
        f"{name}, concurrency {at}: busy, but drawing {watts:.0f} W of {limit:.0f} W: memory, the link between the GPUs"
        " or the batch size is the limit, not the arithmetic"
    ]


def _effect(a: list[Run], b: list[Run], metric: str, margin: float, concurrency: int) -> Effect:
    better = METRICS[metric]
    pairs = _pairs(a, b)
    if pairs is not None:
        left, right = ([run.metrics.get(metric, 0.0) for run in arm] for arm in pairs)
        effect = statistics.paired(left, right, metric, higher_is_better=better, margin=margin)
    else:
        left, right = ([run.metrics.get(metric, 0.0) for run in arm] for arm in (a, b))
        effect = statistics.unpaired(left, right, metric, higher_is_better=better, margin=margin)
    return replace(effect, concurrency=concurrency)


def _pairs(a: list[Run], b: list[Run]) -> tuple[list[Run], list[Run]] | None:
    """Runs that share a block, side by side; None where the arms were not interleaved. A block in which one arm has no
    valid run is left out: half a pair says nothing."""
    if any(run.block is None for run in (*a, *b)):
        return None
    left, right = _by_block(a), _by_block(b)
    both = sorted(left.keys() & right.keys())
    pairs = [(x, y) for block in both for x, y in zip(left[block], right[block], strict=False)]
    return ([x for x, _ in pairs], [y for _, y in pairs]) if len(pairs) > 1 else None


def _by_block(arm: list[Run]) -> dict[int, list[Run]]:
    out: dict[int, list[Run]] = defaultdict(list)
    for run in arm:
        if run.block is not None:
            out[run.block].append(run)
    return out


def _name(arm: Sequence[Run]) -> str:
    return ", ".join(sorted({run.arm or run.release or run.service for run in arm})) or "no runs"
