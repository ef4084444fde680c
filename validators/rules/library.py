"""What FlashInfer's Python asks of the GPU: read by `sglfleet.extract.libraries` into `libraries.json`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from validators.rules.context import Context
from validators.verdict import Evidence


@cache
def _table() -> dict[str, dict[str, list[Any]]]:
    path = Path(__file__).with_name("libraries.json")
    found: dict[str, dict[str, list[Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def all_of(version: str) -> dict[str, Evidence]:
    """Name -> place, of one FlashInfer release."""
    return {name: _evidence(version, row) for name, row in _table().get(version, {}).items()}


def _evidence(version: str, row: list[Any]) -> Evidence:
    file, line, symbol, quote, _ = row
    return Evidence(f"flashinfer-python-{version}", file, symbol, line, quote)


def takes(c: Context, name: str) -> tuple[bool | None, tuple[Evidence, ...]]:
    """Does the place `name` of the case's FlashInfer let this SM pass; (None, ()) where there is no such place."""
    row = _table().get(c.flashinfer_version, {}).get(name)
    if row is None:
        return None, ()
    return c.sm_text in row[4], (_evidence(c.flashinfer_version, row),)
