"""From intent and facts to what has to change on every host. No effects: nothing is changed before this is done."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglfleet import engine as engines
from sglfleet import gate, paths, record, secrets
from sglfleet.checking import Checker, Known
from sglfleet.intent import Intents, Placement
from sglfleet.inventory import Inventory
from sglfleet.render import Release, RenderError, render
from sglfleet.report.model import Report, named
from validators.case import Case
from validators.classes import against_declared, differences, grave
from validators.facts import HostFacts
from validators.hardware import HardwareError, declared
from validators.hostcheck import Finding, foreign, inspect, left_over
from validators.service import Service
from validators.source import InputError
from validators.state import Collected, HostState, Own
from validators.verdict import Judgement

if TYPE_CHECKING:
    from sglfleet.verify.asking import Question


@dataclass(frozen=True)
class Job:
    """One service on one host: the release it is to run, and what is to be done for it."""

    placement: Placement
    judgement: Judgement
    release: Release
    why: str  # why it changes; "" where the right release runs and is in place
    running: str | None  # release of the running process
    previous: str | None  # `current` on the host
    install: bool  # the engine has to be installed first
    key_file: str = ""
    notes: tuple[str, ...] = ()
    case: Case | None = None  # where nothing is known of the release: the engine on the host judges

    @property
    def host(self) -> str:
        return self.placement.host.name

    @property
    def service(self) -> Service:
        return self.placement.service


@dataclass
class Plan:
    """Everything that was found out before anything is changed."""

    report: Report
    jobs: tuple[Job, ...] = ()
    refusals: tuple[str, ...] = ()  # beyond the verdicts: `host: what: todo`
    remarks: tuple[str, ...] = ()
    leftovers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # host -> services
    failed: dict[str, str] = field(default_factory=dict)  # host -> reason it dropped out

    def of(self, host: str) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.host == host)

    @property
    def refused(self) -> bool:
        return bool(self.refusals) or any(cause.level == "error" for cause in self.report.causes)


def make(
    inventory: Inventory,
    found: Intents,
    collected: Mapping[str, Collected],
    values: Mapping[str, Mapping[str, secrets.Hidden]],
    *,
    name: str,
    root: Path,
    today: date,
) -> Plan:
    """The plan. `collected`: hosts that answered; `values`: service -> its secrets."""
    live = tuple(p for p in found.placements if p.host.name in collected)
    facts = {p.host.name: collected[p.host.name] for p in live}
    asks = {p.host.name for p in live if p.host.get("ask_engine", True)}
    judged = _Judged(facts, today, asks)
    hosts = Inventory({n: inventory.hosts[n] for n in collected}, inventory.groups)
    known = {n: Known(c.facts, judged.label(n)) for n, c in collected.items()}
    conflicts = tuple(c for c in found.conflicts if c.host in collected)
    narrowed = Intents(live, found.problems, found.notes, conflicts, found.services)
    report = Checker(name, root, today, False, judged.judge).run(hosts, narrowed, known)
    plan = Plan(report)
    refusals, remarks = _around(live, collected)
    drifted: dict[Finding, list[str]] = {}
    for host, one in _drift(hosts, collected, root):
        drifted.setdefault(one, []).append(host)
    for one, names in drifted.items():
        (refusals if one.level == "refuse" else remarks).append(f"{named(names)}: {one.what}: {one.todo}")
    for service in {p.service.service: p.service for p in live}.values():
        refusals += secrets.leaks(service, today)
    for host, answer in collected.items():
        wanted = {p.service.service for p in live if p.host.name == host}
        if left := left_over(wanted, answer.state):
            plan.leftovers[host] = tuple(left)
    plan.refusals, plan.remarks = tuple(sorted(set(refusals))), tuple(dict.fromkeys(remarks))
    if not plan.refused:
        try:
            plan.jobs = tuple(
                _job(p, facts[p.host.name], judged.of(p), values.get(p.service.service, {}), today, _head(p, inventory))
                for p in live
            )
        except RenderError as e:
            plan.refusals = (*plan.refusals, str(e))
    return plan


def _around(live: tuple[Placement, ...], collected: Mapping[str, Collected]) -> tuple[list[str], list[str]]:
    refusals: list[str] = []
    said: list[str] = []

    def say(host: str, one: Finding) -> None:
        (refusals if one.level == "refuse" else said).append(f"{host}: {one.what}: {one.todo}")

    for p in live:
        answer = collected[p.host.name]
        for one in inspect(p.service, answer.facts, answer.state):
            say(p.host.name, one)
    for host, answer in collected.items():
        for one in foreign(answer.state):
            say(host, one)
        if answer.error:
            refusals.append(f"{host}: {answer.error}: look at the host")
    return refusals, said


def _drift(inventory: Inventory, collected: Mapping[str, Collected], root: Path) -> Iterator[tuple[str, Finding]]:
    """Where a host is not what was recorded or declared: other GPUs than declared stop it, the rest is said."""
    recorded: dict[str, HostFacts] = {}
    try:
        recorded = {host: one.facts for one in record.load(root) for host in one.hosts}
    except InputError as error:  # a record that cannot be read must not keep anybody from deploying
        for problem in error.problems:
            yield problem.mark.file, Finding("warn", "", problem.what, problem.todo)
    for name, answer in collected.items():
        if answer.facts.gpus is None:
            continue  # refused for that already
        if name in recorded:
            for what in differences(recorded[name], answer.facts):
                yield name, Finding("warn", "", what, "record it with `sglfleet facts`, or repair the host")
        hardware = inventory.hosts[name].get("gpu")
        if hardware is None:
            continue
        try:
            said = against_declared(declared("", hardware), answer.facts)
        except HardwareError as error:
            yield name, Finding("refuse", "gpu", f"`gpu`: {error.what}", error.todo)
            continue
        for what in said:
            yield name, Finding("refuse" if grave([what]) else "warn", "gpu", what, "correct `gpu` in the group's data")


class _Judged:
    """Judges each service once for every kind of host, and remembers."""

    def __init__(self, facts: Mapping[str, Collected], today: date, asks: Set[str] = frozenset()) -> None:
        self.facts, self.today, self.asks = facts, today, asks
        self.done: dict[tuple[int, str, int], Judgement] = {}

    def label(self, host: str) -> str:
        """Hosts with one label are alike to the judge."""
        answer = self.facts.get(host)
        if answer is None:
            return ""
        configs = {model.path: model.config for model in answer.state.models}
        alike: dict[str, Any] = {"host": "", "gpus": None}
        if answer.facts.gpus is not None:
            alike["gpus"] = tuple(g.model_copy(update={"uuid": ""}) for g in answer.facts.gpus)
        asked = "asked " if host in self.asks else ""
        return asked + answer.facts.model_copy(update=alike).model_dump_json() + json.dumps(configs, sort_keys=True)

    def judge(self, p: Placement, facts: HostFacts, today: date, config: Mapping[str, Any] | None) -> Judgement:
        read = read_config(p.service, self.facts[p.host.name].state) or config
        judgement = gate.judge(p, as_pinned(p, facts), today, read, ask=p.host.name in self.asks)
        self.done[self._key(p)] = judgement
        return judgement

    def of(self, p: Placement) -> Judgement:
        return self.done[self._key(p)]

    def _key(self, p: Placement) -> tuple[int, str, int]:
        return id(p.loaded), self.label(p.host.name), len(p.nodes)


def read_config(service: Service, state: HostState) -> Mapping[str, Any] | None:
    """The model's config.json as the host has it, or None."""
    model = state.model(service.model.path)
    return model.config if model else None


