"""A command line, as somebody typed it, to flag -> value, the way the engine's own parser splits it.

Which tokens are values depends on the release: `--lora-paths a b` takes both, `--trust-remote-code b` leaves one over.
Types and choices are not looked at here: `validators.parser` says what the values are worth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from validators.knowledge.model import Flag, Sglang
from validators.verdict import Value

_NUMBER = re.compile(r"-\d+(\.\d*)?$|-\.\d+$")  # argparse: a negative number is a value, not an option
_LONG_DASH = re.compile(r"[\u2010-\u2015\u2212]+-?(?=[A-Za-z])")


@dataclass(frozen=True, slots=True)
class Fault:
    """What the parser refuses before it looks at any value."""

    token: int  # index of the token it is about
    flag: str  # without dashes; "" for a token that belongs to no flag
    what: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Overridden:
    """A flag that is given again, perhaps by another of its names. The parser still looks at its value."""

    name: str
    value: Value
    by: str  # as the last one is written


@dataclass(frozen=True, slots=True)
class Parsed:
    """Flags by the name they were written with (without dashes), and where each stands."""

    args: dict[str, Value]
    at: dict[str, int]  # flag -> index of its token; the last one where it is given twice
    faults: tuple[Fault, ...]
    overridden: tuple[Overridden, ...]  # given again further on: the last one counts


def to_args(release: Sglang, tokens: Sequence[str]) -> Parsed:
    """Split tokens (without the launcher) into flags and values. Nothing raises: what is wrong is in `faults`."""
    args: dict[str, Value] = {}
    at: dict[str, int] = {}
    faults: list[Fault] = []
    earlier: list[tuple[str, Value, str]] = []  # name, value, the flag's own name
    last: dict[str, str] = {}  # the flag's own name -> as it was written last
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if not _option(token):
            long = _LONG_DASH.match(token)  # word processors and chat programs make one of two hyphens
            todo = f"Type --{token[long.end() :]}: this one begins with a long dash." if long else ""
            faults.append(Fault(i, "", f"{token!r} belongs to no flag: the parser refuses it", todo))
            i += 1
            continue
        written, equals, attached = token.partition("=")
        name = written.lstrip("-")
        flag = release.resolve_spelling(written).flag
        if flag is None and not written.startswith("--"):
            # argparse abbreviates `--tensor` but not `-tp`; its value, if it has one, is a word of its own
            what = f"{written} has one dash, and no flag of this release is spelled so"
            faults.append(Fault(i, name, what, f"Write -{written}."))
            i += 1 + (0 if equals else len(_values(None, tokens, i + 1)))
            continue
        values = [attached] if equals else _values(flag, tokens, i + 1)
        value, problem = _value(flag, name, values, bool(equals))
        if problem:
            choices = f": {', '.join(map(str, flag.choices))}" if flag is not None and flag.choices else ""
            alone = flag is not None and not flag.takes_value
            todo = f"Write --{name} alone." if alone else f"Give {name} its value{choices}."
            faults.append(Fault(i, name, problem, todo))
        else:
            own = flag.name if flag is not None else name
            before = last.get(own)
            if before is not None:
                earlier.append((before, args[before], own))
                del args[before], at[before]
            last[own] = name
            args[name], at[name] = value, i
        i += 1 + (0 if equals else len(values))
    overridden = tuple(Overridden(name, value, last[own]) for name, value, own in earlier)
    return Parsed(args, at, tuple(faults), overridden)


def _option(token: str) -> bool:
    return len(token) > 1 and token.startswith("-") and not _NUMBER.match(token) and " " not in token.partition("=")[0]


def _values(flag: Flag | None, tokens: Sequence[str], start: int) -> list[str]:
    """Tokens after the flag that belong to it. A flag nobody knows is given one, if there is one."""
    end = start
    while end < len(tokens) and not _option(tokens[end]):
        end += 1
    following = list(tokens[start:end])
    if flag is None:
        return following[:1]
    if not flag.takes_value:
        return []
    if flag.nargs in ("+", "*"):
        return following
    return following[: flag.nargs if isinstance(flag.nargs, int) else 1]


def _value(flag: Flag | None, name: str, values: list[str], attached: bool) -> tuple[Value, str]:
    if flag is None:
        return (values[0] if values else True), ""
    if not flag.takes_value:
        return (True, "") if not attached else (None, f"--{name} takes no value, {values[0]!r} was given")
    if flag.nargs == "?":
        return (values[0], "") if values else (True, "")
    if flag.nargs == "*":
        return list(values), ""
    needed = flag.nargs if isinstance(flag.nargs, int) else 1
    if len(values) < needed:
        return None, f"--{name} needs {'a value' if needed == 1 else f'{needed} values'}"
    return (list(values) if flag.many else values[0]), ""
