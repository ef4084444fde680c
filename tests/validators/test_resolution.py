"""Against the engine itself: what argument resolution of 0.5.23 took or refused, asked with its own platform override.

The table was made by resolving these arguments in an installed 0.5.23 that was told it runs on the SM in question, with
`config.json` of the three architectures.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.validators.asking import ask, rows
from validators.verdict import Outcome

ROWS = rows("resolution")
OURS = ("argument-resolution", "start-up-checks")


def stopped(row: dict[str, Any]) -> list[str]:
    judgement = ask("0.5.23", row["sm"], gpus=8, model_arch=row["model_arch"], args=row["args"])
    return [one.reason for one in judgement.verdicts if one.outcome is Outcome.FAILS and one.rule in OURS]


@pytest.mark.parametrize("row", [row for row in ROWS if row["stops"]], ids=lambda row: str(row["args"])[:60])
def test_what_the_engine_refuses_is_refused(row: dict[str, Any]) -> None:
    assert stopped(row), row["stops"]


def test_nothing_is_refused_that_the_engine_takes() -> None:
    taken = [row for row in ROWS if not row["stops"]]
    assert len(taken) > 300
    assert [(row["args"], found) for row in taken if (found := stopped(row))] == []


def test_an_unplain_model_is_not_refused_for_what_its_files_may_change() -> None:
    """Without an architecture a checkpoint may turn chunked prefill off by itself."""
    args = {"enable-pdmux": True, "disable-overlap-schedule": True}
    told = ask("0.5.23", "9.0", model_arch="LlamaForCausalLM", args=args).verdicts
    assert any(one.outcome is Outcome.FAILS for one in told)
    untold = ask("0.5.23", "9.0", args=args).verdicts
    assert all(one.outcome is not Outcome.FAILS for one in untold)
