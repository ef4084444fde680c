"""Conditions that stand before every place where a release reads an argument, by the shipped table (`reads.json`).

Made by `python -m sglfleet.extract.reads`. The conditions are text over `args.x`; a name that an argument can be given
on the way, by the engine itself, is in the table too, so that a condition counts as false only where it is false for
all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from validators import conditions
from validators.conditions import UNKNOWN
from validators.rules import atoms
from validators.rules.context import Context
from validators.verdict import Evidence

ASKED = re.compile(r"\b(?:args|given)\.(\w+)")
_ONE = re.compile(r"(args|given)\.(\w+)")
_FALSE: dict[tuple[object, ...], bool] = {}  # conditions answered before, for all that they hang on
_COMBINATIONS = 32
_THEIRS = ("device", "quantization", "dtype", "model_path", "host")  # left out, they follow the host or the model


@dataclass(frozen=True, slots=True)
class Condition:
    """One of these must hold for the argument to be read."""

    text: str
    fields: tuple[str, ...]
    asks: tuple[str, ...]  # fields on which it hangs, those in what the engine sets them to included
    proof: Evidence


@dataclass(frozen=True, slots=True)
class Reads:
    """What is known of one release."""

    behind: dict[str, tuple[Condition, ...]]  # field -> conditions
    made: dict[str, tuple[str, ...]]  # field -> texts of what the engine may set it to where nothing is asked for
    stops: dict[str, tuple[Condition, ...]]  # field -> conditions under which the start stops because of it


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("reads.json").read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=64)
def of(version: str) -> Reads | None:
    """The rows of one shipped release; None where nobody has read it."""
    table = _table()
    row = table["releases"].get(version)
    if row is None:
        return None
    names, texts, places = table["names"], table["texts"], table["places"]

    def condition(number: int, place: int = -1, line: int = 0) -> Condition:
        file, symbol, quote = places[place] if place >= 0 else ("", "", "")
        text = texts[number]
        fields = tuple(dict.fromkeys(ASKED.findall(text)))
        more = [one for name in fields for made in row["made"].get(name, ()) for one in ASKED.findall(texts[made])]
        return Condition(
            text,
            fields,
            tuple(dict.fromkeys((*fields, *more))),
            Evidence(f"sglang-{version}", file, symbol, line, quote),
        )

    lists = [tuple(condition(*one) for one in rows) for rows in row["lists"]]
    return Reads(
        {names[name]: lists[number] for name, number in row["fields"]},
        {name: tuple(texts[one] for one in numbers) for name, numbers in row["made"].items()},
        {name: tuple(condition(one) for one in numbers) for name, numbers in row["stops"].items()},
    )


def places(version: str) -> list[Evidence]:
    """Every place of a release that an answer can rest on."""
    found = of(version)
    return list(dict.fromkeys(one.proof for rows in found.behind.values() for one in rows)) if found else []


class Asked:
    """The arguments of one case: as given, else the release's defaults, with what the engine may make of them."""

    def __init__(self, c: Context, reads: Reads) -> None:
        self.c = c
        self.reads = reads
        flags = c.release.flags
        # an architecture of a common name that is told to be another model
        self._special = "index_topk" in c.case.checkpoint or "json-model-override-args" in c.args
        self.given = {flags[name].field: value for name, value in c.args.items() if flags[name].field}

    def value(self, field: str) -> Any:
        if field in self.given:
            return self.given[field]
        name = _flag(self.c, field)
        if name is None:
            return self.c.release.fields.get(field, UNKNOWN)
        known = self.c.release.flags[name]
        return UNKNOWN if known.default_source or field in _THEIRS else known.default

    def possible(self, field: str) -> list[Any]:
        values = [self.value(field)]
        for text in self.reads.made.get(field, ()):
            made = conditions.value(text, lambda atom: self._atom(atom, {}))
            if not any(made is one or (made == one and type(made) is type(one)) for one in values):
                values.append(made)
        return values

    def _atom(self, atom: str, chosen: dict[str, Any]) -> Any:
        one = _ONE.fullmatch(atom)
        if one is not None:
            return chosen[one[2]] if one[1] == "args" and one[2] in chosen else self.value(one[2])
        if atom == "model_arch" and self._special:
            return UNKNOWN
        return atoms.value(self.c, atom)

    def false(self, condition: Condition) -> bool:
        """Is it certainly false, whatever the engine makes of the arguments in it."""
        c = self.c
        env = tuple(sorted(c.case.env.items())) if "envs." in condition.text else ()
        given = tuple(repr(self.given[name]) if name in self.given else "" for name in condition.asks)
        key = (c.release.key, condition.text, given, c.arch, self._special, c.sm_text, c.nnodes, c.dp_attention, env)
        found = _FALSE.get(key)
        if found is None:
            if len(_FALSE) > 50_000:
                _FALSE.clear()
            found = _FALSE[key] = self._false(condition)
        return found

    def _false(self, condition: Condition) -> bool:
        names = [name for name in condition.fields if name in self.reads.made]
        values = [self.possible(name) for name in names]
        count = 1
        for one in values:
            count *= len(one)
        if count > _COMBINATIONS:
            return False
        return all(
            conditions.holds(condition.text, self._looking(dict(zip(names, chosen, strict=True)))) is False
            for chosen in product(*values)
        )

    def _looking(self, chosen: dict[str, Any]) -> conditions.Lookup:
        return lambda atom: self._atom(atom, chosen)


def _flag(c: Context, field: str) -> str | None:
    """The flag of a field: the one that is not an old name of it, where there are several."""
    return _flags(c).get(field)


_FLAGS: dict[str, dict[str, str]] = {}


def _flags(c: Context) -> dict[str, str]:
    found = _FLAGS.get(c.release.key)
    if found is None:
        found = _FLAGS[c.release.key] = {}
        for flag in c.release.flags.values():
            if flag.field and (flag.field not in found or not flag.deprecated):
                found[flag.field] = flag.name
    return found


def flag(c: Context, field: str) -> str:
    """How a person writes the argument; "" where nobody can give it."""
    return _flag(c, field) or ""
