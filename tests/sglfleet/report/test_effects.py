"""Measurements in words and on the page."""

from __future__ import annotations

import random

import pytest

from sglfleet.report.effects import advice, figures, pictures, problem_lines
from sglfleet.verify.compare import compare
from sglfleet.verify.validity import Problem
from tests.sglfleet.verify.test_compare import arm
from tests.sglfleet.verify.test_statistics import arms

FUSION = "enable-flashinfer-allreduce-fusion"


def measured(change, cv=0.005):
    off, on = arms(random.Random(1), cv=cv, change=change)
    return arm("off", off), arm("on", on)


def test_a_flag_that_works_and_is_slower_is_to_be_left_off():
    """The fusion kernel of FlashInfer 0.6.1 ran, and was slower than none at small batches; that of 0.5.3 was not."""
    told = advice(FUSION, compare(*measured(-0.08)), {"flashinfer-python": "0.6.1", "torch": "2.9.1"})
    assert told.startswith(f"{FUSION} works and costs speed with FlashInfer 0.6.1: leave it off")


@pytest.mark.parametrize(("change", "cv", "says"), [(0.0, 0.003, "no difference"), (0.2, 0.005, ""), (0.0, 0.2, "")])
def test_nothing_is_advised_where_nothing_follows(change, cv, says):
    told = advice(FUSION, compare(*measured(change, cv)), {})
    assert says in told
    assert bool(told) is bool(says)


def test_the_page_has_sentence_table_and_pictures_and_escapes_names():
    a, b = measured(0.2)
    b = [run.model_copy(update={"arm": "<script>"}) for run in b]
    comparison = compare(a, b)
    page = "".join(figures("s", comparison, a, b))
    assert "<script>" not in page
    assert page.count("<figure>") == 3  # no power was sampled
    assert "faster (output tokens/s +" in page
    assert "&lt;script&gt; against off: faster" in page
    assert figures("s", None, [], []) == []
    assert "nothing to compare with" in "".join(figures("s", None, [], a))


def test_intervals_are_drawn_and_arms_stand_side_by_side():
    a, b = measured(0.2, cv=0.05)
    throughput = pictures({"off": a, "on": b})[0]
    one = pictures({"off": a})[0]
    assert throughput.count("<line") - one.count("<line") >= 4  # interval with its ends, and the legend


def test_what_several_runs_have_in_common_is_one_line():
    same, other = Problem("cache", "what", "do"), Problem("short", "else", "do")
    lines = problem_lines([("a seed 1", same), ("a seed 2", other), ("a seed 3", same), ("b seed 1", same)])
    assert lines == ["a seed 1 and 2 more: what: do", "a seed 2: else: do"]
