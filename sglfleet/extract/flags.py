"""Flags of one SGLang release, read from the source of its parser.

Two generations: `parser.add_argument(…)` calls in `ServerArgs.add_cli_args`, and (from 0.5.14) fields annotated with
`A[type, Arg(…)]`, which `add_cli_args_from_dataclass` turns into options. Both may stand in one release.
"""

from __future__ import annotations

import ast
from typing import Any

from sglfleet.extract import annotated
from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.option import Call, Option, make_option
from sglfleet.extract.tree import ExtractError
from sglfleet.extract.values import Class, Frame, Function, UnresolvedError, assigned

SERVER_ARGS = "sglang/srt/server_args.py"


def flags(interpreter: Interpreter) -> tuple[list[Option], dict[str, Any]]:
    """All options in the parser's order, and the defaults of fields that have none.

    Raises ExtractError where the release has no parser of a known form.
    """
    tree = interpreter.scopes.tree
    if not tree.has(SERVER_ARGS):
        raise ExtractError(f"{tree.name}: no {SERVER_ARGS} in it: this is not an SGLang release")
    owner = _class(interpreter)
    fields = annotated.collect(interpreter, owner)
    register = next((s for s in owner.node.body if isinstance(s, ast.FunctionDef) and s.name == "add_cli_args"), None)
    if register is None:
        raise ExtractError(f"{tree.name}: {SERVER_ARGS}: ServerArgs has no add_cli_args: its parser is of a new form")

    walk = _Walk(interpreter, owner, fields)
    walk.body(register.body, Frame(SERVER_ARGS, {"parser": PARSER}), [])
    renamed = _renames(owner)
    options = [make_option(interpreter, call, fields, renamed) for call in walk.calls]
    taken = {option["field"] for option in options}
    return options, {f.name: f.json_default() for f in fields.values() if f.name not in taken}


PARSER = "<parser>"  # stands for the ArgumentParser while add_cli_args is read


def _class(interpreter: Interpreter) -> Class:
    """The ServerArgs of the source; later releases bind the name again to what they build from it."""
    tree = interpreter.scopes.tree
    for statement in tree.ast(SERVER_ARGS).body:
        if isinstance(statement, ast.ClassDef) and statement.name == "ServerArgs":
            return Class(SERVER_ARGS, statement)
    raise ExtractError(f"{tree.name}: {SERVER_ARGS}: no class ServerArgs: its parser is of a new form")


class _Walk:
    """Follows add_cli_args statement by statement and keeps every `add_argument` call."""

    def __init__(self, interpreter: Interpreter, owner: Class, fields: dict[str, annotated.Field]):
        self.interpreter = interpreter
        self.owner = owner
        self.fields = fields
        self.calls: list[Call] = []
        self.maybe: dict[str, str] = {}  # local name -> condition under which it would differ
        interpreter.hooks["_declared_default"] = self._declared_default
        interpreter.hooks["add_cli_args_from_dataclass"] = self._from_fields
        interpreter.pin(SERVER_ARGS, "ServerArgs", owner)

    def _declared_default(self, node: ast.Call, frame: Frame) -> Any:
        return self.fields[self.interpreter.value(node.args[0], frame)].default(node)

    def _from_fields(self, node: ast.Call, frame: Frame) -> None:
        wanted = next((self.interpreter.value(k.value, frame) for k in node.keywords if k.arg == "fields"), None)
        self.calls.extend(
            call for f in self.fields.values() if (wanted is None or f.name in wanted) and (call := f.call())
        )

    def body(self, statements: list[ast.stmt], frame: Frame, conditions: list[str]) -> None:
        for statement in statements:
            self._statement(statement, frame, conditions)

    def _statement(self, statement: ast.stmt, frame: Frame, conditions: list[str]) -> None:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument", value=receiver)) as call):
                if self._is_parser(receiver, frame):
                    group = heading(self.interpreter.scopes.tree.read(frame.path), call.lineno)
                    notes = self._notes(call, conditions)
                    self.calls.append(Call.read(call, frame, "ServerArgs.add_cli_args", notes, group))
            case ast.If(test=test):
                try:
                    taken = self.interpreter.truth(test, frame)
                except UnresolvedError:
                    self.body(statement.body, frame, [*conditions, ast.unparse(test)])
                    self.body(statement.orelse, frame, [*conditions, f"not ({ast.unparse(test)})"])
                    return
                self.body(statement.body if taken else statement.orelse, frame, conditions)
                self._untaken(test, statement.orelse if taken else statement.body)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr=attr))) if attr in (
                "add_argument_group",
                "add_mutually_exclusive_group",
            ):
                frame.local[name] = PARSER
            case ast.Expr(value=ast.Call() as call) if not self._calls_helper(call, frame, conditions):
                self._attempt(statement, frame)
            case ast.Expr():
                pass
            case _:
                self._attempt(statement, frame)

    def _notes(self, call: ast.Call, conditions: list[str]) -> list[str]:
        """What of this option depends on the machine."""
        changed = [(k.arg, n.id) for k in call.keywords for n in ast.walk(k.value) if isinstance(n, ast.Name)]
        return [
            *(f"only if {condition}" for condition in conditions),
            *(f"other {keyword} if {self.maybe[name]}" for keyword, name in changed if name in self.maybe),
        ]

    def _untaken(self, test: ast.expr, body: list[ast.stmt]) -> None:
        """Remember which names another environment would change: options that use them say so."""
        for node in (n for statement in body for n in ast.walk(statement)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
                    self.maybe[name] = ast.unparse(test)

    def _attempt(self, statement: ast.stmt, frame: Frame) -> None:
        """A statement beside the options. What it binds is unknown where it cannot be read, and said by its users."""
        try:
            self.interpreter.step(statement, frame)
        except UnresolvedError:
            frame.local.pop(assigned(statement)[0] or "", None)

    def _is_parser(self, node: ast.expr, frame: Frame) -> bool:
        return isinstance(node, ast.Name) and frame.local.get(node.id) == PARSER

    def _calls_helper(self, call: ast.Call, frame: Frame, conditions: list[str]) -> bool:
        """A function of the tree that is handed the parser adds options of its own."""
        if not any(self._is_parser(a, frame) for a in call.args) or ast.unparse(call.func) in self.interpreter.hooks:
            return False
        try:
            helper = self.interpreter.value(call.func, frame)
        except UnresolvedError:
            return False
        if not isinstance(helper, Function) or not isinstance(helper.node, ast.FunctionDef):
            return False
        names = [a.arg for a in helper.node.args.args]
        local = {n: PARSER for n, a in zip(names, call.args, strict=False) if self._is_parser(a, frame)}
        self.body(helper.node.body, Frame(helper.path, local), conditions)
        return True


def heading(source: str, line: int) -> str:
    """The last comment above a line that stands alone and is no sentence: releases head groups of options so."""
    lines = source.split("\n")
    for number in range(line - 2, 0, -1):
        text = lines[number].strip()
        if text.startswith("def "):
            break
        if text.startswith("# ") and not text.endswith(".") and not lines[number - 1].strip().startswith("#"):
            return text.strip("# -")
    return ""


def _renames(owner: Class) -> dict[str, str]:
    """dest -> field, from `args.tp_size = args.tensor_parallel_size` in from_cli_args."""
    found: dict[str, str] = {}
    for function in owner.node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "from_cli_args":
            for statement in function.body:
                match statement:
                    case ast.Assign(
                        targets=[ast.Attribute(value=ast.Name(id="args"), attr=to)],
                        value=ast.Attribute(value=ast.Name(id="args"), attr=source),
                    ):
                        found[source] = to
    return found
