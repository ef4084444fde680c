"""Types of a release's flags, for reading unquoted YAML values as the flag means them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang


@cache
def flag_types(release: str) -> Mapping[str, str] | None:
    """Every spelling without dashes -> `bool`, `int`, `float`, `str` …; None where nothing is known of the release."""
    try:
        known = load_sglang(release)
    except (UnknownReleaseError, BrokenKnowledgeError):
        return None
    found = {}
    for flag in known.flags.values():
        kind = "bool" if flag.kind != "value" else flag.type
        for spelling in (flag.name, *flag.spellings):
            found[spelling.lstrip("-")] = kind
    return found
