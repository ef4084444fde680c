"""Expressions under three-valued logic: what is not known stays not known, and `and`/`or` still decide early."""

# ruff: noqa: N802, N815  handlers are named after the node classes of `ast`
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import ast
import builtins
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sglfleet.extract.evaluate_builtins import attribute, library_attribute, override
from sglfleet.extract.evaluate_names import speaks
from sglfleet.extract.evaluate_values import (
    TOP,
    UNKNOWN,
    Bound,
    Class,
    Function,
    Instance,
    Module,
    Ref,
    Value,
    const,
    join,
    lift,
    same,
)

if TYPE_CHECKING:
    from sglfleet.extract.evaluate import State

COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.BitOr: operator.or_, ast.BitAnd: operator.and_,
}  # fmt: skip
STRING_METHODS = frozenset(("split", "lower", "upper", "strip", "startswith", "endswith", "replace"))


class Expressions:
    """The expression half of a Machine."""

    def eval(self: Any, node: ast.expr, state: State) -> Value:
        self.steps += 1
        method = getattr(self, f"ev_{type(node).__name__}", None)
        if method is None:
            parts = [self.eval(c, state) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
            return Value(None, any(v.taint for v in parts))
        result: Value = method(node, state)
        return result

    def ev_Constant(self, node: ast.Constant, _state: State) -> Value:
        return const(node.value)

    def ev_JoinedStr(self, _node: ast.JoinedStr, _state: State) -> Value:
        return TOP

    def ev_Name(self: Any, node: ast.Name, state: State) -> Value:
        scope: State | None = state
        while scope is not None:
            if node.id in scope.env:
                return self.resolve(scope.env[node.id])
            scope = scope.outer
        forced = self.assume.get(node.id) or override(node.id)
        if forced is not None:
            return forced
        home = self.module_state(state.module)
        if home is not None and node.id in home.env:
            return self.resolve(home.env[node.id])
        if hasattr(builtins, node.id):
            return const(Module(f"builtins.{node.id}"))
        return TOP

    def ev_Attribute(self: Any, node: ast.Attribute, state: State) -> Value:
        if isinstance(node.value, ast.Name):
            key = f"{node.value.id}.{node.attr}"
            scope: State | None = state
            while scope is not None:
                if key in scope.env:
                    return scope.env[key]
                scope = scope.outer
            if key in self.assume:
                return self.assume[key]
        if node.attr in self.assume:
            return self.assume[node.attr]
        return self.attribute(self.eval(node.value, state), node.attr)

    def attribute(self: Any, base: Value, name: str) -> Value:
        if base.options is None:
            forced = override(name)
            return forced if forced is not None else Value(None, base.taint)
        return join(self._attribute(x, name, base.taint) for x in base.options)

    def _attribute(self: Any, x: Any, name: str, taint: bool) -> Value:
        found = attribute(self, x, name, taint)
        if found is not None:
            return found
        if isinstance(x, Module):
            inner = f"{x.name}.{name}"
            if x.name in self.modules.files:
                return self.lookup(x.name, name)
            return const(Module(inner)) if inner in self.modules.files else library_attribute(self, x.name, name)
        if isinstance(x, Class | Instance):
            return self.member(x, name)
        if isinstance(x, str) and name in STRING_METHODS:
            return const(_Method(x, name), taint)
        forced = override(name)
        return forced if forced is not None else Value(None, taint)

    # -- classes ------------------------------------------------------------------------------------------------

    def member(self: Any, x: Class | Instance, name: str) -> Value:
        """A method, a class-level value, or a field that the class sets in exactly one place."""
        cls = x.cls if isinstance(x, Instance) else x
        if cls.node.name == "PlatformContext":
            return self._platform(cls, name)
        key = (id(cls.node), name, isinstance(x, Instance))
        if key in self.members:
            return self.members[key]
        self.members[key] = TOP  # a field that is defined by itself is not known
        self.members[key] = found = self._member(cls, name, isinstance(x, Instance))
        return found

    def _member(self: Any, cls: Class, name: str, instance: bool) -> Value:
        for owner in self._lineage(cls):
            for node in owner.node.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return self._method(node, owner, cls, instance)
                if instance and isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
                    return TOP  # a field of a configuration: as it was given
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                if any(isinstance(t, ast.Name) and t.id == name for t in targets) and not instance:
                    value = getattr(node, "value", None)
                    return self.eval(value, self._home(owner)) if value is not None else TOP
        if instance:
            stores = [(o, n) for o in self._lineage(cls) for n in self._stores(o, name)]
            if len(stores) == 1 and stores[0][1] is not None:
                return self._field(*stores[0])
            return Value(None, any(_set_by_sm(n) for _, n in stores))
        return TOP

    def _home(self: Any, cls: Class) -> State:
        from sglfleet.extract.evaluate import State

        return State(env={}, module=cls.module, owner=cls)

    def _method(self: Any, node: ast.FunctionDef, owner: Class, cls: Class, instance: bool) -> Value:
        names = {getattr(d, "id", getattr(d, "attr", "")) for d in node.decorator_list}
        function = Function(owner.module, node, cls)
        me = const(Instance(cls)) if instance else const(cls)
        if names & {"property", "cached_property"}:
            return self.run(function, [me]) if instance else TOP
        if "staticmethod" in names:
            return const(function)
        if "classmethod" in names or instance:
            return const(Bound(function, (me,)))
        return const(function)

    def _lineage(self: Any, cls: Class) -> list[Class]:
        """The class and the bases that the release itself defines, nearest first."""
        found, queue = [cls], [cls]
        while queue and len(found) < 12:
            here = queue.pop(0)
            for base in here.node.bases:
                value = self.eval(base, self._home(here))
                if value.known and isinstance(value.one, Class) and value.one not in found:
                    found.append(value.one)
                    queue.append(value.one)
        return found

    def _stores(self: Any, cls: Class, name: str) -> list[tuple[ast.FunctionDef, ast.Assign] | None]:
        """Every place in a class that sets `self.name`; None for one that is not a plain assignment."""
        index = self.modules.stores.get(id(cls.node))
        if index is None:
            index = self.modules.stores[id(cls.node)] = _store_index(cls.node)
        return index.get(name, [])

    def _field(self: Any, owner: Class, store: tuple[ast.FunctionDef, ast.Assign]) -> Value:
        """The value of the only assignment, if nothing but names known outside the method goes into it."""
        function, assign = store
        if assign not in function.body:  # under a condition
            return Value(None, _set_by_sm(store))
        state = self.enter(Function(owner.module, function, owner), [const(Instance(owner))])
        for node in function.body:  # plain local names that are set before it
            if node is assign:
                break
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.ImportFrom):
                self.block([node], state)
        return self.eval(assign.value, state)

    def _platform(self: Any, cls: Class, name: str) -> Value:
        """`get_platform().is_sm100`: a table in the same module says which helper answers."""
        for table in ("_PLATFORM_PROBES", "_PLATFORM_VALUES"):
            value = self.lookup(cls.module, table)
            if value.known and isinstance(value.one, Table):
                for key, target in value.one.items:
                    if key == name and isinstance(target, str):
                        return self.call(self.lookup("sglang.srt.utils.common", target), [], {})
        return TOP

    # -- operators ----------------------------------------------------------------------------------------------

    def ev_BoolOp(self: Any, node: ast.BoolOp, state: State) -> Value:
        stop = isinstance(node.op, ast.Or)  # the truth value that ends the chain
        open_values: list[Value] = []
        taint = False  # a part that is known only because the SM is
        for item in node.values:
            value: Value = self.eval(item, state)
            truths = value.truths()
            if truths == {stop}:
                if not open_values or value.options is None:
                    return Value(value.options, value.taint or any(v.taint for v in open_values))
                plain = all(v.options is not None and set(map(type, v.options)) <= {bool} for v in open_values)
                if plain or all(v.options is None for v in open_values):
                    return Value((stop,), value.taint)  # whatever the open ones are, this decides the truth
                return join([*open_values, value])
            if len(truths) == 2:
                open_values.append(value)
            taint = taint or value.taint
            last = value
        if not open_values:
            return Value(last.options, taint)
        options = None if any(v.options is None for v in open_values) else (True, False)
        return Value(options, self._open(open_values, taint))

    def _open(self: Any, values: list[Value], taint: bool) -> bool:
        """Is an open truth value open because of the SM? With the SM left open any share of it counts."""
        return any(v.taint for v in values) or (taint and self.capability is None)

    def ev_UnaryOp(self: Any, node: ast.UnaryOp, state: State) -> Value:
        value: Value = self.eval(node.operand, state)
        if isinstance(node.op, ast.Not):
            truths = value.truths()
            return Value(tuple(not t for t in sorted(truths)) if len(truths) == 1 else None, value.taint)
        return lift(operator.neg, value) if isinstance(node.op, ast.USub) else Value(None, value.taint)

    def ev_Compare(self: Any, node: ast.Compare, state: State) -> Value:
        left = self.eval(node.left, state)
        parts = []
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node, state)
            parts.append(self._compare(op, left, right))
            left = right
        if len(parts) == 1:
            return parts[0]
        if any(p.truths() == {False} for p in parts):
            return Value((False,), any(p.taint for p in parts))
        return lift(lambda *p: all(p), *parts)

    @staticmethod
    def _compare(op: ast.cmpop, left: Value, right: Value) -> Value:
        if isinstance(op, ast.In | ast.NotIn):
            want = isinstance(op, ast.In)

            def member(a: Any, b: Any) -> bool:
                keys = [k for k, _ in b.items] if isinstance(b, Table) else list(b)
                if any(k is UNKNOWN for k in keys) and not any(same(a, k) for k in keys):
                    raise ValueError
                return (a in keys) is want

            return lift(member, left, right, holes=True)
        if isinstance(op, ast.Is | ast.IsNot) and right.known and right.one is None and left.options is not None:
            return lift(lambda a: (a is None) is isinstance(op, ast.Is), left)
        if any(isinstance(x, Ref) for v in (left, right) for x in v.options or ()):
            return Value(None, left.taint or right.taint)
        return lift(COMPARE[type(op)], left, right)

    def ev_BinOp(self: Any, node: ast.BinOp, state: State) -> Value:
        result: Value = self.binary(node.op, self.eval(node.left, state), self.eval(node.right, state))
        return result

    @staticmethod
    def binary(op: ast.operator, left: Value, right: Value) -> Value:
        if type(op) not in BINARY or any(isinstance(x, Ref) for v in (left, right) for x in v.options or ()):
            return Value(None, left.taint or right.taint)
        return lift(BINARY[type(op)], left, right)

    def ev_IfExp(self: Any, node: ast.IfExp, state: State) -> Value:
        test: Value = self.eval(node.test, state)
        truths = test.truths()
        found = join(self.eval(node.body if b else node.orelse, state) for b in sorted(truths))
        return Value(found.options, found.taint or test.taint)

    def ev_NamedExpr(self: Any, node: ast.NamedExpr, state: State) -> Value:
        value: Value = self.eval(node.value, state)
        self.assign(node.target, value, state, node)
        return value

    # -- collections --------------------------------------------------------------------------------------------

    def ev_Tuple(self: Any, node: ast.Tuple, state: State) -> Value:
        if any(isinstance(e, ast.Starred) for e in node.elts):
            return TOP
        items = [self.eval(e, state) for e in node.elts]
        if any(v.options is None for v in items) and not any(v.taint for v in items):
            return const(tuple(UNKNOWN if not v.known else v.one for v in items))
        return lift(lambda *parts: tuple(parts), *items)

    ev_List = ev_Set = ev_Tuple

    def ev_Dict(self: Any, node: ast.Dict, state: State) -> Value:
        items = []
        for key, value in zip(node.keys, node.values, strict=True):
            k = self.eval(key, state) if key is not None else TOP
            v = self.eval(value, state)
            items.append((k.one if k.known else UNKNOWN, v.one if v.known else UNKNOWN))
        return const(Table(tuple(items)))

    def ev_Subscript(self: Any, node: ast.Subscript, state: State) -> Value:
        base: Value = self.eval(node.value, state)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.eval(b, state) if b else const(None) for b in (node.slice.lower, node.slice.upper)]
            return lift(lambda x, a, b: x[a:b], base, *bounds)
        index = self.eval(node.slice, state)

        def item(x: Any, i: Any) -> Any:
            if isinstance(x, Table):
                found = [v for k, v in x.items if same(k, i)]
                if not found or found[-1] is UNKNOWN:
                    raise KeyError(i)
                return found[-1]
            if x[i] is UNKNOWN:
                raise KeyError(i)
            return x[i]

        return lift(item, base, index, holes=True)

    def ev_GeneratorExp(self: Any, node: ast.GeneratorExp | ast.ListComp, state: State) -> Value:
        if len(node.generators) != 1:
            return Value(None, False)
        loop = node.generators[0]
        source: Value = self.eval(loop.iter, state)
        if not (source.known and isinstance(source.one, tuple)) or len(source.one) > 40:
            return Value(None, source.taint)
        items = []
        for x in source.one:
            inner = state.copy()
            self.assign(loop.target, const(x, source.taint) if x is not UNKNOWN else TOP, inner, node)
            keep = [self.eval(i, inner) for i in loop.ifs]
            if any(k.truths() == {False} for k in keep):
                continue
            if any(k.truths() != {True} for k in keep):
                return Value(None, True if any(k.taint for k in keep) else source.taint)
            items.append(self.eval(node.elt, inner))
        return lift(lambda *parts: tuple(parts), *items) if items else const(())

    ev_ListComp = ev_SetComp = ev_GeneratorExp

    # -- calls --------------------------------------------------------------------------------------------------

    def ev_Lambda(self: Any, node: ast.Lambda, state: State) -> Value:
        home = self.globals.get(state.module)
        return const(Function(state.module, node, None, None if home is state else state))

    def ev_Call(self: Any, node: ast.Call, state: State) -> Value:
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in self.assume:
            return self.assume[name]
        target: Value = self.eval(node.func, state)
        args = [self.eval(a, state) for a in node.args if not isinstance(a, ast.Starred)]
        kwargs = {k.arg: self.eval(k.value, state) for k in node.keywords if k.arg}
        loose = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
        if target.known:
            x = target.one
            if isinstance(x, _Method):
                return lift(lambda s, *a: _as_data(getattr(s, x.name)(*a)), const(x.text, target.taint), *args)
            name = x.name if isinstance(x, Module) else ""
            if name in ("functools.lru_cache", "functools.cache", "functools.wraps"):
                plain = [a for a in args if a.known and isinstance(a.one, Function | Bound)]
                return plain[0] if plain else const(Module("sglfleet.identity"))
            if name == "sglfleet.identity" and args:
                return args[0]
            if name == "functools.partial" and args and args[0].known and isinstance(args[0].one, Function):
                return const(Bound(args[0].one, tuple(args[1:]), tuple(sorted(kwargs.items()))))
        if loose:
            return Value(None, target.taint or any(v.taint for v in (*args, *kwargs.values())))
        result: Value = self.call(target, args, kwargs)
        return result


