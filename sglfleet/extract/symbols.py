"""What a local name, a constant of a module or a call of a helper stands for: an expression over the arguments.

Nothing is run. A name that two branches set is a choice between both (`a if test else b`); a helper that only answers a
question is replaced by its answer, its early returns as choices too. What cannot be followed is `something_else`,
which no condition can tell.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sglfleet.extract.scope import Bound, Scopes, bound_names
from sglfleet.extract.symbol_names import (
    ITEM,
    LONGEST,
    Names,
    appended,
    choice,
    filling,
    fitting,
    forget,
    forget_entries,
    opaque,
    parse,
    set_target,
)

CONFIG = re.compile(r"^(self|self\.server_args|cfg|view|args|server_args|resolve[dr]_view|server_args\w*)$")
VIEW = re.compile(r"\b(resolving_view|resolved_view)\((self|server_args|cfg|view|args)\)")  # the arguments, read
_ARGUMENTS = re.compile(r"\b(self\.server_args|self|view|server_args)\.(?=[a-z_]+\b(?!\())")
_MODEL = re.compile(r"\b(model_config_of\(\w+\)|\w+\.get_model_config\(\))(\.hf_config\b)?|\bmodel_config\.hf_config\b")
FROM_MODULE = 1_200  # of a constant of a module
DEEP, TURNS = 3, 48  # helpers inside helpers; statements that one helper's answer is made of
# answered by the gate itself from what it knows of the case, under these names
ANSWERED = re.compile(
    r"^(is_deepseek_(nsa|dsa)|use_mla_backend|parse_connector_type|attention_backends_of|get_attention_backends"
    r"|attn_dp_enabled_of|is_attention_backend_not_set|_resolve_speculative_algorithm_alias|prefer_custom_dsv41"
    r"|_?is_(cuda|hip|npu|xpu|mps|musa|cpu|hpu)|(is|_is)_(flashinfer_available|blackwell\w*|hopper\w*|sm\d\w*)"
    r"|get_(platform|device|exec|context|global|server|model_config|parallel|bool_env)\w*|model_config_of|resolv\w+_view"
    r"|get_linear_attn_spec|getattr|hasattr|isinstance|len|int|bool|str|set|max|min|any|all|sorted|list|tuple|dict|range|importable)$"
)


@dataclass
class Frame:
    """What is known inside one function, at one point of it."""

    symbol: str
    names: Names = field(default_factory=dict)
    imports: dict[str, ast.ImportFrom] = field(default_factory=dict)
    own: frozenset[str] = frozenset()  # parameters, and names set in the function: never a module's

    def copy(self) -> Frame:
        return Frame(self.symbol, dict(self.names), self.imports, self.own)


def named(text: str) -> str:
    """The arguments and the model's configuration under one name each, however they were come by."""
    text = _ARGUMENTS.sub("cfg.", VIEW.sub("cfg", text))
    return _MODEL.sub(lambda found: "hf_config" if "hf_config" in found[0] else "model_config", text)


class _Unformatted(ast.NodeTransformer):
    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.Constant("…")


def _plain(node: ast.expr) -> str:
    """The source of an expression; a formatted text stands for some text."""
    formatted = any(isinstance(inner, ast.JoinedStr) for inner in ast.walk(node))
    return ast.unparse(_Unformatted().visit(copy.deepcopy(node)) if formatted else node)


def function_frame(node: ast.FunctionDef, symbol: str, names: Names) -> Frame:
    """The frame at the first statement."""
    spec = node.args
    own = {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    imports: dict[str, ast.ImportFrom] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.ImportFrom):
            imports.update({a.asname or a.name: inner for a in inner.names})
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            own.add(inner.id)
    return Frame(symbol, dict(names), imports, frozenset(own - imports.keys()))


def arguments(node: ast.FunctionDef, call: ast.Call, text: Callable[[ast.expr], ast.expr], *, bound: bool) -> Names:
    """Parameters as the caller's expressions, or their defaults; the configuration has one name everywhere."""
    spec = node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    static = any(ast.unparse(d) in ("staticmethod", "classmethod") for d in node.decorator_list)
    if bound and not static:
        names = names[1:]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return {name: opaque() for name in names if not CONFIG.match(name)}
    given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    out: Names = {}
    for name in {*names, *(a.arg for a in spec.kwonlyargs)}:
        if name in given:
            value = text(given[name])
            if not (CONFIG.match(name) and CONFIG.match(VIEW.sub("cfg", ast.unparse(value)))):
                out[name] = fitting(value)
        elif isinstance(defaults.get(name), ast.Constant):
            out[name] = defaults[name]
    return out


