"""`sglfleet explain`: the chain of gates of one flag, with evidence, and what would make it active."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sglfleet.commands.lint import where_it_runs
from sglfleet.exits import Exit

if TYPE_CHECKING:
    from validators.case import Case
    from validators.verdict import Verdict

SIGNS = {True: "passed", False: "stops here", None: "nobody can tell"}


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("flag")
@click.argument("others", nargs=-1, type=click.UNPROCESSED)
@click.option("--sglang", required=True, help="Exact release, such as 0.5.9.")
@where_it_runs
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    flag: str,
    others: tuple[str, ...],
    sglang: str,
    sm: tuple[str, ...],
    gpu: str,
    gpus: int | None,
    interconnect: str | None,
    arch: str,
    config: Path | None,
    form: str,
) -> None:
    """Show why FLAG (FLAG=VALUE, or an environment variable VARIABLE=VALUE) works, does nothing, or crashes.

    OTHERS are flags and variables given beside it, as on a command line or as NAME=VALUE.

    \b
      sglfleet explain enable-flashinfer-allreduce-fusion --sglang 0.5.9 --sm 12.0 --tp 4
      sglfleet explain kv-cache-dtype=fp8_e4m3 attention-backend=trtllm_mha --sglang 0.5.23 --sm 12.0
      sglfleet explain attention-backend=trtllm_mha --sglang 0.5.23 --gpu b200

    Exit code 2 where there is nothing to explain: no release knows the name, or its value is missing.
    """
    from sglfleet.commands.lint import read_config, read_hardware
    from sglfleet.launch.command import Launch
    from sglfleet.launch.judged import lint
    from validators import history
    from validators.knowledge import UnknownReleaseError, load_sglang
    from validators.rules.environment import read_as

    hardware, wrong = read_hardware(sm, gpu, gpus, interconnect or "")
    tokens, env = as_given((flag, *others))
    name = flag.lstrip("-").partition("=")[0]
    if not re.fullmatch(r"[\w-]+", name):
        wrong.append(f"{flag!r}: no flag: write NAME, NAME=VALUE or VARIABLE=VALUE")
    elif not _is_flag(flag) and "=" not in flag:
        wrong.append(f"{flag}: a variable of the environment: write {flag}=VALUE")
    given = read_config(config, wrong)
    one = None
    try:
        one = None if wrong else lint(Launch("command", tokens, env), sglang, hardware, arch=arch, config=given)
    except UnknownReleaseError as error:
        wrong.append(str(error))
    if one:
        wrong += [
            f"{fault.flag or tokens[fault.token]}: {fault.what}: {(fault.todo or 'remove it').rstrip('.')}"
            for fault in one.parsed.faults
            if fault.flag != name
        ]
    if one is None or wrong:
        click.echo("\n".join(wrong), err=True)
        sys.exit(Exit.BAD_INPUT)
    verdicts = [v for v in one.judgement.verdicts if v.flag == name or (v.automatic and name in v.flag)]
    # elsewhere a flag without its value is no better; and of a variable that is read there is no verdict to look for
    look = name not in env and name in one.case.args and any(_stopped(v) for v in verdicts)
    code = Exit.BAD_INPUT if any(fault.flag == name for fault in one.parsed.faults) else Exit.FINE
    if look and load_sglang(sglang).resolve_spelling("--" + name).flag is None:
        fate = history.fate(sglang, name)
        look = bool(fate.first or fate.last)  # a name that no release knows works nowhere
        code = code if look else Exit.BAD_INPUT
    elsewhere = other_places(one.case, name) if look else ([], [])
    if form == "json":
        document = {**one.judgement.to_json(), "kind": "explanation", "flag": name}
        document["active_on_sm"], document["active_in"] = elsewhere
        document["verdicts"] = [v for v in document["verdicts"] if v["flag"] == name]
        click.echo(json.dumps(document, indent=2))
        sys.exit(code)
    for verdict in verdicts:
        click.echo("\n".join(tree(verdict, one.case)))
    if elsewhere[0]:
        click.echo(f"{sglang} runs it on SM {', '.join(elsewhere[0])}.")
    if elsewhere[1]:
        click.echo(f"SM {', '.join(one.case.sm)}: active in {ranges(elsewhere[1])}.")
    if not verdicts:
        release = load_sglang(sglang)
        read = release.env.get(name) or release.env.get(read_as(release, name))
        place = f": {sglang} reads it in {read.place.file}:{read.place.line}" if read else ""
        click.echo(f"{name}: nothing is known against it{place}   (SGLang {sglang}, SM {', '.join(one.case.sm)})")
    if look and not any(elsewhere):
        click.echo("No release known and no other GPU runs it as it is given here.")
    sys.exit(code)


def as_given(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Words as flags of a command line, and variables of the environment: `NAME` and `NAME=VALUE` need no dashes."""
    tokens: list[str] = []
    env: dict[str, str] = {}
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and not _is_flag(word):
            env[name] = value
        elif word.startswith("-") or (i and not (equals and re.fullmatch(r"[a-z][a-z0-9-]+", name))):
            tokens.append(word)
        else:
            tokens += [f"--{name}", *([value] if equals else [])]
    return tuple(tokens), env


