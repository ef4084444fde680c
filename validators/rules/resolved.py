"""Argument resolution of one release, read for one case: which stops are met, and what a field may be on the way.

A flag is not what a condition sees: the engine fills what was left out and changes what was given. So a stop counts
as met only where its conditions hold for every value that the fields in them can have by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from validators import conditions
from validators.conditions import UNKNOWN
from validators.knowledge.model import Sglang
from validators.rules import atoms
from validators.rules.context import Context
from validators.verdict import Evidence, Value

_FIELD = re.compile(r"\.(\w+)")
_COMBINATIONS = 36  # values tried together; more fields of unknown value than that are not certain anyway
_DEEP = 2  # changes that hang on other changes
LAST = 1 << 30
# models without anything of their own in their files: what a release adjusts for special models does not concern them
_PLAIN = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
)
_FOR_A_MODEL = re.compile(r"model_(specific|capability)|embedding")
_OF_THE_CHECKPOINT = ("quantization", "dtype")  # left out, they follow the model's own files


@dataclass(frozen=True, slots=True)
class Step:
    """A stop, or a change of a field."""

    order: int
    guards: tuple[str, ...]
    fields: frozenset[str]  # asked for in the conditions
    proof: Evidence
    text: str  # what is raised; of a change: the value
    needs: frozenset[str]  # flags without which it is never met
    field: str  # of a change


@dataclass(frozen=True, slots=True)
class Table:
    """All steps of a release."""

    stops: dict[str, tuple[Step, ...]]  # by one flag that must be given
    changes: dict[str, tuple[Step, ...]]  # by field


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
    asked = [frozenset(name for name in _FIELD.findall(text) if name in flags) for text in texts]

    def steps(name: str) -> Iterator[Step]:
        for n, (number, line), text, guards, needs, more in _columns(release, name):
            if any(one not in flags for one in needs):
                continue  # a field without a flag: nobody can give it
            fields = frozenset().union(*(asked[g] for g in guards)) if guards else frozenset()
            file, symbol = places[number]
            quote = text if name == "stops" else texts[guards[-1]] if guards else ""
            yield Step(
                order=n,
                guards=tuple(texts[g] for g in guards),
                fields=fields,
                proof=Evidence(release.artifact.name, file, symbol, line, quote),
                text=more,
                needs=frozenset(flags[one] for one in needs),
                field=text,
            )

    stops: dict[str, list[Step]] = {}
    for one in steps("stops"):
        for flag in sorted(one.needs)[:1] or {flags[name] for name in one.fields}:
            stops.setdefault(flag, []).append(one)
    changes: dict[str, list[Step]] = {}
    for one in steps("changes"):
        changes.setdefault(one.field, []).append(one)
    return Table({k: tuple(v) for k, v in stops.items()}, {k: tuple(v) for k, v in changes.items()})


def met(c: Context) -> list[Step]:
    """Stops that the case meets for certain, in the order in which the release comes to them."""
    near = {id(one): one for flag in c.args for one in _near(c, flag) if one.needs <= c.args.keys()}
    return [one for one in sorted(near.values(), key=lambda one: one.order) if sure(c, one)]


def sure(c: Context, step: Step, depth: int = 0) -> bool:
    """Do its conditions hold whatever the engine makes of the fields in them before."""
    held = _held(c, step)
    if held is False or (held is None and not _tellable(c, step)):
        return False
    flags = atoms.fields(c.release)
    changing: list[tuple[str, list[Any]]] = []
    count = 1
    for name in sorted(step.fields):
        values = possible(c, name, step.order, depth)
        flag = flags[name]
        if values != [c.args.get(flag, UNKNOWN)]:
            changing.append((flag, values))
            count *= len(values)
            if count > _COMBINATIONS:
                return False
    for chosen in product(*(values for _, values in changing)):
        args: dict[str, Value] = dict(c.args)
        args.update({flag: value for (flag, _), value in zip(changing, chosen, strict=True)})
        if not _held(Context(c.case, c.release, args, c.sm_text), step):
            return False
    return True


def _held(c: Context, step: Step) -> bool | None:
    """Do the conditions hold for the flags as they stand."""
    unsure = False
    for guard in step.guards:
        held = c.holds(guard, **local(c, guard)) if "_backend" in guard or "_attn" in guard else c.holds(guard)
        if held is False:
            return False
        unsure = unsure or held is None
    return None if unsure else True


def _tellable(c: Context, step: Step) -> bool:
    """Is everything else that the conditions ask for known, so that trying values of the fields can settle them."""
    known = atoms.fields(c.release)
    for guard in step.guards:
        if c.holds(guard) is None:
            here = local(c, guard)
            for atom in conditions.atoms(guard):
                name = _FIELD.findall(atom)
                field_ = bool(name) and name[-1] in known and atom.endswith("." + name[-1])
                if not field_ and atom not in here and atoms.value(c, atom) is UNKNOWN:
                    return False
    return True


def possible(c: Context, name: str, order: int, depth: int = 0) -> list[Any]:
    """Values that a field can have when the release comes to a step; UNKNOWN among them: more than can be listed."""
    return _followed(c, name, order, depth)[0]


def decided(c: Context, name: str) -> tuple[Any, Step] | None:
    """What a field is at the end for certain, and the change that made it so; None where it may stay as it was."""
    values, last = _followed(c, name, LAST, 0)
    return (values[0], last) if last is not None and len(values) == 1 and values[0] is not UNKNOWN else None


def _followed(c: Context, name: str, order: int, depth: int) -> tuple[list[Any], Step | None]:
    flag = c.release.flags[atoms.fields(c.release)[name]]
    start: Any = c.args.get(flag.name, UNKNOWN if flag.default_source else flag.default)
    if flag.name not in c.args and name in _OF_THE_CHECKPOINT:
        start = UNKNOWN
    if name == "device" and start is None:
        start = "cuda"
    values = [start]
    last: Step | None = None
    for change in _applying(c, name, start):
        if change.order >= order:
            break
        if not change.needs <= c.args.keys():
            continue
        held = _held(c, change)
        if held is False:
            continue
        value = conditions.value(change.text, lambda atom: atoms.value(c, atom))
        value = tuple(value) if isinstance(value, list) else value
        if held and depth < _DEEP and sure(c, change, depth + 1):
            values, last = [value], change
        elif held is None and c.arch in _PLAIN and _FOR_A_MODEL.search(change.proof.symbol):
            continue
        elif flag.name in c.args and held is None:
            continue  # what was given is seldom changed, and where it is, the conditions can be told
        elif not any(value is one or (value == one and type(value) is type(one)) for one in values):
            values.append(value)
    return values, last


_APPLYING: dict[tuple[str, str, str, str], tuple[Step, ...]] = {}


def _near(c: Context, flag: str) -> tuple[Step, ...]:
    """Stops that ask for a flag and that its value alone does not rule out."""
    name = next((name for name, of in atoms.fields(c.release).items() if of == flag), "")
    return _not_ruled_out(c, "stops", flag, name, c.args[flag])


def _applying(c: Context, name: str, start: Any) -> tuple[Step, ...]:
    """Changes of a field that its value alone does not rule out: most are for what was left empty."""
    return _not_ruled_out(c, "changes", name, name, start)


def _not_ruled_out(c: Context, kind: str, key: str, name: str, value: Any) -> tuple[Step, ...]:
    known = (c.release.key, kind, key, repr(value))
    found = _APPLYING.get(known)
    if found is None:
        steps = getattr(table(c.release), kind).get(key, ())

        def lookup(atom: str) -> Any:
            return value if atom.endswith("." + name) else UNKNOWN

        rest = [one for one in steps if not any(conditions.holds(g, lookup) is False for g in one.guards)]
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
    return sorted({flags[name] for name in fields if flags[name] in c.args})
