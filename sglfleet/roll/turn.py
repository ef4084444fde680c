"""A node's turn: drain → switch and start → health gate → soak → back into the router. Undone where any step fails.

Each step asks the host for its state again and again with a deadline; a lost connection is made anew until the host has
been away for `Policy.lost_after`. What changes the host runs there on its own (see `node.sh`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

from sglfleet.roll.latch import LatchClosedError
from sglfleet.roll.plan import Unit
from sglfleet.roll.remote import LostError, Probe, RefusedError
from sglfleet.roll.state import Outcome, Roll, RouterError, TurnError, each
from sglfleet.roll.steps import (
    accept,
    check,
    drain,
    go,
    into_router,
    measured,
    out_of_router,
    proven,
    soak,
    wait_started,
    watch,
)
from sglfleet.roll.undo import undo


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
        times["benchmark"] = time.monotonic()
        slow = measured(roll, unit)
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
        reason, where = (warning, "router") if warning else (slow, "benchmark") if slow else ("", "")
        outcomes.append(Outcome(host, "accepted", roll.targets[host].release, reason, where, gate=gates))
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
