"""`sglfleet matrix`: flags against SM versions, for one release."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from validators.matrix import Row

# A word and a sign each: no colour carries meaning alone.
CELLS = {
    "active": "✓ active",
    "inert": "– inert",
    "altered": "~ altered",
    "fails": "✗ fails",
    "rejected": "✗ rejected",
    "unknown": "? unknown",
}


@click.command()
@click.argument("flags", nargs=-1)
@click.option("--sglang", required=True, help="Exact release, such as 0.5.23.")
@click.option("--sm", multiple=True, help="Only these compute capabilities.")
@click.option("--tp", type=click.IntRange(min=1), default=2, show_default=True, help="Tensor-parallel size.")
@click.option(
    "--arch", default="", help="Model architecture, such as DeepseekV3ForCausalLM; without it, rows by class of model."
)
@click.option("--all", "everything", is_flag=True, help="Also values that are active on every SM.")
@click.option("--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True)
def command(
    flags: tuple[str, ...], sglang: str, sm: tuple[str, ...], tp: int, arch: str, everything: bool, form: str
) -> None:
    """Show what every flag with a gate does on every SM: all flags, or FLAGS only.

    \b
      sglfleet matrix --sglang 0.5.23
      sglfleet matrix --sglang 0.5.9 attention-backend moe-runner-backend --sm 9.0 --sm 12.0
      sglfleet matrix --sglang 0.5.23 --format html > matrix.html
    """
    from validators import gpus
    from validators.case import Case
    from validators.knowledge import UnknownReleaseError, load_sglang
    from validators.matrix import SMS, rows

    sms = tuple(sm) or SMS
    if strange := [one for one in sms if one not in gpus.SMS]:
        for one in strange:
            click.echo(f"--sm {one}: no GPU that releases were read for: known are {', '.join(gpus.SMS)}", err=True)
        sys.exit(Exit.BAD_INPUT)
    names = tuple(flag.lstrip("-").partition("=")[0] for flag in flags)
    try:
        base = Case(sglang=sglang, args={"tp-size": tp} if tp > 1 else {}, gpus=tp, model_arch=arch)
        table = [row for row in rows(base, sms, names) if everything or names or not row.plain]
    except UnknownReleaseError as error:
        click.echo(str(error), err=True)
        sys.exit(Exit.BAD_INPUT)
    missing = sorted(set(names) - {row.flag for row in table})
    if missing:
        known = load_sglang(sglang)
        for name in missing:
            spelled = known.resolve_spelling("--" + name)
            near = f": did you mean {' or '.join(spelled.near[:2])}?" if spelled.near else ": check its name"
            there = f"has no values to list: `sglfleet explain {name}=VALUE --sglang {sglang} --sm {sms[0]}` judges one"
            click.echo(f"{name}: {there if spelled.flag else f'no flag of {sglang}{near}'}", err=True)
        sys.exit(Exit.BAD_INPUT)
    if form == "json":
        click.echo(json.dumps(as_json(sglang, table), indent=2))
    elif form == "html":
        from sglfleet.templates import page

        click.echo(page("matrix.html.j2", sglang=sglang, sms=sms, rows=table, cells=CELLS, tp=tp, arch=arch))
    else:
        _text(sglang, sms, table)


def as_json(sglang: str, table: Sequence[Row]) -> dict[str, object]:
    """The document of `--format json`."""
    return {
        "schema_version": 1,
        "kind": "matrix",
        "sglang": sglang,
        "rows": [
            {
                "flag": row.flag,
                "value": row.value,
                "model": row.model,
                "sm": {
                    sm: {"outcome": v.outcome.value, "reason": v.reason, "becomes": v.becomes}
                    for sm, v in row.cells.items()
                },
            }
            for row in table
        ],
    }


def _text(sglang: str, sms: Sequence[str], table: Sequence[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table("flag", "value", *sms, title=f"SGLang {sglang}", box=box.SIMPLE)
    before = ""
    for row in table:
        value = "" if row.value is True else str(row.value)
        value += f" ({row.model})" if row.model else ""
        name = row.flag if row.flag != before else ""
        shown.add_row(name, value, *(CELLS[row.cells[sm].outcome.value] for sm in sms))
        before = row.flag
    width = None if sys.stdout.isatty() else 60 + 12 * len(sms)
    Console(width=width).print(shown)
    if any(row.model for row in table):
        print("In brackets: the class of model, where it decides. --arch shows one architecture only.")
