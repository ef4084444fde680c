"""`sglfleet init`: a project of one's own that deploys with sglfleet."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sglfleet.exits import Exit
from sglfleet.outfile import write_out


@click.command("init", epilog="Exit codes: 0 fine, 2 bad input; nothing that exists is ever overwritten.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--service", default="example", show_default=True, help="Name of the first service.")
@click.option("--gpu", default="h100 x8", show_default=True, help="Hardware of the hosts, until it is recorded.")
@click.option("--sglang", help="Engine release; the newest known one by default.")
def command(folder: Path, service: str, gpu: str, sglang: str | None) -> None:
    """Make a project in FOLDER: inventory, group data, a commented service file, and deploy.py."""
    from sglfleet import project
    from sglfleet.guard import check_validators
    from sglfleet.schema import service_schema, text
    from validators.hardware import HardwareError, parse
    from validators.knowledge import UnknownReleaseError, load_sglang, releases
    from validators.load import load

    check_validators()
    problems = []
    count = 1
    try:
        count = parse(gpu).count
    except HardwareError as error:
        problems.append(f"--gpu: {error.what}: {error.todo}")
    known = releases("sglang")
    release = sglang or (known[-1] if known else "")
    if not release:
        problems.append("--sglang: no release is known: name one, and add it with `sglfleet knowledge add`")
    found = project.files(service, gpu, count, release)
    try:
        found[f"schemas/service-{release}.json"] = text(service_schema(load_sglang(release)))
    except UnknownReleaseError as error:
        if sglang:
            problems.append(f"--sglang: {error}")
    loaded = load(found[f"group_data/services/{service}.yaml"], "--service")
    if not problems:
        problems += [f"--service: {problem.what}: {problem.todo}" for problem in loaded.problems]
    problems += [
        f"{folder / name}: is there already: choose another folder" for name in found if (folder / name).exists()
    ]
    if problems:
        click.echo("\n".join(sorted(problems)), err=True)
        sys.exit(int(Exit.BAD_INPUT))
    for name, body in found.items():
        path = folder / name
        write_out(path, body, folders=True)
        click.echo(f"made {path}")
    where = "" if folder == Path() else f"cd {folder} && "
    click.echo(
        f"\nName your hosts in inventory/prod.py, then: {where}sglfleet check && pyinfra inventory/prod.py deploy.py"
    )
