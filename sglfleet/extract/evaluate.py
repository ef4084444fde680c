"""Three-valued evaluation of the engine's source: the SM is known, and nearly everything else is not.

One `Machine` is one assumption about the host: an SM and a CUDA toolkit, on NVIDIA. Functions are interpreted, never
run: where a condition is not known both branches are followed, and a value that differs between them has several
options. What cannot be followed is TOP, and TOP that an SM flowed into says so.
"""

# ruff: noqa: N802, N815  handlers are named after the node classes of `ast`
from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.evaluate_builtins import call_library, library_attribute, override, parameter
from sglfleet.extract.evaluate_expressions import Expressions, mentions_sm
from sglfleet.extract.evaluate_modules import Modules
from sglfleet.extract.evaluate_values import (
    NONE,
    TOP,
    Bound,
    Class,
    Function,
    Instance,
    Lazy,
    Module,
    Value,
    const,
    holed,
    join,
)

DEPTH = 7  # calls inside calls
STEPS = 3_000  # statements and expressions per evaluation; a runaway ends as not known

SMS = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
CUDA = "13.0"  # the newest toolkit: a site's own minimum is found by lowering it


@dataclass
class State:
    """Where the interpreter is in one function."""

    env: dict[str, Value]
    module: str
    owner: Class | None = None
    certain: bool = True  # every condition with the SM in it, on the way here, was decided
    dead: str = ""  # "return" | "raise" | "loop": nothing after this point runs
    tests: tuple[ast.expr, ...] = ()  # enclosing conditions that the SM has a part in
    # the same for conditions that ended the function before this point, and how many other conditions stood around them
    passed: tuple[tuple[ast.expr, int], ...] = ()
    guards: tuple[ast.expr, ...] = ()  # all other enclosing conditions
    returns: list[Value] = field(default_factory=list)
    outer: State | None = None

    def copy(self, **changes: Any) -> State:
        values = {
            "env": dict(self.env), "module": self.module, "owner": self.owner, "certain": self.certain,
            "dead": self.dead, "tests": self.tests, "passed": self.passed, "guards": self.guards,
            "returns": self.returns, "outer": self.outer,
        }  # fmt: skip
        return State(**{**values, **changes})


@dataclass(frozen=True)
class Reached:
    """A raise or assert that the interpreter came past."""

    node: ast.stmt
    certain: bool  # whatever the SM decides on the way is decided; other conditions may still be open
    taint: bool  # the SM has a part in coming here, and the machine could not say which
    tests: tuple[ast.expr, ...]
    passed: tuple[tuple[ast.expr, int], ...]
    guards: tuple[ast.expr, ...]


