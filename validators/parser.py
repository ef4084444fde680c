"""The first gate: what the engine's own parser makes of flags, and the command line that flags are rendered to.

Follows argparse as SGLang uses it: exact option strings, then unambiguous abbreviations; types, choices and number of
values per flag. Source of each fact: the flag tables of the shipped releases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from validators import history
from validators.knowledge.model import Artifact, Flag, Resolved, Sglang
from validators.rules.interface import Part
from validators.verdict import Evidence, Gate, Outcome, Step, Value

RULE = "parser"


@dataclass(frozen=True, slots=True)
class Given:
    """One flag as somebody wrote it, and what the parser makes of it."""

    name: str  # as written, without dashes
    value: Value  # converted; as written where it was refused
    flag: Flag | None  # None: refused
    part: Part | None = None  # why it was refused
    spelling: str = ""  # full option string that an abbreviation stands for; empty where it was written out


def read(release: Sglang, args: Mapping[str, Value]) -> list[Given]:
    """Every flag of `args`, sorted by name. Nothing raises: what is wrong is in `part`."""
    found = [_one(release, name, value) for name, value in sorted(args.items()) if value is not None]
    return _twice(release, found)


def _one(release: Sglang, name: str, value: Value) -> Given:
    written = name.lstrip("-")
    flag = release.flags.get(written)
    spelling = ""
    if flag is None:
        resolved = _resolve(release, written)
        flag = resolved.flag
        if flag is None:
            return Given(written, value, None, _refused(release, written, value, resolved))
        if resolved.spelling != "--" + written:
            spelling = resolved.spelling
        if resolved.spelling == flag.off():
            if not isinstance(value, bool):
                return Given(written, value, None, _wrong(release, written, flag, "takes no value"))
            value = not value
    if flag.refused:
        return Given(written, value, None, _withdrawn(release, written, flag))
    converted, problem = _convert(flag, value)
    if problem:
        return Given(written, value, None, _wrong(release, written, flag, problem))
    return Given(written, converted, flag, None, spelling)


_RESOLVED: dict[tuple[Artifact, str], Resolved] = {}


def _resolve(release: Sglang, written: str) -> Resolved:
    """What a spelling stands for; looking for close words is slow, and people make the same slips."""
    key = (release.artifact, written)
    found = _RESOLVED.get(key)
    if found is None:
        if len(_RESOLVED) > 4096:
            _RESOLVED.clear()
        found = _RESOLVED[key] = release.resolve_spelling("--" + written)
    return found


def _twice(release: Sglang, found: list[Given]) -> list[Given]:
    """Two spellings of one flag with two values: argparse takes the last one, so the order would decide."""
    first: dict[str, Given] = {}
    out = []
    for given in found:
        if given.flag is not None:
            other = first.setdefault(given.flag.name, given)
            if other is not given:
                if other.value == given.value:
                    continue
                problem = f"is given twice, as {other.name} = {other.value!r} and as {given.name} = {given.value!r}"
                given = Given(given.name, given.value, None, _wrong(release, given.name, given.flag, problem))
        out.append(given)
    return out


def _convert(flag: Flag, value: Value) -> tuple[Value, str]:
    """The value after conversion, and what is wrong with it."""
    if flag.kind != "value" or flag.nargs == 0:
        return (value, "") if isinstance(value, bool) else (value, f"takes no value, {_show(value)} was given")
    if isinstance(value, list):
        if not flag.many:
            return value, f"takes one value, a list of {len(value)} was given"
        if isinstance(flag.nargs, int) and len(value) != flag.nargs:
            return value, f"takes {flag.nargs} values, {len(value)} were given"
        if flag.nargs == "+" and not value:
            return value, "needs at least one value"
        done: list[Value] = []
        for item in value:
            converted, problem = _scalar(flag, item)
            if problem:
                return value, problem
            done.append(converted)
        return done, ""
    if value is True and flag.nargs == "?":
        return flag.const, ""
    return _scalar(flag, value)


# `human_readable_int` (utils/common.py, the same from 0.5.10 to 0.5.23); suffixes know upper and lower case
_COUNT = re.compile(r"\s*(?:[+-]?\d+(?:_\d+)*|\d+(?:Ki|Mi|Gi|Ti)|\d+(?:\.\d+)?[kMGT])\s*")
_TRUE, _FALSE = ("true", "1", "yes", "y", "t", "on"), ("false", "0", "no", "n", "f", "off")


def _scalar(flag: Flag, value: Value) -> tuple[Value, str]:
    converted: Value = value
    if flag.type in ("int", "float"):
        if isinstance(value, bool):
            return value, f"needs a number, not {_show(value)}"
        if flag.converter in ("int", "float"):
            try:
                converted = int(str(value)) if flag.converter == "int" else float(str(value))
            except ValueError:
                kind = "a whole number" if flag.converter == "int" else "a number"
                return value, f"needs {kind}, not {_show(value)}"
        elif flag.converter == "human_readable_int" and not _COUNT.fullmatch(str(value)):
            return value, f"needs a whole number such as 32768, 32k or 32Ki, not {_show(value)}"
    elif flag.type == "bool":
        if not isinstance(value, bool) and str(value).lower() not in (*_TRUE, *_FALSE):
            return value, f"needs true or false, not {_show(value)}"
    elif isinstance(value, bool):
        return value, f"needs a value, {_show(value)} was given"
    elif flag.type == "str" and not isinstance(value, str):
        converted = str(value)
    if flag.choices is not None and converted not in flag.choices and str(converted) not in map(str, flag.choices):
        close = _near(str(converted), [str(choice) for choice in flag.choices])
        hint = f": did you mean {close}?" if close else ""
        shown = ", ".join(str(choice) for choice in flag.choices)
        return value, f"does not take {_show(value)}{hint} This release takes {shown}" if close else (
            f"does not take {_show(value)}: this release takes {shown}"
        )
    return converted, ""


def _near(word: str, words: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), n=1, cutoff=0.75)), "")


def _show(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _part(name: str, reason: str, evidence: Evidence | None, todo: str, instead: tuple[dict[str, Value], ...]) -> Part:
    return Part(
        flag=name,
        outcome=Outcome.REJECTED,
        reason=reason,
        evidence=(evidence,) if evidence else (),
        steps=(Step(Gate.PARSER, False, reason, evidence),),
        todo=todo,
        instead=instead,
    )


def _wrong(release: Sglang, name: str, flag: Flag, problem: str) -> Part:
    evidence = release.evidence(flag.place, _declared(flag))
    return _part(name, f"--{name} {problem}.", evidence, f"Correct the value of {name}.", ())


def _declared(flag: Flag) -> str:
    """What stands at the flag's place: its own name; the check that evidence opens looks for it there."""
    return "--" + flag.name


