# ruff: noqa: E501 - output is compared whole
"""Pre-merge validation: causes, places, exit codes, and six formats, on small projects of their own."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from junitparser import JUnitXml

from sglfleet import checking
from sglfleet.checking import check, facts_of
from sglfleet.exits import Exit
from sglfleet.inventory import read_inventory
from sglfleet.report import console, github, junit, markdown, sarif
from sglfleet.report import json as as_json
from sglfleet.report.model import Cause, Pair, Report, Summary, named
from tests.sglfleet.test_inventory import project
from validators.source import Mark, Problem

ROOT = Path(__file__).parents[2]
FORMATS = ROOT / "tests" / "fixtures" / "formats"
TODAY = date(2026, 11, 29)

SERVICE = """\
service: qwen
engine: {sglang: 0.5.9}
model: {path: /m, arch: Qwen3MoeForCausalLM}
gpus: [0, 1, 2, 3]
args:
  tp-size: 4
  enable-flashinfer-allreduce-fusion: true
"""
BASE = {
    "inventory/prod.py": 'pro = ["p1", "p2"]\nh100 = ["h1"]',
    "group_data/pro.py": 'gpu = "rtx-pro-6000 x4"\nservices = ["qwen"]',
    "group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]',
    "group_data/services/qwen.yaml": SERVICE,
}


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], **more: Any) -> Report:
    root = project(tmp_path, {**BASE, **files})
    monkeypatch.chdir(root)
    return check("inventory/prod.py", TODAY, **more)


def test_the_seed_story_is_told_before_the_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.5.9 takes the fusion flag on SM 12.0 and never uses it: dropped there, kept on SM 9.0, said once for both hosts."""
    report = run(tmp_path, monkeypatch, {})
    assert report.exit is Exit.FINE
    assert [(s.service, s.downgrade, s.accept, s.refuse) for s in report.summaries] == [("qwen", 2, 1, 0)]
    dropped = [cause for cause in report.causes if cause.level == "warning"]
    assert [(c.what, c.outcome, c.decision, c.hosts) for c in dropped] == [
        ("enable-flashinfer-allreduce-fusion: true", "inert", "drop", ("p1", "p2"))
    ]
    assert str(dropped[0].mark) == "group_data/services/qwen.yaml:7:3"
    assert dropped[0].evidence
    argv = {pair.host: pair.argv for pair in report.pairs}
    assert "--enable-flashinfer-allreduce-fusion" not in argv["p1"]
    assert "--enable-flashinfer-allreduce-fusion" in argv["h1"]
    assert run(tmp_path, monkeypatch, {}, strict=True).exit is Exit.STRICT


@pytest.mark.parametrize(("file", "said"), [
    ("group_data/pro.py", "group_data/pro.py: group data, no inventory: name an inventory, such as inventory/prod.py"),
    ("group_data/services/qwen.yaml", "group_data/services/qwen.yaml: a service file, no inventory"),
])  # fmt: skip
def test_a_file_that_is_no_inventory(file: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, BASE))
    report = check(file, TODAY)
    assert report.exit is Exit.BAD_INPUT
    assert said in console.render(report, 1000)


