"""What pydantic finds wrong, in our words: `file:line:col: what: what to do`, with a "did you mean"."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from validators.fields import WrongError
from validators.source import Document, Mark, Path, Plain, Problem

_KINDS = {
    "string_type": ("is not text", "write text"),
    "int_type": ("is not a whole number", "write a whole number"),
    "bool_type": ("is not a switch", "write true or false"),
    "float_type": ("is not a number", "write a number"),
    "list_type": ("is not a list", "write [one, two]"),
    "tuple_type": ("is not a list", "write [one, two]"),
    "dict_type": ("is not a mapping", "write `key: value` lines below it"),
    "model_type": ("is not a mapping", "write `key: value` lines below it"),
    "string_too_short": ("is empty", "give a value, or remove the line"),
    "too_short": ("is empty", "name at least one"),
    "string_too_long": ("is too long", "shorten it"),
}


def nearest(marks: Mapping[Path, Mark], path: Path) -> Mark | None:
    """The mark of the longest known way towards `path`; steps that are not in the document are skipped."""
    known: Path = ()
    for step in path:
        if (*known, step) in marks:
            known = (*known, step)
    return marks.get(known)


def problem(error: Any, document: Document, model: type[BaseModel], file: str) -> Problem:
    """One pydantic error as `file:line:col: what: what to do`."""
    loc: Path = error["loc"]
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongError):
        loc = (*loc, *cause.at)
    mark = nearest(document.marks, loc) or Mark(file, 1, 1)
    known = [step for step in _known(document.data, loc) if step != "[key]"]
    dotted = ".".join(map(str, known)) or "the file"
    what, todo = _words(error, cause, loc, dotted, model)
    return Problem(mark, what, todo)


def _known(data: Any, loc: Path) -> list[str | int]:
    """The steps of a location that exist in the document: pydantic adds names of union members."""
    steps: list[str | int] = []
    for step in loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            continue
        steps.append(step)
    return steps


def _words(error: Any, cause: Any, loc: Path, dotted: str, model: type[BaseModel]) -> tuple[str, str]:
    kind = error["type"]
    if isinstance(cause, WrongError):
        return (f"`{dotted}`: {cause.what}" if dotted != "the file" else cause.what), cause.todo
    if kind == "missing":
        return f"`{'.'.join(map(str, loc))}` is missing", _example(model, loc)
    if kind == "extra_forbidden":
        return f"unknown key `{dotted}`", _did_you_mean(model, loc)
    if kind in ("enum", "literal_error"):
        expected = error.get("ctx", {}).get("expected", "")
        given = _written(error["input"])
        return f"`{dotted}`: `{given}` is not allowed", _close(given, expected) or f"write {expected}"
    if kind in _KINDS:
        what, todo = _KINDS[kind]
        return f"`{dotted}` {what}", todo
    context = error.get("ctx", {})
    if kind == "greater_than_equal":
        return f"`{dotted}`: {_written(error['input'])} is too small", f"write at least {context['ge']:g}"
    if kind == "less_than_equal":
        return f"`{dotted}`: {_written(error['input'])} is too large", f"write at most {context['le']:g}"
    return f"`{dotted}`: {error['msg'][:1].lower()}{error['msg'][1:]}", "write another value"


def _written(value: Any) -> str:
    if isinstance(value, Plain):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, default=str)[:60]


def _close(given: str, expected: str) -> str:
    choices = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    close = difflib.get_close_matches(given, choices, 1)
    return f"did you mean `{close[0]}`? One of {', '.join(choices)}" if close else ""


def _fields(model: type[BaseModel], loc: Path) -> dict[str, Any]:
    """Fields of the model that stands at `loc` (without its last step)."""
    fields: dict[str, Any] = dict(model.model_fields)
    for step in loc[:-1]:
        found = fields.get(str(step))
        inner = next((m for m in _models(found.annotation) if found), None) if found else None
        if inner is not None:
            fields = dict(inner.model_fields)
    return fields


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]


_ELSEWHERE = {
    "launch_override": "that is inventory data of lab hosts, not part of a service",
    "router": "the router is inventory data",
    "services": "which host runs which service is inventory data",
    "service_overrides": "overrides are inventory data",
    "host": "write it in `args:`",
    "port": "write it in `args:`",
}


def _did_you_mean(model: type[BaseModel], loc: Path) -> str:
    fields, key = _fields(model, loc), str(loc[-1])
    if len(loc) == 1 and key in _ELSEWHERE:
        return _ELSEWHERE[key]
    close = difflib.get_close_matches(key.replace("-", "_"), fields, 1, 0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if len(loc) == 1:
        return "SGLang's own flags go into `args:`; keys here are " + ", ".join(fields)
    return "keys here are " + ", ".join(fields)


def _example(model: type[BaseModel], loc: Path) -> str:
    found = _fields(model, loc).get(str(loc[-1]))
    examples = getattr(found, "examples", None) if found else None
    if examples:
        return f"add `{loc[-1]}: {json.dumps(examples[0]) if not isinstance(examples[0], str) else examples[0]}`"
    return {"engine": "add `engine: {sglang: 0.5.23}`", "model": "add `model: /models/NAME`"}.get(
        str(loc[-1]), f"add `{loc[-1]}`"
    )
