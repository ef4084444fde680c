"""What people reported of rolling restarts, and what this project does about each. Sources are public reports."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglfleet import health, rollout
from sglfleet.diagnosis import diagnose
from sglfleet.roll.plan import Node, Policy, plan

SERVER = Path(__file__).parents[2] / "lab" / "standin_server.py"
ROOT = Path(__file__).parents[3]


def test_a_leftover_scheduler_holds_a_port() -> None:
    """sgl-project/sglang#31645: the next start fails, for over an hour."""
    found = diagnose("ValueError: Port is already in use. dist_init_port=30001 port_base=30002")
    assert found[0].id == "port-taken"
    assert "leftover scheduler" in found[0].do


def test_health_503_under_long_prefill() -> None:
    """sgl-project/sglang#22511: one 503 is no reason to restart; several without any progress are."""
    assert health.health_problems([503], progress=False) == []
    assert health.health_problems([503, 503, 503, 503], progress=True) == []
    assert health.health_problems([503] * health.HEALTH_FAILURES, progress=False)


def test_a_probe_of_one_second_flaps() -> None:
    """modelplaneai/modelplane#206: the handler sleeps a second before it answers."""
    assert health.HEALTH_TIMEOUT >= 5


@pytest.mark.parametrize("flag", ["--serial", "--no-wait"])
def test_pyinfra_modes(flag: str) -> None:
    """pyinfra 3.10.0: --serial goes on after a failed host, --no-wait ends with 0 although one failed."""
    assert rollout.mode_problem(["pyinfra", flag])


def test_a_needless_change_restarts_nothing() -> None:
    """pyinfra-dev/pyinfra#1137: "changed" files are no reason to restart; what counts is what the process runs."""
    same = [Node("h1", "r1", running="r1", serving=True)]
    assert plan(same, Policy()).batches == ()


def test_connections_get_keepalives() -> None:
    """pyinfra-dev/pyinfra#1220: idle sessions die while another host loads a model for 20 minutes."""
    from sglfleet.fleet import KEEPALIVE, keep_alive

    asked: list[int] = []
    transport = SimpleNamespace(set_keepalive=asked.append)
    client = SimpleNamespace(get_transport=lambda: transport)
    keep_alive(SimpleNamespace(connector=SimpleNamespace(client=client)))  # type: ignore[arg-type]
    assert asked == [KEEPALIVE]
    keep_alive(SimpleNamespace(connector=SimpleNamespace()))  # type: ignore[arg-type]


# --- sgl-project/sglang#38524: the router had no worker for a second during a rolling update --------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def routed(router_venv: Path) -> Iterator[tuple[int, list[str]]]:
    """The real router on this machine, and three stand-ins that it does not know yet."""
    ports = [free_port() for _ in range(3)]
    port = free_port()
    made = [subprocess.Popen([sys.executable, SERVER, "--port", str(p)], stdout=subprocess.DEVNULL) for p in ports]
    launch = [
        f"{router_venv}/bin/python",
        "-m",
        "sglang_router.launch_router",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    launch += ["--prometheus-port", str(free_port()), "--policy", "round_robin"]
    made.append(subprocess.Popen(launch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield port, [f"http://127.0.0.1:{p}" for p in ports]
    finally:
        for process in made:
            process.kill()
            process.wait()


SCRIPT = """
import json, sys
from types import SimpleNamespace
from sglfleet.fleet import connect
from sglfleet.roll.remote import Remote
from sglfleet.roll.state import RouterError
from sglfleet.router import Router, Worker, parse
port, urls = int(sys.argv[1]), sys.argv[2:]
data = {"service": "x", "port": port, "host": "127.0.0.1"}
with connect(SimpleNamespace(hosts={"@local": SimpleNamespace(data={})})) as fleet:
    router = Router(Remote(fleet.hosts["@local"], "x"), parse(data, "test"), nodes={"": 2})
    router._write = lambda: None  # /etc belongs to this machine
    router.wait_ready()
    listed = lambda: sorted(row["url"] for row in router.workers())
    told = {"first": router.keep(map(Worker, urls[:2]), urls[:2]), "listed": listed()}
    told["replaced"] = router.keep(map(Worker, urls[2:]), urls[2:])
    told["then"] = listed()
    router.remove("http://127.0.0.1:1")
    try:
        router.remove(urls[2])
        told["last"] = "removed"
    except RouterError as error:
        told["last"] = str(error)
    print("TOLD", json.dumps(told))
"""


@pytest.mark.lab
def test_the_router_never_has_no_worker(routed: tuple[int, list[str]]) -> None:
    port, urls = routed
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(port), *urls], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    seen: list[int] = []
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/workers", timeout=5) as answer:
                seen.append(json.load(answer)["total"])
        except OSError:
            pass  # it is starting
        time.sleep(0.02)
    out = process.stdout.read() if process.stdout else ""
    told = json.loads(next(line for line in out.splitlines() if line.startswith("TOLD")).removeprefix("TOLD"))
    assert told["listed"] == sorted(urls[:2])
    assert told["replaced"] == [f"added {urls[2]}", *(f"removed {url}" for url in sorted(urls[:2]))]
    assert told["then"] == urls[2:]
    assert "no healthy worker would be left" in told["last"]
    first = next(i for i, total in enumerate(seen) if total)
    assert 0 not in seen[first:], "a list that was once filled never is empty again"
