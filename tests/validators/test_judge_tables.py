"""Outcomes that were read from the wheels of each release and audited, by SM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.validators.asking import ask, rows, verdict
from validators.verdict import Decision, Outcome, Overall


def spread(name: str, *words: str) -> Iterator[Any]:
    """One case per SM of every row."""
    for row in rows(name):
        by_word = row.get("by_outcome") or {word: row[word] for word in words if word in row}
        for word, sms in by_word.items():
            for sm in sms:
                yield pytest.param(
                    row, sm, word, id=f"{row['sglang']}-{row['flag']}-tp{row['args'].get('tp-size')}-{sm}"
                )


def judged(row: dict[str, Any], sm: str) -> Any:
    keys = ("sglang", "flashinfer", "model_arch", "gpus", "args")
    return ask(sm=sm, nnodes=1, **{key: row[key] for key in keys if key in row})


@pytest.mark.parametrize(("row", "sm", "outcome"), list(spread("fusion")))
def test_fusion(row: dict[str, Any], sm: str, outcome: str) -> None:
    found = verdict(judged(row, sm), row["flag"])
    assert found.outcome == outcome, found.reason
    assert found.evidence


@pytest.mark.parametrize(("row", "sm", "word"), list(spread("gates", "blocked", "runs")))
def test_gate(row: dict[str, Any], sm: str, word: str) -> None:
    judgement = judged(row, sm)
    found = verdict(judgement, row["flag"])
    if word == "blocked":
        assert found.outcome is Outcome.FAILS, found.reason
        assert judgement.decision is not Overall.ACCEPT
    else:
        assert judgement.decision is not Overall.REFUSE, found.reason
        assert found.decision not in (Decision.DROP, Decision.REFUSE), found.reason
