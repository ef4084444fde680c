"""`sglfleet bench INVENTORY SERVICE`: connect, measure, sort out what is not valid, keep the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sglfleet.verify import benchmark, runs, validity
from sglfleet.verify.benchmark import Failure
from sglfleet.verify.runs import Run


def measure_service(
    inventory: str, service: str, only: Sequence[str], repeats: int | None, seed: int | None, results: Path
) -> tuple[list[Run], list[tuple[str, validity.Problem]], list[str]]:
    """(valid runs, what was wrong with which run, hosts that failed and why). Raises InputError.

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
    history = runs.load(sorted(results.glob(f"*/{service}-*.jsonl"))) if results.is_dir() else []
    first = seed if seed is not None else time.time_ns() // 1_000_000 % 1_000_000_000
    valid: list[Run] = []
    problems: list[tuple[str, validity.Problem]] = []
    failed: list[str] = []
    with connect(found, [p.host.name for p in placements]) as fleet:
        failed += [f"{name}: {reason}" for name, reason in fleet.failed.items()]
        for name, host in fleet.hosts.items():
            planned = benchmark.plan(wanted, first, repeats)
            try:
                now = running(host, service)
                target = benchmark.target(now, *class_of(project, name))
                with bar(f"{service} on {name}", len(planned)) as step:
                    for one in benchmark.measure(host, target, planned, has_smi=now.has_smi, on_run=step):
                        if isinstance(one, Failure):
                            failed.append(f"{name}: seed {one.run['seed']}: {one.reason}")
                            continue
                        told = validity.of_run(one, benchmark.floor_w(history, one.host_class))
                        problems += [(f"{name} seed {one.seed} at {one.concurrency}", p) for p in told]
                        if not any(p.fatal for p in told):
                            runs.keep(one, results)
                            valid.append(one)
            except operations.HostFailed as error:
                failed.append(str(error))
    return valid, problems, failed


def class_of(root: Path, host: str) -> tuple[str, str]:
    """(host class, its GPUs) as recorded for the host; empty where nothing was recorded."""
    from sglfleet import record

    for one in record.load(root):
        if host in one.hosts:
            gpus = one.facts.gpus or ()
            return one.name, f"{gpus[0].name} x{len(gpus)}" if gpus else ""
    return "", ""