def literal(node: ast.expr | None) -> ast.expr | None:
    """A constant of a module that says itself what it is; sets as lists."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("frozenset", "set", "tuple", "list") and node.args:
        node = node.args[0]
    if isinstance(node, ast.Constant):
        return node
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return node
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and all(literal(e) for e in node.elts):
        return ast.List([literal(e) or e for e in node.elts], ast.Load())
    if isinstance(node, ast.Dict) and all(isinstance(k, ast.Constant) for k in node.keys):
        return node if all(literal(v) for v in node.values) else None
    return None


def _class_constants(scopes: Scopes) -> Names:
    path = "sglang/srt/server_args.py"
    module = scopes.tree.ast(path).body if scopes.tree.has(path) else []
    found = next((node for node in module if isinstance(node, ast.ClassDef) and node.name == "ServerArgs"), None)
    out: Names = {}
    for node in found.body if found else ():
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = literal(getattr(node, "value", None)) if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id.isupper() and value is not None:
            out[target.id] = value
    return out


class Symbols:
    """Expressions of one release, with everything replaced that stands for something else."""

    def __init__(self, scopes: Scopes, fields: frozenset[str], methods: Mapping[str, tuple[str, ast.FunctionDef]]):
        self.scopes = scopes
        self.fields = fields
        self.methods = methods  # of the class of the arguments: name -> path, function
        self.of_class = _class_constants(scopes)  # that class's own, which are no fields
        self._constants: dict[tuple[str, str], ast.expr | None] = {}

    def of(self, node: ast.expr, path: str, frame: Frame, depth: int = 0) -> ast.expr:
        """The expression with local names, constants and helpers replaced."""
        shadowed = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        out = _Replace(self, path, frame, shadowed, depth).visit(parse(named(_plain(node))))
        assert isinstance(out, ast.expr)
        return out

    def text(self, node: ast.expr, path: str, frame: Frame) -> str:
        return named(ast.unparse(self.of(node, path, frame)))

    def bound(self, name: str, path: str, frame: Frame) -> Bound | None:
        """The definition of a name in a module of the release."""
        if name in frame.own:
            return None
        statement = frame.imports.get(name)
        found = self.scopes.imported(path, statement, name) if statement else self.scopes.find(path, name)
        return found if isinstance(found, Bound) else None

    def function(self, name: str, path: str, frame: Frame) -> tuple[str, ast.FunctionDef] | None:
        found = self.bound(name, path, frame)
        return (found.path, found.node) if found and isinstance(found.node, ast.FunctionDef) else None

    def constant(self, name: str, path: str, frame: Frame) -> ast.expr | None:
        found = self.bound(name, path, frame)
        if found is None or not isinstance(found.node, ast.Assign | ast.AnnAssign):
            return None
        key = (found.path, found.name)
        if key not in self._constants:
            targets = found.node.targets if isinstance(found.node, ast.Assign) else [found.node.target]
            whole = len(targets) == 1 and isinstance(targets[0], ast.Name)
            value = literal(found.node.value) if whole else None
            fits = value is not None and len(ast.unparse(value)) <= FROM_MODULE
            self._constants[key] = value if fits else None
        return self._constants[key]

    def answer(self, call: ast.Call, path: str, frame: Frame, depth: int) -> ast.expr | None:
        """What a helper returns, as an expression; None where it is not one, or nothing in it can be told."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if depth >= DEEP or ANSWERED.match(name):
            return None
        member = self._of_enum(call, path, frame)
        if member:
            return self._result(member[1].body, member[0], member[2], depth + 1, [TURNS])
        method = isinstance(call.func, ast.Attribute)
        if isinstance(call.func, ast.Attribute):
            owner = VIEW.sub("cfg", ast.unparse(call.func.value))
            found = self.methods.get(name) if CONFIG.match(owner) else None
        else:
            found = self.function(name, path, frame)
        if found is None:
            return None
        where, node = found
        # the call's own parts are replaced already
        names = arguments(node, call, lambda value: value, bound=method)
        inner = function_frame(node, name, names)
        budget = [TURNS]
        out = self._result(node.body, where, inner, depth + 1, budget)
        if out is None or len(ast.unparse(out)) > LONGEST:
            return None
        return out if isinstance(out, ast.Constant) or self._telling(out) else None

    def _of_enum(self, call: ast.Call, path: str, frame: Frame) -> tuple[str, ast.FunctionDef, Frame] | None:
        """The method in `Kind.from_string(x).is_this()`, of an enumeration of the release, and its own frame."""
        match call:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id=kind), attr="from_string")) as made, attr=wanted
                ),
                args=[],
            ):
                found = self.bound(kind, path, frame)
                body = found.node.body if found and isinstance(found.node, ast.ClassDef) else ()
                node = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == wanted), None)
                return (found.path, node, function_frame(node, wanted, {"self": made})) if found and node else None
        return None

    def _telling(self, node: ast.expr) -> bool:
        """Is anything in it a field, or what a model or the GPU is."""
        text = ast.unparse(node)
        return bool(
            any(name in self.fields for name in re.findall(r"\.(\w+)", text))
            or re.search(r"architectures|model_arch|model_type|envs\.|get_platform|capability|is_sm\d", text)
        )

    def _result(
        self, body: Sequence[ast.stmt], path: str, frame: Frame, depth: int, budget: list[int]
    ) -> ast.expr | None:
        """What a body returns; None where it raises only."""
        for number, node in enumerate(body):
            budget[0] -= 1
            if budget[0] < 0:
                return opaque()
            if isinstance(node, ast.Return):
                return self.of(node.value, path, frame, depth) if node.value else ast.Constant(None)
            if isinstance(node, ast.Raise):
                return None
            if isinstance(node, ast.If):
                test = self.of(node.test, path, frame, depth)
                rest = body[number + 1 :]
                one = self._result([*node.body, *rest], path, frame.copy(), depth, budget)
                other = self._result([*node.orelse, *rest], path, frame, depth, budget)
                if one is None or other is None:
                    return one or other
                return choice(test, one, other)
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self.bind(node, path, frame, depth)
            elif not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Assert | ast.Expr):
                return opaque()
        return ast.Constant(None)

    def bind(self, node: ast.stmt, path: str, frame: Frame, depth: int = 0) -> None:
        """Learn what a statement sets names to."""
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = self.of(node.value, path, frame, depth)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript):
                    target = ast.Subscript(target.value, self.of(target.slice, path, frame, depth), ast.Store())
                set_target(frame.names, target, value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            left = frame.names.get(node.target.id, opaque())
            frame.names[node.target.id] = fitting(ast.BinOp(left, node.op, self.of(node.value, path, frame, depth)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._grow(node.value, path, frame, depth)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Delete | ast.AugAssign):
            forget(frame.names, bound_names(node))

    def _grow(self, call: ast.Call, path: str, frame: Frame, depth: int) -> None:
        """`problems.append(…)`: what matters later is whether the list is empty."""
        if not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)):
            return
        name, known = call.func.value.id, frame.names.get(call.func.value.id)
        if known is None or call.func.attr not in (
            "append",
            "add",
            "extend",
            "update",
            "insert",
            "remove",
            "pop",
            "clear",
        ):
            return
        if call.func.attr == "append" and len(call.args) == 1 and isinstance(known, ast.List | ast.IfExp | ast.Call):
            item = self.of(call.args[0], path, frame, depth)
            frame.names[name] = fitting(appended(known, item if isinstance(item, ast.Constant) else ast.Constant(ITEM)))
        else:
            forget_entries(frame.names, name)
            frame.names[name] = opaque()


