"""Argument resolution in the order in which it runs: what stops the start, and what changes a field, with every
condition on the way there.

Walks from the entry of a release's `ServerArgs` through the calls it makes to functions of the same part of the
source, whether methods (`self._handle_x()`), hooks (`run_hook(handle_x, server_args)`), passes that return what they
declare (`run_post_process_pass(server_args, _x)`), overrides registered for an architecture, or functions of any other
module that the arguments are handed to. Nothing is decided here: conditions are kept as text, with everything in them
replaced that stands for something else (`symbols`, `resolution_walk`).
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.checks import Guard
from sglfleet.extract.document import Places, Texts
from sglfleet.extract.resolution_texts import FIELD, needs_of, tellable, texts_of, told
from sglfleet.extract.resolution_walk import Known, Walker, entries
from sglfleet.extract.scope import Scopes
from sglfleet.extract.symbol_names import Names
from sglfleet.extract.symbols import ANSWERED, CONFIG, Frame, Symbols, arguments
from sglfleet.extract.tree import SourceTree
from validators.rules.resolved import asked_in

FILES = re.compile(r"sglang/srt/(server_args\.py|arg_groups/.*\.py)$")
ENTRIES = ("__post_init__", "resolve_once", "check_server_args")  # in the order in which a launch calls them
# what the server does with its arguments once they are resolved: (path, function) -> fields read as they were given
STARTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("configs/model_config.py", "_validate_quantize_and_serve_config"): ("quantization",),  # before the checkpoint's
    ("model_executor/model_runner.py", "model_specific_adjustment"): (),
    ("layers/moe/utils.py", "initialize_moe_config"): (),
    ("layers/quantization/unquant.py", "initialize_bf16_gemm_config"): (),
}
DEPTH = 9  # calls below the entry; the deepest release has six
QUOTED, SAID = 200, 80  # characters of the source and of the message that are shown
REGISTERED = ("_register_for", "register_model_override")
COLLECTS = "collect_model_override_declarations"
DECLARES = ("declare_resolution", "declare")
FAMILIES = "sglang/srt/speculative/spec_info.py"  # which function checks which speculative algorithm, from 0.5.14 on
ANYTHING = Guard("something_registered", "", 0)


@dataclass
class Trace:
    """Rows in the order in which the release comes to them."""

    stops: list[dict[str, Any]] = field(default_factory=list)
    sets: list[dict[str, Any]] = field(default_factory=list)
    at: int = 0

    def next(self) -> int:
        self.at += 1
        return self.at


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
        own = {n: k for n, found in self.functions.items() for k in found if k.owner == "ServerArgs"}
        methods = {name: (known.path, known.node) for name, known in own.items()}
        self.symbols = Symbols(Scopes(tree), fields, methods)
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
        for (path, name), raw in STARTS.items():
            file = "sglang/srt/" + path
            for known in _functions(self.tree.ast(file), file) if self.tree.has(file) else ():
                if known.node.name == name:
                    names: Names = {f"self.{one}": ast.Name(f"as_given_{one}", ast.Load()) for one in raw}
                    self.walker(file).enter(known, [], names, [f"{known.owner}.{name}"])

    def call(self, walker: Walker, call: ast.Call, guards: list[Guard], frame: Frame) -> None:
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
            rows = [(k.arg, k.value) for k in call.keywords if k.arg]
            self.change(walker, rows, guards, frame)
            return
        if name in ("run_hook", "run_post_process_pass"):
            target = next((a.id for a in call.args if isinstance(a, ast.Name) and a.id in self.functions), "")
            found = self._find(walker, target, method=False)
            if found:
                self._enter(walker, found, guards, {})
            return
        method = isinstance(call.func, ast.Attribute) and bool(CONFIG.match(ast.unparse(call.func.value)))
        if (not method and isinstance(call.func, ast.Attribute)) or ANSWERED.match(name):
            return
        found = self._find(walker, name, method=method) or self._elsewhere(walker, name, call, frame)
        if found:

            def of(value: ast.expr) -> ast.expr:
                return self.symbols.of(value, walker.path, frame)

            self._enter(walker, found, guards, arguments(found.node, call, of, bound=method))

    def _elsewhere(self, walker: Walker, name: str, call: ast.Call, frame: Frame) -> Known | None:
        """A function of another part of the source that the arguments are handed to."""
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(call.func, ast.Attribute) or not any(CONFIG.match(ast.unparse(value)) for value in given):
            return None
        found = self.symbols.function(name, walker.path, frame)
        return Known(found[0], "", found[1]) if found and found[0].startswith("sglang/srt/") else None

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

    def _enter(self, walker: Walker, known: Known, guards: list[Guard], names: Names) -> None:
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
                        self.change(walker, list(entries(value)), [*guards, guard], Frame(""))

    def change(
        self, walker: Walker, rows: list[tuple[str, ast.expr]], guards: list[Guard], frame: Frame, *, late: bool = False
    ) -> None:
        """Fields that one statement sets: at once, or, where it only declares them, when its function is left."""
        n = self.trace.next()
        for name, value in rows:
            if name not in self.fields:
                continue
            self.trace.sets.append(
                {
                    "n": 0 if late else n,
                    "field": name,
                    "value": told(walker.text(value, frame), self.fields),
                    "path": walker.path,
                    "symbol": frame.symbol,
                    "line": getattr(value, "lineno", 0),
                    "guards": self._kept(guards),
                }
            )

    def _kept(self, guards: list[Guard]) -> list[str]:
        """The conditions of a change that can be told; all others together are one that cannot."""
        texts = texts_of(guards)
        kept = [text for text in texts if tellable(text, self.fields)]
        return kept if len(kept) == len(texts) else [*kept, "something_else"]

    def stop(self, walker: Walker, guards: list[Guard], frame: Frame, message: str, at: Guard) -> None:
        """`at` is the condition that is shown: of the function itself."""
        texts = texts_of(guards)
        if not any(name in self.fields for text in texts for name in asked_in(text)):
            return
        if not all(tellable(text, self.fields) for text in texts):
            return  # never certain
        self.trace.stops.append(
            {
                "n": self.trace.next(),
                "path": walker.path,
                "symbol": frame.symbol,
                "line": at.line,
                "quote": at.quote[:QUOTED],
                "guards": texts,
                "text": message[:SAID],
            }
        )


def _members(method: ast.FunctionDef) -> set[str]:
    """`return self in (SpeculativeAlgorithm.EAGLE, …)`: the names."""
    return {n.attr for n in ast.walk(method) if isinstance(n, ast.Attribute) and n.attr.isupper()}


def _functions(module: ast.Module, path: str) -> Iterator[Known]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            yield Known(path, "", node)
        elif isinstance(node, ast.ClassDef) and node.name in ("ServerArgs", "ModelRunner", "ModelConfig"):
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
            return _by_predicate(decorator)
    return None


def _by_predicate(decorator: ast.Call) -> Guard:
    """`@register_model_override_predicate(lambda arch: …)`."""
    match decorator.args:
        case [ast.Lambda(args=ast.arguments(args=[ast.arg(arg=name)]), body=body)]:
            text = ast.unparse(_Renamed(name).visit(copy.deepcopy(body)))
            return Guard(text, ast.unparse(body), body.lineno)
    return ANYTHING


class _Renamed(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("model_arch", ast.Load()) if node.id == self.name else node


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
    for row in sorted(trace.sets, key=lambda row: row["n"]):
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
    asked = {name for row in trace.stops for guard in row["guards"] for name in asked_in(guard)}
    while True:
        rows = [row for row in trace.sets if row["field"] in asked]
        more = {name for row in rows for guard in row["guards"] for name in FIELD.findall(guard)} - asked
        if not more:
            return asked
        asked |= more
