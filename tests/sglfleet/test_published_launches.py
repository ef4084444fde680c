"""Launch commands that people published, written as service files: the parser's verdicts are right, at their lines."""

from __future__ import annotations

import json
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglfleet import gate
from sglfleet.checking import cause_of
from sglfleet.intent import Placement
from sglfleet.inventory import Host
from validators.flagtypes import flag_types
from validators.hardware import declared
from validators.load import load

FILE = Path(__file__).parents[1] / "fixtures" / "launches" / "published.jsonl"
LAUNCHES = [json.loads(line) for line in FILE.read_text().splitlines()]


def as_service_file(case: dict[str, Any]) -> str:
    """The flags as a person would write them into `args:`."""
    args: dict[str, Any] = {}
    name = ""
    for word in shlex.split(case["command"]):
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").partition("=")
            args[name] = value or True
        else:
            args[name] = word if args[name] is True else [*([args[name]]), word]
    document = {
        "service": case["id"].lower(),
        "engine": {"sglang": "0.5.23"},
        "model": "/models/m",
        "gpus": list(range(min(case["gpus"], 8))),
        "args": args,
        "env": case["env"],
    }
    return yaml.safe_dump(document, sort_keys=False)


@pytest.mark.parametrize("case", LAUNCHES, ids=[case["id"] for case in LAUNCHES])
def test_parser_verdicts(case: dict[str, Any]) -> None:
    text = as_service_file(case)
    loaded = load(text, "s.yaml", flag_types)
    assert loaded.problems == ()
    assert loaded.service is not None
    placement = Placement(Host("h", (), ()), loaded, loaded.service)
    judgement = gate.judge(placement, declared("h", "h200 x8"), date(2026, 11, 29))
    rejected = [verdict for verdict in judgement.verdicts if verdict.outcome == "rejected"]
    assert sorted(verdict.flag for verdict in rejected) == case["rejected_by_0.5.23"]
    for verdict in rejected:
        cause = cause_of(placement, verdict)
        assert cause is not None
        line = text.splitlines()[cause.mark.line - 1].strip()
        assert line.startswith(f"{verdict.flag}:")
        assert cause.level == "error"
