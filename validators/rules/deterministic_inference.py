"""Deterministic inference: the attention back end it needs, and what it turns off for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validators.conditions import UNKNOWN
from validators.rules import atoms, constructors
from validators.rules.context import Context, place
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "Deterministic inference"
FLAGS = ("enable-deterministic-inference",)
SITES: tuple[str, ...] = ()

FLAG = FLAGS[0]
_CONSTRUCTOR = {"fa3": "create_flashattention_v3_backend"}


def judge(c: Context) -> Iterator[Part]:
    if c.args.get(FLAG) is not True or not c.has(FLAG):
        return
    row = _table(c)
    if c.given("attention-backend"):
        yield _active(c, str(c.args["attention-backend"]), None)
        return
    backend = row["by_sm"].get(c.sm_text) if row else None
    if row is None or not isinstance(backend, str):
        yield c.unsure(FLAG, f"Which attention back end {c.release.version} picks for deterministic inference")
        return
    symbol = _CONSTRUCTOR.get(backend)
    built = constructors.part(c, FLAG, f"attention back end {backend}", symbol) if symbol else None
    if built is not None and built.outcome is not Outcome.ACTIVE:
        yield built
        return
    yield _active(c, backend, row)


def _table(c: Context) -> dict[str, Any] | None:
    """What is picked on each SM; None also where that hangs on the kind of the model and the kind is not known."""
    tables = c.release.gates.get("tables")
    if not isinstance(tables, dict):
        return None
    plain, deepseek = tables.get("deterministic.attention"), tables.get("deterministic.attention.deepseek")
    kind = atoms.deepseek(c)
    if kind is UNKNOWN and plain and deepseek and plain["by_sm"].get(c.sm_text) != deepseek["by_sm"].get(c.sm_text):
        return None
    return deepseek if kind is True else plain


def _active(c: Context, backend: str, row: dict[str, Any] | None) -> Part:
    where = place(c.release, row) if row else c.release.evidence(c.release.flags[FLAG].place, "--" + FLAG)
    picked = f"picks attention back end {backend}" if row else f"keeps attention back end {backend}"
    reason = f"{c.release.version} {picked} for deterministic inference on SM {c.sm_text}."
    radix = backend not in ("fa3", "triton", "fa4")
    todo = f"The radix cache is turned off with {backend}; give an attention back end that keeps it." if radix else ""
    return Part(FLAG, Outcome.ACTIVE, reason, (where,), (Step(Gate.RESOLUTION, True, reason, where),), todo=todo)