def is_known(service: Service) -> bool:
    """Whether there is knowledge of the service's engine release."""
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang

    try:
        load_sglang(service.engine.sglang)
    except (UnknownReleaseError, BrokenKnowledgeError):
        return False
    return True


def question(job: Job, today: date) -> Question:
    """What the engine on the host is asked about a job before anything is switched."""
    from sglfleet.verify.asking import Question, refusing
    from sglfleet.verify.probe import could_matter

    over, service = job.placement.launch, job.service
    put_in = {*over.args, *over.drop} if over else set()  # a lab's stand-ins were never judged
    verdicts = tuple(v for v in job.judgement.verdicts if v.flag not in put_in)
    before: tuple[str, ...] = ()
    if could_matter(verdicts):
        instead = {flag for v in verdicts for flag in v.replacement}
        args = {k: v for k, v in job.judgement.args.items() if k not in instead or k in service.args}
        args |= {v.flag: v.value for v in verdicts if v.flag in service.args}
        asked = replace(job.judgement, args=args, argv=_render(service, args))
        before = ("--model-path", service.model.path, *effective(job.placement, asked)[0])
    return Question(
        python=job.release.engine.interpreter,
        argv=job.release.argv,
        env={**service.env, **(over.env if over else {})},
        verdicts=verdicts,
        sglang=service.engine.sglang,
        before=before,
        case=job.case,
        refuses=refusing(verdicts, service.on_unsupported.default, service.on_unsupported.flags),
    )


def _render(service: Service, args: Mapping[str, Any]) -> tuple[str, ...]:
    from sglfleet.verify import probe_judge
    from validators.knowledge import load_sglang
    from validators.parser import render as to_argv

    if is_known(service):
        return to_argv(load_sglang(service.engine.sglang), args)
    return probe_judge.render(service.engine.sglang, args)


