"""`sglfleet lint`: what the gate says of a launch command, as people have it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from sglfleet.launch.command import Launch
    from sglfleet.launch.judged import Hardware, Linted


NO_RELEASE = "no release is named, and no image beside it names one: add --sglang, such as --sglang 0.5.23"
_WHERE = (
    click.option("--sm", multiple=True, help="Compute capability, such as 12.0; several for mixed GPUs."),
    click.option("--gpu", default="", help="GPUs by name instead: `H200`, `rtx-pro-6000 x4`."),
    click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the node."),
    click.option("--interconnect", type=click.Choice(["nvswitch", "nvlink", "pcie"]), help="How the GPUs are linked."),
    click.option("--arch", default="", help="Model architecture, such as Qwen3MoeForCausalLM."),
    click.option(
        "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The model's config.json."
    ),
)


def where_it_runs(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say on which hardware and model a command is judged."""
    for option in reversed(_WHERE):
        function = option(function)
    return function


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("source", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--sglang", default="", help="Exact release, such as 0.5.9. By default the one an image names.")
@where_it_runs
@click.option("--all", "everything", is_flag=True, help="Show flags that work as well.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="Exit 3 where something would be dropped, replaced or warned of.")
def command(
    source: tuple[str, ...],
    sglang: str,
    sm: tuple[str, ...],
    gpu: str,
    gpus: int | None,
    interconnect: str | None,
    arch: str,
    config: Path | None,
    everything: bool,
    form: str,
    strict: bool,
) -> None:
    """Say what this engine on this GPU would ignore, change or crash on.

    SOURCE is a launch command (quoted or not), or files: shell scripts, systemd units, docker-compose files, Kubernetes
    manifests, SGLang's own YAML configuration; `-` reads standard input.

    \b
      sglfleet lint --sglang 0.5.9 --gpu "rtx-pro-6000 x4" "sglang serve /m --tp 4 --enable-flashinfer-allreduce-fusion"
      sglfleet lint --sm 9.0 docker-compose.yml
      sglfleet lint --sglang 0.5.23 --gpu b200 --arch DeepseekV3ForCausalLM --format json run.sh

    Exit codes: 0 fine, 1 refused, 2 bad input, 3 with --strict: something would be dropped, replaced or warned of.
    """
    from validators.knowledge import UnknownReleaseError

    found, wrong = read_sources(source)
    hardware, told = read_hardware(sm, gpu, gpus, interconnect or "")
    model = read_config(config, told)
    wrong += told
    linted: list[Linted] = []
    for launch in found:
        release = sglang or launch.sglang
        if not release:
            wrong.append(f"{launch.where}: {NO_RELEASE}")
            continue
        if told:
            continue
        try:
            from sglfleet.launch.judged import lint

            linted.append(lint(launch, release, hardware, arch=arch, config=model))
        except UnknownReleaseError as error:
            wrong.append(f"{launch.where}: {error}")
    _show(linted, form, everything)
    if wrong:
        click.echo("\n".join(sorted(set(wrong))), err=True)
    sys.exit(_exit(linted, bool(wrong), strict))


def read_sources(source: Sequence[str]) -> tuple[list[Launch], list[str]]:
    """Launch commands in files, standard input or the words themselves; and what cannot be read."""
    from sglfleet.launch.config_file import opened
    from sglfleet.launch.find import in_file, in_text
    from sglfleet.launch.manifest import ManifestError

    files = [Path(word) for word in source if word == "-" or Path(word).is_file()]
    found: list[Launch] = []
    wrong: list[str] = []
    if len(files) == len(source):
        for path in files:
            try:
                launches = in_text(sys.stdin.read(), "-") if str(path) == "-" else in_file(path)
            except ManifestError as error:
                wrong.append(str(error))
                continue
            except UnicodeDecodeError:
                wrong.append(f"{path}: not a text file (UTF-8): give a script, a manifest or a command")
                continue
            except OSError as error:
                wrong.append(
                    f"{path}: cannot be read: {(error.strerror or str(error)).lower()}: check path and permissions"
                )
                continue
            if not launches:
                wrong.append(f"{path}: no SGLang launch command in it: give the command itself, or another file")
            found += launches
    else:
        import shlex

        text = source[0] if len(source) == 1 else shlex.join(source)
        if len(source) == 1 and " " not in text and not text.startswith("-"):
            what = "a folder" if Path(text).is_dir() else "no such file"
            wrong.append(f"{text}: {what}: give a file, or a launch command in quotes")
        elif files:
            gone = [word for word in source if not Path(word).is_file() and word != "-"]
            wrong += [f"{word}: no such file: give files only, or one launch command in quotes" for word in gone]
        elif len(source) == 1 and not _closed(text):
            wrong.append(f"{text}: a quote in it is not closed: close it")
        else:
            found = in_text(text)
            if not found:
                wrong.append(f"{text}: no SGLang launch command: start it with `sglang serve` or with the flags")
    return [opened(launch) for launch in found], wrong


def _closed(text: str) -> bool:
    import shlex

    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def read_hardware(sm: Sequence[str], gpu: str, gpus: int | None, interconnect: str) -> tuple[Hardware, list[str]]:
    """Hardware from options, and what is wrong with them."""
    import re

    from sglfleet.launch.judged import Hardware
    from validators.gpus import SMS, declared

    wrong = [
        f"--sm {one}: no compute capability: write it like 9.0 or 12.0"
        if not re.fullmatch(r"\d{1,2}\.\d", one)
        else f"--sm {one}: no GPU that releases were read for: known are {', '.join(SMS)}"
        for one in sm
        if one not in SMS
    ]
    if gpu:
        named = declared(gpu)
        if named is None:
            wrong.append(f"--gpu {gpu}: an unknown GPU: give its compute capability with --sm")
        elif not 1 <= named.count <= 64:
            wrong.append(f"--gpu {gpu}: {named.count} GPUs in a host: write a count from 1 to 64")
        else:
            count = gpus if gpus is not None else (named.count if named.counted else None)
            return Hardware((named.sm, *(s for s in sm if s != named.sm)), count, named.name, interconnect), wrong
    elif not sm:
        wrong.append("no GPU is named: add --gpu NAME or --sm X.Y: what a flag does depends on it")
    return Hardware(tuple(sm), gpus, "", interconnect), wrong


def read_config(path: Path | None, wrong: list[str]) -> dict[str, Any] | None:
    """The model's config.json; what is wrong with it goes into `wrong`."""
    if path is None:
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(config, dict):
            return config
        raise ValueError("it is no JSON object")
    except (OSError, ValueError) as error:
        wrong.append(f"{path}: cannot be read: {error}: give the model's config.json")
        return None


def _show(linted: Sequence[Linted], form: str, everything: bool) -> None:
    from sglfleet.report import judgement as report

    if form == "json":
        rows = [
            {
                "where": one.launch.where,
                "sglang": one.case.sglang,
                "notes": list(one.notes),
                "abbreviated": one.abbreviated,
                **one.judgement.to_json(),
            }
            for one in linted
        ]
        click.echo(json.dumps({"schema_version": 1, "kind": "lint", "launches": rows}, indent=2))
        return
    for one in linted:
        gpu = ", ".join(one.case.sm) or "an unknown GPU"
        click.echo(f"{one.launch.where}: SGLang {one.case.sglang} on SM {gpu}: {report.summary(one.judgement)}")
        for line in report.lines(one.judgement, everything=everything, quiet=one.abbreviated):
            click.echo(f"  {line}")
        if one.abbreviated:
            short = ", ".join(f"--{name} ({full})" for name, full in sorted(one.abbreviated.items()))
            click.echo(f"  abbreviated: {short}: write them out, since a new flag can make them ambiguous")
        for note in one.notes:
            click.echo(f"  {note}")
        if one.launch.sglang not in ("", one.case.sglang):
            click.echo(f"  its image is of SGLang {one.launch.sglang}: judged for {one.case.sglang}, as --sglang says")
        if one.judgement.decision.value in ("downgrade", "warn"):
            click.echo(f"  what would run: {report.command_line(one.judgement.argv)}")


def _exit(linted: Sequence[Linted], wrong: bool, strict: bool) -> Exit:
    decisions = {one.judgement.decision.value for one in linted}
    codes = [Exit.BAD_INPUT] * wrong + [Exit.REFUSED] * ("refuse" in decisions)
    codes += [Exit.STRICT] * (strict and bool(decisions & {"downgrade", "warn"}))
    return Exit.worst(codes)
