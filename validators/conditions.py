"""Evaluates the source text of one of the engine's conditions with three values: true, false, nobody can tell.

Nothing is executed: the text is parsed, and only comparisons, `and`, `or`, `not`, `in`, `a if b else c`, literals,
whole-number arithmetic, and a few calls that change nothing (`len`, `set`, `.upper()`, `getattr` with a name) are
understood.
What any other piece is, `lookup` says from its source text ("self.tp_size", "is_sm90_supported()"), or UNKNOWN.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final


class _Unknown:
    """The third value; no comparison with it is true or false."""

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false")


UNKNOWN: Final = _Unknown()
Lookup = Callable[[str], Any]


def holds(text: str, lookup: Lookup) -> bool | None:
    """Is the condition true, false, or (None) not to be told."""
    tree = _parse(text)
    if tree is None:
        return None
    found = _truth(tree, lookup)
    return None if found is UNKNOWN else bool(found)


def value(text: str, lookup: Lookup) -> Any:
    """What an expression is, or UNKNOWN."""
    tree = _parse(text)
    return UNKNOWN if tree is None else _value(tree, lookup)


@lru_cache(maxsize=4096)
def atoms(text: str) -> frozenset[str]:
    """The pieces of a condition that only `lookup` can tell."""
    tree = _parse(text)
    return frozenset((text,)) if tree is None else frozenset(_pieces(tree))


def _pieces(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        return
    inner: list[ast.expr] = []
    if isinstance(node, ast.BoolOp):
        inner = node.values
    elif isinstance(node, ast.UnaryOp):
        inner = [node.operand]
    elif isinstance(node, ast.Compare):
        inner = [node.left, *node.comparators]
    elif isinstance(node, ast.IfExp):
        inner = [node.test, node.body, node.orelse]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        inner = node.elts
    elif isinstance(node, ast.BinOp):
        inner = [node.left, node.right]
    elif isinstance(node, ast.Call) and _attribute(node):
        if isinstance(node.args[0], ast.Call | ast.Subscript):
            yield from _pieces(node.args[0])
        else:
            yield f"{_source(node.args[0])}.{_attribute(node)}"
        return
    elif isinstance(node, ast.Subscript) and not _KNOWN_WHOLE.search(_source(node)):
        inner = [node.value, node.slice]
    elif _rounds(node) is not None:
        name, items, each = _rounds(node) or ("", node, node)
        yield from _pieces(items)
        yield from (piece for piece in _pieces(each) if piece != name)
        return
    elif isinstance(node, ast.Call) and not node.keywords and node.args:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node.func, ast.Attribute) and name in _OF_TEXT:
            inner = [node.func.value, *node.args]
        elif isinstance(node.func, ast.Name) and (name in _OF_VALUES or name in _OF_SEVERAL):
            inner = node.args
        elif isinstance(node.func, ast.Name) and name == "isinstance":
            inner = node.args[:1]
        elif (
            isinstance(node.func, ast.Attribute) and name == "get" and not _source(node.func.value).startswith("envs.")
        ):
            inner = [node.func.value, *node.args]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TEXT:
        inner = [node.func.value]
    elif isinstance(node, ast.Dict):
        inner = [*(key for key in node.keys if key is not None), *node.values]
    if not inner and not isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
        yield _source(node)
    for child in inner:
        yield from _pieces(child)


@lru_cache(maxsize=8192)
def _parse(text: str) -> ast.expr | None:
    source = text.strip()
    for prefix in ("if ", "elif ", "assert ", "return "):
        source = source.removeprefix(prefix)
    if not source:
        return None
    try:
        return ast.parse(f"({source.rstrip(':')})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=8192)
def _source(node: ast.expr) -> str:
    return ast.unparse(node)


def _value(node: ast.expr, lookup: Lookup) -> Any:
    kind = type(node)
    if kind is ast.Constant:
        return node.value  # type: ignore[attr-defined]
    if kind is ast.BoolOp:
        return _first(isinstance(node.op, ast.And), node.values, lookup)  # type: ignore[attr-defined]
    if kind is ast.UnaryOp:
        return _unary(node, lookup)  # type: ignore[arg-type]
    if kind is ast.Compare:
        return _compare(node, lookup)  # type: ignore[arg-type]
    if kind is ast.IfExp:
        return _choice(node, lookup)  # type: ignore[arg-type]
    if kind in (ast.Tuple, ast.List):
        return [_value(item, lookup) for item in node.elts]  # type: ignore[attr-defined]
    if kind is ast.Set:
        items = [_value(item, lookup) for item in node.elts]  # type: ignore[attr-defined]
        return items if UNKNOWN in items else sorted(set(items), key=str)
    if kind is ast.Dict:
        return _table(node, lookup)  # type: ignore[arg-type]
    if kind is ast.BinOp:
        return _arithmetic(node, lookup)  # type: ignore[arg-type]
    found = lookup(_source(node))
    if found is not UNKNOWN:
        return list(found) if isinstance(found, tuple) else found  # as literals are read: (9, 0) is [9, 0] here
    if kind is ast.Call:
        return _call(node, lookup)  # type: ignore[arg-type]
    return _item(node, lookup) if kind is ast.Subscript else UNKNOWN  # type: ignore[arg-type]


def _call(node: ast.Call, lookup: Lookup) -> Any:
    """Calls whose result depends on their arguments alone."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if node.keywords:
        return UNKNOWN
    if isinstance(node.func, ast.Attribute) and name == "get":
        return _entry(node, lookup)
    if name == "isinstance" and len(node.args) == 2:
        return _kind(_value(node.args[0], lookup), node.args[1])
    if isinstance(node.func, ast.Attribute):
        text = _value(node.func.value, lookup)
        words = [_value(argument, lookup) for argument in node.args]
        known = isinstance(text, str) and all(isinstance(word, str) for word in words)
        return getattr(text, name)(*words) if known and name in _OF_TEXT else UNKNOWN
    if name in ("any", "all"):
        return _several(node, name == "all", lookup)
    if _attribute(node):
        return lookup(f"{_source(node.args[0])}.{_attribute(node)}")
    if name in _OF_SEVERAL and len(node.args) > 1:
        values = [_value(argument, lookup) for argument in node.args]
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
        return _OF_SEVERAL[name](values) if numbers else UNKNOWN
    if name in _OF_VALUES and len(node.args) == 1:
        subject = _value(node.args[0], lookup)
        if subject is UNKNOWN or (isinstance(subject, list) and UNKNOWN in subject):
            return UNKNOWN
        try:
            return _OF_VALUES[name](subject)
        except (TypeError, ValueError):
            return UNKNOWN
    return UNKNOWN


