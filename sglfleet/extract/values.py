"""What expressions evaluate to, and the pure operations on it that are computed without running a release."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.scope import External


class UnresolvedError(Exception):
    """An expression whose value cannot be known without running the engine; the message is its source text."""

    def __init__(self, node: ast.AST):
        super().__init__()
        self.node = node

    def __str__(self) -> str:
        return ast.unparse(self.node)


class RaisedError(Exception):
    """The function that is followed raises here."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the tree."""

    path: str
    node: ast.FunctionDef | ast.Lambda

    @property
    def name(self) -> str:
        return self.node.name if isinstance(self.node, ast.FunctionDef) else ast.unparse(self.node)


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the tree."""

    path: str
    node: ast.ClassDef


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an enum of the tree."""

    cls: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Instance:
    """A call of a class of the tree with known arguments: `Arg(help=…)`, `EnvBool(False)`."""

    cls: Class
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class Frame:
    """Where an expression stands: its module, and the local names around it."""

    path: str
    local: dict[str, Any] = field(default_factory=dict)
    depth: int = 0
    cls: Class | None = None  # inside a class body, whose names come before the module's

    def inner(self, **names: Any) -> Frame:
        return Frame(self.path, {**self.local, **names}, self.depth + 1, self.cls)


def assigned(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """Name and value of a plain assignment."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    return None, None


def field_default(node: ast.expr) -> ast.expr | None:
    """The `default=` of a `dataclasses.field(…)` or `msgspec.field(…)` call, None for any other expression."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "field":
        return next((k.value for k in node.keywords if k.arg == "default"), None)
    return None


def imported_names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def own(value: Any) -> Any:
    """A copy, so that a function that changes its local list leaves the module's alone."""
    return value.copy() if isinstance(value, list | dict) else value


def mutate(value: Any, method: str, args: list[Any]) -> None:
    if isinstance(value, list) and method in ("append", "add") and args[0] not in value:
        value.append(args[0])
    elif isinstance(value, list) and method in ("extend", "update"):
        value.extend(a for a in args[0] if a not in value)
    elif isinstance(value, dict) and method == "update":
        value.update(args[0])


def unpack(target: ast.expr, item: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: item}
    if isinstance(target, ast.Tuple) and isinstance(item, tuple | list):
        return {n.id: v for n, v in zip(target.elts, item, strict=False) if isinstance(n, ast.Name)}
    raise UnresolvedError(target)


METHODS = (
    "keys",
    "values",
    "items",
    "lower",
    "upper",
    "strip",
    "split",
    "replace",
    "join",
    "format",
    "copy",
    "get",
    "index",
)
ITERATING = ("list", "tuple", "set", "sorted", "frozenset")
PURE: dict[str, Callable[..., Any]] = {
    "list": lambda items=(): list(items),
    "tuple": lambda items=(): tuple(items),
    "set": lambda items=(): list(dict.fromkeys(items)),
    "frozenset": lambda items=(): list(dict.fromkeys(items)),
    "sorted": sorted,
    "dict": lambda items=(): dict(items),
    "str": lambda item="": item.value if isinstance(item, Member) else str(item),
    "int": lambda item=0: int(item),
    "float": lambda item=0.0: float(item),
    "len": len,
    "range": range,
    "bool": bool,
}
BUILTIN_VALUES: dict[str, Any] = {
    "sys.maxsize": sys.maxsize,  # 2**63 - 1 on every machine that runs the engine
    "argparse.SUPPRESS": External("argparse.SUPPRESS"),
    "math.inf": float("inf"),
}
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: [*a, *b] if isinstance(a, list) else a + b,
    ast.Sub: lambda a, b: [x for x in a if x not in b] if isinstance(a, list) else a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b if abs(b) < 128 else 1 // 0,
    ast.LShift: lambda a, b: a << b if b < 128 else 1 // 0,
    ast.BitOr: lambda a, b: list(dict.fromkeys([*a, *b])) if isinstance(a, list) else a | b,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: bool(a == b),
    ast.NotEq: lambda a, b: bool(a != b),
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Gt: lambda a, b: bool(a > b),
    ast.Lt: lambda a, b: bool(a < b),
    ast.GtE: lambda a, b: bool(a >= b),
    ast.LtE: lambda a, b: bool(a <= b),
}
