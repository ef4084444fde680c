"""The stages of the main job, as pyinfra runs them. deploy.py is executed once per host; the fleet is planned once.

Everything that decides happens while pyinfra prepares (so before any change on any host, also under `-y`); what changes
a host happens in operations. A host that fails drops out with its reason and the others go on.
"""

from __future__ import annotations

import difflib
import os
import re
import weakref
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from gevent.lock import BoundedSemaphore
from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host, ctx_state
from pyinfra_cli.exceptions import CliError

from sglfleet import facts as host_facts
from sglfleet import install, intent, inventory, operations, outcome, paths, planning, secrets
from sglfleet.exits import Exit
from sglfleet.guard import check_validators
from sglfleet.intent import Placement
from sglfleet.planning import Job, Plan
from validators.flagtypes import flag_types
from validators.source import InputError
from validators.state import Collected

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

FACTS_TIMEOUT = 90  # seconds; nvidia-smi without persistence mode takes 30


class Stopped(CliError, PyinfraError):  # type: ignore[misc]  # noqa: N818 - what became of the run
    """Ends the run before anything was changed. pyinfra shows the message and leaves with `exit_code`."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = int(code)

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True, file=file)


@dataclass
class Fleet:
    """One run over the whole fleet."""

    state: State
    name: str
    plan: Plan
    placements: tuple[Placement, ...]
    outcome: outcome.Outcome
    lock: BoundedSemaphore = field(default_factory=BoundedSemaphore)
    rolled: bool = False
    routed: bool = False  # the inventory has a router
    bad: set[str] = field(default_factory=set)  # hosts that failed in a stage
    refused: dict[str, str] = field(default_factory=dict)  # service -> why it is switched nowhere

    def failed(self, host: str, reason: str, detail: str = "") -> None:
        self.bad.add(host)
        self.outcome.fail(host, reason, detail)
        for line in (*detail.splitlines()[-40:], f"{host}: {reason}"):
            click.echo(f"    {line}", err=True)


_fleets: weakref.WeakKeyDictionary[Any, Fleet | BaseException] = weakref.WeakKeyDictionary()
_planning = BoundedSemaphore()


def plan() -> Fleet:
    """Read intent, collect facts, judge and render, for all hosts at once. The same answer for every host of a run.

    Raises Stopped: bad input (2), or something is refused (1); all of it is shown, nothing was changed.
    """
    state = ctx_state.get()  # type: ignore[no-untyped-call]
    with _planning:
        if state not in _fleets:
            try:
                _fleets[state] = _plan(state)
            except Stopped as e:
                _fleets[state] = e
    found = _fleets[state]
    if isinstance(found, BaseException):
        raise found
    return found


def _plan(state: State) -> Fleet:
    check_validators()
    root = Path(state.cwd or Path.cwd())
    name = _inventory_name()
    result = outcome.start(root, name)
    problems: list[Any] = []
    try:
        hosts = inventory.from_pyinfra(state.inventory, root)
        found = intent.intents(hosts, root, flag_types)
        problems += [str(problem) for problem in found.problems]
    except InputError as e:
        raise result.stop(Stopped, [str(p) for p in e.problems], Exit.BAD_INPUT) from None
    values: dict[str, dict[str, secrets.Hidden]] = {}
    active = {host.name for host in state.inventory.get_active_hosts()}
    for service in {p.service.service: p.service for p in found.placements if p.host.name in active}.values():
        values[service.service], wrong = secrets.resolve(service, os.environ, root)
        problems += wrong
    if problems:
        raise result.stop(Stopped, sorted(problems), Exit.BAD_INPUT)
    collected = _collect(state, hosts, found, result)
    planned = planning.make(hosts, found, collected, values, name=name, root=root, today=date.today())
    fleet = Fleet(state, name, planned, found.placements, result)
    fleet.routed = any(h.data.get("router") for h in state.inventory)
    result.planned(planned)
    if planned.refused:
        raise result.stop(Stopped, list(planned.refusals), Exit.REFUSED)
    if state.config.DIFF:
        _diff(state, planned)
    if any(job.why for job in planned.jobs):
        names = {p.host.name for p in found.placements}
        lost = result.failures  # hosts outside of --limit are neither to be changed nor lost
        outside = {name for name in names if name not in lost and not planned.of(name)}
        _preview(planned, found.placements, outside)
    return fleet


def _diff(state: State, planned: Plan) -> None:
    """Units as they are against units as they will be. Secrets stand in neither."""
    from gevent.pool import Pool

    hosts = {h.name: h for h in state.inventory.get_active_hosts()}

    def one(job: Job) -> tuple[Job, str]:
        try:
            script = f"cat {paths.unit_file(job.service.service)} 2>/dev/null || :"
            return job, operations.run(hosts[job.host], script).out
        except operations.HostFailed as e:
            return job, f"# {e.reason}"

    for job, before in Pool(64).imap(one, [job for job in planned.jobs if job.why]):
        was = re.search(r"SGLFLEET_RELEASE=(\w+)", before)
        old = before.replace(was[1], "RELEASE") if was else before  # every path holds it; the line above says it
        new = job.release.unit.replace(job.release.id, "RELEASE")
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "on the host", "to be", n=1, lineterm="")
        click.echo(f"  {job.host}  {paths.unit(job.service.service)}", err=True)
        click.echo("".join(f"    {line}\n" for line in lines), err=True)


def _preview(planned: Plan, placements: tuple[Placement, ...], outside: set[str]) -> None:
    """The roll as it will go, unless a host fails, or one of those outside of --limit turns out not to serve."""
    from sglfleet import rollout
    from sglfleet.roll.plan import Node

    jobs = {(job.host, job.service.service): job for job in planned.jobs}
    for name in dict.fromkeys(job.service.service for job in planned.jobs):
        nodes = []
        for placement in placements:  # in the inventory's order; hosts without a job are out
            if placement.service.service != name:
                continue
            service, job = placement.service, jobs.get((placement.host.name, name))
            role = str(service.args.get("disaggregation-mode") or "")
            nodes.append(
                Node(
                    placement.host.name,
                    job.release.id if job else "",
                    running=(job.running or "") if job else "?",
                    serving=job.running is not None if job else placement.host.name in outside,
                    reachable=job is not None,
                    outside=placement.host.name in outside,
                    settled=job is None or not (job.why and job.running == job.release.id),
                    group=service.nodes.group if service.nodes else "",
                    rank=placement.rank,
                    role=role if role in ("prefill", "decode") else "",
                    rack=str(placement.host.get("rack") or ""),
                )
            )
        mine = next(job for job in planned.jobs if job.service.service == name)
        for line in rollout.preview(name, nodes, mine.service.rollout):
            click.echo(f"  {line}", err=True)


def _inventory_name() -> str:
    import sys

    return next((a for a in sys.argv[1:] if a.endswith(".py") and "deploy" not in a), "inventory")


def _collect(
    state: State, hosts: inventory.Inventory, found: intent.Intents, result: outcome.Outcome
) -> dict[str, Collected]:
    """Facts of every connected host that has a service or had one, at the same time, one command each."""
    from gevent.pool import Pool

    def one(host: Host) -> tuple[str, Collected | str]:
        wanted = [p for p in found.placements if p.host.name == host.name]
        try:
            lines = operations.raw(host, host_facts.command(host_facts.wanted(wanted)), FACTS_TIMEOUT)
        except operations.HostFailed as e:
            return host.name, e.reason
        return host.name, host_facts.parse(host.name, lines)

    for host in state.failed_hosts:
        result.fail(host.name, "cannot be reached")
    answers: dict[str, Collected] = {}
    live = [h for h in state.inventory.get_active_hosts() if h.name in hosts.hosts]
    got = dict(Pool(64).imap_unordered(one, live))
    for name in hosts.hosts:  # in the inventory's order
        answer = got.get(name)
        if isinstance(answer, Collected):
            answers[name] = answer
        elif isinstance(answer, str):
            result.fail(name, answer)
    lost = {h for h in live if isinstance(got.get(h.name), str)}
    if lost:
        state.fail_hosts(lost)  # type: ignore[no-untyped-call]
    return answers


def _host() -> Host:
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    return host


# --- stages ---------------------------------------------------------------------------------------------------------


def stage(fleet: Fleet) -> None:
    """Put what changes on this host: engine, release files, secrets. Nothing is restarted."""
    jobs = [job for job in fleet.plan.of(_host().name) if job.why]
    if jobs:
        _stage(name="Stage releases", fleet=fleet, jobs=jobs)


@operation(is_idempotent=False)
def _stage(fleet: Fleet, jobs: list[Job]) -> Generator[FunctionCommand]:
    yield FunctionCommand(_stage_all, (fleet, jobs), {})


def _stage_all(state: State, host: Host, fleet: Fleet, jobs: list[Job]) -> bool:
    try:
        for job in jobs:
            if job.install:
                install.install(host, job.release.engine)
            operations.stage(host, job.release)
            if job.running == job.release.id:  # the process is right, only files are not: no restart for that
                operations.switch_to(host, job.service.service, job.release.id)
                fleet.outcome.results[host.name, job.service.service] = "files put right"
            if host.data.get("ask_engine", True):
                _ask(host, fleet, job)
    except operations.HostFailed as e:
        fleet.failed(host.name, e.reason, e.detail)
        return False
    return True


def _ask(host: Host, fleet: Fleet, job: Job) -> None:
    """The engine's own word on the command line, before anything is switched. Raises HostFailed where it refuses."""
    from sglfleet.verify import asking

    name = job.release.service
    word = asking.before_launch(host, planning.question(job, date.today()))
    for line in word.said:
        fleet.outcome.say(f"{host.name}: {name}: {line}")
    fleet.outcome.extra.setdefault("engine", {}).setdefault(host.name, {})[name] = list(word.said)
    if word.stops:
        if not planning.is_known(job.service):  # a refusal by judgement: it stops the service, not one host of it
            fleet.refused.setdefault(name, f"the engine on {host.name} refuses it: {word.stops[0]}")
            fleet.outcome.codes.add(Exit.REFUSED)
        raise operations.HostFailed(host.name, f"{name}: {word.stops[0]}", "\n".join(word.stops))
    if word.answer.get("arguments"):
        asking.keep(host, paths.release(name, job.release.id), word)


