"""What argument resolution of a small release stops on, with names, helpers and branches followed."""

from __future__ import annotations

from typing import Any

import pytest

from sglfleet.extract.document import Places, Texts
from sglfleet.extract.sites_resolution import resolution
from tests.sglfleet.extract.trees import SERVER_ARGS, tree

FIELDS = {"backend": None, "base": "triton", "count": 1, "wide": False, "kind": "auto", "paths": None}
ELSEWHERE = "sglang/srt/elsewhere.py"


def read(body: str, elsewhere: str = "", head: str = "") -> dict[str, Any]:
    lines = "\n".join(f"        {line}" for line in body.strip("\n").splitlines())
    source = f"{head}\nclass ServerArgs:\n    def __post_init__(self):\n{lines}\n"
    texts = Texts()
    found = resolution(tree({SERVER_ARGS: source, ELSEWHERE: elsewhere}), FIELDS, Places(), texts)
    names = texts.rows()
    return {
        "stops": {row[5]: [names[g] for g in row[3]] for row in found["stops"]},
        "changes": [(row[0], names[row[2]], row[3], [names[g] for g in row[4]]) for row in found["changes"]],
    }


def stop(body: str, elsewhere: str = "", head: str = "") -> list[str]:
    """The conditions of the one stop that says `no`."""
    found: list[str] = read(body, elsewhere, head)["stops"]["no"]
    return found


@pytest.mark.parametrize(
    ("body", "conditions"),
    [
        (
            "x = self.backend or self.base\nif x == 'a':\n    raise ValueError('no')",
            ["(cfg.backend or cfg.base) == 'a'"],
        ),
        (
            "x = self.backend\nif x == 'k':\n    x = 'triton'\nif x == 'a':\n    raise ValueError('no')",
            ["('triton' if cfg.backend == 'k' else cfg.backend) == 'a'"],
        ),
        (
            "if self.wide:\n    if self.count > 2:\n        return\nif self.kind == 'a':\n    raise ValueError('no')",
            ["not (cfg.wide and cfg.count > 2)", "cfg.kind == 'a'"],
        ),
        (
            "bad = []\nif self.wide:\n    bad.append(f'{self.wide}')\nif self.count > 2:\n    bad.append('two')\n"
            "if bad:\n    raise ValueError('no')",
            ["bool(cfg.count > 2 or (True if cfg.wide else False))"],
        ),
        (
            "for name in ('backend', 'kind'):\n    if getattr(self, name) == 'a':\n        raise ValueError('no')",
            ["cfg.kind == 'a'"],
        ),
        ("try:\n    import far\nexcept ImportError:\n    raise ValueError('no')\nself.wide = True", None),
        (
            "if self.wide:\n    try:\n        import far\n    except ImportError:\n        raise ValueError('no')",
            ["cfg.wide", "not (importable('far'))"],
        ),
    ],
    ids=["or", "branches", "return", "problems", "loop", "import", "import of a flag"],
)
def test_names_are_what_the_branches_made_of_them(body: str, conditions: list[str] | None) -> None:
    found = read(body)["stops"]
    assert found.get("no") == conditions


def test_a_helper_is_its_answer_and_its_early_returns_are_choices() -> None:
    elsewhere = (
        "LARGE = ('a', 'b')\n"
        "def fits(cfg, limit=4):\n    if cfg.wide:\n        return False\n    return cfg.kind in LARGE\n"
    )
    found = stop(
        "if self.count > 1 and not fits(self):\n    raise ValueError('no')",
        elsewhere,
        "from sglang.srt.elsewhere import fits",
    )
    assert found == ["cfg.count > 1", "not (False if cfg.wide else cfg.kind in ['a', 'b'])"]


def test_a_condition_of_every_launch_is_left_out_and_nothing_beside_it() -> None:
    body = (
        "special = False\n"
        "if parse_connector_type(self.paths) != ConnectorType.INSTANCE:\n"
        "    try:\n        special = self.wide\n    except Exception:\n        pass\n"
        "if special and self.count > 1:\n    raise ValueError('no')"
    )
    assert stop(body) == ["cfg.wide", "cfg.count > 1"]


def test_functions_elsewhere_are_entered_with_their_defaults() -> None:
    elsewhere = "def check(args, limit=4):\n    if args.count > limit:\n        raise ValueError('no')\n"
    found = stop("check(self)", elsewhere, "from sglang.srt.elsewhere import check")
    assert found == ["args.count > 4"]


def test_what_was_read_before_a_field_was_set_is_not_what_it_is_now() -> None:
    found = read("x = self.backend\nself.backend = 'b'\nif x == 'a' and self.wide:\n    raise ValueError('no')")
    assert found["stops"] == {}
    assert [(field, value) for _, field, value, _ in found["changes"]] == [("backend", "'b'")]


def test_a_name_that_a_loop_sets_is_not_known() -> None:
    body = "x = 'a'\nfor one in self.paths:\n    x = one\nif x == 'a' and self.wide:\n    raise ValueError('no')"
    assert read(body)["stops"] == {}


def test_fields_of_one_statement_do_not_see_each_other() -> None:
    body = "if self.wide:\n    self.override(count=self.kind, kind='b')"
    orders = {n for n, *_ in read(body)["changes"]}
    assert len(orders) == 1
