"""A comment on a pull request: short, and never longer than a forge takes (65,536 characters on GitHub)."""

from __future__ import annotations

import re

from sglfleet.report.escape import code, esc
from sglfleet.report.model import Cause, Report, counted, named

LIMIT = 60_000
_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def render(report: Report) -> str:
    """The whole comment."""
    parts = [f"### sglfleet check: {_title(report)}", ""]
    if report.problems:
        parts += [
            "**The input is not right**",
            "",
            *(f"- {code(str(problem.mark))} {esc(_says(problem.what, problem.todo))}" for problem in report.problems),
            "",
        ]
    if report.change is not None:
        from sglfleet.report.change import markdown as changed

        parts += [*changed(report.change), ""]
    if report.summaries:
        parts += [
            "| service | engine | hosts | accepted | downgraded | warnings | refused |",
            "|---|---|--:|--:|--:|--:|--:|",
        ]
        parts += [
            f"| {code(row.service)} | {esc(row.sglang)} | "
            f"{row.hosts} | {row.accept} | {row.downgrade} | {row.warn} | {row.refuse} |"
            for row in report.summaries
        ]
        parts.append("")
    for cause in report.causes:
        parts += _cause(cause)
    return cut("\n".join(parts).rstrip() + "\n")


def cut(text: str) -> str:
    """At most LIMIT characters, ending at a line, saying so; an open code block is closed."""
    if len(text) <= LIMIT:
        return text
    kept = text[:LIMIT].rsplit("\n", 1)[0]
    if len(re.findall(r"(?m)^\s*```", kept)) % 2:
        kept += "\n```"
    return kept + "\n\n… cut here; the whole text is in the job's log.\n"


def _says(what: str, todo: str) -> str:
    return f"{what}: {todo}" if todo else what


def _title(report: Report) -> str:
    words = {0: "nothing stands against it", 1: "refused", 2: "the input is not right", 3: "not as asked for"}
    return f"{words[int(report.exit)]} ({counted(report.hosts, 'host')})"


def _cause(cause: Cause) -> list[str]:
    said = esc(cause.decision or cause.outcome)
    head = f"{_MARKS[cause.level]} {code(cause.what or cause.rule)} **{said}** in {code(cause.service)}"
    where = f"{code(str(cause.mark))}, on {esc(named(cause.hosts))}" if cause.hosts else code(str(cause.mark))
    lines = [f"- {head}: {esc(cause.reason)}", f"  {where}"]
    if cause.becomes:
        lines.append(f"  → {code(cause.becomes)}")
    if cause.todo:
        lines.append(f"  *{esc(cause.todo)}*")
    return lines
