"""Measurements for people and machines: runs as a table, comparisons as a table and a sentence, both as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from sglfleet.report.svg import Point, Series, chart, figure
from sglfleet.verify.compare import PRIMARY, Comparison
from sglfleet.verify.runs import Run
from sglfleet.verify.statistics import Effect, interval
from sglfleet.verify.validity import Problem

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = ("output_throughput", "median_ttft_ms", "median_tpot_ms", "p99_itl_ms", "p99_e2e_latency_ms")
UNITS = {"output_throughput": "tokens/s", "total_throughput": "tokens/s", "request_throughput": "requests/s"}


def show(table: Table) -> None:
    """Print a table; where there is no terminal, wide enough that no number is cut."""
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def title(metric: str) -> str:
    """«median TTFT ms» of median_ttft_ms."""
    if metric in UNITS:
        return f"{metric.removesuffix('_throughput')} {UNITS[metric]}"
    for short in ("ttft", "tpot", "itl"):
        metric = metric.replace(short, short.upper())
    return metric.replace("_", " ")


def runs_table(runs: Sequence[Run]) -> Table:
    """Mean and run-to-run variation of the valid runs, a line per concurrency."""
    from rich.table import Table

    table = Table("concurrency", "runs", *(title(m) for m in SHOWN), "W", "of W", title="Valid runs, mean ± CV")
    groups: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.concurrency].append(run)
    for concurrency, group in sorted(groups.items()):
        power = [r.telemetry for r in group if r.telemetry]
        limit = next((t.power_limit_w for t in power if t.power_limit_w), None)
        table.add_row(
            str(concurrency),
            str(len(group)),
            *(_mean(group, metric) for metric in SHOWN),
            f"{fmean(t.power_w for t in power):.0f}" if power else "-",
            f"{limit:.0f}" if limit else "-",
        )
    return table


def _mean(group: Sequence[Run], metric: str) -> str:
    values = [run.metrics[metric] for run in group if metric in run.metrics]
    if not values:
        return "-"
    mean = fmean(values)
    return f"{mean:,.1f} ± {stdev(values) / mean:.1%}" if len(values) > 1 and mean else f"{mean:,.1f}"


def effects_table(comparison: Comparison) -> Table:
    """One line per metric and concurrency: ratio, interval, verdict."""
    from rich.table import Table

    table = Table("metric", "concurrency", "B / A", "interval", "verdict", "pairs", "more pairs")
    table.title = f"A: {comparison.a}   B: {comparison.b}"
    for e in comparison.effects:
        more = str(e.more) if e.more is not None else ("over 200" if e.verdict == "inconclusive" else "-")
        interval = f"{e.low:.3f} … {e.high:.3f}"
        table.add_row(title(e.metric), str(e.concurrency), f"{e.ratio:.3f}", interval, e.verdict, str(e.pairs), more)
    return table


def sentence(comparison: Comparison) -> str:
    """What may be said of B, in one sentence."""
    verdict = comparison.verdict()
    primary = [e for e in comparison.effects if e.metric == PRIMARY]
    if not primary:
        return f"{comparison.b} against {comparison.a}: inconclusive: no valid pair of runs."
    changes = ", ".join(f"{_percent(e)} at concurrency {e.concurrency}" for e in primary)
    return f"{comparison.b} against {comparison.a}: {verdict} ({title(PRIMARY)} {changes})."


def advice(flag: str, comparison: Comparison, engine: Mapping[str, str]) -> str:
    """What to do about one flag whose own effect was measured; "" where nothing follows from it."""
    verdict = comparison.verdict()
    names = {"flashinfer-python": "FlashInfer", "sglang": "SGLang"}
    by = " and ".join(f"{names[n]} {engine[n]}" for n in names if n in engine)
    if verdict == "slower":
        with_ = f" with {by}" if by else ""
        return f"{flag} works and costs speed{with_}: leave it off, and measure again after an upgrade"
    if verdict == "no effect":
        return f"{flag} makes no difference here: leave it off, there is one thing less that can break"
    return ""


def _percent(effect: Effect) -> str:
    return f"{effect.ratio - 1:+.1%} [{effect.low - 1:+.1%}, {effect.high - 1:+.1%}]"


def problem_line(where: str, problem: Problem) -> str:
    """`where: what: what to do`, as every message of the project."""
    return f"{where}: {problem.what}: {problem.todo}"


def problem_lines(problems: Sequence[tuple[str, Problem]]) -> list[str]:
    """A line for each problem; one line where several runs have the same."""
    where: dict[Problem, list[str]] = defaultdict(list)
    for place, problem in problems:
        where[problem].append(place)
    return [
        problem_line(places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more", problem)
        for problem, places in where.items()
    ]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The document of `bench compare --format json`."""
    return {
        "schema_version": 1,
        "kind": "comparison",
        "a": comparison.a,
        "b": comparison.b,
        "verdict": comparison.verdict(),
        "effects": [asdict(e) for e in comparison.effects],
        "problems": [{"where": where, **asdict(problem)} for where, problem in comparison.problems],
        "notes": list(comparison.notes),
    }


