"""Cases read out of the releases by hand, one site at a time, apart from the rules and before looking at them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validators.case import Case
from validators.judge import judge
from validators.verdict import Decision, Outcome, Overall

CASES = Path(__file__).with_name("cases") / "read_by_hand.jsonl"


def cases() -> Iterator[Any]:
    for line in CASES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield pytest.param(row, id=row["id"])


@pytest.mark.parametrize("row", list(cases()))
def test_what_the_release_does(row: dict[str, Any]) -> None:
    judgement = judge(Case.from_json({key: value for key, value in row.items() if key not in ("why", "expect")}))
    (found,) = [verdict for verdict in judgement.verdicts if verdict.flag == row["expect"]["flag"]]
    if row["expect"]["blocked"]:
        assert found.outcome is Outcome.FAILS, found.reason
        assert judgement.decision is not Overall.ACCEPT
        assert found.evidence
    else:
        assert judgement.decision is not Overall.REFUSE
        assert found.decision not in (Decision.DROP, Decision.REPLACE, Decision.REFUSE), found.reason
