"""The SGLang router as a unit of its own, and its worker list kept right while nodes change.

Adding and removing a worker only queues the work (202), so every call here waits until the list shows it: a roll that
goes on too early leaves the router without a worker for a second. Seen with sglang-router 0.3.2: requests that run on
a removed worker, streams too, end undisturbed, also those of a pair of prefill and decode.

The router never gets the servers' API key: it hands the client's own on, and the server checks it. Seen with 0.3.2: a
router that has a worker's key puts it into requests that bring none and in the place of wrong ones, so that everybody
is served.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any

from sglfleet.roll.remote import LostError, RefusedError, Remote, text
from sglfleet.roll.state import RouterError, nap

VERSION = "0.3.2"  # the release all of this was run with
POLICIES = ("random", "round_robin", "cache_aware", "power_of_two", "manual")
LISTED = 120.0  # s until a change must show in the list
AGAIN = 20.0  # s in which a router that does not answer is asked again: systemd may be restarting it, or it is busy
BOOTSTRAP_PORT = 8998  # SGLang's own default of --disaggregation-bootstrap-port
READY = 60.0  # s until a started router must answer
PAIR = "--pd-disaggregation"
ROOT = "/opt/sglfleet/routers"


@dataclass(frozen=True, slots=True)
class Worker:
    """A server as the router lists it."""

    url: str
    role: str = ""  # "", "prefill", "decode"
    bootstrap_port: int = BOOTSTRAP_PORT  # of a prefill server: where decode servers fetch the KV cache

    def request(self) -> dict[str, Any]:
        """Body of POST /workers."""
        if self.role == "prefill":
            return {"url": self.url, "worker_type": "prefill", "bootstrap_port": self.bootstrap_port}
        return {"url": self.url, "worker_type": self.role} if self.role else {"url": self.url}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Worker:
        """From the router's own list."""
        kind = str(row.get("worker_type") or "")
        port = row.get("bootstrap_port") or BOOTSTRAP_PORT
        return cls(str(row.get("url")), kind if kind in ("prefill", "decode") else "", int(port))


@dataclass(frozen=True, slots=True)
class Spec:
    """`router` in a host's or group's data."""

    service: str
    port: int = 30000
    host: str = "0.0.0.0"  # noqa: S104 - clients come from elsewhere
    policy: str = "cache_aware"
    version: str = VERSION
    venv: str = "managed"  # or a path on the host
    index_url: str = ""
    prometheus_port: int = 29000
    stop_timeout: int = 600  # s, the longest request a stop waits for

    @property
    def unit(self) -> str:
        return f"sglang-router-{self.service}.service"

    @property
    def home(self) -> str:
        return f"{ROOT}/{self.version}" if self.venv == "managed" else self.venv

    @property
    def workers_file(self) -> str:
        return f"/etc/sglfleet/router-{self.service}/workers"


def parse(data: Mapping[str, Any], where: str) -> Spec:
    """The spec of a host's data. Raises ValueError with every mistake, one a line."""
    known = {item.name: item for item in fields(Spec)}
    wrong = [f"{where}: router has no key {key!r}: take one of {', '.join(known)}" for key in data if key not in known]
    if not isinstance(data.get("service"), str):
        wrong.append(f"{where}: router names no service: add service: NAME")
    for key in ("port", "prometheus_port", "stop_timeout"):
        if not isinstance(data.get(key, 1), int) or not 0 < data.get(key, 1) < 65536:
            wrong.append(f"{where}: router {key} {data[key]!r} is no number from 1 to 65535: correct it")
    if data.get("policy", "random") not in POLICIES:
        wrong.append(f"{where}: router policy {data['policy']!r} is unknown: take one of {', '.join(POLICIES)}")
    venv = data.get("venv", "managed")
    if venv != "managed" and not (isinstance(venv, str) and PurePosixPath(venv).is_absolute()):
        wrong.append(f"{where}: router venv {venv!r}: give an absolute path or managed")
    if wrong:
        raise ValueError("\n".join(sorted(wrong)))
    return Spec(**dict(data))


