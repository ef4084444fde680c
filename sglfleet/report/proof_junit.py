"""A proof as JUnit XML: a suite per server, a case per flag. Contradicted is a failure, not proven is skipped."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from sglfleet.verify.document import Document, HostProof
from validators.verdict import Status

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(document: Document, strict: bool = False) -> str:
    """One document. `strict`: not proven is a failure too."""
    suites = [_suite(host, strict) for host in document.hosts]
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>", *suites, "</testsuites>"]) + "\n"


def _suite(host: HostProof, strict: bool) -> str:
    name = f"{host.host}/{host.service}"
    rows = [(p.flag, p.status, p.reason, [e for f in p.findings for e in f.evidence]) for p in host.proofs]
    if host.correctness:
        rows.append(("output", host.correctness.status, host.correctness.reason, list(host.correctness.details)))
    cases = [_case(name, flag, status, reason, seen, strict) for flag, status, reason, seen in rows]
    errors = 0
    if host.error:
        errors = 1
        cases.append(f"<testcase classname={_attr(name)} name='server'><error message={_attr(host.error)}/></testcase>")
    failures = sum("<failure" in case for case in cases)
    skipped = sum("<skipped" in case for case in cases)
    head = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
    return f"<testsuite name={_attr(name)} {head}>{''.join(cases)}</testsuite>"


def _case(suite: str, flag: str, status: Status, reason: str, seen: list[str], strict: bool) -> str:
    inner = ""
    if status is Status.CONTRADICTED or (strict and status is Status.NOT_PROVEN):
        inner = f"<failure message={_attr(reason)} type={_attr(str(status))}>{_text(chr(10).join(seen))}</failure>"
    elif status is Status.NOT_PROVEN:
        inner = f"<skipped message={_attr(f'not proven: {reason}')}/>"
    else:
        inner = f"<system-out>{_text(chr(10).join([reason, *seen]))}</system-out>"
    return f"<testcase classname={_attr(suite)} name={_attr(flag)}>{inner}</testcase>"


def _attr(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("�", text))


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("�", text))
