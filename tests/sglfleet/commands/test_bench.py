"""`sglfleet bench compare` as people call it."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from sglfleet.commands.bench import command
from tests.sglfleet.verify.test_compare import arm
from tests.sglfleet.verify.test_statistics import arms


@pytest.fixture
def results(tmp_path):
    off, on = arms(random.Random(1), cv=0.015, change=0.36)
    path = tmp_path / "ab.jsonl"
    path.write_text("".join(run.model_dump_json() + "\n" for run in arm("off", off) + arm("on", on)))
    return path


def call(*args: object):
    return CliRunner().invoke(command, [str(a) for a in args])


def test_compare_says_faster_in_one_sentence(results):
    out = call("compare", f"{results}#off", f"{results}#on")
    assert out.exit_code == 0
    assert "on against off: faster (output tokens/s +3" in out.output
    assert "\x1b[" not in out.output


def test_compare_as_json(results):
    document = json.loads(call("compare", f"{results}#off", f"{results}#on", "--format", "json").output)
    assert (document["schema_version"], document["verdict"]) == (1, "faster")
    assert document["effects"][0]["low"] > 1


@pytest.mark.parametrize(
    ("a", "says"),
    [("nowhere.jsonl", "nowhere.jsonl: no such file"), ("{}#other", "no runs of that arm: the file has off, on")],
)
def test_what_cannot_be_compared_exits_2(results, a, says):
    out = call("compare", a.format(results), f"{results}#on")
    assert out.exit_code == 2
    assert says in out.output


def test_a_broken_line_is_named(results):
    results.write_text(results.read_text() + '{"service": 1}\n')
    out = call("compare", f"{results}#off", f"{results}#on")
    assert out.exit_code == 2
    assert "ab.jsonl:11: not a benchmark run" in out.output


def test_a_margin_that_is_no_share_is_refused(results):
    assert call("compare", f"{results}#off", f"{results}#on", "--margin", "2").exit_code == 2
