"""Does a piece of evidence stand where it says: in the unpacked artifact, at that file and line, word for word."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from sglfleet.extract.checks import quote
from validators.verdict import Evidence


@cache
def _quotes(path: Path) -> dict[int, frozenset[str]]:
    """Line -> every expression that begins there, as evidence quotes it."""
    source = path.read_bytes()
    lines = source.split(b"\n")
    found: dict[int, set[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.expr):
            found.setdefault(node.lineno, set()).add(quote(lines, node))
    return {line: frozenset(texts) for line, texts in found.items()}


def stands(root: Path, evidence: Evidence) -> bool:
    """`root` holds the unpacked artifact, or the site-packages it is installed in."""
    path = root / evidence.file
    if not path.is_file():
        return False
    if path.suffix != ".py":
        text = " ".join(path.read_text(encoding="utf-8", errors="replace").split())
        return " ".join(evidence.condition.split()) in text
    if evidence.condition.startswith("--"):  # a flag: its own words, or those of the field it comes from
        name = evidence.condition.lstrip("-")
        near = "\n".join(path.read_text(encoding="utf-8").splitlines()[evidence.line - 1 : evidence.line + 12])
        return name in near or name.replace("-", "_") in near
    if any(evidence.condition in text for text in _quotes(path).get(evidence.line, ())):
        return True
    lines = path.read_text(encoding="utf-8").splitlines()
    here = lines[evidence.line - 1]
    name = evidence.symbol.rsplit(".", 1)[-1]
    if name and here.lstrip().startswith(f"def {name}("):  # a fact about the whole function: it stands in its body
        return evidence.condition in " ".join(" ".join(_body(lines, evidence.line - 1)).split())
    return evidence.condition in here


def _body(lines: list[str], start: int) -> list[str]:
    """From a `def` to the next line that is not deeper."""
    depth = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines):
        line = lines[end]
        if line.strip() and len(line) - len(line.lstrip()) <= depth and not line.lstrip().startswith(")"):
            break
        end += 1
    return lines[start:end]
