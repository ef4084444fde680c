"""Arguments that a release reads only behind conditions on other arguments: the table beside the rule that rests on it.

python -m sglfleet.extract.reads FOLDER-OF-UNPACKED-RELEASES > validators/rules/reads.json
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglfleet.extract.checks import quote
from sglfleet.extract.reads import families
from sglfleet.extract.reads.flow import Flow
from sglfleet.extract.reads.nodes import Function, Guard, Site, Store
from sglfleet.extract.reads.program import Program
from sglfleet.extract.reads.reach import Reach
from sglfleet.extract.reads.simpler import Condition, plain
from sglfleet.extract.reads.texts import RESOLUTION, Texts
from sglfleet.extract.reads.writes import keys, writes
from validators import conditions
from validators.conditions import UNKNOWN
from validators.knowledge.model import Sglang

FIELD = re.compile(r"\bargs\.(\w+)")
_GIVEN = re.compile(r"given\.(\w+)")
_ENV = re.compile(r"envs\.(\w+)\.get\(\)")
_CALLED_FOR = re.compile(r"^validate_mamba_(extra|no)_buffer$")  # only for models that have such state
_PARSES = ("from_cli_args", "add_cli_args")
PLAIN = "LlamaForCausalLM"
_PLATFORM = {"is_cuda": True}
_OTHERS = ("is_hip", "is_npu", "is_musa", "is_xpu", "is_hpu", "is_mps", "is_mlx", "use_mlx", "is_cpu")


def defaults(release: Sglang) -> dict[str, Any]:
    found: dict[str, Any] = dict(release.fields)
    for flag in release.flags.values():
        if flag.field:
            found[flag.field] = UNKNOWN if flag.default_source else flag.default
    for name in ("device", "quantization", "dtype", "model_path", "host"):
        found[name] = UNKNOWN
    return found


class Reader:
    def __init__(self, root: Path, release: Sglang, program: Program | None = None) -> None:
        self.release = release
        self.defaults = defaults(release)
        self.program = program or Program(root)
        self.texts = Texts(self.program, self.defaults)
        self.values: dict[str, list[Any]] = {name: [value] for name, value in self.defaults.items()}
        self.made: dict[str, list[str]] = {}  # field -> texts of what it is set to where nothing is asked for
        self.writes: dict[str, list[Store]] = {}
        self.stopping: dict[str, list[str]] = {}
        self._asked: dict[str, Condition | None] = {}
        self._falses: dict[str, bool] = {}
        self.reach = Reach(self.program, self.texts, self.false)
        self.flow = Flow(self.program, self.reach, set(self.defaults), self._parallel())
        self._all_writes()
        for _ in range(8):
            self._falses.clear()
            self.reach.run()
            if not self._unstable():
                break

    def _parallel(self) -> set[str] | None:
        """Fields of the parallel group, of releases that declare fields in groups."""
        found = {f.field for f in self.release.flags.values() if f.place.file.endswith("arg_groups/fields/parallel.py")}
        return found or None

    def _all_writes(self) -> None:
        other = keys(self.program, set(self.defaults))
        for name in self.defaults:
            found = [*writes(self.program, self.flow, name), *other.get(name, ())]
            self.writes[name] = [one for store in found for one in self._spread(store)]

    def _spread(self, store: Store) -> list[Store]:
        """A local name that is assigned in several places stands for each of them."""
        if store.function.path.endswith("disaggregation/role_switch.py"):  # the tokenizer refuses the request without
            test = ast.parse("server_args.enable_pd_role_switch", mode="eval").body
            store = replace(store, guards=(*store.guards, Guard(test, False, store.function)))
        value = store.value
        if isinstance(value, ast.Name) and value.id not in store.function.params:
            found = self.texts.locals(store.function).get(value.id, [])
            if 1 < len(found) <= 6:
                return [replace(store, value=one.value, guards=(*store.guards, *one.guards)) for one in found]
        return [store]

    def _unstable(self) -> bool:
        """Take note of what fields are set to where nothing is asked for; True where something new was found."""
        new = False
        for name, stores in self.writes.items():
            for store in stores:
                if store.function.name in _PARSES:
                    continue  # another spelling of what was given
                if not self.reach.runs(Site(store.target, store.guards, store.function)):
                    continue
                text = self.texts.of(store.value, store.function) if store.value is not None else "?"
                if text.strip("()") == f"args.{name}":
                    continue
                value = self.value(text)
                if any(value is one or (value == one and type(value) is type(one)) for one in self.values[name]):
                    if value is not UNKNOWN and text not in self.made.get(name, ()):
                        self.made.setdefault(name, []).append(text)
                    continue
                self.values[name].append(value)
                self.made.setdefault(name, []).append(text)
                new = True
        return new

    def value(self, text: str) -> Any:
        return conditions.value(text, lambda atom: self._atom(atom, {}))

    def _atom(self, atom: str, chosen: dict[str, Any]) -> Any:
        if atom == "model_arch":
            return PLAIN
        name = FIELD.fullmatch(atom)
        if name:
            if name[1] in chosen:
                return chosen[name[1]]
            values = self.values.get(name[1], [UNKNOWN])
            return values[0] if len(values) == 1 else UNKNOWN
        given = _GIVEN.fullmatch(atom)
        if given:
            return self.defaults.get(given[1], UNKNOWN)
        asked = _ENV.fullmatch(atom)
        if asked:
            known = self.release.env.get(asked[1])
            return UNKNOWN if known is None or known.default is None else known.default
        return self._bare(atom)

    @staticmethod
    def _bare(atom: str) -> Any:
        if atom == "__name__":
            return "imported"
        bare = atom.removesuffix("()").rsplit(".", 1)[-1].lstrip("_")
        if bare in _OTHERS:
            return False
        return _PLATFORM.get(bare, UNKNOWN)

    def never(self, text: str) -> bool:
        """Is it false on every NVIDIA GPU, whatever is asked for."""
        return conditions.holds(text, lambda atom: UNKNOWN if atom[:5] == "args." else self._bare(atom)) is False

    def forget(self) -> None:
        """Keep only what the table needs of it."""
        del self.program, self.texts, self.reach, self.flow, self.writes

    def false(self, text: str) -> bool:
        found = self._falses.get(text)
        if found is None:
            found = self._falses[text] = self._false(text)
        return found

    def _false(self, text: str) -> bool:
        from itertools import product

        names = sorted({n for n in FIELD.findall(text) if len(self.values.get(n, ())) > 1})
        if any(UNKNOWN in [v for v in self.values[n] if v is UNKNOWN] for n in names):
            names_ = [n for n in names if not any(v is UNKNOWN for v in self.values[n])]
        else:
            names_ = names
        for values in product(*(self.values[n] for n in names_[:5])):
            chosen = dict(zip(names_, values, strict=False))
            if conditions.holds(text, lambda atom: self._atom(atom, chosen)) is not False:  # noqa: B023
                return False
        return True

    def behind(self, name: str) -> list[Condition] | None:
        """Conditions that stand before every use of a field; None where one of them is used without any."""
        open_, behind = self.flow.uses(name)
        found: dict[str, Condition] = {}
        rest = list(behind)
        for site in (*open_, *behind):
            row = families.of(name, site)
            made = self._of_family(row) if row else None
            if made:
                found[made.text] = made
                if site in rest:
                    rest.remove(site)
            elif site not in rest:
                return None
        edge = self.reach.edge(name, rest)
        if edge is None:
            return None
        for guards in edge:
            one = self._condition(guards)
            found[one.text] = one
        return self._closed(name, list(found.values()))

    def stops(self) -> dict[str, list[str]]:
        """Field -> conditions under which the start is stopped because of it, where that is not behind another one.

        Of a condition only the parts are kept that hang on the field: without the rest it holds more often."""
        found: dict[str, list[str]] = {}
        for guards, function in self.program.stops:
            if not (RESOLUTION.match(function.path) and id(function) in self.reach.live):
                continue
            blocked = self.reach.blocked(guards)
            if _CALLED_FOR.search(function.name):
                continue
            mentioned = [(guard, self.texts.mentions(guard)) for guard in guards if not guard.passed]
            for name in {one for _, names in mentioned for one in names}:
                if any(name not in self.texts.mentions(guard) for guard in blocked):
                    continue  # behind a condition on something else
                parts = [self.texts.either(guard) for guard, names in mentioned if name in names]
                text = plain(" and ".join(f"({part})" for part in parts))
                if text not in found.setdefault(name, []):
                    found[name].append(text)
        return found

    def _condition(self, guards: tuple[Guard, ...]) -> Condition:
        text = plain(" and ".join(f"({self.texts.guard(one)})" for one in guards))
        first = guards[0]
        return Condition(text, first.owner.path, first.owner.symbol, first.test.lineno, self._quote(first))

    def _quote(self, guard: Guard) -> str:
        lines = self.program.lines[guard.owner.path]
        if guard.test.col_offset == 0:  # a condition that is said by a list of models, not by a test
            return lines[guard.test.lineno - 1].strip()
        return quote([one.encode() for one in lines], guard.test)

    def _of_family(self, row: families.Family) -> Condition | None:
        """The family's condition, with the place where this release asks for it; None where it has no such place, or
        knows none of the arguments."""
        text = row.text(self.defaults)
        if not text or not self.false(text):
            return None
        key = row.name
        if key not in self._asked:
            self._asked[key] = self._asks(row)
        where = self._asked[key]
        return where and replace(where, text=plain(text))

    def _asks(self, row: families.Family) -> Condition | None:
        best: tuple[int, str, int, Guard] | None = None
        for function in self.program.functions:
            where = f"{function.path} {function.symbol}"
            if RESOLUTION.match(function.path) or not re.search(row.asked_in, where):
                continue
            for guard in self._guards_of(function):
                text = self.texts.guard(guard)
                if re.search(row.asked, text) or re.search(row.asked, ast.unparse(guard.test)):
                    one = (len(text), function.path, guard.test.lineno, guard)
                    best = one if best is None or one[:3] < best[:3] else best
        if best is None:
            return None
        guard = best[3]
        return Condition("", guard.owner.path, guard.owner.symbol, guard.test.lineno, self._quote(guard))

    def _guards_of(self, function: Function) -> set[Guard]:
        sites = [site.guards for _, _, site in function.loads] + [store.guards for store in function.stores]
        return {guard for guards in sites for guard in guards}

    def _harmless(self, field: str, store: Store, found: list[Condition]) -> bool:
        """Does the assignment leave every condition false that asks for the field."""
        text = self.texts.of(store.value, store.function) if store.value is not None else "?"
        value = self.value(text)
        if value is UNKNOWN:
            return False
        chosen = {field: value}
        asking = [one.text for one in found if re.search(rf"\bargs\.{field}\b", one.text)]
        return all(conditions.holds(text, lambda atom: self._atom(atom, chosen)) is False for text in asking)

    def _closed(self, name: str, found: list[Condition]) -> list[Condition] | None:
        """With what keeps the arguments in the conditions from being set elsewhere."""
        known = {one.text for one in found}
        todo = list(found)
        while todo:
            for field in FIELD.findall(todo.pop().text):
                for store in self.writes.get(field, ()):
                    site = Site(store.target, store.guards, store.function)
                    if store.function.name in _PARSES or self.reach.runs(site) or self._harmless(field, store, found):
                        continue
                    edge = self.reach.edge(name, [site])
                    if edge is None or len(known) > 40:
                        return None
                    for guards in edge:
                        one = self._condition(guards)
                        if one.text not in known:
                            known.add(one.text)
                            found.append(one)
                            todo.append(one)
        return found
