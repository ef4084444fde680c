"""What a tree of the project would run on every host, for comparing two of them. No secret is read."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from sglfleet.checking import Checker, Group
from sglfleet.gate import case_of
from sglfleet.report.model import Report
from validators.case import Case
from validators.verdict import Overall


@dataclass(frozen=True)
class Run:
    """One service on one host."""

    decision: str
    unit: str  # key into `Snapshot.units`
    verdicts: tuple[str, ...]  # "flag: value | outcome | decision", sorted


@dataclass
class Snapshot:
    """Everything that a change can alter, small enough to hand from one process to another."""

    runs: dict[str, dict[str, Run]] = field(default_factory=dict)  # service -> host, in inventory order
    units: dict[str, dict[str, Any]] = field(default_factory=dict)  # key -> release, argv, text, sglang
    services: dict[str, dict[str, Any]] = field(default_factory=dict)  # service -> file, rollout, group sizes
    problems: list[str] = field(default_factory=list)
    cases: dict[str, Case] = field(default_factory=dict)  # unit key -> the question to the judge; stays in the process

    def dump(self) -> str:
        """Everything but the cases, as JSON."""
        return json.dumps(asdict(replace(self, cases={})))

    @classmethod
    def load(cls, text: str) -> Snapshot:
        raw = json.loads(text)
        runs = {
            service: {host: Run(run["decision"], run["unit"], tuple(run["verdicts"])) for host, run in hosts.items()}
            for service, hosts in raw["runs"].items()
        }
        return cls(runs, raw["units"], raw["services"], raw["problems"])


def take(inventory: str, today: date, root: Path | None = None) -> tuple[Report, Snapshot]:
    """The report of a tree, and its snapshot."""
    from sglfleet.checking import prepare

    ready = prepare(inventory, today, root=root)
    if isinstance(ready, Report):
        return ready, Snapshot(problems=[str(problem) for problem in ready.problems])
    checker, hosts, found, known = ready
    report = checker.run(hosts, found, known)
    snapshot = Snapshot(problems=[str(problem) for problem in report.problems])
    order = {name: i for i, name in enumerate(hosts.hosts)}
    for i, group in enumerate(checker.judged):
        _add(snapshot, f"{i}", group, checker)
    for service, runs in snapshot.runs.items():
        snapshot.runs[service] = dict(sorted(runs.items(), key=lambda item: order[item[0]]))
    return report, snapshot


def _add(snapshot: Snapshot, key: str, group: Group, checker: Checker) -> None:
    first, judgement = group.placements[0], group.judgement
    service = first.service
    release, text = _unit(group)
    snapshot.cases[key] = case_of(service, group.facts, checker.today, nodes=max(1, len(first.nodes)))
    snapshot.units[key] = {
        "release": release,
        "argv": list(judgement.argv),
        "text": text,
        "sglang": service.engine.sglang,
    }
    rollout = service.rollout
    snapshot.services.setdefault(
        service.service,
        {
            "file": first.loaded.file,
            "canary": list(rollout.canary) if isinstance(rollout.canary, tuple) else rollout.canary,
            "max_unavailable": rollout.max_unavailable,
        },
    )
    verdicts = tuple(
        sorted(
            f"{v.flag}: {json.dumps(v.value, ensure_ascii=False)} | {v.outcome.value} | {v.decision.value}"
            for v in judgement.verdicts
        )
    )
    for placement in group.placements:
        name = placement.host.name
        decision = checker.decided[name, service.service]
        snapshot.runs.setdefault(service.service, {})[name] = Run(decision, key, verdicts)


def _unit(group: Group) -> tuple[str, str]:
    """Release id and unit text; empty where the service is refused, as nothing is rendered then."""
    from sglfleet import engine, secrets
    from sglfleet.render import RenderError, render
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang

    service = group.placements[0].service
    if group.judgement.decision is Overall.REFUSE:
        return "", ""
    try:
        known = load_sglang(service.engine.sglang)
    except (UnknownReleaseError, BrokenKnowledgeError):
        known = None
    plan = engine.plan(service.engine, known)
    values = {name: secrets.Hidden(b"") for name in service.secrets}  # no value is read: only that there is one
    try:
        release = render(
            service,
            group.facts.model_copy(update={"host": "HOST"}),
            group.judgement,
            engine=plan,
            argv=group.judgement.argv,
            packages=plan.packages,
            values=values,
            leak_waived=any(waiver.flag in service.secrets for waiver in service.allow),
        )
    except (RenderError, KeyError):
        return "", ""
    return release.id, release.unit.replace(release.id, "RELEASE")


def in_tree(inventory: str, tree: Path, today: date) -> Snapshot:
    """The snapshot of another tree, by this program in a process of its own: its modules must not mix with ours.

    Raises:
        RuntimeError: the process died; says its last line.
    """
    home = Path(__file__).resolve().parent.parent
    code = "import sys; from sglfleet.snapshot import main; main(sys.argv[1], sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, inventory, today.isoformat()],
        cwd=tree,
        env={"PYTHONPATH": str(home), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no word"])[-1])
    return Snapshot.load(done.stdout.splitlines()[-1])


def main(inventory: str, today: str) -> None:
    """Print the snapshot of the working directory's tree, as the last line."""
    print(take(inventory, date.fromisoformat(today), Path.cwd())[1].dump())
