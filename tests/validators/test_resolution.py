"""Against the engine itself: what argument resolution took or refused, asked of the releases with the GPU made up.

The tables were made by resolving these arguments in each release's own code, told that it runs on the SM in question
with 80 GiB, with `config.json` of the architectures. `at` is where the release stopped; an `open` row is one that the
gate does not tell yet, nearly always because the stop hangs on what the engine picks by itself.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.validators.asking import ask, rows
from validators.verdict import Outcome

ROWS = rows("resolution")
RELEASES = rows("resolution_releases")
OURS = ("argument-resolution", "start-up-checks")


def stopped(row: dict[str, Any]) -> list[str]:
    release = row.get("sglang", "0.5.23")
    judgement = ask(release, row["sm"], gpus=8, model_arch=row["model_arch"], args=row["args"])
    return [one.reason for one in judgement.verdicts if one.outcome is Outcome.FAILS and one.rule in OURS]


REFUSED = [row for row in (*ROWS, *RELEASES) if row["stops"] and not row.get("open")]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row.get('sglang', '0.5.23')} {str(row['args'])[:60]}")
def test_what_the_engine_refuses_is_refused(row: dict[str, Any]) -> None:
    assert stopped(row), row["stops"]


def test_nothing_is_refused_that_the_engine_takes() -> None:
    taken = [row for row in (*ROWS, *RELEASES) if not row["stops"]]
    assert len(taken) > 350
    assert [(row["args"], found) for row in taken if (found := stopped(row))] == []


def test_what_is_not_told_yet_is_marked() -> None:
    """A row that the gate learns to tell loses its mark."""
    assert [row["args"] for row in (*ROWS, *RELEASES) if row.get("open") and stopped(row)] == []
    assert sum(1 for row in RELEASES if row.get("open")) * 5 < sum(1 for row in RELEASES if row["stops"])


def test_an_unplain_model_is_not_refused_for_what_its_files_may_change() -> None:
    """Without an architecture a checkpoint may turn chunked prefill off by itself."""
    args = {"enable-pdmux": True, "disable-overlap-schedule": True}
    told = ask("0.5.23", "9.0", model_arch="LlamaForCausalLM", args=args).verdicts
    assert any(one.outcome is Outcome.FAILS for one in told)
    untold = ask("0.5.23", "9.0", args=args).verdicts
    assert all(one.outcome is not Outcome.FAILS for one in untold)
