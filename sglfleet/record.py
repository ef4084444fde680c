"""Recorded facts: `facts/<class>.json` in the project, one file per host class, read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from validators.classes import SCHEMA_VERSION, HostClass, classify
from validators.facts import HostFacts
from validators.source import InputError, Mark, Problem

FOLDER = "facts"


def load(root: Path) -> list[HostClass]:
    """Every recorded class.

    Raises:
        InputError: a file that is not one of ours, or a host that stands in two of them.
    """
    found: list[HostClass] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for path in sorted((root / FOLDER).glob("*.json")):
        shown = f"{FOLDER}/{path.name}"
        try:
            one = _read(path)
        except (ValueError, OSError) as error:
            what = str(error).splitlines()[0]
            problems.append(Problem(Mark(shown), f"no recorded facts: {what}", "record it anew: `sglfleet facts`"))
            continue
        for host in one.hosts:
            if host in seen:
                todo = "record it anew: `sglfleet facts`"
                problems.append(Problem(Mark(shown), f"host {host} stands in {seen[host]} too", todo))
            seen[host] = shown
        found.append(one)
    if problems:
        raise InputError(problems)
    return found


def _read(path: Path) -> HostClass:
    raw = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict) or raw.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema_version is not {SCHEMA_VERSION}")
    try:
        return HostClass.model_validate({**raw, "name": path.stem})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}") from None


def merged(known: Iterable[HostClass], measured: Mapping[str, HostFacts]) -> list[HostClass]:
    """Known classes with newly measured hosts put where they belong now; the others stay where they are."""
    known = list(known)
    hosts = {host: one.facts for one in known for host in one.hosts}
    return classify({**hosts, **measured}, known)


def text(one: HostClass) -> str:
    """A class as it is committed: stable order, a line per thing that may change."""
    plain: dict[str, Any] = one.model_dump(exclude={"name"}, exclude_defaults=True)
    plain["facts"].pop("host", None)
    plain = {"schema_version": SCHEMA_VERSION, "hosts": sorted(one.hosts), "facts": plain["facts"]}
    spread = json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
    # a GPU a line: what changes in a review is then one line too
    return re.sub(r"\{\s*(\"index\": [^{}]*?)\s*\}", lambda hit: "{" + re.sub(r"\s*\n\s*", " ", hit[1]) + "}", spread)


def write(root: Path, classes: Iterable[HostClass]) -> list[str]:
    """Make the folder say exactly this; returns the files that changed, the removed ones too."""
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    wanted = {f"{one.name}.json": text(one) for one in classes}
    changed = []
    for path in sorted(folder.glob("*.json")):
        if path.name not in wanted:
            path.unlink()
            changed.append(f"{FOLDER}/{path.name}")
    for name, body in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != body:
            path.write_text(body, encoding="utf-8")
            changed.append(f"{FOLDER}/{name}")
    return sorted(changed)
