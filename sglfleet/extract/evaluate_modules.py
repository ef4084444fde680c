"""The modules of an unpacked engine: which file a dotted name is, and its syntax tree."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

from sglfleet.extract.tree import ExtractError, SourceTree


class Modules:
    """Dotted names over one source tree."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.files: dict[str, str] = {}
        for path in tree.list(suffix=".py"):
            name = path[: -len("/__init__.py")] if path.endswith("/__init__.py") else path[:-3]
            self.files[name.replace("/", ".")] = path
        self.stores: dict[int, Any] = {}  # class node -> fields and where they are set; kept over all machines
        self.stored: dict[int, set[str]] = {}  # block -> names it may set; its tree is kept by the source tree
        self.unreadable: dict[str, str] = {}  # path -> why: syntax newer than this Python, most likely

    def text(self, module: str) -> str:
        return self.tree.read(self.files[module])

    def parse(self, module: str) -> ast.Module | None:
        """The syntax tree, or None for a module that is not in the artifact or cannot be parsed."""
        path = self.files.get(module)
        if path is None or path in self.unreadable:
            return None
        try:
            return self.tree.ast(path)
        except ExtractError as error:
            self.unreadable[path] = str(error)
            return None

    def absolute(self, module: str, target: str | None, level: int) -> str:
        """The dotted name that an import of `target` with `level` dots means inside `module`."""
        if not level:
            return target or ""
        is_package = self.files.get(module, "").endswith("/__init__.py")
        base = (module if is_package else module.rpartition(".")[0]).split(".")
        base = base[: len(base) - (level - 1)]
        return ".".join([*base, *([target] if target else [])])


def source(text: str, node: ast.AST) -> str:
    """Source text of a node on one line, as it stands in the file but for line breaks and indentation."""
    start, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    rows = _lines(text)[start - 1 : end]
    if not rows:
        return ""
    # columns count UTF-8 bytes
    rows[-1] = rows[-1].encode()[: getattr(node, "end_col_offset", 0)].decode("utf-8", "ignore")
    rows[0] = rows[0].encode()[getattr(node, "col_offset", 0) :].decode("utf-8", "ignore")
    return " ".join(" ".join(rows).split())


@lru_cache(maxsize=8)
def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n"))


def _lines(text: str) -> list[str]:
    return list(_split(text))