def _is_flag(word: str) -> bool:
    """Flags are written small, variables of the environment are not."""
    return not re.fullmatch(r"[A-Z][A-Z0-9_]*(=.*)?", word, re.DOTALL)


def tree(verdict: Verdict, case: Case) -> list[str]:
    """The gates as a tree, each with its evidence."""
    from sglfleet.report.judgement import evidence_line, verdict_lines

    headline = verdict_lines(verdict)[0]
    out = [f"{headline}   (SGLang {case.sglang}, SM {', '.join(case.sm)})"]
    for i, step in enumerate(verdict.steps):
        last = i == len(verdict.steps) - 1
        out.append(f"{'└─' if last else '├─'} {step.gate.value}: {SIGNS[step.passed]}: {step.text}")
        if step.evidence and step.evidence.line:
            out.append(f"{'   ' if last else '│  '}   {evidence_line(step.evidence)}")
    if not verdict.steps:
        out.append(f"└─ {verdict.reason}")
    out += [f"   needs, not checked: {need}" for need in verdict.needs]
    if verdict.todo:
        out.append(f"   {verdict.todo}")
    return out


def other_places(case: Case, flag: str) -> tuple[list[str], list[str]]:
    """(SMs on which this release runs the flag, releases in which this SM runs it), all else as in the case."""
    from dataclasses import replace

    from validators.judge import judge
    from validators.knowledge import releases
    from validators.verdict import Outcome

    def active(changed: Case) -> bool:
        """It works there, and nothing that is given beside it keeps the server from starting."""
        verdicts = judge(changed).verdicts
        stops = any(v.outcome in (Outcome.FAILS, Outcome.REJECTED) for v in verdicts if not v.automatic)
        return not stops and any(v.flag == flag and v.outcome is Outcome.ACTIVE for v in verdicts)

    sms = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"]
    on = [sm for sm in sms if (sm,) != case.sm and active(replace(case, sm=(sm,), gpu_name=""))]
    return on, [r for r in releases("sglang") if r != case.sglang and active(replace(case, sglang=r, flashinfer=""))]


def ranges(found: Sequence[str]) -> str:
    """Neighbouring releases as «0.5.3 … 0.5.10»."""
    from validators.knowledge import releases

    order = list(releases("sglang"))
    groups: list[list[str]] = []
    for release in found:
        if groups and order.index(release) == order.index(groups[-1][-1]) + 1:
            groups[-1].append(release)
        else:
            groups.append([release])
    return ", ".join(g[0] if len(g) == 1 else f"{g[0]} … {g[-1]}" for g in groups)


def _stopped(verdict: Verdict) -> bool:
    return verdict.outcome.value != "active"
