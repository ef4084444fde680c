"""The leaves of a service file: what each value may be, and what is said where it is not."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from validators.source import Plain


class WrongError(ValueError):
    """A value that will not do: what is wrong with it, what to do, and where below the checked part it stands."""

    def __init__(self, what: str, todo: str = "", at: tuple[str, ...] = ()) -> None:
        super().__init__(what, todo)
        self.what, self.todo, self.at = what, todo, at


def unplain(value: Any) -> Any:
    """The value of an unquoted scalar; a YAML 1.1 trap is refused rather than guessed at."""
    if isinstance(value, list | tuple):
        return [unplain(item) for item in value]
    if not isinstance(value, Plain):
        return value
    if value.trap:
        raise WrongError(f"unquoted `{value.text}` is {value.trap}", "quote it, or write what you mean plainly")
    return value.value


def _text(value: Any) -> Any:
    """Text takes the letters as they were written: `sglang: 0.10` stays 0.10."""
    if isinstance(value, Plain):
        if value.value is None and not value.trap:
            raise WrongError("no value", "give one, or remove the line")
        value = value.text
    if isinstance(value, str) and (bad := _control(value, allowed="")):
        raise WrongError(f"control character {bad} in a name or path", "remove it")
    return value


def _content(value: Any) -> Any:
    """Text that is handed through to the server: any Unicode, tabs and newlines; nothing that a process cannot get."""
    if isinstance(value, str) and (bad := _control(value, allowed="\t\n")):
        raise WrongError(f"character {bad} cannot reach the server unchanged", "remove it")
    return value


def _control(text: str, allowed: str) -> str:
    """The first control character, line separator or lone surrogate, as an escape."""
    hit = re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "".join(c for c in text if c not in allowed))
    return repr(hit[0])[1:-1] if hit else ""


def _duration(value: Any) -> Any:
    value = unplain(value)
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}
    if isinstance(value, bool):
        raise WrongError("a switch is no duration", "write seconds, or 30s, 5m, 2h")
    if isinstance(value, int | float):
        return float(value)
    hit = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|s|m|h|)", value) if isinstance(value, str) else None
    if not hit:
        raise WrongError(f"`{value}` is no duration", "write seconds, or 30s, 5m, 2h")
    return float(hit[1]) * units[hit[2]]


def _share(value: Any) -> Any:
    """A number of nodes, or a percentage of them."""
    value = unplain(value)
    if isinstance(value, str) and re.fullmatch(r"(100|[1-9]?[0-9])%", value) and value != "0%":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise WrongError(f"`{value}` is neither a number of nodes nor a percentage", "write for example 2 or 25%")


def _date(value: Any) -> Any:
    value = _text(value)
    if isinstance(value, date):
        return value
    try:
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise WrongError(f"`{value}` is no date", "write YYYY-MM-DD")


def absolute(value: str) -> str:
    """A path on a host: absolute, without `..`."""
    if not value.startswith("/") or value.startswith("//") or ".." in PurePosixPath(value).parts:
        raise WrongError(f"`{value}` is not an absolute path", "name the folder on the host, starting with /")
    return value


def is_hub_id(path: str) -> bool:
    """Whether it names a model on a hub (`organisation/name`), not a folder."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", path) is not None


def _model_path(value: str) -> str:
    return value if is_hub_id(value) else absolute(value)


def _pattern(rx: str, what: str, todo: str) -> Any:
    def check(value: str) -> str:
        if not re.fullmatch(rx, value):
            raise WrongError(f"`{value}` is no {what}", todo)
        return value

    return check


