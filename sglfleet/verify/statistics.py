"""From whole benchmark runs to an effect: a ratio with an interval, and what may be said of it.

The unit of observation is one whole run, never one request: requests of one run share its warm-up, its clocks and its
neighbours, so an interval over requests is far too narrow. Runs are compared on the logarithm, where a ratio is a
difference and slow and fast runs weigh the same.

Small samples. Five pairs are what people can afford. A percentile bootstrap of five pairs calls an effect in 16 % of
comparisons of a service with itself; Student's t calls one in 5 %, which leaves nothing for drift. The interval here is
Student's at `LEVEL` = 97 %, so that the promise made to people, at most 5 % false alarms, also holds where runs drift
or one of them is off. `make test` simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

LEVEL = 0.97
MARGIN = 0.02  # a change smaller than this is called no effect
MOST_PAIRS = 200  # nobody runs more; beyond it the advice is to measure something else

Word = Literal["faster", "slower", "no effect", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Effect:
    """B over A in one metric at one concurrency. `low` and `high` bound the ratio; above 1 is better for B or worse,
    as `higher_is_better` says."""

    metric: str
    ratio: float
    low: float
    high: float
    verdict: Word
    pairs: int  # pairs, or the smaller arm's runs
    paired: bool
    p: float  # two-sided, before correction
    spread: float  # standard deviation of what was averaged, on the log scale
    df: float
    higher_is_better: bool = True
    more: int | None = None  # further pairs that would probably settle it; None: settled, or more than MOST_PAIRS
    level: float = LEVEL
    margin: float = MARGIN
    concurrency: int | None = None
    note: str = ""


def paired(
    a: Sequence[float], b: Sequence[float], metric: str = "", *, higher_is_better: bool = True, margin: float = MARGIN
) -> Effect:
    """Effect of B against A where run i of both arms stood side by side in time.

    Raises ValueError for unequal lengths, fewer than two pairs, or a value that is not a positive number.
    """
    if len(a) != len(b):
        raise ValueError(f"{metric}: {len(a)} runs against {len(b)}: pairs need as many of one as of the other")
    logs_a, logs_b = _logs(a, metric), _logs(b, metric)
    differences = [y - x for x, y in zip(logs_a, logs_b, strict=True)]
    spread = stdev(differences)
    return _effect(metric, fmean(differences), spread, len(a) - 1, len(a), True, higher_is_better, margin)


def unpaired(
    a: Sequence[float], b: Sequence[float], metric: str = "", *, higher_is_better: bool = True, margin: float = MARGIN
) -> Effect:
    """Effect of B against A measured at different times (Welch). Says less than pairs do, and says so in `note`."""
    logs_a, logs_b = _logs(a, metric), _logs(b, metric)
    va, vb = stdev(logs_a) ** 2 / len(a), stdev(logs_b) ** 2 / len(b)
    least = min(len(a), len(b))
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)) if va + vb > 0 else float(least - 1)
    spread = math.sqrt((va + vb) * least)
    effect = _effect(metric, fmean(logs_b) - fmean(logs_a), spread, df, least, False, higher_is_better, margin)
    return replace(effect, note="arms were not interleaved: a change of the host in between looks like an effect")


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of whole runs on the logarithm, at `LEVEL`; of one run there is no interval."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    logs = _logs(values, "")
    mean, half = fmean(logs), _quantile(LEVEL, len(values) - 1) * stdev(logs) / math.sqrt(len(values))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def noise(arms: Iterable[Sequence[float]]) -> float:
    """Run-to-run variation within arms that were measured under the same conditions, pooled, on the log scale.

    For small noise it is the coefficient of variation. Raises ValueError where no arm has two runs.
    """
    squares, freedom = 0.0, 0
    for arm in arms:
        if len(arm) > 1:
            squares += stdev(_logs(arm, "")) ** 2 * (len(arm) - 1)
            freedom += len(arm) - 1
    if not freedom:
        raise ValueError("noise: no arm has two runs: at least two a side are needed to know the noise")
    return math.sqrt(squares / freedom)


def correct(effects: Sequence[Effect]) -> list[Effect]:
    """Holm's correction over comparisons that are read together, so that one false alarm in the family stays at 5 %.

    Each verdict is taken again at the level its rank allows; the intervals shown are the ones that were used.
    """
    order = sorted(range(len(effects)), key=lambda i: effects[i].p)
    out = list(effects)
    for rank, i in enumerate(order):
        allowed = (1 - LEVEL) / (len(effects) - rank)
        out[i] = at_level(effects[i], 1 - allowed)
    # Holm stops at the first comparison that does not pass: nothing with a larger p may be called after it.
    stopped = False
    for i in order:
        if stopped and out[i].verdict in ("faster", "slower"):
            out[i] = replace(out[i], verdict="inconclusive", note="not called: a clearer comparison was not settled")
        stopped = stopped or out[i].low <= 1 <= out[i].high
    return out


def _logs(values: Sequence[float], metric: str) -> list[float]:
    if len(values) < 2:
        raise ValueError(f"{metric}: {len(values)} run: at least two a side are needed to know the noise")
    bad = [v for v in values if not (math.isfinite(v) and v > 0)]
    if bad:
        raise ValueError(f"{metric}: {bad[0]!r} is not a positive number: that run is not valid")
    return [math.log(v) for v in values]


def _effect(
    metric: str, mean: float, spread: float, df: float, n: int, is_paired: bool, higher: bool, margin: float
) -> Effect:
    from scipy.special import stdtr

    error = spread / math.sqrt(n)
    p = 2.0 * float(stdtr(df, -abs(mean) / error)) if error > 0 else (0.0 if mean else 1.0)
    raw = Effect(metric, math.exp(mean), 0, 0, "inconclusive", n, is_paired, p, spread, df, higher, margin=margin)
    return at_level(raw, LEVEL)


def at_level(effect: Effect, level: float) -> Effect:
    """The same effect with its interval, verdict and advice at another confidence level."""
    mean = math.log(effect.ratio)
    half = _quantile(level, effect.df) * effect.spread / math.sqrt(effect.pairs)
    low, high = math.exp(mean - half), math.exp(mean + half)
    verdict = _verdict(low, high, effect.higher_is_better, effect.margin)
    more = _more(mean, effect.spread, effect.pairs, level, effect.margin) if verdict == "inconclusive" else None
    return replace(effect, low=low, high=high, verdict=verdict, level=level, more=more)


def _verdict(low: float, high: float, higher_is_better: bool, margin: float) -> Word:
    if low > 1 or high < 1:
        return "faster" if (low > 1) == higher_is_better else "slower"
    return "no effect" if low >= 1 / (1 + margin) and high <= 1 + margin else "inconclusive"


def _more(mean: float, spread: float, n: int, level: float, margin: float) -> int | None:
    """Pairs still needed if the ratio and the noise seen so far are the true ones."""
    room = max(abs(mean), math.log1p(margin) - abs(mean))  # to exclude 1, or to fit inside the margin
    for total in range(n + 1, MOST_PAIRS + 1):
        if _quantile(level, total - 1) * spread / math.sqrt(total) < room:
            return total - n
    return None


def _quantile(level: float, df: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, (1 + level) / 2))
