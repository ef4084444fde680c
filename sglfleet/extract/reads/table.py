"""The table of all shipped releases, with every text and place once."""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.version import Version

from sglfleet.extract.reads.reader import FIELD, Reader
from sglfleet.extract.reads.simpler import Condition, needed, plain
from validators.knowledge.loader import load_sglang, releases

_MOST = 10  # an argument that is read on more ways than this hangs on nothing that can be named


def rows(reader: Reader) -> dict[str, list[Condition]]:
    """Field with a flag -> conditions of which one must hold for the release to read it."""
    found = {}
    for name in sorted({flag.field for flag in reader.release.flags.values() if flag.field}):
        behind = reader.behind(name)
        left = needed([one for one in behind or () if not reader.never(one.text)])
        if 0 < len(left) <= _MOST and not any(re.search(rf"\bargs\.{name}\b", one.text) for one in left):
            found[name] = left
    return found


def table(read: dict[str, tuple[Reader, dict[str, list[Condition]]]]) -> dict[str, Any]:
    """All releases, with every name, text and place once, and in each release every list of conditions once."""
    names: dict[str, int] = {}
    texts: dict[str, int] = {}
    places: dict[tuple[str, str, str], int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def place(one: Condition) -> int:
        return places.setdefault((one.file, one.symbol, one.quote), len(places))

    releases = {}
    for version, (reader, found) in read.items():
        asked = {name for conditions in found.values() for one in conditions for name in FIELD.findall(one.text)}
        asked |= {name for field in found for text in reader.stopping.get(field, ()) for name in FIELD.findall(text)}
        lists: dict[tuple[tuple[int, int, int], ...], int] = {}
        fields = []
        for name, conditions in found.items():
            behind = tuple((number(one.text), place(one), one.line) for one in conditions)
            fields.append([names.setdefault(name, len(names)), lists.setdefault(behind, len(lists))])
        made = {name: [number(plain(text)) for text in reader.made.get(name, ())] for name in sorted(asked)}
        stops = {name: [number(text) for text in reader.stopping.get(name, ())] for name in found}
        releases[version] = {"fields": fields, "lists": list(lists), "made": _filled(made), "stops": _filled(stops)}
    return {"names": list(names), "texts": list(texts), "places": [list(one) for one in places], "releases": releases}


def _filled(rows: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: values for name, values in rows.items() if values}


def one(root: Path) -> tuple[Reader, dict[str, list[Condition]]]:
    reader = Reader(root, load_sglang(root.name.removeprefix("sglang-")))
    found = rows(reader)
    reader.stopping = {name: texts for name, texts in reader.stops().items() if name in found}
    return reader, found


def dump(found: dict[str, Any]) -> str:
    """One line a text, a place and a release, so that a change is seen."""
    parts = []
    for name in ("names", "texts", "places"):
        parts.append(f' "{name}": [\n' + ",\n".join(f"  {json.dumps(one)}" for one in found[name]) + "\n ]")
    lines = ",\n".join(
        f"  {json.dumps(v)}: {json.dumps(row, separators=(',', ':'))}" for v, row in found["releases"].items()
    )
    parts.append(f' "releases": {{\n{lines}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(folder: Path) -> None:
    gc.disable()  # trees of a release are millions of nodes, and none of them is garbage before the next release
    known = releases()
    read = {}
    for root in sorted(folder.glob("sglang-*"), key=lambda path: Version(path.name.removeprefix("sglang-"))):
        version = root.name.removeprefix("sglang-")
        if version in known:
            reader, found = one(root)
            reader.forget()
            read[version] = (reader, found)
            gc.collect()
    sys.stdout.write(dump(table(read)))
