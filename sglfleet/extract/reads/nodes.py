"""What a release's source is read as: functions with what they load and store, each under its conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Fn = ast.FunctionDef | ast.AsyncFunctionDef


_BARE = frozenset({"ctx", "op", "ops", "type_comment", "kind", "id", "attr", "arg", "lineno"})


@dataclass(frozen=True, eq=False, slots=True)
class Guard:
    """A test that held (or did not) where a place is reached."""

    test: ast.expr
    negated: bool
    owner: Function
    passed: bool = False  # a stop before, which was not met


@dataclass(eq=False, slots=True)
class Site:
    """A load of a name, an attribute or a string."""

    node: ast.expr
    guards: tuple[Guard, ...]
    function: Function


@dataclass(eq=False, slots=True)
class Store:
    """An assignment to an attribute, a name or a key."""

    name: str
    target: ast.expr
    value: ast.expr | None
    guards: tuple[Guard, ...]
    function: Function


@dataclass(eq=False, slots=True)
class Class:
    name: str
    path: str
    node: ast.ClassDef
    bases: tuple[str, ...]
    methods: dict[str, Function] = field(default_factory=dict)
    foreign: bool = False  # a base that is not in the tree may call any method


@dataclass(eq=False, slots=True)
class Function:
    """A function, or the code of a module (`node` is then the module)."""

    name: str
    path: str
    node: ast.AST
    symbol: str
    cls: Class | None = None
    outer: Function | None = None
    guards: tuple[Guard, ...] = ()  # where it is defined
    registered: bool = False  # a decorator of unknown effect takes it
    loads: list[tuple[str, str, Site]] = field(default_factory=list)  # kind (name, attr, text), name, site
    stores: list[Store] = field(default_factory=list)
    globals: set[str] = field(default_factory=set)

    @property
    def params(self) -> list[str]:
        if not isinstance(self.node, Fn):
            return []
        a = self.node.args
        return [one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs)]

    @property
    def is_property(self) -> bool:
        return isinstance(self.node, Fn) and any(
            ast.unparse(d).split(".")[-1] in ("property", "cached_property") for d in self.node.decorator_list
        )


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Child nodes without contexts and operators, which are half of all and say nothing here."""
    for name in node._fields:
        if name in _BARE:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, ast.AST):
                    yield one
        elif isinstance(value, ast.AST):
            yield value


def absolute(path: str, node: ast.ImportFrom) -> str:
    """The module of a `from … import`."""
    if not node.level:
        return node.module or ""
    package = path.removesuffix(".py").split("/")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def leaves(body: list[ast.stmt]) -> bool:
    """Does the block always leave what it stands in."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)
