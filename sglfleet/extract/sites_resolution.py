"""Stops of argument resolution that no SM decides: what speculative decoding and determinism refuse of other flags."""

from __future__ import annotations

import ast
import re
from typing import Any

from sglfleet.extract.checks import Guard, Reader, Scope
from sglfleet.extract.tree import SourceTree

FILES = re.compile(r"sglang/srt/(server_args|arg_groups/(speculative_hook|attention_hook|overrides))\.py$")
FUNCTIONS = re.compile(r"speculative|determin|_handle_ngram|_handle_eagle|_handle_dflash|_handle_standalone")


class _All(Reader):
    """Every raise and assert of the functions in question, whether or not the SM is asked."""

    def _add(self, kind: str, node: ast.stmt, guards: list[Guard], scope: Scope, message: str) -> None:
        if not guards or not FUNCTIONS.search(scope.symbol.rsplit(".", 1)[-1]):
            return
        last = guards[-1]
        self.found.append(
            {
                "file": self.path,
                "symbol": scope.symbol,
                "line": last.line,
                "condition": last.quote,
                "guards": [g.text for g in guards],
                "text": message,
            }
        )


def resolution(tree: SourceTree) -> list[dict[str, Any]]:
    """Rows as `checks.checks` gives them, in the order of files and lines."""
    return [row for path in tree.list("sglang/srt/") if FILES.search(path) for row in _All(tree, path).read()]
