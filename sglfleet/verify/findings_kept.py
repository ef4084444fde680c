"""The last proof of a service on a host, as `verify` and deploys keep it: for measurements, which rest on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validators.verdict import Status

REPORTS = Path("reports")


@dataclass(frozen=True, slots=True)
class Kept:
    """What was found of every flag of one release on one host."""

    path: Path
    started: str  # ISO 8601, UTC
    release: str
    status: Mapping[str, Status]  # by flag
    reason: Mapping[str, str]  # by flag

    def unproven(self, flags: Iterable[str]) -> tuple[str, ...]:
        """Those of `flags` that were not seen working; one that nobody looked for is among them."""
        return tuple(name for name in flags if self.status.get(name) is not Status.PROVEN)

    def contradicted(self, flags: Iterable[str]) -> tuple[str, ...]:
        """Those of `flags` that were seen not to work."""
        return tuple(name for name in flags if self.status.get(name) is Status.CONTRADICTED)


def last(service: str, host: str, release: str = "", folder: Path = REPORTS) -> Kept | None:
    """The newest kept proof of `service` on `host`; with `release`, of exactly that release. None: there is none.

    A proof in which the host could not be asked says nothing and is passed over, as is a file that is none.
    """
    for path in sorted(folder.glob("proof-*.json"), reverse=True):  # names begin with the time
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            rows = [r for r in data["hosts"] if r["host"] == host and r["service"] == service and not r["error"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for row in rows:
            if not release or row["release"] == release:
                return _kept(path, str(data.get("started", "")), row)
    return None


def _kept(path: Path, started: str, row: Mapping[str, Any]) -> Kept:
    proofs = row["proofs"]
    return Kept(
        path,
        started,
        str(row["release"]),
        {p["flag"]: Status(p["status"]) for p in proofs},
        {p["flag"]: str(p["reason"]) for p in proofs},
    )