def _table(node: ast.Dict, lookup: Lookup) -> Any:
    """A dictionary that is written out; UNKNOWN where a key is."""
    keys = [UNKNOWN if key is None else _value(key, lookup) for key in node.keys]
    if any(key is UNKNOWN or isinstance(key, list) for key in keys):
        return UNKNOWN
    return dict(zip(keys, (_value(one, lookup) for one in node.values), strict=True))


def _entry(node: ast.Call, lookup: Lookup) -> Any:
    """`table.get(key, otherwise)` of a dictionary that is known."""
    assert isinstance(node.func, ast.Attribute)
    table = _value(node.func.value, lookup)
    values = [_value(argument, lookup) for argument in node.args]
    if not isinstance(table, dict) or not 1 <= len(values) <= 2 or values[0] is UNKNOWN or isinstance(values[0], list):
        return UNKNOWN
    return table.get(values[0], values[1] if len(values) == 2 else None)


def _kind(subject: Any, named: ast.expr) -> Any:
    names = [_source(one) for one in (named.elts if isinstance(named, ast.Tuple) else [named])]
    if subject is UNKNOWN or any(name not in _KINDS for name in names):
        return UNKNOWN
    return any(isinstance(subject, _KINDS[name]) for name in names)


_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "dict": dict,
    "list": (list, tuple),
    "tuple": (list, tuple),
}
_KNOWN_WHOLE = re.compile(r"architectures\[0\]$|capability\([^()]*\)\[\d\]$|server_args_dict\[")
_OF_TEXT = ("upper", "lower", "strip", "startswith", "endswith", "replace")
_OF_SEVERAL: dict[str, Callable[[Any], Any]] = {"max": max, "min": min}
_OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "set": lambda one: sorted(set(one), key=str),
    "bool": bool,
    "int": int,
    "str": lambda one: one if isinstance(one, str) else UNKNOWN,
}


def _attribute(node: ast.Call) -> str:
    """The name in `getattr(x, "name", …)`."""
    named = node.args[1] if getattr(node.func, "id", "") == "getattr" and len(node.args) in (2, 3) else None
    return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else ""


def _rounds(node: ast.expr) -> tuple[str, ast.expr, ast.expr] | None:
    """`any(each for name in items)`: name, items, each."""
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("any", "all") and len(node.args) == 1):
        return None
    loop = node.args[0]
    if not (isinstance(loop, ast.GeneratorExp | ast.ListComp) and len(loop.generators) == 1):
        return None
    one = loop.generators[0]
    return (one.target.id, one.iter, loop.elt) if isinstance(one.target, ast.Name) and not one.ifs else None


def _several(node: ast.Call, every: bool, lookup: Lookup) -> Any:
    """`any(…)`, `all(…)` over a list that is known."""
    found = _rounds(node)
    items = _value(found[1], lookup) if found else UNKNOWN
    if found is None or not isinstance(items, list | tuple):
        return UNKNOWN
    name, _, each = found
    unsure = False
    for item in items:

        def here(atom: str, item: Any = item) -> Any:
            return item if atom == name else lookup(atom)

        told = UNKNOWN if item is UNKNOWN else _truth(each, here)
        if told is UNKNOWN:
            unsure = True
        elif told is not every:
            return told
    return UNKNOWN if unsure else every