@lru_cache(maxsize=512)
def mentions_sm(node: ast.AST) -> bool:
    """Does the text of a piece of source speak of the SM? For what could not be followed."""
    return speaks(ast.unparse(node))


def _store_index(cls: ast.ClassDef) -> dict[str, list[tuple[ast.FunctionDef, ast.Assign] | None]]:
    found: dict[str, list[tuple[ast.FunctionDef, ast.Assign] | None]] = {}
    for function in cls.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        plain = {
            id(target): node for node in ast.walk(function) if isinstance(node, ast.Assign) for target in node.targets
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assign = plain.get(id(node))
                found.setdefault(node.attr, []).append((function, assign) if assign is not None else None)
    return found


@lru_cache(maxsize=512)
def _set_by_sm(store: tuple[ast.FunctionDef, ast.Assign] | None) -> bool:
    """Does the SM have a part in an assignment that is not evaluated: in the value, or in a condition around it?"""
    if store is None:
        return False
    function, assign = store
    around = [n for n in ast.walk(function) if isinstance(n, ast.If) and any(assign is x for x in ast.walk(n))]
    return mentions_sm(assign.value) or any(mentions_sm(n.test) for n in around)


class Table:
    """A dictionary of the program."""

    def __init__(self, items: tuple[tuple[Any, Any], ...]) -> None:
        self.items = items


class _Method:
    """A method of a known string, about to be called."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name


def _as_data(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x
