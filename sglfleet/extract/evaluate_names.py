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
LONGEST = 30  # lines of a helper; longer functions do work, they do not answer a question
QUESTION = re.compile(r"_*(is|has|uses?|should|supports?|can|get|check|resolve|needs?|enable|detect|allows?)_")
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
    """Names that may carry the SM, and the functions in whose conditions any of them stands."""

    def __init__(self, modules: Modules, scope: tuple[str, ...], skip: re.Pattern[str]) -> None:
        self.modules = modules
        files = {m: p for m, p in sorted(modules.files.items()) if p.startswith(scope) and not skip.search(p)}
        texts = {m: modules.text(m) for m in files}
        speaking = {m for m, text in texts.items() if speaks(text)}
        self.helpers: set[str] = set()  # functions of modules, importable elsewhere
        self.names: set[str] = set()  # variables and fields
        conditions = {m: self._collect(m) for m in sorted(speaking)}
        shared = sorted(n for n in self.helpers if len(n) > 6)
        for module, text in texts.items():
            if module not in speaking and any(n in text for n in shared):
                conditions[module] = self._collect(module, learn=False)
        carrying = self.helpers | self.names
        self.modules_in_question = sorted(conditions, key=lambda m: modules.files[m])
        self.functions = {  # module -> lines of the functions whose conditions may read the SM and that may raise
            module: lines
            for module, rows in conditions.items()
            if (lines := {line for line, direct, found in rows if direct or not carrying.isdisjoint(found)})
        }

    def _collect(self, module: str, *, learn: bool = True) -> list[tuple[int, bool, frozenset[str]]]:
        """Learn the names of one file; (line, speaks, words) of the conditions of every function that may raise."""
        tree = self.modules.parse(module)
        if tree is None:
            return []
        lines = self.modules.text(module).splitlines()
        rows = []
        near: set[str] = set()  # helpers of this file, whatever they are called
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if learn and self._answers(node, lines):
                    near.add(node.name)
                rows += self._conditions(node, lines)
            elif learn and isinstance(node, ast.Assign) and (node.end_lineno or 0) - node.lineno <= 12:
                targets = node.targets if speaks("\n".join(lines[node.lineno - 1 : node.end_lineno])) else []
                names = (getattr(t, "id", getattr(t, "attr", "")) for t in targets)
                self.names.update(n for n in names if n and n not in COMMON)
        self.helpers |= {name for name in near if QUESTION.match(name)}
        return [(line, direct or not near.isdisjoint(found), found) for line, direct, found in rows]

    @staticmethod
    def _answers(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> bool:
        """Is it a short function that returns something under the SM?"""
        if (node.end_lineno or 0) - node.lineno > LONGEST or node.name.startswith("__") or node.name in COMMON:
            return False
        text = "\n".join(lines[node.lineno : node.end_lineno])
        return "return" in text and speaks(text)

    @staticmethod
    def _conditions(
        function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]
    ) -> list[tuple[int, bool, frozenset[str]]]:
        tests: list[str] = []
        local: set[str] = set()  # names set in the function itself from what speaks of the SM
        raises = False
        for node in ast.walk(function):
            if isinstance(node, ast.Raise | ast.Assert):
                raises = True
            if isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.While):
                tests.append("\n".join(lines[node.test.lineno - 1 : node.test.end_lineno]))
            elif isinstance(node, ast.Assign) and speaks("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                local.update(n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
        text = "\n".join(tests)
        found = frozenset(WORD.findall(text))
        return [(function.lineno, speaks(text) or not local.isdisjoint(found), found)] if raises and text else []
