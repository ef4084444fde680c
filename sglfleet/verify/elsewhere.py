"""In which releases a flag works on the same hardware: what a diagnosis of a failed start ends with. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from validators.verdict import Outcome

if TYPE_CHECKING:
    from validators.case import Case


def works_in(flag: str, case: Case) -> tuple[str, ...]:
    """Known releases, oldest first, in which `flag` acts in the same case with the release's own pins."""
    from validators.judge import judge
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, releases

    out = []
    for release in releases("sglang"):
        try:
            judged = judge(replace(case, sglang=release, flashinfer="", packages={}))
        except (UnknownReleaseError, BrokenKnowledgeError):
            continue
        if any(v.flag == flag and v.outcome is Outcome.ACTIVE for v in judged.verdicts):
            out.append(release)
    return tuple(out)


def told(flag: str, case: Case) -> str:
    """One sentence for a person."""
    found = works_in(flag, case)
    where = f"on SM {', '.join(case.sm)}" if case.sm else "here"
    if not found:
        return f"no known release runs {flag} {where}"
    return f"{flag} works {where} in SGLang {', '.join(found)}"
