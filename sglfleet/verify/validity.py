"""Whether a measurement may be believed. A run with a problem gives no number.

Pure: a run, or two arms of runs, in; problems out, each with what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from sglfleet.verify.runs import Run

CLOCK_FLOOR = 0.6  # busy GPUs below this share of their highest clock are held back by something
CLOCK_BETWEEN = 0.05  # arms whose clocks differ by more are not comparable
BUSY = 80.0  # percent utilisation from which power and clocks mean something
POWER_FLOOR = 0.6  # of the median of earlier valid runs of the same host class
CACHE_MOST = 0.01  # share of prompt tokens from the cache that two random prompts may have in common
CACHE_BETWEEN = 0.01  # share of prompt tokens by which the arms' cache hits may differ
# Named by a driver and no fault: idle, the application's own setting, the power cap that every busy GPU meets.
HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "sw_power_cap", "sync_boost", "none"})


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a number is not given, and what to do."""

    code: str
    what: str
    todo: str
    fatal: bool = True  # False: a warning, the number stands


def of_run(run: Run, floor_w: float | None = None) -> list[Problem]:
    """Problems of one run. `floor_w`: median power of earlier valid runs of this host class under load, if known."""
    return [*_requests(run), *_cache(run), *_server(run), *_gpu(run, floor_w)]


def _requests(run: Run) -> Iterable[Problem]:
    if run.completed < run.prompts:
        yield Problem(
            "failed",
            f"{run.prompts - run.completed} of {run.prompts} requests failed",
            "read the server's journal of that time, lower the concurrency, and run again",
        )
    wanted = run.completed * run.output_len
    short = run.shortest_output is not None and run.shortest_output < run.output_len
    if run.completed and (run.output_tokens < wanted or short):
        yield Problem(
            "short",
            f"answers were cut short: {run.output_tokens} of {wanted} tokens",
            "keep ignore_eos on, and prompt + answer below the context length",
        )
    if run.output_len > 1 and any(run.metrics.get(f"{stat}_ttft_ms") == 0 for stat in ("mean", "median")):
        yield Problem(
            "ttft-zero",
            "the time to the first token is 0: the client saw no text, only the end",
            "use a tokenizer whose tokens are valid text, or a model with real weights",
        )


def _cache(run: Run) -> Iterable[Problem]:
    share = (run.cached_tokens or 0) / max(1, run.prompts * run.input_len)
    if share > CACHE_MOST and not run.cache_expected:
        yield Problem(
            "cache",
            f"{run.cached_tokens} prompt tokens ({share:.0%}) came from the prefix cache",
            "flush the cache, take a new seed for every run, and a tokenizer with enough tokens",
        )
    if run.own_warmup:
        yield Problem(
            "warmup",
            "the warm-up used a prompt that was measured again: a full cache hit",
            "warm up with other prompts, or flush the cache after it",
            fatal=False,
        )


def _server(run: Run) -> Iterable[Problem]:
    before, after = run.invocation
    if before != after:
        yield Problem("restarted", "the server was restarted during the run", "find out why, then run again")
    if run.foreign_pids:
        pids = ", ".join(str(pid) for pid in run.foreign_pids)
        yield Problem("foreign", f"another process was on the GPUs: {pids}", "end it, then run again")
    for flag in run.unproven:
        yield Problem(
            "unproven",
            f"{flag} was not proven active: its effect cannot be measured",
            f"`sglfleet verify` says why {flag} was not seen working",
        )


def _gpu(run: Run, floor_w: float | None) -> Iterable[Problem]:
    seen = run.telemetry
    if seen is None:
        return
    reasons = [reason for reason in seen.throttled if reason.lower() not in HARMLESS]
    if reasons:
        yield Problem(
            "throttled", f"clocks were throttled: {', '.join(reasons)}", "look at cooling and power, then run again"
        )
    if seen.utilisation < BUSY:
        return
    if seen.sm_mhz_most and seen.sm_mhz < CLOCK_FLOOR * seen.sm_mhz_most:
        yield Problem(
            "clocks",
            f"busy at {seen.sm_mhz:.0f} MHz of {seen.sm_mhz_most:.0f}",
            "the GPU is held in a low state: reset its clocks or the node, then run again",
        )
    if floor_w and seen.power_w < POWER_FLOOR * floor_w:
        yield Problem(
            "power",
            f"busy but drawing {seen.power_w:.0f} W where this host class draws {floor_w:.0f} W",
            "the node is unfit for measuring: power-cycle it, then run again",
        )


def between(a: Sequence[Run], b: Sequence[Run]) -> list[Problem]:
    """Problems of comparing two arms, whose runs may each be valid alone."""
    out: list[Problem] = []
    same = ("gpu", "host_class", "model", "input_len", "output_len", "concurrency", "prompts")
    for what in same:
        left, right = {getattr(r, what) for r in a}, {getattr(r, what) for r in b}
        if left != right:
            text = f"{what.replace('_', ' ')}: {_list(left)} against {_list(right)}"
            out.append(Problem("different", text, "compare runs made under the same conditions"))
    hits = [_hits(arm) for arm in (a, b)]
    if None not in hits and abs(hits[0] - hits[1]) > CACHE_BETWEEN:  # type: ignore[operator]
        out.append(
            Problem(
                "cache-differs",
                f"prefix cache hits differ: {hits[0]:.1%} against {hits[1]:.1%}",
                "flush the cache and take a new seed for every run of both arms",
            )
        )
    clocks = [[r.telemetry.sm_mhz for r in arm if r.telemetry] for arm in (a, b)]
    if all(clocks) and abs(median(clocks[0]) / median(clocks[1]) - 1) > CLOCK_BETWEEN:
        text = f"clocks differ: {median(clocks[0]):.0f} against {median(clocks[1]):.0f} MHz"
        out.append(Problem("clocks-differ", text, "interleave the arms, or lock the clocks"))
    return out


def _hits(arm: Sequence[Run]) -> float | None:
    """Share of prompt tokens that came from the cache, or None where a run did not count them."""
    counted = [r.cached_tokens for r in arm]
    if not counted or any(c is None for c in counted):
        return None
    return sum(c or 0 for c in counted) / max(1, sum(r.prompts * r.input_len for r in arm))


def _list(values: Iterable[object]) -> str:
    return ", ".join(sorted(str(v) or "unknown" for v in values))