class _Replace(ast.NodeTransformer):
    def __init__(self, symbols: Symbols, path: str, frame: Frame, shadowed: set[str], depth: int) -> None:
        self.symbols, self.path, self.frame, self.depth = symbols, path, frame, depth
        self.shadowed = shadowed

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        as_given = self.frame.names.get(ast.unparse(node))
        if as_given is not None:
            return as_given
        node.value = self.visit(node.value)
        found = self.symbols.of_class.get(node.attr)
        return parse(ast.unparse(found)) if found is not None and CONFIG.match(named(ast.unparse(node.value))) else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        out = self.visit(node.value)
        assert isinstance(out, ast.expr)
        return out

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.shadowed:
            return node
        found = self.frame.names.get(node.id)
        if found is None and node.id not in self.frame.own:
            found = self.symbols.constant(node.id, self.path, self.frame)
        return node if found is None else parse(ast.unparse(found))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        found = self._entry(node.value, node.slice)
        if found is not None:
            return found
        node.value, node.slice = self.visit(node.value), self.visit(node.slice)
        return node

    def _entry(self, table: ast.expr, key: ast.expr) -> ast.expr | None:
        """An entry of a table of this function."""
        if not (isinstance(table, ast.Name) and table.id in self.frame.names and table.id not in self.shadowed):
            return None
        key = self.visit(copy.deepcopy(key))
        found = self.frame.names.get(f"{table.id}[{ast.unparse(key)}]")
        if found is not None:
            return parse(ast.unparse(found))
        empty = isinstance(key, ast.Constant) and filling(self.frame.names[table.id]) is not None
        return ast.Constant(None) if empty else None

    def visit_Call(self, node: ast.Call) -> ast.expr:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "get" and len(node.args) == 1 and not node.keywords:
            found = self._entry(func.value, node.args[0])
            if found is not None:
                return found
        if isinstance(func, ast.Attribute):
            node.func = ast.Attribute(self.visit(func.value), func.attr, ast.Load())
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        named = node.args[1] if getattr(func, "id", "") == "getattr" and len(node.args) > 1 else None
        if isinstance(named, ast.Constant) and str(named.value) in self.symbols.fields:
            owner = VIEW.sub("cfg", ast.unparse(node.args[0]))
            if CONFIG.match(owner):
                return ast.Attribute(parse(owner), str(named.value), ast.Load())
        return self.symbols.answer(node, self.path, self.frame, self.depth) or node
