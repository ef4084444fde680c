"""Evaluated SM sets against a person's reading of the same statements, of a random sample of two releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from validators.knowledge import load_sglang

READINGS = [json.loads(line) for line in Path(__file__).with_name("readings.jsonl").read_text().splitlines()]


def compared(release: str) -> list[tuple[dict[str, Any], list[str] | None]]:
    """(reading, evaluated set) of every statement that was read."""
    rows = {(row["file"], row["at"]): row for row in load_sglang(release).sites["raises"]}
    return [(r, rows[r["file"], r["at"]]["sms"]) for r in READINGS if r["release"] == release]


@pytest.mark.parametrize("release", ["0.5.9", "0.5.23"])
def test_no_wrong_set_is_presented_as_certain(release: str) -> None:
    wrong = [(r["file"], r["at"], found) for r, found in compared(release) if found not in (None, r["passes"])]
    assert not wrong


@pytest.mark.parametrize("release", ["0.5.9", "0.5.23"])
def test_nine_of_ten_are_right(release: str) -> None:
    right = [found == r["passes"] for r, found in compared(release)]
    assert sum(right) >= 0.9 * len(right)
