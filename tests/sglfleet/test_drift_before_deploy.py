"""The deploy says where hosts are not as recorded, and stops where they are not as declared, before any change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema

from tests.sglfleet.test_inventory import project

ROOT = Path(__file__).parents[2]
INVENTORY = """
from sglfleet import facts, simulate
quick = {{"fake_delay": 0, "fake_delay_jitter": 0}}
_answer = simulate.answer({profile!r}, models=("/models/one",))
gpu_hosts = [(f"@fake/h{{i}}", {{"fake_responses": {{facts.MARKER: _answer}}, **quick}}) for i in range(2)]
"""


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYINFRA_PROGRESS": "off"}
    return subprocess.run([sys.executable, "-m", *words], cwd=root, env=env, capture_output=True, text=True)


def deploy(root: Path, profile: object) -> tuple[int, str]:
    project(root, {"inventory/prod.py": INVENTORY.format(profile=profile)})
    done = run(root, "pyinfra", "--dry", "-y", "inventory/prod.py", "deploy.py")
    return done.returncode, done.stdout + done.stderr


def test_recorded_and_declared_against_the_live_hosts(tmp_path: Path) -> None:
    """A new driver is said; an A100 where the group declares H100 is refused, both SM versions named."""
    made = run(tmp_path, "sglfleet", "init", ".", "--service", "one", "--gpu", "h100 x8", "--sglang", "0.5.9")
    assert made.returncode == 0, made.stderr
    code, said = deploy(tmp_path, {"profile": "h100 x8", "driver": "580.1"})
    assert code == 0, said
    assert "is there" not in said
    assert run(tmp_path, "sglfleet", "facts").returncode == 0
    code, said = deploy(tmp_path, {"profile": "h100 x8", "driver": "595.2"})
    assert code == 0, said
    assert "note: @fake/h0, @fake/h1: driver: 580.1 was recorded, 595.2 is there" in said
    code, said = deploy(tmp_path, {"profile": "a100 x8", "driver": "580.1"})
    assert code != 0
    assert "GPU 0 to 7: SM 9.0 (H100) is declared, the host has SM 8.0 (A100)" in said
    assert "no host was changed" in said
    schema = json.loads((ROOT / "schemas" / "deploy.json").read_text())
    reports = sorted((tmp_path / "reports").glob("deploy-*.json"))
    assert len(reports) == 3
    for path in reports:
        jsonschema.Draft7Validator(schema).validate(json.loads(path.read_text()))
    assert sorted(json.loads(path.read_text())["exit"] for path in reports) == [0, 0, 1]
