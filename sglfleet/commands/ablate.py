"""`sglfleet ablate`: tell each changed flag's own effect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from validators.verdict import Value


@click.command()
@click.argument("inventory")
@click.argument("service")
@click.option(
    "--flag", "flags", multiple=True, required=True, help="A changed flag, NAME or NAME=VALUE; several times."
)
@click.option("--limit", metavar="HOST", help="Measure on this host; by default the first that has the service.")
@click.option(
    "--direction",
    type=click.Choice(["add", "remove"]),
    default="add",
    show_default=True,
    help="Each flag alone against none of them, or all of them against all but one.",
)
@click.option(
    "--pairs", type=click.IntRange(min=2, max=200), default=5, show_default=True, help="Pairs of runs a flag."
)
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--plan", is_flag=True, help="Show what would be measured and how long it takes; start nothing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    inventory: str,
    service: str,
    flags: tuple[str, ...],
    limit: str | None,
    direction: Literal["add", "remove"],
    pairs: int,
    results: Path,
    plan: bool,
    form: str,
) -> None:
    """Measure what each changed flag of SERVICE does by itself, instead of all of them at once.

    Flags are judged first: one that does nothing costs no run. Then the service is restarted with and without the flag,
    in the order A B B A, and benchmarked each time; it stops early when the answer is clear, goes on where it was
    interrupted, and puts the service back to the release it ran before.

    \b
      sglfleet ablate inventory/staging.py qwen35-122b --flag enable-fused-moe-sum-all-reduce \\
          --flag attention-backend=flashinfer --limit gpu-7
    """
    from sglfleet.operations import HostFailed
    from sglfleet.verify import ablating
    from sglfleet.verify.arms import connected
    from validators.source import InputError

    changed = dict(_flag(text) for text in flags)
    try:
        with connected(inventory, service, limit, changed) as arms:
            study = ablating.prepare(arms, direction, pairs, results, lambda text: click.echo(text, err=True))
            for flag, why in study.skipped.items():
                click.echo(f"{flag}: no run: {why}", err=True)
            for question in study.questions:
                own = arms.off(question.flag)
                against = "not given" if own is None else str(own)
                click.echo(f"{question.flag}: {changed[question.flag]} against {against}", err=True)
            seconds, rests = study.seconds()
            steps = 2 * pairs * len(study.questions)
            click.echo(f"{steps} starts, at most {seconds / 60:.0f} minutes ({rests})", err=True)
            if plan:
                return
            answers = ablating.conduct(study)
    except InputError as error:
        click.echo("\n".join(str(problem) for problem in error.problems), err=True)
        sys.exit(Exit.BAD_INPUT)
    except HostFailed as error:
        click.echo(f"{error}\n{error.detail}".rstrip(), err=True)
        sys.exit(Exit.HOST_FAILED)
    if form == "json":
        click.echo(json.dumps(ablating.as_json(service, answers), indent=2))
        return
    _show(answers)


def _flag(text: str) -> tuple[str, Value]:
    name, equals, value = text.lstrip("-").partition("=")
    if not equals:
        return name, True
    import yaml

    read = yaml.safe_load(value)
    return name, read if isinstance(read, str | int | float | bool) else value


def _show(answers: object) -> None:
    from typing import cast

    from sglfleet.report import effects
    from sglfleet.verify.ablating import Answer

    for answer in cast(list[Answer], answers):
        if answer.comparison is None:
            click.echo(f"{answer.flag}: not measured: {answer.skipped}")
            continue
        effects.show(effects.effects_table(answer.comparison))
        for line in [*effects.problem_lines(answer.comparison.problems), *answer.comparison.notes]:
            click.echo(line)
        click.echo(f"{answer.flag}: {effects.sentence(answer.comparison)}")
        if told := effects.advice(answer.flag, answer.comparison, answer.engine):
            click.echo(told)
