"""Names of a module, found without importing it: what a name is bound to, followed through imports inside the tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from sglfleet.extract.tree import SourceTree


@dataclass(frozen=True, slots=True)
class External:
    """Something outside the tree: a builtin, the standard library, another package."""

    name: str  # dotted, "argparse.SUPPRESS", "int"


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the tree."""

    path: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A definition or assignment in a module of the tree."""

    path: str
    name: str
    node: ast.stmt  # FunctionDef, ClassDef, Assign or AnnAssign


Binding = External | Module | Bound


class Scopes:
    """Module-level names of every module of one tree, read once each."""

    def __init__(self, tree: SourceTree):
        self.tree = tree
        self._scopes: dict[str, dict[str, ast.stmt]] = {}

    def names(self, path: str) -> dict[str, ast.stmt]:
        """Name -> the statement that binds it, at module level. Of two branches the first one that binds it."""
        if path not in self._scopes:
            found: dict[str, ast.stmt] = {}
            for statement in flat(self.tree.ast(path).body):
                for name in bound_names(statement):
                    if name not in found or not _guarded(statement):
                        found[name] = statement
            self._scopes[path] = found
        return self._scopes[path]

    def find(self, path: str, name: str, depth: int = 0) -> Binding:
        """What `name` means at module level of `path`. A name that nobody binds is a builtin."""
        statement = self.names(path).get(name)
        if statement is None:
            return self._star(path, name, depth) or External(name)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return self.imported(path, statement, name, depth)
        return Bound(path, name, statement)

    def imported(self, path: str, statement: ast.Import | ast.ImportFrom, name: str, depth: int = 0) -> Binding:
        """What an import statement binds `name` to."""
        if depth > 12:  # modules that import each other's names in a circle bind nothing here
            return External(name)
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    dotted = alias.name if alias.asname else name
                    module = self.tree.module(dotted)
                    return Module(module) if module else External(dotted)
        else:
            source = absolute(path, statement)
            for alias in statement.names:
                if (alias.asname or alias.name) != name:
                    continue
                module = self.tree.module(source)
                if module is None:
                    return External(f"{source}.{alias.name}")
                inner = self.tree.module(f"{source}.{alias.name}")
                bound = self.names(module).get(alias.name)
                if inner and (bound is None or _same_import(module, bound, source, alias.name)):
                    return Module(inner)
                return self.find(module, alias.name, depth + 1)
        return External(name)

    def _star(self, path: str, name: str, depth: int) -> Binding | None:
        for statement in self.tree.ast(path).body:
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*" and depth < 4:
                module = self.tree.module(absolute(path, statement))
                if module and module != path:
                    found = self.find(module, name, depth + 1)
                    if not isinstance(found, External):
                        return found
        return None


def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at module level, those inside `if`, `try` and `with` too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from flat(statement.body)
            yield from flat(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from flat(handler.body)


def bound_names(statement: ast.stmt) -> list[str]:
    """Names that a statement binds, without what it holds inside."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Assign():
            return [t.id for target in statement.targets for t in ast.walk(target) if isinstance(t, ast.Name)]
        case ast.AnnAssign(target=ast.Name()) if statement.value is not None:
            return [statement.target.id]  # type: ignore[union-attr]
        case ast.Import():
            return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
        case ast.ImportFrom():
            return [alias.asname or alias.name for alias in statement.names if alias.name != "*"]
    return []


def absolute(path: str, statement: ast.ImportFrom) -> str:
    """The absolute module of a `from … import`."""
    if not statement.level:
        return statement.module or ""
    package = path.removesuffix(".py").split("/")[:-1]
    base = package[: len(package) - statement.level + 1]
    return ".".join([*base, *(statement.module.split(".") if statement.module else [])])


def _same_import(path: str, bound: ast.stmt, source: str, name: str) -> bool:
    """The package itself binds the name by importing its own submodule: `from . import env`."""
    return (
        isinstance(bound, ast.ImportFrom)
        and absolute(path, bound) == source
        and any(alias.name == name for alias in bound.names)
    )


def _guarded(statement: ast.stmt) -> bool:
    """Assignments of a fallback (`X = None` in an except branch) never hide the first binding."""
    match statement:
        case ast.Assign(value=ast.Constant(value=None)):
            return True
    return False
