"""Which models reach the fusion in a release, read from the shipped releases by `sglfleet.extract.fused_models`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from validators.rules.context import Context
from validators.verdict import Evidence


@cache
def _table() -> dict[str, Any]:
    path = Path(__file__).with_name("fused_models.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def _position(release: str) -> int:
    releases: list[str] = _table()["releases"]
    return releases.index(release) if release in releases else -1


def state(c: Context) -> str:
    """`plain` (completes its sums itself), `fused`, `marked` (and hands on the sum of the MLP), `unsure`, ""."""
    return _state(c.arch, c.release.version)


@cache
def _state(arch: str, release: str) -> str:
    position = _position(release)
    runs = _table()["models"].get(arch, "")
    if position < 0:
        return ""
    for run in runs.split():
        name, _, count = run.partition(":")
        position -= int(count)
        if position < 0:
            return "" if name == "none" else str(name)
    return ""


def place(c: Context, name: str) -> Evidence | None:
    """`home` (what a model builds to be fused), `gate` (the layers' own test), `deterministic` (the switch)."""
    row = _row(c, name)
    if row is None:
        return None
    file, line, symbol, quote, _ = row
    return Evidence(c.release.artifact.name, file, symbol, line, quote)


def text(c: Context, name: str) -> str:
    """The condition that stands there, in the engine's own words."""
    row = _row(c, name)
    return str(row[4]) if row else ""


def _row(c: Context, name: str) -> list[Any] | None:
    position = _position(c.release.version)
    if position < 0:
        return None
    found: list[Any] | None = _table()["places"][position].get(name)
    return found


def all_of(release: str) -> dict[str, Evidence]:
    """Name -> place, of one shipped release."""
    position = _position(release)
    rows: dict[str, list[Any]] = _table()["places"][position] if position >= 0 else {}
    return {
        name: Evidence(f"sglang-{release}", file, symbol, line, quote)
        for name, (file, line, symbol, quote, _) in rows.items()
    }
