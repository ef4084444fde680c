"""Argument resolution of one release, read for one case: which stops are met, and what a field may be on the way.

A flag is not what a condition sees: the engine fills what was left out and changes what was given. So a stop counts
as met only where its conditions hold for every value that the fields in them can have by then.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from validators import conditions
from validators.conditions import UNKNOWN
from validators.knowledge.model import Sglang
from validators.rules import atoms, reach
from validators.rules.context import Context
from validators.verdict import Evidence

_FIELD = re.compile(r"\.(\w+)")
_COMBINATIONS = 36  # values tried together; more fields of unknown value than that are not certain anyway
_DEEP = 2  # changes that hang on other changes
LAST = 1 << 30
_FILLED_LATER = ("[]", "{}", "list()", "dict()", "set()")  # of what was given: made empty, then filled item by item
_FOR_A_MODEL = re.compile(r"model_(specific|capability)|embedding")
_OF_THE_CHECKPOINT = ("quantization", "dtype")  # left out, they follow the model's own files


@dataclass(frozen=True, slots=True)
class Step:
    """A stop, or a change of a field."""

    order: int
    guards: tuple[str, ...]
    asked: tuple[frozenset[str], ...]  # fields that each condition asks for
    fields: frozenset[str]  # all of them
    proof: Evidence
    text: str  # what is raised; of a change: the value
    needs: frozenset[str]  # flags without which it is never met
    field: str  # of a change


@dataclass(frozen=True, slots=True)
class Table:
    """All steps of a release."""

    stops: dict[str, tuple[Step, ...]]  # by one flag that must be given
    changes: dict[str, tuple[Step, ...]]  # by field
    causes: dict[str, tuple[Step, ...]]  # changes by a flag that is asked for in their conditions


def _columns(release: Sglang, name: str) -> Iterator[tuple[int, list[int], str, list[int], list[str], str]]:
    """Rows as `sglfleet.extract.sites_resolution` writes them; of a change the value stands last."""
    texts: list[str] = release.gates.get("conditions", [])
    for row in release.gates.get(name, ()):
        if name == "stops":
            n, at, quote, guards, needs, text = row
            yield n, at, quote, guards, [texts[one] for one in needs], text
        else:
            n, at, field, value, guards, needs = row
            yield n, at, texts[field], guards, [texts[one] for one in needs], value


def asked_in(text: str) -> list[str]:
    """Names after a dot in a condition, and the fields behind the two attention back ends, which have a function."""
    names = _FIELD.findall(text)
    return [*names, "attention_backend", *_STAGES] if "attention_backend" in text and "(" in text else names


_STAGES = ("prefill_attention_backend", "decode_attention_backend")
_TABLES: dict[str, Table] = {}


def table(release: Sglang) -> Table:
    """The steps of a release; read once."""
    found = _TABLES.get(release.key)
    if found is None:
        found = _TABLES[release.key] = _read(release)
    return found


def stops(release: Sglang) -> list[Step]:
    """All stops of a release, each once."""
    return list({id(one): one for found in table(release).stops.values() for one in found}.values())


def _read(release: Sglang) -> Table:
    texts: list[str] = release.gates.get("conditions", [])
    places: list[list[str]] = release.gates.get("places", [])
    flags = atoms.fields(release)
    known = flags.keys() | release.fields.keys()
    asked = [frozenset(name for name in asked_in(text) if name in known) for text in texts]

    def steps(name: str) -> Iterator[Step]:
        for n, (number, line), text, guards, needs, more in _columns(release, name):
            if any(one not in flags for one in needs):
                continue  # a field without a flag: nobody can give it
            fields = frozenset().union(*(asked[g] for g in guards)) if guards else frozenset()
            file, symbol = places[number]
            quote = text  # what stands there: the test of a stop, the name of a field that is set
            yield Step(
                order=n,
                guards=tuple(texts[g] for g in guards),
                asked=tuple(asked[g] for g in guards),
                fields=fields,
                proof=Evidence(release.artifact.name, file, symbol, line, quote),
                text=more,
                needs=frozenset(flags[one] for one in needs),
                field=text,
            )

    stops: dict[str, list[Step]] = {}
    for one in steps("stops"):
        for flag in sorted(one.needs)[:1] or {flags.get(name) or atoms.own(name) for name in one.fields}:
            stops.setdefault(flag, []).append(one)
    changes: dict[str, list[Step]] = {}
    for one in steps("changes"):
        changes.setdefault(one.field, []).append(one)
    causes: dict[str, list[Step]] = {}
    for one in (one for found in changes.values() for one in found if one.text):
        for flag in {flags[name] for name in one.fields if name in flags and name != one.field}:
            causes.setdefault(flag, []).append(one)
    return Table(*({k: tuple(v) for k, v in found.items()} for found in (stops, changes, causes)))


def met(c: Context) -> list[Step]:
    """Stops that the case meets for certain, in the order in which the release comes to them."""
    found = {id(one): one for flag in c.args for one in _met_by(c, flag)}
    for flag in c.args:
        for name in _led_to(c, flag):
            found |= {id(one): one for one in _met_by(c, atoms.fields(c.release).get(name) or atoms.own(name))}
    return sorted(found.values(), key=lambda one: one.order)


def _met_by(c: Context, flag: str) -> tuple[Step, ...]:
    """Stops that ask for a flag and are met for certain."""
    near = table(c.release).stops.get(flag, ())

    def find() -> tuple[Step, ...]:
        left = _ruled(c, "stops", flag, atoms.field_of(c.release, flag), c.args[flag]) if flag in c.args else near
        return tuple([one for one in left if one.needs <= c.args.keys() and sure(c, one)])

    return reach.once(c, ("stops", flag), flag, near, table(c.release).changes, find)


def _led_to(c: Context, flag: str) -> tuple[str, ...]:
    """Fields that nobody gave and that a flag given makes something certain of."""
    near = table(c.release).causes.get(flag, ())

    def find() -> tuple[str, ...]:
        flags = atoms.fields(c.release)
        left = _ruled(c, "causes", flag, atoms.field_of(c.release, flag), c.args[flag])
        open_ = [one for one in left if flags.get(one.field, flag) not in c.args and one.needs <= c.args.keys()]
        return tuple(dict.fromkeys([one.field for one in open_ if sure(c, one)]))

    return reach.once(c, ("causes", flag), flag, near, table(c.release).changes, find)


def sure(c: Context, step: Step, depth: int = 0) -> bool:
    """Do its conditions hold whatever the engine makes of the fields in them before."""
    return _settled(c, step, depth) is True


def _settled(c: Context, step: Step, depth: int) -> bool | None:
    """Do its conditions hold, or not, for every value that the fields in them can have by then; else None."""
    what = (id(step), depth)
    return reach.once(c, what, "", (step,), table(c.release).changes, lambda: _settle(c, step, depth))


def _settle(c: Context, step: Step, depth: int) -> bool | None:
    told: list[bool | None] = []
    for text, names in zip(step.guards, step.asked, strict=True):  # most are ruled out by what nothing changes
        told.append(_guard(c, text))
        if told[-1] is False and not any(_touched(c, name, step.order, depth) for name in names):
            return False
    loose = [
        (text, names, held)
        for text, names, held in zip(step.guards, step.asked, told, strict=True)
        if not held or any(_touched(c, name, step.order, depth) for name in names)
    ]
    flags = atoms.fields(c.release)
    changing: list[tuple[str, list[Any]]] = []
    free: set[str] = set()
    count = 1
    for name in sorted({name for _, names, _ in loose for name in names}):
        values = possible(c, name, step.order, depth)
        flag = flags.get(name) or atoms.own(name)
        if values != [c.args.get(flag, UNKNOWN)]:
            free.add(name)
            changing.append((flag, values))
            count *= len(values)
    if count > _COMBINATIONS or any(held is None and not names & free for _, names, held in loose):
        return None
    found: set[bool | None] = set()
    for chosen in product(*(values for _, values in changing)):
        tried = c.varied({flag: value for (flag, _), value in zip(changing, chosen, strict=True)})
        found.add(_all(tried, [text for text, _, _ in loose]))
        if None in found or len(found) > 1:
            return None
    return next(iter(found), None)


def _all(c: Context, guards: list[str]) -> bool | None:
    """Do these conditions hold for the flags as they stand."""
    unsure = False
    for guard in guards:
        held = _guard(c, guard)
        if held is False:
            return False
        unsure = unsure or held is None
    return None if unsure else True


def _guard(c: Context, guard: str) -> bool | None:
    found = c.followed.get(guard, 0)
    if found == 0:
        known = local(c, guard) if "_backend" in guard or "_attn" in guard else {}
        found = c.followed[guard] = c.holds(guard, **known)
    told: bool | None = found
    return told


def possible(c: Context, name: str, order: int, depth: int = 0) -> list[Any]:
    """Values that a field can have when the release comes to a step; UNKNOWN among them: more than can be listed."""
    return _followed(c, name, order, depth)[0]


def decided(c: Context, name: str) -> tuple[Any, Step] | None:
    """What a field is at the end for certain, and the change that made it so; None where it may stay as it was."""
    values, last = _followed(c, name, LAST, 0)
    return (values[0], last) if last is not None and len(values) == 1 and values[0] is not UNKNOWN else None


def _value(c: Context, change: Step, depth: int) -> Any:
    """What a change makes of its field; UNKNOWN where that hangs on a field that may have been set before."""
    flags = atoms.fields(c.release)
    fixed: dict[str, Any] = {}
    for name in asked_in(change.text):
        if name in flags and _touched(c, name, change.order, depth + 1):
            values = possible(c, name, change.order, depth + 1) if depth < _DEEP else []
            if len(values) != 1:
                return UNKNOWN
            fixed[flags[name]] = values[0]
    if change.text in _FILLED_LATER and flags.get(change.field) in c.args:
        return UNKNOWN
    here = c.varied(fixed) if fixed else c
    value = conditions.value(change.text, lambda atom: atoms.value(here, atom))
    return tuple(value) if isinstance(value, list) else value


def moved(release: Sglang, name: str, change: Step) -> bool:
    """Does the same statement hand the field's value to another field."""
    steps = (one for found in table(release).changes.values() for one in found if one.order == change.order)
    return any(one.field != name and one.text.rpartition(".")[2] == name for one in steps)


