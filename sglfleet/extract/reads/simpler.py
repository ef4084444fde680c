"""Conditions of one argument as they are kept: without what substitution left behind, and none that another implies."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Condition:
    """What must hold for an argument to be read, and where the release asks for it."""

    text: str
    file: str
    symbol: str
    line: int
    quote: str


class _Simpler(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        inner = node.operand
        if not isinstance(node.op, ast.Not):
            return node
        if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not):
            return inner.operand
        if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and type(inner.ops[0]) in _OPPOSITE:
            return ast.Compare(inner.left, [_OPPOSITE[type(inner.ops[0])]()], inner.comparators)
        return node


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def plain(text: str) -> str:
    """The same condition without what substitution left behind: double negations and needless brackets."""
    return ast.unparse(_Simpler().visit(ast.parse(text, mode="eval")))


def needed(found: list[Condition]) -> list[Condition]:
    """Without those that cannot hold where none of the others does: `a and b` beside `a`."""
    out = list(found)
    for one in sorted(found, key=lambda c: (" or " in c.text, -len(c.text), c.text)):
        others = {part for c in out if c is not one for part in _parts(ast.parse(c.text, mode="eval").body, ast.Or)}
        parts = _parts(ast.parse(one.text, mode="eval").body, ast.Or)
        if all(part in others or others & _conjuncts(part) for part in parts):
            out.remove(one)
    return out


def _conjuncts(text: str) -> set[str]:
    return set(_parts(ast.parse(text, mode="eval").body, ast.And))


def _parts(node: ast.expr, kind: type[ast.boolop]) -> list[str]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, kind):
        return [part for value in node.values for part in _parts(value, kind)]
    return [ast.unparse(node)]
