"""For programs: the whole report, `schemas/check.json`."""

from __future__ import annotations

import json
from typing import Any

from sglfleet.report.model import SCHEMA_VERSION, Cause, Report
from validators.source import Mark, Problem


def render(report: Report) -> str:
    """One JSON document."""
    return json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n"


def plain(report: Report) -> dict[str, Any]:
    """The report as dicts and lists."""
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "inventory": report.inventory,
        "exit": int(report.exit),
        "hosts": report.hosts,
        "problems": [_problem(problem) for problem in report.problems],
        "notes": [_problem(note) for note in report.notes],
        "services": [
            {
                "service": row.service,
                "file": row.file,
                "sglang": row.sglang,
                "hosts": row.hosts,
                "accept": row.accept,
                "downgrade": row.downgrade,
                "warn": row.warn,
                "refuse": row.refuse,
            }
            for row in report.summaries
        ],
        "causes": [_cause(cause) for cause in report.causes],
        "pairs": [
            {"host": pair.host, "service": pair.service, "decision": pair.decision, "argv": list(pair.argv)}
            for pair in report.pairs
        ],
    }
    if report.change is not None:
        from sglfleet.report.change import plain as changed

        found["change"] = changed(report.change)
    return found


def _mark(mark: Mark) -> dict[str, Any]:
    return {"file": mark.file, "line": mark.line, "col": mark.col}


def _problem(problem: Problem) -> dict[str, Any]:
    return {**_mark(problem.mark), "what": problem.what, "todo": problem.todo}


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        **_mark(cause.mark),
        "level": cause.level,
        "rule": cause.rule,
        "service": cause.service,
        "what": cause.what,
        "outcome": cause.outcome,
        "decision": cause.decision,
        "reason": cause.reason,
        "todo": cause.todo,
        "becomes": cause.becomes,
        "waiver": cause.waiver,
        "evidence": list(cause.evidence),
        "hosts": list(cause.hosts),
    }
