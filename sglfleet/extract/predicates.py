"""What each question about the SM means in a release: `is_blackwell` is not the same thing everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from sglfleet.extract.evaluate import CUDA, SMS, Machine
from sglfleet.extract.evaluate_values import TOP, Class, Value
from sglfleet.extract.sites import OLDER_CUDA, Survey

HOMES = ("sglang.srt.utils.common", "sglang.srt.utils", "sglang.srt.layers.utils", "sglang.srt.layers.utils.common")
PREDICATE = re.compile(r"sm_?\d\d|blackwell|hopper|ampere", re.IGNORECASE)
QUESTION = re.compile(r"_?(is|has|use|supports?)_")
PLATFORM = "sglang.srt.runtime_context"


def predicates(survey: Survey) -> list[dict[str, Any]]:
    """Rows {name, file, line, sms, cuda}: SMs for which it is true, given a CUDA toolkit of at least `cuda`.

    `get_platform().is_sm120` is listed as `platform.is_sm120`. A name that two modules define differently is listed
    once for each, with the file. Names whose answer could not be evaluated have `sms` null.
    """
    rows = [*_helpers(survey), *_platform(survey), *_aliases(survey)]
    return sorted(rows, key=lambda row: (row["name"], row["file"], row["line"]))


def _row(survey: Survey, name: str, file: str, line: int, ask: Any) -> dict[str, Any]:
    answers = _answers(survey, CUDA, ask)
    cuda = ""
    if answers is not None:
        for older in reversed(OLDER_CUDA):
            if _answers(survey, older, ask) != answers:
                break
            cuda = older
        cuda = "" if cuda == OLDER_CUDA[0] else cuda or CUDA
    return {"name": name, "file": file, "line": line, "sms": answers} | ({"cuda": cuda} if cuda else {})


def _asks_sm(name: str) -> bool:
    return bool(QUESTION.match(name) and PREDICATE.search(name))


def _answers(survey: Survey, cuda: str, ask: Any) -> list[str] | None:
    found = []
    for sm in SMS:
        value: Value = ask(survey.machine(sm, cuda))
        truths = value.truths()
        if len(truths) != 1:
            return None
        if truths == {True}:
            found.append(sm)
    return found


def _helpers(survey: Survey) -> Iterator[dict[str, Any]]:
    seen = set()
    for module in HOMES:
        tree = survey.modules.parse(module)
        for name, line in _defined(tree):
            if PREDICATE.search(name) and name not in seen and "nvidia_smi" not in name:
                seen.add(name)
                yield _row(survey, name, survey.modules.files[module], line, _asks_function(module, name))


def _asks_function(module: str, name: str) -> Any:
    return lambda m: m.call(m.lookup(module, name), [], {})


def _asks_name(module: str, name: str) -> Any:
    return lambda m: m.lookup(module, name)


def _defined(tree: ast.Module | None) -> Iterator[tuple[str, int]]:
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.lineno


def _platform(survey: Survey) -> Iterator[dict[str, Any]]:
    tree = survey.modules.parse(PLATFORM)
    for node in tree.body if tree else ():
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not (isinstance(value, ast.Dict) and getattr(target, "id", "") == "_PLATFORM_PROBES"):
            continue
        for key in value.keys:
            if isinstance(key, ast.Constant) and PREDICATE.search(str(key.value)):
                name = str(key.value)

                def ask(m: Machine, name: str = name) -> Value:
                    cls = m.lookup(PLATFORM, "PlatformContext")
                    return m.member(cls.one, name) if cls.known and isinstance(cls.one, Class) else TOP

                yield _row(survey, f"platform.{name}", survey.modules.files[PLATFORM], key.lineno, ask)


def _aliases(survey: Survey) -> Iterator[dict[str, Any]]:
    """Module-level names such as `_is_sm90_supported = is_cuda() and is_sm90_supported()`, and local helpers."""
    for module in survey.names.modules_in_question:
        if module in HOMES or module == PLATFORM:
            continue
        tree = survey.modules.parse(module)
        file = survey.modules.files[module]
        for node in tree.body if tree else ():
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                boolean = isinstance(node.value, ast.BoolOp | ast.Compare | ast.Call | ast.Attribute | ast.UnaryOp)
                if boolean and PREDICATE.search(name) and not name.isupper():
                    row = _row(survey, name, file, node.lineno, _asks_name(module, name))
                    if row["sms"] is None or 0 < len(row["sms"]) < len(SMS):
                        yield row
            elif isinstance(node, ast.FunctionDef) and not node.args.args and _asks_sm(node.name):
                yield _row(survey, node.name, file, node.lineno, _asks_function(module, node.name))
