"""What the engine's own argument resolution did to a flag: left it, changed it, or took it back in a warning. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglfleet.verify.evidence import as_text
from validators.verdict import Verdict

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TAKES_BACK = re.compile(
    r"\bdisabl|\bignor|\bno effect|\bnot (?:be )?(?:used|supported|available|compatible)|\bunsupported|\bincompatible"
    r"|\bfall(?:s|ing)? ?back|\bfell back|\bturn(?:ed|ing)? off|\boverrid",
    re.I,
)
_DIRECTLY = (
    r"\W*(?:=\s*\w+\W*)?(?:(?:is|are|was|will be|has been|gets)\s+)?(?:currently\s+|forcibly\s+|automatically\s+)?"
    r"(?:disabled|ignored|turned off|has no effect|not (?:used|supported|available)|unsupported)\b"
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the engine's argument resolution does to one flag."""

    becomes: str | None = None  # the value it is changed to; None: it stays as it was given
    warning: str = ""  # a line of the engine that takes it back
    off: bool = False  # the line says of this very flag that it does nothing


def resolution(verdict: Verdict, told: Mapping[str, Any], fields: Mapping[str, str]) -> Resolution | None:
    """What became of a flag; None where it cannot be seen: resolution stopped, or the value is left to the engine."""
    resolved = told.get("resolved") or {}
    if told.get("raised") or not resolved or verdict.value in (None, "auto"):
        return None
    lines = [_COLOUR.sub("", str(line)) for line in told.get("said") or ()]
    parsed = (told.get("sets") or {}).get(verdict.flag)
    if parsed is None:
        parsed = {fields.get(verdict.flag) or verdict.flag.replace("-", "_"): verdict.value}
    parsed = {name: value for name, value in parsed.items() if name in resolved}
    if not parsed:
        return None
    wanted = {name: value for name, value in parsed.items() if value not in (None, "auto")}
    changed = [name for name, value in wanted.items() if not same(resolved[name], value)]
    if changed and (other := _moved(verdict.flag, lines, fields)):
        if other not in resolved:
            return None  # where it went cannot be seen
        changed = [] if resolved[other] not in (None, False, "disabled", "none") else [other]
    if changed:
        return Resolution(as_text(resolved.get(changed[0])))
    for line in lines:
        if found := taken_back(verdict.flag, line):
            return Resolution(None, line, found == "off")
    return Resolution()


def _moved(flag: str, lines: list[str], fields: Mapping[str, str]) -> str:
    """The field that the engine puts a deprecated flag's value into, as it says itself."""
    for line in lines:
        found = re.search(r"deprecated\b.*?\b[Uu]se '?--([a-z0-9-]+)", line)
        if found and names(flag, line.partition("deprecated")[0]):
            return fields.get(found[1]) or found[1].replace("-", "_")
    return ""


def taken_back(flag: str, line: str) -> str:
    """Whether a warning takes a flag back: "off": it says so of this flag; "doubt": it only names it; "": no.

    A flag is also named by its words, where there are three or more: "flashinfer allreduce fusion is disabled".
    """
    level, _, text = line.partition(": ")
    if level not in ("WARNING", "ERROR", "CRITICAL") or "deprecated" in text or not _TAKES_BACK.search(text):
        return ""
    even = re.sub(r"[-_]", " ", text.lower())
    words = flag.replace("-", " ")
    core = re.sub(r"^(enable|use) ", "", words)
    for name in (words, core):
        if len(name.split()) < (2 if name == words else 3):
            continue
        at = re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", even)
        if not at:
            continue
        # "x is disabled" is of x; "y is disabled because of x" is not
        return "off" if re.match(_DIRECTLY, even[at.end() :]) else "doubt"
    return ""


def names(flag: str, text: str) -> bool:
    """Whether a text names a flag, written as an option or as its field."""
    return bool(re.search(rf"(?<![a-z0-9-]){re.escape(flag)}(?![a-z0-9-])", _options(text)))


def _options(text: str) -> str:
    """Text in which every option and field is written alike: without leading dashes, with dashes inside."""
    return re.sub(r"(?<![a-z0-9])--(?=[a-z])", " ", text.replace("_", "-"), flags=re.I).replace("=", " ")


def same(a: Any, b: Any) -> bool:
    """Equal but for how it is written: numbers in text, one-element lists, JSON in text."""
    if as_text(a) == as_text(b):
        return True
    for value, other in ((a, b), (b, a)):
        if isinstance(value, list) and len(value) == 1 and as_text(value[0]) == as_text(other):
            return True
        if isinstance(value, str):
            try:
                if json.loads(value) == other:
                    return True
            except ValueError:
                continue
    return False
