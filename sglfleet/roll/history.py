"""The history that every host keeps: one JSON object a line, in `/var/lib/sglfleet/<service>/history.jsonl`."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

SCHEMA_VERSION = 1


def line(
    *,
    who: str,
    run: str,
    service: str,
    release: str,
    previous: str,
    result: str,
    reason: str = "",
    gate: Mapping[str, Any] | None = None,
    diagnoses: Sequence[str] = (),
    verdicts: Sequence[str] = (),
    seconds: float = 0.0,
    now: datetime | None = None,
) -> str:
    """One line. Time is the controller's, in UTC."""
    row = {
        "schema_version": SCHEMA_VERSION,
        "time": (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "who": who,
        "run": run,
        "service": service,
        "release": release,
        "previous": previous,
        "result": result,
        "reason": reason,
        "gate": dict(gate or {}),
        "diagnoses": list(diagnoses),
        "verdicts": list(verdicts),
        "seconds": round(seconds, 1),
    }
    return json.dumps(row, ensure_ascii=True)


def operator() -> str:
    """user@machine of whoever runs this."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
