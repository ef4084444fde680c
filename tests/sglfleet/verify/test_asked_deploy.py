"""A deploy that asks the real engine on the host first: what it says is kept, what it refuses is switched nowhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.engine import Engine
from lab.fleet import Lab
from tests.lab.deploying import Project, pid, shown

pytestmark = [pytest.mark.lab, pytest.mark.engine]
LAB_DATA = """
lab = True
ask_engine = True
launch_override = {"*": {
    "args": {"device": "cpu", "attention-backend": "torch_native", "max-total-tokens": 16384, "sleep-on-idle": True},
    "pins": {"sglang": "any", "torch": "any", "flashinfer": "any", "kernel": "any"},
    "env": {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
}}
"""
STRANGER = "0.5.99"  # a release that nothing is known of; the engine behind it is the one of the lab


@pytest.fixture(scope="module")
def fleet(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(2)


def service(engine: Engine, sglang: str, **args: Any) -> dict[str, Any]:
    return {
        "service": "demo",
        "engine": {"sglang": sglang, "venv": str(engine.venv)},
        "model": str(engine.model),
        "gpus": [0],
        "args": {"port": 30000, "enable-metrics": True, **args},
        "rollout": {"soak": "0s", "start_timeout": "20m", "drain_timeout": "60s"},
        "verify": {"profile": False},
    }


@pytest.fixture(scope="module")
def project(fleet: Lab, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("own") / "project"
    yield Project(folder, fleet, service=service(engine, engine.sglang, **{"chunked-prefill-size": 64}), data=LAB_DATA)
    shown(fleet, "h1", "systemctl stop sglang-demo")


@pytest.fixture(scope="module")
def deployed(project: Project) -> Project:
    run = project.deploy("--limit", "h1", timeout=1500)
    assert run.code == 0, run.text[-4000:]
    return project


def kept(fleet: Lab) -> dict[str, Any]:
    """What the engine said, from beside the release that runs."""
    found: dict[str, Any] = json.loads(shown(fleet, "h1", "cat /var/lib/sglfleet/demo/current/probe.json"))
    return found


def nothing_left(fleet: Lab) -> None:
    for host in ("h1", "h2"):
        assert shown(fleet, host, "pgrep -f 'pytho[n].*run[.]pyz'; find /tmp -name run.pyz") == ""


def test_what_the_engine_said_is_kept_beside_the_release(deployed: Project, fleet: Lab) -> None:
    said = kept(fleet)
    assert "gpu" in said["gaps"]  # the host has none: nothing that needs one was overruled
    assert {v["flag"]: v["outcome"] for v in said["verdicts"]}["chunked-prefill-size"] == "active"
    assert not any(v["rule"] == "probe" for v in said["verdicts"])
    nothing_left(fleet)


def test_verify_finds_the_deployed_service_and_shows_the_engines_word(deployed: Project) -> None:
    env = {**deployed.environment(), "COLUMNS": "120"}
    command = [sys.executable, "-m", "sglfleet", "verify", "inventory.py", "demo", "--limit", "h1"]
    command += ["--format", "json"]
    done = subprocess.run(command, cwd=deployed.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    status = {p["flag"]: p["status"] for p in host["proofs"]}
    assert status["chunked-prefill-size"] == "proven"
    assert any("could not be asked: gpu" in line for line in host["disagreements"])


def test_a_stranger_that_one_host_refuses_is_switched_nowhere(deployed: Project, fleet: Lab, engine: Engine) -> None:
    before = pid(fleet, "h1")
    deployed.write(service(engine, STRANGER, **{"chunked-prefill-size": 64}))
    inventory = deployed.folder / "inventory.py"
    text = inventory.read_text()
    override = '{"demo": {"args": {"no-such-flag": 3}}}'
    inventory.write_text(f'{text}\ngpu_hosts[1][1]["service_overrides"] = {override}\n')
    try:
        run = deployed.deploy(timeout=1500)
    finally:
        inventory.write_text(text)
    assert run.code != 0
    assert run.report["exit"] == 1, run.last
    assert "NO KNOWLEDGE of SGLang 0.5.99" in run.text
    assert "unrecognized arguments: --no-such-flag" in run.report["failed"]["h2"]
    assert "not switched: the engine on h2 refuses it" in run.report["failed"]["h1"]
    assert pid(fleet, "h1") == before
    assert shown(fleet, "h2", "systemctl is-active sglang-demo") != "active"
    nothing_left(fleet)


@pytest.mark.full
def test_a_stranger_that_its_engine_takes_is_deployed_and_proven(deployed: Project, fleet: Lab, engine: Engine) -> None:
    wanted = {"chunked-prefill-size": 128, "enable-flashinfer-allreduce-fusion": True}
    deployed.write(service(engine, STRANGER, **wanted))
    run = deployed.deploy("--limit", "h1", timeout=1500)
    assert run.code == 0, run.text[-4000:]
    rows = {v["flag"]: v for v in kept(fleet)["verdicts"]}
    assert (rows["chunked-prefill-size"]["outcome"], rows["chunked-prefill-size"]["rule"]) == ("active", "probe")
    assert rows["enable-flashinfer-allreduce-fusion"]["outcome"] == "unknown"
    (host,) = run.report["proof"]["hosts"]
    status = {p["flag"]: p["status"] for p in host["proofs"]}
    assert status["chunked-prefill-size"] == "proven"
    assert status["enable-flashinfer-allreduce-fusion"] != "proven"
    before = pid(fleet, "h1")
    assert deployed.deploy("--limit", "h1").code == 0  # nothing to do, and the engine is not asked again
    assert pid(fleet, "h1") == before
