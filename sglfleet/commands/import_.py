"""`sglfleet import`: a launch command becomes a service file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from sglfleet.exits import Exit
from sglfleet.outfile import write_out


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("source", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--sglang", default="", help="Exact release, such as 0.5.9. By default the one an image names.")
@click.option("--sm", multiple=True, help="Compute capability, such as 12.0.")
@click.option("--gpu", default="", help="GPUs by name instead: `H200`, `rtx-pro-6000 x4`.")
@click.option("--name", default="", help="Name of the service; by default the served model's.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write NAME.yaml into.")
def command(
    source: tuple[str, ...], sglang: str, sm: tuple[str, ...], gpu: str, name: str, output: Path | None
) -> None:
    """Turn a launch command into a service file.

    SOURCE is what `sglfleet lint` takes. Flags that the release refuses stay as comments with the reason; secrets are
    never written down. Several commands in one file become several services.

    \b
      sglfleet import --sglang 0.5.23 --gpu "h200 x8" run.sh -o group_data/services
    """
    from sglfleet.commands.lint import NO_RELEASE, read_hardware, read_sources
    from sglfleet.launch.judged import Hardware, lint
    from sglfleet.launch.service_file import write
    from validators.knowledge import UnknownReleaseError
    from validators.load import load

    found, wrong = read_sources(source)
    hardware, told = read_hardware(sm, gpu, None, "") if sm or gpu else (Hardware(), [])
    if name and not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?", name):
        told.append(f"--name {name}: no service name: use a-z, 0-9 and -, at most 48 letters")
    if output is not None and (output.is_file() or output.suffix in (".yaml", ".yml")):
        told.append(f"-o {output}: a folder is wanted: give the folder, and the name of the service with --name")
    wrong += told
    here: dict[str, str] = {}  # name -> text, of this run
    notes: list[str] = []
    for launch in found if not told else ():
        release = sglang or launch.sglang
        try:
            if not release:
                raise ValueError(NO_RELEASE)
            linted = lint(launch, release, hardware)
            written = write(linted, name)
            if here.get(written.name) == written.text:
                notes.append(f"{launch.where}: the same as another command: one service for both")
                continue
            if written.name in here:  # prefill and decode, or two servers of one model
                base, role = written.name, str(linted.parsed.args.get("disaggregation-mode", ""))
                written = write(linted, next(n for n in _names(base, role) if n not in here))
            here[written.name] = written.text
        except (UnknownReleaseError, ValueError) as error:
            wrong.append(f"{launch.where}: {error}")
            continue
        file = f"{written.name}.yaml"
        wrong += [str(problem) for problem in load(written.text, file).problems]
        text = f"# {launch.where}\n" + "".join(f"# {note}\n" for note in written.notes) + written.text
        if output is None:
            click.echo(text, nl=False)
            continue
        path = output / file
        if path.exists():
            wrong.append(f"{path}: exists: give another --name, or remove it")
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong.append(f"-o {output}: {(error.strerror or str(error)).lower()}: give a folder that can be written")
            break
        write_out(path, text)
        click.echo(f"{path}: written", err=True)
    for note in notes:
        click.echo(note, err=True)
    if wrong:
        click.echo("\n".join(sorted(set(wrong))), err=True)
        sys.exit(Exit.BAD_INPUT)


def _names(base: str, role: str) -> Iterator[str]:
    """Other names for a second service of one model; its role, where it has one, says more than a number."""
    if role:
        yield f"{base[: 47 - len(role)].rstrip('-')}-{role}"
    yield from (f"{base[:44].rstrip('-')}-{number}" for number in range(2, 1000))
