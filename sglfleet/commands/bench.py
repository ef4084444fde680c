"""`sglfleet bench`: measure a service, or compare two measurements."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from sglfleet.verify.runs import Run


class Bench(click.Group):
    """`bench INVENTORY SERVICE` without a word in between, `bench compare A B` beside it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=Bench, context_settings={"ignore_unknown_options": True}, invoke_without_command=False)
def command() -> None:
    """Measure a service on its hosts with the engine's own benchmark, or compare two measurements.

    \b
      sglfleet bench inventory/prod.py qwen35-122b
      sglfleet bench compare results/h200-x8/qwen-0.5.16.jsonl results/h200-x8/qwen-0.5.23.jsonl
      sglfleet bench compare results/ab.jsonl#fusion-off results/ab.jsonl#fusion-on --format json
    """


@command.command("run", hidden=True)
@click.argument("inventory")
@click.argument("service")
@click.option(
    "--limit",
    "only",
    metavar="HOST",
    multiple=True,
    help="Measure on these hosts only; by default the first that runs it.",
)
@click.option("--repeats", type=click.IntRange(min=1), help="Runs per concurrency; else the service file's.")
@click.option("--seed", type=int, help="Seed of the first run; by default one that was never used.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def run_command(
    inventory: str,
    service: str,
    only: tuple[str, ...],
    repeats: int | None,
    seed: int | None,
    results: Path,
    form: str,
) -> None:
    """Measure SERVICE on hosts of INVENTORY that run it; every valid run is kept under results/."""
    from sglfleet.verify.measuring import measure_service
    from validators.source import InputError

    try:
        made = measure_service(inventory, service, only, repeats, seed, results)
    except (InputError, ValueError) as error:
        click.echo(str(error), err=True)
        sys.exit(Exit.BAD_INPUT)
    from sglfleet.report import effects

    if form == "json":
        click.echo(json.dumps(effects.runs_json(service, made.valid, made.problems), indent=2))
    else:
        if made.valid:
            effects.show(effects.runs_table(made.valid))
        for line in effects.problem_lines(made.problems):
            click.echo(line)
    for line in made.failed:
        click.echo(line, err=True)
    codes = [Exit.HOST_FAILED] * bool(made.failed) + [Exit.REFUSED] * any(p.fatal for _, p in made.problems)
    sys.exit(Exit.worst(codes))


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--service", required=True, help="The service that was measured.")
@click.option("--arm", default="", help="Name of this variant, for `compare FILE#ARM`.")
@click.option("--host", default="elsewhere", show_default=True, help="Where it ran.")
@click.option("--host-class", default="", help="Runs of one class may be compared; by default those of one host.")
@click.option("--gpu", default="", help="Name and number, as «NVIDIA H200 x8».")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
def import_command(
    files: tuple[Path, ...], service: str, arm: str, host: str, host_class: str, gpu: str, results: Path
) -> None:
    """Take in results of aiperf (profile_export_aiperf.json) or guidellm (its JSON report), to be compared later.

    A run that is not valid is shown and not kept. These clients do not tell prefix-cache hits, restarts or power.
    """
    from sglfleet.report.effects import problem_line
    from sglfleet.verify import clients, runs, validity

    found, wrong = [], []
    for file in files:
        try:
            found += clients.read(file, service=service, arm=arm, host=host, host_class=host_class, gpu=gpu)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        click.echo("\n".join(sorted(wrong)), err=True)
        sys.exit(Exit.BAD_INPUT)
    codes = []
    for run in found:
        problems = validity.of_run(run)
        for problem in problems:
            click.echo(problem_line(f"concurrency {run.concurrency}", problem))
        if any(p.fatal for p in problems):
            codes.append(Exit.REFUSED)
        else:
            click.echo(f"kept in {runs.keep(run, results)}")
    sys.exit(Exit.worst(codes))


@command.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--margin", default=0.02, show_default=True, help="A change smaller than this is no effect.")
@click.option(
    "--as-released", is_flag=True, help="Compare releases as a whole: flags that were not proven are only remarks."
)
@click.option("--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True)
def compare_command(a: str, b: str, margin: float, as_released: bool, form: str) -> None:
    """Effect of B against A: faster, slower, no effect or inconclusive, with intervals.

    A and B are result files of `sglfleet bench`, or FILE#ARM for the runs of one arm or release in a file.
    """
    from sglfleet.report import effects
    from sglfleet.verify.compare import compare

    if not 0 < margin < 1:
        raise click.BadParameter(f"{margin}: a margin is a share between 0 and 1: 0.02 is 2 %", param_hint="--margin")
    arms, wrong = [], []
    for chosen in (a, b):
        try:
            arms.append(select(chosen))
        except (OSError, ValueError) as error:
            wrong.append(str(error))
    if wrong:
        click.echo("\n".join(sorted(wrong)), err=True)
        sys.exit(Exit.BAD_INPUT)
    comparison = compare(*arms, margin=margin, as_released=as_released)
    if form == "json":
        click.echo(json.dumps(effects.comparison_json(comparison), indent=2))
        return
    if form == "html":
        from sglfleet.report import html

        figures = effects.figures(comparison.b, comparison, *arms)
        click.echo(
            html.render({"started": _span(arms)}, tuple(figures), title=f"{comparison.b} against {comparison.a}")
        )
        return
    effects.show(effects.effects_table(comparison))
    for line in [*effects.problem_lines(comparison.problems), *comparison.notes]:
        click.echo(line)
    click.echo(effects.sentence(comparison))


def _span(arms: Sequence[Sequence[Run]]) -> str:
    """When the runs were made."""
    from datetime import UTC, datetime

    began = [datetime.fromtimestamp(run.started, UTC).strftime("%Y-%m-%d %H:%M UTC") for arm in arms for run in arm]
    return f"runs from {min(began)} to {max(began)}" if began else ""


def select(chosen: str) -> Sequence[Run]:
    """Runs of `FILE` or `FILE#ARM`. Raises OSError or ValueError with a message for people."""
    from sglfleet.verify.runs import load

    file, _, arm = chosen.partition("#")
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"{file}: no such file: give a result file of `sglfleet bench`")
    runs = load([path])
    found = [run for run in runs if arm in ("", run.arm, run.release)]
    if not found:
        names = sorted({run.arm or run.release for run in runs}) or ["none"]
        raise ValueError(f"{chosen}: no runs of that arm: the file has {', '.join(names)}")
    return found
