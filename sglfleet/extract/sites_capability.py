"""Minimum capability of every quantization method: what the model loader compares the GPU with before it loads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from sglfleet.extract.evaluate import CUDA, SMS, Machine
from sglfleet.extract.evaluate_values import FALSE, TRUE, Class, Instance, Value
from sglfleet.extract.sites import Survey

REGISTRY = "sglang.srt.layers.quantization"
TABLE = "BASE_QUANTIZATION_METHODS"
UNSET = {"_mxfp8_to_block_fp8_required": FALSE}  # a conversion for another vendor's GPUs, or by a variable nobody set


def capabilities(survey: Survey) -> list[dict[str, Any]]:
    """Rows {method, class, file, line, value, sms}: `value` null where the class decides by what is not known.

    `value` is the number the release compares with (major * 10 + minor) and `sms` the SMs that reach it.
    """
    rows = []
    for method, node in _methods(survey):
        found = survey.machine("9.0").eval(node, survey.machine("9.0").module_state(REGISTRY) or _none())
        if found.known and isinstance(found.one, Class):
            rows.append(_row(survey, method, found.one))
    return sorted(rows, key=lambda row: row["method"])


def _none() -> Any:
    raise LookupError(REGISTRY)


def _methods(survey: Survey) -> Iterator[tuple[str, ast.expr]]:
    """Entries of the table of methods on an NVIDIA host; later ones replace earlier ones of the same name."""
    tree = survey.modules.parse(REGISTRY)
    found: dict[str, ast.expr] = {}

    def take(node: ast.expr | None) -> None:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found[key.value] = value

    def walk(body: list[ast.stmt]) -> None:
        for node in body:
            if (isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == TABLE) or (
                isinstance(node, ast.Assign) and any(getattr(t, "id", "") == TABLE for t in node.targets)
            ):
                take(node.value)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                target = node.value.func
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == TABLE:
                    take(node.value.args[0] if node.value.args else None)
            elif isinstance(node, ast.If):
                machine = survey.machine("9.0")
                state = machine.module_state(REGISTRY)
                truths = machine.eval(node.test, state).truths() if state else frozenset()
                if truths == {True}:
                    walk(node.body)
                elif truths == {False}:
                    walk(node.orelse)

    if tree is not None:
        walk(tree.body)
    yield from sorted(found.items())


def _row(survey: Survey, method: str, cls: Class) -> dict[str, Any]:
    passing: list[str] | None = []
    values = set()
    place = _place(survey, cls)
    for sm in SMS:
        value = _ask(survey, sm, method, cls)
        if not (value.known and isinstance(value.one, int)):
            passing = None
            break
        values.add(value.one)
        major, minor = sm.split(".")
        if passing is not None and int(major) * 10 + int(minor) >= value.one:
            passing.append(sm)
    row = {"method": method, "class": cls.node.name, **place, "sms": passing}
    if passing is not None and len(values) == 1:
        row["value"] = values.pop()
    return row


def _ask(survey: Survey, sm: str, method: str, cls: Class) -> Value:
    assume = UNSET | {"self.use_mxfp8": TRUE if method == "mxfp8" else FALSE}
    machine = Machine(survey.modules, sm, CUDA, assume, survey.sm_conditions)
    machine.globals = survey.machine(sm).globals
    found = machine.member(Instance(cls), "get_min_capability")
    return machine.call(found, [], {})


def _place(survey: Survey, cls: Class) -> dict[str, Any]:
    machine = survey.machine("9.0")
    for owner in machine._lineage(cls):
        for node in owner.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "get_min_capability":
                returned = next((n for n in ast.walk(node) if isinstance(n, ast.Return)), node)
                lines = survey.modules.text(owner.module).splitlines()
                return {
                    "file": survey.modules.files[owner.module],
                    "symbol": f"{owner.node.name}.get_min_capability",
                    "line": returned.lineno,
                    "condition": lines[returned.lineno - 1].split("#")[0].strip(),
                }
    return {"file": survey.modules.files[cls.module], "symbol": cls.node.name, "line": cls.node.lineno}
