"""Garbage with HTTP 200 is found; what merely rounds otherwise is no proof; equal is proven."""

from __future__ import annotations

import pytest

from sglfleet.verify.correctness import compare, garbage
from validators.verdict import Status


def row(name, ids=None, text="some words here", status=200):
    return {"name": name, "status": status, "ids": ids, "text": text}


GOOD = [row("3", [5, 9, 2, 7]), row("17", [8, 8, 1, 4]), row("64", [1, 2, 3, 4])]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row("3", [7] * 16), "one token, 7, 16 times"),
        (row("3", None, "   "), "empty text"),
        (row("3", None, "!!!!!!!!!!!!!!!!"), "one character"),
        (row("3", None, "the " * 20), "one word"),
        (row("3", None, None), "neither text nor tokens"),
        (row("3", [1, 2], "x", status=500), "HTTP 500"),
        (row("3", [1, 2], "x", status=0), "HTTP 0"),
    ],
)
def test_garbage(bad, why):
    assert why in garbage(bad)
    got = compare([bad, *GOOD[1:]], GOOD)
    assert got.status is Status.CONTRADICTED
    assert why in got.reason


def test_replacement_characters_everywhere():
    assert compare([row(str(i), [1, i], "���a") for i in range(4)], None).status is Status.CONTRADICTED
    assert compare([row(str(i), [1, i], "�abc") for i in range(4)], None).status is Status.NOT_PROVEN


def test_what_the_service_without_the_flag_says_too_is_not_garbage():
    same = row("3", [7] * 16)
    assert compare([same, *GOOD[1:]], [same, *GOOD[1:]]).status is Status.PROVEN


def test_equal_is_proven_and_without_a_reference_nothing_is():
    assert compare(GOOD, GOOD).status is Status.PROVEN
    assert compare(GOOD, None).status is Status.NOT_PROVEN
    assert compare(GOOD, []).status is Status.NOT_PROVEN
    assert compare([], GOOD).status is Status.NOT_PROVEN


def test_later_tokens_may_part_ways_first_tokens_may_not():
    later = [row(r["name"], [*r["ids"][:2], 99, 98]) for r in GOOD]
    assert compare(later, GOOD).status is Status.NOT_PROVEN
    first = [row(r["name"], [99, *r["ids"][1:]]) for r in GOOD]
    assert compare(first, GOOD).status is Status.CONTRADICTED


@pytest.mark.parametrize(("tolerance", "within"), [(0.5, True), (0.4, False), (0.0, False)])
def test_a_stated_tolerance(tolerance, within):
    later = [row(r["name"], [*r["ids"][:2], 99, 98]) for r in GOOD]
    assert compare(later, GOOD, tolerance).status is (Status.PROVEN if within else Status.CONTRADICTED)


def test_needle():
    lost, found = row("needle", text="no idea"), row("needle", text=" 48213. And")
    assert compare([*GOOD, lost], [*GOOD, found]).status is Status.CONTRADICTED
    assert compare([*GOOD, found], [*GOOD, found]).status is Status.PROVEN
    assert compare([*GOOD, lost], [*GOOD, lost]).status is Status.PROVEN  # a model that cannot
    assert compare([*GOOD, lost], GOOD, reads=True).status is Status.CONTRADICTED


def test_log_probabilities_are_told():
    near = [{**r, "logprobs": [-1.0, -2.0]} for r in GOOD]
    far = [{**r, "logprobs": [-1.0, -2.25]} for r in GOOD]
    assert any("at most 0.2500" in text for text in compare(near, far).details)
    assert not any("log-prob" in text for text in compare(GOOD, GOOD).details)
