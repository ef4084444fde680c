"""What a condition says in terms of the engine's arguments: `self.server_args.x`, `get_memory().x`, a copy of it, an
enumeration made of it, all become `args.x`. What cannot be traced back stays as it stands, and nobody can tell it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from sglfleet.extract.reads.calls import argument, members, single_return
from sglfleet.extract.reads.nodes import Fn, Function, Guard, Store
from sglfleet.extract.reads.program import Program

_OWNERS = re.compile(
    r"^(_?server_args|(resolving|resolved)_view\(.*server_args\)|.*\.server_args|get_(global_)?server_args\(\)|global_server_args)$"
)
_SPACES = "device|model|exec|schedule|memory|spec|lora|mm|disagg|serving|observability|parallel"
_CONTEXT = re.compile(
    rf"^get_({_SPACES})\(\)(\.(comm|moe|kernel|mamba|graph|overlap|offload|features|dllm|deterministic))?$"
)
_RESOLVING = ("cfg", "view", "args", "self", "server_args", "resolving_view(server_args)", "resolving_view(self)")
RESOLUTION = re.compile(r"sglang/srt/(server_args\.py|arg_groups/)")
_DEEP = 7
_LONG = 400
_ARGUMENT = re.compile(r"\bargs\.(\w+)")
ENUMS = {"Enum", "IntEnum", "StrEnum"}


class _Put(ast.NodeTransformer):
    """One name replaced by what it was assigned."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name = name
        self.value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node


