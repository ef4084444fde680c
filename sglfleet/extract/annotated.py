"""Fields of ServerArgs: their defaults, and the options that annotated fields `A[type, Arg(…)]` become.

The rules are those of the release's own `add_cli_args_from_dataclass` (`sglang/srt/arg_groups/arg_utils.py`), the same
from 0.5.14 to 0.5.23. Its text is compared with theirs: a release with other rules is read by these, and says so.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import Any

from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.option import Call, Given, plain
from sglfleet.extract.scope import External
from sglfleet.extract.values import Class, Frame, Function, UnresolvedError, field_default

MISSING = object()
RULES = "sglang/srt/arg_groups/arg_utils.py"
FUNCTION = "add_cli_args_from_dataclass"
KNOWN_RULES = frozenset(
    ("5ab2a7d5dd42a05e", "b12db026de060636")
)  # digests of the function: 0.5.14 – 0.5.19, 0.5.20 – 0.5.23


@dataclass(frozen=True, slots=True)
class Field:
    """One field of ServerArgs."""

    interpreter: Interpreter
    name: str
    owner: Class
    node: ast.AnnAssign
    group: str

    @property
    def frame(self) -> Frame:
        return Frame(self.owner.path)

    def default(self, node: ast.AST | None = None) -> Any:
        """The value of a record that sets nothing; MISSING for a field that must be given. Raises UnresolvedError."""
        value = self.node.value
        if value is None:
            return MISSING
        given = field_default(value)
        if given is not None:
            return self.interpreter.value(given, self.frame)
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
            factory = next((k.value for k in value.keywords if k.arg == "default_factory"), None)
            return MISSING if factory is None else self._made(factory)
        return self.interpreter.value(value, self.frame)

    def _made(self, factory: ast.expr) -> Any:
        made = self.interpreter.value(factory, self.frame)
        if isinstance(made, External) and made.name in ("list", "dict", "tuple", "set"):
            return {} if made.name == "dict" else []
        if isinstance(made, Function):
            return self.interpreter.call(made, [], {}, factory, 0)
        raise UnresolvedError(factory)

    def json_default(self) -> Any:
        """The default for the knowledge file: `{"source": …}` where it cannot be known."""
        try:
            found = self.default()
            return {"required": True} if found is MISSING else plain(found)
        except UnresolvedError as error:
            return {"source": str(error)}

    def call(self) -> Call | None:
        """The option this field becomes, None for a field that is no option by itself."""
        annotation = self.node.annotation
        if not isinstance(annotation, ast.Subscript):
            return None
        if ast.unparse(annotation.value) not in ("A", "Annotated", "typing.Annotated"):
            return None
        elements = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
        meta = next((m for e in elements[1:] if (m := self._meta(e)) is not None), None)
        if meta is None or self._flag(meta.get("no_cli")):
            return None
        return self._option(self._unwrapped(elements[0]), meta)

    def _meta(self, node: ast.expr) -> dict[str, ast.expr | Given] | None:
        """Keywords of `Arg(…)`; a bare text is its help."""
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Arg":
            named: dict[str, ast.expr | Given] = {k.arg: k.value for k in node.keywords if k.arg}
            if node.args:
                named.setdefault("help", node.args[0])
            return named
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            return {"help": node}
        return None

    def _flag(self, node: ast.expr | Given | None) -> bool:
        return isinstance(node, ast.expr) and bool(self.interpreter.value(node, self.frame))

    def _unwrapped(self, node: ast.expr) -> ast.expr:
        """`Optional[X]`, `X | None` and `Union[X, None]` to X; any other union stays as it is."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._unwrapped(ast.parse(node.value, mode="eval").body)
        members = union(node)
        rest = [m for m in members if not (isinstance(m, ast.Constant) and m.value is None)]
        return rest[0] if len(members) > 1 and len(rest) == 1 else node

    def _option(self, inner: ast.expr, meta: dict[str, ast.expr | Given]) -> Call:
        cli_name = meta.get("cli_name")
        name = self.interpreter.value(cli_name, self.frame) if isinstance(cli_name, ast.expr) else None
        name = str(name or "--" + self.name.replace("_", "-"))
        aliases = meta.get("aliases")
        names = [name, *(self.interpreter.value(aliases, self.frame) or [] if isinstance(aliases, ast.expr) else [])]
        kwargs: dict[str, ast.expr | Given] = {"help": meta.get("help", Given("")), "dest": Given(self.name)}
        if self.node.value is not None:
            kwargs["default"] = _Default.of(self)
        kwargs.update(self._typed(inner, meta))
        return Call(list(names), kwargs, self.frame, self.owner.node.name, self.node.lineno, self.group)

    def _typed(self, inner: ast.expr, meta: dict[str, ast.expr | Given]) -> dict[str, ast.expr | Given]:
        """What depends on the field's type, in the order in which the release tests it."""
        kwargs = {k: meta[k] for k in ("const",) if k in meta}
        action = meta.get("action")
        if action is not None and not (isinstance(action, ast.Constant) and action.value is None):
            extra = meta.get("action_kwargs")
            more = extra if isinstance(extra, ast.Dict) else ast.Dict(keys=[], values=[])
            named: dict[str, ast.expr | Given] = {
                str(k.value): v for k, v in zip(more.keys, more.values, strict=True) if isinstance(k, ast.Constant)
            }
            return {"action": action, **named}
        base = ast.unparse(inner.value if isinstance(inner, ast.Subscript) else inner).rpartition(".")[2]
        parser = {"type": meta["type_parser"]} if "type_parser" in meta else {}
        if base == "Literal" and isinstance(inner, ast.Subscript):
            values = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            first = self.interpreter.value(values[0], self.frame)
            literal = Given([self.interpreter.value(v, self.frame) for v in values])
            return {**kwargs, "type": _type_of(type(first).__name__), **parser, "choices": meta.get("choices", literal)}
        choices = {"choices": meta["choices"]} if "choices" in meta else {}
        if base in ("List", "list") and not parser and isinstance(inner, ast.Subscript):
            element = ast.unparse(inner.slice)
            return {**kwargs, "type": _type_of(element), "nargs": meta.get("nargs", Given("+")), **choices}
        if base == "list" and not parser:
            raise UnresolvedError(inner)  # a bare list: no release has one, and its rule differs
        if base == "bool":
            return {"action": Given("store_true")}
        nargs = {"nargs": meta["nargs"]} if "nargs" in meta else {}
        required = {"required": meta.get("required", Given(True))} if self.node.value is None else {}
        if "required" in meta:
            required = {"required": meta["required"]}
        return {**kwargs, "type": _type_of(base), **parser, **choices, **nargs, **required}


