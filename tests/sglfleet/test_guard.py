"""Another package of the name `validators` first on the path is refused with its place, never judged with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(path: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *words], cwd=ROOT.parent, env=env, capture_output=True, text=True)


def test_another_validators_first(tmp_path: Path) -> None:
    other = tmp_path / "validators"
    other.mkdir()
    (other / "__init__.py").write_text("def url(text): return True\n")
    done = run(f"{tmp_path}:{ROOT}", "-P", "-m", "sglfleet", "check")
    assert done.returncode == 2
    assert f"{other}/__init__.py: a package `validators` that is not sglfleet's gate is found first" in done.stderr
    assert "Traceback" not in done.stderr


def test_loaded_already(tmp_path: Path) -> None:
    (tmp_path / "validators.py").write_text("")
    code = "import validators; from sglfleet.guard import check_validators; check_validators()"
    done = run(f"{tmp_path}:{ROOT}", "-c", code)
    assert done.returncode == 1
    assert "RuntimeError: " in done.stderr
    assert "is found first" in done.stderr


def test_ours_is_fine() -> None:
    assert run(str(ROOT), "-m", "sglfleet", "check", "--help").returncode == 0
