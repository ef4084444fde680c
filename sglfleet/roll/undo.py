"""Undoing a turn: every host of the unit back to its previous release, seen to serve there, and said why."""

from __future__ import annotations

import time
from contextlib import suppress

from sglfleet import diagnosis
from sglfleet.roll import history, lock
from sglfleet.roll.plan import Unit
from sglfleet.roll.remote import LostError, Probe, RefusedError
from sglfleet.roll.state import POLL, Outcome, Roll, each, nap, patient
from sglfleet.roll.steps import ask_gate, into_router, watch

JOURNAL_LINES = 400
SHOWN_LINES = 15
BACK_DEADLINE = 180.0  # s for one prompt on the previous release: it served before, only a busy machine makes it slow


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
        if not state.settled or state.phase == "accepted":
            patient(roll, host, lambda: remote.must("back", roll.run, because[:300]))
            state = _wait_back(roll, host)
        outcome.serves = state.release
        if state.phase == "stopped":
            outcome.result = "stopped"
            return outcome
        outcome.result = "reverted" if state.phase == "reverted" and state.active else "revert-failed"
        old = state.turn.get("old", "")
        if outcome.result == "reverted":
            patience = max(roll.policy.gate_deadline, BACK_DEADLINE)
            gate = ask_gate(roll, host, roll.target(host, old), patience, quick=True)
            if roll.targets[host].rank == 0 and not gate.passed:
                outcome.result, outcome.warning = "revert-failed", f"on {old}: {'; '.join(gate.problems)}"
    except LostError as error:
        seconds = max(int(watch(roll)), lock.LEASE)
        outcome.warning = f"cannot be reached ({error}); if it has started, it goes back by itself within {seconds} s"
    except RefusedError as error:
        outcome.result, outcome.warning = "revert-failed", str(error)
        with suppress(LostError, RefusedError):
            outcome.serves = remote.probe().release
    return outcome


def _wait_back(roll: Roll, host: str) -> Probe:
    end = time.monotonic() + roll.targets[host].turn_limit
    idle = 0
    while True:
        state = patient(roll, host, roll.remotes[host].probe)
        if state.settled or state.phase == "revert-failed":
            return state
        idle = 0 if state.busy else idle + 1
        if idle > 10:
            raise RefusedError(f"going back was interrupted while {state.phase}")
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