def _arithmetic(node: ast.BinOp, lookup: Lookup) -> Any:
    left, right = _value(node.left, lookup), _value(node.right, lookup)
    operate = _OPERATORS.get(type(node.op))
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (left, right))
    if operate is None or not numbers or max(abs(left), abs(right)) > 1 << 40:
        return UNKNOWN
    try:
        return operate(left, right)
    except ZeroDivisionError:
        return UNKNOWN


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}


def _item(node: ast.Subscript, lookup: Lookup) -> Any:
    """One of a list that is known, by its number, or of a dictionary, by its key."""
    subject = _value(node.value, lookup)
    if isinstance(subject, dict):
        key = _value(node.slice, lookup)
        return UNKNOWN if key is UNKNOWN or isinstance(key, list) else subject.get(key, UNKNOWN)
    number = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return UNKNOWN
    return subject[number] if isinstance(subject, list | tuple) and -len(subject) <= number < len(subject) else UNKNOWN


def _choice(node: ast.IfExp, lookup: Lookup) -> Any:
    """`a if test else b`: where the test cannot be told, only what both branches agree on."""
    test = _truth(node.test, lookup)
    if test is not UNKNOWN:
        return _value(node.body if test else node.orelse, lookup)
    one, other = _value(node.body, lookup), _value(node.orelse, lookup)
    return one if one is not UNKNOWN and other is not UNKNOWN and one == other else UNKNOWN


def _unary(node: ast.UnaryOp, lookup: Lookup) -> Any:
    if isinstance(node.op, ast.Not):
        told = _truth(node.operand, lookup)
        return UNKNOWN if told is UNKNOWN else not told
    value = _value(node.operand, lookup)
    if value is UNKNOWN:
        return UNKNOWN
    return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN


def _truth(node: ast.expr, lookup: Lookup) -> Any:
    """True, False or UNKNOWN: what a test asks for. `and` is false where any part is, `or` true, wherever it stands."""
    if isinstance(node, ast.BoolOp):
        every = isinstance(node.op, ast.And)
        unsure = False
        for one in node.values:
            told = _truth(one, lookup)
            if told is UNKNOWN:
                unsure = True
            elif told is not every:
                return told
        return UNKNOWN if unsure else every
    found = _value(node, lookup)
    return UNKNOWN if found is UNKNOWN else bool(found)


def _first(every: bool, values: list[ast.expr], lookup: Lookup) -> Any:
    """The value of `a or b`, `a and b`: known where everything before the part that decides is."""
    value: Any = every
    for node in values:
        value = _value(node, lookup)
        if value is UNKNOWN or bool(value) is not every:
            return value
    return value


def _compare(node: ast.Compare, lookup: Lookup) -> Any:
    left = _value(node.left, lookup)
    unsure = False
    for compared, right_node in zip(node.ops, node.comparators, strict=True):
        right = _value(right_node, lookup)
        if _unsure(compared, left, right):
            unsure = True
        else:
            try:
                if not _test(compared, left, right):
                    return False
            except TypeError:
                unsure = True
        left = right
    return UNKNOWN if unsure else True


def _unsure(compared: ast.cmpop, left: Any, right: Any) -> bool:
    if left is UNKNOWN or right is UNKNOWN:
        return True
    if isinstance(right, list) and any(item is UNKNOWN for item in right):
        return not (isinstance(compared, ast.In | ast.NotIn) and any(item == left for item in right))
    return isinstance(left, list) and any(item is UNKNOWN for item in left)


def _test(compared: ast.cmpop, left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return _lists(compared, left, right)
    if isinstance(compared, ast.Eq | ast.Is):
        return bool(left == right and (left is None) == (right is None))
    if isinstance(compared, ast.NotEq | ast.IsNot):
        return not (left == right and (left is None) == (right is None))
    if isinstance(compared, ast.In):
        return left in right
    if isinstance(compared, ast.NotIn):
        return left not in right
    if isinstance(compared, ast.Lt):
        return bool(left < right)
    if isinstance(compared, ast.LtE):
        return bool(left <= right)
    if isinstance(compared, ast.Gt):
        return bool(left > right)
    return bool(left >= right)


_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _lists(compared: ast.cmpop, left: list[Any], right: list[Any]) -> bool:
    """Two lists, tuples or sets: the source compares them by order (`==` of tuples) or as sets (`<=`)."""
    if isinstance(compared, ast.Eq | ast.NotEq):
        return (left == right) is isinstance(compared, ast.Eq)
    if isinstance(compared, ast.In | ast.NotIn):
        return (left in right) is isinstance(compared, ast.In)
    if all(type(item) is int for item in (*left, *right)):  # (major, minor) >= (8, 9): by order
        if type(compared) not in _ORDERS:
            raise TypeError("not a comparison by order")
        return _ORDERS[type(compared)](left, right)
    if any(not isinstance(item, str) for item in (*left, *right)):
        raise TypeError("only names are compared as sets")
    one, other = set(left), set(right)
    if isinstance(compared, ast.LtE | ast.Lt):
        return one <= other if isinstance(compared, ast.LtE) else one < other
    if isinstance(compared, ast.GtE | ast.Gt):
        return one >= other if isinstance(compared, ast.GtE) else one > other
    raise TypeError("not a comparison of sets")
