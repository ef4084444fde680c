"""Which functions can run when nothing but a plain model is asked for: every other one is behind a condition.

Starts from all modules and follows every name that is loaded where no condition is certainly false. A method runs only
of a class that is named somewhere. What is not reached so is behind the conditions at the edge of what is.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable

from sglfleet.extract.reads.nodes import Class, Function, Guard, Site
from sglfleet.extract.reads.program import Program
from sglfleet.extract.reads.texts import Texts

_COMMANDS = re.compile(r"sglang/(launch_server|cli/\w+)\.py")
# classes that are looked for in their packages: every one of them may be made, named elsewhere or not
_DISCOVERED = re.compile(r"/multimodal(_processors|/processors)/|/managers/(multimodal_processor|io_struct)|/dllm/algo")
_ENTRIES = ("main", "serve", "run_server", "launch_server")


class Reach:
    """What runs, with conditions of which `false` says that they are certainly false."""

    def __init__(self, program: Program, texts: Texts, false: Callable[[str], bool]) -> None:
        self.program = program
        self.texts = texts
        self.false = false
        self.live: set[int] = set()  # functions
        self.made: set[int] = set()  # classes
        self.seen: set[tuple[str, str]] = set()  # names that are loaded where code runs, with what they can mean
        self._meant: dict[int, tuple[str, ...]] = {}
        self.sites: dict[str, list[tuple[str, Site]]] = defaultdict(list)
        self.inner: dict[int, list[Function]] = defaultdict(list)
        self._falses: dict[int, bool] = {}
        known = {*program.by_name, *program.methods, *program.class_by_name}
        for function in program.functions:
            if function.outer is not None:
                self.inner[id(function.outer)].append(function)
            for kind, name, site in function.loads:
                if kind == "pattern":
                    if len(name.replace(r"\w+", "")) > 6:  # `{name}_size` is no name of a function
                        for other in known:
                            if re.fullmatch(name, other):
                                self.sites[other].append((kind, site))
                elif name in known and not self._only_asked(site):
                    self.sites[name].append((kind, site))
        self._loads: dict[int, list[tuple[str, str, Site]]] = defaultdict(list)
        for name, found in self.sites.items():
            for kind, site in found:
                self._loads[id(site.function)].append((name, kind, site))
        self.subclasses: dict[str, list[Class]] = defaultdict(list)
        for cls in program.classes:
            for base in cls.bases:
                self.subclasses[base].append(cls)
        self._stack: list[Function] = []

    def run(self) -> None:
        """Follow everything anew: more conditions may have become possible."""
        self._falses.clear()
        self.live.clear()
        self.made.clear()
        self.seen.clear()
        for cls in self.program.classes:
            if _DISCOVERED.search(cls.path) or cls.name not in self.sites:
                self._make(cls)  # what nobody names is found in another way, or is dead: assume that it runs
        for function in self.program.functions:
            if function.outer is None:
                self._enter(function)
        while self._stack:
            self._scan(self._stack.pop())

    def _only_asked(self, site: Site) -> bool:
        """The second argument of isinstance: the class is named, and nothing is made of it."""
        node = self.program.parents.get(site.node)
        while isinstance(node, ast.Tuple):
            node = self.program.parents.get(node)
        return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")

    def blocked(self, guards: tuple[Guard, ...]) -> list[Guard]:
        return [one for one in guards if self._is_false(one)]

    def _is_false(self, guard: Guard) -> bool:
        found = self._falses.get(id(guard))
        if found is None:
            found = self._falses[id(guard)] = self.false(self.texts.guard(guard))
        return found

    def runs(self, site: Site) -> bool:
        return id(site.function) in self.live and not self.blocked(site.guards)

    def _enter(self, function: Function) -> None:
        if id(function) not in self.live:
            self.live.add(id(function))
            self._stack.append(function)

    def _scan(self, function: Function) -> None:
        for name, kind, site in self._loads[id(function)]:
            new = [one for one in self.meant(kind, name, site) if (name, one) not in self.seen]
            if new and not self.blocked(site.guards):
                for one in new:
                    self._load(name, one)
        for inner in self.inner[id(function)]:
            self._try(inner)

    def _load(self, name: str, meant: str) -> None:
        self.seen.add((name, meant))
        for function in (*self.program.by_name.get(name, ()), *self.program.methods.get(name, ())):
            self._try(function)
        for cls in self.program.class_by_name.get(name, ()):
            if meant == cls.path or (meant in ("", "text") and "/srt/models/" not in cls.path):
                self._make(cls)

    def meant(self, kind: str, name: str, site: Site) -> tuple[str, ...]:
        """What a load of a name can mean: a module that defines it, a family of classes, or ("") anything."""
        found = self._meant.get(id(site))
        if found is None:
            found = ("",)
            if kind == "text":
                found = ("text",)
            elif kind == "name":
                paths = self.program.defined(site.function.path, name, site.node)
                found = ("",) if paths is None else tuple(sorted(paths))
                if name in self.program.class_by_name and "/srt/models/" not in site.function.path:
                    found = tuple(one for one in found if "/srt/models/" not in one)  # made by its architecture alone
            elif kind == "attr" and isinstance(site.node, ast.Attribute):
                found = self._of_owner(name, site, site.node.value)
            self._meant[id(site)] = found
        return found

    def _of_owner(self, name: str, site: Site, owner: ast.expr) -> tuple[str, ...]:
        program = self.program
        if ast.unparse(owner) == "super()":
            family = program.family_of(site.function)
        else:
            family = program.family.get(program.class_of(owner, site.function), "")
        if family and any(program.family_of(one) == family for one in program.methods.get(name, ())):
            return (f"class {family}",)
        paths = program.owned(site.function.path, owner)
        return ("",) if paths is None else tuple(sorted(paths))

    def names(self, function: Function) -> tuple[str, ...]:
        """What must have been meant for a function to be called."""
        if function.cls is not None:
            return ("", "text", f"class {self.program.family_of(function)}")
        return ("", "text", function.path)

    def _make(self, cls: Class) -> None:
        if id(cls) in self.made:
            return
        self.made.add(id(cls))
        for method in cls.methods.values():
            self._try(method)
        for base in cls.bases:
            for one in self.program.class_by_name.get(base, ()):
                self._make(one)

    def _try(self, function: Function) -> None:
        if id(function) in self.live:
            return
        if function.outer is not None and id(function.outer) not in self.live:
            return
        if self.blocked(function.guards):
            return
        if function.cls is not None and id(function.cls) not in self.made:
            return
        if self.unasked(function) or any((function.name, one) in self.seen for one in self.names(function)):
            self._enter(function)

    def unasked(self, function: Function) -> bool:
        """Runs without being named: registered, special, or of a class whose base is not in the tree."""
        cls = function.cls
        if function.name not in self.sites:
            return True
        if function.registered or (function.name in _ENTRIES and _COMMANDS.match(function.path)):
            return True
        if cls is None:
            return False
        return (
            (function.name.startswith("__") and function.name.endswith("__"))
            or cls.foreign
            or function.name == "forward"
        )

    def edge(self, name: str, sites: list[Site]) -> list[tuple[Guard, ...]] | None:
        """Conditions at the edge of what runs, on every way to places that do not run; None where there is a way with
        no other condition than one on the argument `name` itself."""
        walk = _Edge(self, re.compile(rf"\bargs\.{name}\b"))
        for site in sites:
            walk.site(site)
        return None if walk.open else list(walk.found.values())


class _Edge:
    """One walk back from where an argument is used."""

    def __init__(self, reach: Reach, own: re.Pattern[str]) -> None:
        self.reach = reach
        self.own = own
        self.found: dict[int, tuple[Guard, ...]] = {}
        self.visited: set[int] = set()
        self.open = False

    def _guards(self, guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
        texts = self.reach.texts
        return tuple(one for one in self.reach.blocked(guards) if not self.own.search(texts.guard(one)))

    def site(self, site: Site) -> None:
        guards = self._guards(site.guards)
        if guards:
            self.found[id(guards[0])] = guards
        else:
            self.function(site.function)

    def function(self, function: Function) -> None:
        reach = self.reach
        if id(function) in reach.live:
            self.open = True
        if id(function) in self.visited or self.open:
            return
        self.visited.add(id(function))
        guards = self._guards(function.guards)
        if guards:
            self.found[id(guards[0])] = guards
        elif function.outer is not None and id(function.outer) not in reach.live:
            self.function(function.outer)
        elif function.cls is not None and id(function.cls) not in reach.made:
            self.cls(function.cls)
        elif function.registered:
            self.open = True
        else:
            wanted = reach.names(function)
            for kind, site in reach.sites.get(function.name, ()):
                if any(one in wanted for one in reach.meant(kind, function.name, site)):
                    self.site(site)

    def cls(self, cls: Class) -> None:
        reach = self.reach
        if id(cls) in self.visited:
            return
        self.visited.add(id(cls))
        for kind, site in reach.sites.get(cls.name, ()):
            if any(one in ("", "text", cls.path) for one in reach.meant(kind, cls.name, site)):
                self.site(site)
        for sub in reach.subclasses[cls.name]:
            if id(sub) not in reach.made:
                self.cls(sub)
