"""One question to the gate: engine release, host, model, flags. Plain data; nothing here looks anything up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from validators.verdict import Policy, Value

_SM = re.compile(r"\d+\.\d")
_INTERCONNECTS = ("nvswitch", "nvlink", "pcie")
_ASIDE = {"expect", "note", "source", "title"}  # may stand beside the question
_SHORT = {"gpu": "gpu_name", "model": "model_path", "config": "checkpoint"}


class CaseError(ValueError):
    """A case that cannot be read; `messages` holds every reason, sorted."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = sorted(messages)


@dataclass(frozen=True, slots=True)
class Waiver:
    """`allow:` of a service file: lets one flag through until a day (inclusive)."""

    flag: str
    reason: str
    until: date

    @property
    def text(self) -> str:
        return f"{self.reason} (until {self.until.isoformat()})"


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a judgement depends on. Unset keys mean: the release's own defaults and pins, or nobody could tell."""

    sglang: str
    args: Mapping[str, Value]
    sm: tuple[str, ...] = ()  # SM of every kind of GPU in the service; empty: no GPU facts
    id: str = ""
    flashinfer: str = ""  # empty: the release's own pin
    gpus: int | None = None  # GPUs per node that the service may use
    nnodes: int = 1
    interconnect: str = ""  # nvswitch | nvlink | pcie
    multicast: bool | None = None  # NVLink multicast works
    p2p: bool | None = None  # a peer-to-peer transfer was tried and worked, or did not
    rdma_nics: int | None = None
    gpu_name: str = ""
    model_arch: str = ""
    model_type: str = ""
    model_path: str = ""
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)  # distribution -> version found or pinned
    kernel_images: tuple[str, ...] | None = None  # "sm_90a" …, where somebody looked into the kernel package
    driver: str = ""
    cuda: str = ""
    on_unsupported: Policy = Policy.AUTO
    policies: Mapping[str, Policy] = field(default_factory=dict)  # per flag
    allow: tuple[Waiver, ...] = ()
    today: date | None = None  # for waivers; without it a waiver cannot be shown to hold, and does not

    @classmethod
    def from_json(cls, raw: object, *, today: date | None = None) -> Case:
        """Read one line of `sglfleet judge --cases`. Raises CaseError with every reason."""
        return _read(raw, today)


def _read(raw: object, today: date | None) -> Case:
    if not isinstance(raw, dict):
        raise CaseError(["a case must be a JSON object"])
    errors: list[str] = []
    out: dict[str, Any] = {}
    for key, value in raw.items():
        name = str(key).replace("-", "_")
        name = _SHORT.get(name, name)
        reader = _READERS.get(name)
        if reader is None:
            if name not in _ASIDE:
                errors.append(f"{key}: unknown key: known are {', '.join(sorted(_READERS))}")
            continue
        if value is None:
            continue
        try:
            out[name] = reader(value)
        except (TypeError, ValueError) as error:
            errors.append(f"{key}: {error}")
    if "sglang" not in out and not any(e.startswith("sglang:") for e in errors):
        errors.append("sglang: missing: name the exact release")
    out.setdefault("args", {})
    policy = out.get("on_unsupported")
    if isinstance(policy, tuple):
        out["on_unsupported"], out["policies"] = policy
    if errors:
        raise CaseError(errors)
    out.setdefault("today", today)
    return Case(**out)


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"should be a string, not {value!r}")
    return str(value).strip()


def _count(least: int) -> Any:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"should be a whole number of at least {least}, not {value!r}")
        return value

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"should be true or false, not {value!r}")
    return value


def _sm(value: object) -> tuple[str, ...]:
    found = []
    for one in value if isinstance(value, list) else [value]:
        text = _text(one)
        if not _SM.fullmatch(text):
            raise ValueError(f"should be a compute capability such as 12.0, not {one!r}")
        found.append(text)
    return tuple(dict.fromkeys(found))


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"should be an object, not {value!r}")
    return {str(key): item for key, item in value.items()}


def _args(value: object) -> dict[str, Value]:
    found = _object(value)
    for key, item in found.items():
        if isinstance(item, dict):
            raise ValueError(f"{key} should be a value or a list, not an object: give JSON as a string")
    return found


def _texts(value: object) -> dict[str, str]:
    return {
        key: ("1" if item is True else "0" if item is False else _text(item)) for key, item in _object(value).items()
    }


def _policy(value: object) -> Any:
    if isinstance(value, dict):
        default = Policy.AUTO
        each: dict[str, Policy] = {}
        for key, item in value.items():
            if key == "default":
                default = _one_policy(item)
            else:
                each[str(key).lstrip("-")] = _one_policy(item)
        return default, each
    return _one_policy(value)


def _one_policy(value: object) -> Policy:
    try:
        return Policy(str(value))
    except ValueError:
        raise ValueError(f"should be one of {', '.join(Policy)}, not {value!r}") from None


def _policies(value: object) -> dict[str, Policy]:
    return {key.lstrip("-"): _one_policy(item) for key, item in _object(value).items()}


def _date(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"should be a day such as 2027-01-31, not {value!r}") from None


def _allow(value: object) -> tuple[Waiver, ...]:
    if not isinstance(value, list):
        raise ValueError("should be a list of {flag, reason, until}")
    found = []
    for item in value:
        row = _object(item)
        missing = [key for key in ("flag", "reason", "until") if not row.get(key)]
        if missing:
            raise ValueError(f"a waiver needs {', '.join(missing)}")
        found.append(Waiver(str(row["flag"]).lstrip("-"), str(row["reason"]), _date(row["until"])))
    return tuple(found)


def _interconnect(value: object) -> str:
    text = _text(value).lower()
    for known in _INTERCONNECTS:
        if text.startswith(known):  # nvlink5, pcie-gen5
            return known
    raise ValueError(f"should be one of {', '.join(_INTERCONNECTS)}, not {value!r}")


def _images(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError('should be a list such as ["sm_90a", "sm_120a"]')
    return tuple(_text(item) for item in value)


_READERS: dict[str, Any] = {
    "id": _text,
    "sglang": _text,
    "flashinfer": _text,
    "sm": _sm,
    "gpus": _count(0),
    "nnodes": _count(1),
    "interconnect": _interconnect,
    "multicast": _flag,
    "p2p": _flag,
    "rdma_nics": _count(0),
    "gpu_name": _text,
    "model_arch": _text,
    "model_type": _text,
    "model_path": _text,
    "checkpoint": _object,
    "args": _args,
    "env": _texts,
    "packages": _texts,
    "kernel_images": _images,
    "driver": _text,
    "cuda": _text,
    "on_unsupported": _policy,
    "policies": _policies,
    "allow": _allow,
    "today": _date,
}
