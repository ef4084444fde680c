"""Evaluates the source text of one of the engine's conditions with three values: true, false, nobody can tell.

Nothing is executed: the text is parsed, and only comparisons, `and`, `or`, `not`, `in`, `a if b else c` and literals
are understood.
What any other piece is, `lookup` says from its source text ("self.tp_size", "is_sm90_supported()"), or UNKNOWN.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
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
    value = _value(tree, lookup)
    return None if value is UNKNOWN else bool(value)


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
        return _bool(isinstance(node.op, ast.And), node.values, lookup)  # type: ignore[attr-defined]
    if kind is ast.UnaryOp:
        return _unary(node, lookup)  # type: ignore[arg-type]
    if kind is ast.Compare:
        return _compare(node, lookup)  # type: ignore[arg-type]
    if kind is ast.IfExp:
        return _choice(node, lookup)  # type: ignore[arg-type]
    if kind in (ast.Tuple, ast.List, ast.Set):
        return [_value(item, lookup) for item in node.elts]  # type: ignore[attr-defined]
    return lookup(_source(node))


def _choice(node: ast.IfExp, lookup: Lookup) -> Any:
    """`a if test else b`: where the test cannot be told, only what both branches agree on."""
    test = _value(node.test, lookup)
    if test is not UNKNOWN:
        return _value(node.body if test else node.orelse, lookup)
    one, other = _value(node.body, lookup), _value(node.orelse, lookup)
    return one if one is not UNKNOWN and other is not UNKNOWN and one == other else UNKNOWN


def _unary(node: ast.UnaryOp, lookup: Lookup) -> Any:
    value = _value(node.operand, lookup)
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(node.op, ast.Not):
        return not value
    return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN


def _bool(every: bool, values: list[ast.expr], lookup: Lookup) -> Any:
    """`and` stops at a false part, `or` at a true one, wherever it stands; else one unknown part makes it unknown."""
    unsure = False
    last: Any = every
    for node in values:
        value = _value(node, lookup)
        if value is UNKNOWN:
            unsure = True
        elif bool(value) is not every:
            return value
        else:
            last = value
    return UNKNOWN if unsure else last


def _compare(node: ast.Compare, lookup: Lookup) -> Any:
    left = _value(node.left, lookup)
    unsure = False
    for operator, right_node in zip(node.ops, node.comparators, strict=True):
        right = _value(right_node, lookup)
        if _unsure(operator, left, right):
            unsure = True
        else:
            try:
                if not _test(operator, left, right):
                    return False
            except TypeError:
                unsure = True
        left = right
    return UNKNOWN if unsure else True


def _unsure(operator: ast.cmpop, left: Any, right: Any) -> bool:
    if left is UNKNOWN or right is UNKNOWN:
        return True
    if isinstance(right, list) and any(item is UNKNOWN for item in right):
        return not (isinstance(operator, ast.In | ast.NotIn) and any(item == left for item in right))
    return isinstance(left, list) and any(item is UNKNOWN for item in left)


def _test(operator: ast.cmpop, left: Any, right: Any) -> bool:
    if isinstance(operator, ast.Eq | ast.Is):
        return bool(left == right and (left is None) == (right is None))
    if isinstance(operator, ast.NotEq | ast.IsNot):
        return not (left == right and (left is None) == (right is None))
    if isinstance(operator, ast.In):
        return left in right
    if isinstance(operator, ast.NotIn):
        return left not in right
    if isinstance(operator, ast.Lt):
        return bool(left < right)
    if isinstance(operator, ast.LtE):
        return bool(left <= right)
    if isinstance(operator, ast.Gt):
        return bool(left > right)
    return bool(left >= right)