def runs_json(service: str, runs: Sequence[Run], problems: Sequence[tuple[str, Problem]]) -> dict[str, Any]:
    """The document of `bench --format json`."""
    return {
        "schema_version": 1,
        "kind": "benchmark",
        "service": service,
        "runs": [run.model_dump(mode="json") for run in runs],
        "problems": [{"where": where, **asdict(problem)} for where, problem in problems],
    }


def pictures(arms: dict[str, Sequence[Run]]) -> list[str]:
    """Throughput and latency against concurrency with intervals, and power over time, arms side by side: inline SVG."""
    out = [
        figure(
            f"{title(metric)} by concurrency",
            chart(
                f"{title(metric)} by concurrency",
                "concurrency",
                title(metric),
                [_series(n, a, metric) for n, a in arms.items()],
            ),
        )
        for metric in SHOWN[:3]
    ]
    power = [
        Series(name, [Point(t, w, w, w) for t, w, _ in arm[-1].telemetry.series])
        for name, arm in arms.items()
        if arm and arm[-1].telemetry and len(arm[-1].telemetry.series) > 1
    ]
    if power:
        name = "power over the last run"
        out.append(figure(name, chart(name, "seconds", "W", power, by_rank=False)))
    return out


def _series(name: str, arm: Sequence[Run], metric: str) -> Series:
    groups: dict[int, list[float]] = defaultdict(list)
    for run in arm:
        if run.metrics.get(metric, 0.0) > 0:
            groups[run.concurrency].append(run.metrics[metric])
    return Series(name, [Point(c, *interval(v)) for c, v in sorted(groups.items())])


def figures(service: str, comparison: Comparison | None, a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """What a benchmark gave, as HTML for the page: the sentence, the effects as a table, the pictures."""
    names = (comparison.a, comparison.b) if comparison else ("", service)
    arms = {name: arm for name, arm in zip(names, (a, b), strict=True) if arm}
    if not arms:
        return []
    out = [f"<p>{escape(sentence(comparison) if comparison else f'{service}: measured, nothing to compare with.')}</p>"]
    if comparison and comparison.effects:
        heads = ("Metric", "At", "Verdict", "B / A", "Interval", "Pairs")  # what a phone shows first comes first
        rows = [
            (title(e.metric), e.concurrency, e.verdict, f"{e.ratio:.3f}", f"{e.low:.3f} … {e.high:.3f}", e.pairs)
            for e in comparison.effects
        ]
        head = "".join(f"<th>{h}</th>" for h in heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
        out.append(
            f'<div class="wide effects"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )
    if comparison:
        lines = [*problem_lines(comparison.problems), *comparison.notes]
        out += [f'<p class="soft">{escape(line)}</p>' for line in dict.fromkeys(lines)]
    out.append(f'<div class="figures">{"".join(pictures(arms))}</div>')
    return out
