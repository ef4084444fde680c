"""A launch command before the gate: what is asked of the judge, and what it answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglfleet.launch.command import Launch, visible_gpus
from sglfleet.launch.unsaid import hanging
from validators import argv, parser
from validators.case import Case
from validators.knowledge import load_sglang
from validators.knowledge.model import Sglang
from validators.verdict import Decision, Judgement, Outcome, Overall, Value, Verdict

UNSAID = re.compile(r"\$[\w({@*]|\{\{")  # a variable or a substitution of a shell; a template of Helm or Jinja

_REST = re.compile(r"\$(?:[@*]|\w+|\{\w+(?:\[[@*]\])?\}|\(.*\))|\{\{.*\}\}")


@dataclass(frozen=True, slots=True)
class Hardware:
    """Where a command is to run, as far as somebody says."""

    sm: tuple[str, ...] = ()
    gpus: int | None = None
    name: str = ""
    interconnect: str = ""


@dataclass(frozen=True, slots=True)
class Linted:
    """One launch command and its judgement."""

    launch: Launch
    case: Case
    judgement: Judgement
    parsed: argv.Parsed
    notes: tuple[str, ...]
    abbreviated: dict[str, str]  # as written -> the flag it stands for
    gpus: int | None = None  # of one node
    open: frozenset[str] = frozenset()  # flags whose value a variable or a template holds: not judged


def lint(
    launch: Launch, sglang: str, hardware: Hardware, *, arch: str = "", config: Mapping[str, Any] | None = None
) -> Linted:
    """Judge a launch command for a release and hardware.

    Raises UnknownReleaseError for a release without knowledge: a command line cannot be split without its flags.
    """
    release = load_sglang(sglang)
    tokens = _booleans(release, launch.tokens) if launch.form == "config" else _with_config(release, launch)
    parsed = argv.to_args(release, tokens)
    # `$EXTRA_ARGS`, `"$@"`: flags, as many as there are
    rest = [tokens[fault.token] for fault in parsed.faults if not fault.flag and _REST.fullmatch(tokens[fault.token])]
    parsed = replace(parsed, faults=tuple(f for f in parsed.faults if f.flag or tokens[f.token] not in rest))
    open_ = {name: value for name, value in parsed.args.items() if _open(release, name, value)}
    # how many nodes there are decides how many GPUs there are
    unsized = any(_flag_name(release, name) == "nnodes" for name in open_)
    counts = [count for count in (hardware.gpus, launch.gpus, visible_gpus(launch.env)) if count is not None]
    gpus = min(counts) if counts else None  # a process sees those that it is given, not the host's
    case = Case(
        sglang=sglang,
        args={name: value for name, value in parsed.args.items() if name not in open_},
        sm=hardware.sm,
        gpus=None if unsized else gpus,
        nnodes=_whole(parsed.args.get("nnodes"), 1),
        interconnect=hardware.interconnect,
        gpu_name=hardware.name,
        model_arch=arch or _arch(config),
        model_path=str(parsed.args.get("model-path", parsed.args.get("model", ""))),
        checkpoint=dict(config or {}),
        env=launch.env,
    )
    judgement = hanging(release, case, open_)
    refused = [verdict for one in parsed.overridden if (verdict := _overridden(release, one))]
    unread = {name: value for name, value in parsed.args.items() if _flag_name(release, name) == "config"}
    if unread:
        judgement = replace(judgement, verdicts=tuple(v for v in judgement.verdicts if v.flag not in unread))
    more = (
        *(_closed(name, value) for name, value in unread.items()),
        *(_verdict(fault) for fault in parsed.faults),
        *refused,
        *map(_unread, rest),
        *(_unsaid(name, value) for name, value in open_.items()),
    )
    if more:
        both = tuple(sorted((*judgement.verdicts, *more), key=lambda v: v.flag))
        decision = Overall.REFUSE if parsed.faults or refused else judgement.decision
        if decision is Overall.ACCEPT:
            decision = Overall.WARN
        kept = (*(word for name, value in open_.items() for word in _words(name, value)), *rest)
        judgement = replace(
            judgement,
            verdicts=both,
            decision=decision,
            argv=(*judgement.argv, *kept),
        )
    told = {*map(str, open_.values()), *rest}
    notes = (*(n for n in launch.notes if n.partition(" is not known here: ")[2] not in told),)
    notes = (*notes, *_notes(launch, parsed, release))
    return Linted(launch, case, judgement, parsed, notes, _abbreviated(parsed, release), gpus, frozenset(open_))


def _booleans(release: Sglang, tokens: tuple[str, ...]) -> tuple[str, ...]:
    """`true` and `false` of the engine's YAML file as it reads them: a switch that is false is left out, and a flag
    that takes a value gets the word."""
    out: list[str] = []
    for token, after in zip(tokens, (*tokens[1:], "--"), strict=True):
        name = token.removeprefix("--")
        off = token.startswith("--no-") and release.resolve_spelling(token).flag is None
        flag = release.resolve_spelling("--" + (name.removeprefix("no-") if off else name)).flag
        if flag is None or not token.startswith("--") or "=" in token:
            out.append(token)
        elif flag.takes_value and after.startswith("--"):
            out += ["--" + name.removeprefix("no-"), "false"] if off else [token, "true"]
        elif not off or flag.kind != "switch":
            out.append(token)
    return tuple(out)


def _with_config(release: Sglang, launch: Launch) -> tuple[str, ...]:
    """What the engine makes of `--config FILE`: the flags in the file, then those of the command line."""
    at = launch.tokens.index("--config") if launch.config is not None else -1
    if launch.config is None or release.resolve_spelling("--config").flag is None:
        return launch.tokens
    return (*_booleans(release, launch.config), *launch.tokens[:at], *launch.tokens[at + 2 :])


def _flag_name(release: Sglang, name: str) -> str:
    flag = release.resolve_spelling("--" + name).flag
    return flag.name if flag else name


def _open(release: Sglang, name: str, value: Value) -> bool:
    """Whether the value is what a variable, a loop or a template puts there, and what it is matters to the parser."""
    flag = release.resolve_spelling("--" + name).flag
    if flag is None or (flag.type == "str" and flag.choices is None):
        return False  # a path or an address is as good as any other
    return any(UNSAID.search(str(one)) for one in (value if isinstance(value, list) else [value]))


def _written(name: str, value: Value) -> tuple[str, ...]:
    return (f"--{name}",) if value is True else _words(name, value)


def _words(name: str, value: Value) -> tuple[str, ...]:
    return (f"--{name}", *map(str, value if isinstance(value, list) else [value]))


def _unsaid(name: str, value: Value) -> Verdict:
    shown = value if isinstance(value, str) else str(value)
    reason = f"What {shown} stands for is not known here, so neither the parser's verdict nor the GPU's can be told."
    todo = f"Give {name} a value, or set the variable before the command."
    return Verdict(name, value, Outcome.UNKNOWN, Decision.WARN, reason, "parser", todo=todo)


def _unread(word: str) -> Verdict:
    reason = f"Which flags {word} holds is not known here: they are not judged, and may change what is said of others."
    todo = "Set the variable before the command, or write the flags."
    return Verdict(word, None, Outcome.UNKNOWN, Decision.WARN, reason, "parser", todo=todo)


def _closed(name: str, value: Value) -> Verdict:
    reason = f"{value} was not read, so nothing in it is judged; it may change what is said of other flags."
    todo = "Lint the file itself as well, or write its flags on the command line."
    return Verdict(name, value, Outcome.UNKNOWN, Decision.WARN, reason, "parser", todo=todo)


def _verdict(fault: argv.Fault) -> Verdict:
    todo = fault.todo or "Remove it, or write the flag it belongs to."
    return Verdict(fault.flag, None, Outcome.REJECTED, Decision.REFUSE, f"{fault.what}.", "parser", todo=todo)


def _overridden(release: Sglang, one: argv.Overridden) -> Verdict | None:
    """argparse converts and checks every value, also one that a later one takes the place of."""
    if _open(release, one.name, one.value):
        return None
    part = next((given.part for given in parser.read(release, {one.name: one.value})), None)
    if part is None or release.resolve_spelling("--" + one.name).flag is None:
        return None
    reason = f"{part.reason} It is given again, but the parser looks at every value."
    todo = f"Remove this one; --{one.by} is given later."
    return Verdict(one.name, one.value, Outcome.REJECTED, Decision.REFUSE, reason, "parser", part.evidence, todo=todo)


def _abbreviated(parsed: argv.Parsed, release: Sglang) -> dict[str, str]:
    resolved = {name: release.resolve_spelling("--" + name) for name in parsed.args}
    return {name: r.spelling for name, r in resolved.items() if r.flag and r.spelling != "--" + name}


def _notes(launch: Launch, parsed: argv.Parsed, release: Sglang) -> list[str]:
    out = []
    if launch.config is not None and release.resolve_spelling("--config").flag is not None:
        named = launch.tokens[launch.tokens.index("--config") + 1]
        out.append(f"{launch.where}: --config {named}: its flags are judged with the others, before them")
    for one in parsed.overridden:
        early, late = (
            " ".join(_written(name, value)) for name, value in ((one.name, one.value), (one.by, parsed.args[one.by]))
        )
        what = f"{early} is given more than once" if early == late else f"{early} is overridden by the later {late}"
        out.append(f"{launch.where}: {what}, as the parser takes the last one: remove the earlier")
    if launch.form == "config":
        for name in sorted(parsed.args):
            flag = release.resolve_spelling("--" + name).flag
            if flag is not None and flag.kind == "tristate":
                out.append(
                    f"{launch.where}: {flag.name}: the engine's own YAML reader does not take a yes-or-no flag with a"
                    f" --no- form: give --{name} on the command line"
                )
    return out


def _whole(value: object, otherwise: int) -> int:
    return int(str(value)) if re.fullmatch(r"\d+", str(value)) else otherwise


def _arch(config: Mapping[str, Any] | None) -> str:
    named = (config or {}).get("architectures") or [""]
    return str(named[0])
