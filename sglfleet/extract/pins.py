"""What a release requires, from its metadata, as it holds for CPython 3.11 on Linux x86-64."""

from __future__ import annotations

import tomllib
from email.parser import HeaderParser
from typing import Any

from sglfleet.extract.tree import ExtractError, SourceTree

PLATFORM = {
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "implementation_name": "cpython",
    "implementation_version": "3.11.9",
    "platform_python_implementation": "CPython",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
}
SERVER_EXTRA = "srt"  # up to 0.5.2 the server's own needs were an extra; afterwards they are plain requirements


def pins(tree: SourceTree) -> tuple[str, list[dict[str, Any]]]:
    """Requires-Python and the requirements, sorted by name. Raises ExtractError without metadata."""
    python, lines = _metadata(tree)
    parsed = [_requirement(line, tree) for line in lines]
    extras = _closure(tree.package, parsed)
    rows: dict[str, dict[str, Any]] = {}
    for extra in extras:
        for requirement in parsed:
            if normal(requirement.name) == normal(tree.package) or not _holds(requirement, extra):
                continue
            row = {"name": normal(requirement.name), "specifier": str(requirement.specifier), "extra": extra}
            rows.setdefault(row["name"], row)
    return python, [rows[name] for name in sorted(rows)]


def extras(tree: SourceTree, brought: list[dict[str, Any]]) -> list[str]:
    """Packages that only an extra of the release brings, which a plain install leaves out."""
    _, lines = _metadata(tree)
    named = {normal(_requirement(line, tree).name) for line in lines}
    return sorted(named - {row["name"] for row in brought} - {normal(tree.package)})


def normal(name: str) -> str:
    """A distribution's normalized name: `flashinfer_python` is `flashinfer-python`."""
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(name))


def _metadata(tree: SourceTree) -> tuple[str, list[str]]:
    found = [p for p in tree.list("", "METADATA") if ".dist-info/" in p]
    found += [p for p in ("PKG-INFO", "python/PKG-INFO") if tree.has(p)]
    found += [p for p in tree.list("", "PKG-INFO") if ".egg-info/" in p]
    for path in found:
        headers = HeaderParser().parsestr(tree.read(path))
        if headers.get_all("Requires-Dist"):
            return headers.get("Requires-Python", ""), headers.get_all("Requires-Dist") or []
    project = next((p for p in ("pyproject.toml", "python/pyproject.toml") if tree.has(p)), None)
    if project:
        return _pyproject(tree, project)
    if found:
        return HeaderParser().parsestr(tree.read(found[0])).get("Requires-Python", ""), []
    raise ExtractError(f"{tree.name}: no METADATA, PKG-INFO or pyproject.toml in it: its pins cannot be read")


def _pyproject(tree: SourceTree, path: str) -> tuple[str, list[str]]:
    try:
        table = tomllib.loads(tree.read(path)).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise ExtractError(f"{tree.name}: {path}: not TOML ({error}): repair it") from None
    lines = list(table.get("dependencies", []))
    if not lines and "dependencies" in table.get("dynamic", []) and tree.has("requirements.txt"):
        lines = [x.split("#")[0].strip() for x in tree.read("requirements.txt").splitlines()]
    for extra, needs in table.get("optional-dependencies", {}).items():
        lines += [_marked(need, extra) for need in needs]
    return str(table.get("requires-python", "")), [line for line in lines if line]


def _marked(need: str, extra: str) -> str:
    requirement, _, marker = need.partition(";")
    return f"{requirement} ; ({marker.strip()}) and extra == '{extra}'" if marker else f"{need} ; extra == '{extra}'"


def _requirement(line: str, tree: SourceTree) -> Any:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line)
    except InvalidRequirement as error:
        raise ExtractError(f"{tree.name}: requirement `{line}` cannot be read ({error}): report this release") from None


def _holds(requirement: Any, extra: str) -> bool:
    if requirement.marker is None:
        return extra == ""
    if extra == "":
        return bool(requirement.marker.evaluate({**PLATFORM, "extra": ""}))
    names = {extra, extra.replace("-", "_"), extra.replace("_", "-")}
    if requirement.marker.evaluate({**PLATFORM, "extra": ""}):
        return False
    return any(requirement.marker.evaluate({**PLATFORM, "extra": name}) for name in names)


def _closure(package: str, parsed: list[Any]) -> list[str]:
    """ "" and the server's extra with the extras that it takes from its own package, in that order."""
    found, queue = [""], [SERVER_EXTRA]
    while queue:
        extra = queue.pop(0)
        if extra in found:
            continue
        found.append(extra)
        for requirement in parsed:
            if normal(requirement.name) == normal(package) and _holds(requirement, extra):
                queue.extend(sorted(normal(e) for e in requirement.extras))
    return found
