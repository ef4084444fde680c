"""SARIF 2.1.0, for code scanning: one result per cause, at its place in the service file."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from sglfleet import __version__
from sglfleet.report.model import Cause, Report, named
from validators.source import Mark, Problem

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_INPUT = "input"


def render(report: Report) -> str:
    """One SARIF log with one run."""
    rules = sorted({cause.rule for cause in report.causes} | ({_INPUT} if report.problems or report.notes else set()))
    index = {rule: i for i, rule in enumerate(rules)}
    results = [_problem(problem, "error", index) for problem in report.problems]
    results += [_cause(cause, index) for cause in report.causes]
    results += [_problem(note, "note", index) for note in report.notes]
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "sglfleet", "version": __version__, "rules": [_rule(rule) for rule in rules]}
                },
                "invocations": [{"executionSuccessful": not report.problems, "exitCode": int(report.exit)}],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _rule(rule: str) -> dict[str, Any]:
    what = "What a service file may hold" if rule == _INPUT else f"The gate's rule {rule}"
    return {"id": rule, "shortDescription": {"text": what}}


def _result(rule: str, level: str, text: str, mark: Mark, same: str, index: dict[str, int]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(mark.file.split(", ")[0], safe="/")}}
    if mark.line:
        place["region"] = {"startLine": mark.line, "startColumn": mark.col}
    return {
        "ruleId": rule,
        "ruleIndex": index[rule],
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"sglfleet/v1": hashlib.sha256(same.encode()).hexdigest()[:16]},
    }


def _problem(problem: Problem, level: str, index: dict[str, int]) -> dict[str, Any]:
    text = f"{problem.what}: {problem.todo}" if problem.todo else problem.what
    return _result(_INPUT, level, text, problem.mark, f"{problem.mark.file} {problem.what}", index)


def _cause(cause: Cause, index: dict[str, int]) -> dict[str, Any]:
    text = " ".join(part for part in (cause.reason, cause.todo) if part)
    where = f" ({cause.service} on {named(cause.hosts, 8)})" if cause.hosts else ""
    same = f"{cause.service} {cause.rule} {cause.what} {cause.outcome}"
    found = _result(cause.rule, cause.level, text + where, cause.mark, same, index)
    found["properties"] = {
        "service": cause.service,
        "outcome": cause.outcome,
        "decision": cause.decision,
        "hosts": list(cause.hosts),
    }
    return found
