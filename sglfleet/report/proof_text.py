"""A proof for people: a line per flag, what decided it, and what was seen. Colours only on a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

import click

from sglfleet.report.proof_words import DECIDED, LEGEND, MARKS, headline
from sglfleet.verify.document import Document, HostProof
from sglfleet.verify.findings import Proof
from validators.source import printable
from validators.verdict import Status

COLOURS = {Status.PROVEN: "green", Status.CONTRADICTED: "red", Status.NOT_PROVEN: "yellow"}
ORDER = (Status.CONTRADICTED, Status.NOT_PROVEN, Status.PROVEN)


def render(document: Document, width: int | None = None, evidence: bool = False) -> str:
    """The whole document. `evidence`: also for what is proven."""
    width = width or min(shutil.get_terminal_size((110, 24)).columns, 140)
    lines = [line for host in document.hosts for line in _host(host, width, evidence)]
    return "\n".join([*lines, *_end(document, width)]) + "\n"


def _end(document: Document, width: int) -> Iterator[str]:
    """What it came to, and what the words mean."""
    there = {str(p.status) for host in document.hosts for p in host.proofs}
    there |= {str(host.correctness.status) for host in document.hosts if host.correctness}
    for word, text in LEGEND.items():
        if word in there:
            first = click.style(f"{MARKS[word]} {word}", fg=COLOURS[Status(word)]) + ": "
            yield from _wrapped(first, text, width, 4)
    said = headline(host.to_json() for host in document.hosts)
    yield from _wrapped("", click.unstyle(said), width, 0)


def _host(host: HostProof, width: int, evidence: bool) -> Iterator[str]:
    release = f", release {host.release}" if host.release else ""
    engine = f", SGLang {host.sglang}" if host.sglang else ""
    yield click.style(printable(f"{host.service or host.url} on {host.host}{release}{engine}"), bold=True)
    if host.error:
        word = "" if host.proofs else "not looked at: "
        yield from (click.style(line, fg="red") for line in _wrapped("  ", f"{word}{host.error}", width, 4))
        yield from (f"  {printable(text)}" for text in host.diagnosis)
        if not host.proofs:
            yield ""
            return
    longest = min(44, max([12, *(len(_name(p)) for p in host.proofs)]))
    for status in ORDER:
        for proof in host.proofs:
            if proof.status is status:
                yield from _flag(proof, longest, width, evidence or status is not Status.PROVEN)
    if host.correctness:
        status = host.correctness.status
        word = click.style(f"{MARKS[status]} {status:12}", fg=COLOURS[status])
        yield from _columns(f"  {word} ", "output", host.correctness.reason, longest, width)
    unexplained = [row for row in host.rows if not row.explained]
    for row in unexplained:
        yield click.style(f"  {row.flag}: asked {row.asked}, effective {row.effective}: {row.reason}", fg="yellow")
    if host.disagreements:
        yield "  what the engine on this host said before the launch:"
        for text in host.disagreements:
            yield from _wrapped("    ", click.unstyle(text), width, 6)
    for name, why in sorted(host.gaps.items()):
        yield f"  not seen: {name}: {printable(why)}"
    yield ""


def _name(proof: Proof) -> str:
    value = "" if proof.value is True else f"={proof.value}"
    return printable(f"{proof.flag}{value}")


def _flag(proof: Proof, longest: int, width: int, evidence: bool) -> Iterator[str]:
    word = click.style(f"{MARKS[proof.status]} {proof.status:12}", fg=COLOURS[proof.status])
    gone = f" ({DECIDED[proof.decision]}: judged {proof.outcome})" if proof.decision in ("drop", "replace") else ""
    yield from _columns(f"  {word} ", _name(proof), f"{proof.reason}{gone}", longest, width)
    if not evidence:
        return
    for finding in proof.findings:
        for shown in finding.evidence[:3]:
            yield from _wrapped(" " * 19, printable(shown), width, 21)


def _columns(first: str, name: str, reason: str, longest: int, width: int) -> Iterator[str]:
    """The reason beside the name, or, on a narrow terminal, below it."""
    at = 17 + longest + 2
    if width - at < 40:
        yield first + name
        yield from _wrapped(" " * 17, reason, width, 17)
        return
    lines = textwrap.wrap(printable(reason), width - at, break_long_words=False) or [""]
    yield f"{first}{name:{longest}}  {lines[0]}"
    yield from (" " * at + line for line in lines[1:])


def _wrapped(first: str, text: str, width: int, indent: int) -> Iterator[str]:
    lines = textwrap.wrap(printable(text), max(40, width - indent), break_long_words=False) or [""]
    yield first + lines[0]
    yield from (" " * indent + line for line in lines[1:])