def _withdrawn(release: Sglang, name: str, flag: Flag) -> Part:
    evidence = release.evidence(flag.place, _declared(flag))
    return _part(name, f"--{name} is withdrawn: {flag.refused.rstrip('.')}.", evidence, f"Remove {name}.", ())


def _refused(release: Sglang, name: str, value: Value, resolved: Resolved) -> Part:
    if resolved.ambiguous:
        shown = ", ".join(resolved.candidates)
        past = history.last_with(release.version, name)
        since = f" (until {past} it was a flag of its own or an abbreviation that one flag had)" if past else ""
        reason = f"--{name} is ambiguous in {release.version}: it can stand for {shown}{since}."
        first = release.resolve_spelling(resolved.candidates[0]).flag
        evidence = release.evidence(first.place, _declared(first)) if first else None
        return _part(name, reason, evidence, f"Write one of {shown} in full.", ())
    fate = history.fate(release.version, name)
    if fate.last:
        instead: tuple[dict[str, Value], ...] = ()
        text = f"--{name} is gone: last in {fate.last}, not in {release.version}"
        if fate.gone and fate.gone != release.version:
            text = f"--{name} is gone since {fate.gone} (last in {fate.last})"
        if fate.replacement:
            text += f"; {'use' if fate.told else 'it looks renamed to'} --{fate.replacement}"
            if fate.told or fate.sure:
                instead = ({fate.replacement: value},) if _takes(release, fate.replacement, value) else ()
        todo = f"Use {fate.replacement} instead." if fate.replacement else f"Remove {name}."
        return _part(name, text + ".", fate.evidence, todo, instead)
    if fate.first:
        reason = f"--{name} is not in {release.version} yet: it came with {fate.first}."
        return _part(name, reason, fate.evidence, f"Remove {name}, or pin engine.sglang to {fate.first} or newer.", ())
    if name in ("help", "h", "version"):
        return _part(
            name, f"--{name} prints a text and ends: it is no setting of a service.", None, f"Remove {name}.", ()
        )
    near = " or ".join(resolved.near[:2])
    if near:
        return _part(
            name, f"--{name} is unknown to {release.version}: did you mean {near}?", None, "Correct the name.", ()
        )
    return _part(
        name, f"--{name} is unknown to {release.version} and to every release known.", None, f"Remove {name}.", ()
    )


def _takes(release: Sglang, name: str, value: Value) -> bool:
    flag = release.flags.get(name)
    return flag is not None and not flag.refused and not _convert(flag, value)[1]


def render(release: Sglang, args: Mapping[str, Value]) -> tuple[str, ...]:
    """Flags and values as command-line tokens, sorted by flag: no setting depends on the order in a file.

    A tri-state flag that is false becomes its `--no-…` form, never an omission. A flag that the release does not know
    (a waiver let it through) is written as it was given.
    """
    out: list[str] = []
    for name in sorted(args):
        out += tokens(release.flags.get(name), name, args[name])
    return tuple(out)


def tokens(flag: Flag | None, name: str, value: Value) -> list[str]:
    """The tokens of one flag; none for a switch that is off."""
    option = "--" + name
    if isinstance(value, bool) and (flag is None or flag.kind != "value"):
        if value:
            return [option]
        off = flag.off() if flag else None
        return [off] if off else []
    if value is None:
        return []
    if isinstance(value, list):
        return [option, *(_text(item) for item in value)]
    text = _text(value)
    if text.startswith("-") and not _number(text):
        return [f"{option}={text}"]
    return [option, text]


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