Text = Annotated[str, BeforeValidator(_text), Field(strict=True, min_length=1, max_length=4096)]
Int = Annotated[int, BeforeValidator(unplain), Field(strict=True)]
Count = Annotated[int, BeforeValidator(unplain), Field(strict=True, ge=1, le=1_000_000)]
Bool = Annotated[bool, BeforeValidator(unplain), Field(strict=True)]
Seconds = Annotated[
    float, BeforeValidator(_duration), Field(ge=0, le=86_400 * 7), WithJsonSchema({"type": ["string", "number"]})
]
Share = Annotated[int | str, BeforeValidator(_share), WithJsonSchema({"type": ["string", "integer"]})]
Reason = Annotated[Text, Field(max_length=500)]
Day = Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
AbsPath = Annotated[Text, AfterValidator(absolute)]
ModelPath = Annotated[Text, AfterValidator(_model_path)]
Name = Annotated[
    Text,
    AfterValidator(
        _pattern(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?", "service name", "use a-z, 0-9 and -, at most 48 letters")
    ),
]
FlagName = Annotated[
    Text,
    AfterValidator(_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]*", "flag name", "write it as SGLang does, without the dashes")),
]
EnvName = Annotated[
    Text, AfterValidator(_pattern(r"[A-Za-z_][A-Za-z0-9_]*", "environment variable", "use letters, digits and _"))
]
User = Annotated[
    Text, AfterValidator(_pattern(r"[a-z_][a-z0-9_-]{0,31}", "user name", "use a-z, 0-9, _ and -, at most 32 letters"))
]
GroupName = Annotated[
    Text, AfterValidator(_pattern(r"[A-Za-z_@][A-Za-z0-9_@-]*", "group name", "name a group of the inventory"))
]
ArchName = Annotated[
    Text, AfterValidator(_pattern(r"[A-Za-z_]\w*", "architecture", "write it as in config.json, QwenForCausalLM"))
]
Margin = Annotated[Text, AfterValidator(_pattern(r"(\d|[1-4]\d)(\.\d+)?%", "margin", "write a percentage below 50%"))]
HostName = Annotated[Text, AfterValidator(_pattern(r"[^\s,]+", "host name", "name a host as the inventory does"))]


def _release(value: str) -> str:
    if re.search(r"[<>=~*,\s]|^(latest|any)$", value):
        raise WrongError(f"`{value}` is not one exact release", "write for example 0.5.23")
    return _pattern(r"[A-Za-z0-9][A-Za-z0-9._+!-]*", "release", "write for example 0.5.23")(value)  # type: ignore[no-any-return]


Release = Annotated[Text, AfterValidator(_release)]


def _url(value: str) -> str:
    if re.search(r"//[^/]*@", value):
        raise WrongError("a password in an index URL", "put credentials into the host's netrc or uv configuration")
    if not re.fullmatch(r"(https?|file)://[^\s'\"%]+", value):
        raise WrongError("no index URL", "write https://…, http://… or file:///…")
    return value


Url = Annotated[Text, AfterValidator(_url)]


# Flags whose value is a secret: a unit, an argv and a log would carry it (server_args.py of 0.4.9.post6 to 0.5.23).
SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password"})
_NOT_ARGS = {
    "model": "give the model in `model:`",
    "model-path": "give the model in `model:`",
    "config": "write its keys into `args:`: SGLang's own merger drops some of them in silence",
}


def _env_value(item: Any) -> Any:
    """Environment variables are text: `NCCL_P2P_LEVEL: 4` and `FLAG: on` mean the letters."""
    if isinstance(item, Plain):
        if item.value is None and not item.trap:
            raise WrongError("no value", 'write "" for an empty one, or remove the line')
        return item.text
    if isinstance(item, bool):
        return str(item).lower()
    return str(item) if isinstance(item, int | float) else _content(item)


def _arg_name(name: str) -> str:
    bare = name.lstrip("-").replace("_", "-")
    if name.startswith("-"):
        raise WrongError("a flag starts with a dash", f"write `{name.lstrip('-')}`")
    if bare in SECRET_FLAGS:
        raise WrongError("a secret in the open", f"write `secrets: {{{bare}: {{env: NAME}}}}`")
    if bare in _NOT_ARGS:
        raise WrongError(f"`{name}` has no place in args", _NOT_ARGS[bare])
    return name


def _arg_value(item: Any) -> Any:
    """JSON flags may be written as mappings; they reach the server as JSON text."""
    if isinstance(item, dict):
        return json.dumps(_deep(item), ensure_ascii=False)
    if isinstance(item, list | tuple):
        return [_arg_value(part) for part in item]
    value = unplain(item)
    if value is None:
        raise WrongError("no value", "write true for a switch, or remove the line")
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongError("not a finite number", "write a number")
    if not isinstance(value, str | bool | int | float):
        raise WrongError(f"a {type(value).__name__} is no value of a flag", "write text, a number or true/false")
    return _content(value)


def _deep(item: Any) -> Any:
    if isinstance(item, dict):
        return {str(key): _deep(value) for key, value in item.items()}
    return [_deep(part) for part in item] if isinstance(item, list | tuple) else _content(unplain(item))


ArgName = Annotated[FlagName, AfterValidator(_arg_name)]
ArgValue = Annotated[
    Any,
    BeforeValidator(_arg_value),
    WithJsonSchema({"type": ["string", "number", "integer", "boolean", "array", "object"]}),
]
EnvValue = Annotated[
    str,
    BeforeValidator(_env_value),
    Field(strict=True, max_length=65536),
    WithJsonSchema({"type": ["string", "number", "integer", "boolean"]}),
]


def _canary(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_text(item) for item in value)
    value = unplain(value)
    if isinstance(value, bool) or not isinstance(value, int | None) or (value is not None and value < 1):
        raise WrongError("neither a list of hosts nor a number of them", "write [host] or 1")
    return value


Canary = Annotated[tuple[HostName, ...] | int, BeforeValidator(_canary)]
