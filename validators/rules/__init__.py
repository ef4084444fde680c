"""The rules, found by listing this folder: one rule is one module with a `SUBJECT`, and a page of the same stem."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

from validators.rules.interface import Rule

HERE = Path(__file__).parent


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by stem. A module that has a SUBJECT is one; the others here are what rules are made of."""
    found = []
    for path in sorted(HERE.glob("*.py")):
        if path.stem == "__init__":
            continue
        module = importlib.import_module(f"validators.rules.{path.stem}")
        if not hasattr(module, "SUBJECT"):
            continue
        found.append(
            Rule(
                stem=path.stem.replace("_", "-"),
                subject=module.SUBJECT,
                flags=module.FLAGS,
                sites=module.SITES,
                always=getattr(module, "ALWAYS", False),
                without_gpu=getattr(module, "WITHOUT_GPU", False),
                judge=module.judge,
            )
        )
    return tuple(found)


@cache
def by_flag() -> dict[str, tuple[Rule, ...]]:
    """Flag -> rules that speak of it, in a fixed order."""
    table: dict[str, list[Rule]] = {}
    for rule in rules():
        for flag in rule.flags:
            table.setdefault(flag, []).append(rule)
    return {flag: tuple(found) for flag, found in table.items()}


@cache
def always() -> tuple[Rule, ...]:
    """Rules that are asked in every case."""
    return tuple(rule for rule in rules() if rule.always)


def page(stem: str) -> str | None:
    """The text of a rule's page, or None."""
    known = {rule.stem for rule in rules()}
    if stem not in known:
        return None
    return (HERE / f"{stem.replace('-', '_')}.md").read_text(encoding="utf-8")
