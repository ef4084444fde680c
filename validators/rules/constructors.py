"""Checks that stand where a back end is built: a flag's value leads there, the engine's own condition decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validators.rules.context import Context, checks, place
from validators.rules.interface import Expectation, Gate, Outcome, Part, Step, Value


def stop(c: Context, symbol: str, **known: Any) -> tuple[bool | None, dict[str, Any] | None]:
    """(True, row): building it certainly stops the start; (False, row): it passes; (None, None): no check is known.

    `symbol` is the last part of the function's dotted name, or `Class.method`.
    """
    found: dict[str, Any] | None = None
    unsure = False
    for row in checks(c.release).get(symbol.rsplit(".", 1)[-1], ()):
        if not row["symbol"].endswith(symbol):
            continue
        found = row
        held = [c.holds(guard, **known) for guard in row["guards"]]
        if all(held):
            return True, row
        if False not in held:
            unsure = True
    if found is None:
        return None, None
    return (None if unsure else False), found


def part(
    c: Context,
    flag: str,
    what: str,
    symbol: str,
    *,
    instead: tuple[dict[str, Value], ...] = (),
    expects: tuple[Expectation, ...] = (),
    gate: Gate = Gate.ENGINE,
    known: Mapping[str, Any] | None = None,
) -> Part | None:
    """What the checks of `symbol` make of `flag`; None where the release has no such check."""
    stops, row = stop(c, symbol, **(known or {}))
    if row is None:
        return None
    proof = place(c.release, row)
    sm = c.sm_text
    if stops is None:
        reason = f"Whether {c.release.version} builds {what} on SM {sm} depends on more than is known here."
        return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(gate, None, reason, proof),))
    if stops:
        said = row["text"].rstrip(". ") or "an assertion fails"
        reason = f"{c.release.version} stops the start when it builds {what} on SM {sm}: {said}."
        return Part(flag, Outcome.FAILS, reason, (proof,), (Step(gate, False, reason, proof),), instead=instead)
    reason = f"{c.release.version} tests the GPU for {what}, and SM {sm} passes."
    return Part(flag, Outcome.ACTIVE, reason, (proof,), (Step(gate, True, reason, proof),), expects)
