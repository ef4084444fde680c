"""The answer to one expectation."""

from __future__ import annotations

from dataclasses import dataclass

from validators.verdict import Status


@dataclass(frozen=True, slots=True)
class Sight:
    """What became of an expectation, why, and on what."""

    status: Status
    reason: str  # one sentence
    evidence: tuple[str, ...] = ()  # what was seen, in its own words
    decisive: bool = True  # would look different if the flag did nothing
    word: bool = False  # the server's or the command line's own word: consistent, and no proof


def proven(reason: str, evidence: tuple[str, ...], decisive: bool = True) -> Sight:
    """Seen, by evidence that is named."""
    return Sight(Status.PROVEN, reason, evidence, decisive)


def contradicted(reason: str, evidence: tuple[str, ...] = ()) -> Sight:
    """Looked at completely, and the opposite was seen."""
    return Sight(Status.CONTRADICTED, reason, evidence)


def open_(reason: str, evidence: tuple[str, ...] = (), word: bool = False) -> Sight:
    """Not proven, and why not."""
    return Sight(Status.NOT_PROVEN, reason, evidence, not word, word)
