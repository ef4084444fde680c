"""What local names stand for, and how branches are joined: a choice between two values, a list that may be empty.

Names are expressions over the arguments (`symbols`). What cannot be followed is `something_else`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

Names = dict[str, ast.expr]
LONGEST = 1_000  # characters of an expression that is carried along
OPAQUE = "something_else"
ITEM = "…"  # in a list: whatever was appended


def opaque() -> ast.expr:
    return ast.Name(OPAQUE, ast.Load())


def parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def fitting(node: ast.expr) -> ast.expr:
    return node if len(ast.unparse(node)) <= LONGEST else opaque()


def join(test: str, one: Names, other: Names) -> Names:
    """Names after a branch: what both agree on, a choice where they do not."""
    out: Names = {}
    for name in {**other, **one}:
        a, b = one.get(name), other.get(name)
        if "[" in name:  # an entry of a table, and nothing where it was not put in
            nothing = ast.Constant(None)
            out[name] = fitting(choice(parse(test), a or nothing, b or nothing))
        elif a is None or b is None:  # set in one branch only: whoever asks for it comes from there
            out[name] = a or b or opaque()
        elif a is b or ast.dump(a) == ast.dump(b):
            out[name] = a
        elif filling(a) is not None and filling(b) is not None:
            out[name] = fitting(filled(choice(parse(test), filling(a) or a, filling(b) or b)))
        else:
            out[name] = fitting(choice(parse(test), a, b))
    return out


def filling(node: ast.expr) -> ast.expr | None:
    """Of a list that began empty, such as one of problems: is anything in it by now."""
    if isinstance(node, ast.List) and all(getattr(e, "value", "") == ITEM for e in node.elts):
        return ast.Constant(bool(node.elts))
    if isinstance(node, ast.Dict) and all(getattr(k, "value", "") == ITEM for k in node.keys):
        return ast.Constant(bool(node.keys))
    marked = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "bool" and len(node.args) == 1
    return node.args[0] if isinstance(node, ast.Call) and marked else None


def filled(condition: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool", ast.Load()), [condition], [])


def choice(test: ast.expr, one: ast.expr, other: ast.expr) -> ast.expr:
    """`one if test else other`, shorter where a branch is True or False and the test is nothing else."""
    if ast.dump(one) == ast.dump(other):
        return one
    if not _boolean(test):
        return ast.IfExp(test, one, other)
    refused = ast.UnaryOp(ast.Not(), test)
    match (_truth(one), _truth(other)):
        case (True, False):
            return test
        case (False, True):
            return refused
        case (False, None):
            return ast.BoolOp(ast.And(), [refused, other])
        case (True, None):
            return ast.BoolOp(ast.Or(), [test, other])
        case (None, False):
            return ast.BoolOp(ast.And(), [test, one])
        case (None, True):
            return ast.BoolOp(ast.Or(), [refused, one])
    return ast.IfExp(test, one, other)


def _truth(node: ast.expr) -> bool | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _boolean(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return all(_boolean(value) for value in node.values)
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def appended(known: ast.expr, item: ast.expr) -> ast.expr:
    if isinstance(known, ast.IfExp):
        return ast.IfExp(known.test, appended(known.body, item), appended(known.orelse, item))
    if isinstance(known, ast.List):  # one that began empty is asked only whether it is empty still
        return ast.List(
            [*known.elts, item if known.elts and filling(known) is None else ast.Constant(ITEM)], ast.Load()
        )
    return ast.List([ast.Constant(ITEM)], ast.Load()) if filling(known) is not None else opaque()


def set_target(names: Names, target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name):
        forget_entries(names, target.id)
        names[target.id] = fitting(value)
        if isinstance(value, ast.Dict) and all(isinstance(key, ast.Constant) for key in value.keys):
            for key, item in zip(value.keys, value.values, strict=True):
                names[f"{target.id}[{ast.unparse(key or item)}]"] = fitting(item)
    elif isinstance(target, ast.Tuple | ast.List):
        for number, one in enumerate(target.elts):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                set_target(names, one, value.elts[number])
            elif isinstance(value, ast.Call):
                set_target(names, one, ast.Subscript(value, ast.Constant(number), ast.Load()))
            else:
                set_target(names, one, opaque())
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in names:
        name, key = target.value.id, target.slice
        if isinstance(key, ast.Constant) and filling(names[name]) is not None:
            item = ast.Constant(ITEM)
            names[name] = ast.Dict([item], [item])
            names[f"{name}[{ast.unparse(key)}]"] = fitting(value)
        else:
            forget_entries(names, name)
            names[name] = opaque()


def forget_entries(names: Names, name: str) -> None:
    """A table that began empty has its entries beside it: `table['key']`."""
    for entry in [one for one in names if one.startswith(name + "[")]:
        del names[entry]


def forget(names: Names, which: Iterable[str]) -> None:
    for name in list(which):
        if "[" not in name:
            forget_entries(names, name)
        names[name] = opaque()


def stored(body: Iterable[ast.stmt]) -> set[str]:
    """Names that statements set anywhere inside."""
    inner = (n for statement in body for n in ast.walk(statement))
    return {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
