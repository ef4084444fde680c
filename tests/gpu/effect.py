"""Effects on real cards, measured by the product's own benchmark: what plain processes stand in for is only the unit.

`effect.py one|fusion OUT SECONDS`. `one`: a service against itself, and without the overlap schedule, both on one card.
`fusion`: the all-reduce fusion off and on over two cards, each with a start of its own and alone on the cards, in the
order A B B A. Runs go to OUT as they come, in the form of `results/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sglfleet.verify import benchmark
from sglfleet.verify.benchmark import Failure, Target
from sglfleet.verify.runs import Run
from tests.gpu import scenarios, servers
from validators.service import Benchmark

MODEL = os.environ.get("MODEL", "/tmp/model/moe-word")  # where run.sh puts it
WANTED = Benchmark(input_len=1000, output_len=1000, concurrency=[16], repeats=1, prompts=32)
BEGIN = time.monotonic()
PLAIN: dict[str, Any] = {**scenarios.GPU_FLAGS, "mem-fraction-static": 0.35}
ARMS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "no overlap": {**PLAIN, "disable-overlap-schedule": True},
    "fusion off": {**scenarios.GPU_FLAGS, "tp-size": 2, scenarios.OFF: True},
    "fusion on": {**scenarios.GPU_FLAGS, "tp-size": 2, scenarios.FUSION: "auto"},
}
CARDS = {"plain": (0,), "no overlap": (0,), "fusion off": (0, 1), "fusion on": (0, 1)}


def say(*what: object) -> None:
    print(f"[{time.monotonic() - BEGIN:6.1f} s]", *what, flush=True)


class Bench:
    """Servers of named arms and the file their runs go to."""

    def __init__(self, out: Path, seconds: float) -> None:
        self.out, self.end = out, BEGIN + seconds
        self.logs = Path(tempfile.mkdtemp())
        self.running: dict[str, servers.Running] = {}
        self.seed = int(time.time()) % 1_000_000 * 1000  # never used before
        self.longest = 0.0  # s of one run

    def left(self) -> float:
        return self.end - time.monotonic()

    def start(self, *arms: str) -> None:
        """Start the servers at once and wait until each generates. Raises RuntimeError with the end of a log."""
        for arm in arms:
            flags = ["--model-path", MODEL]
            for flag, value in ARMS[arm].items():
                flags += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
            port = 40000 + 2000 * len(self.running)
            name = f"{arm.replace(' ', '-')}-{len(self.running)}"
            env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, CARDS[arm]))}
            self.running[arm] = servers.start(name, port, flags, self.logs, env)
        for arm in arms:
            if not servers.wait(self.running[arm], min(200.0, self.left())):
                raise RuntimeError(f"{arm} is not up: {self.running[arm].text()[-1500:]}")
            say(arm, f"up after {self.running[arm].healthy:.0f} s")

    def stop(self, arm: str) -> None:
        servers.stop(self.running[arm])
        # the address is not used twice: the name stays, the process is gone
        self.running[f"{arm} {len(self.running)}"] = self.running.pop(arm)

    def measure(self, arm: str, blocks: Iterable[int], comparison: str, alias: Iterable[str] = ()) -> list[Run]:
        """One call of the benchmark with a run for each block; `alias`: names of the runs, by default the arm's."""
        numbers = list(blocks)
        names = list(alias) or [arm] * len(numbers)
        target = Target(
            service=comparison, host="card", release=arm, unit="", url=self.running[arm].server.url, model=MODEL,
            python=sys.executable, user="", engine={"sglang": "0.5.16", "flashinfer-python": "0.6.14"},
            gpus=CARDS[arm], gpu=f"NVIDIA H200 x{len(CARDS[arm])}", host_class=f"h200-x{len(CARDS[arm])}",
            args={f: "true" if v is True else str(v) for f, v in ARMS[arm].items()},
        )  # fmt: skip
        planned = benchmark.plan(WANTED, self.seed, len(numbers))
        self.seed += len(numbers)
        made = []
        for got, block, name in zip(self.lines(target, planned), numbers, names, strict=False):
            if isinstance(got, Failure):
                say(arm, "FAILED", got.reason[-500:])
                continue
            run = got.model_copy(update={"arm": name, "block": block})
            with (self.out / f"{comparison}.jsonl").open("a") as file:
                file.write(run.model_dump_json() + "\n")
            say(comparison, name, block, f"{run.metrics['output_throughput']:.0f} tokens/s")
            made.append(run)
        return made

    def lines(self, target: Target, planned: list[dict[str, Any]]) -> Iterator[Run | Failure]:
        spec = self.logs / "spec.json"
        spec.write_text(json.dumps(benchmark.spec(target, planned, has_smi=True)))
        with (self.logs / "bench.txt").open("ab") as errors:
            child = subprocess.Popen([sys.executable, benchmark.SCRIPT, spec], stdout=subprocess.PIPE, stderr=errors)
        try:
            for line in child.stdout or ():
                told = json.loads(line)
                if "done" in told or self.left() < 5:
                    return
                yield benchmark.of_line(told, target)
        finally:
            child.kill()
            child.wait()

    def close(self) -> None:
        for running in self.running.values():
            servers.stop(running)
        subprocess.run(["tar", "-C", self.logs, "-czf", self.out / "effect-logs.tgz", "."], check=False)


def one(bench: Bench) -> None:
    bench.start("plain", "no overlap")
    order = ["A", "B", "B", "A"] * 5
    blocks = [place // 2 for place in range(20)]
    bench.measure("plain", blocks, "itself", order)
    turns = (("plain", (0,)), ("no overlap", (0, 1)), ("plain", (1, 2)), ("no overlap", (2, 3)), ("plain", (3,)))
    for arm, numbers in turns:
        if bench.left() > 45:
            bench.measure(arm, numbers, "overlap")


def fusion(bench: Bench) -> None:
    for place, arm in enumerate(("fusion off", "fusion on", "fusion on", "fusion off", "fusion off", "fusion on")):
        if bench.left() < 100:
            say("no time for another start")
            return
        bench.start(arm)
        first = 3 * (place // 2)
        bench.measure(arm, range(first, first + 3), "fusion")
        bench.stop(arm)


if __name__ == "__main__":
    work = Bench(Path(sys.argv[2]), float(sys.argv[3]))
    try:
        {"one": one, "fusion": fusion}[sys.argv[1]](work)
    finally:
        work.close()
        say("end")