def engine_of(service: Service) -> engines.Engine:
    """The engine that a service asks for."""
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang

    try:
        return engines.plan(service.engine, load_sglang(service.engine.sglang))
    except (UnknownReleaseError, BrokenKnowledgeError):
        return engines.plan(service.engine, None)


def as_pinned(p: Placement, facts: HostFacts) -> HostFacts:
    """Facts in which a lab's stand-in engine shows the versions that it plays. Elsewhere, the facts as they are."""
    if p.launch is None or not p.launch.pins:
        return facts
    engine = engine_of(p.service)
    played = {engine.package(name): version for name, version in p.launch.pins.items()}
    changed = []
    for one in facts.engines:
        if one.venv == engine.venv:
            right = {n for n, v in played.items() if v in ("any", one.packages.get(n, "absent"))} & set(engine.packages)
            one = one.model_copy(update={"packages": {**one.packages, **{n: engine.packages[n] for n in right}}})
        changed.append(one)
    return facts.model_copy(update={"engines": tuple(changed)})


def _job(
    p: Placement, answer: Collected, judgement: Judgement, values: Mapping[str, secrets.Hidden], today: date, head: str
) -> Job:
    service, state = p.service, answer.state
    engine = engine_of(service)
    there = next((e for e in answer.facts.engines if e.venv.rstrip("/") == engine.venv), None)
    packages = {name: there.packages.get(name, "") if there else version for name, version in engine.packages.items()}
    packages = {name: version for name, version in packages.items() if version}
    argv, env, notes = effective(p, judgement, head)
    release = render(
        service,
        answer.facts,
        judgement,
        engine=engine,
        argv=argv,
        packages=packages,
        values=values,
        env=env,
        rank=p.rank,
        interpreter=there.python if there else ("/usr" if engine.managed else ""),
        notes=notes,
        leak_waived=bool(secrets.waived(service, today)),
    )
    unit = state.unit(paths.unit(service.service))
    own = next((o for o in state.own if o.service == service.service), None)
    running = unit.release if unit and unit.active == "active" else None
    key = "api-key" if "api-key" in values else ""
    return Job(
        placement=p,
        judgement=judgement,
        release=release,
        why=_why(state, service, release.id, running, own),
        running=running,
        previous=own.current if own else None,
        install=engine.managed and there is None,
        key_file=f"{paths.secrets(service.service, release.id)}/{key}" if key else "",
        notes=notes,
        case=None if is_known(service) else _case(p, answer, today),
    )


def _case(p: Placement, answer: Collected, today: date) -> Case:
    config = read_config(p.service, answer.state)
    return gate.case_of(p.service, answer.facts, today, config, max(1, len(p.nodes)))


def _why(state: HostState, service: Service, wanted: str, running: str | None, own: Own | None) -> str:
    unit = state.unit(paths.unit(service.service))
    if unit is None or unit.file_release is None:
        return "first deploy"
    if running is None:
        return f"not running ({unit.active}/{unit.sub})"
    if running != wanted:
        return f"{running} -> {wanted}"
    if unit.file_release != wanted or own is None or own.current != wanted:
        return f"runs {wanted}, but the files are of {unit.file_release}"
    if own.edited:
        return f"runs {wanted}, but its unit was changed by hand"
    if not own.settled:
        return f"runs {wanted}, but the roll that brought it was interrupted"
    return ""


def _head(p: Placement, inventory: Inventory) -> str:
    """The address of a multi-node service's first rank, as the other ranks reach it."""
    if not p.nodes:
        return ""
    first = inventory.hosts[p.nodes[0]]
    return str(first.get("service_address") or first.get("ssh_hostname") or first.name)


def effective(
    p: Placement, judgement: Judgement, head: str = ""
) -> tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]:
    """(argv, environment, notes): the judged command line, the node's rank, and in a lab what its hosts need."""
    args, env, notes = dict(judgement.args), {}, []
    if p.launch is not None:
        args = {name: value for name, value in args.items() if name not in p.launch.drop}
        args |= p.launch.args
        env = dict(p.launch.env)
        changed = ", ".join(f"{name}={value}" for name, value in sorted(p.launch.args.items()))
        left = f"; left out: {', '.join(sorted(p.launch.drop))}" if p.launch.drop else ""
        pins = f"; engine: {', '.join(f'{k} {v}' for k, v in sorted(p.launch.pins.items()))}" if p.launch.pins else ""
        notes.append(f"stand-in of the lab, after judging: {changed}{left}{pins}")
        argv = _render(p.service, args)
    else:
        argv = judgement.argv
    if p.nodes:
        spec = p.service.nodes
        port = spec.dist_port if spec else 0
        argv += ("--nnodes", str(len(p.nodes)), "--node-rank", str(p.rank))
        argv += ("--dist-init-addr", f"{head or p.nodes[0]}:{port}")
    return argv, env, tuple(notes)
