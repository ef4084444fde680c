"""Keeping a proof as a file, reading it back, and showing it in one of the formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sglfleet.outfile import write_out
from sglfleet.verify.correctness import Correctness
from sglfleet.verify.document import SCHEMA_VERSION, Document, HostProof
from sglfleet.verify.effective import Row
from sglfleet.verify.findings import Finding, Proof
from validators.verdict import Expectation, Status

REPORTS = "reports"


def show(
    document: Document, form: str, *, evidence: bool = False, strict: bool = False, output: str | None = None
) -> None:
    """Print the document, or write it to a file."""
    text = render(document, form, evidence, strict)
    if output:
        write_out(output, click.unstyle(text) if form == "text" else text)
    else:
        click.echo(text, nl=False)


def render(
    document: Document, form: str, evidence: bool = False, strict: bool = False, charts: tuple[str, ...] = ()
) -> str:
    """The document as `text`, `json`, `junit` or `html`. `charts`: HTML of our own for the page."""
    if form == "json":
        return json.dumps(document.to_json(), indent=1, ensure_ascii=False) + "\n"
    if form == "html":
        from sglfleet.report import html

        return html.render(document.to_json(), charts)
    if form == "junit":
        from sglfleet.report import proof_junit

        return proof_junit.render(document, strict)
    from sglfleet.report import proof_text

    return proof_text.render(document, evidence=evidence)


def keep(document: Document, folder: str = REPORTS, charts: tuple[str, ...] = ()) -> Path:
    """Write the document as JSON and as a page into a folder; the JSON's path."""
    home = Path(folder)
    home.mkdir(exist_ok=True)
    stamp = document.started.replace(":", "").replace("-", "")
    path = home / f"proof-{stamp}.json"
    path.write_text(render(document, "json"), encoding="utf-8")
    path.with_suffix(".html").write_text(render(document, "html", charts=charts), encoding="utf-8")
    return path


def load(path: Path) -> Document:
    """A kept document. Raises ValueError, KeyError or TypeError where it is none."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.get("kind") != "proof":
        raise ValueError("no proof in it")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema_version {data.get('schema_version')}, this release reads {SCHEMA_VERSION}")
    return Document(data["source"], data["started"], tuple(_host(host) for host in data["hosts"]))


def _host(row: dict[str, Any]) -> HostProof:
    right = row.get("correctness")
    plain = {key: row[key] for key in ("host", "service", "release", "sglang", "url", "error", "gaps", "seconds")}
    return HostProof(
        **plain,
        proofs=tuple(_proof(p) for p in row["proofs"]),
        rows=tuple(Row(**r) for r in row["arguments"]),
        correctness=Correctness(Status(right["status"]), right["reason"], tuple(right["details"])) if right else None,
        disagreements=tuple(row["disagreements"]),
        diagnosis=tuple(row["diagnosis"]),
        outputs=tuple(row["outputs"]),
    )


def _proof(row: dict[str, Any]) -> Proof:
    findings = tuple(
        Finding(
            f["flag"], Status(f["status"]), f["reason"],
            Expectation(**f["expectation"]) if f["expectation"] else None, tuple(f["evidence"]), f["decisive"],
        )
        for f in row["findings"]
    )  # fmt: skip
    told = (row["flag"], row["value"], Status(row["status"]), row["reason"], row["outcome"], row["decision"])
    return Proof(*told, findings, row["forced"])
