"""A proof as text, JSON, JUnit and a page: the same thing four times, and nothing of a server's text can break out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from sglfleet.cli import main
from sglfleet.verify import showing
from sglfleet.verify.correctness import Correctness
from sglfleet.verify.document import Document, HostProof, verdicts
from sglfleet.verify.effective import table
from sglfleet.verify.findings import prove
from tests.sglfleet.verify.recorded import ACTIVE_FUSION, FUSION, NO_FUSION, seen, verdict
from validators.verdict import Decision, Judgement, Outcome, Overall, Status

EVIL = "<script>alert(1)</script>\x00\x1b[31m]]>\"'&\u202e"


@pytest.fixture(scope="module")
def document():
    on, forced = seen("tp2-fusion-on"), seen("tp1-fusion-flag")
    good = [verdict(FUSION, *ACTIVE_FUSION, value="auto"), verdict("schedule-policy", value="lpm")]
    idle = [verdict(FUSION, *NO_FUSION, outcome=Outcome.INERT, decision=Decision.WARN)]
    return Document(
        "inventory/prod.py",
        "2026-11-29T18:00:00Z",
        (
            HostProof(
                "gpu-1", "moe", "abc123", "0.5.16", proofs=prove(good, on), rows=table({"tp-size": 2}, good, on),
                correctness=Correctness(Status.NOT_PROVEN, EVIL, (EVIL,)), gaps={"metrics": EVIL}, diagnosis=(EVIL,),
            ),
            HostProof("gpu-2", "moe", proofs=prove(idle, forced)),
            HostProof("gpu-3", "moe", error=EVIL),
        ),
    )  # fmt: skip


def test_exit_codes(document):
    assert document.exit() == 1
    assert Document("x", "t", document.hosts[2:]).exit() == 4
    assert Document("x", "t", document.hosts[:1]).exit() == 0
    assert Document("x", "t", document.hosts[:1]).exit(strict=True) == 3


def test_kept_and_read_again(document, tmp_path):
    path = showing.keep(document, str(tmp_path))
    assert showing.load(path) == document
    assert path.with_suffix(".html").exists()


def test_page_is_one_file_that_loads_nothing_and_runs_nothing(document):
    page = showing.render(document, "html")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(?:src|href)=(?![\"']?#)""", page)
    assert "@import" not in page
    assert "url(" not in page
    for text in (
        "prefers-color-scheme:dark",
        "width=device-width",
        "gpu-1",
        "abc123",
        "oneshot_lamport",
        "contradicted",
    ):
        assert text in page


def test_junit(document):
    root = ElementTree.fromstring(showing.render(document, "junit"))
    suites = root.findall("testsuite")
    assert [(s.get("name"), s.get("failures"), s.get("errors")) for s in suites] == [
        ("gpu-1/moe", "0", "0"), ("gpu-2/moe", "1", "0"), ("gpu-3/moe", "0", "1"),
    ]  # fmt: skip
    assert len(root.findall(".//skipped")) == 2
    assert showing.render(document, "junit", strict=True).count("<failure") == 3


def test_text(document):
    text = showing.render(document, "text", evidence=True)
    for part in ("proven", "contradicted", "not proven", "gpu-3", "not looked at", "left on the command line"):
        assert part in text
    assert "\x1b[31m]]" not in text
    assert "\u202e" not in text


def test_report_command(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(main, ["report"]).exit_code == 2
    showing.keep(document)
    assert "gpu-2" in runner.invoke(main, ["report", "--format", "text"]).output
    (tmp_path / "x.json").write_text("{}")
    bad = runner.invoke(main, ["report", "x.json"])
    assert bad.exit_code == 2
    assert "not a proof" in bad.output
    assert json.loads(runner.invoke(main, ["report", "--format", "json"]).output)["exit"] == 1


def test_verdicts_survive_a_manifest():
    many = (verdict(FUSION, *ACTIVE_FUSION, value="auto"), verdict("x", outcome=Outcome.INERT, decision=Decision.DROP))
    kept = json.loads(json.dumps(Judgement(Overall.ACCEPT, many, (), {}).to_json()))
    assert verdicts(kept["verdicts"]) == many


def test_json_keeps_to_its_schema(document):
    import jsonschema

    schema = json.loads((Path(__file__).parents[3] / "schemas" / "proof.json").read_text())
    jsonschema.validate(json.loads(showing.render(document, "json")), schema)
    assert schema["properties"]["schema_version"]["const"] == document.to_json()["schema_version"]
