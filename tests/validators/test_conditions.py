"""Three-valued evaluation of conditions as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validators.conditions import UNKNOWN, holds

KNOWN = {"self.tp_size": 4, "a": True, "b": False, "name": "x", "nothing": None}


def lookup(atom: str) -> Any:
    return KNOWN.get(atom, UNKNOWN)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("self.tp_size > 1", True),
        ("if self.tp_size > 1 and not b:", True),
        ("unknown_call() and b", False),
        ("unknown_call() and a", None),
        ("unknown_call() or a", True),
        ("not unknown_call()", None),
        ("name in ['x', 'y']", True),
        ("name not in ('x',)", False),
        ("name in ['y', other]", None),
        ("name in ['x', other]", True),
        ("nothing is None", True),
        ("nothing is not None", False),
        ("a is None", False),
        ("1 < self.tp_size <= 4", True),
        ("self.tp_size == -4", False),
        ("name < 3", None),
        ("(self.tp_size if b else name) == 'x'", True),
        ("(self.tp_size if other else name) == 'x'", None),
        ("(name if other else 'x') == 'x'", True),
        ("this is not (", None),
        ("", None),
    ],
)
def test_value(text: str, value: bool | None) -> None:
    assert holds(text, lookup) is value


@given(st.text(max_size=60))
def test_any_text_is_answered(text: str) -> None:
    assert holds(text, lookup) in (True, False, None)


@given(st.sampled_from(["p and q", "p or q", "not p", "p and (q or not p)", "p == q"]), st.booleans(), st.booleans())
def test_knowing_more_only_decides(text: str, p: bool, q: bool) -> None:
    """What is said with p unknown stays so once p is known."""
    full = holds(text, lambda atom: {"p": p, "q": q}[atom])
    part = holds(text, lambda atom: {"p": UNKNOWN, "q": q}[atom])
    assert part is None or part is full