class Machine(Expressions):
    """Interprets functions under one assumption. `sm` None leaves the SM open and marks what depends on it."""

    def __init__(
        self,
        modules: Modules,
        sm: str | None,
        cuda: str = CUDA,
        assume: dict[str, Value] | None = None,
        sm_conditions: set[int] | None = None,
    ):
        self.modules = modules
        # conditions (by id of the node) that the SM has a part in: found by the open machine, shared with the others
        self.sm_conditions = set() if sm_conditions is None else sm_conditions
        self.capability = tuple(int(x) for x in sm.split(".")) if sm else None
        self.cuda = cuda
        self.assume = assume or {}  # function, field or "self.field" -> value that the caller takes for granted
        self.globals: dict[str, State] = {}
        self.reached: list[Reached] | None = None
        self.assigned: Callable[[str, Value, State, ast.stmt], None] | None = None
        self.depth = 0
        self.steps = 0
        self.members: dict[tuple[int, str, bool], Value] = {}  # fields of classes that were asked for
        self._calls: dict[Any, Value] = {}

    # -- modules ------------------------------------------------------------------------------------------------

    def module_state(self, name: str) -> State | None:
        """The names of a module after it was imported; None where it is not in the release."""
        if name in self.globals:
            return self.globals[name]
        tree = self.modules.parse(name)
        if tree is None:
            return None
        state = State(env={}, module=name)
        self.globals[name] = state
        watch, self.reached = self.reached, None
        steps, self.steps = self.steps, 0
        self.block(tree.body, state)
        self.reached, self.steps = watch, steps
        state.dead = ""
        return state

    def lookup(self, module: str, name: str) -> Value:
        """A module-level name, through any chain of imports."""
        forced = override(name)
        if forced is not None:
            return forced
        for _ in range(8):
            state = self.module_state(module)
            if state is None:
                return library_attribute(self, module, name)
            value = state.env.get(name)
            if value is None:
                if f"{module}.{name}" in self.modules.files:
                    return const(Module(f"{module}.{name}"))
                return TOP
            if not (value.known and isinstance(value.one, Lazy)):
                return self.resolve(value)
            module, name = value.one.module, value.one.name
        return TOP

    def resolve(self, value: Value) -> Value:
        if value.options and any(isinstance(x, Lazy) for x in value.options):
            return join(
                self.lookup(x.module, x.name) if isinstance(x, Lazy) else Value((x,), value.taint)
                for x in value.options
            )
        return value

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, target: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        taint = any(v.taint for v in (*args, *kwargs.values()))
        if target.options is None:
            return Value(None, taint or target.taint)
        return join(self._call_one(x, args, kwargs, taint or target.taint) for x in target.options)

    def _call_one(self, x: Any, args: Sequence[Value], kwargs: dict[str, Value], taint: bool) -> Value:
        if isinstance(x, Bound):
            return self._call_one(x.function, [*x.args, *args], {**dict(x.kwargs), **kwargs}, taint)
        if isinstance(x, Function):
            return self.run(x, args, kwargs)
        if isinstance(x, Class):
            return const(Instance(x))
        return call_library(self, x, args, kwargs, taint)

    def run(self, function: Function, args: Sequence[Value] = (), kwargs: dict[str, Value] | None = None) -> Value:
        """The value of a call; TOP where nothing can be said."""
        kwargs = kwargs or {}
        name = getattr(function.node, "name", "")
        if name in self.assume:
            return self.assume[name]
        forced = override(name)
        if forced is not None:
            return self.call(forced, args, kwargs)
        taint = any(v.taint for v in (*args, *kwargs.values()))
        if not self.depth:
            self.steps = 0  # every call that the function under study makes has the whole budget
        if self.depth >= DEPTH or self.steps > STEPS:
            return Value(None, mentions_sm(function.node))
        key = None
        if not any(v.options is None or v.taint for v in (*args, *kwargs.values())) and function.closure is None:
            named = tuple((k, _identity(v)) for k, v in sorted(kwargs.items()))
            key = (id(function.node), tuple(map(_identity, args)), named)
            if key in self._calls:
                return self._calls[key]
        state = self.enter(function, args, kwargs)
        watch, self.reached = self.reached, None
        assigned, self.assigned = self.assigned, None
        self.depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                result = self.eval(function.node.body, state)
            else:
                self.block(function.node.body, state)
                ends = [*state.returns, *([] if state.dead else [NONE])]
                result = join(ends) if ends else Value(None, taint)
        finally:
            self.depth -= 1
            self.reached = watch
            self.assigned = assigned
        if key is not None:
            self._calls[key] = result
        return result

    def enter(self, function: Function, args: Sequence[Value] = (), kwargs: dict[str, Value] | None = None) -> State:
        """The state at the first statement of a function: parameters bound, what is not given not known."""
        kwargs = dict(kwargs or {})
        state = State(env={}, module=function.module, owner=function.owner, outer=function.closure)
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        given = dict(zip(names, args, strict=False))
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        home = State(env={}, module=function.module)
        for name in [*names, *(a.arg for a in spec.kwonlyargs)]:
            if name in given:
                state.env[name] = given[name]
            elif name in kwargs:
                state.env[name] = kwargs[name]
            elif name in defaults and (args or kwargs or self.depth):
                state.env[name] = self.eval(defaults[name], home)
            else:
                state.env[name] = parameter(self, name) if not (args or kwargs or self.depth) else TOP
        if function.owner and names and names[0] in ("self", "cls") and names[0] not in given:
            state.env[names[0]] = const(Instance(function.owner))
        for extra in (spec.vararg, spec.kwarg):
            if extra:
                state.env[extra.arg] = TOP
        return state

    # -- statements ---------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], state: State) -> None:
        for node in body:
            if state.dead:
                return
            self.steps += 1
            if self.steps > STEPS and self.depth:
                return
            getattr(self, f"do_{type(node).__name__}", self._other)(node, state)

    def _other(self, node: ast.stmt, state: State) -> None:
        """Statements that decide nothing."""

    def do_Expr(self, node: ast.Expr, state: State) -> None:
        """A call for its effect: what a method does to its own object is not followed, so its fields are forgotten."""
        method = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name):
            owner = f"{method.value.id}."
            for name in [k for k in state.env if k.startswith(owner) and k not in self.assume]:
                del state.env[name]

    def do_Import(self, node: ast.Import, state: State) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            state.env[name] = const(Module(alias.name if alias.asname else name))

    def do_ImportFrom(self, node: ast.ImportFrom, state: State) -> None:
        origin = self.modules.absolute(state.module, node.module, node.level)
        for alias in node.names:
            if alias.name == "*":
                found = self.module_state(origin)
                state.env.update({k: v for k, v in (found.env if found else {}).items() if not k.startswith("_")})
            else:
                state.env[alias.asname or alias.name] = const(Lazy(origin, alias.name))

    def do_FunctionDef(self, node: ast.FunctionDef, state: State) -> None:
        inner = state if state.module not in self.globals or self.globals[state.module] is not state else None
        state.env[node.name] = const(Function(state.module, node, None, inner))
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Name) and decorator.id == "contextmanager":
                state.env[node.name] = TOP

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef, state: State) -> None:
        state.env[node.name] = const(Class(state.module, node))

    def do_Assign(self, node: ast.Assign, state: State) -> None:
        value = self.eval(node.value, state)
        for target in node.targets:
            self.assign(target, value, state, node)

    def do_AnnAssign(self, node: ast.AnnAssign, state: State) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, state), state, node)

    def do_AugAssign(self, node: ast.AugAssign, state: State) -> None:
        value = self.binary(node.op, self.eval(node.target, state), self.eval(node.value, state))
        self.assign(node.target, value, state, node)

    def assign(self, target: ast.expr, value: Value, state: State, node: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            state.env[target.id] = value
            if self.assigned:
                self.assigned(target.id, value, state, node)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            state.env[f"{target.value.id}.{target.attr}"] = value
            if self.assigned:
                self.assigned(f"{target.value.id}.{target.attr}", value, state, node)
        elif isinstance(target, ast.Tuple | ast.List):
            known = value.options is not None and all(
                isinstance(x, tuple) and len(x) == len(target.elts) for x in value.options
            )
            for i, item in enumerate(target.elts):
                part = Value(None, value.taint)
                if known and not any(isinstance(t, ast.Starred) for t in target.elts):
                    part = join(
                        Value(None, value.taint) if holed(x[i]) else Value((x[i],), value.taint)
                        for x in value.options or ()
                    )
                self.assign(item.value if isinstance(item, ast.Starred) else item, part, state, node)

    def do_Return(self, node: ast.Return, state: State) -> None:
        value = self.eval(node.value, state) if node.value else NONE
        state.returns.append(value)
        state.dead = "return"

    def do_Raise(self, node: ast.Raise, state: State) -> None:
        self._reach(node, state, state.certain, False)
        state.dead = "raise"

    def do_Assert(self, node: ast.Assert, state: State) -> None:
        value = self.eval(node.test, state)
        truths = value.truths()
        if self._has_sm(node.test, value):
            state = state.copy(tests=(*state.tests, node.test))
        if False in truths:
            certain = state.certain and (True not in truths or id(node.test) not in self.sm_conditions)
            self._reach(node, state, certain, value.taint and len(truths) == 2)

    def _has_sm(self, condition: ast.expr, value: Value) -> bool:
        if self.capability is None and value.taint:
            self.sm_conditions.add(id(condition))
        return id(condition) in self.sm_conditions

    def _reach(self, node: ast.stmt, state: State, certain: bool, taint: bool) -> None:
        if self.reached is not None:
            open_sm = taint or "?sm" in state.env
            self.reached.append(Reached(node, certain, open_sm, state.tests, state.passed, state.guards))

    def do_Break(self, _node: ast.Break, state: State) -> None:
        state.dead = "loop"

    do_Continue = do_Break

    def do_If(self, node: ast.If, state: State) -> None:
        test = self.eval(node.test, state)
        truths = test.truths()
        self.split(node.test, test, [node.body if b else node.orelse for b in (True, False) if b in truths], state)

    def split(self, condition: ast.expr, test: Value, branches: list[list[ast.stmt]], state: State) -> None:
        """Follow every branch that is possible, and go on with what is true after all of them."""
        has_sm = self._has_sm(condition, test)
        both = len(branches) > 1
        ends = []
        for body in branches:
            one = state.copy(certain=state.certain and not (both and has_sm))
            if has_sm:
                one.tests = (*state.tests, condition)
            else:
                one.guards = (*state.guards, condition)
            if test.taint and both:
                one.env["?sm"] = TOP  # an SM condition that could not be evaluated is on the way
            self.block(body, one)
            ends.append(one)
        alive = [s for s in ends if not s.dead]
        if not alive:
            state.dead = next((s.dead for s in ends if s.dead != "raise"), "raise")
            if state.dead == "raise" and not both and self.depth == 0:
                state.dead = ""  # later conditions of the same function are judged on their own
            return
        left = has_sm and any(s.dead in ("return", "loop") for s in ends)
        if left:
            state.passed = (*state.passed, (condition, len(state.guards)))
        unresolved = "?sm" in state.env or (left and test.taint and both)
        state.certain = state.certain and not (left and both)
        merged = {}
        for name in {k for s in alive for k in s.env} - {"?sm"}:
            values = [s.env.get(name, TOP) for s in alive]
            value = values[0] if len(values) == 1 else join(values)
            if test.taint and not value.known and any(v != values[0] for v in values):
                value = Value(value.options, True)
            merged[name] = value
        if unresolved:
            merged["?sm"] = TOP
        state.env = merged
        for s in alive:  # an early return further in
            state.passed = (*state.passed, *(t for t in s.passed if t not in state.passed))
            state.certain = state.certain and (s.certain or (both and has_sm))

    def do_For(self, node: ast.For, state: State) -> None:
        items = self.eval(node.iter, state)
        body = state.copy()
        self.assign(node.target, Value(None, items.taint), body, node)
        self._maybe(node.body, body, state)

    do_AsyncFor = do_For

    def do_While(self, node: ast.While, state: State) -> None:
        self._maybe(node.body, state.copy(), state)

    def _maybe(self, body: Sequence[ast.stmt], inner: State, state: State) -> None:
        """A body that runs any number of times: names it sets are not known after it but for what both ways share."""
        for name in self.stored(body):
            inner.env[name] = TOP
        self.block(body, inner)
        for name, value in inner.env.items():
            state.env[name] = join([value, state.env.get(name, TOP)])
        state.passed = (*state.passed, *(t for t in inner.passed if t not in state.passed))

    def stored(self, body: Sequence[ast.stmt]) -> set[str]:
        """Names and fields that a block may set; asked for again on every SM, so kept as long as the release is."""
        found = self.modules.stored.get(id(body))
        if found is None:
            found = self.modules.stored[id(body)] = _stored(body)
        return found

    def do_With(self, node: ast.With, state: State) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.assign(item.optional_vars, TOP, state, node)
        self.block(node.body, state)

    do_AsyncWith = do_With

    def do_Try(self, node: ast.Try, state: State) -> None:
        before = state.copy()
        self.block(node.body, state)
        self.block(node.orelse, state)
        for handler in node.handlers:
            inner = before.copy()
            for name in self.stored(node.body):
                inner.env[name] = TOP
            self.block(handler.body, inner)
            if not inner.dead:
                if state.dead:
                    state.env, state.dead = inner.env, ""
                else:
                    names = {*state.env, *inner.env}
                    state.env = {k: join([state.env.get(k, TOP), inner.env.get(k, TOP)]) for k in names}
        dead, state.dead = state.dead, ""
        self.block(node.finalbody, state)
        state.dead = state.dead or dead

    do_TryStar = do_Try

    def do_Match(self, node: ast.Match, state: State) -> None:
        self.split(node.subject, TOP, [*(c.body for c in node.cases), []], state)

    def do_Delete(self, node: ast.Delete, state: State) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                state.env.pop(target.id, None)


def _identity(value: Value) -> Any:
    """A key for a known value: data by type and value, things of the program by which one they are."""
    return tuple(
        (type(x).__name__, x) if isinstance(x, str | int | float | bool | None) else id(x) for x in value.options or ()
    )


def _stored(body: Sequence[ast.stmt]) -> set[str]:
    """Names and fields that a block may set."""
    found: set[str] = set()
    for top in body:
        for node in ast.walk(top):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif (
                isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
            ):
                found.add(f"{node.value.id}.{node.attr}")
    return found
