"""For which GPUs FlashInfer builds its kernels: every `gen_*` function, read from source.

A generator names majors (`get_nvcc_flags_list(supported_major_versions=[9, 10])`, from 0.3.1) or exact
architectures (`sm100a_nvcc_flags`, `-gencode=arch=compute_90a,…`), itself or through a helper; one that names neither
builds for whatever GPU is there.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.tree import ExtractError
from sglfleet.extract.values import Frame, Function, UnresolvedError

HINT = "def gen_"
LISTS = "get_nvcc_flags_list"
PARAMETER = "supported_major_versions"
NAMED_FLAGS = re.compile(r"^sm(\d{2,3})([af]?)_nvcc_flags$")
GENCODE = re.compile(r"compute_(\d{2,3})([af]?)")
AT_LEAST = ("is_cuda_version_at_least", "version_at_least")
Row = dict[str, Any]


@dataclass(slots=True)
class Target:
    """What a function builds for, over all its paths."""

    majors: set[int] = field(default_factory=set)
    archs: set[str] = field(default_factory=set)
    cuda: set[str] = field(default_factory=set)  # CUDA versions below which it raises
    sources: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # lists whose value cannot be known
    always: bool = False  # no path builds for any GPU

    def add(self, other: Target) -> None:
        self.majors |= other.majors
        self.archs |= other.archs
        self.sources += [s for s in other.sources if s not in self.sources]
        self.unread += [s for s in other.unread if s not in self.unread]

    @property
    def restricts(self) -> bool:
        return bool(self.majors or self.archs or self.unread)


def generators(interpreter: Interpreter) -> list[Row]:
    """One row per module-level `gen_*` function of the package, sorted by module and name."""
    tree = interpreter.scopes.tree
    paths = [p for p in tree.list("flashinfer/") if HINT in tree.read(p)]
    if not paths:
        raise ExtractError(f"{tree.name}: no gen_* function in flashinfer/: this is not a FlashInfer release")
    reader = _Reader(interpreter)
    rows = []
    for path in paths:
        for statement in tree.ast(path).body:
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("gen_"):
                rows.append(_row(statement, path, reader.target(path, statement)))
    return _keyed(rows)


def _row(node: ast.FunctionDef, path: str, target: Target) -> Row:
    majors = target.majors or {int(arch.partition(".")[0]) for arch in target.archs}
    row: Row = {
        "name": node.name,
        "majors": sorted(majors) if target.restricts and not target.unread else None,
        "archs": sorted(target.archs, key=lambda a: (float(a.rstrip("af")), a)),
        "always": target.always,
        "cuda_min": {"": max(target.cuda, key=_version)} if target.cuda else {},
        "source": "; ".join(target.sources or target.unread),
        "certain": not target.unread,
        "path": path,
        "symbol": node.name,
        "line": node.lineno,
    }
    return row


def _keyed(rows: list[Row]) -> list[Row]:
    """The bare name where it is unique, else with its module in front."""
    count: dict[str, int] = {}
    for row in rows:
        count[row["name"]] = count.get(row["name"], 0) + 1
    for row in rows:
        module = row["path"].removesuffix(".py").replace("/", ".").removeprefix("flashinfer.")
        row["key"] = row["name"] if count[row["name"]] == 1 else f"{module}.{row['name']}"
    return sorted(rows, key=lambda r: r["key"])


class _Reader:
    """Reads functions once each; helpers are followed, whatever their names."""

    def __init__(self, interpreter: Interpreter):
        self.interpreter = interpreter
        self._seen: dict[tuple[str, str], Target] = {}

    def target(self, path: str, node: ast.FunctionDef) -> Target:
        key = (path, node.name)
        if key not in self._seen:
            self._seen[key] = Target()  # a function that calls itself adds nothing new
            found = Target()
            found.always = self._block(node.body, Frame(path), found) is True
            self._seen[key] = found
        return self._seen[key]

    def _block(self, body: list[ast.stmt], frame: Frame, found: Target) -> bool | None:
        """Collect. True: every way through restricts · False: a way returns unrestricted · None: it falls through."""
        verdict: bool | None = None
        for statement in body:
            result = self._statement(statement, frame, found)
            if verdict is None and result is not None:
                verdict = result
        return verdict

    def _statement(self, statement: ast.stmt, frame: Frame, found: Target) -> bool | None:
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                return None
            case ast.If(test=test, body=body, orelse=orelse):
                self._cuda(test, body, found)
                self._expression(test, frame, found)
                ways = (self._block(body, frame, found), self._block(orelse, frame, found))
                if False in ways:
                    return False
                return True if ways == (True, True) else None
            case ast.Try():
                for handler in statement.handlers:
                    self._block(handler.body, frame, found)
                return self._block([*statement.body, *statement.orelse], frame, found)
            case ast.With():
                return self._block(statement.body, frame, found)
            case ast.For() | ast.While():
                self._block(statement.body, frame, found)
                return None
            case ast.Raise():
                return True
        parts = [self._expression(e, frame, found) for e in ast.iter_child_nodes(statement) if isinstance(e, ast.expr)]
        if any(parts):
            return True
        return False if isinstance(statement, ast.Return) else None

    def _cuda(self, test: ast.expr, body: list[ast.stmt], found: Target) -> None:
        """`if not is_cuda_version_at_least("12.8"): raise` is a minimum."""
        match test:
            case ast.UnaryOp(
                op=ast.Not(), operand=ast.Call(func=func, args=[*_, ast.Constant(value=str(version))])
            ) if _last(func) in AT_LEAST and body and isinstance(body[0], ast.Raise):
                found.cuda.add(version)

    def _expression(self, node: ast.expr, frame: Frame, found: Target) -> bool:
        """Collect from an expression; True where it restricts whatever its parts decide."""
        match node:
            case ast.IfExp():
                self._expression(node.test, frame, found)
                return bool(self._expression(node.body, frame, found) & self._expression(node.orelse, frame, found))
            case ast.Lambda():
                return False
            case ast.Call():
                return self._call(node, frame, found)
            case ast.Name(id=name) if match := NAMED_FLAGS.match(name):
                return self._arch(match, name, found)
            case ast.Attribute(attr=name) if match := NAMED_FLAGS.match(name):
                return self._arch(match, name, found)
            case ast.Constant(value=str(text)) if "arch=" in text and (match := GENCODE.search(text)):
                return self._arch(match, text, found)
        parts = [self._expression(c, frame, found) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        return any(parts)

    def _arch(self, match: re.Match[str], text: str, found: Target) -> bool:
        found.archs.add(f"{match[1][:-1]}.{match[1][-1]}{match[2]}")
        if text not in found.sources:
            found.sources.append(text)
        return True

    def _call(self, node: ast.Call, frame: Frame, found: Target) -> bool:
        parts = [self._expression(part, frame, found) for part in (*node.args, *(k.value for k in node.keywords))]
        restricted = any(parts)
        if _last(node.func) == LISTS:
            return self._list(node, frame, found) or restricted
        try:
            called = self.interpreter.value(node.func, frame)
        except UnresolvedError:
            return restricted
        if isinstance(called, Function) and isinstance(called.node, ast.FunctionDef):
            inner = self.target(called.path, called.node)
            found.add(inner)
            found.cuda |= inner.cuda
            return restricted or inner.always
        return restricted

    def _list(self, node: ast.Call, frame: Frame, found: Target) -> bool:
        given = next((k.value for k in node.keywords if k.arg == PARAMETER), node.args[0] if node.args else None)
        if given is None or (isinstance(given, ast.Constant) and given.value is None):
            return False
        text = " ".join(ast.unparse(given).split())
        try:
            majors = [int(m) for m in self.interpreter.value(given, frame)]
        except (UnresolvedError, TypeError, ValueError):
            found.unread.append(text)
            return True
        found.majors.update(majors)
        source = f"{PARAMETER}={text}"
        if source not in found.sources:
            found.sources.append(source)
        return bool(majors)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
