"""Constant requests to a server or a router, streamed and not; every one that fails or is cut is kept."""

from __future__ import annotations

import json
import threading
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from tests.lab.rolling import KEY


@dataclass
class Load:
    """Constant requests to one address from threads, every other one streamed; every failure is kept."""

    url: str
    threads: int = 4
    seconds: float = 0.5  # how long the stand-in takes for one; 0: the real engine, as long as it takes
    done: int = 0
    failures: list[str] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._stop = threading.Event()
        self._pool = [threading.Thread(target=self._run, args=(i % 2 == 0,), daemon=True) for i in range(self.threads)]
        for thread in self._pool:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._pool:
            thread.join(130)

    def _run(self, stream: bool) -> None:
        sampling = {"max_new_tokens": 12 if self.seconds else 48, "ignore_eos": True}
        body: dict[str, Any] = {"text": "one two", "stream": stream, "sampling_params": sampling}
        if self.seconds:
            body["seconds"] = self.seconds
        while not self._stop.is_set():
            try:
                request = urllib.request.Request(
                    f"{self.url}/generate",
                    json.dumps(body).encode(),
                    {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
                )
                with urllib.request.urlopen(request, timeout=120) as answer:
                    text = answer.read().decode()
                whole = text.rstrip().endswith("[DONE]") if stream else bool(json.loads(text)["text"])
                self.done += 1
                if not whole:
                    self.failures.append(f"cut after {len(text)} bytes")
            except Exception as error:
                self.failures.append(repr(error))