def unit_text(spec: Spec, *, pair: bool = False) -> str:
    """The unit, pure. `pair`: its servers prefill or decode, and every request needs one of each."""
    from sglfleet import templates

    argv = [f"{spec.home}/bin/python", "-m", "sglang_router.launch_router"]
    argv += ["--host", spec.host, "--port", str(spec.port), "--prometheus-port", str(spec.prometheus_port)]
    argv += ["--policy", spec.policy, "--worker-startup-check-interval", "1"]
    argv += ["--shutdown-grace-period-secs", str(spec.stop_timeout)]
    argv += [PAIR] if pair else []
    return templates.fill(
        "sglang-router.service.j2",
        service=spec.service,
        argv=argv,
        workers_file=spec.workers_file,
        stop_timeout=spec.stop_timeout,
    )


def workers_line(workers: Iterable[Worker]) -> str:
    """Content of the worker file: an EnvironmentFile."""
    listed = sorted(workers, key=lambda worker: worker.url)
    words = [f"--prefill {w.url} {w.bootstrap_port}" for w in listed if w.role == "prefill"]
    words += [f"--decode {w.url}" for w in listed if w.role == "decode"]
    plain = [w.url for w in listed if not w.role]
    words += ["--worker-urls " + " ".join(plain)] if plain else []
    return f'WORKERS="{" ".join(words)}"\n'


def deploy(remote: Remote, spec: Spec, *, pair: bool = False) -> bool:
    """Install, write the unit, start. True where the unit changed (and the router restarted). Raises RouterError."""
    import base64

    words = [spec.unit, spec.home, spec.version, "yes" if spec.venv == "managed" else "no", spec.index_url]
    words.append(spec.workers_file)
    script = f"set -- {' '.join(shlex.quote(word) for word in words)}\n{text('router.sh')}"
    try:
        output = remote.sh(
            script, stdin=base64.encodebytes(unit_text(spec, pair=pair).encode()).decode(), timeout=600.0
        )
    except LostError as error:
        raise RouterError(f"{remote.name}: {error}") from None
    if not output.ok:
        last = (output.err or output.out).strip().splitlines()
        raise RouterError(f"{remote.name}: {last[-1] if last else 'the router could not be deployed'}")
    Router(remote, spec).wait_ready()
    return "changed=yes" in output.out


