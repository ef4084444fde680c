"""One `add_argument` call to one row of knowledge, by argparse's own rules."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sglfleet.extract.interpret import Interpreter
from sglfleet.extract.scope import External
from sglfleet.extract.values import Class, Frame, Function, Member, UnresolvedError

if TYPE_CHECKING:
    from sglfleet.extract.annotated import Field

Option = dict[str, Any]
TYPES = {"int": "int", "float": "float", "str": "str", "bool": "bool", "json.loads": "json", "nullable_str": "str"}
HELP_LENGTH = 110  # characters: enough for a person, and 40 releases stay small


@dataclass(frozen=True, slots=True)
class Given:
    """A keyword whose value is known already."""

    value: Any


@dataclass(slots=True)
class Call:
    """What a release hands to `add_argument`, before anything is evaluated."""

    names: list[ast.expr | str]
    kwargs: dict[str, ast.expr | Given]
    frame: Frame
    symbol: str
    line: int
    group: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, node: ast.Call, frame: Frame, symbol: str, notes: list[str], group: str) -> Call:
        kwargs: dict[str, ast.expr | Given] = {k.arg: k.value for k in node.keywords if k.arg}
        here = Frame(frame.path, dict(frame.local))  # locals as they are now: later statements may change them
        return cls(list(node.args), kwargs, here, symbol, node.lineno, group, notes)


def make_option(interpreter: Interpreter, call: Call, fields: dict[str, Field], renamed: dict[str, str]) -> Option:
    """The row of one option. What cannot be evaluated is named in `default_source`, `choices_source`, `notes`."""
    read = _Reader(interpreter, call)
    spellings = [name if isinstance(name, str) else str(interpreter.value(name, call.frame)) for name in call.names]
    first_long = next((s for s in spellings if s.startswith("--")), spellings[0])
    dest = str(read.get("dest", first_long.lstrip("-").replace("-", "_")))
    action, custom = read.action()
    kind = _kind(action, custom, read)
    canonical = next((s for s in spellings if s.lstrip("-").replace("-", "_") in fields), first_long)
    if action == "BooleanOptionalAction":
        spellings = [s for name in spellings for s in (name, "--no-" + name[2:])[: 2 if name.startswith("--") else 1]]
    help_text = read.help()
    row: Option = {
        "name": canonical.lstrip("-"),
        "spellings": spellings,
        "dest": dest,
        "field": renamed.get(dest, dest) if renamed.get(dest, dest) in fields else "",
        "kind": kind,
        "action": action,
        "group": call.group,
        "path": call.frame.path,
        "symbol": call.symbol,
        "line": call.line,
        "required": bool(read.get("required", False)),
        "hidden": help_text is None,
        "help": short(help_text or ""),
        "notes": call.notes,
    }
    row.update(read.converter(kind))
    row.update(read.value("default", custom.get("default", False if action == "store_true" else None)))
    row.update(read.value("choices", None))
    row["const"] = read.const(action, custom)
    row["nargs"] = read.get("nargs", custom.get("nargs", 0 if kind != "value" else None))
    row.update(_life(help_text or "", read, custom))
    return row


def _kind(action: str, custom: dict[str, Any], read: _Reader) -> str:
    if action == "BooleanOptionalAction":
        return "tristate"
    if action in ("store_true", "store_false", "store_const", "append_const", "count", "help", "version"):
        return "switch"
    return "switch" if read.get("nargs", custom.get("nargs")) == 0 else "value"


class _Reader:
    """Evaluates the keywords of one call."""

    def __init__(self, interpreter: Interpreter, call: Call):
        self.interpreter = interpreter
        self.call = call

    def evaluate(self, name: str) -> Any:
        """Value of a keyword. Raises KeyError when it is not given, UnresolvedError when it cannot be known."""
        held = self.call.kwargs[name]
        return held.value if isinstance(held, Given) else self.interpreter.value(held, self.call.frame)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return plain(self.evaluate(name))
        except (KeyError, UnresolvedError):
            return default

    def value(self, name: str, default: Any) -> Option:
        try:
            found = self.evaluate(name)
            if isinstance(found, External) and found.name == "argparse.SUPPRESS":
                return {name: None}
            return {name: plain(found)}
        except KeyError:
            return {name: default}
        except UnresolvedError as error:
            return {name: None, f"{name}_source": str(error)}

    def action(self) -> tuple[str, dict[str, Any]]:
        """The action's name, and what a class of the release changes: defaults of its __init__, how it refuses."""
        try:
            found = self.evaluate("action")
        except KeyError:
            return "store", {}
        if isinstance(found, str):
            return found, {}
        if isinstance(found, Class):
            return found.node.name, _custom(self.interpreter, found)
        return (found.name.rpartition(".")[2] if isinstance(found, External) else str(found)), {}

    def converter(self, kind: str) -> Option:
        if kind != "value":
            return {"type": "bool", "converter": ""}
        try:
            found = self.evaluate("type")
        except KeyError:
            return {"type": "str", "converter": ""}
        except UnresolvedError as error:
            return {"type": "unknown", "converter": str(error)}
        name = found.name if isinstance(found, External | Function) else str(plain(found))
        if isinstance(found, Class):
            return {"type": "str" if self.interpreter.members(found) else "unknown", "converter": found.node.name}
        if isinstance(found, Function) and isinstance(found.node, ast.FunctionDef):
            return {"type": TYPES.get(name) or returned(found.node), "converter": name}
        return {"type": TYPES.get(name, "unknown"), "converter": name}

    def const(self, action: str, custom: dict[str, Any]) -> Any:
        if action in ("store_true", "store_false"):
            return action == "store_true"
        return self.get("const", self.get("const_value", custom.get("const")))

    def help(self) -> str | None:
        """The text; "" where there is none; None where it is hidden."""
        try:
            found = self.evaluate("help")
        except KeyError:
            return ""
        except UnresolvedError:
            return " ".join(
                n.value
                for n in ast.walk(self.call.kwargs["help"])  # type: ignore[arg-type]
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )
        return None if isinstance(found, External) else str(found or "")


