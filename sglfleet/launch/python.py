"""Launch commands in Python: lists of words for `subprocess`, and whole commands in strings. Read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from sglfleet.launch import shell
from sglfleet.launch.command import Launch, from_words

_LIKE = re.compile(r"\[\s*(?:#.*\s*)*[\"']|\bsys\.executable\b|\b(?:subprocess|import|def)\b")
_IN_TEXT = re.compile(r"\bsglang\s+serve\s|\bsglang\.launch_server\s")


def find(text: str, file: str) -> list[Launch] | None:
    """Launch commands of a Python file or of pasted Python; None where the text is something else."""
    if "sglang" not in text or not (file.endswith(".py") or _LIKE.search(text)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings: none of our business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    reader = _Reader(file)
    reader.block(tree.body, sure=True)
    found = reader.out + [launch for name in reader.named for launch in reader.launch(*reader.named[name])]
    return sorted(found, key=lambda launch: int(launch.where.rpartition(":")[2])) if found else None


class _Reader:
    """Statements in their order: lists that have a name may grow before they are run."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.values: dict[str, str] = {}  # names of plain text and numbers
        self.named: dict[str, tuple[list[str], int, bool]] = {}  # name -> words, line, whether every part is sure
        self.out: list[Launch] = []

    def block(self, body: list[ast.stmt], sure: bool) -> None:
        for statement in body:
            self.statement(statement, sure)
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                branch = isinstance(statement, ast.If | ast.For | ast.While | ast.Match)
                if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                    self.block(inner, sure and not branch)
            for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                self.block(handler.body, False)

    def statement(self, statement: ast.stmt, sure: bool) -> None:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            name = targets[0].id if isinstance(targets[0], ast.Name) else ""
            if (
                name
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str | int | float)
            ):
                self.values[name] = str(statement.value.value)
            words = self.words(statement.value)
            if name and words is not None:
                if name in self.named:  # another command under the same name
                    self.out += self.launch(*self.named.pop(name))
                self.named[name] = (words, statement.value.lineno, True)
                return
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self.grow(statement.target.id, statement.value, sure)
            return
        if isinstance(statement, ast.Expr) and self.grown(statement.value, sure):
            return
        for node in _expressions(statement):
            words = self.words(node) if isinstance(node, ast.List | ast.Tuple | ast.BinOp) else None
            if words is not None:
                self.out += self.launch(words, node.lineno, True)
            elif isinstance(node, ast.Constant | ast.JoinedStr):
                self.out += self.in_string(node)

    def grown(self, call: ast.expr, sure: bool) -> bool:
        """`cmd.extend([…])`, `cmd.append(…)`."""
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(call.args) == 1):
            return False
        if not (isinstance(call.func.value, ast.Name) and call.func.value.id in self.named):
            return False
        if call.func.attr == "append":
            self.grow(call.func.value.id, ast.List([call.args[0]], ast.Load()), sure)
        elif call.func.attr == "extend":
            self.grow(call.func.value.id, call.args[0], sure)
        return call.func.attr in ("append", "extend")

    def grow(self, name: str, more: ast.expr, sure: bool) -> None:
        if name in self.named:
            words, line, every = self.named[name]
            added = self.words(more)
            self.named[name] = (words + ([_name(more)] if added is None else added), line, every and sure)

    def words(self, node: ast.expr) -> list[str] | None:
        """The words of a list, or of several that are added; None for anything else."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.words(node.left), self.words(node.right)
            if left is None and right is None:
                return None
            return [
                *(left if left is not None else [_name(node.left)]),
                *(right if right is not None else [_name(node.right)]),
            ]
        if isinstance(node, ast.Name) and node.id in self.named:
            return self.named[node.id][0]
        if not isinstance(node, ast.List | ast.Tuple):
            return None
        out: list[str] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.words(item.value)
                out += [_name(item.value)] if inner is None else inner
            else:
                out.append(self.word(item))
        return out

    def word(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.Name):
            return self.values.get(node.id, "$" + node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            return self.word(node.args[0])
        if isinstance(node, ast.JoinedStr):
            return "".join(
                self.word(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values
            )
        return "python" if ast.unparse(node) == "sys.executable" else _name(node)

    def launch(self, words: list[str], line: int, sure: bool) -> list[Launch]:
        if not words or words[0].startswith("-"):
            return []  # options for somebody's own helper, or half of a command
        where = f"{self.file}:{line}"
        shells = [after for before, after in pairwise(words) if before in ("-c", "-lc")]
        if shells and "sglang" in shells[0]:
            return [replace(one, where=where) for one in shell.find(shells[0], self.file)]
        found = from_words(words, where, {}, "script")
        if found is None:
            return []
        what = f"{where}: words are added in a branch or a loop: judged as if every one of them ran, once"
        return [found if sure else replace(found, notes=(*found.notes, what))]

    def in_string(self, node: ast.Constant | ast.JoinedStr) -> list[Launch]:
        """A whole command in a string, as for a shell."""
        text = self.word(node)
        if not _IN_TEXT.search(text):
            return []
        found = shell.find(text, self.file)
        at = node.lineno - 1
        return [replace(one, where=f"{self.file}:{at + int(one.where.rpartition(':')[2])}") for one in found]


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Lists and strings of a statement from the outside in; nothing more of a list that was taken, and no docstring."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return
    stack: list[ast.AST] = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while stack:
        node = stack.pop(0)
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        if isinstance(node, ast.List | ast.Tuple | ast.BinOp | ast.Constant | ast.JoinedStr):
            yield node
        if not isinstance(node, ast.List | ast.Tuple | ast.BinOp | ast.JoinedStr):
            stack += ast.iter_child_nodes(node)


def _name(node: ast.expr) -> str:
    """What stands for a value that only the program knows."""
    return "$" + (re.sub(r"\W+", "_", ast.unparse(node)).strip("_") or "VALUE")
