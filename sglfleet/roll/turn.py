"""A node's turn: drain → switch and start → health gate → soak → back into the router. Undone where any step fails.

Each step asks the host for its state again and again with a deadline; a lost connection is made anew until the host has
been away for `Policy.lost_after`. What changes the host runs there on its own (see `node.sh`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar

from sglfleet import diagnosis, health
from sglfleet.roll import history
from sglfleet.roll.latch import Latch, LatchClosedError
from sglfleet.roll.plan import Policy, Unit
from sglfleet.roll.remote import LostError, Probe, RefusedError, Remote
from sglfleet.roll.target import Target

POLL = 0.5  # s between two looks at a host
PROOF_SECONDS = 300.0  # s that a proof may take at most, profile included
JOURNAL_LINES = 400
SHOWN_LINES = 15
T = TypeVar("T")

Result = Literal["accepted", "reverted", "stopped", "revert-failed", "untouched", "lost", "kept"]


class TurnError(Exception):
    """The turn of a unit failed on `host`."""

    def __init__(self, host: str, reason: str, stage: str) -> None:
        super().__init__(reason)
        self.host, self.reason, self.stage = host, reason, stage


class RouterError(Exception):
    """The router does not answer or its list does not change."""


class RouterLike(Protocol):
    """What a turn needs of a router. All calls return when the list shows it, or raise RouterError."""

    def remove(self, url: str) -> None: ...

    def add(self, url: str) -> None: ...

    def keep(self, serving: Iterable[str], allowed: Iterable[str]) -> list[str]: ...


@dataclass
class Outcome:
    """What became of one host."""

    host: str
    result: Result
    serves: str = ""  # release of the running process at the end, "" where none runs, "?" where nobody could ask
    reason: str = ""
    stage: str = ""
    diagnoses: tuple[str, ...] = ()
    log: tuple[str, ...] = ()  # last lines of the journal of the start that failed
    gate: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)  # s that each stage took; "host": stop and start themselves
    warning: str = ""

    @property
    def good(self) -> bool:
        return self.result in ("accepted", "kept") and not self.reason


@dataclass
class Roll:
    """Everything the turns of one service share."""

    service: str
    run: str
    who: str
    policy: Policy
    targets: dict[str, Target]
    remotes: dict[str, Remote]
    found: dict[str, Probe]
    latch: Latch
    say: Callable[[str], None]
    router: RouterLike | None = None
    prove: Callable[[str, str], str] | None = None  # (host, service) -> why the release must not stay; "" it may
    known: dict[str, dict[str, Target]] = field(default_factory=dict)  # host -> release -> target, of older releases

    def target(self, host: str, release: str) -> Target:
        """What is known of a release on a host; of an unknown one, the new target stands in (same port)."""
        return self.known.get(host, {}).get(release) or self.targets[host]


def take(roll: Roll, unit: Unit) -> list[Outcome]:
    """One unit's whole turn. Never raises for what hosts do; the latch is closed before anything is undone."""
    began = time.monotonic()
    head = unit.hosts[0]
    stage = "drain"
    gates: dict[str, Any] = {}
    times: dict[str, float] = {}
    try:
        announce(roll, unit, stage, times)
        if unit.action == "gate":
            roll.latch.check()
            stage = "adopt"
            each(unit.hosts, lambda host: roll.remotes[host].must("adopt", roll.run, watch(roll)))
        else:
            out_of_router(roll, unit)
            if unit.serving:
                drain(roll, unit)
            roll.latch.check()
            stage = "switch"
            each(unit.hosts, lambda host: go(roll, host))
        stage = "start"
        announce(roll, unit, stage, times)
        started = each(unit.hosts, lambda host: wait_started(roll, host))
        stage = "gate"
        announce(roll, unit, stage, times)
        gates = check(roll, unit, started)
        stage = "soak"
        announce(roll, unit, stage, times)
        soak(roll, unit, started)
        if roll.prove is not None:
            stage = "proof"
            announce(roll, unit, stage, times)
            proven(roll, unit)
        stage = "accept"
        announce(roll, unit, stage, times)
        seconds = time.monotonic() - began
        each(unit.hosts, lambda host: accept(roll, host, gates, seconds))
    except LatchClosedError as closed:
        warning = into_router(roll, unit)
        return [
            Outcome(h, "untouched", roll.found[h].release, f"not begun: {closed}", "drain", warning=warning)
            for h in unit.hosts
        ]
    except (TurnError, LostError, RefusedError, RouterError) as error:
        host = error.host if isinstance(error, TurnError) else head
        roll.latch.close(f"{host}: {stage}: {error}")
        roll.say(f"{host}: {stage} failed: {error}")
        if unit.action == "gate":  # it was asked while it served; what comes now restarts it
            with suppress(RouterError):
                out_of_router(roll, unit)
        return undo(roll, unit, host, stage, str(error), began)
    warning = into_router(roll, unit)
    if warning:
        roll.latch.close(f"{head}: {warning}")
    outcomes = []
    took = spent(times, started)
    for host in unit.hosts:
        roll.say(f"{host}: serves {roll.targets[host].release[:12]}, {seconds:.1f} s")
        outcomes.append(
            Outcome(host, "accepted", roll.targets[host].release, warning, "router" if warning else "", gate=gates)
        )
        outcomes[-1].seconds, outcomes[-1].stages = seconds, took
    return outcomes


