"""A proof for people: a line per flag, what decided it, and what was seen. Colours only on a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

import click

from sglfleet.verify.document import Document, HostProof
from sglfleet.verify.findings import Proof
from validators.source import printable
from validators.verdict import Status

COLOURS = {Status.PROVEN: "green", Status.CONTRADICTED: "red", Status.NOT_PROVEN: "yellow"}
ORDER = (Status.CONTRADICTED, Status.NOT_PROVEN, Status.PROVEN)


def render(document: Document, width: int | None = None, evidence: bool = False) -> str:
    """The whole document. `evidence`: also for what is proven."""
    width = width or min(shutil.get_terminal_size((110, 24)).columns, 140)
    return "\n".join(line for host in document.hosts for line in _host(host, width, evidence)) + "\n"


def _host(host: HostProof, width: int, evidence: bool) -> Iterator[str]:
    release = f", release {host.release}" if host.release else ""
    engine = f", SGLang {host.sglang}" if host.sglang else ""
    yield click.style(printable(f"{host.service or host.url} on {host.host}{release}{engine}"), bold=True)
    if host.error:
        yield click.style(f"  not looked at: {printable(host.error)}", fg="red")
        yield from (f"  {printable(text)}" for text in host.diagnosis)
        yield ""
        return
    longest = min(44, max([12, *(len(_name(p)) for p in host.proofs)]))
    for status in ORDER:
        for proof in host.proofs:
            if proof.status is status:
                yield from _flag(proof, longest, width, evidence or status is not Status.PROVEN)
    if host.correctness:
        word = click.style(f"{host.correctness.status:12}", fg=COLOURS[host.correctness.status])
        yield from _wrapped(f"  {word} ", f"{'output':{longest}}  {host.correctness.reason}", width, 15)
    unexplained = [row for row in host.rows if not row.explained]
    for row in unexplained:
        yield click.style(f"  {row.flag}: asked {row.asked}, effective {row.effective}: {row.reason}", fg="yellow")
    yield from (click.style(f"  {printable(text)}", fg="red") for text in host.disagreements)
    for name, why in sorted(host.gaps.items()):
        yield f"  not seen: {name}: {printable(why)}"
    yield ""


def _name(proof: Proof) -> str:
    value = "" if proof.value is True else f"={proof.value}"
    return printable(f"{proof.flag}{value}")


def _flag(proof: Proof, longest: int, width: int, evidence: bool) -> Iterator[str]:
    word = click.style(f"{proof.status:12}", fg=COLOURS[proof.status])
    gone = f" ({proof.decision})" if proof.decision in ("drop", "replace") else " (forced)" if proof.forced else ""
    yield from _wrapped(f"  {word} ", f"{_name(proof):{longest}}  {proof.reason}{gone}", width, 15)
    if not evidence:
        return
    for finding in proof.findings:
        for shown in finding.evidence[:3]:
            yield from _wrapped(" " * 17, printable(shown), width, 19)


def _wrapped(first: str, text: str, width: int, indent: int) -> Iterator[str]:
    lines = textwrap.wrap(printable(text), max(40, width - indent), break_long_words=False) or [""]
    yield first + lines[0]
    yield from (" " * indent + line for line in lines[1:])
