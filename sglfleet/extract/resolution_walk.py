"""One function of argument resolution after the other, statement by statement, with what its names stand for.

The order is that of a launch. A branch is followed with its condition, both branches are joined after it, and what
stands behind an early return is reached where the function did not return (`symbols` says what names are).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglfleet.extract.checks import Guard, _message, quote
from sglfleet.extract.symbol_names import Names, forget, join, set_target, stored
from sglfleet.extract.symbols import CONFIG, Frame, function_frame

if TYPE_CHECKING:
    from sglfleet.extract.sites_resolution import World

Exits = tuple[str, ...]  # conditions, under each of which a function is left
ALWAYS = "True"
UNROLLED = 8  # rounds of a loop over a list that is written out


@dataclass(frozen=True)
class Known:
    """A function that can be entered."""

    path: str
    owner: str  # class, or ""
    node: ast.FunctionDef


def under(test: str, leaves: Exits) -> Exits:
    return tuple(test if one == ALWAYS else f"({test}) and ({one})" for one in leaves)


class Walker:
    """One module's part of the walk; enters functions of other modules through `world`.

    A block tells where it leaves the function in peace: what follows is reached where it did not.
    """

    def __init__(self, world: World, path: str) -> None:
        self.world = world
        self.path = path
        self.source = world.tree.read(path).encode().split(b"\n")
        self.stack: list[str] = []
        self.inherited = 0  # conditions of the callers: they stand in other places

    def enter(self, known: Known, guards: list[Guard], names: Names, stack: list[str]) -> None:
        before = self.stack, self.inherited
        self.stack, self.inherited = stack, len(guards)
        symbol = f"{known.owner}.{known.node.name}".lstrip(".")
        first = len(self.world.trace.sets)
        self.block(known.node.body, guards, function_frame(known.node, symbol, names))
        declared = [row for row in self.world.trace.sets[first:] if not row["n"]]
        n = self.world.trace.next() if declared else 0
        for row in declared:  # takes effect for whoever comes after
            row["n"] = n
        self.stack, self.inherited = before

    def block(self, body: list[ast.stmt], guards: list[Guard], frame: Frame) -> tuple[Exits, bool]:
        """(condition under which the block leaves the function, "" for never; whether nothing runs after it)."""
        here, exits = list(guards), list[str]()
        for node in body:
            before = len(self.world.trace.sets)
            leaves, dead = self.run(node, here, frame)
            if not isinstance(node, ast.If | ast.With):  # those did it inside
                self._outdated(self.world.trace.sets[before:], frame)
            exits += leaves
            test = getattr(node, "test", None)
            shown = quote(self.source, test) if test and leaves else ""
            here += [Guard(f"not ({one})", shown, node.lineno) for one in leaves]
            if dead:
                return tuple(exits), True
        return tuple(exits), False

    @staticmethod
    def _outdated(changed: list[dict[str, Any]], frame: Frame) -> None:
        """What a name read of a field before the field was set is not what the field is now."""
        for field in {row["field"] for row in changed if row["n"]}:
            asked = re.compile(rf"\.{field}\b")
            forget(frame.names, [n for n, value in frame.names.items() if asked.search(ast.unparse(value))])

    def run(self, node: ast.stmt, guards: list[Guard], frame: Frame) -> tuple[Exits, bool]:
        if isinstance(node, ast.If):
            return self._if(node, guards, frame)
        if isinstance(node, ast.Raise):
            self._stop(node, guards, frame, _message(node.exc))
            return (), True
        if isinstance(node, ast.Return | ast.Continue | ast.Break):
            self.seen(node, guards, frame)
            return (ALWAYS,), True
        if isinstance(node, ast.Assert):
            self._calls(node.test, guards, frame)
            failing = self.guard(node.test, frame, negated=True)
            self._stop(node, [*guards, failing], frame, _message(node.msg))
            return (), False
        if isinstance(node, ast.For | ast.While):
            return self._loop(node, guards, frame), False
        if isinstance(node, ast.Try):
            return self._try(node, guards, frame)
        if isinstance(node, ast.With):
            return self.block(node.body, guards, frame)
        if isinstance(node, ast.Match):
            for case in node.cases:
                self._perhaps(case.body, [*guards, Guard("something_in_a_match", "", node.lineno)], frame)
            return self._if_returns(node, "something_in_a_match"), False
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.seen(node, guards, frame)
        self.world.symbols.bind(node, self.path, frame)
        return (), False

    def _if(self, node: ast.If, guards: list[Guard], frame: Frame) -> tuple[Exits, bool]:
        self._calls(node.test, guards, frame)
        yes, no = self.guard(node.test, frame), self.guard(node.test, frame, negated=True)
        other = frame.copy()
        leaves, dead = self.block(node.body, [*guards, yes], frame)
        leaves_too, dead_too = self.block(node.orelse, [*guards, no], other)
        if dead and not dead_too:
            frame.names = other.names
        elif not dead:
            frame.names = frame.names if dead_too else join(yes.text, frame.names, other.names)
        return (*under(yes.text, leaves), *under(no.text, leaves_too)), dead and dead_too

    def _loop(self, node: ast.For | ast.While, guards: list[Guard], frame: Frame) -> Exits:
        if isinstance(node, ast.For):
            self._calls(node.iter, guards, frame)
            items = self.world.symbols.of(node.iter, self.path, frame)
            ends = {type(n) for statement in node.body for n in ast.walk(statement)}
            short = isinstance(items, ast.List | ast.Tuple) and len(items.elts) <= UNROLLED
            if short and not ends & {ast.Break, ast.Return} and not node.orelse:
                for item in items.elts:  # type: ignore[attr-defined]
                    set_target(frame.names, node.target, item)
                    self.block(node.body, guards, frame)
                return ()
        forget(frame.names, stored([node]))
        self._perhaps([*node.body, *node.orelse], [*guards, Guard("something_in_a_loop", "", node.lineno)], frame)
        return self._if_returns(node, "something_in_a_loop")

    def _perhaps(self, body: list[ast.stmt], guards: list[Guard], frame: Frame) -> None:
        """Statements of which nobody knows whether, or how often, they run."""
        self.block(body, guards, frame.copy())
        forget(frame.names, stored(body))

    @staticmethod
    def _if_returns(node: ast.AST, word: str) -> Exits:
        return (word,) if any(isinstance(n, ast.Return) for n in ast.walk(node)) else ()

    def _try(self, node: ast.Try, guards: list[Guard], frame: Frame) -> tuple[Exits, bool]:
        package = _imports(node)
        if package:
            return self._import(node, package, guards, frame)
        if not any(_quiet(handler) for handler in node.handlers) or _harmless(node):
            leaves, dead = self.block(node.body, guards, frame)
            for handler in node.handlers if not _harmless(node) else ():
                self._perhaps(handler.body, [*guards, Guard("something_in_a_try", "", node.lineno)], frame)
        else:
            unknown = Guard("something_in_a_try", "", node.lineno)
            for body in (node.body, *(handler.body for handler in node.handlers)):
                self._perhaps(body, [*guards, unknown], frame)
            returns = any(self._if_returns(n, "x") for n in (*node.body, *node.handlers))
            leaves, dead = ("something_in_a_try",) if returns else (), False
        more, dead_too = self.block([*node.orelse, *node.finalbody], guards, frame)
        return (*leaves, *more), dead or dead_too

    def _import(self, node: ast.Try, package: str, guards: list[Guard], frame: Frame) -> tuple[Exits, bool]:
        """`try: import x` and what is done where it is not installed."""
        text = f"importable({package!r})"
        other = frame.copy()
        first = node.body[0]
        shown = self.source[first.lineno - 1].decode().partition("#")[0].strip()
        missing = Guard(f"not {text}", shown, first.lineno)
        leaves, dead = self.block(node.handlers[0].body, [*guards, missing], other)
        found = Guard(text, shown, first.lineno)
        more, _ = self.block([*node.body[1:], *node.orelse], [*guards, found], frame)
        frame.names = frame.names if dead else join(text, frame.names, other.names)
        return (*under(f"not {text}", leaves), *under(text, more)), False

    def guard(self, test: ast.expr, frame: Frame, *, negated: bool = False) -> Guard:
        text = self.world.symbols.text(test, self.path, frame)
        return Guard(f"not ({text})" if negated else text, quote(self.source, test), test.lineno)

    def seen(self, node: ast.stmt, guards: list[Guard], frame: Frame) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._calls(child, guards, frame)
        rows, late = changes_of(node)
        if rows:
            self.world.change(self, rows, guards, frame, late=late)

    def _calls(self, node: ast.AST, guards: list[Guard], frame: Frame) -> None:
        """Enter what an expression calls; of `and`, `or` and a choice only some parts are come to."""
        if isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            return
        if isinstance(node, ast.BoolOp):
            here = list(guards)
            for value in node.values:
                self._calls(value, here, frame)
                if any(isinstance(n, ast.Call) for other in node.values[1:] for n in ast.walk(other)):
                    here = [*here, self.guard(value, frame, negated=isinstance(node.op, ast.Or))]
            return
        if isinstance(node, ast.IfExp):
            self._calls(node.test, guards, frame)
            self._calls(node.body, [*guards, self.guard(node.test, frame)], frame)
            self._calls(node.orelse, [*guards, self.guard(node.test, frame, negated=True)], frame)
            return
        for child in ast.iter_child_nodes(node):
            self._calls(child, guards, frame)
        if isinstance(node, ast.Call):
            self.world.call(self, node, guards, frame)

    def _stop(self, node: ast.stmt, guards: list[Guard], frame: Frame, message: str) -> None:
        if guards:
            shown = [guard for guard in guards[self.inherited :] if guard.quote]
            here = Guard("", self.source[node.lineno - 1].decode().strip(), node.lineno)
            self.world.stop(self, guards, frame, message, shown[-1] if shown else here)

    def text(self, node: ast.expr, frame: Frame) -> str:
        """An expression as it is evaluated: local names replaced."""
        return self.world.symbols.text(node, self.path, frame)


def _quiet(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def _harmless(node: ast.Try) -> bool:
    """Names set from what is there anyway, such as the model's configuration, and nothing done where that fails."""
    plain = all(isinstance(inner, ast.Assign | ast.ImportFrom) for inner in node.body)
    return plain and all(isinstance(inner, ast.Pass) for handler in node.handlers for inner in handler.body)


