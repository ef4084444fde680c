"""The engine is built once, adopted only when it does, and never taken half-built."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from lab import engine as engines
from lab.engine import Engine
from lab.settings import LabError


@pytest.fixture
def bare(tmp_path: Path) -> Engine:
    """An environment with nothing in it, where the engine should be."""
    engine = engines.paths(tmp_path)
    venv.create(engine.venv, symlinks=True)
    return engine


def test_pins_are_exact() -> None:
    pins = engines.pins()
    assert pins["sglang"] == engines.SGLANG
    assert {"torch", "torchvision", "transformers", "xgrammar"} <= set(pins)
    assert not [version for version in pins.values() if "+" in version or not version[0].isdigit()]


def test_what_is_not_finished_is_not_found(bare: Engine, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"not built, or of other versions: `make engine` builds it"):
        engines.find(tmp_path)


def test_an_engine_of_other_versions_is_not_found(bare: Engine, tmp_path: Path) -> None:
    bare.model.mkdir()
    engines.finish(bare.venv)
    engines.finish(bare.model)
    assert engines.find(tmp_path) == bare
    (bare.venv / engines.STAMP).write_text("made from something else\n")
    with pytest.raises(LabError, match="of other versions"):
        engines.find(tmp_path)


def test_an_engine_without_packages_is_not_adopted(bare: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert not engines.fits(bare)
    assert "cannot be imported: ModuleNotFoundError" in capsys.readouterr().out


def test_other_versions_are_named(bare: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TRY", 'print(\'{"sglang": "0.5.22", "triton": "1"}\')')
    with pytest.raises(LabError, match=r"sglang 0\.5\.22, not 0\.5\.23; .*torch missing, not"):
        engines.trial(bare)


def test_an_interpreter_in_a_closed_folder_is_replaced(tmp_path: Path) -> None:
    closed = tmp_path / "home"
    closed.mkdir()
    inside = closed / "python3"
    inside.symlink_to(sys.executable)
    assert engines.public(Path("/usr/bin/env"))
    secret = tmp_path / "secret"
    secret.write_text("")
    tmp_path.chmod(0o700)
    assert not engines.public(secret)


def test_the_declaration_is_put_in_once(tmp_path: Path) -> None:
    engine = engines.paths(tmp_path)
    file = engine.venv / "lib/python3.11/site-packages/torchvision/_meta_registrations.py"
    file.parent.mkdir(parents=True)
    file.write_text("import functools\n")
    engines.declare_operators(engine)
    engines.declare_operators(engine)
    assert file.read_text() == engines.DECLARE + "import functools\n"
    compile(file.read_text(), str(file), "exec")


def test_a_full_disk_is_said_before_anything_is_fetched(bare: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "torch_kind", lambda _: "cuda")
    monkeypatch.setattr(engines, "DISK_GB", {"cuda": 1e9})
    with pytest.raises(LabError, match="GB free, 1e\\+09 needed: set SGLFLEET_LAB_CACHE elsewhere"):
        engines.build(bare)


@pytest.mark.engine
def test_the_real_engine_has_the_pinned_versions_and_is_readable_by_all(engine: Engine) -> None:
    engines.trial(engine)
    assert engines.public(engine.python)
    closed = subprocess.run(
        ["find", engine.venv, engine.model, "!", "-perm", "-o+r", "!", "-type", "l"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert closed.stdout == ""
