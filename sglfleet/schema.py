"""JSON Schema of service files for one engine release: for editors and other checkers. Draft 7, as editors read it."""

from __future__ import annotations

import json
from typing import Any

from validators.fields import SECRET_FLAGS
from validators.knowledge.model import Flag, Sglang
from validators.service import Service

DRAFT = "http://json-schema.org/draft-07/schema#"
_NOT_ARGS = SECRET_FLAGS | {"model", "model-path", "config"}
_TYPES: dict[str, Any] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": ["string", "number"]},  # an unquoted number is taken as the text it is
    "json": {"type": ["string", "object", "array"]},
    "unknown": {"type": ["string", "number", "boolean", "array", "object"]},
}


def service_schema(release: Sglang) -> dict[str, Any]:
    """The schema of service files that pin `release`."""
    schema = _clean(Service.model_json_schema())
    schema = json.loads(json.dumps(schema).replace("#/$defs/", "#/definitions/"))
    definitions = schema.pop("$defs")
    definitions["EngineSpec"]["properties"]["sglang"]["const"] = release.version
    properties = schema["properties"]
    properties["model"] = {"anyOf": [{"type": "string", "pattern": "^/"}, properties["model"]]}
    words = definitions["Policy"]
    per_flag = properties["on_unsupported"].pop("$ref", "#/definitions/OnUnsupported")
    properties["on_unsupported"] = {"anyOf": [words, {"$ref": per_flag}], "default": "auto"}
    properties["args"] = {
        "type": "object",
        "description": f"Flags of SGLang {release.version}, without dashes.",
        "additionalProperties": False,
        "properties": arguments(release),
    }
    return {
        "$schema": DRAFT,
        "$id": f"service-{release.version}.json",
        "title": f"sglfleet service, SGLang {release.version}",
        "description": f"Made by `sglfleet schema {release.version}` from {release.artifact.name}.",
        **{key: value for key, value in schema.items() if key not in ("title", "description")},
        "definitions": definitions,
    }


def arguments(release: Sglang) -> dict[str, Any]:
    """One property per spelling of every flag that may stand in `args`."""
    found: dict[str, Any] = {}
    for flag in release.flags.values():
        if flag.name in _NOT_ARGS:
            continue
        found[flag.name] = _flag(flag)
        for spelling in flag.spellings:
            name = spelling.lstrip("-")
            if spelling.startswith("--") and name not in found and not spelling.startswith("--no-"):
                alias = {k: v for k, v in found[flag.name].items() if k not in ("description", "default")}
                found[name] = {**alias, "description": f"Another spelling of {flag.name}."}
    return found


def _flag(flag: Flag) -> dict[str, Any]:
    if flag.refused:
        return {"not": {}, "description": flag.refused, "deprecationMessage": flag.refused}
    if flag.kind != "value":
        found: dict[str, Any] = {"type": "boolean"}
    else:
        holds_json = flag.type == "str" and "json" in f"{flag.name} {flag.help} {flag.converter}".lower()
        item = dict(_TYPES["json" if holds_json else flag.type])
        if flag.choices and not flag.choices_source and not flag.notes:
            item = {"enum": [choice for choice in flag.choices if choice is not None]}
        found = item
        if flag.many:
            found = {"anyOf": [item, {"type": "array", "items": item}]}
        if flag.nargs == "?" and flag.const is not None:
            found = {"anyOf": [found, {"type": "boolean"}]}
    if flag.help:
        found["description"] = flag.help
    if flag.default is not None and not flag.default_source and isinstance(flag.default, bool | int | float | str):
        found["default"] = flag.default
    if flag.deprecated:
        found["deprecated"] = True
        instead = f" Use {flag.replacement.lstrip('-')}." if flag.replacement else ""
        found["deprecationMessage"] = flag.deprecated + instead
    return found


def _clean(node: Any) -> Any:
    """Without pydantic's titles, which only repeat the names of keys."""
    if isinstance(node, dict):
        named = {"properties", "$defs"}
        limits = {"ge": "minimum", "le": "maximum"}  # pydantic leaves these where a function runs before the type
        return {
            limits.get(key, key): (
                {name: _clean(value) for name, value in item.items()} if key in named else _clean(item)
            )
            for key, item in node.items()
            if not (key == "title" and isinstance(item, str))
        }
    return [_clean(item) for item in node] if isinstance(node, list) else node


def text(schema: dict[str, Any]) -> str:
    """As it is committed: one flag a line, so that a release's changes can be read in a diff."""
    flags = schema["properties"]["args"]["properties"]
    lines = [f"     {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in flags.items()]
    mark = "@flags@"
    rest = {
        **schema,
        "properties": {**schema["properties"], "args": {**schema["properties"]["args"], "properties": mark}},
    }
    body = json.dumps(rest, indent=1, ensure_ascii=False)
    return body.replace(json.dumps(mark), "{\n" + ",\n".join(lines) + "\n    }") + "\n"
