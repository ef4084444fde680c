"""The node's lock: who rolls here, since when, and whether that controller can still be alive.

The lock is a lease in the host's own uptime (see `node.sh`), so that no clock matters. A holder on this very machine
whose process is gone is stale at once; any other one when its lease ran out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

LEASE = 60  # s without a sign of life until a lock is stale
RENEW = 15  # s between two signs of life


def origin() -> str:
    """This process, so that a later one on the same machine can see whether it still runs."""
    return f"{socket.gethostname()}|{_boot()}|{os.getpid()}|{_started(os.getpid())}"


def dead(holder: Mapping[str, str]) -> bool:
    """True only where the holder ran on this machine and certainly does not any more."""
    parts = holder.get("origin", "").split("|")
    if len(parts) != 4 or parts[0] != socket.gethostname() or not parts[2].isdigit():
        return False
    if parts[1] != _boot():
        return True
    return _started(int(parts[2])) != parts[3]


def describe(host: str, holder: Mapping[str, str]) -> str:
    """One line for the second operator."""
    age = int(holder.get("age", "0") or 0) if (holder.get("age") or "0").isdigit() else 0
    left = max(0, int(holder.get("lease", str(LEASE)) or LEASE) - age)
    return (
        f"{host}: locked by {holder.get('who', 'somebody')} since {holder.get('since', 'an unknown time')}, "
        f"last sign of life {age} s ago: wait for that roll; without another sign the lock is stale in {left} s"
    )


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty where it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
