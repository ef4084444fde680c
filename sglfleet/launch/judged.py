"""A launch command before the gate: what is asked of the judge, and what it answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglfleet.launch.command import Launch
from validators import argv
from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang
from validators.knowledge.model import Sglang
from validators.verdict import Decision, Judgement, Outcome, Overall, Verdict


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


def lint(
    launch: Launch, sglang: str, hardware: Hardware, *, arch: str = "", config: Mapping[str, Any] | None = None
) -> Linted:
    """Judge a launch command for a release and hardware.

    Raises UnknownReleaseError for a release without knowledge: a command line cannot be split without its flags.
    """
    release = load_sglang(sglang)
    parsed = argv.to_args(release, launch.tokens)
    case = Case(
        sglang=sglang,
        args=parsed.args,
        sm=hardware.sm,
        gpus=hardware.gpus if hardware.gpus is not None else launch.gpus,
        nnodes=_whole(parsed.args.get("nnodes"), 1),
        interconnect=hardware.interconnect,
        gpu_name=hardware.name,
        model_arch=arch or _arch(config),
        model_path=str(parsed.args.get("model-path", parsed.args.get("model", ""))),
        checkpoint=dict(config or {}),
        env=launch.env,
    )
    judgement = judge(case)
    faults = tuple(_verdict(fault) for fault in parsed.faults)
    if faults:
        both = tuple(sorted((*judgement.verdicts, *faults), key=lambda v: v.flag))
        judgement = replace(judgement, verdicts=both, decision=Overall.REFUSE)
    notes = (*launch.notes, *_notes(launch, parsed, release))
    return Linted(launch, case, judgement, parsed, notes, _abbreviated(parsed, release))


def _verdict(fault: argv.Fault) -> Verdict:
    todo = f"Give {fault.flag} what it needs." if fault.flag else "Remove it, or write the flag it belongs to."
    return Verdict(fault.flag, None, Outcome.REJECTED, Decision.REFUSE, f"{fault.what}.", "parser", todo=todo)


def _abbreviated(parsed: argv.Parsed, release: Sglang) -> dict[str, str]:
    resolved = {name: release.resolve_spelling("--" + name) for name in parsed.args}
    return {name: r.spelling for name, r in resolved.items() if r.flag and r.spelling != "--" + name}


def _notes(launch: Launch, parsed: argv.Parsed, release: Sglang) -> list[str]:
    out = [f"{launch.where}: --{name} is given more than once: the last one counts" for name in parsed.repeated]
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
