"""One service's roll, from the first look at its hosts to the last lock given back."""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sglfleet.roll import history
from sglfleet.roll.latch import Latch
from sglfleet.roll.locking import fenced, keep, let_go, lock_all, lock_beyond, settle
from sglfleet.roll.plan import Node, Plan, Policy, Unit, lines, plan
from sglfleet.roll.remote import LostError, Probe, RefusedError, Remote
from sglfleet.roll.report import Report
from sglfleet.roll.state import Halt, Outcome, Roll, RouterError, RouterLike, each, patient
from sglfleet.roll.steps import watch
from sglfleet.roll.target import Target
from sglfleet.roll.turn import take

if TYPE_CHECKING:
    from gevent import Greenlet

Say = Callable[[str], None]


def roll_service(
    service: str,
    targets: Mapping[str, Target],
    remotes: Mapping[str, Remote],
    policy: Policy,
    *,
    out: Mapping[str, str] | None = None,
    router: RouterLike | None = None,
    say: Say = print,
    prove: Callable[[str, str], str] | None = None,
    measure: Callable[[str, str], Halt | None] | None = None,
    beyond: Mapping[str, Remote] | None = None,
) -> Report:
    """Bring every host of `targets` (in inventory order) to its target release. `out`: unreachable host -> reason.

    `beyond`: hosts of the service outside of `--limit`. They are locked and counted like all others, and not changed.
    Never raises for what hosts do; the report says it.
    """
    began = time.monotonic()
    report = Report(service, run=uuid.uuid4().hex[:12], out=dict(out or {}))
    held: dict[str, Remote] = {}
    keepers: list[Greenlet] = []
    try:
        found = _look(remotes, report)
        outside, lockable = _outside(beyond or {})
        chosen = plan([*nodes_of(targets, found, report.out), *outside], policy)
        stray = [host for unit in chosen.kept for host in unit.hosts if found[host].current != targets[host].release]
        if not chosen.batches and not chosen.blocked and not report.out and not stray:
            report.plan = tuple(lines(service, chosen, {h: t.release for h, t in targets.items()}))
            _keep(report, chosen, found)
            _keep_router(router, targets, found, report, say, limited=bool(beyond))
            return report
        found = lock_all(targets, remotes, report, held)
        lock_beyond(lockable, report, held)
        if report.refused:
            return report
        latch = Latch()
        keepers = keep(report.run, latch, held)
        found = settle(found, targets, held, report, say)
        chosen = plan([*nodes_of(targets, found, report.out), *outside], policy)
        report.plan = tuple(lines(service, chosen, {h: t.release for h, t in targets.items()}))
        for text in report.plan:
            say(text)
        _keep(report, chosen, found)
        for host in [host for host in stray if host in held]:
            _put_in_place(held[host], targets[host].release, report, say)
        roll = Roll(
            service=service,
            run=report.run,
            who=history.operator(),
            policy=policy,
            targets=dict(targets),
            remotes=dict(remotes),
            prove=prove,
            measure=measure,
            found=found,
            latch=latch,
            say=say,
            router=router,
            known=_known({host: remote for host, remote in held.items() if host in targets}, report),
        )
        _keep_router(router, targets, found, report, say, limited=bool(beyond))
        if report.refused:
            return report
        _batches(roll, chosen, report.outcomes)
        report.closed = "; ".join([roll.latch.reason, *roll.latch.later]) if roll.latch.closed else ""
        back = policy.on_failure == "rollback" if roll.back is None else roll.back
        if roll.latch.closed and back and not fenced(roll.latch):
            _take_back(roll, report)
        if chosen.blocked and not roll.latch.closed:
            report.refused = tuple(
                f"{' + '.join(unit.hosts)}: not changed, too many nodes are out already: mend those first"
                for unit in chosen.blocked
            )
    finally:
        for keeper in keepers:
            keeper.kill()
        let_go(report.run, held)
        report.seconds = time.monotonic() - began
    return report


def _look(remotes: Mapping[str, Remote], report: Report) -> dict[str, Probe]:
    """What every host runs. A host that does not answer is out from here on."""

    def one(host: str) -> Probe | str:
        try:
            return remotes[host].probe()
        except (LostError, RefusedError) as error:
            return str(error)

    found: dict[str, Probe] = {}
    for host, answer in each([host for host in remotes if host not in report.out], one).items():
        if isinstance(answer, Probe):
            found[host] = answer
        else:
            report.out[host] = answer
    return found


def _outside(beyond: Mapping[str, Remote]) -> tuple[list[Node], dict[str, Remote]]:
    """Hosts of the service that this run may not change, as they are; and those of them that have a lock to take.

    One that does not answer is not serving.
    """
    there: dict[str, Remote] = {}

    def one(host: str) -> Node:
        try:
            state, known = beyond[host].probe(), beyond[host].targets()
        except (LostError, RefusedError):
            return Node(host, "", reachable=False, outside=True)
        if state.releases:  # else the service never was there
            there[host] = beyond[host]
        runs, target = state.release, known.get(state.release)
        node = Node(host, runs, running=runs, serving=state.active, outside=True)
        return replace(node, role=target.role, group=target.group, rank=target.rank) if target else node

    return (list(each(beyond, one).values()) if beyond else []), there


