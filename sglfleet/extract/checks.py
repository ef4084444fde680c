"""Every place where a release stops the start, with all conditions on the way there, as text that can be evaluated.

Syntactic: a raise or an assert, the tests of the ifs around it, and the negated tests of ifs before it that leave the
function. A local name that is assigned once is replaced by what it was assigned. Nothing is decided here; the gate
evaluates the texts for one service (`validators.conditions`), and a condition it cannot tell stops nothing.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.tree import SourceTree

SM = re.compile(r"sm\d|blackwell|hopper|ampere|capability|major|device_sm|get_sm")
# argument resolution, and the constructors and resolvers of back ends that a flag picks
FILES = re.compile(
    r"sglang/srt/(server_args\.py|arg_groups/.*|layers/attention/.*|layers/flashinfer_comm_fusion\.py|multiplex/.*"
    r"|model_executor/.*|layers/quantization/.*|layers/moe/.*|mem_cache/.*|dllm/.*|batch_overlap/.*|distributed/.*"
    r"|layers/communicator\.py|two_batch_overlap\.py|lora/.*|managers/.*|speculative/.*|utils/.*|layers/[a-z_]+\.py)$"
)
RESOLUTION = re.compile(r"sglang/srt/(server_args\.py|arg_groups/)")


@dataclass(frozen=True)
class Guard:
    """One condition that holds where the statement is reached."""

    text: str  # evaluated; local names replaced
    quote: str  # as it stands in the source, on one line
    line: int


@dataclass
class Scope:
    """What is known inside one function."""

    symbol: str
    names: dict[str, ast.expr] = field(default_factory=dict)  # assigned exactly once, by a plain expression


class _Replace(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names
        self.depth = 0
        self.budget = 6  # replacements in one condition; more would no longer be read by anybody

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.names.get(node.id)
        if found is None or self.depth > 1 or self.budget <= 0:
            return node
        self.depth += 1
        self.budget -= 1
        out = self.visit(ast.parse(ast.unparse(found), mode="eval").body)
        self.depth -= 1
        assert isinstance(out, ast.expr)
        return out


def segment_of(lines: list[bytes], node: ast.expr) -> str:
    """The source of a node. `ast.get_source_segment` splits the whole file anew each time: minutes for a release."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    if first == last:
        return lines[first][node.col_offset : node.end_col_offset].decode()
    middle = lines[first + 1 : last]
    return b"\n".join([lines[first][node.col_offset :], *middle, lines[last][: node.end_col_offset]]).decode()


def quote(lines: list[bytes], node: ast.expr) -> str:
    """The source of a node on one line, without comments."""
    segment = segment_of(lines, node)
    if "\n" not in segment and "#" not in segment:
        return segment.strip()
    words: list[str] = []
    last = (1, 0)
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"({segment})").readline):
            if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                continue
            if words and (token.start[0] != last[0] or token.start[1] > last[1]):
                words.append(" ")
            words.append(token.string)
            last = token.end
    except tokenize.TokenError:
        return ast.unparse(node)
    text = "".join(words).strip()
    return re.sub(r"\s+", " ", text.removeprefix("(").removesuffix(")")).strip()


