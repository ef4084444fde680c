"""Any JSON at all: an answer or reasons, never a traceback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validators.asking import TODAY
from validators.case import Case, CaseError
from validators.judge import judge
from validators.knowledge import load_sglang
from validators.verdict import Decision

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
KEYS = (
    "sglang",
    "flashinfer",
    "sm",
    "gpus",
    "nnodes",
    "args",
    "env",
    "packages",
    "allow",
    "checkpoint",
    "on_unsupported",
)
FLAGS = sorted(load_sglang("0.5.23").flags)


def answer(raw: Any) -> Any:
    try:
        case = Case.from_json(raw, today=TODAY)
    except CaseError as error:
        return {"error": error.messages, "decision": "", "verdicts": []}
    return json.loads(json.dumps(judge(case).to_json()))


@given(st.dictionaries(st.sampled_from(KEYS), ANY))
def test_any_object(raw: dict[str, Any]) -> None:
    found = answer(raw)
    assert found["decision"] or found["error"]


@given(
    st.dictionaries(st.sampled_from(FLAGS) | st.text(max_size=20), SCALARS | st.lists(SCALARS, max_size=3), max_size=5),
    st.sampled_from(("8.0", "9.0", "10.0", "12.0")),
)
def test_any_values_of_flags(args: dict[str, Any], sm: str) -> None:
    answer({"sglang": "0.5.23", "sm": sm, "args": args})


@pytest.mark.parametrize(
    "release", ["../0.5.9", "0.5.9/../0.5.9", "", " 0.5.9 ", "0.5.9\x00", "latest", "v0.5.9", "0.5", "0.5.99"]
)
def test_a_release_that_is_none(release: str) -> None:
    found = answer({"sglang": release, "sm": "9.0", "args": {"tp-size": 1}})
    if release.strip() != "0.5.9":
        assert found["decision"] == "refuse"
        assert {one["outcome"] for one in found["verdicts"]} == {"unknown"}


def test_values_cannot_add_flags() -> None:
    """A value that looks like a flag stays the value of its flag."""
    case = Case.from_json({"sglang": "0.5.23", "sm": "9.0", "args": {"served-model-name": "--api-key=x", "tp-size": 1}})
    assert judge(case).argv == ("--served-model-name=--api-key=x", "--tp-size", "1")


def test_a_refused_service_still_says_all_it_knows() -> None:
    raw = {
        "sglang": "0.5.23",
        "sm": "12.0",
        "gpus": 4,
        "args": {"no-such": 1, "attention-backend": "fa3", "enable-pdmux": True},
    }
    judgement = judge(Case.from_json(raw))
    refused = {one.flag for one in judgement.verdicts if one.decision is Decision.REFUSE}
    assert refused == {"no-such", "attention-backend", "enable-pdmux"}