class _Default:
    """The default of a field, as a keyword of its option."""

    @staticmethod
    def of(held: Field) -> ast.expr | Given:
        try:
            found = held.default()
        except UnresolvedError as error:
            return error.node if isinstance(error.node, ast.expr) else Given(None)
        return Given(None if found is MISSING else found)


def _type_of(name: str) -> Given:
    """argparse's type for a field type: everything that is no number is text."""
    return Given(External(name if name in ("int", "float") else "str"))


def union(node: ast.expr) -> list[ast.expr]:
    """Members of a union type; the type itself when it is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*union(node.left), *union(node.right)]
    if isinstance(node, ast.Subscript):
        base = ast.unparse(node.value).rpartition(".")[2]
        if base == "Optional":
            return [*union(node.slice), ast.Constant(value=None)]
        if base == "Union" and isinstance(node.slice, ast.Tuple):
            return [m for e in node.slice.elts for m in union(e)]
    return [node]


def collect(interpreter: Interpreter, owner: Class) -> dict[str, Field]:
    """All fields in the parser's order: of ServerArgs itself, or of the namespaces it is assembled from."""
    scope = interpreter.scopes.names(owner.path)
    if "_INPUT_NAMESPACES" not in scope:
        return {f.name: f for f in _declared(interpreter, owner, "")}
    found: dict[str, Field] = {}
    for namespace in interpreter.name(owner.path, "_INPUT_NAMESPACES"):
        group = str(interpreter.class_attribute(namespace, "_NS_PATH", namespace.node))
        found.update({f.name: f for f in _declared(interpreter, namespace, group)})
    order = interpreter.name("sglang/srt/arg_groups/field_order.py", "POSITIONAL_FIELD_ORDER")
    known = [name for name in order if name in found]
    return {name: found[name] for name in [*known, *(n for n in found if n not in set(known))]}


def doubts(interpreter: Interpreter) -> list[str]:
    """What makes the reading of annotated fields uncertain; nothing in all releases that are shipped."""
    tree = interpreter.scopes.tree
    if not tree.has(RULES):
        return []
    found = next((s for s in tree.ast(RULES).body if isinstance(s, ast.FunctionDef) and s.name == FUNCTION), None)
    if found is not None and digest(found) in KNOWN_RULES:
        return []
    return [f"{RULES}: {FUNCTION} is not the one of 0.5.14 – 0.5.23: options of annotated fields may differ"]


def digest(function: ast.FunctionDef) -> str:
    """Of its statements without docstring, comments and layout, the same under every Python."""
    text = "\n".join(ast.unparse(statement) for statement in function.body[1:])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _declared(interpreter: Interpreter, owner: Class, group: str) -> list[Field]:
    fields = []
    for statement in owner.node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if "ClassVar" in ast.unparse(statement.annotation):
                continue
            fields.append(Field(interpreter, statement.target.id, owner, statement, group))
    return fields
