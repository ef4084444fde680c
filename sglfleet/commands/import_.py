"""`sglfleet import`: a launch command becomes a service file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sglfleet.exits import Exit


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
    from sglfleet.commands.lint import read_hardware, read_sources
    from sglfleet.launch.judged import Hardware, lint
    from sglfleet.launch.service_file import write
    from validators.knowledge import UnknownReleaseError
    from validators.load import load

    found, wrong = read_sources(source)
    hardware, told = read_hardware(sm, gpu, None, "") if sm or gpu else (Hardware(), [])
    wrong += told
    for launch in found:
        release = sglang or launch.sglang
        try:
            if not release:
                raise ValueError("no release is named: add --sglang, such as --sglang 0.5.23")
            written = write(lint(launch, release, hardware), name)
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
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"{path}: written", err=True)
    if wrong:
        click.echo("\n".join(sorted(set(wrong))), err=True)
        sys.exit(Exit.BAD_INPUT)
