"""The source of one release as functions with what they load and store, each under the conditions on the way there.

Syntactic and over-approximate on purpose: whoever asks "is this read anywhere" must not miss a place. A method is any
function of that name; a name in a string counts as the name itself.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from sglfleet.extract.reads.nodes import Class, Fn, Function, Guard, Store, absolute, children
from sglfleet.extract.reads.walk import Walk

_ASIDE = re.compile(
    r"^sglang/(?!srt/|launch_server\.py|cli/)|/tests?/"
    r"|^sglang/srt/(debug_utils/(comparator|schedule_simulator)|hardware_backend/(npu|mlx|mps|xpu|cpu))/"
)
_PLAIN_BASES = {"ABC", "object", "Enum", "IntEnum", "str", "int", "Protocol", "Generic", "Module", "NamedTuple"}


class Program:
    """All of a release that runs in a server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.lines: dict[str, list[str]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.by_name: dict[str, list[Function]] = defaultdict(list)  # module level and nested functions
        self.methods: dict[str, list[Function]] = defaultdict(list)
        self.class_by_name: dict[str, list[Class]] = defaultdict(list)
        self.stops: list[tuple[tuple[Guard, ...], Function]] = []  # what raises, under which conditions
        self.attributes: dict[str, list[Store]] = defaultdict(list)
        self.names: dict[tuple[str, str], list[Store]] = defaultdict(list)  # (module, name) -> module level stores
        self.aliases: dict[tuple[str, str], str] = {}  # (module, alias) -> imported name
        self.fields_of: dict[str, set[str]] = defaultdict(set)  # class -> annotated fields
        self.modules: dict[tuple[str, str], str] = {}  # (module, name) -> module that the name stands for
        self.imports: dict[tuple[str, str], list[tuple[ast.AST, str]]] = defaultdict(
            list
        )  # (module, name) -> where from
        self._named_after: dict[str, str] = {}
        self.family: dict[str, str] = {}  # class -> one name for all that it shares methods with
        for path in sorted((root / "sglang").rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not _ASIDE.search(name):
                self._module(name, path.read_text(encoding="utf-8"))
        self._families()
        known = {one.name for one in self.classes} | _PLAIN_BASES
        for cls in self.classes:
            cls.foreign = any(base not in known for base in cls.bases)
        for one in self.functions:
            for store in one.stores:
                if isinstance(store.target, ast.Attribute):
                    self.attributes[store.name].append(store)
                elif isinstance(store.target, ast.Name) and (not isinstance(one.node, Fn) or store.name in one.globals):
                    self.names[(one.path, store.name)].append(store)

    def _module(self, path: str, source: str) -> None:
        try:
            tree = ast.parse(source)
        except SyntaxError:
            return
        self.lines[path] = source.splitlines()
        todo: list[ast.AST] = [tree]
        while todo:
            node = todo.pop()
            for child in children(node):
                self.parents[child] = node
                todo.append(child)
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.modules[(path, alias.asname or alias.name.partition(".")[0])] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            if isinstance(node, ast.ImportFrom):
                source = absolute(path, node)
                for alias in node.names:
                    self.imports[(path, alias.name)].append((node, source))
                    if alias.asname and alias.asname != alias.name:
                        self.aliases[(path, alias.asname)] = alias.name
        top = Function("", path, tree, "")
        self.functions.append(top)
        Walk(self, top).block(tree.body, ())

    def _families(self) -> None:
        """Classes that inherit from each other, or from the same: `self.f` means a function of one of them."""
        up = {one.name: one.name for one in self.classes}

        def top(name: str) -> str:
            while up[name] != name:
                name = up[name]
            return name

        for one in self.classes:
            for base in one.bases:
                if base in up:
                    up[top(one.name)] = top(base)
        self.family = {name: top(name) for name in up}

    def family_of(self, f: Function | None) -> str:
        """Of the class that a function stands in, or ""."""
        while f is not None and f.cls is None:
            f = f.outer
        return self.family.get(f.cls.name, "") if f is not None and f.cls is not None else ""

    def class_of(self, owner: ast.expr, f: Function) -> str:
        """The class that an expression is an object of: by its annotation, by what it is made of, or by its name
        (`self.tokenizer_manager` is a TokenizerManager); "" where nothing says it."""
        if isinstance(owner, ast.Name):
            if owner.id in self.class_by_name:
                return owner.id
            here: Function | None = f
            while here is not None:
                if owner.id in ("self", "cls") and here.cls is not None:
                    return here.cls.name
                if isinstance(here.node, Fn) and owner.id in here.params:
                    return self._annotated(here.node, owner.id) or self._called_like(owner.id)
                here = here.outer
            return self._called_like(owner.id)
        return self._called_like(owner.attr) if isinstance(owner, ast.Attribute) else ""

    def _annotated(self, node: Fn, name: str) -> str:
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if one.arg == name and one.annotation is not None:
                words = [w for w in re.findall(r"\w+", ast.unparse(one.annotation)) if w in self.class_by_name]
                return words[0] if len(words) == 1 else ""
        return ""

    def _called_like(self, name: str) -> str:
        if not self._named_after:
            self._named_after = {n.lower(): n for n, found in self.class_by_name.items() if len(found) == 1}
        return self._named_after.get(name.lower().replace("_", ""), "") if len(name) > 4 else ""

    def module(self, dotted: str) -> str:
        path = dotted.replace(".", "/")
        return next((one for one in (f"{path}.py", f"{path}/__init__.py") if one in self.lines), "")

    def owned(self, path: str, owner: ast.expr) -> set[str] | None:
        """Of `owner.name`: modules that define the name where the owner is a module; None where it is none."""
        root = owner
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name):
            return None
        dotted = self.modules.get((path, root.id))
        if dotted is None:
            sources = self._sources(path, self.aliases.get((path, root.id), root.id), owner)
            source = next(iter(sources)) if len(sources) == 1 else ""
            dotted = f"{source}.{self.aliases.get((path, root.id), root.id)}" if source else ""
            if not dotted or (dotted.startswith("sglang") and not self.module(dotted)):
                return None
            if not dotted.startswith("sglang") and root is not owner:
                return None  # an object of another package, of which nothing is known
            if not dotted.startswith("sglang"):
                return set()
        if not dotted.startswith("sglang"):
            return set()
        found = self.module(dotted) if root is owner else ""
        return {found} if found and not found.endswith("__init__.py") else None

    def defined(self, path: str, name: str, node: ast.AST | None = None) -> set[str] | None:
        """Modules that may define a name that is loaded in `path`; None: any. An empty set: nothing of the tree."""
        found: set[str] = set()
        todo = [(path, node)]
        seen = set()
        while todo:
            here, at = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            own = any(one.path == here for one in (*self.by_name.get(name, ()), *self.class_by_name.get(name, ())))
            sources = self._sources(here, name, at)
            if own:
                found.add(here)
            elif not sources:
                return None
            for source in sources:
                module = self.module(source)
                if module:
                    todo.append((module, None))
                elif source.startswith("sglang"):
                    return None
        return found

    def _sources(self, path: str, name: str, node: ast.AST | None) -> set[str]:
        """Modules that a name is imported from; where one import stands on the way to `node`, only that one."""
        imports = self.imports.get((path, name), [])
        if node is None or len(imports) < 2:
            return {source for _, source in imports}
        line = getattr(node, "lineno", 0)
        above = set()
        parent: ast.AST | None = node
        while parent is not None:
            above.add(parent)
            parent = self.parents.get(parent)
        before = [(one.lineno, source) for one, source in imports if one.lineno < line and self.parents[one] in above]  # type: ignore[attr-defined]
        return {max(before)[1]} if before else {source for _, source in imports}