def announce(roll: Roll, unit: Unit, stage: str, times: dict[str, float]) -> None:
    """One line a stage, for whoever watches, and when it began."""
    times[stage] = time.monotonic()
    roll.say(f"{' + '.join(unit.hosts)}: {stage}")


def spent(times: dict[str, float], started: dict[str, Probe]) -> dict[str, float]:
    """Seconds of each stage from the moments at which they began."""
    order = [*times.items(), ("", time.monotonic())]
    took = {stage: round(after - begun, 2) for (stage, begun), (_, after) in pairwise(order)}
    own = [int(s.turn.get("started", 0)) - int(s.turn.get("began", 0)) for s in started.values() if "began" in s.turn]
    return {**took, "host": float(max(own, default=0))}


# --- the steps ------------------------------------------------------------------------------------------------------


def out_of_router(roll: Roll, unit: Unit) -> None:
    """The unit's server leaves the router; returns when the router's list shows it."""
    if roll.router is not None:
        roll.router.remove(roll.targets[unit.hosts[0]].public_url)


def into_router(roll: Roll, unit: Unit) -> str:
    """Back into the router. Returns what is wrong instead of raising: the node itself is fine."""
    if roll.router is None:
        return ""
    try:
        roll.router.add(roll.targets[unit.hosts[0]].public_url)
    except RouterError as error:
        return f"serves, but is not in the router: {error}"
    return ""


def drain(roll: Roll, unit: Unit) -> None:
    """Wait until no request runs, at most `policy.drain`: then the stop itself drains the rest.

    Without a router requests go on arriving, and a release that does not tell its load cannot be waited for.
    """
    host = unit.hosts[0]
    target = roll.target(host, roll.found[host].release)
    end = time.monotonic() + roll.policy.drain
    idle = 0
    needed = 2 if roll.router is not None else 1  # a request may be on its way from the router
    while time.monotonic() < end:
        if roll.latch.closed:
            return
        answer = patient(
            roll,
            host,
            lambda: roll.remotes[host].ask(
                {"what": "running", "url": target.base_url, "key_file": target.key_file}, 15.0
            ),
        )
        running = answer.get("running")
        if running is None:
            roll.say(f"{host}: does not tell its running requests; the stop drains them")
            return
        idle = idle + 1 if running == 0 else 0
        if idle >= needed:
            return
        nap(POLL)
    roll.say(f"{host}: requests still run after {roll.policy.drain:.0f} s; the stop drains them")


