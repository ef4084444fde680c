"""The benchmark as the last step of a canary's turn: is the new release slower than what was measured before?

It runs once the release is accepted, with the node still out of the router: a sweep takes longer than a node may
stay without an answer before it goes back by itself. Slower beyond the margin stops the roll as the service file says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglfleet.roll.state import Halt
from sglfleet.verify import benchmark, measuring, runs
from sglfleet.verify.compare import PRIMARY, Comparison, compare
from sglfleet.verify.measuring import Measured
from sglfleet.verify.runs import Run

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from validators.service import Benchmark, Service

ALIKE = ("host_class", "gpu", "model", "input_len", "output_len")  # of two runs that may be compared
TAKEN_BACK = "taken-back"  # folder of runs of releases that did not stay: nothing is compared with them


@dataclass(frozen=True)
class Effect:
    """What the benchmark of one canary gave. `why`: it is slower beyond the margin; "" where nothing is against it."""

    host: str
    service: str
    release: str
    measured: Measured
    earlier: tuple[Run, ...] = ()
    comparison: Comparison | None = None
    why: str = ""
    policy: str = "report"

    def to_json(self) -> dict[str, Any]:
        """For the report of the deploy."""
        from sglfleet.report.effects import comparison_json, problem_lines

        return {
            "host": self.host, "service": self.service, "release": self.release, "runs": len(self.measured.valid),
            "problems": problem_lines(self.measured.problems) + self.measured.failed,
            "effect": self.comparison.verdict() if self.comparison else "not compared",
            "comparison": comparison_json(self.comparison) if self.comparison else None,
            "slower": self.why, "policy": self.policy,
        }  # fmt: skip


class After:
    """Measures the first host of each service that a roll comes to."""

    def __init__(
        self,
        root: Path,
        hosts: Mapping[str, Host],
        services: Mapping[tuple[str, str], Service],
        say: Callable[[str], None],
        proofs: Callable[[str, str], Mapping[str, str]] = lambda host, service: {},
    ) -> None:
        """`proofs`: (host, service) -> what the proof just made says of the flags."""
        self.root, self.hosts, self.services, self.say, self.proofs = root, hosts, services, say, proofs
        self.effects: dict[str, Effect] = {}
        self.begun: set[str] = set()

    def __call__(self, host: str, service: str) -> Halt | None:
        """Why the roll must not go on; None where it may."""
        wanted = self.services[host, service].verify.benchmark
        if wanted is None or service in self.begun:
            return None
        self.begun.add(service)
        self.say(f"{host}: benchmark")
        try:
            effect = self._measure(host, service, wanted)
        except ValueError as error:  # the kept results
            self.say(f"{host}: {service}: not measured: {error}")
            return None
        self.effects[service] = effect
        for line in told(effect):
            self.say(f"{host}: {service}: {line}")
        back = bool(effect.why) and wanted.on_slower == "rollback"
        for run in effect.measured.valid:
            runs.keep(run, self.root / "results" / TAKEN_BACK if back else self.root / "results")
        return Halt(effect.why, back) if effect.why and wanted.on_slower != "report" else None

    def _measure(self, host: str, service: str, wanted: Benchmark) -> Effect:
        from sglfleet import operations
        from sglfleet.running import running

        earlier = measuring.history(self.root / "results", service)
        made, release = Measured(), ""
        try:
            now = running(self.hosts[host], service)
            release = now.release
            where = measuring.class_of(self.root, host)
            target = benchmark.target(now, *where, self.proofs(host, service))
            planned = benchmark.plan(wanted, measuring.fresh_seed())
            for _ in measuring.sorted_out(self.hosts[host], target, planned, now.has_smi, earlier, made):
                pass
        except operations.HostFailed as error:
            made.failed.append(str(error))
        effect = Effect(host, service, release, made, policy=wanted.on_slower)
        before = reference(earlier, made.valid, wanted.repeats)
        if not before:
            return effect
        margin = float(wanted.margin.rstrip("%")) / 100
        comparison = compare(before, made.valid, margin=margin, as_released=True)
        return replace(effect, earlier=tuple(before), comparison=comparison, why=slower(comparison))


def reference(history: Sequence[Run], now: Sequence[Run], repeats: int) -> list[Run]:
    """The last runs of the release that was measured last before, under the same conditions on the same kind of host.

    Where no host class was recorded, only the host itself is of its kind.
    """
    if not now:
        return []

    def kind(run: Run) -> tuple[object, ...]:
        return (*(getattr(run, name) for name in ALIKE), run.host_class or run.host)

    asked = {(run.concurrency, run.prompts) for run in now}
    alike = [
        r
        for r in history
        if kind(r) == kind(now[0]) and r.release != now[0].release and (r.concurrency, r.prompts) in asked
    ]
    if not alike:
        return []
    last = max(alike, key=lambda r: r.started).release
    of_it = sorted((r for r in alike if r.release == last), key=lambda r: r.started)
    return [r for c, _ in sorted(asked) for r in [one for one in of_it if one.concurrency == c][-repeats:]]


def slower(comparison: Comparison) -> str:
    """Why the release is too slow: throughput fell by more than the margin, and not by chance. Else empty."""
    found = [e for e in comparison.effects if e.metric == PRIMARY and e.verdict == "slower" and e.ratio < 1 - e.margin]
    if comparison.verdict() != "slower" or not found:
        return ""
    parts = [f"{1 - e.ratio:.1%} at concurrency {e.concurrency} (margin {e.margin:.0%})" for e in found]
    return f"slower than {comparison.a}: {', '.join(parts)}"


def told(effect: Effect) -> list[str]:
    """What people read while the roll goes on."""
    from sglfleet.report.effects import problem_lines, sentence

    lines = problem_lines(effect.measured.problems) + effect.measured.failed
    if effect.comparison is not None:
        return [*lines, *problem_lines(effect.comparison.problems), sentence(effect.comparison)]
    if effect.measured.valid:
        return [*lines, f"measured, {len(effect.measured.valid)} valid runs; nothing of its kind to compare with"]
    return [*lines, "not measured: no valid run"]
