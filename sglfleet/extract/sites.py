"""Every raise and assert of a release that is reached or not depending on the SM, with the SMs that pass it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sglfleet.extract.evaluate import CUDA, SMS, Machine, Reached
from sglfleet.extract.evaluate_modules import Modules, source
from sglfleet.extract.evaluate_names import Names
from sglfleet.extract.evaluate_values import Class, Function

SCOPE = ("sglang/srt/",)  # the server; not the diffusion models
SKIP = re.compile(r"/tests?/|/benchmarks?/|/bench_|/flash_bwd")
TRAINING = re.compile(r"_bwd|[Bb]ackward")
OLDER_CUDA = ("12.0", "12.1", "12.3", "12.4", "12.6", "12.8", "12.9")


@dataclass(frozen=True)
class Site:
    """One place where the SM decides. `sms` None: it cannot be said, and `why` says why."""

    file: str
    symbol: str
    line: int  # of the condition
    condition: str
    kind: str  # raise | assert
    sms: tuple[str, ...] | None  # SMs that pass
    maybe: tuple[str, ...] = ()  # the ones among them that pass only when other conditions are favourable
    why: str = ""
    text: str = ""  # what is raised
    when: tuple[str, ...] = ()  # other conditions on the way there, outermost first
    at: int = 0  # line of the raise or assert itself


def functions(modules: Modules, module: str) -> Iterator[tuple[str, Function]]:
    """All functions and methods of a module with their dotted names; nested ones too."""
    tree = modules.parse(module)

    def walk(body: list[ast.stmt], prefix: str, owner: Class | None) -> Iterator[tuple[str, Function]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name, Function(module, node, owner)
                yield from walk(node.body, f"{prefix}{node.name}.", owner)
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.", Class(module, node))
            elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
                for part in ("body", "orelse", "finalbody"):
                    yield from walk(getattr(node, part, []), prefix, owner)
                for handler in getattr(node, "handlers", []):
                    yield from walk(handler.body, prefix, owner)

    if tree is not None:
        yield from walk(tree.body, "", None)


def visit(machine: Machine, function: Function) -> list[Reached]:
    """What a function raises or asserts under the assumption of the machine."""
    machine.reached = []
    machine.steps = 0
    state = machine.enter(function)
    body = function.node.body
    machine.block(body if isinstance(body, list) else [], state)
    found, machine.reached = machine.reached, None
    return found


class Survey:
    """Machines for every SM over one release."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.names = Names(modules, SCOPE, SKIP)
        self.sm_conditions: set[int] = set()
        self.open = Machine(modules, None, sm_conditions=self.sm_conditions)
        self._machines: dict[tuple[str, str], Machine] = {}

    def machine(self, sm: str, cuda: str = CUDA) -> Machine:
        if (sm, cuda) not in self._machines:
            self._machines[sm, cuda] = Machine(self.modules, sm, cuda, sm_conditions=self.sm_conditions)
        return self._machines[sm, cuda]

    def sites(self) -> Iterator[Site]:
        """All sites in the order of files and lines."""
        for module in sorted(self.names.functions, key=lambda m: self.modules.files[m]):
            for symbol, function in functions(self.modules, module):
                if function.node.lineno in self.names.functions[module] and not TRAINING.search(symbol):
                    yield from self.function_sites(symbol, function)

    def function_sites(self, symbol: str, function: Function) -> Iterator[Site]:
        first: dict[int, Reached] = {}
        for r in visit(self.open, function):
            if id(r.node) not in first and (r.tests or (r.passed and not _own_condition(r))):
                first[id(r.node)] = r
        if not first:
            return
        sweep = {sm: visit(self.machine(sm), function) for sm in SMS}
        for key, r in first.items():
            verdict = passing(sweep, key)
            if verdict.sms == SMS or (verdict.sms is None and (not r.tests or not verdict.taint)):
                continue  # the SM has no say for any GPU in question
            yield self._site(symbol, function, r, verdict)

    def _site(self, symbol: str, function: Function, r: Reached, found: Passing) -> Site:
        text = self.modules.text(function.module)
        condition = r.tests[-1] if r.tests else r.passed[-1][0]
        return Site(
            file=self.modules.files[function.module],
            symbol=symbol,
            line=condition.lineno,
            condition=source(text, condition),
            kind="assert" if isinstance(r.node, ast.Assert) else "raise",
            sms=found.sms,
            maybe=found.maybe,
            why=found.why,
            text=message(r.node),
            when=tuple(source(text, g) for g in r.guards if g is not condition)[-3:],
            at=r.node.lineno,
        )


def _own_condition(r: Reached) -> bool:
    """Does the statement hang on something else? After an early return by SM that something is what decides.

    Conditions that stand around the return as well do not count.
    """
    return len(r.guards) > r.passed[-1][1] or isinstance(r.node, ast.Assert)


@dataclass(frozen=True)
class Passing:
    """Which SMs come past a raise or an assert."""

    sms: tuple[str, ...] | None
    maybe: tuple[str, ...] = ()
    taint: bool = False
    why: str = ""


def passing(sweep: dict[str, list[Reached]], key: int) -> Passing:
    """The SMs that a statement lets through, from what each SM's machine came past.

    Where the SM alone is enough to raise, all others pass, some of them only if other conditions are favourable
    (`maybe`). Where it never is, the SMs that are spared for sure pass. Anything that was not evaluated makes the
    whole set unknown.
    """
    seen = {sm: [r for r in found if id(r.node) == key] for sm, found in sweep.items()}
    if any(r.taint for found in seen.values() for r in found):
        return Passing(None, taint=True, why="a condition on the way reads the SM in a way that was not evaluated")
    never = tuple(sm for sm, found in seen.items() if not found)
    sure = {sm for sm, found in seen.items() if any(r.certain for r in found)}
    if sure and len(sure) < len(seen):
        sms = tuple(sm for sm in seen if sm not in sure)
        return Passing(sms, tuple(sm for sm in sms if sm not in never))
    if never:
        return Passing(never)
    return Passing(None, why="the condition does not tell the SMs apart")


def message(node: ast.stmt) -> str:
    """The text of what is raised, placeholders as {}; empty where it is not written out."""
    inner = node.msg if isinstance(node, ast.Assert) else getattr(node, "exc", None)
    if isinstance(inner, ast.Call):
        inner = inner.args[0] if inner.args else None
    return literal(inner)


def literal(node: ast.expr | None) -> str:
    """A string literal with every placeholder as {}; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return literal(node.left) + literal(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return literal(node.left)
    return ""


def plain(site: Site) -> dict[str, Any]:
    """As JSON, without what is empty."""
    row = {k: v for k, v in replace(site, text=site.text[:120]).__dict__.items() if v not in ("", (), 0)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in row.items()} | {"sms": site.sms and list(site.sms)}
