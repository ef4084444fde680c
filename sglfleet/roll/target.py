"""What a host is to serve: one release of one service, and how to reach the server there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglfleet.router import Worker


@dataclass(frozen=True, slots=True)
class Target:
    """Everything a roll must know of a staged release on one host. Kept on the host for later rollbacks; no secrets."""

    host: str
    service: str
    release: str
    port: int
    url: str = ""  # the server as seen from the host itself; default http://127.0.0.1:PORT
    public_url: str = ""  # the server as the router reaches it
    start_timeout: float = 1800.0  # s, the unit's TimeoutStartSec
    stop_timeout: float = 600.0  # s, the unit's TimeoutStopSec
    key_file: str = ""  # root-only file on the host with the API key
    rank: int = 0
    group: str = ""
    role: str = ""
    rack: str = ""
    kept: int = 3  # releases kept on the host
    args: dict[str, Any] = field(default_factory=dict)  # the service's flags, for diagnoses
    verdicts: tuple[str, ...] = ()  # one line each, for the history

    @property
    def base_url(self) -> str:
        return self.url or f"http://127.0.0.1:{self.port}"

    def worker(self) -> Worker:
        """The server as the router is to list it."""
        from sglfleet.router import BOOTSTRAP_PORT, Worker

        return Worker(self.public_url, self.role, int(self.args.get("disaggregation-bootstrap-port") or BOOTSTRAP_PORT))

    @property
    def turn_limit(self) -> float:
        """Seconds that a turn may take on the host by itself: a stop, a failed start, and three tries to go back."""
        return self.stop_timeout * 2 + self.start_timeout * 4 + 60

    def dump(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=True, sort_keys=True)

    @classmethod
    def load(cls, line: str) -> Target:
        """Read back what `dump` wrote, also by a newer version of this program. Raises ValueError."""
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("not an object")
        known = {f.name for f in fields(cls)}
        kept: dict[str, Any] = {
            key: tuple(value) if key == "verdicts" else value for key, value in row.items() if key in known
        }
        try:
            return cls(**kept)
        except TypeError as error:
            raise ValueError(str(error)) from None
