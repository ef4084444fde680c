"""The real SGLang server for lab hosts: where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.settings import LabError

SGLANG = "0.5.23"


@dataclass(frozen=True)
class Engine:
    """A finished engine and a model it can serve. Paths hold on the machine and in lab hosts."""

    sglang: str
    venv: Path
    model: Path


def find(cache: Path) -> Engine:
    """The finished engine in a cache. Raises LabError where there is none."""
    engine = Engine(SGLANG, cache / f"engine-{SGLANG}", cache / "tiny-gpt2")
    if not (engine.venv / "bin" / "python").exists() or not (engine.model / "config.json").exists():
        raise LabError(f"{cache}: no engine there: `make engine` builds it")
    return engine
