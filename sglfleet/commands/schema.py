"""`sglfleet schema`: JSON Schema of service files for one release."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sglfleet.exits import Exit


@click.command("schema", epilog="Exit codes: 0 fine, 1 --check found files that are not fresh, 2 no such release.")
@click.argument("release", required=False)
@click.option("--all", "every", is_flag=True, help="Of every release that is known, into --folder.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("schemas"), show_default=True)
@click.option("--check", "only_check", is_flag=True, help="With --all: say which files are not fresh, write nothing.")
def command(release: str | None, every: bool, folder: Path, only_check: bool) -> None:
    """JSON Schema of service files for RELEASE, for editors: names, choices, types, help, deprecations.

    A service file names it in its first line: `# yaml-language-server: $schema=../../schemas/service-0.5.23.json`
    """
    from sglfleet.schema import service_schema, text
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang, releases

    if every == bool(release):
        raise click.UsageError("schema: give a release, or --all")
    if not every:
        try:
            click.echo(text(service_schema(load_sglang(str(release)))), nl=False)
        except (UnknownReleaseError, BrokenKnowledgeError) as error:
            click.echo(str(error), err=True)
            sys.exit(int(Exit.BAD_INPUT))
        return
    stale = []
    for name in releases("sglang"):
        path = folder / f"service-{name}.json"
        wanted = text(service_schema(load_sglang(name)))
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            stale.append(str(path))
            if not only_check:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(wanted, encoding="utf-8")
    for path_name in stale:
        click.echo(f"{path_name}: {'not fresh: run `sglfleet schema --all`' if only_check else 'written'}")
    sys.exit(int(Exit.REFUSED) if only_check and stale else 0)
