"""What the turns of one service share, what became of each host, and waiting for hosts that are lost for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from sglfleet.roll.latch import Latch
from sglfleet.roll.plan import Policy
from sglfleet.roll.remote import LostError, Probe, RefusedError, Remote
from sglfleet.roll.target import Target

POLL = 0.5  # s between two looks at a host
PROOF_SECONDS = 300.0  # s that a proof may take at most, profile included
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

    def remove(self, url: str) -> Any: ...

    def add(self, worker: Any) -> None: ...

    def keep(self, serving: Iterable[Any], allowed: Iterable[str] | None) -> list[str]: ...


@dataclass(frozen=True)
class Halt:
    """Why no further node is to change although this one serves well, and whether what was changed goes back."""

    reason: str
    back: bool


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
    measure: Callable[[str, str], Halt | None] | None = None  # (host, service), once accepted, still out of the router
    back: bool | None = None  # what `measure` said of going back; None: `policy.on_failure` decides
    known: dict[str, dict[str, Target]] = field(default_factory=dict)  # host -> release -> target, of older releases

    def target(self, host: str, release: str) -> Target:
        """What is known of a release on a host; of an unknown one, the new target stands in (same port)."""
        return self.known.get(host, {}).get(release) or self.targets[host]


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
