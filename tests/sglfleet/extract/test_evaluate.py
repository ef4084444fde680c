"""The evaluator over a small release whose answers were said by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet.extract.evaluate import SMS, Machine
from sglfleet.extract.evaluate_modules import Modules
from sglfleet.extract.evaluate_values import Value, join, lift, of
from sglfleet.extract.gates import gates
from sglfleet.extract.predicates import predicates
from sglfleet.extract.sites import Site, Survey
from sglfleet.extract.sites_capability import capabilities
from sglfleet.extract.tree import open_tree
from tests.sglfleet.extract import small_release


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Survey:
    root = small_release.write(tmp_path_factory.mktemp("release"))
    return Survey(Modules(open_tree(root, "sglang", "0.0.1")))


@pytest.fixture(scope="module")
def sites(survey: Survey) -> dict[str, Site]:
    return {site.symbol: site for site in survey.sites()}


@pytest.mark.parametrize("symbol", sorted(small_release.PASSING))
def test_the_sms_that_pass(sites: dict[str, Site], symbol: str) -> None:
    passing = small_release.PASSING[symbol]
    site = sites[symbol]
    assert (None if site.sms is None else set(site.sms)) == passing
    assert bool(site.why) == (passing is None)


def test_what_does_not_ask_for_the_sm_is_no_site(sites: dict[str, Site]) -> None:
    assert set(sites) == set(small_release.PASSING)


def test_sms_that_pass_only_on_a_condition_are_named(sites: dict[str, Site]) -> None:
    assert set(sites["asserted"].maybe) == {"8.0", "8.6", "8.7", "8.9"}
    assert sites["plain"].maybe == ()


def test_the_quoted_condition_stands_at_its_line(survey: Survey, sites: dict[str, Site]) -> None:
    for site in sites.values():
        lines = survey.modules.tree.read(site.file).splitlines()
        assert site.condition in " ".join(" ".join(lines[site.line - 1 : site.line + 2]).split())


def test_predicates_of_one_name_keep_their_own_meaning(survey: Survey) -> None:
    rows = {row["name"]: row for row in predicates(survey)}
    assert rows["is_sm120"]["sms"] == ["12.0"]
    assert rows["platform.is_sm120"]["sms"] == ["10.0", "10.3", "11.0", "12.0", "12.1"]
    assert rows["is_sm90_supported"]["cuda"] == "12.3"
    assert "cuda" not in rows["is_sm120"]


def test_an_older_toolkit_answers_no(survey: Survey) -> None:
    for cuda, answer in (("12.6", {False}), ("12.8", {True})):
        machine = Machine(survey.modules, "10.0", cuda)
        found = machine.call(machine.lookup("sglang.srt.utils.common", "is_sm100_supported"), [], {})
        assert found.truths() == answer


def test_minimum_capabilities(survey: Survey) -> None:
    rows = {row["method"]: row for row in capabilities(survey)}
    assert rows["fixed"]["value"] == 89
    assert rows["fixed"]["condition"] == "return 89"
    assert (rows["fp8"]["value"], rows["mxfp8"]["value"]) == (80, 100)
    assert "late" in rows
    assert "amd" not in rows
    assert rows["odd"]["sms"] is None


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    root = small_release.write(tmp_path)
    runs = [json.dumps(gates(open_tree(root, "sglang", "0.0.1"), "0.0.1")) for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_file_of_newer_syntax_is_passed_over(survey: Survey) -> None:
    assert survey.modules.parse("sglang.srt.too_new") is None
    assert "too_new" in next(iter(survey.modules.unreadable))


def test_every_sm_is_a_capability() -> None:
    assert list(SMS) == sorted(SMS, key=lambda sm: tuple(map(int, sm.split("."))))


values = st.one_of(
    st.just(Value(None)), st.just(Value(None, True)), st.lists(st.integers(-3, 3), min_size=1, max_size=3).map(of)
)


@given(values, values)
def test_a_join_loses_no_possibility(a: Value, b: Value) -> None:
    both = join([a, b])
    assert both.taint == (a.taint or b.taint)
    for one in (a, b):
        assert both.options is None or (one.options is not None and set(one.options) <= set(both.options))


@given(values, values)
def test_operations_cover_every_combination(a: Value, b: Value) -> None:
    found = lift(lambda x, y: x + y, a, b)
    if a.options is None or b.options is None:
        assert found.options is None
    else:
        assert found.options is not None
        assert set(found.options) == {x + y for x in a.options for y in b.options}