def proven(roll: Roll, unit: Unit) -> None:
    """The flags of the unit's server, seen working. Raises TurnError where a contradiction undoes the turn."""
    host = unit.hosts[0]  # the one that serves HTTP
    if roll.prove is not None and (why := roll.prove(host, roll.service)):
        raise TurnError(host, why, "proof")


def watch(roll: Roll) -> str:
    """Seconds after which a started host goes back by itself if nobody accepts it."""
    policy = roll.policy
    proof = PROOF_SECONDS if roll.prove is not None else 0.0
    return str(int(policy.gate_deadline + policy.soak + policy.lost_after + policy.margin + proof))


def go(roll: Roll, host: str) -> None:
    """Begin on the host: from here on it finishes or undoes the step without us."""
    target = roll.targets[host]
    roll.say(f"{host}: switching to {target.release[:12]}")

    def begin() -> None:
        state = roll.remotes[host].probe()
        if state.turn.get("run") == roll.run and state.turn.get("new") == target.release and not state.settled:
            return  # the command arrived, only its answer was lost
        roll.remotes[host].must("go", roll.run, target.release, roll.found[host].good, watch(roll))

    patient(roll, host, begin)


def wait_started(roll: Roll, host: str) -> Probe:
    """The host once its server is ready. Raises TurnError where it went back, rebooted or took too long."""
    target = roll.targets[host]
    end = time.monotonic() + target.stop_timeout + target.start_timeout + 60
    idle = 0
    while True:
        state = patient(roll, host, roll.remotes[host].probe)
        if state.turn.get("boot") not in ("", None, state.boot) and state.phase != "accepted":
            raise TurnError(host, "the host rebooted in its turn", "start")
        if state.phase == "started":
            if state.turn.get("invocation") != state.values.get("unit_InvocationID"):
                raise TurnError(host, "the server was restarted right after its start", "start")
            return state
        if state.settled or state.phase == "revert-failed":
            raise TurnError(host, state.turn.get("reason") or f"the turn ended as {state.phase}", "start")
        idle = 0 if state.busy else idle + 1
        if idle > 10:
            raise TurnError(host, f"the turn was interrupted while {state.phase}", "start")
        if time.monotonic() > end:
            raise TurnError(host, "the start took longer than the unit's own time-outs", "start")
        nap(POLL)


def check(roll: Roll, unit: Unit, started: dict[str, Probe]) -> dict[str, Any]:
    """The health gate of the unit's first rank. Returns what was seen; raises TurnError."""
    host = unit.hosts[0]
    gate = ask_gate(roll, host, roll.targets[host], roll.policy.gate_deadline)
    if not gate.passed:
        raise TurnError(host, "; ".join(gate.problems), "gate")
    for name in unit.hosts:
        same(name, started[name], patient(roll, name, roll.remotes[name].probe), roll.targets[name].release)
    return {"prompt_tokens": list(gate.lengths), "notes": list(gate.notes), "seconds": gate.seconds}


def ask_gate(roll: Roll, host: str, target: Target, deadline: float, *, quick: bool = False) -> health.Gate:
    """Ask on the host, judge here."""
    job = {
        "url": target.base_url,
        "key_file": target.key_file,
        "deadline": deadline,
        "health_timeout": health.HEALTH_TIMEOUT,
        "health_failures": health.HEALTH_FAILURES,
        "salt": int(time.time()) % 997,
        "quick": quick,
    }
    answer = patient(roll, host, lambda: roll.remotes[host].ask(job, deadline + health.HEALTH_TIMEOUT))
    return health.judge(answer, target.release)


