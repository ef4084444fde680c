"""The steps of a turn, each bounded: a step asks the host for its state again and again until a deadline of its own."""

from __future__ import annotations

import time
from typing import Any

from sglfleet import health
from sglfleet.roll import history
from sglfleet.roll.plan import Unit
from sglfleet.roll.remote import Probe
from sglfleet.roll.state import POLL, PROOF_SECONDS, Roll, RouterError, TurnError, each, nap, patient
from sglfleet.roll.target import Target


def out_of_router(roll: Roll, unit: Unit) -> None:
    """The unit's server leaves the router; returns when the router's list shows it."""
    if roll.router is not None:
        roll.router.remove(roll.targets[unit.hosts[0]].public_url)


def into_router(roll: Roll, unit: Unit) -> str:
    """Back into the router. Returns what is wrong instead of raising: the node itself is fine."""
    if roll.router is None:
        return ""
    try:
        roll.router.add(roll.targets[unit.hosts[0]].worker())
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


def measured(roll: Roll, unit: Unit) -> str:
    """Why the roll must not go on, after the latch was closed for it; "" where it may. The node serves either way."""
    halt = roll.measure(unit.hosts[0], roll.service) if roll.measure is not None and unit.action != "gate" else None
    if halt is None:
        return ""
    roll.back = halt.back
    roll.latch.close(f"{unit.hosts[0]}: {halt.reason}")
    return halt.reason


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
