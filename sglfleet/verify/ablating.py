"""`sglfleet ablate`: each changed flag's own effect, measured; interrupted runs go on; the service is put back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sglfleet import operations
from sglfleet.verify import ablation, benchmark, runs
from sglfleet.verify.ablation import Question, Step
from sglfleet.verify.arms import Arms, works
from sglfleet.verify.benchmark import Failure
from sglfleet.verify.compare import PRIMARY, Comparison, compare
from sglfleet.verify.measuring import class_of, proven
from sglfleet.verify.runs import Run
from sglfleet.verify.statistics import at_level
from validators.service import Benchmark, Service
from validators.verdict import Value, Verdict

Say = Callable[[str], None]
ASSUMED_START_S = 120.0  # where nobody has timed a start of this service yet
ASSUMED_RUN_S = 30.0


@dataclass(frozen=True)
class Answer:
    """What came out for one changed flag."""

    flag: str
    verdict: Verdict | None
    skipped: str = ""  # why no run was made
    comparison: Comparison | None = None
    pairs: int = 0
    engine: Mapping[str, str] = field(default_factory=dict)  # what it was measured with


@dataclass
class Study:
    """One ablation: what is asked, where its runs are kept, and how far it is."""

    arms: Arms
    direction: ablation.Direction
    pairs: int
    wanted: Benchmark
    file: Path
    say: Say
    questions: list[Question] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def kept(self) -> list[Run]:
        return runs.load([self.file]) if self.file.is_file() else []

    def proofs(self, arm: str) -> dict[str, str]:
        """What was proven of an arm at its first start; empty before."""
        return next((run.proofs for run in self.kept if run.arm == arm and run.proofs), {})

    def seconds(self) -> tuple[float, str]:
        """How long it takes at most, and what that rests on."""
        before = [run.duration_s for run in self.kept]
        run_s = (sum(before) / len(before) if before else ASSUMED_RUN_S) * len(self.wanted.concurrency)
        rests = "runs made before" if before else f"{ASSUMED_START_S:.0f} s a start and {ASSUMED_RUN_S:.0f} s a run"
        return ablation.duration_s(self.questions, self.pairs, ASSUMED_START_S, run_s), rests


def prepare(
    arms: Arms, direction: ablation.Direction, pairs: int, folder: Path, say: Say, wanted: Benchmark | None = None
) -> Study:
    """Judge the flags, and plan runs for those that can do something. Touches no service."""
    service = arms.placement.service
    chosen = wanted or service.verify.benchmark or Benchmark()
    told = arms.verdicts()
    skipped = {flag: why for flag in arms.changed if (why := works(told.get(flag)))}
    name = f"{service.service}-{arms.host.name}-{_key(service, arms.changed, direction, chosen)}"
    study = Study(arms, direction, pairs, chosen, folder / "ablations" / f"{name}.jsonl", say)
    study.verdicts, study.skipped = told, skipped
    study.questions = ablation.questions(list(arms.changed), list(skipped), direction)
    return study


def _key(service: Service, changed: Mapping[str, Value], direction: str, wanted: Benchmark) -> str:
    """Names the question: runs of another service file, or of other flags, are never gone on with."""
    told = [service.model_dump(mode="json", exclude={"rollout", "verify"}), sorted(changed.items()), direction]
    return hashlib.sha256(json.dumps([*told, wanted.model_dump(mode="json")]).encode()).hexdigest()[:8]


def conduct(study: Study, on_step: Callable[[], None] = lambda: None) -> list[Answer]:
    """Measure, and put the service back to the release it ran before, whatever happens.

    Raises operations.HostFailed. Runs made so far are kept, and the next call goes on after them.
    """
    arms = study.arms
    name = arms.placement.service.service
    original = _original(study)
    try:
        found = {q.flag: _ask(study, q, on_step) for q in study.questions}
    finally:
        _put_back(arms, name, original, study.say)
        study.file.with_suffix(".state").unlink()
    answers = []
    engine = next((run.engine for run in study.kept), {})
    for flag in arms.changed:
        comparison, pairs = found.get(flag, (None, 0))
        skipped = study.skipped.get(flag, "")
        answers.append(Answer(flag, study.verdicts.get(flag), skipped, comparison, pairs, engine))
    return answers


def _ask(study: Study, question: Question, on_step: Callable[[], None]) -> tuple[Comparison | None, int]:
    """One flag: pairs until a look settles it, or all of them."""
    steps = ablation.schedule(question, study.pairs)
    comparison: Comparison | None = None
    for look in (1, *ablation.looks(study.pairs)):
        due = [step for step in steps if step.block < look]
        for step in ablation.left_over(due, _done(study, question.flag)):
            study.say(f"{question.flag}: {step.arm} it, pair {step.block + 1} of {study.pairs}")
            _measure(study, step)
            on_step()
        comparison = _compare(study, question, look)
        if any(p.code == "unproven" and p.fatal for _, p in comparison.problems):
            study.say(f"{question.flag}: no further runs: the flag was not proven active")
            return comparison, look
        primary = [e for e in comparison.effects if e.metric == PRIMARY]
        if look > 1 and primary and all(e.verdict != "inconclusive" for e in primary):
            return comparison, look
    return comparison, study.pairs


def _compare(study: Study, question: Question, look: int) -> Comparison:
    """The two arms so far, at the level that one question and one look may be settled at."""
    arms: dict[str, list[Run]] = {"without": [], "with": []}
    for run in study.kept:
        flag, _, arm = run.arm.rpartition(" ")
        if flag == question.flag and run.block is not None and run.block < look:
            arms[arm].append(run)
    found = compare(arms["without"], arms["with"])
    level = ablation.stop_level(study.pairs, len(study.questions))
    effects = tuple(at_level(e, max(level, e.level)) for e in found.effects)
    return replace(found, effects=effects)


def _done(study: Study, flag: str) -> list[tuple[str, str, int]]:
    """(flag, arm, block) of steps whose runs are all there."""
    counted: dict[tuple[str, str, int], set[int]] = {}
    for run in study.kept:
        of, _, arm = run.arm.rpartition(" ")
        if of == flag and run.block is not None:
            counted.setdefault((of, arm, run.block), set()).add(run.concurrency)
    return [key for key, seen in counted.items() if seen >= set(study.wanted.concurrency)]


def _measure(study: Study, step: Step) -> None:
    """Start the arm and make its runs; both arms of a block get the same prompts.

    The first start of an arm is proven after its runs, with a profile: the server is restarted next anyhow, so a
    profiler that ends it does no harm, and the arm without the flag is the control of the one with it.
    """
    arms = study.arms
    name = f"{step.flag} {step.arm}"
    now = arms.start(step.on)
    planned = benchmark.plan(study.wanted, seed=1000 * (step.block + 1), repeats=1)
    for run in planned:
        run["arm"], run["block"] = name, step.block
    target = benchmark.target(now, *class_of(arms.root, arms.host.name), study.proofs(name))
    made = []
    for one in benchmark.measure(arms.host, target, planned, has_smi=now.has_smi):
        if isinstance(one, Failure):
            raise operations.HostFailed(arms.host.name, f"{name}: {one.reason}")
        made.append(one)
    if not target.proofs:
        told = proven(arms.host, target.service, profile=True)
        made = [one.model_copy(update={"proofs": told}) for one in made]
    study.file.parent.mkdir(parents=True, exist_ok=True)
    with study.file.open("ab", buffering=0) as out:  # one write: a step that is cut leaves nothing
        out.write("".join(one.model_dump_json() + "\n" for one in made).encode())


def _original(study: Study) -> str:
    """The release to go back to: the one that ran before the first start, also after an interruption."""
    from sglfleet.running import running

    state = study.file.with_suffix(".state")
    if state.is_file():
        return state.read_text(encoding="utf-8").strip()
    release = running(study.arms.host, study.arms.placement.service.service).release
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(release + "\n", encoding="utf-8")
    return release


def _put_back(arms: Arms, service: str, release: str, say: Say) -> None:
    from sglfleet.running import running

    try:
        if running(arms.host, service).release == release:
            return
    except operations.HostFailed:
        pass  # whatever stands there now, the old release goes back
    say(f"{arms.host.name}: back to {release}")
    timeout = arms.placement.service.rollout
    operations.stop(arms.host, service, timeout.drain_timeout + 60)
    operations.switch_to(arms.host, service, release)
    operations.start(arms.host, service, timeout.start_timeout + 120)


def as_json(service: str, answers: Sequence[Answer]) -> Mapping[str, Any]:
    """The document of `ablate --format json`."""
    from sglfleet.report.effects import comparison_json

    return {
        "schema_version": 1,
        "kind": "ablation",
        "service": service,
        "flags": [
            {
                "flag": a.flag,
                "outcome": a.verdict.outcome.value if a.verdict else "unknown",
                "effect": a.comparison.verdict() if a.comparison else "not measured",
                "skipped": a.skipped,
                "pairs": a.pairs,
                "comparison": comparison_json(a.comparison) if a.comparison else None,
            }
            for a in answers
        ],
    }
