"""Which functions of a release may read the SM: a cheap first look, so that only those are parsed and interpreted.

Goes by bare names, so it errs on the side of looking: a name set from an expression that speaks of the SM, or
returned under one, is taken to speak of it wherever it is used.
"""

from __future__ import annotations

import ast
import re

from sglfleet.extract.evaluate_modules import Modules

PLAIN = ("capabilit", "blackwell", "hopper", "device_sm", "ampere", "get_device_properties")
NUMBER = re.compile(r"sm_?\d\d")
WORD = re.compile(r"[A-Za-z_]\w*")
LONGEST = 60  # lines of a helper; longer functions do work, they do not answer a question
COMMON = frozenset((
    "forward", "apply", "run", "main", "get", "create", "config", "result", "x", "out", "value", "dtype", "name",
    "device", "kernel", "backend", "model", "args", "kwargs", "attention_backend", "page_size", "moe_runner_backend",
    "kv_cache_dtype", "quantization", "num_warps", "num_stages", "block_size", "configs", "props", "key", "cls", "self",
    "module", "supported", "_", "major", "minor",
))  # fmt: skip


def speaks(text: str) -> bool:
    """Does a text speak of the SM? Ten times faster than one pattern that ignores case."""
    low = text.lower()
    return any(word in low for word in PLAIN) or NUMBER.search(low) is not None


class Names:
    """Names that may carry the SM, and the files in which any of them stands."""

    def __init__(self, modules: Modules, scope: tuple[str, ...]) -> None:
        self.modules = modules
        in_scope = {m: p for m, p in modules.files.items() if p.startswith(scope)}
        texts = {m: modules.text(m) for m in sorted(in_scope)}
        speaking = [m for m, text in texts.items() if speaks(text)]
        self.helpers: set[str] = set()  # functions of modules, importable elsewhere
        self.names: set[str] = set()  # variables and fields
        for module in speaking:
            self._collect(module)
        shared = sorted(n for n in self.helpers if len(n) > 6)
        also = [m for m, text in texts.items() if m not in set(speaking) and any(n in text for n in shared)]
        self.modules_in_question = sorted((*speaking, *also), key=lambda m: modules.files[m])

    def _collect(self, module: str) -> None:
        tree = self.modules.parse(module)
        if tree is None:
            return
        lines = self.modules.text(module).splitlines()
        for node in ast.walk(tree):
            span = (getattr(node, "end_lineno", 0) or 0) - getattr(node, "lineno", 0)
            if isinstance(node, ast.FunctionDef) and span <= LONGEST and not node.name.startswith("__"):
                text = "\n".join(lines[node.lineno : node.end_lineno])
                if "return" in text and speaks(text) and node.name not in COMMON:
                    self.helpers.add(node.name)
            elif isinstance(node, ast.Assign) and span <= 12:
                targets = node.targets if speaks("\n".join(lines[node.lineno - 1 : node.end_lineno])) else []
                names = (getattr(t, "id", getattr(t, "attr", "")) for t in targets)
                self.names.update(n for n in names if n and n not in COMMON)

    def worth_it(self, lines: list[str], function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
        """Does any condition in the function speak of the SM, by word or by name?"""
        for node in ast.walk(function):
            if isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.While):
                text = "\n".join(lines[node.test.lineno - 1 : node.test.end_lineno])
                if speaks(text) or not (self.helpers | self.names).isdisjoint(WORD.findall(text)):
                    return True
        return False
