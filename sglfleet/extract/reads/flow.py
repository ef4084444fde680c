"""Where the value of one argument is used: every load of it, of what it is copied to, and of what it is handed to.

A copy, a parameter and a returned value are followed; printing is no use; in argument resolution a test that only
fills the field itself, raises or logs is none either. Everything else is one.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from sglfleet.extract.reads import families
from sglfleet.extract.reads.nodes import Fn, Function, Site, leaves
from sglfleet.extract.reads.program import Program
from sglfleet.extract.reads.reach import Reach
from sglfleet.extract.reads.texts import ENUMS, RESOLUTION

DECLARED = re.compile(r"sglang/srt/arg_groups/(fields/|field_order|arg_utils|argparse_actions)")
_PRINTS = re.compile(r"^(self\.)?_?(logger|logging|log|warnings|rank0_log|print|log_info_on_rank0|print_.*|warn.*)\b")
_PURE = {"bool", "int", "float", "str", "max", "min", "tuple", "list", "set", "copy", "deepcopy", "nullable_str", "abs"}
WRITES = {
    "declare_resolution",
    "override",
    "override_permanently",
    "override_server_args",
    "replace",
    "update",
    "dict",
}
_VALIDATES = re.compile(r"^_?validate_")
_COPIES, _PLACES = 60, 150
Token = tuple[str, str, str]  # kind, where, name


class Flow:
    def __init__(self, program: Program, reach: Reach, fields: set[str], parallel: set[str] | None) -> None:
        self.program = program
        self.reach = reach
        self.fields = fields
        self.parallel = parallel
        self._enums = {one.name for one in program.classes if ENUMS & set(one.bases)}
        self.loads: dict[str, list[tuple[str, Site]]] = defaultdict(list)
        self.patterns: list[tuple[re.Pattern[str], Site]] = []
        for function in program.functions:
            for kind, name, site in function.loads:
                if kind == "pattern":
                    self.patterns.append((re.compile(name), site))
                else:
                    self.loads[name].append((kind, site))
        self._functions: dict[int, Function] = {id(one.node): one for one in program.functions}

    def uses(self, name: str) -> tuple[list[Site], list[Site]]:
        """Places where the field is used: those that run whatever is asked for, and those behind a condition."""
        open_: list[Site] = []
        behind: list[Site] = []
        todo: list[Token] = [("attr", "", name), ("text", "", name)]
        seen: set[Token] = set(todo)
        for pattern, site in self.patterns:
            if pattern.fullmatch(name) and self.reach.runs(site) and self._of_arguments(site, name):
                open_.append(site)
        while todo:
            for site in self._loaded(todo.pop()):
                inside = RESOLUTION.match(site.function.path)
                if DECLARED.match(site.function.path) or site.function.name == "add_cli_args":
                    continue
                if inside and _VALIDATES.match(site.function.name):
                    continue
                where = self._flows(site, name)
                if where is None:
                    continue
                if not self.reach.runs(site):
                    behind.append(site)
                elif where and not families.of(name, site):
                    for token in where:
                        if token not in seen:
                            seen.add(token)
                            todo.append(token)
                else:
                    open_.append(site)
            if len(seen) > _COPIES or len(open_) > _PLACES:
                return [*open_, *behind], []  # too many to be followed: used everywhere
        return open_, behind

    def _of_arguments(self, site: Site, name: str) -> bool:
        """Can `getattr(owner, f"…")` mean the field: the widths of the parallel context are no other ones."""
        call = self.program.parents[site.node]
        assert isinstance(call, ast.Call)
        owner = ast.unparse(call.args[0])
        return self.parallel is None or owner not in ("parallel", "get_parallel()") or name in self.parallel

    def _loaded(self, token: Token) -> Iterator[Site]:
        kind, where, name = token
        for found, site in self.loads.get(name, ()):
            if (
                (kind == "attr" and found == "attr" and (not where or self._of_class(site, where)))
                or (kind == "text" and found == "text")
                or (kind == "local" and found == "name" and self._inside(site.function, where))
                or (kind == "global" and (found == "attr" or (found == "name" and not self._is_local(site, name))))
                or (kind == "returned" and found in ("name", "attr"))
            ):
                yield site

    def _of_class(self, site: Site, cls: str) -> bool:
        """Can it be an attribute of that class: by its owner, or in a file that names the class."""
        assert isinstance(site.node, ast.Attribute)
        program = self.program
        owner = program.class_of(site.node.value, site.function)
        if owner:
            return program.family.get(owner) == program.family.get(cls)
        path = site.function.path
        return (path, cls) in program.imports or any(one.path == path for one in program.class_by_name[cls])

    def _inside(self, function: Function, where: str) -> bool:
        here: Function | None = function
        while here is not None:
            if str(id(here)) == where:
                return True
            here = here.outer
        return False

    def _is_local(self, site: Site, name: str) -> bool:
        f = site.function
        return name in f.params or (
            isinstance(f.node, Fn) and name not in f.globals and name in self.reach.texts.locals(f)
        )

    # what becomes of one load

    def _flows(self, site: Site, name: str) -> list[Token] | None:
        """None: no use. An empty list: a use. Else what it is copied to."""
        node: ast.AST = site.node
        f = site.function
        if isinstance(node, ast.Constant):
            return self._named(node, site)
        while True:
            parent = self.program.parents.get(node)
            if parent is None:
                return []
            if isinstance(parent, ast.Call) and parent.func is node:
                if self._prints(parent):
                    return None
                node = parent  # what a function returned, or a method of the value
                continue
            if isinstance(parent, ast.keyword):
                call = self.program.parents[parent]
                assert isinstance(call, ast.Call)
                if self._pure(call):
                    node = call
                    continue
                return None if self._prints(call) else self._handed(call, parent.arg, -1, f)
            if isinstance(parent, ast.Call):
                if self._prints(parent):
                    return None
                if self._pure(parent):
                    node = parent
                    continue
                return self._handed(parent, None, parent.args.index(node), f) if node in parent.args else []
            if isinstance(parent, ast.IfExp) and parent.test is not node:
                node = parent
                continue
            if isinstance(parent, ast.Attribute) and parent.attr in ("lower", "upper", "strip", "copy"):
                node = parent
                continue
            if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or):
                node = parent
                continue
            if isinstance(parent, ast.FormattedValue | ast.JoinedStr):
                node = parent
                continue
            if isinstance(parent, ast.Raise):
                return None
            if isinstance(parent, ast.Assert):
                return None if node is parent.msg or RESOLUTION.match(f.path) else []
            if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and parent.value is node:
                targets: list[ast.expr] = [*parent.targets] if isinstance(parent, ast.Assign) else [parent.target]
                return self._targets(targets, f)
            if isinstance(parent, ast.Return) and parent.value is node:
                return self._returns(f)
            if isinstance(parent, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.BinOp | ast.Subscript | ast.IfExp):
                return self._tested(parent, site, name)
            if isinstance(parent, ast.If):
                return self._tested(node, site, name)
            return []

    def _prints(self, call: ast.Call) -> bool:
        return bool(_PRINTS.match(ast.unparse(call.func)))

    def _pure(self, call: ast.Call) -> bool:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return name in _PURE or name in self._enums or name == "from_string"

    def _targets(self, targets: list[ast.expr], f: Function) -> list[Token]:
        found: list[Token] = []
        for target in targets:
            if isinstance(target, ast.Attribute):
                if ast.unparse(target.value) != "self" and target.attr not in self.fields:
                    return []
                found.append(("attr", "" if target.attr in self.fields else self._class(f), target.attr))
            elif isinstance(target, ast.Name):
                if isinstance(f.node, Fn) and target.id not in f.globals:
                    found.append(("local", str(id(f)), target.id))
                else:
                    found.append(("global", f.path, target.id))
            else:
                return []
        return found

    @staticmethod
    def _class(f: Function) -> str:
        here: Function | None = f
        while here is not None and here.cls is None:
            here = here.outer
        return here.cls.name if here is not None and here.cls is not None else ""

    def _returns(self, f: Function) -> list[Token]:
        if not isinstance(f.node, Fn) or f.registered or f.name.startswith("__"):
            return []
        return [("returned", "", f.name)]

    def _handed(self, call: ast.Call, keyword: str | None, place: int, f: Function) -> list[Token]:
        """To a parameter of every function of that name, or to a field of every class of that name."""
        func = call.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        name = self.program.aliases.get((f.path, name), name)
        if name in WRITES and keyword in self.fields and RESOLUTION.match(f.path):
            return [("attr", "", str(keyword))]
        if name == "cls" and f.cls is not None:
            name = f.cls.name
        if any(isinstance(one, ast.Starred) for one in call.args[: max(place, 0)]):
            return []
        found: list[Token] = []
        functions = [*self.program.by_name.get(name, ()), *self.program.methods.get(name, ())]
        if isinstance(func, ast.Attribute):
            family = self.program.family.get(self.program.class_of(func.value, f), "")
            of_it = [one for one in functions if family and self.program.family_of(one) == family]
            paths = None if of_it else self.program.owned(f.path, func.value)
            functions = of_it or [one for one in functions if paths is None or one.path in paths]
            if not functions or (not of_it and name == f.name):
                return []  # of another package; a function that hands on to its namesake wraps one
        else:
            paths = self.program.defined(f.path, name, call)
            functions = [one for one in functions if one.cls is None and (paths is None or one.path in paths)]
        for cls in self.program.class_by_name.get(name, ()):
            inits = self._inits(cls.name)
            if inits:
                functions += inits
            elif keyword and keyword in self.program.fields_of.get(cls.name, ()):
                found.append(("attr", "", keyword))
            else:
                return []
        if len(functions) > 6:
            return []
        for one in functions:
            params = one.params
            if one.cls is not None and params[:1] in (["self"], ["cls"]):
                params = params[1:]
            if keyword is not None:
                if keyword not in params:
                    if isinstance(one.node, Fn) and one.node.args.kwarg is not None:
                        return []
                    continue
                found.append(("local", str(id(one)), keyword))
            elif place < len(params):
                found.append(("local", str(id(one)), params[place]))
            else:
                return []
        return found

    def _inits(self, cls: str, depth: int = 0) -> list[Function]:
        found = []
        for one in self.program.class_by_name.get(cls, ()):
            if "__init__" in one.methods:
                found.append(one.methods["__init__"])
            elif depth < 4:
                for base in one.bases:
                    found += self._inits(base, depth + 1)
        return found

    # text and tests

    def _named(self, node: ast.Constant, site: Site) -> list[Token] | None:
        """The name as a string: of something that is read by name, or only a key of what is written or printed."""
        parent = self.program.parents.get(node)
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return None  # the value that stands for it is looked at itself
        if isinstance(parent, ast.Subscript):
            return [] if isinstance(parent.ctx, ast.Load) else None
        if isinstance(parent, ast.Call):
            called = ast.unparse(parent.func)
            if called in ("setattr", "hasattr") or self._prints(parent) or called.endswith(("add_argument", ".pop")):
                return None
            if called == "getattr" and len(parent.args) > 1 and parent.args[1] is node:
                inner = Site(parent, site.guards, site.function)
                return self._flows(inner, str(node.value))
        if isinstance(parent, ast.Compare | ast.keyword):
            return None  # a word of the same spelling
        return []

    def _tested(self, node: ast.AST, site: Site, name: str) -> list[Token] | None:
        """In argument resolution: a test that only fills the field, raises or logs is no use; one that sets others is
        a copy to those."""
        if not RESOLUTION.match(site.function.path):
            return []
        while not isinstance(node, ast.stmt):
            parent = self.program.parents.get(node)
            if parent is None:
                return []
            if isinstance(parent, ast.Assign) and parent.value is node:
                return self._targets(parent.targets, site.function)
            if isinstance(parent, ast.Return):
                return self._returns(site.function)
            node = parent
        if isinstance(node, ast.Assert):
            return None
        if not isinstance(node, ast.If):
            return []
        touched: set[str] = set()
        body = [*node.body, *node.orelse]
        if leaves(node.body) and not isinstance(node.body[-1], ast.Raise):
            rest = self._rest(node)
            if rest is None:
                return []
            body += rest
        if not all(self._only_sets(one, touched) for one in body):
            return []
        touched.discard(name)
        return [("attr", "", one) for one in sorted(touched)] if touched else None

    def _rest(self, node: ast.If) -> list[ast.stmt] | None:
        parent = self.program.parents.get(node)
        if not isinstance(parent, Fn):
            return None
        return parent.body[parent.body.index(node) + 1 :]

    def _only_sets(self, node: ast.stmt, touched: set[str]) -> bool:
        if isinstance(node, ast.Raise | ast.Pass | ast.Assert | ast.Import | ast.ImportFrom | ast.Continue):
            return True
        if isinstance(node, ast.Return):
            return node.value is None
        if isinstance(node, ast.If):
            return all(self._only_sets(one, touched) for one in (*node.body, *node.orelse))
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr in self.fields:
                    touched.add(target.attr)
                elif isinstance(target, ast.Subscript) and getattr(target.slice, "value", None) in self.fields:
                    touched.add(target.slice.value)  # type: ignore[attr-defined]
                else:
                    return False
            return True
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return True
            if isinstance(node.value, ast.Call):
                call = node.value
                if self._prints(call):
                    return True
                called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if called in WRITES and all(k.arg in self.fields for k in call.keywords) and call.keywords:
                    touched.update(str(k.arg) for k in call.keywords)
                    return True
        return False
