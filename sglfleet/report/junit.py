"""JUnit XML: a suite per service, a case per host; what is refused is a failure, bad input an error."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from sglfleet.report.model import Cause, Report

# XML 1.0 has no way to write these, escaped or not
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """One document."""
    by_pair: dict[tuple[str, str], list[Cause]] = {}
    for cause in report.causes:
        for host in cause.hosts:
            for service in cause.service.split(", "):
                by_pair.setdefault((host, service), []).append(cause)
    body: list[str] = []
    tests = failures = errors = 0
    for row in report.summaries:
        cases = [
            _case(pair.host, row.service, by_pair.get((pair.host, row.service), []))
            for pair in report.pairs
            if pair.service == row.service
        ]
        failed = sum("<failure" in case for case in cases)
        tests, failures = tests + len(cases), failures + failed
        body.append(_suite(row.service, cases, failed, 0))
    if report.problems:
        cases = []
        for problem in report.problems:
            message = f"{problem.what}: {problem.todo}" if problem.todo else problem.what
            inner = f'<error message={_attr(message)} type="input">{_text(str(problem))}</error>'
            cases.append(f"<testcase classname={_attr('input')} name={_attr(str(problem.mark))}>{inner}</testcase>")
        tests, errors = tests + len(cases), len(cases)
        body.append(_suite("input", cases, 0, len(cases)))
    head = f'<testsuites name="sglfleet check" tests="{tests}" failures="{failures}" errors="{errors}">'
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, *body, "</testsuites>"]) + "\n"


def _suite(name: str, cases: list[str], failures: int, errors: int) -> str:
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="0"'
    return "\n".join([f"<testsuite name={_attr(name)} {counts}>", *cases, "</testsuite>"])


def _case(host: str, service: str, causes: list[Cause]) -> str:
    refused = [cause for cause in causes if cause.level == "error"]
    others = [cause for cause in causes if cause.level != "error"]
    inner = ""
    if refused:
        message = "; ".join(cause.reason for cause in refused)
        inner += f'<failure message={_attr(message)} type="refused">{_text(_details(refused))}</failure>'
    if others:
        inner += f"<system-out>{_text(_details(others))}</system-out>"
    return f"<testcase classname={_attr(service)} name={_attr(host)}>{inner}</testcase>"


def _details(causes: list[Cause]) -> str:
    return "\n".join(
        f"{cause.mark}: {cause.what or cause.rule}: {cause.reason} {cause.todo}".rstrip() for cause in causes
    )


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("?", text))


def _attr(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("?", text))
