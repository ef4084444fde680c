"""For people: a line per service, then what matters, by cause. Colours only where the output is a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

import click

from sglfleet.exits import Exit
from sglfleet.report.model import Cause, Report, Summary, counted, named, shortened
from validators.source import printable

_HEADS = {
    "error": ("refused", "red"),
    "warning": ("changed or let through", "yellow"),
    "note": ("worth knowing", "cyan"),
}


def render(report: Report, width: int | None = None) -> str:
    """The whole report as text."""
    width = width or min(shutil.get_terminal_size((110, 24)).columns, 140)
    return "\n".join(_lines(report, width)) + "\n"


def _lines(report: Report, width: int) -> Iterator[str]:
    if report.problems:
        yield from map(str, report.problems)
        if report.summaries:
            yield ""
    if report.summaries:
        what = ", ".join((counted(report.hosts, "host"), counted(len(report.summaries), "service")))
        yield f"{printable(report.inventory)}: {what}, {counted(report.classes, 'kind')} of host"
        yield ""
        yield from _table(report.summaries)
    for level, (head, colour) in _HEADS.items():
        causes = [cause for cause in report.causes if cause.level == level]
        if causes:
            yield ""
            yield click.style(f"{head}: {len(causes)}", fg=colour, bold=True)
        for cause in causes:
            yield from _cause(cause, width)
    if report.notes:
        yield ""
        yield from map(str, report.notes)
    if report.change is not None:
        from sglfleet.report.change import lines as changed

        yield ""
        yield from changed(report.change)
    yield ""
    yield _last(report)


def _table(rows: tuple[Summary, ...]) -> Iterator[str]:
    wide = max(len(row.service) for row in rows)
    engines = max(len(row.sglang) for row in rows)
    for row in rows:
        parts = [
            f"{number} {word}"
            for number, word in (
                (row.accept, "accepted"),
                (row.downgrade, "downgraded"),
                (row.warn, "with warnings"),
                (row.refuse, "refused"),
            )
            if number
        ]
        colour = "red" if row.refuse else "yellow" if row.downgrade or row.warn else "green"
        head = f"  {printable(row.service):<{wide}}  {printable(row.sglang):<{engines}}"
        yield f"{head}  {counted(row.hosts, 'host')}: " + click.style(", ".join(parts), fg=colour)


def _cause(cause: Cause, width: int) -> Iterator[str]:
    head = f"  {cause.mark}: " + (f"{cause.what}: " if cause.what else "") + (cause.outcome or cause.level)
    if cause.decision in ("drop", "replace"):
        head += ": replaced by " + cause.becomes if cause.becomes else ": dropped"
    yield printable(head)
    for text in (cause.reason, f"waived: {cause.waiver}" if cause.waiver else "", cause.todo):
        yield from textwrap.wrap(printable(text), width, initial_indent="      ", subsequent_indent="      ")
    service = f"{cause.service} on " if cause.service else ""
    yield printable(f"      {service}{named(cause.hosts)}")
    for evidence in cause.evidence[:1]:
        yield click.style(printable(f"      read in {shortened(evidence)}"), dim=True)


def _last(report: Report) -> str:
    words = {
        Exit.FINE: ("nothing stands against it", "green"),
        Exit.REFUSED: ("refused: nothing of this would be deployed", "red"),
        Exit.BAD_INPUT: ("the input is not right: nothing was judged beyond it", "red"),
        Exit.STRICT: ("not as asked for (--strict)", "yellow"),
    }
    text, colour = words[report.exit]
    if report.problems and report.summaries:
        refused = any(cause.level == "error" for cause in report.causes)
        text = "the input is not right, see the top; the fleet was judged" + (", and refused" if refused else "")
    return click.style(f"exit {int(report.exit)}: {text}", fg=colour)