def test_a_clash_fails_every_service_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = SERVICE.replace("service: qwen", "service: two")
    report = run(tmp_path, monkeypatch, {
        "group_data/services/two.yaml": two, "group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen", "two"]',
    })  # fmt: skip
    assert [(c.service, c.rule) for c in report.causes if c.level == "error"] == [("qwen, two", "conflict")] * 2
    assert junit.render(report).count("<failure") == 2
    jsonschema.validate(json.loads(as_json.render(report)), json.loads((ROOT / "schemas/check.json").read_text()))


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        ({"group_data/h100.py": 'services = ["qwen"]'}, 1, "group_data/services/qwen.yaml:4:1: gpus: [0, 1, 2, 3]: unknown"),
        ({"group_data/h100.py": 'gpu = "h100 x2"\nservices = ["qwen"]'}, 1, "GPUs 2, 3 do not exist: the host has 2 GPUs, 0 to 1."),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\nservice_overrides = {\n  "qwen": {"args": {"tp-size": 8}}}'}, 1, "group_data/h100.py:4:21: tp-size: 8: fails"),
        ({"group_data/services/qwen.yaml": SERVICE.replace("tp-size", "tpsize")}, 1, "group_data/services/qwen.yaml:6:3: tpsize: 4: rejected"),
        ({"group_data/services/qwen.yaml": SERVICE.replace("{path: /m,", "{path: Qwen/Qwen3,")}, 1, "`hf download Qwen/Qwen3 --local-dir /models/Qwen3`"),
        ({"group_data/services/qwen.yaml": SERVICE.replace("0.5.9", "9.9.9")}, 1, "no knowledge of this release"),
        ({"group_data/services/two.yaml": SERVICE.replace("qwen", "two"), "group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen", "two"]'}, 1, "port 30000 wanted by services `qwen` and `two` on the same host"),
        ({"group_data/services/qwen.yaml": SERVICE + "rolout: {}"}, 2, "group_data/services/qwen.yaml:8:1: unknown key `rolout`: did you mean `rollout`?"),
        ({"group_data/services/unused.yaml": "- x"}, 2, "group_data/services/unused.yaml:1:1: a service file is a mapping"),
        ({"group_data/services/twice.yaml": SERVICE}, 2, "group_data/services/twice.yaml:1:1: service `qwen` is defined in group_data/services/qwen.yaml too"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwn"]'}, 2, "group_data/h100.py:2:1: no service `qwn`: did you mean `qwen`?"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = "qwen"'}, 2, "group_data/h100.py:2:1: `services` is no list of names"),
        ({"group_data/h100.py": 'gpu = "h1000 x8"\nservices = ["qwen"]'}, 2, "group_data/h100.py: `gpu`: `h1000 x8` names no GPU that is known: did you mean `h100`?"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\nservice_overrides = {"qwn": {}}'}, 2, "group_data/h100.py:3:22: no service `qwn`"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\nservice_overrides = {"qwen": {"rollout": {"soak": "x"}}}'}, 2, "group_data/h100.py:3:43: `rollout.soak`: `x` is no duration"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\nlaunch_override = {"*": {}}'}, 2, "group_data/h100.py:3:1: `launch_override` outside a lab"),
        ({"group_data/h100.py": "1 / 0"}, 2, "group_data/h100.py:1:1: the file's own code failed: ZeroDivisionError"),
        ({"group_data/pro.py": "", "group_data/h100.py": ""}, 2, "group_data: no host has a service"),
        ({"inventory/prod.py": "pro = [1, None]"}, 2, "inventory: no host in it: write GROUP ="),
        ({"group_data/services/qwen.yaml": SERVICE + "nodes: {group: nobody}"}, 2, "group_data/services/qwen.yaml:8:9: no group `nobody` in this inventory"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\nservice_overrides = {"qwen": {"service": "x"}}'}, 2, "group_data/h100.py:3:31: an override renames service `qwen`"),
        ({"facts/x.json": "{}", "group_data/h100.py": 'gpu = "h1"\nservices = ["qwn"]'}, 2, "group_data/h100.py:2:1: no service `qwn`"),
        ({"group_data/services/qwen.yaml": SERVICE + "env: {HF_TOKEN: hf_abc}"}, 2, "group_data/services/qwen.yaml:8:7: a secret in the open: write `secrets: {HF_TOKEN: {env: HF_TOKEN}}`"),
        ({"group_data/services/qwen.yaml": SERVICE + 'env: {CUDA_VISIBLE_DEVICES: "4,5"}'}, 2, "group_data/services/qwen.yaml:8:7: `CUDA_VISIBLE_DEVICES: 4,5` contradicts `gpus: [0, 1, 2, 3]`: remove it: `gpus` sets it, or write `gpus: [4, 5]`"),
        ({"group_data/h100.py": 'gpu = "h100 x8"\nservices = ["qwen"]\nservice_overrides = {"qwen": {"env": {"SGLFLEET_RELEASE": "x"}}}'}, 2, "group_data/h100.py:3:39: `SGLFLEET_RELEASE` is set by the unit"),
        ({"facts/x.json": "{}"}, 2, "facts/x.json: no recorded facts: schema_version is not 1: record it anew"),
        ({"facts/x.json": '{"schema_version": 1, "hosts": ["h1"], "facts": {"gpu": 1}}'}, 2, "facts/x.json: no recorded facts: `facts.gpu`: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(
    files: dict[str, str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(tmp_path, monkeypatch, files)
    assert said in console.render(report, 1000)
    assert int(report.exit) == code
    if code == 1:
        assert any(summary.refuse for summary in report.summaries)


def test_recorded_facts_count_and_must_agree_with_the_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group says A100, the host was recorded as H100: refused, with both SM versions named."""
    facts = {
        "gpus": [{"index": i, "name": "NVIDIA H100 80GB HBM3", "sm": "9.0"} for i in range(8)],
        "interconnect": "nvswitch",
    }
    record = json.dumps({"schema_version": 1, "hosts": ["h1"], "facts": facts})
    report = run(tmp_path, monkeypatch, {"facts/h100-x8.json": record})
    assert report.exit is Exit.FINE
    report = run(
        tmp_path,
        monkeypatch,
        {"facts/h100-x8.json": record, "group_data/h100.py": 'gpu = "a100 x8"\nservices = ["qwen"]'},
    )
    assert report.exit is Exit.REFUSED
    assert "GPU 0 to 7: SM 8.0 (A100) is declared, the host has SM 9.0 (NVIDIA H100 80GB HBM3)" in console.render(
        report, 1000
    )


def test_waiver_and_its_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiver = "allow: [{flag: enable-flashinfer-allreduce-fusion, reason: measured, until: 2026-12-31}]\n"
    report = run(tmp_path, monkeypatch, {"group_data/services/qwen.yaml": SERVICE + waiver})
    assert report.exit is Exit.FINE
    assert "waived: measured" in console.render(report, 1000)
    expired = waiver.replace("2026-12-31", "2026-11-28")
    assert run(tmp_path, monkeypatch, {"group_data/services/qwen.yaml": SERVICE + expired}).exit is Exit.REFUSED


def test_nothing_is_judged_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = checking.gate.judge

    def counting(placement: Any, *rest: Any) -> Any:
        asked.append(placement.host.name)
        return real(placement, *rest)

    monkeypatch.setattr(checking.Checker.__init__, "__defaults__", (counting,))
    report = run(tmp_path, monkeypatch, {"inventory/prod.py": 'pro = [f"p{i}" for i in range(50)]\nh100 = ["h1"]'})
    assert len(report.pairs) == 51
    assert asked == ["p0", "h1"]


# --- formats ----------------------------------------------------------------------------------------------------------

NASTY = "50% of it\r\n::error::forged, a:b <b>&\"'`x` @everyone | * _ \x1b[31m \x00 ]]> é"


def nasty() -> Report:
    cause = Cause(
        "error",
        "rule",
        "sv%c",
        NASTY,
        NASTY,
        NASTY,
        Mark("group_data/a,b:c.yaml", 3, 4),
        ("h1", NASTY),
        "fails",
        "refuse",
        (NASTY,),
        NASTY,
        NASTY,
    )
    warning = Cause("warning", "rule", "sv%c", "x: 1", NASTY, "", Mark("group h, gpu"), ("h1",), "inert", "drop")
    return Report(
        "inventory/prod.py",
        2,
        1,
        (Summary("sv%c", "f.yaml", "0.5.9", refuse=2),),
        (cause, warning),
        (Problem(Mark("f.yaml", 1, 2), NASTY, NASTY),),
        (Problem(Mark("f.yaml"), NASTY),),
        (Pair("h1", "sv%c", "refuse", ("--x", NASTY)), Pair(NASTY, "sv%c", "refuse", ())),
    )


REPORTS = {
    "nasty": nasty(),
    "fine": Report("i.py", 1, 1, (Summary("s", "s.yaml", "0.5.9", accept=1),), pairs=(Pair("h", "s", "accept", ()),)),
    "empty": Report("i.py", 0, 0, problems=(Problem(Mark("i.py"), "there is no such inventory", "check the path"),)),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_sarif_is_valid(report: Report) -> None:
    schema = json.loads((FORMATS / "sarif-2.1.0.json").read_text())
    log = json.loads(sarif.render(report))
    jsonschema.Draft4Validator(schema).validate(log)
    run_ = log["runs"][0]
    assert len(run_["results"]) == len(report.causes) + len(report.problems) + len(report.notes)
    assert all(run_["tool"]["driver"]["rules"][r["ruleIndex"]]["id"] == r["ruleId"] for r in run_["results"])


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_junit_is_valid(report: Report) -> None:
    text = junit.render(report)
    xmlschema.XMLSchema(str(FORMATS / "junit-10.xsd")).validate(text)
    parsed = JUnitXml.fromstring(text.encode())
    assert parsed.tests == len(report.pairs) + len(report.problems)
    assert parsed.failures == sum(pair.decision == "refuse" for pair in report.pairs)
    assert parsed.errors == len(report.problems)


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_github_lines_are_escaped(report: Report) -> None:
    lines = github.render(report).splitlines()
    assert len(lines) == len(report.causes) + len(report.problems) + len(report.notes)
    for line in lines:
        kind, properties, message = (
            line.removeprefix("::").partition("::")[0].partition(" ")[0],
            *line.removeprefix("::").split("::", 1),
        )
        assert kind in ("error", "warning", "notice")
        assert "%" not in message.replace("%25", "").replace("%0A", "").replace("%0D", "")
        assert all(c not in properties.split(" ", 1)[1].replace("=", "") for c in "\r\n")
        assert all(part.count("=") == 1 for part in properties.split(" ", 1)[1].split(","))


def test_github_exactly() -> None:
    assert github.command("error", "a%b\nc", file="x,y:z", line=3) == "::error file=x%2Cy%3Az,line=3::a%25b%0Ac"


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_json_is_valid(report: Report) -> None:
    schema = json.loads((ROOT / "schemas" / "check.json").read_text())
    jsonschema.Draft7Validator(schema).validate(json.loads(as_json.render(report)))


def test_console_forges_nothing_and_has_no_colours_in_a_pipe(tmp_path: Path) -> None:
    text = console.render(nasty(), 100)
    import click

    plain = click.unstyle(text)
    assert "\x1b" not in plain
    assert "\x00" not in plain
    assert "\r" not in plain
    root = project(tmp_path, BASE)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "sglfleet", "check"], cwd=root, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "3 hosts, 1 service" in done.stdout


def test_markdown_is_a_comment_and_forges_nothing() -> None:
    text = markdown.render(nasty())
    assert all(line.replace("\u200b", "").isprintable() for line in text.splitlines())
    outside = re.sub(r"(`+).+?\1", "", text)  # what stands in a code span is shown as it is
    assert "<b>" not in outside
    assert "@everyone" not in outside
    assert "::error::forged" in text  # as words of a sentence, not at the start of a line
    assert not any(line.startswith("::") for line in text.splitlines())
    many = Report(
        "i", 1, 1, causes=tuple(Cause("error", "r", "s", "x", "y" * 500, "", Mark("f", i, 1)) for i in range(1000))
    )
    assert len(markdown.render(many)) < 65_536
    assert "cut here" in markdown.render(many)


@pytest.mark.parametrize(
    ("hosts", "text"), [(["a"], "a"), (list("abcd"), "a, b, c, d"), (list("abcde"), "a, b, c and 2 more")]
)
def test_named(hosts: list[str], text: str) -> None:
    assert named(hosts) == text


def test_output_file_and_missing_inventory(tmp_path: Path) -> None:
    root = project(tmp_path, BASE)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "sglfleet", "check", "--format", "json", "--output", "out.json"]
    assert subprocess.run(words, cwd=root, env=env).returncode == 0
    assert json.loads((root / "out.json").read_text())["exit"] == 0
    done = subprocess.run([*words[:-1], "no/out.json"], cwd=root, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no/out.json: cannot be written: no such file or directory")
    done = subprocess.run([*words[:3], "init", "out.json/x"], cwd=root, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot be written" in done.stderr
    done = subprocess.run([*words[:4], "nowhere.py"], cwd=root, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        2,
        "nowhere.py: there is no such inventory: check the path",
    )


def test_facts_of_unknown_host_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, {"inventory/prod.py": 'g = ["a"]'})
    monkeypatch.chdir(root)
    known = facts_of(read_inventory("inventory/prod.py", root), [])
    assert known["a"].facts.gpus is None


def test_the_examples_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for inventory in ("inventory/prod.py", "inventory/staging.py"):
        report = check(inventory, TODAY)
        assert report.problems == ()
        assert report.exit in (Exit.FINE, Exit.STRICT), console.render(report)
    assert io.StringIO(console.render(report)).readline().startswith("inventory/staging.py: 2 hosts, 2 services")
