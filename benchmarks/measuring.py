"""What `sglfleet bench` costs over the engine's own tool, and what it says of a service compared with itself.

`python -m benchmarks.measuring [--overhead RUNS] [--aa COMPARISONS] [--runs FILE]`, as root, where a lab and the engine
(`make engine`) are. One lab host serves a small model with the real engine on the CPU. By hand means: one call of the
engine's benchmark a run, on the host, with the same lengths. A service is compared with itself by dealing its runs out
in the order A B B A; five pairs are one comparison, and `--runs` keeps them, so that sittings add up. Prints one JSON
object; the goals are an overhead of at most 5 %, and no `faster` or `slower`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import machine
from lab.engine import Engine, find
from lab.fleet import Lab
from lab.settings import LabError, settings
from sglfleet.verify import statistics, validity
from sglfleet.verify.compare import PRIMARY, compare
from sglfleet.verify.runs import Run, load
from tests.lab import measuring, word_model
from tests.lab.deploying import Project

PAIRS = 5


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--overhead", type=int, default=3, metavar="RUNS")
    options.add_argument("--aa", type=int, default=1, metavar="COMPARISONS")
    options.add_argument("--runs", type=Path, help="JSONL that keeps the runs of a service compared with itself.")
    chosen = options.parse_args()
    try:
        engine = find(settings().cache)
        if why := machine.cannot_hold_a_lab():
            raise LabError("; ".join(why))
    except LabError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return
    lab = Lab(settings(environ={"LAB_NAME": "bench", "LAB_NET": "10.77.201.0/24", **os.environ}))
    lab.up(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            project = measuring.project(Path(folder) / "project", lab, engine)
            service = measuring.service(engine)
            del service["verify"]["benchmark"]  # of the deploy; the runs come below
            project.write(service)
            done = project.deploy(timeout=1400)
            assert done.code == 0, done.text[-2000:]
            project.write(measuring.service(engine))
            told: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
            if chosen.overhead:
                told["overhead"] = overhead(project, lab, engine, chosen.overhead)
                print(json.dumps(told), file=sys.stderr, flush=True)  # the next part takes long
            if chosen.aa:
                told["itself"] = itself(project, chosen.aa, chosen.runs)
            print(json.dumps(told, indent=1))
    finally:
        lab.down()


def overhead(project: Project, lab: Lab, engine: Engine, runs: int) -> dict[str, Any]:
    """Seconds of the same runs, ours and by hand, in the order A B B A."""
    spent: dict[str, list[float]] = {"ours": [], "by hand": []}
    for way in ("ours", "by hand", "by hand", "ours"):
        began = time.monotonic()
        if way == "ours":
            code, _, err = measuring.sglfleet(project, "bench", "inventory.py", "demo", "--repeats", str(runs))
            assert code == 0, err
        else:
            for seed in range(runs):
                by_hand(lab, engine, seed + int(began))
        spent[way].append(round(time.monotonic() - began, 1))
    return {"runs": runs, **spent, "ours over by hand": round(sum(spent["ours"]) / sum(spent["by hand"]) - 1, 3)}


def by_hand(lab: Lab, engine: Engine, seed: int) -> None:
    """One call of the engine's own benchmark, on the host."""
    asked = measuring.BENCHMARK
    words = [
        "env", "-C", word_model.FOLDER,
        "HF_HUB_OFFLINE=1", "HOME=/tmp", engine.python, "-m", "sglang.benchmark.serving", "--backend", "sglang",
        "--host", "127.0.0.1", "--port", "30000", "--model", word_model.FOLDER, "--dataset-name", "random-ids",
        "--random-input-len", asked["input_len"], "--random-output-len", asked["output_len"],
        "--random-range-ratio", "1.0", "--num-prompts", asked["prompts"], "--max-concurrency", asked["concurrency"][0],
        "--seed", seed, "--flush-cache", "--disable-tqdm", "--output-file", "by-hand.jsonl",
    ]  # fmt: skip
    done = lab.host("h1").exec(*map(str, words), timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def itself(project: Project, comparisons: int, kept: Path | None) -> dict[str, Any]:
    """Verdicts on a service compared with itself, over these and all kept runs, of which only valid ones count."""
    repeats = 2 * PAIRS * comparisons
    code, out, err = measuring.sglfleet(
        project, "bench", "inventory.py", "demo", "--repeats", str(repeats), "--format", "json", timeout=3600
    )
    assert code in (0, 1), err  # 1: a run was not valid
    made = [run for row in json.loads(out)["runs"] if sound(run := Run.model_validate(row))]
    if kept is not None:
        with kept.open("a") as file:
            file.write("".join(run.model_dump_json(exclude={"telemetry"}) + "\n" for run in made))
        made = load([kept])
    verdicts: Counter[str] = Counter()
    ratios = []
    groups = [made[i : i + 2 * PAIRS] for i in range(0, len(made) - 2 * PAIRS + 1, 2 * PAIRS)]
    for group in groups:
        found = compare(*dealt(group))
        verdicts[found.verdict()] += 1
        ratios += [round(e.ratio, 3) for e in found.effects if e.metric == PRIMARY]
    noise = statistics.noise([[run.metrics[PRIMARY] for run in group] for group in groups])
    return {"comparisons": len(groups), "pairs": PAIRS, "noise": round(noise, 4), "ratios": ratios, **verdicts}


def sound(run: Run) -> bool:
    return not any(problem.fatal for problem in validity.of_run(run))


def dealt(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Ten runs as two arms of five pairs: A B B A A B …"""
    arms: tuple[list[Run], list[Run]] = ([], [])
    for place, run in enumerate(runs):
        block, second = divmod(place, 2)
        arms[second if block % 2 == 0 else 1 - second].append(run.model_copy(update={"block": block}))
    return arms


if __name__ == "__main__":
    main()
