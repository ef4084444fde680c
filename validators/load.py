"""Service files to services: every error of a file at its line and column, and overrides merged key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from validators import environment
from validators.service import LaunchOverride, Service
from validators.source import Document, InputError, Mark, Path, Plain, Problem, read
from validators.wording import nearest, problem

FlagTypes = Callable[[str], Mapping[str, str] | None]
"""Release -> flag (without dashes) -> "str" | "int" | "float" | "bool" | …; None where the release is not known."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One service file, right or wrong. `service` is None where there are problems."""

    file: str
    service: Service | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()  # hints that stop nothing
    marks: dict[Path, Mark] = field(default_factory=dict)
    data: Any = None  # as written, for merging overrides
    origins: dict[str, str] = field(default_factory=dict)  # dotted path -> origin of the override that set it

    def where(self, *path: str | int) -> Mark:
        """The place of a key, or of the nearest part around it."""
        return nearest(self.marks, path) or Mark(self.file, 1, 1)


def load_file(path: FilePath, types: FlagTypes | None = None, name: str | None = None) -> Loaded:
    """Read one service file. Never raises: what is wrong is in `problems`."""
    name = name or str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return Loaded(name, None, (Problem(Mark(name), f"cannot be read: {reason}", "check path and permissions"),))
    return load(raw, name, types)


def load(raw: bytes | str, file: str, types: FlagTypes | None = None) -> Loaded:
    """Read one service file's text. Never raises: what is wrong is in `problems`."""
    try:
        document = read(raw, file)
    except InputError as error:
        return Loaded(file, None, error.problems)
    return _check(Loaded(file, None, marks=document.marks, data=document.data), types)


Origin = str | Callable[[Path], Mark]
"""Where an override comes from: a name, or the place of each of its keys."""


def merge(base: Loaded, overrides: Iterable[tuple[Origin, Any]], types: FlagTypes | None = None) -> Loaded:
    """The service with overrides laid over it, later ones winning: mappings key by key, anything else as a whole.

    None removes a key. `overrides` are (origin, mapping) pairs; the origin is shown in errors and kept per key.
    """
    overrides = list(overrides)
    if base.data is None or not overrides:
        return base
    marks, origins, problems = dict(base.marks), dict(base.origins), []
    data = base.data
    for origin, change in overrides:
        if not isinstance(change, dict):
            problems.append(Problem(_at(origin, ()), "an override is not a mapping", 'write {"args": {…}}'))
        elif isinstance(data, dict):
            data = _lay_over(data, change, (), origin, marks, origins)
    merged = _check(replace(base, service=None, problems=(), notes=(), marks=marks, data=data, origins=origins), types)
    if problems:
        return replace(merged, service=None, problems=tuple(sorted({*merged.problems, *problems})))
    return merged


def _lay_over(
    old: dict[str, Any], new: dict[Any, Any], at: Path, origin: Origin, marks: dict[Path, Mark], origins: dict[str, str]
) -> dict[str, Any]:
    out = dict(old)
    for key, value in new.items():
        path = (*at, str(key))
        if at == () and key == "model" and isinstance(value, dict) and not isinstance(out.get(key), dict | None):
            out[key] = {"path": out[key]}  # the short form of the file is widened, not replaced
        below = out.get(key, {})
        if isinstance(value, dict) and isinstance(below, dict) and at[:1] != ("args",):  # a flag's value is one whole
            if key not in out:
                marks[path] = _at(origin, path)
            out[str(key)] = _lay_over(below, value, path, origin, marks, origins)
            continue
        if value is None:
            out.pop(key, None)
        else:
            out[str(key)] = value
        for known in [p for p in marks if p[: len(path)] == path]:
            del marks[known]
        marks[path] = _at(origin, path)
        origins[".".join(map(str, path))] = str(marks[path])
    return out


def _at(origin: Origin, path: Path) -> Mark:
    return Mark(origin) if isinstance(origin, str) else origin(path)


def load_launch(data: Any, origin: str) -> tuple[LaunchOverride | None, tuple[Problem, ...]]:
    """A `launch_override` of inventory data."""
    try:
        return LaunchOverride.model_validate(data), ()
    except ValidationError as error:
        found = Document(data, {(): Mark(origin)})
        return None, tuple(sorted({problem(e, found, LaunchOverride, origin) for e in error.errors()}))


def _check(loaded: Loaded, types: FlagTypes | None) -> Loaded:
    data: Any = loaded.data
    problems: list[Problem] = []
    notes: list[Problem] = []
    if not isinstance(data, dict):
        what = "a service file is a mapping, this is a " + ("list" if isinstance(data, list) else "single value")
        return replace(loaded, problems=(Problem(loaded.where(), what, "start with `service: NAME`"),))
    if isinstance(data.get("args"), dict):
        known = types(_release(data)) if types else None
        args, problems, notes = _type_args(data["args"], known, loaded)
        data = {**data, "args": args}
    service = None
    try:
        service = Service.model_validate(data)
    except ValidationError as error:
        document = Document(data, loaded.marks)
        problems += [problem(e, document, Service, loaded.file) for e in _telling(error.errors())]
    if isinstance(data.get("env"), dict):
        texts = {str(name): _letters(value) for name, value in data["env"].items()}
        for name, what, todo in environment.wrong(texts, service.gpus if service else None):
            problems.append(Problem(loaded.where("env", name), what, todo))
    if problems:
        service = None
    return replace(loaded, service=service, problems=tuple(sorted(set(problems))), notes=tuple(sorted(set(notes))))


def _letters(value: Any) -> str:
    return value.text if isinstance(value, Plain) else str(value)


def _telling(errors: list[Any]) -> list[Any]:
    """Without "is empty" for a list whose items are only wrong: pydantic counts the right ones."""
    inside = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short" or not any(loc[:-1] == error["loc"] for loc in inside if loc != error["loc"])
    ]


def _release(data: dict[str, Any]) -> str:
    engine = data.get("engine")
    release = engine.get("sglang", "") if isinstance(engine, dict) else ""
    return release.text if isinstance(release, Plain) else str(release)


def _type_args(
    args: dict[str, Any], known: Mapping[str, str] | None, loaded: Loaded
) -> tuple[dict[str, Any], list[Problem], list[Problem]]:
    """Unquoted scalars by the flag's type: text takes the letters, with a hint to quote YAML 1.1 traps."""
    out = dict(args)
    problems: list[Problem] = []
    notes: list[Problem] = []
    for name, value in args.items():
        if not isinstance(value, Plain) or (value.value is None and not value.trap):
            continue
        kind = (known or {}).get(name, "")
        mark = loaded.where("args", name)
        if kind == "str":
            out[name] = value.text
            if value.trap or isinstance(value.value, bool):
                notes.append(Problem(mark, f"`{name}: {value.text}` is taken as text", f'quote it: "{value.text}"'))
        elif kind == "bool" and value.trap:
            meant = "true" if value.trap.startswith("true") else "false" if value.trap.startswith("false") else ""
            todo = f"write {meant}" if meant else "write true or false"
            problems.append(Problem(mark, f"`{name}`: unquoted `{value.text}` is {value.trap}", todo))
            out[name] = meant == "true"
        elif value.trap:
            todo = "write the number plainly" if kind in ("int", "float") else f'quote it: "{value.text}"'
            problems.append(Problem(mark, f"`{name}`: unquoted `{value.text}` is {value.trap}", todo))
            out[name] = value.text
    return out, problems, notes
