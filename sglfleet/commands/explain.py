"""`sglfleet explain`: the chain of gates of one flag, with evidence, and what would make it active."""

from __future__ import annotations

import json
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
    """Show why FLAG (or FLAG=VALUE) works, does nothing, or crashes. OTHERS are flags given beside it.

    \b
      sglfleet explain enable-flashinfer-allreduce-fusion --sglang 0.5.9 --sm 12.0 --tp 4
      sglfleet explain attention-backend=trtllm_mha --sglang 0.5.23 --gpu b200
    """
    from sglfleet.commands.lint import read_config, read_hardware
    from sglfleet.launch.command import Launch
    from sglfleet.launch.judged import lint
    from validators.knowledge import UnknownReleaseError

    hardware, wrong = read_hardware(sm, gpu, gpus, interconnect or "")
    name, equals, value = flag.lstrip("-").partition("=")
    tokens = (f"--{name}", *([value] if equals else []), *others)
    given = read_config(config, wrong)
    one = None
    try:
        one = None if wrong else lint(Launch("command", tokens), sglang, hardware, arch=arch, config=given)
    except UnknownReleaseError as error:
        wrong.append(str(error))
    if one is None or wrong:
        click.echo("\n".join(wrong), err=True)
        sys.exit(Exit.BAD_INPUT)
    verdicts = [v for v in one.judgement.verdicts if v.flag == name or (v.automatic and name in v.flag)]
    elsewhere = other_places(one.case, name) if any(_stopped(v) for v in verdicts) else ([], [])
    if form == "json":
        document = {**one.judgement.to_json(), "kind": "explanation", "flag": name}
        document["active_on_sm"], document["active_in"] = elsewhere
        document["verdicts"] = [v for v in document["verdicts"] if v["flag"] == name]
        click.echo(json.dumps(document, indent=2))
        return
    for verdict in verdicts:
        click.echo("\n".join(tree(verdict, one.case)))
    if elsewhere[0]:
        click.echo(f"{sglang} runs it on SM {', '.join(elsewhere[0])}.")
    if elsewhere[1]:
        click.echo(f"SM {', '.join(one.case.sm)}: active in {ranges(elsewhere[1])}.")
    if any(_stopped(v) for v in verdicts) and not any(elsewhere):
        click.echo("No release known and no other GPU runs it as it is given here.")


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
        return any(v.flag == flag and v.outcome is Outcome.ACTIVE for v in judge(changed).verdicts)

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
