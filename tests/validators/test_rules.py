"""The register of rules: pages, names, sites."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sglfleet.commands.rules import command
from validators.knowledge import load_sglang, releases
from validators.rules import HERE, always, by_flag, page, rules

RELEASES = [load_sglang(name) for name in releases()]
IDS = [rule.stem for rule in rules()]


@pytest.mark.parametrize("rule", rules(), ids=IDS)
def test_every_rule_has_a_page_that_says_why(rule) -> None:  # type: ignore[no-untyped-def]
    text = page(rule.stem)
    assert text
    assert text.startswith("# ")
    assert "**What.**" in text
    assert "**Why.**" in text or "**Example.**" in text or "**Evidence.**" in text


def test_every_page_belongs_to_a_rule() -> None:
    assert {path.stem.replace("_", "-") for path in HERE.glob("*.md")} == set(IDS)


@pytest.mark.parametrize("rule", rules(), ids=IDS)
def test_every_flag_of_a_rule_exists_somewhere(rule) -> None:  # type: ignore[no-untyped-def]
    for flag in rule.flags:
        assert any(release.flag(flag) for release in RELEASES), flag


def test_rules_are_found_by_flag_or_always() -> None:
    reached = {rule.stem for found in by_flag().values() for rule in found} | {rule.stem for rule in always()}
    assert reached == set(IDS)


def test_commands_show_them() -> None:
    listed = CliRunner().invoke(command, [])
    assert listed.exit_code == 0
    assert all(stem in listed.output for stem in IDS)
    shown = CliRunner().invoke(command, ["allreduce-fusion"])
    assert shown.output.startswith("# FlashInfer all-reduce fusion")
    assert CliRunner().invoke(command, ["no-such-rule"]).exit_code == 2


def test_the_index_lists_every_rule_with_its_subject() -> None:
    index = (HERE.parents[1] / "docs" / "rules.md").read_text(encoding="utf-8")
    listed = [line for line in index.splitlines() if line.startswith("| [")]
    assert listed == [
        f"| [{rule.stem}](../validators/rules/{rule.stem.replace('-', '_')}.md) | {rule.subject} |" for rule in rules()
    ]
