"""Benchmark runs recorded on real H200 cards, SGLang 0.5.16, a Qwen3-MoE shape with random weights, 1000/1000 tokens.

`first start` and `second start`: the same service on one card, started twice, at concurrency 1 and 16.
`fusion off` and `fusion on`: two cards, one after the other, each alone on them.
`shared cards, …`: the same question with both servers on the two cards at once, in turns.
`graphs` and `no graphs`: CUDA graphs on one card, in turns, cut by the end of the time there was.
The client sent one warm-up request with a prompt that it measured again.
"""

from __future__ import annotations

from pathlib import Path

from sglfleet.verify.runs import Run, load

FILE = Path(__file__).parents[2] / "fixtures/bench/h200-0.5.16.jsonl"


def runs(arm: str, concurrency: int = 16) -> list[Run]:
    return [run for run in load([FILE]) if (run.arm, run.concurrency) == (arm, concurrency)]


def throughputs(arm: str, concurrency: int) -> list[float]:
    return [run.metrics["output_throughput"] for run in runs(arm, concurrency)]
