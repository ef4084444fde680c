"""When a flag came and went, from the flag tables of all releases known. Asked only where a flag is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from validators.knowledge.loader import load_sglang, releases
from validators.knowledge.model import Flag, Sglang
from validators.verdict import Evidence


@dataclass(frozen=True, slots=True)
class Fate:
    """Of a flag that a release does not know."""

    last: str = ""  # the last older release that had it
    gone: str = ""  # the first release after `last`
    first: str = ""  # the first newer release that has it
    replacement: str = ""  # flag of the asked release that does its work now
    told: bool = False  # the engine's own words name the replacement
    sure: bool = False  # it came when the other went, and takes the same values
    evidence: Evidence | None = None


@cache
def _line() -> tuple[str, ...]:
    """Numbered releases, oldest first."""
    return tuple(name for name in releases() if name[:1].isdigit())


def _older(release: str) -> tuple[str, ...]:
    line = _line()
    return line[: line.index(release)] if release in line else line


def _newer(release: str) -> tuple[str, ...]:
    line = _line()
    return line[line.index(release) + 1 :] if release in line else ()


def has(release: Sglang, name: str) -> Flag | None:
    """The flag with exactly this spelling."""
    return release.flags.get(name) or release.resolve_spelling("--" + name).flag if _exact(release, name) else None


def _exact(release: Sglang, name: str) -> bool:
    return name in release.flags or release.resolve_spelling("--" + name).spelling == "--" + name


@cache
def last_with(release: str, name: str) -> str:
    """The newest older release that took `name`, written out or as an abbreviation."""
    for older in reversed(_older(release)):
        if load_sglang(older).resolve_spelling("--" + name).flag:
            return older
    return ""


@cache
def fate(release: str, name: str) -> Fate:
    """Why `release` does not know `name`."""
    now = load_sglang(release)
    for older in reversed(_older(release)):
        then = load_sglang(older)
        flag = has(then, name)
        if flag:
            line = _line()
            gone = line[line.index(older) + 1]
            replacement, told, sure = _replacement(now, older, flag, load_sglang(gone))
            return Fate(older, gone, "", replacement, told, sure, then.evidence(flag.place, "--" + flag.name))
    for newer in _newer(release):
        then = load_sglang(newer)
        flag = has(then, name)
        if flag:
            return Fate(first=newer, evidence=then.evidence(flag.place, "--" + flag.name))
    return Fate()


def _replacement(now: Sglang, last: str, flag: Flag, gone: Sglang) -> tuple[str, bool, bool]:
    """Flag of `now` that replaces `flag`, whether the engine says so, and whether it is sure."""
    named = flag.replacement.split("=")[0].split(" ")[0].lstrip("-")
    if named and has(now, named):
        return named, True, True
    from difflib import SequenceMatcher

    before = load_sglang(last).flags
    best, score = "", 0.0
    for other in gone.flags.values():
        if other.name in before or other.name not in now.flags or other.kind != flag.kind or other.type != flag.type:
            continue
        ratio = SequenceMatcher(None, flag.name, other.name).ratio()
        if ratio > score:
            best, score = other.name, ratio
    if score >= 0.75:
        same = gone.flags[best].choices == flag.choices and gone.flags[best].default == flag.default
        return best, False, same and score >= 0.85
    return "", False, False
