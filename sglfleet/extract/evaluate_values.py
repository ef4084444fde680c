"""Abstract values: the few concrete values an expression may have, or nothing known.

A value that is not known remembers whether the SM had a part in it (`taint`), so that a condition which could not be
evaluated is never mistaken for one that does not look at the GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

WIDTH = 12  # more alternatives than this are not followed


@dataclass(frozen=True, slots=True)
class Value:
    """`options` holds every value that is possible; None means any value at all."""

    options: tuple[Any, ...] | None
    taint: bool = False  # the SM had a part in it

    @property
    def known(self) -> bool:
        return self.options is not None and len(self.options) == 1

    @property
    def one(self) -> Any:
        assert self.options is not None
        return self.options[0]

    def truths(self) -> frozenset[bool]:
        """Which truth values are possible."""
        if self.options is None:
            return frozenset((True, False))
        return frozenset(bool(x) if not isinstance(x, Ref) else True for x in self.options)


class Ref:
    """A thing of the program that is not plain data: a function, a class, a module. Always true."""


@dataclass(frozen=True)
class Module(Ref):
    name: str  # dotted; of the engine, or of a library that is not read ("torch.cuda")


@dataclass(frozen=True, eq=False)
class Class(Ref):
    module: str
    node: ast.ClassDef


@dataclass(frozen=True, eq=False)
class Function(Ref):
    module: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    owner: Class | None = None
    closure: Any = None


@dataclass(frozen=True)
class Bound(Ref):
    """A function with some arguments filled in: `functools.partial`, or a method with its instance."""

    function: Function
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Instance(Ref):
    """Some object of a class whose fields are not known beyond what the class itself says."""

    cls: Class


@dataclass(frozen=True)
class Lazy(Ref):
    """An imported name, looked up when it is used."""

    module: str
    name: str


class _Unknown:
    """An element of a collection that is not known."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
TOP = Value(None)
TAINTED = Value(None, True)
NONE = Value((None,))
TRUE = Value((True,))
FALSE = Value((False,))


def const(x: Any, taint: bool = False) -> Value:
    return Value((x,), taint)


def same(a: Any, b: Any) -> bool:
    """Equal and of one type: True is not 1 here."""
    return type(a) is type(b) and bool(a == b)


def of(options: Iterable[Any], taint: bool = False) -> Value:
    """A value from its alternatives, without repetitions."""
    found: list[Any] = []
    for x in options:
        if not any(same(x, y) for y in found):
            found.append(x)
        if len(found) > WIDTH:
            return Value(None, taint)
    return Value(tuple(found), taint)


def join(values: Iterable[Value]) -> Value:
    """What is known when any of these may hold."""
    values = list(values)
    taint = any(v.taint for v in values)
    if any(v.options is None for v in values):
        return Value(None, taint)
    return of((x for v in values for x in v.options or ()), taint)


def holed(x: Any) -> bool:
    """Is it, or does it hold, an element that is not known?"""
    return x is UNKNOWN or (isinstance(x, tuple) and any(holed(item) for item in x))


def lift(function: Callable[..., Any], *values: Value, holes: bool = False) -> Value:
    """Apply a function of plain data to every combination; what raises or is not data is not known.

    A collection with an unknown element is not known either, unless the function says that it minds its `holes`.
    """
    taint = any(v.taint for v in values)
    if not holes and any(holed(x) for v in values for x in v.options or ()):
        return Value(None, taint)
    combos: list[tuple[Any, ...]] = [()]
    for v in values:
        if v.options is None:
            return Value(None, taint)
        combos = [(*c, x) for c in combos for x in v.options]
        if len(combos) > WIDTH * WIDTH:
            return Value(None, taint)
    out = []
    for combo in combos:
        try:
            out.append(function(*combo))
        except Exception:  # anything the program itself would have raised
            return Value(None, taint)
    return of(out, taint)
