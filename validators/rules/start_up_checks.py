"""What the engine's own argument resolution raises on this SM, for any flag: read and evaluated, not listed by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from validators.knowledge.model import Sglang
from validators.rules import resolved
from validators.rules.argument_resolution import optional
from validators.rules.blame import blamed
from validators.rules.context import Context, answered_once, checks, place
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step, Value

SUBJECT = "What argument resolution raises on this SM"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True

_RESOLUTION = re.compile(r"sglang/srt/(server_args\.py|arg_groups/)")
_FIELD = re.compile(r"\.(\w+)")
_SMS = ("7.5", "8.0", "9.0", "10.0", "12.0")
Row = tuple[dict[str, Any], frozenset[str]]
_BY_FLAG: dict[str, dict[str, list[tuple[int, Row]]]] = {}

# substitutes that work on any GPU the release runs on: the engine's own choice
_LEAVE_OUT: tuple[dict[str, Value], ...] = ({},)


@answered_once
def judge(c: Context) -> Iterator[Part]:
    """One part per flag: the first check that certainly raises because of it."""
    told: set[str] = set()
    table = _by_flag(c.release)
    near = {number: row for flag in c.args for number, row in table.get(flag, ())}
    for number in sorted(near):
        row, flags = near[number]
        concerned = frozenset(flag for flag in flags if flag in c.args)
        if concerned <= told:
            continue
        if not c.release.predicates and not any(holds(c, guard) is False for guard in row["guards"]):
            flag = min(concerned - told)
            told.add(flag)
            yield _unread(c, flag, row)
            continue
        if not all(holds(c, guard) for guard in row["guards"]):
            continue
        flag = _blamed(c, row, concerned)
        if flag in told:
            continue
        told.add(flag)
        yield _part(c, flag, row)


def _by_flag(release: Sglang) -> dict[str, list[tuple[int, Row]]]:
    """Flag -> checks that test its field, each with its place in the source's order."""
    found = _BY_FLAG.get(release.key)
    if found is None:
        found = _BY_FLAG[release.key] = {}
        for number, (row, flags) in enumerate(_rows(release)):
            for flag in flags:
                found.setdefault(flag, []).append((number, (row, flags)))
    return found


def holds(c: Context, guard: str) -> bool | None:
    """A guard with the local names that argument resolution uses for what the flags say."""
    return c.holds(guard, **resolved.local(c, guard))


def _rows(release: Sglang) -> Iterator[Row]:
    """Checks of argument resolution, with the flags whose fields they test."""
    fields = {flag.field: flag.name for flag in release.flags.values() if flag.field}
    followed: dict[tuple[str, str], set[str]] = {}
    for one in resolved.stops(release):
        if one.text:
            followed.setdefault((one.proof.file, one.proof.symbol), set()).add(one.text)
    for listed in checks(release).values():
        for row in listed:
            if any(row["text"].startswith(text) for text in followed.get((row["file"], row["symbol"]), ())):
                continue  # `argument-resolution` knows when the function is called at all
            if _RESOLUTION.match(row["file"]):
                text = " ".join(row["guards"])
                flags = {fields[name] for name in _FIELD.findall(text) if name in fields}
                for stage in ("prefill", "decode"):
                    if f"{stage}_backend" in text:
                        flags |= {f"{stage}-attention-backend", "attention-backend"}
                yield row, frozenset(flags)


def _blamed(c: Context, row: dict[str, Any], concerned: frozenset[str]) -> str:
    def met(bare: Context) -> bool:
        return all(holds(bare, guard) for guard in row["guards"])

    return blamed(c, row["text"], concerned, met, row["symbol"]) or min(concerned)


_NAMING: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {}


def passed(c: Context, backend: str) -> Evidence | None:
    """The check that would stop `backend` on another SM and lets this one pass, or None."""
    elsewhere = [Context(c.case, c.release, c.args, sm) for sm in _SMS if sm != c.sm_text]
    for row in _naming(c.release, backend):
        stops = any(all(holds(other, guard) for guard in row["guards"]) for other in elsewhere)
        if stops and any(holds(c, guard) is False for guard in row["guards"]):
            return place(c.release, row)
    return None


def _naming(release: Sglang, backend: str) -> tuple[dict[str, Any], ...]:
    """Checks of argument resolution that name a back end, whichever rule asks them."""
    key = (release.key, backend)
    found = _NAMING.get(key)
    if found is None:
        rows = (row for listed in checks(release).values() for row in listed if _RESOLUTION.match(row["file"]))
        named = (row for row in rows if any(f"'{backend}'" in guard for guard in row["guards"]))
        found = _NAMING[key] = tuple(named)
    return found


def _part(c: Context, flag: str, row: dict[str, Any]) -> Part:
    proof = place(c.release, row)
    said = row["text"].rstrip(". ") or "an assertion fails"
    reason = f"{c.release.version} stops the start on SM {c.sm_text}: {said}."
    instead: tuple[dict[str, Value], ...] = _LEAVE_OUT if optional(flag) else ()
    return Part(flag, Outcome.FAILS, reason, (proof,), (Step(Gate.RESOLUTION, False, reason, proof),), instead=instead)


def _unread(c: Context, flag: str, row: dict[str, Any]) -> Part:
    """Knowledge without the meaning of the release's SM predicates decides nothing."""
    proof = place(c.release, row)
    reason = f"{c.release.version} tests the GPU for it, and what its test means was not read."
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (Step(Gate.RESOLUTION, None, reason, proof),))


__all__ = ["holds", "judge"]