def _custom(interpreter: Interpreter, cls: Class) -> dict[str, Any]:
    """Defaults of an action class' __init__, and whether calling it always stops the launch."""
    found: dict[str, Any] = {}
    for function in cls.node.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        if function.name == "__init__":
            names = [a.arg for a in function.args.args]
            defaults = function.args.defaults
            for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
                if isinstance(default, ast.Constant):
                    found[name] = default.value
        if function.name == "__call__" and any(isinstance(s, ast.Raise) for s in function.body):
            found["raises"] = True
    return found


DEPRECATED = re.compile(  # the flag itself, not one of its values or a neighbour
    r"^\W*(deprecated|obsolete)\b|\b(this|the) (flag|option|argument)s? (is|are) (now )?deprecated\b"
    r"|^NOTE: \S+ (is|are) deprecated",
    re.IGNORECASE,
)
INSTEAD = re.compile(r"[Uu]se [`'\"]?(?:the )?[`'\"]?--([\w-]+(?:[= ](?!instead\b|to\b|and\b)[\w.{},-]+)?)")


def _life(help_text: str, read: _Reader, custom: dict[str, Any]) -> Option:
    """Deprecation: by the action that announces it, or by the help text's own words about the flag."""
    action, _ = read.action()
    new_flag = read.get("new_flag") or ""
    refused = help_text if custom.get("raises") else read.get("error_message") or ""
    announced = action.startswith("Deprecated") or DEPRECATED.search(help_text) is not None
    if not announced and not refused:
        return {}
    instead = INSTEAD.search(f"{refused} {help_text}")
    return {
        "deprecated": squeeze(help_text or refused or "deprecated"),
        "replacement": str(new_flag).lstrip("-") or (instead[1].rstrip(".,") if instead else ""),
        "refused": squeeze(refused),
    }


def returned(node: ast.FunctionDef) -> str:
    """Type that a converter returns, by its annotation; "unknown" without one."""
    text = ast.unparse(node.returns) if node.returns else ""
    text = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$|^(.*?) \| None$", r"\1\2", text)
    known = {"int": "int", "float": "float", "bool": "bool", "str": "str"}
    if text in known:
        return known[text]
    return "json" if re.match(r"(?:typing\.)?(?:list|dict|List|Dict)\b", text) or "json" in node.name else "unknown"


def plain(value: Any) -> Any:
    """JSON form of an evaluated value. Raises UnresolvedError for what has none."""
    if isinstance(value, Member):
        return plain(value.value)
    if isinstance(value, list | tuple | set):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(plain(k)): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise UnresolvedError(ast.Constant(value=str(getattr(value, "name", type(value).__name__))))


def squeeze(text: str) -> str:
    return " ".join(text.split())[:300]


def short(text: str) -> str:
    """The first sentence, on one line."""
    line = " ".join(text.split())
    sentence = re.split(r"(?<=[a-z0-9)`'\"])\. (?=[A-Z\[(`'])", line, maxsplit=1)[0]
    return sentence if len(sentence) <= HELP_LENGTH else sentence[: HELP_LENGTH - 1].rstrip() + "…"
