"""Places outside argument resolution, read from the shipped releases by `sglfleet.extract.places` (`places*.json`)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from validators.rules.context import Context
from validators.verdict import Evidence


@cache
def _table() -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {}
    for path in sorted(Path(__file__).parent.glob("places*.json")):
        for release, rows in json.loads(path.read_text(encoding="utf-8")).items():
            found.setdefault(release, {}).update(rows)
    return found


def all_of(release: str) -> dict[str, Evidence]:
    """Name -> place, of one shipped release."""
    rows = _table().get(release, {})
    return {
        name: Evidence(f"sglang-{release}", file, symbol, line, quote)
        for name, (file, line, symbol, quote, *_) in rows.items()
    }


def place(c: Context, name: str) -> Evidence | None:
    """Where it stands in this release, or None: not there, or a release that is not in the table."""
    row = _table().get(c.release.version, {}).get(name)
    if row is None:
        return None
    file, line, symbol, quote = row[:4]
    return Evidence(c.release.artifact.name, file, symbol, line, quote)


def row(c: Context, name: str) -> tuple[Any, ...]:
    """(place, what else is kept of it …); (None,) where there is no such place."""
    found = _table().get(c.release.version, {}).get(name)
    return (place(c, name), *found[4:]) if found else (None,)


def value(c: Context, name: str) -> str:
    """What stands there besides: a minimum version, the new name of an alias; "" where there is no such place."""
    row = _table().get(c.release.version, {}).get(name)
    return str(row[4]) if row and len(row) > 4 else ""


def declared(c: Context, flag: str) -> Evidence:
    """The flag's own place: where nothing nearer is known."""
    return c.release.evidence(c.release.flags[flag].place, "--" + flag)


def words(c: Context, name: str) -> list[str]:
    """All that stands there besides, where it is more than one word."""
    return words_of(c.release.version, name)


def words_of(release: str, name: str) -> list[str]:
    """The same of any shipped release."""
    row = _table().get(release, {}).get(name)
    return [str(one) for one in row[4:]] if row else []