class Texts:
    """Conditions of one release as text over `args.x`."""

    def __init__(self, program: Program, fields: Iterable[str]) -> None:
        self.program = program
        self.fields = set(fields)
        self._holders: dict[str, list[str]] | None = None
        self._kept: list[ast.expr] = []
        self._known: dict[tuple[int, str], str] = {}
        self._attributes: dict[tuple[str, str], str | None] = {}
        self._params: dict[tuple[int, str], str | None] = {}
        self._globals: dict[tuple[str, str], str | None] = {}
        self._returns: dict[str, tuple[Function, ast.expr] | None] = {}
        self._calls: dict[str, list[tuple[ast.Call, Function]]] | None = None
        self._locals: dict[int, dict[str, list[Store]]] = {}
        self._guards: dict[tuple[int, bool, int], str] = {}
        self._enums = {
            one.name: one
            for one in program.classes
            if ENUMS & set(one.bases) and len(program.class_by_name[one.name]) == 1
        }
        self._members = {name: members(cls) for name, cls in self._enums.items()}

    def guard(self, guard: Guard) -> str:
        key = (id(guard.test), guard.negated, id(guard.owner))
        found = self._guards.get(key)
        if found is None:
            text = self.of(guard.test, guard.owner)
            found = self._guards[key] = f"not ({text})" if guard.negated else text
        return found

    def either(self, guard: Guard) -> str:
        """The same where a local name is assigned in several places: it holds for one of them."""
        names = {n.id for n in ast.walk(guard.test) if isinstance(n, ast.Name)}
        found = [self.guard(guard)]
        for name in sorted(names - set(guard.owner.params)):
            stores = self.locals(guard.owner).get(name, [])
            values = [s.value for s in stores if s.value is not None and not isinstance(s.value, ast.Constant)]
            if len(stores) < 2 or not values:
                continue
            found = []
            for value in values[:4]:
                node = _Put(name, value).visit(ast.parse(ast.unparse(guard.test), mode="eval").body)
                self._kept.append(node)  # texts are remembered by node: a new one must not take its place
                text = self.of(node, guard.owner)
                found.append(f"not ({text})" if guard.negated else text)
            break
        return " or ".join(f"({one})" for one in dict.fromkeys(found))

    def mentions(self, guard: Guard) -> set[str]:
        """Arguments that a condition hangs on, through every assignment of the names in it."""
        return self._mentions(guard.test, guard.owner, 0)

    def _mentions(self, node: ast.expr, f: Function, depth: int) -> set[str]:
        found = set(_ARGUMENT.findall(self.of(node, f)))
        if depth < 3:
            for one in ast.walk(node):
                if isinstance(one, ast.Call):
                    found |= self._asked_by(
                        one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
                    )
                if isinstance(one, ast.Name) and one.id not in f.params:
                    for store in self.locals(f).get(one.id, ()):
                        if store.value is not None and store.value is not node:
                            found |= self._mentions(store.value, f, depth + 1)
        return found

    def _asked_by(self, name: str) -> set[str]:
        """Arguments that a function asks for, of what it is given or of its object."""
        functions = [*self.program.by_name.get(name, ()), *self.program.methods.get(name, ())]
        if len(functions) > 3:
            return set()
        return {
            attr
            for f in functions
            for kind, attr, site in f.loads
            if kind == "attr"
            and attr in self.fields
            and isinstance(site.node, ast.Attribute)
            and ast.unparse(site.node.value) in (*f.params, *_RESOLVING)
        }

    def of(self, node: ast.expr, function: Function, depth: int = 0) -> str:
        key = (id(node), str(id(function)))
        found = self._known.get(key)
        if found is None:
            found = self._text(node, function, depth)
            if depth == 0:
                self._known[key] = found
        return found

    def _text(self, node: ast.expr, f: Function, depth: int) -> str:
        if depth > _DEEP:
            return ast.unparse(node)
        out: str | None = None
        if isinstance(node, ast.Attribute):
            out = self._attribute(node, f, depth)
        elif isinstance(node, ast.Name):
            out = self._name(node, f, depth)
        elif isinstance(node, ast.Call):
            out = self._call(node, f, depth)
        elif isinstance(node, ast.Subscript):
            out = self._item(node, f)
        elif isinstance(node, ast.BoolOp):
            word = " and " if isinstance(node.op, ast.And) else " or "
            out = word.join(f"({self.of(v, f, depth)})" for v in node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            out = f"not ({self.of(node.operand, f, depth)})"
        elif isinstance(node, ast.Compare):
            parts = [self._side(node.left, f, depth)]
            for op, right in zip(node.ops, node.comparators, strict=True):
                parts += [_OPERATORS[type(op)], self._side(right, f, depth)]
            out = " ".join(parts)
        elif isinstance(node, ast.IfExp):
            a, b, c = (self.of(one, f, depth) for one in (node.body, node.test, node.orelse))
            out = f"(({a}) if ({b}) else ({c}))"
        elif isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) < 60:
            inner = ", ".join(self.of(one, f, depth) for one in node.elts)
            out = f"[{inner}]"
        elif isinstance(node, ast.NamedExpr):
            out = self.of(node.value, f, depth)
        return out if out is not None and len(out) < _LONG else ast.unparse(node)

    def _side(self, node: ast.expr, f: Function, depth: int) -> str:
        text = self.of(node, f, depth)
        return f"({text})" if isinstance(node, ast.BoolOp | ast.Compare | ast.UnaryOp) else text

    # one kind of expression each

    def _attribute(self, node: ast.Attribute, f: Function, depth: int) -> str | None:
        if node.attr in self.fields and self.is_arguments(node.value, f):
            return f"args.{node.attr}"
        whole = ast.unparse(node)
        if whole.endswith(".architectures[0]"):
            return "model_arch"
        if isinstance(node.value, ast.Name) and node.value.id in self._enums:
            member = self._members[node.value.id].get(node.attr)
            if member is not None:
                return repr(member)
        cls = self.program.class_of(node.value, f)
        found = self._copied(node.attr, self.program.family.get(cls, ""), cls, depth)
        if found is not None:
            return found
        method = self._returned(node.attr, property_=True)
        if method is not None:
            return f"({self.of(method[1], method[0], depth + 1)})"
        owner = self.of(node.value, f, depth + 1)
        return f"{owner}.{node.attr}" if len(owner) < 120 else None

    def _name(self, node: ast.Name, f: Function, depth: int) -> str | None:
        name = node.id
        if name == "model_arch":
            return name
        here: Function | None = f
        while here is not None:
            if name in here.params:
                return self._param(here, name, depth)
            if isinstance(here.node, Fn):
                stores = self.locals(here).get(name, [])
                if stores and name not in here.globals:
                    empty = [s for s in stores if isinstance(s.value, ast.Constant) and s.value.value in (None, False)]
                    stores = [s for s in stores if s not in empty] or stores
                    if len(stores) == 1 and stores[0].value is not None and isinstance(stores[0].target, ast.Name):
                        return f"({self.of(stores[0].value, here, depth + 1)})"
                    return f"{name}_of_{here.name}"
            here = here.outer
        return self._global(f.path, name, depth)

    def _call(self, node: ast.Call, f: Function, depth: int) -> str | None:
        func = node.func
        if isinstance(func, ast.Name):
            if func.id == "_resolve_speculative_algorithm_alias" and node.args:
                return self.of(node.args[0], f, depth + 1)  # another name of the same; nothing stays nothing
            if func.id in self._enums and len(node.args) == 1:
                return self.of(node.args[0], f, depth + 1)
            if func.id in ("bool", "len", "any", "all", "set") and len(node.args) == 1 and not node.keywords:
                return (
                    f"{func.id}({self.of(node.args[0], f, depth + 1)})"
                    if func.id != "bool"
                    else self.of(node.args[0], f, depth)
                )
            if func.id == "getattr" and len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
                name = node.args[1].value
                if isinstance(name, str) and name in self.fields and self.is_arguments(node.args[0], f):
                    return f"args.{name}"
            if not node.args and not node.keywords:
                found = self._returned(func.id)
                if found is not None:
                    return f"({self.of(found[1], found[0], depth + 1)})"
        if isinstance(func, ast.Attribute):
            owner = self.of(func.value, f, depth + 1)
            if func.attr == "from_string" and isinstance(func.value, ast.Name) and len(node.args) == 1:
                return self.of(node.args[0], f, depth + 1)
            if not node.args and func.attr.startswith(("is_", "supports_", "uses_", "enable_", "use_")):
                inside = self._of_enum(func.attr, owner)
                if inside is not None:
                    return inside
            if not node.args and not node.keywords and func.attr not in ("get", "item", "keys", "values"):
                found = self._returned(func.attr)
                if found is not None:
                    return f"({self.of(found[1], found[0], depth + 1)})"
            if func.attr in ("lower", "upper", "strip") and not node.args:
                return f"{owner}.{func.attr}()"
        return None

    def _of_enum(self, method: str, owner: str) -> str | None:
        """`X(args.y).is_z()`, where `is_z` compares with members of the enumeration."""
        if "args.speculative_algorithm" in owner:
            name = "args.speculative_algorithm"
            return f"{name} is None" if method == "is_none" else f"({name} is not None and spec_{method})"
        if not owner.strip("()").startswith("args.") or " " in owner:
            return None
        found = [one for one in self.program.methods.get(method, ()) if one.cls and one.cls.name in self._enums]
        texts = set()
        for one in found:
            body = single_return(one)
            if body is None or one.cls is None:
                return None
            members = self._members[one.cls.name]
            if not isinstance(body, ast.Compare) or ast.unparse(body.left) != "self" or len(body.ops) != 1:
                return None
            right = body.comparators[0]
            elements = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
            values = [members.get(e.attr) for e in elements if isinstance(e, ast.Attribute)]
            if len(values) != len(elements) or None in values:
                return None
            if isinstance(body.ops[0], ast.Eq | ast.Is | ast.In):
                texts.add(f"{owner} in {sorted(map(str, values))!r}")
            else:
                return None
        return next(iter(texts)) if len(texts) == 1 else None

    def _item(self, node: ast.Subscript, f: Function) -> str | None:
        whole = ast.unparse(node)
        if whole.endswith(".architectures[0]"):
            return "model_arch"
        known = isinstance(node.slice, ast.Constant) and node.slice.value in self.fields
        if known and re.fullmatch(r"\w*server_args_dict", ast.unparse(node.value)):
            return f"args.{ast.literal_eval(node.slice)}"
        return None

    # what a name stands for

    def is_arguments(self, owner: ast.expr, f: Function) -> bool:
        """Is this expression the engine's arguments (whole, or a group of them)."""
        text = ast.unparse(owner)
        if _OWNERS.match(text) or _CONTEXT.match(text):
            return True
        if RESOLUTION.match(f.path):
            if text == "self":
                here: Function | None = f
                while here is not None and here.cls is None:
                    here = here.outer
                return here is not None and here.cls is not None and here.cls.name == "ServerArgs"
            return text in _RESOLVING
        if isinstance(owner, ast.Name):
            stores = self.locals(f).get(owner.id, [])
            values = {ast.unparse(s.value) if s.value is not None else "" for s in stores}
            return bool(values) and all(_OWNERS.match(v) or _CONTEXT.match(v) for v in values)
        return False

    def locals(self, f: Function) -> dict[str, list[Store]]:
        found = self._locals.get(id(f))
        if found is None:
            found = self._locals[id(f)] = {}
            for one in f.stores:
                if isinstance(one.target, ast.Name):
                    found.setdefault(one.name, []).append(one)
        return found

    def _copied(self, attr: str, family: str, cls: str, depth: int) -> str | None:
        """`.attr` of something, where every assignment to an attribute of that name says the same of the arguments.

        `family`: only of classes of that family, where it is known whose attribute it is."""
        key = (attr, family)
        if key in self._attributes:
            return self._attributes[key]
        self._attributes[key] = None  # a name that is made of itself says nothing
        stores = [s for s in self.program.attributes.get(attr, ()) if not family or self._may_be(s, family)]
        out = None
        holders = [cls] if cls and attr in self.program.fields_of.get(cls, ()) else self._annotated(attr)
        if not stores and len(holders) == 1:
            out = self._constructed(holders[0], attr, depth)
        elif 0 < len(stores) <= 12 and (family or not self._annotated(attr)):
            texts = {self.of(s.value, s.function, depth + 1) if s.value is not None else "?" for s in stores}
            texts = {one for one in texts if one.strip("()") not in ("None", "False")} or texts
            if len(texts) == 1:
                text = texts.pop()
                out = f"({text})" if "args." in text else None
        self._attributes[key] = out
        return out

    def _may_be(self, store: Store, family: str) -> bool:
        assert isinstance(store.target, ast.Attribute)
        whose = self._family(store.target.value, store.function)
        return whose in ("", family)

    def _family(self, owner: ast.expr, f: Function) -> str:
        """Whose attribute it is; "" where nothing says it."""
        return self.program.family.get(self.program.class_of(owner, f), "")

    def _annotated(self, attr: str) -> list[str]:
        """Classes with an annotated field of that name, those that declare the arguments aside."""
        if self._holders is None:
            self._holders = {}
            declared = {one.name for one in self.program.classes if "arg_groups/fields/" in one.path} | {"ServerArgs"}
            for cls, names in self.program.fields_of.items():
                for name in names if cls not in declared else ():
                    self._holders.setdefault(name, []).append(cls)
        return self._holders.get(attr, [])

    def _constructed(self, cls: str, attr: str, depth: int) -> str | None:
        """A field of a record: what every call that makes one gives for it."""
        texts = set()
        for call, caller in self.called(cls):
            given = next((k.value for k in call.keywords if k.arg == attr), None)
            if given is None:
                return None
            texts.add(self.of(given, caller, depth + 1))
        text = texts.pop() if len(texts) == 1 else ""
        return f"({text})" if "args." in text else None

    def _param(self, f: Function, name: str, depth: int) -> str | None:
        key = (id(f), name)
        if key in self._params:
            return self._params[key]
        self._params[key] = f"{name}_given_to_{f.name}"
        texts = set()
        for count, (call, caller) in enumerate(self.calls(f)):
            given = argument(call, f, name)
            if given is None or count >= 8:
                texts.add("?")
                break
            texts.add(self.of(given, caller, depth + 1))
        if len(texts) == 1:
            text = texts.pop()
            if "args." in text or text in ("True", "False", "None"):
                self._params[key] = f"({text})"
        return self._params[key]

    def calls(self, f: Function) -> list[tuple[ast.Call, Function]]:
        """Every call of something of that name; of a constructor, of the class."""
        return self.called(f.cls.name if f.cls is not None and f.name == "__init__" else f.name)

    def called(self, name: str) -> list[tuple[ast.Call, Function]]:
        if self._calls is None:
            self._calls = {}
            for function in self.program.functions:
                for _kind, name, site in function.loads:
                    parent = self.program.parents.get(site.node)
                    if isinstance(parent, ast.Call) and parent.func is site.node:
                        self._calls.setdefault(name, []).append((parent, function))
        return self._calls.get(name, [])

    def _global(self, path: str, name: str, depth: int) -> str | None:
        key = (path, name)
        if key in self._globals:
            return self._globals[key]
        self._globals[key] = name
        stores = self.program.names.get(key, ())
        values = [s.value for s in stores if s.value is not None]
        plain = [v for v in values if not (isinstance(v, ast.Constant) and v.value in (None, False))]
        if len(values) == len(stores) and len(plain) == 1 and len(values) <= 2:
            owner = next(s.function for s in stores if s.value is plain[0])
            text = self.of(plain[0], owner, depth + 1)
            if len(text) < _LONG:
                self._globals[key] = f"({text})"
        return self._globals[key]

    def _returned(self, name: str, *, property_: bool = False) -> tuple[Function, ast.expr] | None:
        """The one thing that the one function of that name returns, where its arguments have no part in it."""
        key = f"{name}{property_}"
        if key not in self._returns:
            found = [*self.program.by_name.get(name, ()), *self.program.methods.get(name, ())]
            self._returns[key] = None
            if len(found) == 1 and found[0].is_property is property_ and set(found[0].params) <= {"self", "cls"}:
                body = single_return(found[0])
                if body is not None:
                    self._returns[key] = (found[0], body)
        return self._returns[key]


_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
