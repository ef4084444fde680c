"""`sglfleet upgrade`: same service file, new engine: what changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from sglfleet.exits import Exit
from sglfleet.outfile import rewrite


@click.command()
@click.argument("service", type=click.Path(path_type=Path))
@click.option("--to", required=True, help="The release to go to, such as 0.5.23.")
@click.option("--sm", multiple=True, help="Compute capability of the hosts, such as 12.0.")
@click.option("--gpu", default="", help="GPUs by name instead: `H200`, `rtx-pro-6000 x4`.")
@click.option("--arch", default="", help="Model architecture, where the service file does not name it.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The model's config.json.")
@click.option("--defaults", is_flag=True, help="Also list every changed default of flags that are not given.")
@click.option("--write", is_flag=True, help="Rewrite the service file: the new engine, and renamed flags.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    service: Path,
    to: str,
    sm: tuple[str, ...],
    gpu: str,
    arch: str,
    config: Path | None,
    defaults: bool,
    write: bool,
    form: str,
) -> None:
    """Say what another engine release does with SERVICE: a service file, or the name of one in group_data/services.

    \b
      sglfleet upgrade qwen35-122b --to 0.5.23 --gpu "rtx-pro-6000 x4"
      sglfleet upgrade group_data/services/qwen35-122b.yaml --to 0.5.23 --sm 9.0 --write

    Exit codes: 0 nothing breaks, 1 something breaks, 2 bad input.
    """
    from dataclasses import replace
    from datetime import date

    from sglfleet.commands.lint import read_config, read_hardware
    from sglfleet.gate import case_of
    from sglfleet.launch.rewrite import upgraded
    from validators.facts import Gpu, HostFacts
    from validators.knowledge import UnknownReleaseError
    from validators.load import load_file
    from validators.upgrade import Kind, changes

    is_file = service.suffix in (".yaml", ".yml") or service.is_file()
    path = service if is_file else Path("group_data/services") / f"{service}.yaml"
    loaded = load_file(path)
    hardware, wrong = read_hardware(sm, gpu, None, "")
    wrong = [str(problem) for problem in loaded.problems] + wrong
    model = read_config(config, wrong)
    if wrong or loaded.service is None:
        click.echo("\n".join(wrong), err=True)
        sys.exit(Exit.BAD_INPUT)
    spec = loaded.service
    found = []
    try:
        for one in hardware.sm:
            cards = tuple(Gpu(index=index, name=hardware.name, sm=one) for index in spec.gpus)
            facts = HostFacts(gpus=cards, interconnect=hardware.interconnect or None)
            case = case_of(spec, facts, date.today(), model)
            case = replace(case, model_arch=arch or case.model_arch)
            found += [(one, change) for change in changes(case, to)]
    except UnknownReleaseError as error:
        click.echo(f"{path}: {error}", err=True)
        sys.exit(Exit.BAD_INPUT)
    shown = [(one, c) for one, c in found if defaults or c.kind is not Kind.DEFAULT]
    if form == "json":
        rows = [
            {"sm": one, "kind": c.kind.value, "flag": c.flag, "text": c.text, "rename": c.rename} for one, c in shown
        ]
        document = {
            "schema_version": 1,
            "kind": "upgrade",
            "service": spec.service,
            "from": spec.engine.sglang,
            "to": to,
        }
        click.echo(json.dumps({**document, "changes": rows}, indent=2))
    else:
        for one, change in shown:
            click.echo(
                f"{loaded.where('args', change.flag)}: SM {one}: {change.flag}: {change.kind.value}: {change.text}"
            )
        hidden = len({c.flag for _, c in found if c.kind is Kind.DEFAULT}) if not defaults else 0
        if hidden:
            click.echo(f"{hidden} defaults of flags that are not given change: --defaults lists them")
        if not shown:
            click.echo(f"{spec.service}: {spec.engine.sglang} to {to}: the given flags mean the same.")
    if write:
        renames = {c.flag: c.rename for _, c in found if c.rename}
        rewrite(path, upgraded(path.read_text(encoding="utf-8"), loaded, to, renames))
        click.echo(f"{path}: rewritten for {to}", err=True)
    broken = any(c.kind is Kind.BREAKS or (c.kind is Kind.RENAMED and not write) for _, c in found)
    sys.exit(Exit.REFUSED if broken else Exit.FINE)
