"""Kernel packages that releases install, read by `sglfleet.extract.places_kernels` (`kernel_places.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from validators.rules.context import Context
from validators.verdict import Evidence


@dataclass(frozen=True, slots=True)
class Row:
    """One place in one package: what stands there as words, and where."""

    words: tuple[str, ...]
    proof: Evidence

    @property
    def majors(self) -> frozenset[int]:
        """SM majors of the words: `9.0a 10.0f` and `9 10` are both {9, 10}."""
        return frozenset(int(word.rstrip("af").partition(".")[0]) for word in self.words)


@cache
def _table() -> dict[str, dict[str, list[Any]]]:
    path = Path(__file__).with_name("kernel_places.json")
    found: dict[str, dict[str, list[Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def _versions(package: str) -> tuple[str, ...]:
    names = (name.rpartition("-") for name in _table())
    return tuple(version for found, _, version in names if found == package)


@cache
def row(package: str, version: str, name: str) -> Row | None:
    """The place in this version, or None: not there, or a version that was not read."""
    found = _table().get(f"{package}-{version}", {}).get(name)
    if found is None:
        return None
    file, line, symbol, quote = found[:4]
    words = tuple(str(found[4]).split()) if len(found) > 4 else ()
    return Row(words, Evidence(f"{package}-{version}", file, symbol, line, quote))


def read(c: Context, package: str) -> tuple[str, ...]:
    """Versions that were read and that the host can have: what is installed, else what the release asks for."""
    installed = {name.lower().replace("_", "-"): version for name, version in c.case.packages.items()}
    if package in installed:
        version = installed[package]
        return (version,) if version in _versions(package) else ()
    pin = c.release.pins.get(package)
    try:
        asked = SpecifierSet(pin.specifier, prereleases=True) if pin else None
    except InvalidSpecifier:
        return ()
    return tuple(v for v in _versions(package) if asked is not None and asked.contains(Version(v)))


def kernels(c: Context) -> str:
    """The package with the engine's own kernels, under the name that it has in this release."""
    return c.release.kernel[0] if c.release.kernel else ""


def of(c: Context, package: str, name: str) -> Row | None:
    """The place in the version that the host has, where that is one version."""
    versions = read(c, package)
    return row(package, versions[0], name) if len(versions) == 1 else None
