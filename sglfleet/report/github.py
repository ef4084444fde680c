"""Annotations of a pull request: GitHub's workflow commands, one line each, escaped."""

from __future__ import annotations

from sglfleet.report.model import Cause, Report, named
from validators.source import Problem

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report) -> str:
    """One command a line; GitHub shows the first ten of each kind a step."""
    lines = [_problem("error", problem) for problem in report.problems]
    lines += [_cause(cause) for cause in report.causes]
    lines += [_problem("notice", note) for note in report.notes]
    return "".join(line + "\n" for line in lines)


def command(kind: str, message: str, **properties: str | int) -> str:
    """`::kind name=value,…::message` with everything escaped that would end it early."""
    shown = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value)
    return f"::{kind}{' ' if shown else ''}{shown}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _problem(kind: str, problem: Problem) -> str:
    message = f"{problem.what}: {problem.todo}" if problem.todo else problem.what
    mark = problem.mark
    return command(kind, message, file=mark.file, line=mark.line, col=mark.col, title="sglfleet")


def _cause(cause: Cause) -> str:
    parts = [cause.reason, cause.todo, f"Hosts: {named(cause.hosts, 8)}" if cause.hosts else ""]
    title = f"{cause.service}: {cause.what or cause.rule}: {cause.decision or cause.outcome}"
    message = "\n".join(part for part in parts if part)
    mark = cause.mark
    return command(_LEVELS[cause.level], message, file=mark.file, line=mark.line, col=mark.col, title=title)
