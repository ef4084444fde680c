"""Short forms of a question to the gate, for tests."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from validators.case import Case
from validators.judge import judge
from validators.verdict import Judgement, Verdict

CASES = Path(__file__).parent / "cases"
TODAY = date(2026, 11, 29)


def rows(name: str) -> list[dict[str, Any]]:
    """A table of cases kept beside the tests."""
    found: list[dict[str, Any]] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def ask(sglang: str = "0.5.23", sm: Any = "9.0", **more: Any) -> Judgement:
    """The judgement of a case given by keywords; `args` as in a service file."""
    return judge(Case.from_json({"sglang": sglang, "sm": sm, **more}, today=TODAY))


def verdict(judgement: Judgement, flag: str) -> Verdict:
    """The verdict on one flag."""
    return next(one for one in judgement.verdicts if one.flag == flag)
