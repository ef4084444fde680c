"""The result of a proof as a document: per host and service what was proven, in one shape for every report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sglfleet.exits import Exit
from sglfleet.verify.correctness import Correctness
from sglfleet.verify.effective import Row
from sglfleet.verify.findings import Proof, summary, worst
from validators.verdict import Decision, Evidence, Expectation, Outcome, Status, Verdict

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class HostProof:
    """One service on one host."""

    host: str
    service: str
    release: str = ""
    sglang: str = ""
    url: str = ""
    error: str = ""  # it could not be looked at, or, with proofs, died while it was
    proofs: tuple[Proof, ...] = ()
    rows: tuple[Row, ...] = ()
    correctness: Correctness | None = None
    disagreements: tuple[str, ...] = ()  # between the probe and the judgement
    diagnosis: tuple[str, ...] = ()  # of a server that did not come up
    gaps: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    outputs: tuple[Mapping[str, Any], ...] = ()  # greedy answers, as a reference for later

    @property
    def status(self) -> Status:
        """The service as a whole: correctness counts like a flag."""
        if self.error and not self.proofs:
            return Status.NOT_PROVEN
        wrong = self.correctness is not None and self.correctness.status is Status.CONTRADICTED
        return Status.CONTRADICTED if wrong else worst(self.proofs)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "host": self.host, "service": self.service, "release": self.release, "sglang": self.sglang, "url": self.url,
            "status": str(self.status), "error": self.error, "summary": dict(summary(self.proofs)),
            "proofs": [p.to_json() for p in self.proofs], "arguments": [r.to_json() for r in self.rows],
            "correctness": self.correctness.to_json() if self.correctness else None,
            "disagreements": list(self.disagreements), "diagnosis": list(self.diagnosis), "gaps": dict(self.gaps),
            "seconds": dict(self.seconds), "outputs": [dict(o) for o in self.outputs],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Document:
    """Everything one run of `verify` or `doctor` found."""

    source: str  # inventory, URL or host
    started: str  # ISO 8601, UTC
    hosts: tuple[HostProof, ...]

    def exit(self, strict: bool = False) -> Exit:
        """1 contradicted, 4 a host that could not be looked at, 3 with `strict` for anything not proven."""
        codes = {Exit.REFUSED for h in self.hosts if h.status is Status.CONTRADICTED}
        codes |= {Exit.HOST_FAILED for h in self.hosts if h.error}
        if strict and any(p.status is Status.NOT_PROVEN for h in self.hosts for p in h.proofs):
            codes.add(Exit.STRICT)
        return Exit.worst(codes)

    def to_json(self) -> dict[str, Any]:
        """Plain data with its version."""
        return {
            "schema_version": SCHEMA_VERSION, "kind": "proof", "source": self.source, "started": self.started,
            "exit": int(self.exit()), "hosts": [h.to_json() for h in self.hosts],
        }  # fmt: skip


def verdicts(rows: Iterable[Mapping[str, Any]]) -> tuple[Verdict, ...]:
    """Verdicts as a release's manifest or `sglfleet judge` writes them. Unknown keys are left alone."""
    return tuple(_verdict(row) for row in rows)


def _verdict(row: Mapping[str, Any]) -> Verdict:
    return Verdict(
        flag=str(row["flag"]),
        value=row.get("value"),
        outcome=Outcome(row["outcome"]),
        decision=Decision(row["decision"]),
        reason=str(row.get("reason", "")),
        rule=str(row.get("rule", "")),
        evidence=tuple(_evidence(e) for e in row.get("evidence") or ()),
        expects=tuple(_expectation(e) for e in row.get("expects") or ()),
        automatic=bool(row.get("automatic")),
        redundant=bool(row.get("redundant")),
        replacement=dict(row.get("replacement") or {}),
        becomes=str(row.get("becomes") or ""),
        waiver=str(row.get("waiver") or ""),
    )


def _evidence(row: Mapping[str, Any]) -> Evidence:
    known = {name: row[name] for name in ("artifact", "file", "symbol", "line", "condition") if name in row}
    return Evidence(**{"artifact": "", "file": "", **known})


def _expectation(row: Mapping[str, Any]) -> Expectation:
    source = row.get("source")
    return Expectation(
        row["kind"], str(row.get("present") or ""), str(row.get("absent") or ""), str(row.get("where") or ""),
        _evidence(source) if isinstance(source, Mapping) else None,
    )  # fmt: skip
