"""Argument resolution in the order in which it runs: what stops the start, and what changes a field, with every
condition on the way there.

Walks from the entry of a release's `ServerArgs` through the calls it makes to functions of the same part of the
source, whether methods (`self._handle_x()`), hooks (`run_hook(handle_x, server_args)`), passes that return what they
declare (`run_post_process_pass(server_args, _x)`) or overrides registered for an architecture. Syntactic, as
`sglfleet.extract.checks` is: nothing is decided here. A helper that is called inside a condition is not entered.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.checks import Guard, Reader, Scope, _once, _Replace
from sglfleet.extract.document import Places, Texts
from sglfleet.extract.resolution_texts import FIELD, VIEW, needs_of, tellable, texts_of, told
from sglfleet.extract.tree import SourceTree

FILES = re.compile(r"sglang/srt/(server_args\.py|arg_groups/.*\.py)$")
ENTRIES = ("__post_init__", "resolve_once", "check_server_args")  # in the order in which a launch calls them
# what the server does with its arguments once they are resolved: (path, function) -> local names that follow a field
STARTS: dict[tuple[str, str], dict[str, str]] = {
    ("model_executor/model_runner.py", "model_specific_adjustment"): {},
    ("layers/moe/utils.py", "initialize_moe_config"): {},
    ("layers/quantization/unquant.py", "initialize_bf16_gemm_config"): {"backend_str": "server_args.bf16_gemm_backend"},
}
DEPTH = 9  # calls below the entry; the deepest release has six
QUOTED, SAID = 200, 80  # characters of the source and of the message that are shown
CONFIG = re.compile(r"^(self|self\.server_args|cfg|view|args|server_args|resolve[dr]_view|server_args\w*)$")
REGISTERED = ("_register_for", "register_model_override")
COLLECTS = "collect_model_override_declarations"
DECLARES = ("declare_resolution", "declare")
FAMILIES = "sglang/srt/speculative/spec_info.py"  # which function checks which speculative algorithm, from 0.5.14 on
ANYTHING = Guard("something_registered", "", 0)


@dataclass(frozen=True)
class Known:
    """A function that can be entered."""

    path: str
    owner: str  # class, or ""
    node: ast.FunctionDef


@dataclass
class Trace:
    """Rows in the order in which the release comes to them."""

    stops: list[dict[str, Any]] = field(default_factory=list)
    sets: list[dict[str, Any]] = field(default_factory=list)
    at: int = 0

    def next(self) -> int:
        self.at += 1
        return self.at


class Walker(Reader):
    """One module's part of the walk; enters functions of other modules through `world`."""

    def __init__(self, world: World, path: str) -> None:
        super().__init__(world.tree, path)
        self.world = world
        self.stack: list[str] = []
        self.unsure: list[int] = []

    def enter(self, known: Known, guards: list[Guard], names: dict[str, ast.expr], stack: list[str]) -> None:
        before, self.stack = self.stack, stack
        symbol = f"{known.owner}.{known.node.name}".lstrip(".")
        scope = Scope(symbol, self.constants | _once(known.node) | names)
        self._block(known.node.body, guards, scope)
        self.stack = before

    def _statement(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return  # entered where it is called
        if isinstance(node, ast.Try) and any(_quiet(handler) for handler in node.handlers):
            unknown = Guard("something_in_a_try", "", node.lineno)
            self._block(node.body, [*guards, unknown], scope)
            for handler in node.handlers:
                self._block(handler.body, [*guards, unknown], scope)
            self._block([*node.orelse, *node.finalbody], guards, scope)
            return
        super()._statement(node, guards, scope)

    def seen(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        if isinstance(node, ast.If):
            return
        for name, value in _changes(node):
            self.world.change(self, name, value, guards, scope)
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                self.world.call(self, call, guards, scope)

    def _add(self, kind: str, node: ast.stmt, guards: list[Guard], scope: Scope, message: str) -> None:
        if guards:
            self.world.stop(self, guards, scope, message)

    def text(self, node: ast.expr, scope: Scope) -> str:
        """An expression as it is evaluated: local names replaced."""
        return ast.unparse(_Replace(scope.names).visit(ast.parse(ast.unparse(node), mode="eval").body))


class World:
    """All functions of argument resolution in one release, and the rows found."""

    def __init__(self, tree: SourceTree, fields: frozenset[str]) -> None:
        self.tree = tree
        self.fields = fields
        self.trace = Trace()
        self.paths = [path for path in tree.list("sglang/srt/") if FILES.match(path) and "/fields/" not in path]
        self.functions: dict[str, list[Known]] = {}
        self.registered: list[tuple[Known, Guard]] = []
        for path in self.paths:
            for known in _functions(tree.ast(path), path):
                self.functions.setdefault(known.node.name, []).append(known)
                guard = _registration(known.node)
                if guard:
                    self.registered.append((known, guard))
        self._walkers: dict[str, Walker] = {}

    def walker(self, path: str) -> Walker:
        if path not in self._walkers:
            self._walkers[path] = Walker(self, path)
        return self._walkers[path]

    def walk(self) -> None:
        for name in ENTRIES:
            for known in self.functions.get(name, ()):
                if known.owner == "ServerArgs":
                    self.walker(known.path).enter(known, [], {}, [f"{known.owner}.{name}"])
        for (path, name), names in STARTS.items():
            file = "sglang/srt/" + path
            for known in _functions(self.tree.ast(file), file) if self.tree.has(file) else ():
                if known.node.name == name:
                    follow = {local: ast.parse(text, mode="eval").body for local, text in names.items()}
                    self.walker(file).enter(known, [], follow, [f"{known.owner}.{name}"])

    def call(self, walker: Walker, call: ast.Call, guards: list[Guard], scope: Scope) -> None:
        """Enter what is called, where it is one of ours and configuration is handed to it."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == COLLECTS:
            for known, guard in self.registered:
                self._enter(walker, known, [*guards, guard], {})
            self._constants(walker, guards)
            return
        if name == "handle_server_args":
            for known, guard in self.families():
                self._enter(walker, known, [*guards, guard], {})
            return
        if name in DECLARES or name == "override":
            for keyword in call.keywords:
                if keyword.arg in self.fields:
                    self.change(walker, keyword.arg, keyword.value, guards, scope)
            return
        if name in ("run_hook", "run_post_process_pass"):
            target = next((a.id for a in call.args if isinstance(a, ast.Name) and a.id in self.functions), "")
            found = self._find(walker, target, method=False)
            if found:
                self._enter(walker, found, guards, {})
            return
        method = isinstance(call.func, ast.Attribute) and bool(CONFIG.match(ast.unparse(call.func.value)))
        if not method and isinstance(call.func, ast.Attribute):
            return
        found = self._find(walker, name, method=method)
        if found:
            self._enter(walker, found, guards, _arguments(walker, found.node, call, scope, bound=method))

    def families(self) -> Iterator[tuple[Known, Guard]]:
        """Functions for one family of speculative algorithms, by the tests of the method that picks them."""
        module = self.tree.ast(FAMILIES) if self.tree.has(FAMILIES) else ast.Module([], [])
        owner = next((n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "SpeculativeAlgorithm"), None)
        methods = {n.name: n for n in (owner.body if owner else ()) if isinstance(n, ast.FunctionDef)}
        node = next(
            (
                n
                for n in methods.get("handle_server_args", ast.Pass()).__dict__.get("body", ())
                if isinstance(n, ast.If)
            ),
            None,
        )
        while isinstance(node, ast.If):
            asked = [
                c.func.attr
                for c in ast.walk(node.test)
                if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)
            ]
            names = sorted({name for one in asked if one in methods for name in _members(methods[one])})
            for call in ast.walk(node.body[0]):
                found = self.functions.get(getattr(getattr(call, "func", None), "id", ""), ())
                if names and found:
                    yield (
                        found[0],
                        Guard(f"cfg.speculative_algorithm in {tuple(names)!r}", ast.unparse(node.test), node.lineno),
                    )
            follows = node.orelse[0] if node.orelse else None
            node = follows if isinstance(follows, ast.If) else None

    def _find(self, walker: Walker, name: str, *, method: bool) -> Known | None:
        fitting = [k for k in self.functions.get(name, ()) if bool(k.owner) is method]
        here = [k for k in fitting if k.path == walker.path]
        return next(iter(here or fitting), None)

    def _enter(self, walker: Walker, known: Known, guards: list[Guard], names: dict[str, ast.expr]) -> None:
        name = f"{known.owner}.{known.node.name}"  # a method may hand on to a function of its own name
        if name in walker.stack or len(walker.stack) > DEPTH:
            return
        self.walker(known.path).enter(known, guards, names, [*walker.stack, name])

    def _constants(self, walker: Walker, guards: list[Guard]) -> None:
        """`MODEL_OVERRIDES = {"Arch": {"field": value}}`: what an architecture gets without a function."""
        for path in self.paths:
            for node in self.tree.ast(path).body:
                table = getattr(node, "value", None)
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if getattr(target, "id", "") != "MODEL_OVERRIDES" or not isinstance(table, ast.Dict):
                    continue
                for key, value in zip(table.keys, table.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Dict):
                        guard = Guard(f"model_arch == {key.value!r}", ast.unparse(key), key.lineno)
                        for name, item in _entries(value):
                            self.change(walker, name, item, [*guards, guard], Scope(""))

    def change(self, walker: Walker, name: str, value: ast.expr, guards: list[Guard], scope: Scope) -> None:
        if name in self.fields:
            self.trace.sets.append(
                {
                    "n": self.trace.next(),
                    "field": name,
                    "value": told(VIEW.sub("cfg", walker.text(value, scope))),
                    "path": walker.path,
                    "symbol": scope.symbol,
                    "line": getattr(value, "lineno", 0),
                    "guards": self._kept(guards),
                }
            )

    def _kept(self, guards: list[Guard]) -> list[str]:
        """The conditions of a change that can be told; all others together are one that cannot."""
        texts = texts_of(guards)
        kept = [text for text in texts if tellable(text, self.fields)]
        return kept if len(kept) == len(texts) else [*kept, "something_else"]

    def stop(self, walker: Walker, guards: list[Guard], scope: Scope, message: str) -> None:
        texts = texts_of(guards)
        if not any(name in self.fields for text in texts for name in re.findall(r"\.(\w+)", text)):
            return
        if not all(tellable(text, self.fields) for text in texts):
            return  # never certain
        last = guards[-1]
        self.trace.stops.append(
            {
                "n": self.trace.next(),
                "path": walker.path,
                "symbol": scope.symbol,
                "line": last.line,
                "quote": last.quote[:QUOTED],
                "guards": texts,
                "text": message[:SAID],
            }
        )


def _members(method: ast.FunctionDef) -> set[str]:
    """`return self in (SpeculativeAlgorithm.EAGLE, …)`: the names."""
    return {n.attr for n in ast.walk(method) if isinstance(n, ast.Attribute) and n.attr.isupper()}


def _quiet(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def _functions(module: ast.Module, path: str) -> Iterator[Known]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            yield Known(path, "", node)
        elif isinstance(node, ast.ClassDef) and node.name in ("ServerArgs", "ModelRunner"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield Known(path, node.name, inner)


def _registration(node: ast.FunctionDef) -> Guard | None:
    """The architectures for which a function is registered, as a condition."""
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        name = ast.unparse(decorator.func)
        if name in REGISTERED:
            words = [a.value for a in decorator.args if isinstance(a, ast.Constant)]
            whole = len(words) == len(decorator.args) and not decorator.keywords and bool(words)
            text = f"model_arch in {tuple(words)!r}"
            return Guard(text, ast.unparse(decorator), node.lineno) if whole else ANYTHING
        if name.startswith("register_model_override"):
            return ANYTHING
    return None


def _entries(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def _changes(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement gives a value, where they may be fields: of the arguments, or of what is declared."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(one, ast.Attribute) and CONFIG.match(ast.unparse(one.value)):
                    plain = one is target and not isinstance(node, ast.AugAssign)
                    yield one.attr, node.value if plain else ast.Name("something_else", lineno=node.lineno)
                elif isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant):
                    yield str(one.slice.value), node.value
        if isinstance(node.value, ast.Dict):
            yield from _entries(node.value)
    elif isinstance(node, ast.Return) and node.value is not None:
        for inner in ast.walk(node.value):
            if isinstance(inner, ast.Dict):
                yield from _entries(inner)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        named = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if ast.unparse(call.func) == "setattr" and len(call.args) == 3:
            for name in named[:1]:
                yield name, call.args[2]
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            for argument in call.args:
                if isinstance(argument, ast.Dict):
                    yield from _entries(argument)
            for keyword in call.keywords:
                if keyword.arg:
                    yield keyword.arg, keyword.value


def _arguments(
    walker: Walker, node: ast.FunctionDef, call: ast.Call, scope: Scope, *, bound: bool
) -> dict[str, ast.expr]:
    """Parameters that are not the configuration itself, as the caller's expressions."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    static = any(ast.unparse(d) in ("staticmethod", "classmethod") for d in node.decorator_list)
    if bound and not static:
        names = names[1:]
    given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    return {
        name: ast.parse(walker.text(value, scope), mode="eval").body
        for name, value in given.items()
        if not CONFIG.match(name) and len(ast.unparse(value)) < 120
    }


def resolution(tree: SourceTree, defaults: dict[str, Any], places: Places, texts: Texts) -> dict[str, Any]:
    """{"stops", "changes"}; conditions and fields stand in rows as their numbers in `texts`.

    A stop is [n, at, quote, conditions, needs, message], a change [n, at, field, value, conditions, needs]; `n` counts
    both in the order in which the release comes to them, `at` is [place, line]. `needs` are fields without a value of
    one's own for which a row is never met; a value of "" is one that cannot be told.
    `defaults` are those of all fields of the arguments.
    """
    world = World(tree, frozenset(defaults))
    world.walk()
    trace = world.trace
    changed = {row["field"] for row in trace.sets}
    known = {f: v for f, v in defaults.items() if isinstance(v, bool) or f not in changed}
    asked = _asked(trace)
    seen: set[tuple[Any, ...]] = set()
    stops: list[list[Any]] = []
    for row in trace.stops:
        key = (row["path"], row["line"], row["text"], *row["guards"])
        needs = needs_of(row["guards"], known)
        if key not in seen and needs is not None:
            seen.add(key)
            guards = [texts.number(g) for g in row["guards"]]
            names = [texts.number(name) for name in needs]
            stops.append([row["n"], places.at(row), row["quote"], guards, names, row["text"]])
    changes: list[list[Any]] = []
    for row in trace.sets:
        needs = needs_of(row["guards"], known)
        certain = row["value"] and "something_else" not in row["guards"]
        if needs is not None and (row["field"] in asked or certain):
            guards = [texts.number(g) for g in row["guards"]]
            names = [texts.number(name) for name in needs]
            field_ = texts.number(row["field"])
            changes.append([row["n"], places.at(row), field_, row["value"], guards, names])
    return {"stops": stops, "changes": changes}


def _asked(trace: Trace) -> set[str]:
    """Fields that stops ask for, and those on which changes of such fields hang."""
    asked = {name for row in trace.stops for guard in row["guards"] for name in FIELD.findall(guard)}
    while True:
        rows = [row for row in trace.sets if row["field"] in asked]
        more = {name for row in rows for guard in row["guards"] for name in FIELD.findall(guard)} - asked
        if not more:
            return asked
        asked |= more
