"""Which servers were out, and when, by the journals of their hosts: not by the program under test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from lab.fleet import Lab
from tests.lab.rolling import UNIT


def outages(lab: Lab, host: str) -> Iterator[tuple[float, float]]:
    """(from, until) in which the host's server was not up, by the host's journal; the last may be open (inf).

    "Started" and "Stopping" are systemd's own messages; a crash is "Main process exited".
    """
    lab.host(host).exec("journalctl", "--sync")
    out = (
        lab.host(host)
        .exec(
            "journalctl",
            "-o",
            "json",
            "--no-pager",
            "-q",
            "--output-fields=MESSAGE,MESSAGE_ID,_SOURCE_REALTIME_TIMESTAMP",
            f"UNIT={UNIT}",
        )
        .stdout
    )
    down: float | None = None
    up_before = False
    for text in out.splitlines():
        row = json.loads(text)
        when = int(row.get("_SOURCE_REALTIME_TIMESTAMP") or row["__REALTIME_TIMESTAMP"]) / 1e6
        message = row.get("MESSAGE", "")
        if message.startswith("Started "):
            if down is not None:
                yield down, when
            down, up_before = None, True
        elif up_before and down is None and ("Stopping " in message or "Main process exited" in message):
            down = when
    if down is not None:
        yield down, float("inf")


def most_out(lab: Lab, hosts: Sequence[str], since: float) -> int:
    """The largest number of hosts that were out at the same moment since then."""
    edges: list[tuple[float, int]] = []
    for host in hosts:
        for begin, end in outages(lab, host):
            if end > since:
                edges += [(max(begin, since), 1), (end, -1)]
    most = now = 0
    for _, step in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        now += step
        most = max(most, now)
    return most
