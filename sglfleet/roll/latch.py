"""The latch of a roll: open until the first failure, closed for the whole fleet from then on.

pyinfra executes deploy.py once per host into a fresh dict, so a latch there would be one per host; this module is
imported once.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class LatchClosedError(Exception):
    """A node's turn did not begin, because another one failed."""


@dataclass
class Latch:
    """Closes once and never opens again; the first reason stays."""

    reason: str = ""
    later: list[str] = field(default_factory=list)  # further failures of the same batch

    @property
    def closed(self) -> bool:
        return bool(self.reason)

    def close(self, reason: str) -> None:
        """Called at once on any failure, before anything is done about it."""
        if self.reason:
            self.later.append(reason)
        else:
            self.reason = reason or "failed without a reason"

    def check(self) -> None:
        """Asked right before a node would be touched. Raises LatchClosedError."""
        if self.closed:
            raise LatchClosedError(self.reason)
