"""The knowledge file: rows without what the loader assumes anyway, one row a line, the same bytes in every run.

The counterpart of `validators/knowledge/build.py`, which says what a missing key means.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Places:
    """File and symbol repeat in most rows; a row's `at` is [number of the place, line]."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def at(self, row: Row) -> list[int]:
        key = (row["path"], row["symbol"])
        return [self._numbers.setdefault(key, len(self._numbers)), row["line"]]

    def rows(self) -> list[list[str]]:
        return [list(key) for key in self._numbers]


class Texts:
    """Conditions repeat in most rows; a row has their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def rows(self) -> list[str]:
        return list(self._numbers)


def env_row(row: Row, places: Places) -> list[Any]:
    """[name, at, type, default]; what is empty at the end is left out."""
    out = [row["name"], places.at(row), row.get("type", ""), row.get("default")]
    while out[-1] in ("", None):
        out.pop()
    return out


def check_row(row: Row, places: Places, texts: Texts) -> list[Any]:
    """[at, quote, conditions, message]"""
    at = places.at({**row, "path": row["file"]})
    return [at, row["condition"], [texts.number(g) for g in row["guards"]], row["text"]]


def sited(row: Row, places: Places) -> Row:
    """A row that has a line of its own beside: file and symbol as the number of their place, `in`."""
    number, _ = places.at({**row, "path": row["file"]})
    return {"in": number, **{k: v for k, v in row.items() if k not in ("file", "symbol")}}


def flag_row(row: Row, places: Places) -> Row:
    value = row["kind"] == "value"
    store_true = row["action"] == "store_true"
    assumed = {
        "spellings": ["--" + row["name"]],
        "dest": row["name"].replace("-", "_"),
        "field": row["dest"],
        "kind": "value",
        "type": "str" if value else "bool",
        "converter": "str" if value else "",
        "nargs": None if value else 0,
        "default": False if store_true else None,
        "choices": None,
        "const": True if store_true else None,
        "required": False,
        "hidden": False,
        "action": "store" if value else "store_true",
        "help": "",
        "deprecated": "",
        "replacement": "",
        "refused": "",
        "default_source": "",
        "choices_source": "",
        "notes": [],
    }
    kept = {k: row[k] for k in ("name", *assumed) if k in row and (k not in assumed or not _same(row[k], assumed[k]))}
    return {**kept, "at": places.at(row)}


def generator_row(row: Row, places: Places) -> Row:
    assumed = {"archs": [], "always": True, "cuda_min": {}, "source": "", "certain": True}
    if row["majors"] is None and row["certain"]:
        row = {**row, "always": True}  # names nothing: there is no path to tell apart
    kept = {k: v for k, v in row.items() if k != "name" and (k not in assumed or v != assumed[k])}
    return placed(kept, places)  # the name is the last part of the key


def _same(left: Any, right: Any) -> bool:
    """Equal in JSON: `0` is not `false` there."""
    return type(left) is type(right) and bool(left == right)


def placed(row: Row, places: Places) -> Row:
    """Any other row: its own keys, and where it was read."""
    return {
        **{k: v for k, v in row.items() if k not in ("path", "symbol", "line") and (k, v) != ("type", "")},
        "at": places.at(row),
    }


MANY = 60  # plain values in a list from which on each has a line of its own


def dump(document: Row) -> str:
    """JSON with one row a line, so that a diff of two releases can be read."""
    lines = [f"{_json(key)}: {_block(document[key])}" for key in document]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _block(value: Any) -> str:
    rows = isinstance(value, list) and value and (isinstance(value[0], dict | list) or len(value) > MANY)
    if rows:
        return "[\n" + ",\n".join(f" {_json(row)}" for row in value) + "\n]"
    if isinstance(value, dict) and any(isinstance(v, dict | list) for v in value.values()):
        return "{\n" + ",\n".join(f" {_json(k)}: {_json(v)}" for k, v in value.items()) + "\n}"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write(document: Row, path: Path) -> None:
    """The whole file or nothing: a run that is stopped leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(dump(document))
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
