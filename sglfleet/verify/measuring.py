"""`sglfleet bench INVENTORY SERVICE`: connect, measure, sort out what is not valid, keep the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglfleet.verify import benchmark, runs, undertest, validity
from sglfleet.verify.benchmark import Failure, Target
from sglfleet.verify.runs import Run

if TYPE_CHECKING:
    from pyinfra.api.host import Host


@dataclass
class Measured:
    """What came of a benchmark: valid runs, what was wrong with which run, and what gave none at all."""

    valid: list[Run] = field(default_factory=list)
    problems: list[tuple[str, validity.Problem]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def measure_service(
    inventory: str, service: str, only: Sequence[str], repeats: int | None, seed: int | None, results: Path
) -> Measured:
    """Measure a service as it runs; valid runs are kept. Raises InputError.

    Hosts are measured one after another: two benchmarks at once would measure each other's network and router.
    """
    from sglfleet import operations
    from sglfleet.fleet import bar, connect
    from sglfleet.placing import placed
    from sglfleet.running import running
    from validators.service import Benchmark

    project, found, placements = placed(inventory, service, only)
    placements = placements if only else placements[:1]
    wanted = placements[0].service.verify.benchmark or Benchmark()
    earlier = history(results, service)
    made = Measured()
    with connect(found, [p.host.name for p in placements]) as fleet:
        made.failed += [f"{name}: {reason}" for name, reason in fleet.failed.items()]
        for name, host in fleet.hosts.items():
            planned = benchmark.plan(wanted, fresh_seed() if seed is None else seed, repeats)
            try:
                now = running(host, service)
                proofs = undertest.last(project / "reports", name, service, now.release) or proven(host, service)
                target = benchmark.target(now, *class_of(project, name), proofs)
                with bar(f"{service} on {name}", len(planned)) as step:
                    for run in sorted_out(host, target, planned, now.has_smi, earlier, made, step):
                        runs.keep(run, results)
            except operations.HostFailed as error:
                made.failed.append(str(error))
    return made


def sorted_out(
    host: Host,
    target: Target,
    planned: list[dict[str, Any]],
    has_smi: bool,
    earlier: Sequence[Run],
    made: Measured,
    on_run: Callable[[], None] = lambda: None,
) -> Iterator[Run]:
    """Make the planned runs and yield the valid ones; everything is put into `made`. Raises operations.HostFailed."""
    for one in benchmark.measure(host, target, planned, has_smi=has_smi, on_run=on_run):
        if isinstance(one, Failure):
            made.failed.append(f"{host.name}: seed {one.run['seed']}: {one.reason}")
            continue
        told = validity.of_run(one, benchmark.floor_w(earlier, one.host_class))
        made.problems += [(f"{host.name} seed {one.seed} at {one.concurrency}", p) for p in told]
        if not any(p.fatal for p in told):
            made.valid.append(one)
            yield one


def history(results: Path, service: str) -> list[Run]:
    """Every run of the service that was kept. Raises ValueError naming lines that are none."""
    found = runs.load(sorted(results.glob(f"*/{service}-*.jsonl"))) if results.is_dir() else []
    return [run for run in found if run.service == service]


def fresh_seed() -> int:
    """A seed that was never used: prompts of an earlier run are in nobody's cache."""
    return time.time_ns() // 1_000_000 % 1_000_000_000


def proven(host: Host, service: str, *, profile: bool = False) -> dict[str, str]:
    """What a proof now says of each flag of the running release. Never raises; empty where it cannot be asked."""
    from sglfleet.verify.prove import prove

    return undertest.statuses(prove(host, service, profile=profile, correctness=False).proofs)


def class_of(root: Path, host: str) -> tuple[str, str]:
    """(host class, its GPUs) as recorded for the host; empty where nothing was recorded."""
    from sglfleet import record

    for one in record.load(root):
        if host in one.hosts:
            gpus = one.facts.gpus or ()
            return one.name, f"{gpus[0].name} x{len(gpus)}" if gpus else ""
    return "", ""
