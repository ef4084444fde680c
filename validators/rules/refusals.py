"""Stops of argument resolution that no SM decides: which of them a case meets for certain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from validators.conditions import UNKNOWN
from validators.rules.context import Context, place
from validators.rules.interface import Gate, Outcome, Part, Step
from validators.rules.start_up_checks import attention

_FIELD = re.compile(r"\.(\w+)")


def met(c: Context, functions: re.Pattern[str], blame: tuple[str, ...], **known: Any) -> Iterator[Part]:
    """The first stop in functions of such a name that the case certainly meets; the flag that leads there fails.

    `blame` are flags in the order in which they are held responsible, where their fields stand in the conditions.
    """
    sites = c.release.sites
    rows = sites.get("resolution", ()) if isinstance(sites, dict) else ()
    for row in rows:
        if not functions.search(row["symbol"].rsplit(".", 1)[-1]):
            continue
        if all(c.holds(guard, **_locals(c, guard), **known) for guard in row["guards"]):
            flag = _blamed(c, row, blame)
            if flag:
                proof = place(c.release, row)
                said = row["text"].rstrip(". ") or "an assertion fails"
                reason = f"{c.release.version} stops the start: {said}."
                yield Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.RESOLUTION, False, reason, proof),))
                return


def _locals(c: Context, guard: str) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if "attention_backends_of" in guard:
        stages = [attention(c, f"{stage}-attention-backend") for stage in ("prefill", "decode")]
        name = next(iter(re.findall(r"attention_backends_of\([^()]*(?:\([^()]*\))?\)", guard)), "")
        known[name] = UNKNOWN if UNKNOWN in stages else tuple(stages)
    return known


def _blamed(c: Context, row: dict[str, Any], blame: tuple[str, ...]) -> str:
    fields = {name.replace("_", "-") for guard in row["guards"] for name in _FIELD.findall(guard)}
    return next((flag for flag in blame if flag in c.args and flag in fields), "")