def _known(held: Mapping[str, Remote], report: Report) -> dict[str, dict[str, Target]]:
    """What each host remembers of older releases. A host that is lost just now is found out by its own turn."""
    known: dict[str, dict[str, Target]] = {}
    for host, remote in held.items():
        try:
            known[host] = remote.targets() if host not in report.out else {}
        except LostError:
            known[host] = {}
    return known


def nodes_of(targets: Mapping[str, Target], found: Mapping[str, Probe], out: Mapping[str, str]) -> list[Node]:
    nodes = []
    for host, target in targets.items():
        state = found.get(host)
        reachable = state is not None and host not in out
        # a turn that was interrupted before its start ended is not a release that runs
        runs = state.release if state is not None and (state.settled or state.phase == "started") else ""
        nodes.append(
            Node(
                host,
                target.release,
                running=runs,
                serving=state.active if state is not None else False,
                reachable=reachable,
                settled=state.settled if state is not None else True,
                group=target.group,
                rank=target.rank,
                role=target.role,
                rack=target.rack,
            )
        )
    return nodes


def _keep(report: Report, chosen: Plan, found: Mapping[str, Probe]) -> None:
    for unit in chosen.kept:
        for host in unit.hosts:
            report.outcomes[host] = Outcome(host, "kept", found[host].release)
    for unit in chosen.blocked:
        for host in (name for name in unit.hosts if name in found):  # one group may lie partly outside of --limit
            report.outcomes[host] = Outcome(host, "untouched", found[host].release)


def _put_in_place(remote: Remote, release: str, report: Report, say: Say) -> None:
    """The process runs the right release, only the files do not say so: no restart for that."""
    try:
        output = remote.sh(f"sh /var/lib/sglfleet/{remote.service}/.roll/switch.sh {remote.service} {release}")
    except LostError as error:
        report.out[remote.name] = str(error)
        return
    if output.ok:
        say(f"{remote.name}: runs {release[:12]} already; its files put in place, no restart")
    else:
        report.outcomes[remote.name].warning = f"its files could not be put in place: {output.err.strip()}"


def _keep_router(
    router: RouterLike | None,
    targets: Mapping[str, Target],
    found: Mapping[str, Probe],
    report: Report,
    say: Say,
    *,
    limited: bool,
) -> None:
    """Who serves is in the router, who left the configuration is not. A router that does not answer stops the roll.

    `limited`: `targets` are not all hosts of the service, so nobody is known to have left it.
    """
    if router is None:
        return
    urls = {host: target.public_url for host, target in targets.items() if target.rank == 0 and target.public_url}
    serving = [targets[host].worker() for host in urls if host in found and found[host].active]
    try:
        for change in router.keep(serving, None if limited else urls.values()):
            say(f"router: {change}")
    except RouterError as error:
        report.refused = (f"{error}: nothing was touched",)


def _batches(roll: Roll, chosen: Plan, outcomes: dict[str, Outcome]) -> None:
    """One batch after another; all units of a batch at once. Stops where the latch closes."""
    for batch in chosen.batches:
        if roll.latch.closed:
            for host in batch.hosts:
                outcomes[host] = Outcome(host, "untouched", roll.found[host].release)
            continue
        units = {unit.hosts[0]: unit for unit in batch.units}
        done = each(units, lambda head, members=units: _guarded(roll, members[head]))  # type: ignore[misc]
        for results in done.values():
            for outcome in results:
                outcomes[outcome.host] = outcome


def _guarded(roll: Roll, unit: Unit) -> list[Outcome]:
    """A turn. An error of this program's own must stop the fleet too, and leave a report."""
    try:
        return take(roll, unit)
    except Exception as error:
        reason = f"an error of sglfleet itself: {type(error).__name__}: {error}"
        roll.latch.close(f"{unit.hosts[0]}: {reason}")
        roll.say(traceback.format_exc())
        warning = f"if it was switched, it goes back by itself within {watch(roll)} s"
        return [Outcome(host, "lost", "?", reason, "internal", warning=warning) for host in unit.hosts]


def _take_back(roll: Roll, report: Report) -> None:
    """`on_failure: rollback`: the nodes done in this run go back too, the last one first, with the same care."""
    done = [host for host, outcome in report.outcomes.items() if outcome.result == "accepted"]
    targets: dict[str, Target] = {}
    for host in reversed([host for host in roll.targets if host in done]):
        old = roll.found[host].good
        if not old or old == roll.targets[host].release:
            report.outcomes[host].warning = "stays: there is no previous release to go back to"
            continue
        targets[host] = replace(roll.target(host, old), host=host, release=old)
    if not targets:
        return
    roll.say(f"{roll.service}: taking back {', '.join(targets)}")
    found: dict[str, Probe] = {}
    for host in list(targets):
        try:
            found[host] = patient(roll, host, roll.remotes[host].probe)
        except (LostError, RefusedError) as error:
            report.outcomes[host].warning = f"not taken back, cannot be reached: {error}"
            del targets[host]
    back = replace(
        roll, targets={**roll.targets, **targets}, found={**roll.found, **found}, latch=Latch(), measure=None
    )
    chosen = plan(nodes_of(targets, found, {}), replace(roll.policy, canary=()))
    _batches(back, chosen, report.rolled_back)
    if back.latch.closed:
        report.closed += f"; taking back stopped: {back.latch.reason}"
