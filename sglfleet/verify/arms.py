"""One service on one host, started with any subset of some changed flags: the arms of an ablation.

Every start is a turn of the ordinary roll, so lock, drain, health gate and the way back are the ones of a deploy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from sglfleet import operations
from sglfleet.running import Running, running
from validators.verdict import Outcome, Value, Verdict

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from sglfleet.intent import Placement
    from sglfleet.inventory import Inventory
    from sglfleet.planning import Job
    from sglfleet.secrets import Hidden
    from validators.state import Collected


@dataclass(frozen=True)
class Arms:
    """What is needed to start the service with the changed flags that are `on`."""

    state: State
    host: Host
    inventory: Inventory
    placement: Placement
    collected: Collected
    values: Mapping[str, Hidden]
    changed: Mapping[str, Value]
    root: Path

    def placed(self, on: tuple[str, ...]) -> Placement:
        """The placement with exactly these of the changed flags. Raises InputError where that is no service."""
        from validators.flagtypes import flag_types
        from validators.load import merge
        from validators.source import InputError

        args = {flag: (value if flag in on else self.off(flag)) for flag, value in self.changed.items()}
        loaded = merge(self.placement.loaded, [("ablation", {"args": args})], flag_types)
        if loaded.service is None:
            raise InputError(loaded.problems)
        return replace(self.placement, loaded=loaded, service=loaded.service)

    def off(self, flag: str) -> Value | None:
        """What the flag is in the other arm: its own value in the service file, or not given where that is the same."""
        return other_value(self.placement.service.args.get(flag), self.changed[flag])

    def verdicts(self) -> dict[str, Verdict]:
        """What the gate says of each changed flag, all of them on. Raises InputError."""
        from sglfleet import gate

        placed = self.placed(tuple(self.changed))
        model = self.collected.state.model(placed.service.model.path)
        judged = gate.judge(placed, self.collected.facts, date.today(), model.config if model else None)
        return {v.flag: v for v in judged.verdicts if v.flag in self.changed}

    def job(self, on: tuple[str, ...]) -> Job:
        """The release of this arm. Raises operations.HostFailed where it is refused on this host."""
        from sglfleet import planning
        from sglfleet.intent import Intents

        placed = self.placed(on)
        name = placed.service.service
        plan = planning.make(
            self.inventory,
            Intents((placed,), (), (), (), {name: placed.loaded}),
            {self.host.name: self.collected},
            {name: self.values},
            name="ablation",
            root=self.root,
            today=date.today(),
        )
        if plan.refused or not plan.jobs:
            causes = [f"{cause.what}: {cause.reason}" for cause in plan.report.causes if cause.level == "error"]
            raise operations.HostFailed(self.host.name, "; ".join([*plan.refusals, *causes]) or "refused")
        return plan.jobs[0]

    def start(self, on: tuple[str, ...]) -> Running:
        """Serve this arm, freshly started; returns what runs. Raises operations.HostFailed."""
        return self.serve(self.job(on))

    def serve(self, job: Job) -> Running:
        """Start a release, also where it runs already: every run of an arm has a start of its own."""
        from sglfleet import rollout
        from sglfleet.exits import Exit

        name = job.service.service
        now = self._running(name)
        if now is not None and now.release == job.release.id:
            operations.stop(self.host, name, job.release.stop_timeout)
            operations.start(self.host, name, job.release.start_timeout)
            return running(self.host, name)
        operations.stage(self.host, job.release)
        reports = rollout.roll(self.state, [job], say=lambda text: None)
        if rollout.exit_of(reports) is not Exit.FINE:
            lines = [line for report in reports for line in report.lines()]
            raise operations.HostFailed(self.host.name, lines[-1] if lines else "it did not start", "\n".join(lines))
        return running(self.host, name)

    def _running(self, service: str) -> Running | None:
        with suppress(operations.HostFailed):
            return running(self.host, service)
        return None


def other_value(own: object, value: Value) -> Value | None:
    """What a changed flag is compared with: the service file's own value; where it has the changed one, no flag."""
    return own if isinstance(own, str | int | float | bool) and own != value else None


def works(verdict: Verdict | None) -> str:
    """Why a flag needs no run; empty where it may do something."""
    if verdict is None:
        return ""
    if verdict.redundant:
        return f"the engine turns it on anyway: {verdict.reason}"
    return "" if verdict.outcome is Outcome.ACTIVE else f"{verdict.outcome.value}: {verdict.reason}"


@contextmanager
def connected(inventory: str, service: str, host: str | None, changed: Mapping[str, Value]) -> Iterator[Arms]:
    """Connect to the host (by default the first with the service), take it out of the router, and put it back.

    Raises InputError, operations.HostFailed.
    """
    from sglfleet import facts, secrets
    from sglfleet.fleet import connect
    from sglfleet.placing import placed
    from validators.source import InputError, Mark, Problem

    root, known, places = placed(inventory, service, [host] if host else [])
    placement = places[0]
    values, wrong = secrets.resolve(placement.service, os.environ, root)
    if wrong:
        raise InputError([Problem(Mark(inventory), text, "and run it again") for text in wrong])
    name = placement.host.name
    with connect(known, [name]) as fleet:
        if name in fleet.failed:
            raise operations.HostFailed(name, fleet.failed[name])
        reached = fleet.hosts[name]
        told = operations.raw(reached, facts.command(facts.wanted([placement])), 120)
        collected = facts.parse(name, told)
        arms = Arms(fleet.state, reached, known, placement, collected, values, changed, root)
        with _out_of_router(known, service, arms.job(()).release.port, reached):
            yield arms


@contextmanager
def _out_of_router(inventory: Inventory, service: str, port: int, host: Host) -> Iterator[None]:
    """No request but the benchmark's own reaches the node meanwhile."""
    from sglfleet.fleet import connect
    from sglfleet.rollout import address_of, router_there
    from sglfleet.router import Worker

    behind = [n for n, h in inventory.hosts.items() if (h.data.get("router") or {}).get("service") == service]
    if not behind:
        yield
        return
    with connect(inventory, behind) as fleet:
        router = router_there(fleet.state.inventory, service, lambda text: None)
        if router is None:
            yield
            return
        url = f"http://{address_of(host)}:{port}"
        gone = router.remove(url)
        try:
            yield
        finally:
            router.add(gone or Worker(url))