def soak(roll: Roll, unit: Unit, started: dict[str, Probe]) -> None:
    """It stays the same healthy process for a while: no restart, no new error in its journal, and still generates."""
    cursors = each(unit.hosts, lambda host: cursor(roll, host, started[host]))
    end = time.monotonic() + roll.policy.soak
    while True:
        for host in unit.hosts:
            same(host, started[host], patient(roll, host, roll.remotes[host].probe), roll.targets[host].release)
        left = end - time.monotonic()
        if left <= 0:
            break
        nap(min(1.0, left))
    for host in unit.hosts:
        words = (started[host].values["unit_InvocationID"], cursors[host])
        output = patient(roll, host, lambda h=host, w=words: roll.remotes[h].node("errors", *w))  # type: ignore[misc]
        if output.out.strip():
            raise TurnError(host, f"new errors in its journal: {output.out.strip().splitlines()[0][:200]}", "soak")
    if roll.policy.soak > 0:
        host = unit.hosts[0]
        gate = ask_gate(roll, host, roll.targets[host], roll.policy.gate_deadline, quick=True)
        if not gate.passed:
            raise TurnError(host, f"after the soak: {'; '.join(gate.problems)}", "soak")


def cursor(roll: Roll, host: str, started: Probe) -> str:
    output = patient(roll, host, lambda: roll.remotes[host].node("cursor", started.values.get("unit_InvocationID", "")))
    return output.out.strip().removeprefix("cursor=")


def accept(roll: Roll, host: str, gate: dict[str, Any], seconds: float) -> None:
    """The turn is over: history, prune, no watchdog any more."""
    target = roll.targets[host]
    line = history.line(
        who=roll.who,
        run=roll.run,
        service=roll.service,
        release=target.release,
        previous=roll.found[host].good,
        result="accepted",
        gate=gate,
        verdicts=target.verdicts,
        seconds=seconds,
    )
    patient(roll, host, lambda: roll.remotes[host].must("accept", roll.run, line, str(target.kept)))


def same(host: str, before: Probe, now: Probe, release: str) -> None:
    """Raises TurnError unless the process is the very one that was started."""
    if now.boot != before.boot:
        raise TurnError(host, "the host rebooted in its turn", "soak")
    if not now.active:
        state = now.values.get("unit_ActiveState", "unknown")
        raise TurnError(host, f"the server ended after its start (unit is {state})", "soak")
    if now.identity != before.identity:
        restarts = now.values.get("unit_NRestarts", "?")
        raise TurnError(host, f"the server was restarted meanwhile (automatic restarts: {restarts})", "soak")
    if now.release != release:
        raise TurnError(host, f"the process serves {now.release or 'a release without a name'}, not {release}", "gate")


# --- undoing --------------------------------------------------------------------------------------------------------


def undo(roll: Roll, unit: Unit, failed: str, stage: str, reason: str, began: float) -> list[Outcome]:
    """Take every host of the unit back to its previous release and see that it serves there."""
    outcomes = each(unit.hosts, lambda host: _undo(roll, host, failed, stage, reason))
    back = stage == "drain" or all(outcome.result in ("reverted", "untouched") for outcome in outcomes.values())
    if back and (warning := into_router(roll, unit)):
        for outcome in outcomes.values():
            outcome.warning = warning
    for outcome in outcomes.values():
        outcome.seconds = time.monotonic() - began
        if outcome.result != "untouched":
            _record(roll, outcome)
    return list(outcomes.values())


