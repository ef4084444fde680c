"""Values of expressions, computed from source text. A small, total subset of Python: what it does not know, it says.

Nothing of a release is imported or run: names are followed through the tree by `scope`, literals, displays,
comprehensions and a few pure builtins are computed here, and everything else raises `Unresolved`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from sglfleet.extract.scope import Bound, External, Module, Scopes
from sglfleet.extract.values import (
    BINARY,
    BUILTIN_VALUES,
    COMPARE,
    ITERATING,
    METHODS,
    PURE,
    Class,
    Frame,
    Function,
    Instance,
    Member,
    RaisedError,
    UnresolvedError,
    assigned,
    field_default,
    imported_names,
    is_name,
    mutate,
    own,
    unpack,
)

DEPTH = 40  # nested evaluations; deeper is a cycle


class Interpreter:
    """Evaluates expressions of one tree. `calls` adds what a caller knows better: dotted name -> function."""

    def __init__(self, scopes: Scopes):
        self.scopes = scopes
        self.hooks: dict[str, Callable[[ast.Call, Frame], Any]] = {}
        self._globals: dict[tuple[str, str], Any] = {}
        self._bodies: dict[tuple[str, str], frozenset[str]] = {}

    def pin(self, path: str, name: str, value: Any) -> None:
        """Fix the value of a module-level name, where a caller knows which of its bindings counts."""
        self._globals[(path, name)] = value

    # -- names

    def name(self, path: str, name: str, depth: int = 0) -> Any:
        """Value of a module-level name. Raises Unresolved."""
        key = (path, name)
        if key not in self._globals:
            self._globals[key] = self._from(self.scopes.find(path, name), depth)
        return self._globals[key]

    def _from(self, found: Bound | Module | External, depth: int) -> Any:
        if isinstance(found, Module | External):
            return BUILTIN_VALUES.get(found.name, found) if isinstance(found, External) else found
        match found.node:
            case ast.FunctionDef():
                return Function(found.path, found.node)
            case ast.ClassDef():
                return Class(found.path, found.node)
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value):
                result = self.value(value, Frame(found.path, {}, depth + 1))
                return self._mutated(found, result)
        raise UnresolvedError(found.node)

    def _mutated(self, found: Bound, value: Any) -> Any:
        """Apply what the module does to its own list or set afterwards: `X.append(…)`, `X += […]`."""
        if not isinstance(value, list | set | dict):
            return value
        for statement in self.scopes.tree.ast(found.path).body:
            if isinstance(statement, ast.AugAssign) and is_name(statement.target, found.name):
                value = value + self.value(statement.value, Frame(found.path))
            elif (
                isinstance(statement, ast.Expr)
                and isinstance(call := statement.value, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and is_name(call.func.value, found.name)
            ):
                mutate(value, call.func.attr, [self.value(a, Frame(found.path)) for a in call.args])
        return value

    # -- expressions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression. Raises Unresolved."""
        if frame.depth > DEPTH:
            raise UnresolvedError(node)
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise UnresolvedError(node)
        return method(node, frame)

    def _constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        if node.id in frame.local:
            return frame.local[node.id]
        if frame.cls is not None and node.id in self._class_names(frame.cls):
            return self.class_attribute(frame.cls, node.id, node, frame.depth + 1)
        return self.name(frame.path, node.id, frame.depth)

    def _class_names(self, cls: Class) -> frozenset[str]:
        key = (cls.path, cls.node.name)
        if key not in self._bodies:
            self._bodies[key] = frozenset(name for s in cls.node.body if (name := assigned(s)[0]))
        return self._bodies[key]

    def _items(self, nodes: list[ast.expr], frame: Frame) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self._iterate(node.value, frame))
            else:
                items.append(self.value(node, frame))
        return items

    def _list(self, node: ast.List, frame: Frame) -> list[Any]:
        return self._items(node.elts, frame)

    def _tuple(self, node: ast.Tuple, frame: Frame) -> tuple[Any, ...]:
        return tuple(self._items(node.elts, frame))

    def _set(self, node: ast.Set, frame: Frame) -> list[Any]:
        """A set, kept as a list in source order: its own order changes from run to run."""
        return list(dict.fromkeys(self._items(node.elts, frame)))

    def _dict(self, node: ast.Dict, frame: Frame) -> dict[Any, Any]:
        """Values that are not known stay out of reach only where they are asked for: keys are what matters."""
        result: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self.value(item, frame))
                continue
            try:
                held = self.value(item, frame)
            except UnresolvedError as error:
                held = External(f"?{error}")
            result[self.value(key, frame)] = held
        return result

    def _joinedstr(self, node: ast.JoinedStr, frame: Frame) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                shown = self.value(part.value, frame)
                parts.append(repr(shown) if part.conversion == ord("r") else str(shown))
            else:
                parts.append(str(self.value(part, frame)))
        return "".join(parts)

    def _binop(self, node: ast.BinOp, frame: Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.right, frame)
        operation = BINARY.get(type(node.op))
        if operation is None or isinstance(left, External) or isinstance(right, External):
            raise UnresolvedError(node)
        try:
            return operation(left, right)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            raise UnresolvedError(node) from None

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> Any:
        operand = self.value(node.operand, frame)
        if isinstance(operand, External):
            raise UnresolvedError(node)
        if isinstance(node.op, ast.Not):
            return not operand
        if isinstance(node.op, ast.USub) and isinstance(operand, int | float):
            return -operand
        raise UnresolvedError(node)

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Any:
        return self.value(node.body if self.truth(node.test, frame) else node.orelse, frame)

    def truth(self, node: ast.expr, frame: Frame) -> bool:
        found = self.value(node, frame)
        if isinstance(found, External | Instance):
            raise UnresolvedError(node)
        return bool(found)

    def _boolop(self, node: ast.BoolOp, frame: Frame) -> Any:
        found: Any = None
        for part in node.values:
            found = self.value(part, frame)
            if isinstance(found, External):
                raise UnresolvedError(node)
            if bool(found) is isinstance(node.op, ast.Or):
                return found
        return found

    def _compare(self, node: ast.Compare, frame: Frame) -> bool:
        left = self.value(node.left, frame)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator, frame)
            if isinstance(left, External) or isinstance(right, External):
                raise UnresolvedError(node)
            check = COMPARE.get(type(operator))
            try:
                if check is None or not check(left, right):
                    if check is None:
                        raise UnresolvedError(node)
                    return False
            except TypeError:
                raise UnresolvedError(node) from None
            left = right
        return True

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Function:
        return Function(frame.path, node)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        holder = self.value(node.value, frame)
        try:
            return holder[self.value(node.slice, frame)]
        except (TypeError, KeyError, IndexError):
            raise UnresolvedError(node) from None

    def _listcomp(self, node: ast.ListComp, frame: Frame) -> list[Any]:
        return self._comprehend(node.elt, node.generators, frame)

    def _setcomp(self, node: ast.SetComp, frame: Frame) -> list[Any]:
        return list(dict.fromkeys(self._comprehend(node.elt, node.generators, frame)))

    def _generatorexp(self, node: ast.GeneratorExp, frame: Frame) -> list[Any]:
        return self._comprehend(node.elt, node.generators, frame)

    def _comprehend(self, element: ast.expr, generators: list[ast.comprehension], frame: Frame) -> list[Any]:
        first, *rest = generators
        found: list[Any] = []
        for item in self._iterate(first.iter, frame):
            inner = frame.inner(**unpack(first.target, item))
            if all(self.truth(test, inner) for test in first.ifs):
                found.extend(self._comprehend(element, rest, inner) if rest else [self.value(element, inner)])
        return found

    def _iterate(self, node: ast.expr, frame: Frame) -> list[Any]:
        found = self.value(node, frame)
        if isinstance(found, Class):
            members = self.members(found)
            if members is not None:
                return list(members.values())
        if isinstance(found, list | tuple | set | dict | range | str):
            return list(found)
        raise UnresolvedError(node)

    # -- attributes and classes

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.attribute(self.value(node.value, frame), node.attr, node, frame.depth)

    def attribute(self, holder: Any, attr: str, node: ast.AST, depth: int = 0) -> Any:
        if isinstance(holder, External):
            dotted = f"{holder.name}.{attr}"
            return BUILTIN_VALUES.get(dotted, External(dotted))
        if isinstance(holder, Module):
            return self.name(holder.path, attr, depth)
        if isinstance(holder, Member):
            if attr in ("name", "value"):
                return getattr(holder, attr)
        elif isinstance(holder, Class | Instance):
            return self.class_attribute(holder if isinstance(holder, Class) else holder.cls, attr, node, depth)
        elif isinstance(holder, Function) and attr == "__doc__" and isinstance(holder.node, ast.FunctionDef):
            return ast.get_docstring(holder.node, clean=False)
        raise UnresolvedError(node)

    def class_attribute(self, holder: Class, attr: str, node: ast.AST, depth: int = 0) -> Any:
        """An attribute that the class body assigns; `field(default=…)` gives its default, as dataclasses do."""
        members = self.members(holder)
        if members is not None and attr in members:
            return members[attr]
        for statement in holder.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == attr:
                return Function(holder.path, statement)
            target, value = assigned(statement)
            if target == attr and value is not None:
                return self.value(field_default(value) or value, Frame(holder.path, {}, depth + 1, holder))
        for base in holder.node.bases:
            found = self.value(base, Frame(holder.path, {}, depth + 1))
            if isinstance(found, Class):
                return self.class_attribute(found, attr, node, depth + 1)
        raise UnresolvedError(node)

    def members(self, cls: Class) -> dict[str, Member] | None:
        """Members of an enum in source order, None for any other class."""
        bases = [ast.unparse(base).rpartition(".")[2] for base in cls.node.bases]
        if not any(base.endswith(("Enum", "Flag")) for base in bases):
            return None
        found: dict[str, Member] = {}
        for statement in cls.node.body:
            target, value = assigned(statement)
            if target is None or value is None or target.startswith("_"):
                continue
            text = ast.unparse(value)
            if text.endswith("auto()"):
                held: Any = target.lower() if "StrEnum" in bases else len(found) + 1
            else:
                try:
                    held = self.value(value, Frame(cls.path, {k: m.value for k, m in found.items()}))
                except UnresolvedError:
                    held = External(text)
            found[target] = Member(cls.node.name, target, held)
        return found

    # -- calls

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in self.hooks:
            return self.hooks[node.func.id](node, frame)
        if isinstance(node.func, ast.Attribute):
            holder = self.value(node.func.value, frame)
            plain_method = self._method(node, holder, node.func.attr, frame)
            if plain_method is not NotImplemented:
                return plain_method
            called = self.attribute(holder, node.func.attr, node.func, frame.depth)
        else:
            called = self.value(node.func, frame)
        if isinstance(called, External):
            return self._builtin(called, node, frame)
        args = self._items(node.args, frame)
        kwargs = {k.arg: self.value(k.value, frame) for k in node.keywords if k.arg}
        if any(k.arg is None for k in node.keywords):
            raise UnresolvedError(node)
        if isinstance(called, Class):
            return Instance(called, tuple(args), kwargs)
        if isinstance(called, Function):
            return self.call(called, args, kwargs, node, frame.depth)
        raise UnresolvedError(node)

    def _builtin(self, called: External, node: ast.Call, frame: Frame) -> Any:
        if called.name in PURE and not node.keywords:
            arguments = [
                self._iterate(a, frame) if called.name in ITERATING else self.value(a, frame) for a in node.args
            ]
            if not any(isinstance(a, External) for a in arguments):
                return PURE[called.name](*arguments)
        raise UnresolvedError(node)

    def _method(self, node: ast.Call, holder: Any, attr: str, frame: Frame) -> Any:
        """Methods of plain values: `.keys()`, `.lower()`, … NotImplemented where the holder is none."""
        if isinstance(holder, Instance) and attr == "get":  # an environment variable that is not set
            return holder.args[0] if holder.args else None
        if isinstance(holder, External) and holder.name == "sys.modules":
            return None
        if not isinstance(holder, str | list | dict | tuple) or attr not in METHODS:
            return NotImplemented
        try:
            result = getattr(holder, attr)(*[self.value(a, frame) for a in node.args])
        except (TypeError, ValueError, LookupError, AttributeError):
            raise UnresolvedError(node) from None
        return list(result) if attr in ("keys", "values", "items") else result

    def call(self, called: Function, args: list[Any], kwargs: dict[str, Any], node: ast.AST, depth: int) -> Any:
        """A function of the tree whose body is simple enough. Raises Unresolved."""
        parameters = [a.arg for a in called.node.args.args]
        frame = Frame(called.path, {**dict(zip(parameters, args, strict=False)), **kwargs}, depth + 1)
        defaults = called.node.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            if parameter not in frame.local:
                frame.local[parameter] = self.value(default, Frame(called.path, {}, depth + 1))
        if isinstance(called.node, ast.Lambda):
            return self.value(called.node.body, frame)
        done, result = self.run(called.node.body, frame)
        return result if done else None

    def run(self, body: list[ast.stmt], frame: Frame) -> tuple[bool, Any]:
        """Statements in order; (True, value) once one returns. Raises Unresolved for anything it does not know."""
        for statement in body:
            done, result = self.step(statement, frame)
            if done:
                return True, result
        return False, None

    def step(self, statement: ast.stmt, frame: Frame) -> tuple[bool, Any]:
        match statement:
            case ast.Return(value=value):
                return True, self.value(value, frame) if value else None
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                frame.local[name] = own(self.value(value, frame))
            case ast.If():
                return self.run(statement.body if self.truth(statement.test, frame) else statement.orelse, frame)
            case ast.Import() | ast.ImportFrom():
                for name in imported_names(statement):
                    frame.local[name] = self._from(self.scopes.imported(frame.path, statement, name), frame.depth + 1)
            case ast.Raise():
                raise RaisedError(ast.unparse(statement))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=args)) if (
                isinstance(frame.local.get(name), list | dict)
            ):
                mutate(frame.local[name], attr, [self.value(a, frame) for a in args])
            case ast.Expr(value=ast.Call() as call):
                self.value(call, frame)
            case _:
                raise UnresolvedError(statement)
        return False, None
