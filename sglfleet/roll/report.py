"""What a roll did, for people and machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sglfleet.exits import Exit
from sglfleet.roll.state import Outcome

SCHEMA_VERSION = 1


@dataclass
class Report:
    """One service's roll. `closed` is the reason why the latch closed, empty where it did not."""

    service: str
    run: str = ""
    plan: tuple[str, ...] = ()
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)  # hosts that could not be reached before anything began
    closed: str = ""
    refused: tuple[str, ...] = ()  # nothing was begun: somebody else's lock, or too many nodes out
    rolled_back: dict[str, Outcome] = field(default_factory=dict)  # nodes done before, taken back by `on_failure`
    seconds: float = 0.0

    @property
    def changed(self) -> tuple[str, ...]:
        """Hosts that serve another release than before."""
        return tuple(
            host for host, o in self.outcomes.items() if o.result == "accepted" and host not in self.rolled_back
        )

    @property
    def failures(self) -> dict[str, str]:
        """Hosts that do not serve what they were to, with the reason."""
        text = dict(self.out)
        for host, outcome in self.outcomes.items():
            if host in self.rolled_back:
                text[host] = f"taken back to its previous release: {self.closed}"
            elif outcome.reason:
                text[host] = f"{outcome.stage}: {outcome.reason}"
            elif outcome.result == "untouched":
                text[host] = f"not changed: {self.closed or '; '.join(self.refused)}"
        return text

    @property
    def exit(self) -> Exit:
        if self.closed or self.refused or self.out:
            return Exit.HOST_FAILED
        return Exit.FINE

    def as_json(self) -> dict[str, Any]:
        """The document; its schema is `schemas/rollout.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "service": self.service,
            "run": self.run,
            "exit": int(self.exit),
            "closed": self.closed,
            "refused": list(self.refused),
            "unreachable": dict(self.out),
            "hosts": {host: asdict(outcome) for host, outcome in self.outcomes.items()},
            "rolled_back": {host: asdict(outcome) for host, outcome in self.rolled_back.items()},
            "plan": list(self.plan),
            "seconds": round(self.seconds, 1),
        }

    def lines(self) -> list[str]:
        """Which node has what, and why it stopped."""
        text = []
        for host, first in self.outcomes.items():
            outcome = self.rolled_back.get(host, first)
            taken = ", taken back" if host in self.rolled_back else ""
            text.append(f"  {host}: {outcome.result}{taken}, serves {outcome.serves[:12] or 'nothing'}")
            if outcome.reason:
                text.append(f"    {outcome.stage}: {outcome.reason}")
            text += [f"    known: {item}" for item in outcome.diagnoses]
            text += [f"    | {line}" for line in outcome.log if not outcome.good and outcome.log]
            if outcome.warning:
                text.append(f"    warning: {outcome.warning}")
        text += [f"  {host}: unreachable: {reason}" for host, reason in self.out.items()]
        text += [f"  refused: {reason}" for reason in self.refused]
        if self.closed:
            text.append(f"  stopped: {self.closed}")
        state = "stopped" if self.closed else "refused" if self.refused else "done"
        count = len(self.changed)
        return [f"{self.service}: {state}, {count} host{'s' * (count != 1)} changed in {self.seconds:.1f} s", *text]
