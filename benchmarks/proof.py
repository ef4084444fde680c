"""What a proof costs a server that is at work: seconds of each layer, and how much slower other requests get meanwhile.

    python -m benchmarks.proof

Starts the real engine on this machine's CPU (`make engine` builds it), sends it one request after another, and asks
everything a proof asks, first without, then with a profile. Prints one JSON object: the ratio of the requests' median
time during the proof to that before it, and the seconds of the layers. The goals: layers 1 to 3 below 20 s, the profile
below 60 s. On two cores the proof's own requests compete with the others for the processor, as they do not on a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from lab import engine as engines
from lab.settings import LabError, settings
from sglfleet.verify.client import Server
from sglfleet.verify.collect import collect
from sglfleet.verify.workload import generate, prompt

PORT, WARM = 39017, 15.0  # seconds of requests before the proof
CPU = "--device cpu --max-total-tokens 16384 --attention-backend torch_native --enable-metrics --sleep-on-idle"
ENV = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Stream:
    """One request after another; what each took, by when it began."""

    def __init__(self, server: Server) -> None:
        self.server, self.failed, self.going = server, 0, True
        self.took: list[tuple[float, float]] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for salt in range(10**6):
            if not self.going:
                return
            begin = time.monotonic()
            answer = generate(self.server, prompt(64, 5000 + salt), 8)
            self.failed += answer.status != 200
            self.took.append((begin, time.monotonic() - begin))

    def median(self, begin: float, end: float) -> float:
        return float(statistics.median([took for at, took in self.took if begin <= at < end]))


def main() -> None:
    try:
        engine = engines.find(settings().cache)
    except LabError as error:
        print(f"left out: {error}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        command = [engine.python, "-m", "sglang.launch_server", "--model-path", engine.model, "--port", str(PORT)]
        with log.open("w") as out:
            child = subprocess.Popen(
                [str(word) for word in (*command, *CPU.split())],
                env={**os.environ, **ENV}, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        try:
            print(json.dumps(measure(child.pid)))
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def measure(pid: int) -> dict[str, object]:
    server = Server(f"http://127.0.0.1:{PORT}")
    while server.ask("/health_generate", timeout=20).status != 200:
        time.sleep(1)
    stream = Stream(server)
    time.sleep(WARM)
    told: dict[str, object] = {}
    begin = time.monotonic()
    before = stream.median(begin - WARM, begin)
    for name, profile in (("layers 1 to 3", False), ("with a profile", True)):
        begin = time.monotonic()
        raw = collect({"pid": pid, "url": server.url, "profile": profile})
        end = time.monotonic()
        told[name] = {
            "seconds": round(end - begin, 1),
            "of it": raw["seconds"],
            "ratio": round(stream.median(begin, end) / before, 2),
            "gaps": raw["gaps"] if not profile or "profile" in raw["gaps"] else {},
        }
    stream.going = False
    stream.thread.join(60)
    return {**told, "requests": len(stream.took), "failed": stream.failed, "load": os.getloadavg()[0]}


if __name__ == "__main__":
    main()
