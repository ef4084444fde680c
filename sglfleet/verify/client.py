"""A small HTTP client for the server under proof. Standard library only: also sent to hosts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Status and body; status 0 means that nobody answered, and the body says why."""

    status: int
    body: str

    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Server:
    """Where the server listens, as seen from where this runs."""

    url: str  # "http://127.0.0.1:30000"
    key: str = ""  # API key; never logged

    def ask(self, path: str, data: Any = None, timeout: float = 30, key: bool = True) -> Answer:
        """GET, or POST where there is data. Never raises for what the other side does."""
        try:
            with self._open(path, data, timeout, key) as response:
                return Answer(response.status, response.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(65536).decode(errors="replace"))
        except (OSError, ValueError, EOFError) as error:
            return Answer(0, f"{type(error).__name__}: {error}")

    def stream(self, path: str, data: Any, timeout: float = 60) -> Iterator[Any]:
        """Server-sent events of a streaming request, decoded. Raises OSError where it breaks."""
        with self._open(path, data, timeout, True) as response:
            for raw in response:
                line = raw.decode(errors="replace").strip()
                if line.startswith("data:") and line != "data: [DONE]":
                    try:
                        yield json.loads(line[5:])
                    except ValueError:
                        continue

    def _open(self, path: str, data: Any, timeout: float, key: bool) -> Any:
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if key and self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data=body, headers=headers)  # noqa: S310
        # no proxy: the server is on this host, or was named by its own address
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout)
