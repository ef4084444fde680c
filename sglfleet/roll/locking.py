"""The locks of all hosts of a service: taken, kept alive, given back; and what a former run left under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sglfleet.roll import history, lock
from sglfleet.roll.latch import Latch
from sglfleet.roll.remote import LostError, Probe, RefusedError, Remote
from sglfleet.roll.report import Report
from sglfleet.roll.state import each, nap
from sglfleet.roll.target import Target

if TYPE_CHECKING:
    from gevent import Greenlet

Say = Callable[[str], None]
FENCED = "the lock was taken over"


def lock_all(
    targets: Mapping[str, Target], remotes: Mapping[str, Remote], report: Report, held: dict[str, Remote]
) -> dict[str, Probe]:
    """All locks or none: a second controller must not take turns with the first one on other hosts of the service."""
    words = _words(report.run)

    def one(host: str) -> tuple[bool, Probe | str]:
        return _take(remotes[host], words, [targets[host]])

    found: dict[str, Probe] = {}
    refused = []
    for host, (taken, state) in each([h for h in targets if h in remotes and h not in report.out], one).items():
        if taken and isinstance(state, Probe):
            held[host], found[host] = remotes[host], state
        elif isinstance(state, str):
            report.out[host] = state
        elif "error" in state.lock:
            refused.append(f"{host}: {state.lock['error']}")
        else:
            refused.append(lock.describe(host, state.lock))
    report.refused = tuple(refused)
    return found


def lock_beyond(remotes: Mapping[str, Remote], report: Report, held: dict[str, Remote]) -> None:
    """Locks of the service's hosts outside of `--limit`: somebody else may be changing them just now."""
    words = _words(report.run)
    for host, (taken, state) in each(remotes, lambda host: _take(remotes[host], words, [])).items():
        if taken:
            held[host] = remotes[host]
        elif isinstance(state, Probe):
            why = f"{host}: {state.lock['error']}" if "error" in state.lock else lock.describe(host, state.lock)
            report.refused = (*report.refused, why)


def _words(run: str) -> list[str]:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return [run, str(lock.LEASE), history.operator(), since, lock.origin()]


def _take(remote: Remote, words: Sequence[str], targets: Sequence[Target]) -> tuple[bool, Probe | str]:
    """(taken, state), (not taken, who has it), or (not taken, why the host did not answer)."""
    try:
        taken, state = remote.prepare(words, targets)
        if not taken and lock.dead(state.lock):
            taken, state = remote.prepare([*words, state.lock.get("run", "")], targets)
    except LostError as error:
        return False, str(error)
    except RefusedError as error:
        return False, Probe({}, {"error": str(error)})
    return taken, state


def settle(
    found: dict[str, Probe], targets: Mapping[str, Target], held: Mapping[str, Remote], report: Report, say: Say
) -> dict[str, Probe]:
    """Wait until turns that a killed controller left under way have ended on their own."""
    began = time.monotonic()
    settled: dict[str, Probe] = {}
    for host, state in found.items():
        end = began + targets[host].turn_limit
        if state.busy:
            say(f"{host}: a turn of a former run is under way, waiting for its end")
        try:
            if not state.settled and not state.busy:  # it may have ended between the two looks of one probe
                state = held[host].probe()
            while state.busy and time.monotonic() < end:
                nap(1.0)
                state = held[host].probe()
            settled[host] = state
        except (LostError, RefusedError) as error:
            report.out[host] = str(error)
    return settled


def keep(run: str, latch: Latch, held: Mapping[str, Remote]) -> list[Greenlet]:
    """Renew the leases until the greenlets are killed; the latch closes where somebody else took a lock over."""
    import gevent

    def renew(host: str) -> None:
        """For ever; each host on its own, so that one that hangs does not cost the others their lease."""
        while True:
            gevent.sleep(lock.RENEW)
            try:
                output = held[host].node("renew", run)
            except LostError:
                continue  # its turn finds out, and the lease may well survive
            if output.code == 75:
                latch.close(f"{host}: {FENCED}: {output.out.strip().removeprefix('error=')}")

    return [gevent.spawn(renew, host) for host in held]


def fenced(latch: Latch) -> bool:
    """Did another run take a lock over? Then nothing more may be touched, not even to undo."""
    return any(FENCED in text for text in (latch.reason, *latch.later))


def let_go(run: str, held: Mapping[str, Remote]) -> None:
    """Give the locks back. Where a host is lost, its lease runs out."""

    def one(host: str) -> None:
        try:
            held[host].node("unlock", run)
        except LostError:
            return  # the lease runs out

    if held:
        each(held, one)