def roll(fleet: Fleet) -> None:
    """Change the hosts in their order, each behind its health gate; the first that fails stops the rest.

    A router's list is put right also where no host changes.
    """
    if any(job.why for job in fleet.plan.jobs) or fleet.routed:
        _roll(name="Roll", fleet=fleet)


@operation(is_idempotent=False)
def _roll(fleet: Fleet) -> Generator[FunctionCommand]:
    yield FunctionCommand(_roll_all, (fleet,), {})


def _roll_all(state: State, host: Host, fleet: Fleet) -> bool:
    with fleet.lock:  # the first host that gets here drives; the others wait for their own result
        if not fleet.rolled:
            fleet.rolled = True
            _drive(state, fleet)
    return host.name not in fleet.bad


def _drive(state: State, fleet: Fleet) -> None:
    from sglfleet import rollout
    from sglfleet.verify.after import After
    from sglfleet.verify.stage import Stage

    absent: dict[str, dict[str, str]] = {}
    for job in fleet.plan.jobs:
        if job.why and job.release.service in fleet.refused and job.host not in fleet.outcome.failures:
            fleet.failed(job.host, f"{job.release.service}: not switched: {fleet.refused[job.release.service]}")
    for placement in fleet.placements:
        reason = fleet.outcome.failures.get(placement.host.name)
        if reason:
            absent.setdefault(placement.service.service, {})[placement.host.name] = reason
    mine = {(job.host, job.service.service) for job in fleet.plan.jobs}
    beyond: dict[str, list[str]] = {}  # outside of --limit
    for placement in fleet.placements:
        name, service = placement.host.name, placement.service.service
        if (name, service) not in mine and name not in absent.get(service, {}):
            beyond.setdefault(service, []).append(name)
    hosts = {h.name: h for h in state.inventory}
    services = {(p.host.name, p.service.service): p.service for p in fleet.placements}
    releases = {(job.host, job.release.service): job.release.id for job in fleet.plan.jobs}
    proof = Stage(hosts, services, fleet.outcome.say, releases)
    after = After(fleet.outcome.root, hosts, services, fleet.outcome.say, proof.statuses)
    try:
        reports = rollout.roll(state, fleet.plan.jobs, absent=absent, beyond=beyond, prove=proof, measure=after)
    except RuntimeError as e:  # pyinfra was called in a way that cannot roll
        for name in {job.host for job in fleet.plan.jobs if job.why}:
            fleet.failed(name, str(e))
        return
    for report in reports:
        fleet.outcome.rolled(report)
        fleet.bad.update(report.failures)
    if proof.proofs:
        fleet.outcome.proven(proof.document(fleet.name), tuple(after.effects.values()))


def remove_leftovers(fleet: Fleet) -> None:
    """Services that left the configuration: named; stopped and removed with `--data remove_leftovers=yes`."""
    host = _host()
    names = fleet.plan.leftovers.get(host.name, ())
    if names and str(host.data.get("remove_leftovers", "")).lower() in ("yes", "true", "1"):
        _remove(name="Remove services that left the configuration", fleet=fleet, names=list(names))


@operation(is_idempotent=False)
def _remove(fleet: Fleet, names: list[str]) -> Generator[FunctionCommand]:
    yield FunctionCommand(_remove_all, (fleet, names), {})


def _remove_all(state: State, host: Host, fleet: Fleet, names: list[str]) -> bool:
    try:
        for name in names:
            operations.remove(host, name, 900)
            fleet.outcome.say(f"{host.name}: {paths.unit(name)} stopped and removed")
    except operations.HostFailed as e:
        fleet.failed(host.name, e.reason, e.detail)
        return False
    return True