class Reader:
    """Walks one module."""

    def __init__(self, tree: SourceTree, path: str) -> None:
        self.path = path
        self.source = tree.read(path).encode().split(b"\n")
        self.module = tree.ast(path)
        self.constants = _constants(self.module)
        self.found: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        self._block(self.module.body, [], Scope("", self.constants))
        return self.found

    def seen(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        """Called for every plain statement; readers of other places override it."""

    def _block(self, body: list[ast.stmt], guards: list[Guard], scope: Scope) -> None:
        here = list(guards)
        for node in body:
            self._statement(node, here, scope)
            if isinstance(node, ast.If) and _leaves(node.body) and not node.orelse:
                here = [*here, self._guard(node.test, scope, negated=True)]
            elif isinstance(node, ast.If):
                here += self._inner_exits(node, scope)

    def _inner_exits(self, node: ast.If, scope: Scope) -> list[Guard]:
        """`if a: if b: return`: what follows is reached where not both hold."""
        outer = self._guard(node.test, scope)
        found = []
        for child in node.body:
            if isinstance(child, ast.If) and _leaves(child.body):
                inner = self._guard(child.test, scope)
                found.append(Guard(f"not (({outer.text}) and ({inner.text}))", inner.quote, inner.line))
        return found

    def _statement(self, node: ast.stmt, guards: list[Guard], scope: Scope) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = Scope(f"{scope.symbol}.{node.name}".lstrip("."), self.constants | _once(node))
            self._block(node.body, [], inner)
        elif isinstance(node, ast.ClassDef):
            self._block(node.body, [], Scope(f"{scope.symbol}.{node.name}".lstrip("."), scope.names))
        elif isinstance(node, ast.If):
            self.seen(node, guards, scope)
            self._block(node.body, [*guards, self._guard(node.test, scope)], scope)
            self._block(node.orelse, [*guards, self._guard(node.test, scope, negated=True)], scope)
        elif isinstance(node, ast.Raise):
            self._add("raise", node, guards, scope, _message(node.exc))
        elif isinstance(node, ast.Assert):
            failing = self._guard(node.test, scope, negated=True)
            self._add("assert", node, [*guards, failing], scope, _message(node.msg))
        elif isinstance(node, ast.For | ast.While):
            unknown = Guard("something_in_a_loop", "", node.lineno)
            self._block([*node.body, *node.orelse], [*guards, unknown], scope)
        elif isinstance(node, ast.Try):
            if not any(_swallows(handler) for handler in node.handlers):
                self._block(node.body, guards, scope)
            self._block([*node.orelse, *node.finalbody], guards, scope)
        elif isinstance(node, ast.With):
            self._block(node.body, guards, scope)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self._block(case.body, [*guards, Guard("something_in_a_match", "", node.lineno)], scope)
        else:
            self.seen(node, guards, scope)

    def _guard(self, test: ast.expr, scope: Scope, *, negated: bool = False) -> Guard:
        shown = quote(self.source, test)
        text = ast.unparse(_Replace(scope.names).visit(ast.parse(ast.unparse(test), mode="eval").body))
        return Guard(f"not ({text})" if negated else text, shown, test.lineno)

    def _add(self, kind: str, node: ast.stmt, guards: list[Guard], scope: Scope, message: str) -> None:
        if not guards or not any(SM.search(g.text) for g in guards):
            return
        last = next(g for g in reversed(guards) if SM.search(g.text))
        self.found.append(
            {
                "file": self.path,
                "symbol": scope.symbol,
                "line": last.line,
                "condition": last.quote,
                "guards": [g.text for g in guards],
                "kind": kind,
                "text": message,
            }
        )


def _constants(module: ast.Module) -> dict[str, ast.expr]:
    """Lists of words at module level that are assigned once: the architectures that something is on for."""
    found: dict[str, list[ast.expr]] = {}
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            found.setdefault(target.id, []).append(value)
    out = {}
    for name, values in found.items():
        value = values[0]
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("frozenset", "set", "tuple") and value.args:
            value = value.args[0]
        words = isinstance(value, ast.List | ast.Tuple | ast.Set) and all(
            isinstance(e, ast.Constant) for e in value.elts
        )
        if len(values) == 1 and words:
            out[name] = value
    return out


def _leaves(body: list[ast.stmt]) -> bool:
    """Leaves in peace. An earlier raise is no condition of a later one: the start stops either way."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Continue | ast.Break)


def _swallows(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def _once(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Local names with exactly one plain assignment, and not a parameter."""
    seen: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        whole = isinstance(target, ast.Name)
                        seen.setdefault(name.id, []).append(node.value if whole else None)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name):
                    seen.setdefault(name.id, []).append(None)
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        seen.setdefault(argument.arg, []).append(None)
    plain = {name: values[0] for name, values in seen.items() if len(values) == 1}
    return {name: value for name, value in plain.items() if value is not None and len(ast.unparse(value)) < 200}


def _message(node: ast.expr | None) -> str:
    """The text that is raised, as far as it is written out."""
    if node is None:
        return ""
    parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return re.sub(r"\s+", " ", " ".join(parts)).strip()[:240]


def checks(tree: SourceTree) -> list[dict[str, Any]]:
    """All SM-dependent stops of a release, in the order of files and lines."""
    return [row for path in tree.list("sglang/srt/") if FILES.search(path) for row in _read(tree, path)]


def _read(tree: SourceTree, path: str) -> Iterator[dict[str, Any]]:
    if "/test" in path or not SM.search(tree.read(path)):
        return
    yield from Reader(tree, path).read()
