"""Names of environment variables that a release takes for others as soon as it is imported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Found = Iterator[tuple[str, ast.AST, list[str]]]


def _renamed(tree: ast.Module) -> Found:
    """A function that the module itself calls, and that sets every variable of an old prefix under the new one.

    Without the call, or without the assignment back into `os.environ`, nothing is renamed.
    """
    called = {
        node.value.func.id
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
    }
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name not in called:
            continue
        for loop in function.body:
            if isinstance(loop, ast.For) and ast.unparse(loop.iter) == "os.environ.items()":
                yield from _in_loop(loop)


def _in_loop(loop: ast.For) -> Found:
    written = {
        ast.unparse(node.targets[0].slice)
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Subscript)
        and ast.unparse(node.targets[0].value) == "os.environ"
    }
    for node in ast.walk(loop):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.targets[0]) in written
        ):
            call = node.value
            words = [getattr(arg, "value", None) for arg in call.args]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "replace" and words[2:] == [1]:
                yield "environment.renamed", node, [str(word) for word in words[:2]]


SEARCHES: tuple[tuple[str, Callable[[ast.Module], Found]], ...] = (("environ.py", _renamed),)
