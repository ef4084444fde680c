"""The deploy with the real engine on the CPU: what the unit does to a real server, and what that does with a key."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.engine import Engine
from lab.fleet import Lab
from tests.lab.deploying import Project, pid, shown

pytestmark = [pytest.mark.lab, pytest.mark.engine]
KEY = "k3y-that-n0body-may-see"
UNIT = "sglang-demo.service"
LAB_DATA = """
lab = True
launch_override = {"*": {
    "args": {"device": "cpu", "attention-backend": "torch_native", "max-total-tokens": 16384},
    "pins": {"torch": "any", "flashinfer": "any", "kernel": "any"},
    "env": {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
}}
"""


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(1)


@pytest.fixture(scope="module")
def deployed(fleet: Lab, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    service: dict[str, Any] = {
        "service": "demo",
        "engine": {"sglang": engine.sglang, "venv": str(engine.venv)},
        "model": str(engine.model),
        "gpus": [0],
        "args": {"port": 30000, "host": "0.0.0.0", "enable-metrics": True},
        "secrets": {"api-key": {"env": "DEMO_KEY"}},
        "rollout": {"soak": "1s", "start_timeout": "20m", "drain_timeout": "60s"},
        "verify": {"profile": False, "correctness": False},
    }
    folder = tmp_path_factory.mktemp("own") / "project"
    project = Project(folder, fleet, env={"DEMO_KEY": KEY}, service=service, data=LAB_DATA)
    run = project.deploy("-vvv", "--diff", timeout=1400)
    (folder / "log").write_text(run.text)
    assert run.code == 0, run.text[-4000:]
    yield project
    shown(fleet, "h1", f"systemctl stop {UNIT}")


def ask(fleet: Lab, path: str, body: str = "", key: str = KEY) -> str:
    data = f"-d '{body}' -H 'Content-Type: application/json'" if body else ""
    return shown(fleet, "h1", f"curl -s -m 20 -H 'Authorization: Bearer {key}' {data} 127.0.0.1:30000{path}")


def generates(fleet: Lab) -> bool:
    return "text" in ask(fleet, "/generate", '{"text": "hi", "sampling_params": {"max_new_tokens": 3}}')


def comes_back(fleet: Lab, before: str, seconds: float = 900) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        # active: its readiness hook is done too; a stop before that counts as a start that failed
        active = shown(fleet, "h1", f"systemctl is-active {UNIT}") == "active"
        if active and pid(fleet, "h1") not in ("0", before, "") and generates(fleet):
            return True
        time.sleep(2)
    return False


def processes(fleet: Lab) -> list[str]:
    script = (
        "cat /sys/fs/cgroup/system.slice/sglang-demo.service/cgroup.procs"
        " /sys/fs/cgroup/unified/system.slice/sglang-demo.service/cgroup.procs 2>/dev/null; pgrep -u sglang-demo"
    )
    return shown(fleet, "h1", script).split()


def test_serves_who_has_the_key(deployed: Project, fleet: Lab) -> None:
    assert generates(fleet)
    assert "Unauthorized" in ask(fleet, "/generate", '{"text": "hi"}', key="another")
    assert "Unauthorized" in ask(fleet, "/server_info", key="another")


def test_the_key_is_nowhere(deployed: Project, fleet: Lab) -> None:
    info = json.loads(ask(fleet, "/server_info"))
    assert info["api_key"] == "<redacted>"
    assert KEY not in json.dumps(info)
    assert "launch_command" in info
    journal = shown(fleet, "h1", "journalctl --no-pager -o verbose")
    assert "server_args=" in journal  # the line that would have shown it
    assert KEY not in journal
    words = shown(fleet, "h1", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
    assert "sglang" in words
    assert KEY not in words
    assert KEY not in shown(fleet, "h1", f"systemctl cat {UNIT}; systemctl show {UNIT}")
    found = shown(
        fleet, "h1", f"grep -rl {KEY[:-1]}[{KEY[-1]}] /etc /var/lib /var/cache/sglfleet /tmp 2>/dev/null"
    ).split()
    assert [path.rsplit("/", 1)[0].rsplit("/", 1)[0] for path in found] == ["/etc/sglfleet/demo"]
    for file in deployed.folder.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def test_a_second_run_lets_it_be(deployed: Project, fleet: Lab) -> None:
    before = pid(fleet, "h1")
    run = deployed.deploy()
    assert (run.code, pid(fleet, "h1")) == (0, before), run.text


def test_killed_it_serves_again_by_itself(deployed: Project, fleet: Lab) -> None:
    before = pid(fleet, "h1")
    assert before not in ("", "0")
    shown(fleet, "h1", f"kill -9 {before}")
    assert comes_back(fleet, before)


def test_a_stop_lets_a_stream_end_and_leaves_nobody(deployed: Project, fleet: Lab) -> None:
    body = '{"text": "once", "stream": true, "sampling_params": {"max_new_tokens": 600, "ignore_eos": true}}'
    script = (
        f"curl -sN -m 120 -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' -d '{body}'"
        f" 127.0.0.1:30000/generate > /tmp/stream & sleep 1; systemctl stop {UNIT}; wait; tail -n 3 /tmp/stream;"
        " grep -c ^data: /tmp/stream"
    )
    said = fleet.host("h1").exec("sh", "-c", script, timeout=200).stdout
    assert "data: [DONE]" in said, said
    assert int(said.split()[-1]) > 100
    assert shown(fleet, "h1", f"systemctl show -P Result {UNIT}") == "success"
    assert processes(fleet) == []


def test_a_stop_while_loading_leaves_nobody(deployed: Project, fleet: Lab) -> None:
    shown(fleet, "h1", f"systemctl start --no-block {UNIT}; sleep 8")
    assert len(processes(fleet)) > 1
    assert shown(fleet, "h1", f"systemctl show -P ActiveState {UNIT}") == "activating"
    shown(fleet, "h1", f"systemctl stop {UNIT}")
    assert processes(fleet) == []


def test_a_power_cut_and_it_serves_again_by_itself(deployed: Project, fleet: Lab) -> None:
    host = fleet.host("h1")
    host.crash()
    host.boot()
    host.wait()
    assert comes_back(fleet, "none")


def test_other_hardware_after_a_boot_is_refused_in_one_line(deployed: Project, fleet: Lab) -> None:
    shown(fleet, "h1", f"systemctl stop {UNIT}")
    fleet.set_profile("h1", "l40s-x2")
    try:
        shown(fleet, "h1", f"systemctl start {UNIT}")
        lines = shown(fleet, "h1", f"journalctl -u {UNIT} -o cat -n 30 --no-pager")
        assert "preflight: the host has 2 GPUs, the release was judged for 1: deploy again" in lines
        assert "preflight: GPU 0 is SM 8.9, the release was judged for SM 9.0: deploy again" in lines
    finally:
        shown(fleet, "h1", f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}")
        fleet.set_profile("h1", "h200-x1")
