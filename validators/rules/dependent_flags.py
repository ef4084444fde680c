"""Flags that the engine takes and never reads, because what they belong to is off."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from validators.rules import reads
from validators.rules.context import Context, answered_once
from validators.rules.interface import Gate, Outcome, Part, Step
from validators.rules.reads import Asked, Condition

SUBJECT = "Flags that are read only with another one, which is off"
FLAGS: tuple[str, ...] = ()
SITES: tuple[str, ...] = ()
ALWAYS = True
WITHOUT_GPU = True
_SHOWN = 3  # masters named in a reason; more are counted


@answered_once
def judge(c: Context) -> Iterator[Part]:
    known = reads.of(c.release.version)
    if known is None or "config" in c.args:  # a file may turn on what the flags do not
        return
    asked: Asked | None = None
    for name in c.args:
        flag = c.release.flags.get(name)
        if flag is None or flag.field not in known.behind:
            continue
        if flag.kind != "value" and c.args[name] is False:
            continue  # off, as its master is
        asked = asked or Asked(c, known)
        behind = known.behind[flag.field]
        if all(asked.false(one) for one in (*behind, *known.stops.get(flag.field, ()))):
            part = _inert(c, name, behind)
            if part is not None:
                yield part


_SAID: dict[tuple[str, str, str], Part | None] = {}


def _inert(c: Context, name: str, behind: tuple[Condition, ...]) -> Part | None:
    """What is said of one flag of one release, for one kind of model; None where what it belongs to has no name."""
    key = (c.release.key, name, c.arch)
    if key not in _SAID:
        _SAID[key] = _said(c, name, behind)
    return _SAID[key]


def _said(c: Context, name: str, behind: tuple[Condition, ...]) -> Part | None:
    masters = [phrase for one in behind for phrase in _masters(c, one.text)]
    masters = _shortest(dict.fromkeys(masters))
    shown, rest = masters[:_SHOWN], len(masters[_SHOWN:])
    if not shown:
        return None
    listed = f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else shown[0]
    if rest:
        listed = f"{', '.join(shown)}, or {'another one' if rest == 1 else f'one of {rest} others'}"
    reason = f"{c.release.version} reads --{name} only {listed}."
    todo = f"Leave {name} out, or turn on what it belongs to: {shown[0].removeprefix('with ')}."
    if not shown[0].startswith("with --"):
        todo = f"Leave {name} out: this model has nothing that reads it."
    proofs = tuple(dict.fromkeys(one.proof for one in behind))[:2]
    gate = Gate.MODEL if shown[0].startswith("for ") else Gate.RESOLUTION
    return Part(name, Outcome.INERT, reason, proofs, (Step(gate, False, reason, proofs[0]),), todo=todo)


def _shortest(phrases: Iterable[str]) -> list[str]:
    """Without those that only say more of what another one says: "with --x y" beside "with --x"."""
    found: list[str] = []
    for one in phrases:
        near = next((n for n, other in enumerate(found) if f"{one} ".startswith(f"{other} ")), None)
        longer = next((n for n, other in enumerate(found) if f"{other} ".startswith(f"{one} ")), None)
        if near is None and longer is None:
            found.append(one)
        elif near is None and longer is not None:
            found[longer] = one
    return found


def _masters(c: Context, text: str) -> list[str]:
    """What would have to be given, one phrase for each way: "with --enable-lora"."""
    return [phrase for part in _either(ast.parse(text, mode="eval").body) if (phrase := _phrase(c, part))]


def _either(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return [part for value in node.values for part in _either(value)]
    return [node]


def _phrase(c: Context, node: ast.expr) -> str:
    """One way in words; "" where it says nothing that a person could give."""
    if isinstance(node, ast.BoolOp):
        return next((phrase for value in node.values if (phrase := _phrase(c, value))), "")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp):
        inner = node.operand.values  # `not (not a or …)`: a must be given
        return next((phrase for one in inner if (phrase := _without(c, one))), "")
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("envs."):
        return f"with {ast.unparse(node.func).split('.')[1]} in the environment"
    if isinstance(node, ast.Compare) and ast.unparse(node.left) == "model_arch":
        other = isinstance(node.ops[0], ast.NotIn | ast.NotEq)
        return f"for models of another kind than {c.arch}" if other else "for models of other architectures"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        name = _written(c, node.left)
        right = node.comparators[0]
        if not name:
            return ""
        if isinstance(node.ops[0], ast.Eq | ast.In):
            values = right.elts if isinstance(right, ast.List) else [right]
            words = [str(one.value) for one in values if isinstance(one, ast.Constant) and one.value is not None]
            return f"with {name} {'|'.join(words)}" if words else f"with {name}"
        if isinstance(node.ops[0], ast.Gt | ast.GtE):
            least = "above" if isinstance(node.ops[0], ast.Gt) else "of at least"
            return f"with {name} {least} {ast.unparse(right)}"
        return f"with {name}"
    name = _written(c, node)
    return f"with {name}" if name else ""


def _without(c: Context, node: ast.expr) -> str:
    """What must be given so that a condition does not hold."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _phrase(c, node.operand)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        name = _written(c, node.left)
        return f"with {name} other than {ast.unparse(node.comparators[0])}" if name else ""
    return ""


def _written(c: Context, node: ast.expr) -> str:
    """`args.x` as its flag."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("args", "given"):
        name = reads.flag(c, node.attr)
        return f"--{name}" if name else ""
    return ""
