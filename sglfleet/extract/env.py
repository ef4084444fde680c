"""Environment variables that a release reads: declared in `sglang/srt/environ.py`, or read in place."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from typing import Any

from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.option import plain
from sglfleet.extract.tree import SourceTree
from sglfleet.extract.values import Class, Frame, Instance, UnresolvedError, assigned

DECLARATIONS = "sglang/srt/environ.py"
ELSEWHERE = ("sglang/test/", "sglang/multimodal_gen/", "sglang/lang/", "sglang/benchmark/", "sglang/eval/")  # no server
READS = {  # call -> type of the variable, "" where the call does not say
    "os.getenv": "",
    "os.environ.get": "",
    "environ.get": "",
    "getenv": "",
    "os.environ.pop": "",
    "get_bool_env_var": "bool",
    "get_int_env_var": "int",
    "get_float_env_var": "float",
}
HINT = re.compile(r"environ|getenv|_env_var")
NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")
Row = dict[str, Any]


def variables(interpreter: Interpreter) -> list[Row]:
    """One row per variable, sorted by name: its declaration, or else its first read."""
    tree = interpreter.scopes.tree
    found: dict[str, Row] = {}
    for row in [*_declared(interpreter), *_read(tree)]:
        found.setdefault(row["name"], row)
    return [found[name] for name in sorted(found)]


def _declared(interpreter: Interpreter) -> list[Row]:
    """`SGLANG_X = EnvBool(False)` in the class body of Envs."""
    tree = interpreter.scopes.tree
    if not tree.has(DECLARATIONS):
        return []
    rows = []
    for cls in tree.ast(DECLARATIONS).body:
        if not (isinstance(cls, ast.ClassDef) and cls.name == "Envs"):
            continue
        for statement in cls.body:
            name, value = assigned(statement)
            if name is None or not isinstance(value, ast.Call) or not ast.unparse(value.func).startswith("Env"):
                continue
            row = {"name": name, "type": ast.unparse(value.func).removeprefix("Env").lower()}
            row.update(_default(interpreter, value, Class(DECLARATIONS, cls)))
            rows.append({**row, "path": DECLARATIONS, "symbol": "Envs", "line": statement.lineno})
    return rows


def _default(interpreter: Interpreter, value: ast.Call, cls: Class) -> Row:
    """The declared default; nothing where it is computed when the engine runs."""
    try:
        made = interpreter.value(value, Frame(DECLARATIONS, cls=cls))
        held = made.args[0] if isinstance(made, Instance) and made.args else made.kwargs.get("default")
        return {"default": plain(held)}
    except (UnresolvedError, AttributeError):
        return {}


def _read(tree: SourceTree) -> list[Row]:
    rows = []
    for path in tree.list("sglang/"):
        if path.startswith(ELSEWHERE):
            continue
        lines = [n for n, text in enumerate(tree.read(path).split("\n"), 1) if HINT.search(text)]
        if lines:
            rows.extend(_reads(tree.ast(path), path, "", lines))
    return rows


def _reads(node: ast.AST, path: str, symbol: str, lines: list[int]) -> list[Row]:
    """Reads below a node; only what spans a line that can hold one is looked into."""
    rows: list[Row] = []
    for child in ast.iter_child_nodes(node):
        decorators = getattr(child, "decorator_list", [])
        start, end = getattr((decorators or [child])[0], "lineno", None), getattr(child, "end_lineno", None)
        if start is not None and end is not None:
            here = bisect_left(lines, start)
            if here == len(lines) or lines[here] > end:
                continue
        inner = symbol
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{symbol}.{child.name}".lstrip(".")
        read = _one(child)
        if read:
            rows.append({**read, "path": path, "symbol": symbol, "line": getattr(child, "lineno", 0)})
        rows.extend(_reads(child, path, inner, lines))
    return rows


def _dotted(func: ast.expr) -> str:
    """The last names of a call that can matter: `os.environ.get`, `get_bool_env_var` however it is reached."""
    if isinstance(func, ast.Name):
        return func.id
    if isinstance(func, ast.Attribute):
        holder = _dotted(func.value)
        return f"{holder}.{func.attr}" if holder in ("os", "environ", "os.environ") else func.attr
    return ""


def _one(node: ast.AST) -> Row | None:
    match node:
        case ast.Call(func=func, args=[ast.Constant(value=str(name)), *rest]) if NAME.match(name):
            kind = READS.get(_dotted(func))
            if kind is None:
                return None
            row: Row = {"name": name, "type": kind}
            if rest and isinstance(rest[0], ast.Constant):
                row["default"] = rest[0].value
            return row
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            return {"name": name, "type": ""} if NAME.match(name) else None
        case ast.Compare(left=ast.Constant(value=str(name)), comparators=[ast.Attribute(attr="environ")]):
            return {"name": name, "type": ""} if NAME.match(name) else None
    return None
