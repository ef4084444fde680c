"""One function read from its syntax: every load and store, with the tests that held on the way there."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from sglfleet.extract.reads.nodes import Class, Fn, Function, Guard, Site, Store, children, leaves

if TYPE_CHECKING:
    from sglfleet.extract.reads.program import Program

_LABELS = re.compile(r"record_function|nvtx|range_push|profile|logger|logging|warn|print|named_scope|add_argument")


_DOTTED = re.compile(r"^[A-Za-z_][\w.:]*$")


_QUIET = {"property", "staticmethod", "classmethod", "lru_cache", "cache", "cached_property", "contextmanager", "wraps"}


_QUIET |= {
    "dataclass",
    "abstractmethod",
    "no_grad",
    "inference_mode",
    "override",
    "overload",
    "setter",
    "total_ordering",
}


_QUIET |= {"jit", "njit", "compile", "disable", "nvtx_annotate", "autotune", "profile", "record_function"}


class Walk:
    """One function: what it loads and stores, under which conditions."""

    def __init__(self, program: Program, function: Function, cls: Class | None = None) -> None:
        self.program = program
        self.function = function
        self.cls = cls  # class body that is walked

    def block(self, body: list[ast.stmt], guards: tuple[Guard, ...]) -> None:
        for node in body:
            self.statement(node, guards)
            if isinstance(node, ast.If):
                if leaves(node.body) and not leaves(node.orelse):
                    stops = isinstance(node.body[-1], ast.Raise)
                    guards = (*guards, Guard(node.test, True, self.function, stops))
                elif leaves(node.orelse) and not leaves(node.body):
                    stops = isinstance(node.orelse[-1], ast.Raise)
                    guards = (*guards, Guard(node.test, False, self.function, stops))
            elif isinstance(node, ast.Assert):
                guards = (*guards, Guard(node.test, False, self.function, True))

    def statement(self, node: ast.stmt, guards: tuple[Guard, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._function(node, guards)
        elif isinstance(node, ast.ClassDef):
            self._class(node, guards)
        elif isinstance(node, ast.If | ast.While):
            self.expression(node.test, guards)
            self.block(node.body, (*guards, Guard(node.test, False, self.function)))
            plain = isinstance(node, ast.While)
            self.block(node.orelse, guards if plain else (*guards, Guard(node.test, True, self.function)))
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.expression(node.iter, guards)
            self._store(node.target, None, guards)
            self.block([*node.body, *node.orelse], guards)
        elif isinstance(node, ast.Try):
            self.block(node.body, guards)
            for handler in node.handlers:
                self.block(handler.body, guards)
            self.block(node.orelse, guards)
            self.block(node.finalbody, guards)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.expression(item.context_expr, guards)
                if item.optional_vars is not None:
                    self._store(item.optional_vars, None, guards)
            self.block(node.body, guards)
        elif isinstance(node, ast.Match):
            self.expression(node.subject, guards)
            for case in node.cases:
                self.block(case.body, guards)
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass":
            self._models(node.value, guards)
        elif isinstance(node, ast.Assign):
            self.expression(node.value, guards)
            for target in node.targets:
                self._store(target, node.value, guards)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.expression(node.value, guards)
                self._store(node.target, node.value, guards)
            if self.cls is not None and isinstance(node.target, ast.Name):
                self.program.fields_of[self.cls.name].add(node.target.id)
        elif isinstance(node, ast.AugAssign):
            self.expression(node.value, guards)
            self._load(node.target, guards)
            self._store(node.target, None, guards)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.function.globals.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            return
        else:
            if isinstance(node, ast.Raise):
                self.program.stops.append((guards, self.function))
            elif isinstance(node, ast.Assert):
                failing = (*guards, Guard(node.test, True, self.function))
                self.program.stops.append((failing, self.function))
            for child in children(node):
                if isinstance(child, ast.expr):
                    self.expression(child, guards)

    def _models(self, value: ast.expr, guards: tuple[Guard, ...]) -> None:
        """A model runs for its own architecture, or drafts for another."""
        for node in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            name = ast.unparse(node)
            text = f"model_arch in [{name!r}] or server_args.speculative_algorithm is not None"
            asked = () if name.startswith("Transformers") else (self._made(text, node),)
            self.expression(node, (*guards, *asked))

    def _made(self, text: str, node: ast.AST) -> Guard:
        test = ast.parse(text, mode="eval").body
        test.lineno = getattr(node, "lineno", 0)
        return Guard(test, False, self.function)

    def _store(self, target: ast.expr, value: ast.expr | None, guards: tuple[Guard, ...]) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for n, one in enumerate(target.elts):
                self._store(one, value.elts[n] if same else None, guards)  # type: ignore[union-attr]
            return
        if isinstance(target, ast.Starred):
            self._store(target.value, None, guards)
            return
        name = ""
        if isinstance(target, ast.Name):
            name = target.id
        elif isinstance(target, ast.Attribute):
            name = target.attr
            self.expression(target.value, guards)
        elif isinstance(target, ast.Subscript):
            self.expression(target.value, guards)
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                name = target.slice.value
            else:
                self.expression(target.slice, guards)
        if name:
            self.function.stores.append(Store(name, target, value, guards, self.function))

    def expression(self, node: ast.expr, guards: tuple[Guard, ...]) -> None:
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self.expression(value, guards)
                guards = (*guards, Guard(value, isinstance(node.op, ast.Or), self.function))
        elif isinstance(node, ast.IfExp):
            self.expression(node.test, guards)
            self.expression(node.body, (*guards, Guard(node.test, False, self.function)))
            self.expression(node.orelse, (*guards, Guard(node.test, True, self.function)))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for one in node.generators:
                self.expression(one.iter, guards)
                for test in one.ifs:
                    self.expression(test, guards)
                    guards = (*guards, Guard(test, False, self.function))
            for child in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                self.expression(child, guards)
        elif isinstance(node, ast.Lambda):
            self.expression(node.body, guards)
        elif isinstance(node, ast.NamedExpr):
            self.expression(node.value, guards)
            self._store(node.target, node.value, guards)
        else:
            self._load(node, guards)
            for part in children(node):
                if isinstance(part, ast.expr):
                    self.expression(part, guards)
                elif isinstance(part, ast.keyword):
                    self.expression(part.value, guards)

    def _load(self, node: ast.expr, guards: tuple[Guard, ...]) -> None:
        loads = self.function.loads
        if isinstance(node, ast.Name):
            name = self.program.aliases.get((self.function.path, node.id), node.id)
            loads.append(("name", name, Site(node, guards, self.function)))
        elif isinstance(node, ast.Attribute):
            loads.append(("attr", node.attr, Site(node, guards, self.function)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 120:
            if _DOTTED.match(node.value) and self._may_name(node):
                name = re.split(r"[.:]", node.value)[-1]
                if name:
                    loads.append(("text", name, Site(node, guards, self.function)))
        elif isinstance(node, ast.JoinedStr):
            pattern = "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in node.values
            )
            called = self.program.parents.get(node)
            if isinstance(called, ast.Call) and getattr(called.func, "id", "") == "getattr":
                loads.append(("pattern", pattern, Site(node, guards, self.function)))

    def _may_name(self, node: ast.Constant) -> bool:
        """Can a string stand for what it names: not where it is compared, printed, or a label for a profiler."""
        above = self.program.parents.get(node)
        if isinstance(above, ast.Compare | ast.arguments) or len(str(node.value)) < 6:
            return False
        if "." in str(node.value) and not str(node.value).startswith("sglang"):
            return False
        if isinstance(above, ast.Call):
            return not _LABELS.search(ast.unparse(above.func))
        while isinstance(above, ast.List | ast.Tuple):
            above = self.program.parents.get(above)
        return not (isinstance(above, ast.Assign) and getattr(above.targets[0], "id", "") == "__all__")

    def _function(self, node: Fn, guards: tuple[Guard, ...]) -> None:
        outer = self.function
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.expression(default, guards)
        symbol = f"{outer.symbol}.{self.cls.name}.{node.name}" if self.cls else f"{outer.symbol}.{node.name}"
        inner = Function(node.name, outer.path, node, symbol.strip("."), self.cls, outer, guards)
        for decorator in node.decorator_list:
            self.expression(decorator, guards)
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = ast.unparse(called).split(".")[-1]
            if name == "_register_for" and isinstance(decorator, ast.Call):
                archs = [a.value for a in decorator.args if isinstance(a, ast.Constant)]
                if len(archs) == len(decorator.args):
                    inner.guards = (*guards, self._made(f"model_arch in {archs!r}", node))
            if name not in _QUIET:
                inner.registered = True
        self.program.functions.append(inner)
        if self.cls is not None:
            self.cls.methods[node.name] = inner
            self.program.methods[node.name].append(inner)
        else:
            self.program.by_name[node.name].append(inner)
        Walk(self.program, inner).block(node.body, ())

    def _class(self, node: ast.ClassDef, guards: tuple[Guard, ...]) -> None:
        bases = []
        for base in node.bases:
            bare = base.value if isinstance(base, ast.Subscript) else base
            name = ast.unparse(bare).split(".")[-1]
            bases.append(self.program.aliases.get((self.function.path, name), name))
        cls = Class(node.name, self.function.path, node, tuple(bases))
        self.program.classes.append(cls)
        self.program.class_by_name[node.name].append(cls)
        for decorator in node.decorator_list:
            self.expression(decorator, guards)
        walk = Walk(self.program, self.function, cls)
        walk.block(node.body, guards)
