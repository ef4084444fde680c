"""Plain supervised server processes: what stands in for systemd on a machine that has none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sglfleet.verify.client import Server


@dataclass
class Running:
    """One server process in a session of its own."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    argv: list[str]
    started: float
    healthy: float = 0.0  # seconds until it generated a token; 0: it never did

    @property
    def server(self) -> Server:
        return Server(f"http://127.0.0.1:{self.port}")

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def start(name: str, port: int, flags: list[str], folder: Path, env: dict[str, str] | None = None) -> Running:
    """Start the engine with these flags; its output goes to a file."""
    argv = ["--host", "127.0.0.1", "--port", str(port), *flags]
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *argv],
            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
    return Running(name, port, process, log, argv, time.monotonic())


def wait(running: Running, limit: float) -> bool:
    """Wait until it generates; False where it died, or the time is over."""
    while time.monotonic() - running.started < limit:
        if running.process.poll() is not None:
            return False
        if running.server.ask("/health_generate", timeout=20).status == 200:
            running.healthy = time.monotonic() - running.started
            return True
        time.sleep(0.5)
    return False


def stop(running: Running) -> None:
    """End the whole session: politely, then not."""
    for sign, seconds in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(running.process.pid, sign)
        except ProcessLookupError:
            return
        end = time.monotonic() + seconds
        while time.monotonic() < end and running.process.poll() is None:
            time.sleep(0.2)
