"""What a roll costs beyond what must be: `python -m benchmarks.rolling`, as root, on a machine that can hold a lab.

Four lab hosts, stand-ins that take ten seconds to start, `max_unavailable: 2`, a soak of twenty seconds. What must be
is, for each batch, the longest of: waiting for running requests, stop and start as the host measured them, the soak.
Everything else counts as overhead, the health gate's own questions too. Prints one JSON object; the goal is 10 %.
"""

from __future__ import annotations

import json
import os

from lab.fleet import Lab
from lab.settings import settings
from tests.lab import rolling

HOSTS = ["h1", "h2", "h3", "h4"]
BATCHES = (("h1",), ("h2", "h3"), ("h4",))
SOAK = 20.0
OLD, NEW = "bench0000001", "bench0000002"


def main() -> None:
    lab = Lab(settings(environ={"LAB_NAME": "bench", "LAB_NET": "10.77.201.0/24", **os.environ}))
    lab.up(len(HOSTS))
    try:
        for release in (OLD, NEW):
            rolling.stage(lab, HOSTS, release, rolling.Kind(delay=10.0, start=60))
        rolling.place(lab, HOSTS, OLD)
        policy = {"soak": SOAK, "max_unavailable": 2}
        report = rolling.roll(lab, dict.fromkeys(HOSTS, NEW), policy, start_timeout=60.0)
        assert report["exit"] == 0, report
        hosts = report["hosts"]
        must = sum(max(hosts[h]["stages"]["host"] + SOAK for h in batch) for batch in BATCHES)
        gates = sum(max(float(hosts[h]["gate"]["seconds"]) for h in batch) for batch in BATCHES)
        print(
            json.dumps(
                {
                    "seconds": report["seconds"],
                    "must": round(must, 1),
                    "overhead": round(report["seconds"] / must - 1, 3),
                    "of_it_gate": round(gates / must, 3),
                    "load": os.getloadavg()[0],
                    "cores": os.cpu_count(),
                }
            )
        )
    finally:
        lab.down()


if __name__ == "__main__":
    main()
