"""`check --base`: what a change does to the fleet, in a real git repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from sglfleet.changing import check_against
from sglfleet.exits import Exit
from sglfleet.report import console, markdown
from sglfleet.report import json as as_json
from sglfleet.report.change import Change
from sglfleet.report.model import Report
from tests.sglfleet.test_inventory import project

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 29)
SERVICE = """\
service: {name}
engine: {{sglang: 0.5.9}}
model: {{path: /m, arch: LlamaForCausalLM}}
gpus: {gpus}
args: {{port: {port}, tp-size: 2}}
rollout: {{max_unavailable: 2, canary: 1}}
"""
BASE = {
    "inventory/prod.py": 'g = [f"h{i}" for i in range(6)]',
    "group_data/g.py": 'gpu = "h100 x8"\nservices = ["one", "two"]',
    "group_data/services/one.yaml": SERVICE.format(name="one", gpus=[0, 1], port=30000),
    "group_data/services/two.yaml": SERVICE.format(name="two", gpus=[2, 3], port=30001),
}


def git(root: Path, *words: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, env={**os.environ, **who})


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(tmp_path, BASE)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "base")
    monkeypatch.chdir(root)
    return root


def against(root: Path, files: dict[str, str], base: str = "HEAD") -> tuple[Report, Change]:
    project(root, files)
    report = check_against("inventory/prod.py", base, TODAY)
    schema = json.loads((ROOT / "schemas" / "check.json").read_text())
    jsonschema.Draft7Validator(schema).validate(json.loads(as_json.render(report)))
    assert report.change is not None, report.problems
    return report, report.change


def test_nothing(repo: Path) -> None:
    report, change = against(repo, {})
    assert change.empty
    assert change.rolls == ()
    assert "nothing changes on any host" in console.render(report)
    assert "Nothing changes on any host." in markdown.render(report)


def test_a_comment_restarts_nobody(repo: Path) -> None:
    _, change = against(repo, {"group_data/services/one.yaml": "# why\n" + BASE["group_data/services/one.yaml"]})
    assert change.empty


def test_one_flag_restarts_exactly_its_hosts_in_batches(repo: Path) -> None:
    text = BASE["group_data/services/one.yaml"].replace("tp-size: 2", "tp-size: 1, enable-metrics: true")
    report, change = against(repo, {"group_data/services/one.yaml": text})
    assert [(m.service, m.hosts, m.restarts) for m in change.moved] == [("one", tuple(f"h{i}" for i in range(6)), True)]
    assert change.moved[0].flags() == ["- --tp-size 2", "+ --enable-metrics", "+ --tp-size 1"]
    assert "+    --enable-metrics \\" in change.moved[0].diff()
    assert [roll.batches for roll in change.rolls] == [
        (("canary", ("h0",)), ("batch", ("h1", "h2")), ("batch", ("h3", "h4")), ("batch", ("h5",)))
    ]
    shown = console.render(report, 1000)
    assert "one on 6 hosts (h0, h1, h2 and 3 more): restart" in shown
    assert "one rolls: canary h0, then batch h1, h2, then batch h3, h4, then batch h5" in shown


def test_override_moves_one_group_only(repo: Path) -> None:
    files = {
        "inventory/prod.py": 'g = [f"h{i}" for i in range(6)]\nbig = ["h5"]',
        "group_data/big.py": 'service_overrides = {"two": {"args": {"mem-fraction-static": 0.7}}}',
    }
    _, change = against(repo, files)
    assert [(m.service, m.hosts, m.flags()) for m in change.moved] == [
        ("two", ("h5",), ["+ --mem-fraction-static 0.7"])
    ]


def test_verdicts_appear_and_a_refusal_restarts_nobody(repo: Path) -> None:
    text = BASE["group_data/services/one.yaml"].replace("[0, 1]", "[0, 9]")
    report, change = against(repo, {"group_data/services/one.yaml": text})
    assert report.exit is Exit.REFUSED
    assert change.moved[0].decision == ("accept", "refuse")
    assert change.moved[0].appeared == ("gpus: [0, 9] | fails | refuse",)
    assert change.moved[0].restarts is False
    assert change.moved[0].diff() == []
    assert change.rolls == ()


def test_hosts_and_services_that_come_and_go(repo: Path) -> None:
    files = {
        "inventory/prod.py": 'g = [f"h{i}" for i in range(1, 7)]',
        "group_data/g.py": 'gpu = "h100 x8"\nservices = ["one"]',
    }
    report, change = against(repo, files)
    assert change.arrived == {"one": ("h6",)}
    assert change.left == {"one": ("h0",), "two": tuple(f"h{i}" for i in range(6))}
    assert "6 hosts lose two" in console.render(report, 1000)


def test_engine_upgrade_says_what_it_means(repo: Path) -> None:
    text = (
        BASE["group_data/services/one.yaml"]
        .replace("0.5.9", "0.5.23")
        .replace("tp-size: 2", "tp-size: 2, cuda-graph-max-bs: 8")
    )
    project(
        repo,
        {
            "group_data/services/one.yaml": BASE["group_data/services/one.yaml"].replace(
                "tp-size: 2", "tp-size: 2, cuda-graph-max-bs: 8"
            )
        },
    )
    git(repo, "commit", "-qam", "flag")
    report, change = against(repo, {"group_data/services/one.yaml": text})
    assert change.moved[0].engine == ("0.5.9", "0.5.23")
    assert any("cuda-graph-max-bs" in line for line in change.moved[0].upgrade)
    assert "engine 0.5.9 → 0.5.23" in console.render(report, 1000)


def test_a_broken_base_is_said_and_does_not_hide_the_change(repo: Path) -> None:
    project(repo, {"group_data/services/one.yaml": "- broken"})
    git(repo, "commit", "-qam", "broken")
    _, change = against(repo, {"group_data/services/one.yaml": BASE["group_data/services/one.yaml"]})
    assert change.unreadable
    assert change.arrived["one"] == tuple(f"h{i}" for i in range(6))


def test_new_inventory(repo: Path) -> None:
    git(repo, "rm", "-q", "--cached", "inventory/prod.py")
    git(repo, "commit", "-qm", "gone")
    _, change = against(repo, {})
    assert change.arrived["one"] == tuple(f"h{i}" for i in range(6))


@pytest.mark.parametrize("base", ["no-such-branch", "--output=x", "HEAD~99"])
def test_no_such_revision_is_bad_input(repo: Path, base: str) -> None:
    report = check_against("inventory/prod.py", base, TODAY)
    assert report.exit is Exit.BAD_INPUT
    assert "name a branch, a tag or a commit" in str(report.problems[0])
    assert "the fleet was judged" in console.render(report).splitlines()[-1]


def test_the_working_tree_is_left_alone_and_no_secret_is_needed(repo: Path) -> None:
    secret = BASE["group_data/services/one.yaml"] + "secrets: {api-key: {env: NOT_SET_HERE}}\n"
    project(repo, {"group_data/services/one.yaml": secret})
    before = subprocess.run(["git", "-C", str(repo), "status", "--porcelain"], capture_output=True, text=True).stdout
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "sglfleet", "check", "--base", "HEAD", "--format", "markdown"]
    done = subprocess.run(words, cwd=repo, env=env, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    after = subprocess.run(["git", "-C", str(repo), "status", "--porcelain"], capture_output=True, text=True).stdout
    assert before == after


def test_a_project_below_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path / "deploy" / "sglang", BASE)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "base")
    monkeypatch.chdir(root)
    project(root, {"group_data/services/one.yaml": BASE["group_data/services/one.yaml"].replace("30000", "31000")})
    report = check_against("inventory/prod.py", "HEAD", TODAY)
    assert report.change is not None
    assert report.change.moved[0].flags() == ["- --port 30000", "+ --port 31000"]
