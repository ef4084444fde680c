"""One whole benchmark run, as it is kept in `results/` and compared later.

Every field that decides whether two runs may be compared stands beside the numbers, because weeks later nobody
remembers it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

# What is kept of the engine's own result row, and whether more of it is better.
METRICS: dict[str, bool] = {
    "output_throughput": True,  # tokens/s
    "total_throughput": True,  # tokens/s, prompt and answer
    "request_throughput": True,  # requests/s
    **{
        f"{stat}_{what}_ms": False
        for what in ("ttft", "tpot", "itl", "e2e_latency")
        for stat in ("mean", "median", "p90", "p95", "p99")
    },
}


class Kept(BaseModel):
    """Base of everything in a results file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Telemetry(Kept):
    """GPU state while the run was measured. Of several GPUs: power is summed, the worst of the rest is kept."""

    gpus: int
    seconds: float
    power_w: float  # median of the sum
    power_limit_w: float | None = None  # sum
    sm_mhz: float  # median of the slowest GPU
    sm_mhz_most: float | None = None  # what the GPU can do
    temperature_c: float
    memory_mib: float
    utilisation: float  # percent, median of the least busy GPU
    throttled: tuple[str, ...] = ()  # reasons, as the driver names them
    series: tuple[tuple[float, float, float], ...] = ()  # seconds since start, W, MHz; thinned for the picture


class Run(Kept):
    """What one run of the engine's own benchmark gave, and under which conditions."""

    schema_version: int = 1
    service: str
    arm: str = ""  # which of the compared variants; empty: the service as it is
    release: str = ""  # release id of the running process
    engine: dict[str, str] = Field(default_factory=dict)  # distribution -> version
    host: str
    host_class: str = ""  # hosts of one class may be compared
    gpu: str = ""  # name and number
    model: str = ""
    input_len: int
    output_len: int
    concurrency: int
    prompts: int
    seed: int
    block: int | None = None  # runs of one block stood side by side in time
    started: float  # unix seconds
    duration_s: float
    completed: int
    output_tokens: int
    shortest_output: int | None = None  # tokens; None: the benchmark did not tell
    cached_tokens: int | None = None  # prompt tokens served from the prefix cache; None: the server does not count
    cache_expected: bool = False
    own_warmup: bool = False  # the benchmark warmed up with a prompt that is measured again
    invocation: tuple[str, str] = ("", "")  # systemd's id of the server process before and after
    foreign_pids: tuple[int, ...] = ()  # other processes on the service's GPUs
    unproven: tuple[str, ...] = ()  # flags under test that were not proven active
    args: dict[str, str] = Field(default_factory=dict)  # flags the process was given; none: not told
    proofs: dict[str, str] = Field(default_factory=dict)  # flag -> what the last proof of the release says of it
    telemetry: Telemetry | None = None
    metrics: dict[str, float]


def of_row(row: dict[str, Any], **conditions: Any) -> Run:
    """A run from a row of `sglang.bench_serving --output-file`, given what the row does not say.

    Raises ValueError for a row without the fields every release writes.
    """
    try:
        lengths = row.get("output_lens") or []
        return Run(
            input_len=row["random_input_len"],
            output_len=row["random_output_len"],
            concurrency=row["max_concurrency"],
            duration_s=row["duration"],
            completed=row["completed"],
            output_tokens=row["total_output_tokens"],
            shortest_output=min(lengths) if lengths else None,
            metrics={name: float(row[name]) for name in METRICS if row.get(name) is not None},
            **conditions,
        )
    except (KeyError, ValidationError) as error:
        raise ValueError(f"benchmark row: {error}: the benchmark of this release writes another format") from error


def load(paths: Iterable[Path]) -> list[Run]:
    """All runs of result files (one JSON object a line), in the order of their start.

    Raises ValueError naming file and line of every line that is not a run.
    """
    runs, wrong = [], []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                runs.append(Run.model_validate(json.loads(line)))
            except (json.JSONDecodeError, ValidationError) as error:
                wrong.append(f"{path}:{number}: not a benchmark run: {str(error).splitlines()[0]}: delete the line")
    if wrong:
        raise ValueError("\n".join(wrong))
    return sorted(runs, key=lambda run: run.started)


def keep(run: Run, folder: Path) -> Path:
    """Append the run to the file of its host class, service and engine; returns the file."""
    engine = run.engine.get("sglang", "unknown")
    path = folder / (run.host_class or run.host) / f"{run.service}-{engine}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(run.model_dump_json() + "\n")
    return path
