"""The gate against what a real card answered: an H200 (SM 9.0) with SGLang 0.5.16 and FlashInfer 0.6.14.

`tests/gpu/gate.py` made the answers. `loaded.jsonl`: a model of a shape in `models.json`, with dummy weights, was
loaded, prefilled and decoded with the flags, or where it stopped and with which words; `lacking` says what that
machine did not have. `arguments.jsonl`: random flags through the engine's argument resolution only.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from validators.case import Case
from validators.judge import judge
from validators.verdict import Decision, Outcome

ANSWERS = Path(__file__).parents[1] / "fixtures/h200/gate"
MODELS = json.loads((ANSWERS / "models.json").read_text())
LOADED, ARGUMENTS = (
    [json.loads(line) for line in (ANSWERS / name).read_text().splitlines()]
    for name in ("loaded.jsonl", "arguments.jsonl")
)
STOPS = (Outcome.FAILS, Outcome.REJECTED)
# Rules that speak of what comes after argument resolution, too: a stop of theirs does not show in `arguments.jsonl`.
BEFORE = ("argument-resolution", "value-ranges", "parser")
LATER = ("bf16-gemm-backend",)  # 0.5.16 looks at it when the scheduler starts


def case(answer):
    config = MODELS[answer["model"]]
    return Case.from_json(
        {
            "sglang": "0.5.16", "flashinfer": "0.6.14", "sm": "9.0", "gpus": 8, "args": answer["args"],
            "nnodes": answer["args"].get("nnodes", 1), "model_arch": config["architectures"][0], "checkpoint": config,
        }
    )  # fmt: skip


@cache
def verdicts(place, number):
    answer = (LOADED if place == "loaded" else ARGUMENTS)[number]
    return judge(case(answer)).verdicts


def name(answer):
    return " ".join([answer["model"], *(f"{flag}={value}" for flag, value in answer["args"].items())])


def answered(how):
    """Cases with that answer, but for those that stopped for want of a package on that machine."""
    return [n for n, answer in enumerate(LOADED) if answer["answer"] == how and "lacking" not in answer]


@pytest.mark.parametrize("number", answered("works"), ids=lambda n: name(LOADED[n]))
def test_what_ran_is_not_refused(number):
    blocked = [v for v in verdicts("loaded", number) if v.outcome in STOPS or v.decision is Decision.REFUSE]
    assert not blocked, [(v.flag, v.reason) for v in blocked]


@pytest.mark.parametrize("number", answered("stops"), ids=lambda n: name(LOADED[n]))
def test_what_stopped_is_not_called_active(number):
    mine = [v for v in verdicts("loaded", number) if v.flag in LOADED[number]["args"]]
    assert any(v.outcome is not Outcome.ACTIVE for v in mine), LOADED[number]["words"]


def test_arguments_that_the_engine_takes_are_not_refused_for_them():
    wrong = []
    for number, answer in enumerate(ARGUMENTS):
        if answer["said"] != "taken":
            continue
        for v in verdicts("arguments", number):
            if v.outcome in STOPS and v.rule in BEFORE and v.flag not in LATER:
                wrong.append((name(answer), v.flag, v.reason))
    assert not wrong


def test_arguments_that_the_engine_refuses_are_refused():
    refused = [n for n, answer in enumerate(ARGUMENTS) if answer["said"] != "taken"]
    missed = [n for n in refused if not any(v.outcome in STOPS for v in verdicts("arguments", n))]
    assert len(missed) <= len(refused) * 0.05, [(name(ARGUMENTS[n]), ARGUMENTS[n]["said"]) for n in missed]
