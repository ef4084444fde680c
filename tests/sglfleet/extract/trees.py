"""Small releases made of a few lines, for the extractors."""

from __future__ import annotations

from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.scope import Scopes
from sglfleet.extract.tree import SourceTree


def tree(files: dict[str, str], package: str = "sglang", version: str = "1.2.3") -> SourceTree:
    contents = {path: text.encode() for path, text in files.items()}
    return SourceTree(package, version, f"{package}-{version}.whl", "0" * 64, contents, contents.__getitem__)


def interpreter(files: dict[str, str], package: str = "sglang") -> Interpreter:
    return Interpreter(Scopes(tree(files, package)))


SERVER_ARGS = "sglang/srt/server_args.py"