def _imports(node: ast.Try) -> str:
    """The package that a `try` is about: `try: import x … except ImportError: …`; else ""."""
    first = node.body[0]
    kinds = [ast.unparse(handler.type) for handler in node.handlers if handler.type]
    if kinds not in (["ImportError"], ["ModuleNotFoundError"]) or node.finalbody:
        return ""
    if isinstance(first, ast.Import):
        return first.names[0].name
    return first.module or "" if isinstance(first, ast.ImportFrom) and not first.level else ""


def entries(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def changes_of(node: ast.stmt) -> tuple[list[tuple[str, ast.expr]], bool]:
    """Names that a statement gives a value, where they may be fields; and whether it declares them only.

    Attributes are set at once. What is put into a table takes effect when the table was returned.
    """
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
        direct = list(_attributes(node))
        return (direct, False) if direct else (list(_items(node)), True)
    if isinstance(node, ast.Return) and node.value is not None:
        tables = [inner for inner in ast.walk(node.value) if isinstance(inner, ast.Dict)]
        return [row for table in tables for row in entries(table)], True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        named = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if ast.unparse(call.func) == "setattr" and len(call.args) == 3:
            return [(name, call.args[2]) for name in named[:1]], False
        if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            tables = [argument for argument in call.args if isinstance(argument, ast.Dict)]
            rows = [row for table in tables for row in entries(table)]
            return [*rows, *((k.arg, k.value) for k in call.keywords if k.arg)], True
    return [], False


def _attributes(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[tuple[str, ast.expr]]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(one, ast.Attribute) and CONFIG.match(ast.unparse(one.value)) and node.value is not None:
                plain = one is target and not isinstance(node, ast.AugAssign)
                yield one.attr, node.value if plain else ast.Name("something_else", ast.Load(), lineno=node.lineno)


def _items(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[tuple[str, ast.expr]]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant) and node.value is not None:
                yield str(one.slice.value), node.value
    if isinstance(node.value, ast.Dict):
        yield from entries(node.value)