@dataclass(slots=True)
class _Timeline:
    """What a field can be after each of its changes, as far as it was asked for."""

    given: bool
    orders: list[int]
    states: list[tuple[list[Any], Step | None]]
    rest: list[Step]  # changes that were not looked at yet, the next one last


def _followed(c: Context, name: str, order: int, depth: int) -> tuple[list[Any], Step | None]:
    if name == "device":  # an NVIDIA GPU, however the engine finds out
        return [_start(c, name)[1]], None
    changes = table(c.release).changes
    flag = atoms.fields(c.release).get(name) or atoms.own(name)
    line = reach.once(c, (name, depth), flag, changes.get(name, ()), changes, lambda: _begun(c, name))
    while line.rest and line.rest[-1].order < order:
        change = line.rest.pop()
        state = _after(c, line, change, depth)
        line.orders.append(change.order)
        line.states.append(state)
    return line.states[bisect_left(line.orders, order) - 1]


def _begun(c: Context, name: str) -> _Timeline:
    given, start = _start(c, name)
    steps = [one for one in _applying(c, name, start) if one.needs <= c.args.keys()]
    return _Timeline(given, [-1], [([start], None)], steps[::-1])


def _after(c: Context, line: _Timeline, change: Step, depth: int) -> tuple[list[Any], Step | None]:
    """The values a field can have after a change, from those it could have before."""
    values, last = line.states[-1]
    held = _settled(c, change, depth + 1) if depth < _DEEP else None
    if held is False or (depth >= _DEEP and _all(c, list(change.guards)) is False):
        return values, last
    value = _value(c, change, depth)
    if held:
        return [value], change
    if c.arch in atoms.PLAIN and _FOR_A_MODEL.search(change.proof.symbol):
        return values, last
    if line.given:  # what was given is seldom changed, and where it is, the conditions can be told
        return values, last
    if any(value is one or (value == one and type(value) is type(one)) for one in values):
        return values, last
    return [*values, value], last


