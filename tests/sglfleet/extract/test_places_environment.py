"""The finder of renamed variables: on a source as small as what it looks for."""

from __future__ import annotations

import ast

import pytest

from sglfleet.extract.places_environment import SEARCHES

SOURCE = """
def _convert():
    for key, value in os.environ.items():
        if key.startswith("SGL_"):
            new_key = key.replace("SGL_", "SGLANG_", 1)
            os.environ[new_key] = value

_convert()
"""


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (SOURCE, [["SGL_", "SGLANG_"]]),
        (SOURCE.replace("\n_convert()", ""), []),  # nobody calls it
        (SOURCE.replace("os.environ[new_key] = value", "print(new_key)"), []),  # only a warning
        (SOURCE.replace(", 1)", ")"), []),
    ],
)
def test_renamed_where_it_is_called_and_written_back(changed, found):
    ((_, search),) = SEARCHES
    assert [more for _, _, more in search(ast.parse(changed))] == found
