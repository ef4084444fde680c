"""Launch commands that were published for many models and cards: what 0.5.23 says of each flag's name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.validators.asking import ask, rows
from validators.argv import to_args
from validators.knowledge import load_sglang
from validators.verdict import Outcome

LAUNCHES = [pytest.param(row, id=row["name"]) for row in rows("launches")]


def judged(row: dict[str, Any], release: str) -> Any:
    parsed = to_args(load_sglang(release), row["flags"])
    return ask(release, row["sm"] or "9.0", args=parsed.args, on_unsupported="warn")


@pytest.mark.parametrize("row", LAUNCHES)
def test_names(row: dict[str, Any]) -> None:
    verdicts = judged(row, "0.5.23").verdicts
    assert {one.flag for one in verdicts if one.outcome is Outcome.REJECTED} == set(row["rejected"])
    assert {one.flag for one in verdicts if "is an abbreviation of" in one.reason} == set(row["abbreviated"])
    assert {one.flag for one in verdicts if "calls it deprecated" in one.reason} == set(row["deprecated"])


@pytest.mark.parametrize("row", LAUNCHES)
def test_every_refused_name_says_what_to_do(row: dict[str, Any]) -> None:
    for one in judged(row, "0.5.23").verdicts:
        if one.outcome is Outcome.REJECTED:
            assert one.todo
            assert "0.5.23" in one.reason or "gone since" in one.reason


def test_renamed_flag_names_its_heir() -> None:
    for stage in ("prefill", "decode"):
        judgement = ask("0.5.23", "10.3", args={f"nsa-{stage}-backend": "trtllm"}, on_unsupported="downgrade")
        assert f"use --dsa-{stage}-backend" in judgement.verdicts[0].reason
        assert f"--dsa-{stage}-backend" in judgement.argv


def test_ambiguous_abbreviation_names_both() -> None:
    reason = ask(args={"cuda-graph-max-bs": 256}).verdicts[0].reason
    assert "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill" in reason
    assert "until 0.5." in reason