def _touched(c: Context, name: str, order: int, depth: int) -> bool:
    """May the engine have set a field by then."""
    start = _start(c, name)[1]
    if not any(one.order < order and one.needs <= c.args.keys() for one in _applying(c, name, start)):
        return False
    values, last = _followed(c, name, order, depth)
    return last is not None or len(values) > 1


def _start(c: Context, name: str) -> tuple[bool, Any]:
    """Whether a field was given, and its value before anything is resolved."""
    named = atoms.fields(c.release).get(name)
    if named is None:
        return False, c.release.fields.get(name, UNKNOWN)
    flag = c.release.flags[named]
    if named in c.args:
        return True, c.args[named]
    if name == "device":
        return False, "cuda"
    return False, UNKNOWN if flag.default_source or name in _OF_THE_CHECKPOINT else flag.default


_APPLYING: dict[tuple[str, ...], tuple[Step, ...]] = {}
_OF_ARCH = re.compile(r"^(model_arch|hf_config\.architectures\[0\]) (in|==) [\[('\"]")


def _applying(c: Context, name: str, start: Any) -> tuple[Step, ...]:
    """Changes of a field that its value alone does not rule out: most are for what was left empty."""
    return _ruled(c, "changes", name, name, start)


def _ruled(c: Context, kind: str, key: str, name: str, value: Any) -> tuple[Step, ...]:
    known = (c.release.key, c.arch, kind, key, repr(value))
    found = _APPLYING.get(known)
    if found is None:
        steps = getattr(table(c.release), kind).get(key, ())

        asks = "." + name

        def lookup(atom: str) -> Any:
            return value if atom.endswith(asks) else UNKNOWN

        rest = [
            one
            for one in steps
            if not any(_OF_ARCH.match(g) and c.holds(g) is False for g in one.guards)
            and not any(asks in g and conditions.holds(g, lookup) is False for g in one.guards)
        ]
        if len(_APPLYING) > 20_000:
            _APPLYING.clear()
        found = _APPLYING[known] = tuple(rest)
    return found


def local(c: Context, guard: str) -> dict[str, Any]:
    """Local names that argument resolution uses for what the flags say."""
    known: dict[str, Any] = {}
    for stage in ("prefill", "decode"):
        if f"{stage}_backend" in guard or f"{stage}_attn" in guard:
            value = attention(c, f"{stage}-attention-backend")
            known |= {f"{stage}_backend": value, f"{stage}_attn_backend": value}
    return known


def attention(c: Context, flag: str) -> Any:
    """The back end of prefill or decode: its own flag, else the common one. Source: `get_attention_backends`."""
    return atoms.attention(c, flag.partition("-")[0])


def given(c: Context, fields: Iterable[str]) -> list[str]:
    """Flags of these fields that were given."""
    flags = atoms.fields(c.release)
    return sorted({flags[name] for name in fields if flags.get(name) in c.args})
