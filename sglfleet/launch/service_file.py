"""A launch command as a service file. Pure: the text of the file, and what a person has to look at."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from sglfleet.launch.judged import UNSAID, Linted
from validators import environment, parser
from validators.knowledge import load_sglang
from validators.verdict import Decision, Outcome, Verdict

_SECRETS = ("api-key", "admin-api-key", "ssl-keyfile-password")
_RANKS = ("nnodes", "node-rank", "dist-init-addr", "nccl-init-addr")
_PLAIN = re.compile(r"[A-Za-z0-9_./@:+-]+")


@dataclass(frozen=True, slots=True)
class Written:
    """The file's text, and what it could not carry over."""

    name: str
    text: str
    notes: tuple[str, ...]


def write(linted: Linted, name: str = "") -> Written:
    """A service file for the command. What the parser refuses stays, as a comment with its reason."""
    release = load_sglang(linted.case.sglang)
    args: dict[str, Any] = {}
    written_as: dict[str, str] = {}
    for given in parser.read(release, linted.parsed.args):
        canonical = given.flag.name if given.flag else given.name
        args[canonical] = given.value
        written_as[canonical] = given.name
    verdicts: dict[str, Verdict] = {}
    for verdict in linted.judgement.verdicts:  # the first is about the value that counts, not about an overridden one
        verdicts.setdefault(verdict.flag, verdict)
    faults = {fault.flag for fault in linted.parsed.faults if fault.flag not in args}
    nameless = [fault for fault in linted.parsed.faults if not fault.flag]
    # a value that is not known stands beside its flag; a note would repeat it, and it may be part of a secret
    notes = [n.removeprefix(f"{linted.launch.where}: ") for n in linted.notes if " is not known here: " not in n]
    notes += [f"{fault.what}: {(fault.todo or 'it is left out').rstrip('.')}" for fault in nameless]
    notes += [
        f"{v.flag}: which flags it holds is not known here: add them" for v in verdicts.values() if UNSAID.match(v.flag)
    ]
    model = str(args.pop("model-path", args.pop("model", "")))
    if UNSAID.search(model):
        notes.append(f"model: {model} is not known here: set its path")
        model = "/models/MODEL"
    elif not model.startswith("/"):
        notes.append(f"model: {model or 'none given'}: a service file names a folder on the host: set its path")
        model = "/models/" + (model.rsplit("/", 1)[-1] or "MODEL")
    name = name or _name(str(args.get("served-model-name", "")) or model)
    secrets = {key: f"{_upper(name)}_{_upper(key)}" for key in _SECRETS if args.pop(key, None) is not None}
    env = dict(linted.launch.env)
    for key in [k for k, v in env.items() if environment.is_secret(k, v) or environment.looks_secret(k, v)]:
        secrets[key] = key
        del env[key]
    for key in secrets:
        notes.append(f"secrets: {key}: the value is not written down: export {secrets[key]} where you deploy")
    nodes = [key for key in _RANKS if args.pop(key, None) is not None]
    if nodes:
        notes.append(f"nodes: {', '.join(nodes)} follow from a group of hosts: name it in `nodes:`")
    count = linted.gpus or _whole(args.get("tp-size")) * _whole(args.get("pp-size"))
    named = linted.launch.devices
    gpus = list(named) if len(named) == count else list(range(count))
    if re.fullmatch(r"\d+(,\d+)*", env.get("CUDA_VISIBLE_DEVICES", "")):  # the unit sets it, from `gpus`
        gpus = [int(index) for index in env.pop("CUDA_VISIBLE_DEVICES").split(",")]
    for key in [key for key, _, _ in environment.wrong(env, gpus)]:
        notes.append(f"env: {key}={env.pop(key)} is left out: the unit sets it, from `gpus`: set those")
    lines = [
        f"service: {name}",
        "engine:",
        f"  sglang: {_scalar(linted.case.sglang)}",
        f"model: {_scalar(model)}",
        f"gpus: [{', '.join(map(str, gpus))}]",
        *_args(args, verdicts, written_as, [v for v in linted.judgement.verdicts if v.flag in faults], linted.open),
        *_env(env, verdicts),
    ]
    if secrets:
        lines += ["secrets:", *(f"  {key}: {{env: {source}}}" for key, source in secrets.items())]
    return Written(name, "\n".join(lines) + "\n", tuple(notes))


def _args(
    args: dict[str, Any],
    verdicts: dict[str, Verdict],
    written_as: dict[str, str],
    faults: list[Verdict],
    open_: Container[str],
) -> list[str]:
    if not args and not faults:
        return []
    out = ["args:", *(f"  # {one.flag}:   # refused: {' '.join(one.reason.split())}" for one in faults)]
    for flag in sorted(args):
        verdict = verdicts.get(written_as.get(flag, flag)) or verdicts.get(flag)
        line = f"{flag}: {_value(args[flag])}"
        # without a GPU only the parser can have refused anything
        if verdict is not None and verdict.decision is Decision.REFUSE and verdict.outcome is not Outcome.UNKNOWN:
            out.append(f"  # {line}   # refused: {' '.join(verdict.reason.split())}")
        elif written_as.get(flag, flag) in open_ or UNSAID.search(str(args[flag])):
            out.append(f"  # {line}   # not known here: {' '.join(str(args[flag]).split())}: write its value")
        else:
            out.append(f"  {line}")
    return out if any(not line.lstrip().startswith("#") for line in out[1:]) else ["args: {}", *out[1:]]


def _env(values: dict[str, str], verdicts: dict[str, Verdict]) -> list[str]:
    out = []
    for key, value in sorted(values.items()):
        verdict = verdicts.get(key)
        refused = verdict is not None and verdict.decision is Decision.REFUSE
        why = f"   # refused: {' '.join(verdict.reason.split())}" if verdict is not None and refused else ""
        out.append(f"  {'# ' if refused else ''}{key}: {_quoted(value)}{why}")
    some = any(not line.lstrip().startswith("#") for line in out)
    return ["env:" if some else "env: {}", *out] if out else []


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return str(value) if isinstance(value, int | float) else _scalar(str(value))


def _scalar(text: str) -> str:
    """Plain where YAML reads it back as the same text, else quoted."""
    import yaml

    if _PLAIN.fullmatch(text) and not text.endswith(":"):
        try:
            if yaml.safe_load(text) == text:
                return text
        except yaml.YAMLError:
            pass
    return _quoted(text)


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.rsplit("/", 1)[-1].lower()).strip("-")[:40] or "sglang"


def _upper(text: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", text.upper())


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1
