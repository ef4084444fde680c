"""What a call gives for a parameter, what a function returns, which values an enumeration has."""

from __future__ import annotations

import ast

from sglfleet.extract.reads.nodes import Class, Fn, Function


def argument(call: ast.Call, f: Function, name: str) -> ast.expr | None:
    """What a call gives for a parameter: what stands there, else the default; None where it cannot be told."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    params = f.params
    if f.cls is not None and params[:1] in (["self"], ["cls"]):
        params = params[1:]
    place = params.index(name) if name in params else -1
    if 0 <= place < len(call.args):
        return call.args[place]
    assert isinstance(f.node, Fn)
    a = f.node.args
    positional = [one.arg for one in (*a.posonlyargs, *a.args)]
    defaults = dict(zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True))
    defaults |= {one.arg: d for one, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    return defaults.get(name)


def single_return(f: Function) -> ast.expr | None:
    if not isinstance(f.node, ast.FunctionDef):
        return None
    body = [
        one
        for one in f.node.body
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        and not isinstance(one, ast.Import | ast.ImportFrom | ast.Global)
    ]
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None


def members(cls: Class) -> dict[str, object]:
    found: dict[str, object] = {}
    for node in cls.node.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Constant):
                found[node.targets[0].id] = value.value
    return found