@dataclass
class Router:
    """A running router, asked on its own host through the connection that exists."""

    remote: Remote
    spec: Spec
    say: Callable[[str], None] = print
    nodes: Mapping[str, int] = field(default_factory=dict)  # role -> nodes that the service has
    _turnstile: Any = field(default=None, repr=False)

    def workers(self) -> list[dict[str, Any]]:
        """The list, as the router tells it. Raises RouterError."""
        end = time.monotonic() + AGAIN
        status, said = self._call("GET", "/workers")
        while status != 200 and time.monotonic() < end:
            nap(1.0)
            status, said = self._call("GET", "/workers")
        if status != 200:
            raise RouterError(
                f"router on {self.remote.name}: GET /workers answered {status or 'nothing'}: {said[:200]}"
            )
        try:
            return [dict(row) for row in json.loads(said)["workers"]]
        except (ValueError, KeyError, TypeError):
            raise RouterError(f"router on {self.remote.name}: GET /workers: unreadable: {said[:200]}") from None

    def remove(self, url: str) -> Worker | None:
        """Out of the list; what it was there. Where the service has several nodes of its role, one healthy one stays.

        Raises RouterError where none would be left: better late than zero.
        """
        with self._one_at_a_time():
            rows = self.workers()
            mine = [row for row in rows if row.get("url") == url]
            if not mine:
                return None
            gone = Worker.of(mine[0])
            others = [row for row in rows if row.get("url") != url and Worker.of(row).role == gone.role]
            several = others or self.nodes.get(gone.role, 1) > 1
            if several and not any(row.get("is_healthy") for row in others) and any(r.get("is_healthy") for r in mine):
                what = f"healthy {gone.role or 'worker'}{' server' if gone.role else ''}"
                raise RouterError(f"router on {self.remote.name}: without {url} no {what} would be left")
            for row in mine:
                self._call("DELETE", f"/workers/{row['id']}")
            self._until(lambda rows: all(row.get("url") != url for row in rows), f"{url} is still listed")
            self._write()
            return gone

    def add(self, worker: Worker) -> None:
        """Into the list, and healthy there."""
        with self._one_at_a_time():
            if not any(row.get("url") == worker.url for row in self.workers()):
                status, said = self._call("POST", "/workers", worker.request())
                if status not in (200, 201, 202):
                    raise RouterError(f"router on {self.remote.name}: POST /workers answered {status}: {said[:200]}")
            self._until(
                lambda rows: any(row.get("url") == worker.url and row.get("is_healthy") for row in rows),
                f"{worker.url} is not listed as healthy",
            )
            self._write()

    def keep(self, serving: Iterable[Worker], allowed: Iterable[str] | None) -> list[str]:
        """All of `serving` in the list, nothing outside of `allowed` (None: whatever else).

        Additions come first, so that the list is never empty between.

        Returns what was changed. A listed worker that is allowed and not known to serve stays: the router looks after
        it itself, and it may only be out of our reach.
        """
        rows = self.workers()
        healthy = {str(row.get("url")) for row in rows if row.get("is_healthy")}
        changes = []
        for worker in dict.fromkeys(serving):
            if worker.url in healthy:
                continue
            try:
                self.add(worker)
                changes.append(f"added {worker.url}")
            except RouterError as error:
                self.workers()  # raises where the router itself does not answer
                changes.append(f"{error}; a sick server is no reason not to go on")
        listed = {str(row.get("url")) for row in rows}
        for url in sorted(listed - set(allowed)) if allowed is not None else ():
            self.remove(url)
            changes.append(f"removed {url}")
        return changes

    def wait_ready(self) -> None:
        """Until the router answers at all; that needs no worker."""
        end = time.monotonic() + READY
        while self._call("GET", "/workers")[0] != 200:
            if time.monotonic() > end:
                raise RouterError(f"router on {self.remote.name}: does not answer {READY:.0f} s after its start")
            nap(0.5)

    def _until(self, shown: Callable[[list[dict[str, Any]]], bool], otherwise: str) -> None:
        end = time.monotonic() + LISTED
        while not shown(self.workers()):
            if time.monotonic() > end:
                raise RouterError(f"router on {self.remote.name}: {otherwise} after {LISTED:.0f} s")
            nap(0.2)

    def _write(self) -> None:
        """Remember the list for a restart of the router. Failing that is no reason to stop a roll."""
        line = workers_line(Worker.of(row) for row in self.workers())
        file = shlex.quote(self.spec.workers_file)
        try:
            self.remote.sh(
                f'mkdir -p "$(dirname {file})" && printf %s {shlex.quote(line)} > {file}.new && mv -T {file}.new {file}'
            )
        except LostError as error:
            self.say(f"router on {self.remote.name}: the worker list could not be remembered: {error}")

    def _call(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        host = "127.0.0.1" if self.spec.host == "0.0.0.0" else self.spec.host  # noqa: S104
        job = {"what": "http", "url": f"http://{host}:{self.spec.port}", "method": method, "path": path, "body": body}
        try:
            answer = self.remote.ask(job, timeout=30.0)
        except (LostError, RefusedError) as error:
            return 0, str(error)
        return int(answer.get("status") or 0), str(answer.get("text") or answer.get("error") or "")

    def _one_at_a_time(self) -> Any:
        from gevent.lock import BoundedSemaphore

        if self._turnstile is None:
            self._turnstile = BoundedSemaphore(1)
        return self._turnstile
