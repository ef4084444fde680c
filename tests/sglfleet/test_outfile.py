"""A path that cannot be written: one line that says why, exit 2, and nobody's file is harmed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sglfleet.test_check import BASE, SERVICE
from tests.sglfleet.test_inventory import project

ROOT = Path(__file__).parents[2]
PROOF = {"kind": "proof", "schema_version": 1, "source": "x", "started": "2026-01-01T00:00:00Z", "hosts": []}


def run(root: Path, *words: str, full: bool = False) -> subprocess.CompletedProcess[str]:
    """The command; `full`: no file may grow, as on a full disk, which stops root too."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))) if full else None
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "sglfleet", *words]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, preexec_fn=limit)


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit", "markdown"])
def test_check(form: str, tmp_path: Path) -> None:
    done = run(project(tmp_path, BASE), "check", "--format", form, "--output", "pro/out")
    assert done.returncode == 2
    assert done.stderr == "pro/out: cannot be written: no such file or directory: check path and permissions\n"


@pytest.mark.parametrize("form", ["text", "json", "junit", "html"])
def test_report(form: str, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "proof-1.json").write_text(json.dumps(PROOF))
    done = run(tmp_path, "report", "--format", form, "--output", "reports/proof-1.json/out")
    assert done.returncode == 2, done.stderr
    assert done.stderr == ("reports/proof-1.json/out: cannot be written: not a directory: check path and permissions\n")


@pytest.mark.parametrize("kept", [True, False])
def test_verify(kept: bool, tmp_path: Path) -> None:
    """A host that cannot be asked is a result as well: where it cannot be kept it is still shown, then the line."""
    files = {**BASE, "inventory/one.py": 'h100 = [("h1", {"ssh_hostname": "127.0.0.1", "ssh_port": 1})]'}
    root = project(tmp_path, files if kept else {**files, "reports": "in the way"})
    words = ("--output", "no/out") if kept else ()
    done = run(root, "verify", "inventory/one.py", "--format", "text", *words)
    assert "Traceback" not in done.stderr
    assert done.returncode == 2, done.stderr
    path = "no/out" if kept else "reports"
    assert f"{path}: cannot be written: " in done.stderr.splitlines()[-1]
    if not kept:
        assert "h1" in done.stdout


def test_upgrade_write(tmp_path: Path) -> None:
    root = project(tmp_path, BASE)
    file = root / "group_data/services/qwen.yaml"
    file.chmod(0o640)
    words = ("upgrade", "qwen", "--to", "0.5.12", "--sm", "9.0", "--write")
    done = run(root, *words, full=True)
    assert done.returncode == 2
    assert done.stderr == (
        "group_data/services/qwen.yaml: cannot be written: file too large: check path and permissions\n"
    )
    assert file.read_text() == SERVICE
    assert sorted(path.name for path in file.parent.iterdir()) == ["qwen.yaml"]
    assert run(root, *words).returncode in (0, 1)
    assert "sglang: 0.5.12" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
