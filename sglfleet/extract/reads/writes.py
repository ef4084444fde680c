"""Every assignment to an argument of the engine, by whatever form."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from sglfleet.extract.reads.flow import DECLARED, WRITES, Flow
from sglfleet.extract.reads.nodes import Store
from sglfleet.extract.reads.program import Program
from sglfleet.extract.reads.texts import RESOLUTION


def writes(program: Program, flow: Flow, name: str) -> Iterator[Store]:
    """Every assignment to a field of the arguments, by whatever form."""
    for store in program.attributes.get(name, ()):
        if isinstance(store.target, ast.Attribute) and flow.reach.texts.is_arguments(
            store.target.value, store.function
        ):
            yield store


def keys(program: Program, fields: set[str]) -> dict[str, list[Store]]:
    """Assignments to fields by keyword, by key and by name: `override(x=…)`, `d["x"] = …`, `{"x": …}`, `setattr`."""
    found: dict[str, list[Store]] = defaultdict(list)
    for function in program.functions:
        inside = RESOLUTION.match(function.path) is not None and not DECLARED.match(function.path)
        for store in function.stores:
            if isinstance(store.target, ast.Subscript) and store.name in fields and inside:
                found[store.name].append(store)
        for kind, name, site in function.loads:
            parent = program.parents.get(site.node)
            if kind == "text" and name in fields and getattr(site.node, "value", "") == name:
                if isinstance(parent, ast.Dict) and site.node in parent.keys and inside:
                    value = parent.values[parent.keys.index(site.node)]
                    found[name].append(Store(name, site.node, value, site.guards, function))
                elif (
                    isinstance(parent, ast.Call)
                    and getattr(parent.func, "id", "") == "setattr"
                    and len(parent.args) > 2
                ):
                    found[name].append(Store(name, site.node, parent.args[2], site.guards, function))
            if (
                kind in ("name", "attr")
                and name in WRITES - {"update", "dict", "replace"}
                and isinstance(parent, ast.Call)
            ):
                for keyword in parent.keywords:
                    if keyword.arg in fields and parent.func is site.node:
                        found[keyword.arg].append(Store(keyword.arg, site.node, keyword.value, site.guards, function))
            elif (
                name in ("update", "dict", "replace")
                and inside
                and isinstance(parent, ast.Call)
                and parent.func is site.node
            ):
                for keyword in parent.keywords:
                    if keyword.arg in fields:
                        found[keyword.arg].append(Store(keyword.arg, site.node, keyword.value, site.guards, function))
    return found
