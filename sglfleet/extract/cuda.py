"""Lowest CUDA for each SM, as a FlashInfer release tests it before it builds."""

from __future__ import annotations

import ast
import re
from typing import Any

from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.values import Function, RaisedError

CONTEXT = "flashinfer/compilation_context.py"
AOT = "flashinfer/aot.py"
SMS = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (10, 7), (11, 0), (12, 0), (12, 1))
TOOLKITS = tuple(f"12.{n}" for n in range(10)) + tuple(f"13.{n}" for n in range(5))
HAS_SM = re.compile(r"^sm(\d{2,3})(f?)$")


def minimums(interpreter: Interpreter) -> dict[str, str]:
    """SM -> the first toolkit with which `_normalize_cuda_arch` does not raise; SMs it never refuses are left out."""
    normalize = _method(interpreter, CONTEXT, "CompilationContext", "_normalize_cuda_arch")
    if normalize is None:
        return {}
    found: dict[str, str] = {}
    for major, minor in SMS:
        first = next((t for t in TOOLKITS if _accepts(interpreter, normalize, major, minor, t)), None)
        if first != TOOLKITS[0]:
            found[f"{major}.{minor}"] = first or "none"
    return found


def _accepts(interpreter: Interpreter, normalize: Function, major: int, minor: int, toolkit: str) -> bool:
    def at_least(node: ast.Call, frame: Any) -> bool:
        return _number(toolkit) >= _number(str(interpreter.value(node.args[-1], frame)))

    interpreter.hooks["is_cuda_version_at_least"] = at_least
    try:
        interpreter.call(normalize, [major, minor], {}, normalize.node, 0)
    except RaisedError:
        return False
    finally:
        del interpreter.hooks["is_cuda_version_at_least"]
    return True


def aot_minimums(interpreter: Interpreter) -> dict[str, str]:
    """SM -> toolkit from `"sm103": has_sm("compute_103", "12.9")`, the table of the precompiled cache."""
    tree = interpreter.scopes.tree
    if not tree.has(AOT):
        return {}
    found: dict[str, str] = {}
    for node in ast.walk(tree.ast(AOT)):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            match key, value:
                case (
                    ast.Constant(value=str(name)),
                    ast.Call(func=ast.Name(id="has_sm"), args=[_, ast.Constant(value=str(toolkit))]),
                ) if match := HAS_SM.match(name):
                    found[f"{match[1][:-1]}.{match[1][-1]}{match[2]}"] = toolkit
    return dict(sorted(found.items(), key=lambda item: (float(item[0].rstrip("f")), item[0])))


def _method(interpreter: Interpreter, path: str, cls: str, name: str) -> Function | None:
    tree = interpreter.scopes.tree
    if not tree.has(path):
        return None
    for statement in tree.ast(path).body:
        if isinstance(statement, ast.ClassDef) and statement.name == cls:
            for inner in statement.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == name:
                    return Function(path, inner)
    return None


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
