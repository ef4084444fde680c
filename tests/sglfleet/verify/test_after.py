"""The benchmark of a canary: what it is compared with, and when it is too slow."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jsonschema
import pytest

from sglfleet.verify.after import Effect, reference, slower, told
from sglfleet.verify.compare import compare
from sglfleet.verify.measuring import Measured
from sglfleet.verify.validity import Problem
from tests.sglfleet.verify.test_compare import arm
from tests.sglfleet.verify.test_statistics import arms


def released(name, throughputs, started=1.0, **changes):
    runs = arm("", throughputs, release=name, **changes)
    return [r.model_copy(update={"block": None, "started": started + i}) for i, r in enumerate(runs)]


def test_it_is_compared_with_the_release_measured_last_before():
    oldest, old = released("r0", [900.0] * 5), released("r1", [1000.0] * 5, started=100)
    now = released("r2", [990.0] * 5, started=200)
    assert {r.release for r in reference([*old, *oldest], now, 5)} == {"r1"}


def test_only_its_last_runs_count():
    old = released("r1", [1.0] * 5 + [1000.0] * 5)
    assert [r.metrics["output_throughput"] for r in reference(old, released("r2", [990.0]), 5)] == [1000.0] * 5


@pytest.mark.parametrize(
    "changes",
    [
        {"release": "r2"},
        {"host_class": "h100-x8"},
        {"host_class": "", "host": "h9"},
        {"gpu": "NVIDIA H100 x1"},
        {"model": "other"},
        {"input_len": 10},
        {"concurrency": 1},
        {"prompts": 96},
    ],
    ids=str,
)
def test_nothing_else_is_of_its_kind(changes):
    now = released("r2", [990.0] * 5, **({"host_class": ""} if changes.get("host_class") == "" else {}))
    old = [r.model_copy(update=changes) for r in released("r1", [1000.0] * 5)]
    assert reference(old, now, 5) == []
    assert reference(released("r1", [1000.0] * 5), [], 5) == []


@pytest.mark.parametrize(
    ("change", "margin", "word"),
    [(-0.2, 0.02, "slower than r1: 19.8% at"), (-0.2, 0.4, ""), (0.2, 0.02, ""), (0.0, 0.02, "")],
)
def test_slower_beyond_the_margin_and_not_by_chance(change, margin, word):
    a, b = arms(random.Random(1), cv=0.005, change=change)
    comparison = compare(released("r1", a), released("r2", b), margin=margin, as_released=True)
    assert slower(comparison).startswith(word)
    assert bool(slower(comparison)) is bool(word)


def test_noise_is_no_reason_to_go_back():
    a, b = arms(random.Random(2), cv=0.2, change=-0.1)
    assert slower(compare(released("r1", a), released("r2", b))) == ""


def test_what_was_not_measured_is_said():
    problem = ("h1 seed 1 at 4", Problem("cache", "x", "y"))
    (first, last) = told(Effect("h1", "s", "r2", Measured(problems=[problem])))
    assert (first, last) == ("h1 seed 1 at 4: x: y", "not measured: no valid run")
    (line,) = told(Effect("h1", "s", "r2", Measured(valid=released("r2", [1.0, 2.0]))))
    assert "2 valid runs; nothing of its kind to compare with" in line


def test_the_report_of_a_deploy_has_a_schema_for_it():
    schema = json.loads((Path(__file__).parents[3] / "schemas/deploy.json").read_text())["properties"]["effects"]
    a, b = released("r1", [1000.0, 1001.0, 999.0]), released("r2", [700.0, 701.0, 699.0])
    comparison = compare(a, b)
    effects = [
        Effect("h1", "s", "r2", Measured(valid=b), tuple(a), comparison, slower(comparison), "halt"),
        Effect("h1", "s", "", Measured(failed=["h1: no answer"])),
    ]
    told = json.loads(json.dumps([effect.to_json() for effect in effects]))
    jsonschema.Draft7Validator(schema).validate(told)
    assert [one["effect"] for one in told] == ["slower", "not compared"]
    assert told[0]["slower"].startswith("slower than r1")
    assert told[1]["problems"] == ["h1: no answer"]