def _undo(roll: Roll, host: str, failed: str, stage: str, reason: str) -> Outcome:
    because = reason if host == failed else f"{failed} of its group failed: {reason}"
    outcome = Outcome(host, "lost", "?", because, stage)
    remote = roll.remotes[host]
    try:
        state = patient(roll, host, remote.probe)
        mine = state.turn.get("run") == roll.run and state.turn.get("new") == roll.targets[host].release
        if not mine:  # never touched in this run
            outcome.result, outcome.serves = "untouched", state.release
            return outcome
        outcome.log, outcome.diagnoses = _journal(roll, host, state)
        if not state.settled:
            patient(roll, host, lambda: remote.must("back", roll.run, because[:300]))
            state = _wait_back(roll, host)
        outcome.serves = state.release
        if state.phase == "stopped":
            outcome.result = "stopped"
            return outcome
        outcome.result = "reverted" if state.phase == "reverted" and state.active else "revert-failed"
        old = state.turn.get("old", "")
        if outcome.result == "reverted":
            gate = ask_gate(roll, host, roll.target(host, old), roll.policy.gate_deadline, quick=True)
            if roll.targets[host].rank == 0 and not gate.passed:
                outcome.result, outcome.warning = "revert-failed", f"on {old}: {'; '.join(gate.problems)}"
    except LostError as error:
        seconds = watch(roll)
        outcome.warning = f"cannot be reached ({error}); if it has started, it goes back by itself within {seconds} s"
    except RefusedError as error:
        outcome.result, outcome.warning = "revert-failed", str(error)
    return outcome


def _wait_back(roll: Roll, host: str) -> Probe:
    target = roll.targets[host]
    end = time.monotonic() + target.stop_timeout + target.start_timeout + 60
    while True:
        state = patient(roll, host, roll.remotes[host].probe)
        if state.settled or state.phase == "revert-failed":
            return state
        if time.monotonic() > end:
            raise RefusedError("going back took longer than the unit's own time-outs")
        nap(POLL)


def _journal(roll: Roll, host: str, state: Probe) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Last lines of the start that failed, and what they mean."""
    invocation = (
        state.turn.get("failed_invocation") or state.turn.get("invocation") or state.values.get("unit_InvocationID", "")
    )
    try:
        output = roll.remotes[host].node("journal", invocation, str(JOURNAL_LINES))
    except (LostError, RefusedError):
        return (), ()
    found = diagnosis.diagnose(output.out, roll.targets[host].args)
    return tuple(output.out.splitlines()[-SHOWN_LINES:]), tuple(str(item) for item in found)


def _record(roll: Roll, outcome: Outcome) -> None:
    """A line of history on the host, if it can be reached."""
    target = roll.targets[outcome.host]
    line = history.line(
        who=roll.who,
        run=roll.run,
        service=roll.service,
        release=target.release,
        previous=roll.found[outcome.host].good,
        result=outcome.result,
        reason=f"{outcome.stage}: {outcome.reason}",
        diagnoses=outcome.diagnoses,
        verdicts=target.verdicts,
        seconds=outcome.seconds,
    )
    try:
        roll.remotes[outcome.host].node("note", line)
    except (LostError, RefusedError):
        outcome.warning = (outcome.warning + "; " if outcome.warning else "") + "no history written on the host"


# --- waiting --------------------------------------------------------------------------------------------------------


def patient(roll: Roll, host: str, action: Callable[[], T]) -> T:
    """The action's result, tried again over new connections until the host has been away for `lost_after`."""
    away: float | None = None
    while True:
        try:
            return action()
        except LostError as error:
            now = time.monotonic()
            if away is None:
                away = now
                roll.say(f"{host}: lost ({error}), trying again for {roll.policy.lost_after:.0f} s")
            if now - away > roll.policy.lost_after:
                raise LostError(f"unreachable for {roll.policy.lost_after:.0f} s: {error}") from None
            nap(0.5)


def each(hosts: Iterable[str], action: Callable[[str], T]) -> dict[str, T]:
    """The action on all hosts at the same time; the first error is raised after all are done."""
    import gevent

    names = list(hosts)
    if len(names) == 1:
        return {names[0]: action(names[0])}
    jobs = [gevent.spawn(action, name) for name in names]
    gevent.joinall(jobs)
    for name, job in zip(names, jobs, strict=True):
        if job.exception is not None:
            if isinstance(job.exception, LostError | RefusedError):
                raise TurnError(name, str(job.exception), "")
            raise job.exception
    return {name: job.value for name, job in zip(names, jobs, strict=True)}


def nap(seconds: float) -> None:
    import gevent

    gevent.sleep(seconds)
