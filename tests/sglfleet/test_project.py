"""A project of one's own: `init` makes one that checks, and the editor's schema fits it; hooks and CI run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sglfleet.schema import service_schema, text
from tests.sglfleet.test_inventory import project
from validators.knowledge import load_sglang, releases
from validators.load import load

ROOT = Path(__file__).parents[2]


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sglfleet", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
    )


def test_init_makes_a_project_that_checks(tmp_path: Path) -> None:
    done = run(tmp_path, "init", "fleet", "--service", "llama", "--gpu", "l40s x2", "--sglang", "0.5.23")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "fleet"
    checked = run(folder, "check")
    assert checked.returncode == 0, checked.stdout
    assert "llama" in checked.stdout
    assert "2 hosts: 2 accepted" in checked.stdout
    schema = json.loads((folder / "schemas" / "service-0.5.23.json").read_text())
    service = yaml.safe_load((folder / "group_data" / "services" / "llama.yaml").read_text())
    jsonschema.Draft7Validator(schema).validate(service)
    assert "from sglfleet import stages" in (folder / "deploy.py").read_text()


def test_init_overwrites_nothing_and_says_everything(tmp_path: Path) -> None:
    assert run(tmp_path, "init").returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = run(tmp_path, "init")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == len(before)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    done = run(tmp_path, "init", "x", "--service", "../../etc", "--gpu", "h1000", "--sglang", "9")
    assert (done.returncode, len(done.stderr.splitlines()), (tmp_path / "x").exists()) == (2, 2, False)
    done = run(tmp_path, "init", "x", "--service", "../../etc")
    assert "--service: `service`: `../../etc` is no service name" in done.stderr
    assert not (tmp_path / "x").exists()


# --- the editor's schema ----------------------------------------------------------------------------------------------


def validator(release: str) -> Any:
    return jsonschema.Draft7Validator(service_schema(load_sglang(release)))


GOOD = {"service": "a", "engine": {"sglang": "0.5.23"}, "model": "/m", "gpus": [0], "args": {"tp-size": 1}}


@pytest.mark.parametrize("release", releases("sglang"))
def test_schemas_are_valid_and_fresh(release: str) -> None:
    schema = service_schema(load_sglang(release))
    jsonschema.Draft7Validator.check_schema(schema)
    assert (ROOT / "schemas" / f"service-{release}.json").read_text() == text(schema), "run `sglfleet schema --all`"
    assert json.loads(text(schema)) == schema


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, True),
        ({"args": {"tp-size": "four"}}, False),
        ({"args": {"tpsize": 4}}, False),
        ({"args": {"tensor-parallel-size": 4, "enable-metrics": True, "json-model-override-args": {"a": 1}}}, True),
        ({"args": {"attention-backend": "flashinfre"}}, False),
        ({"args": {"attention-backend": "flashinfer"}}, True),
        ({"args": {"cuda-graph-bs-decode": [1, 2]}}, True),
        ({"args": {"cuda-graph-bs-decode": ["x"]}}, False),
        ({"args": {"api-key": "x"}}, False),
        ({"args": {"model-path": "/x"}}, False),
        ({"engine": {"sglang": "0.5.9"}}, False),
        ({"engine": {"sglang": "0.5.23", "venv": "/opt/x", "pins": {"torch": "2"}}}, True),
        ({"model": {"path": "/m", "arch": "X"}}, True),
        ({"model": "Qwen/Qwen3"}, False),
        ({"gpus": []}, False),
        ({"gpus": [-1]}, False),
        ({"rolout": {}}, False),
        ({"rollout": {"max_unavailable": "25%", "canary": ["a"], "soak": "30s", "on_failure": "halt"}}, True),
        ({"rollout": {"canary": 2, "max_unavailable": 2, "soak": 30}}, True),
        ({"rollout": {"on_failure": "explode"}}, False),
        ({"on_unsupported": "refuse"}, True),
        ({"on_unsupported": {"default": "warn", "flags": {"x": "refuse"}}}, True),
        ({"on_unsupported": "maybe"}, False),
        ({"allow": [{"flag": "x", "reason": "y", "until": "2027-01-01"}]}, True),
        ({"allow": [{"flag": "x"}]}, False),
        ({"env": {"A": 1, "B": "x"}}, True),
        ({"secrets": {"api-key": {"env": "K"}}}, True),
        ({"nodes": {"group": "g", "rank_by": "name"}}, True),
        ({"verify": {"benchmark": {"concurrency": [1]}}}, True),
    ],
)
def test_the_schema_says_what_the_loader_says(change: dict[str, Any], right: bool) -> None:
    assert validator("0.5.23").is_valid({**GOOD, **change}) is right


def test_schema_of_the_examples() -> None:
    for path in sorted((ROOT / "group_data" / "services").glob("*.yaml")):
        service = yaml.safe_load(path.read_text())
        first = path.read_text().splitlines()[0]
        assert first == f"# yaml-language-server: $schema=../../schemas/service-{service['engine']['sglang']}.json"
        validator(service["engine"]["sglang"]).validate(service)
        assert load(path.read_bytes(), str(path)).problems == ()


def test_help_and_deprecation_reach_the_editor() -> None:
    args = service_schema(load_sglang("0.5.23"))["properties"]["args"]["properties"]
    old = args["enable-flashinfer-allreduce-fusion"]
    assert old["deprecated"] is True
    assert "flashinfer-allreduce-fusion-backend" in old["deprecationMessage"]
    assert args["tp-size"]["description"]
    assert args["tp-size"]["default"] == 1
    assert args["tensor-parallel-size"]["description"] == "Another spelling of tp-size."


# --- hooks and CI -----------------------------------------------------------------------------------------------------

FLEET = {
    "inventory/prod.py": 'g = ["h"]',
    "group_data/g.py": 'gpu = "h100 x8"\nservices = ["one"]',
    "group_data/services/one.yaml": "service: one\nengine: {sglang: 0.5.9}\nmodel: /m\ngpus: [0]\nargs: {tp-size: 1}\n",
}


@pytest.mark.parametrize(("gpus", "code"), [("[0]", 0), ("[9]", 1), ("[x]", 2)])
def test_github_action(gpus: str, code: int, tmp_path: Path) -> None:
    """The action's script with a runner's variables; the program stands in for the one it would install."""
    text = FLEET["group_data/services/one.yaml"].replace("[0]", gpus)
    root = project(tmp_path / "fleet", {**FLEET, "group_data/services/one.yaml": text})
    temp = tmp_path / "temp dir"
    temp.mkdir()
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(temp),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "INVENTORY": "inventory/prod.py",
        "BASE": "",
        "STRICT": "false",
        "SGLFLEET": f"{sys.executable} -m sglfleet",
    }
    done = subprocess.run(
        ["bash", str(ROOT / "integrations/github.sh")], cwd=root, env=env, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    output = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert output["exit-code"] == str(code)
    assert json.loads(Path(output["sarif"]).read_text())["version"] == "2.1.0"
    assert (tmp_path / "summary").read_text().startswith("### sglfleet check: ")
    assert done.stdout.startswith("::error ") is (code > 0)


def test_action_takes_inputs_as_variables_only() -> None:
    """A branch name is an attacker's text: it must never become part of a script."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
    script = (ROOT / "integrations" / "github.sh").read_text()
    assert '--base "$BASE"' in script


def test_ci_files_fit_their_schemas() -> None:
    check = [sys.executable, "-m", "check_jsonschema"]
    subprocess.run([*check, "--builtin-schema", "vendor.github-actions", "action.yml"], cwd=ROOT, check=True)
    subprocess.run([*check, "--builtin-schema", "vendor.gitlab-ci", "integrations/gitlab-ci.yml"], cwd=ROOT, check=True)


def test_gitlab_snippet(tmp_path: Path) -> None:
    """Its script lines, run by a shell as a runner does."""
    root = project(tmp_path, FLEET)
    job = yaml.safe_load((ROOT / "integrations" / "gitlab-ci.yml").read_text())["sglfleet check"]
    lines = "\n".join(job["script"]).replace("/tmp/sglfleet/bin/sglfleet", f"{sys.executable} -m sglfleet")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "INVENTORY": "inventory/prod.py"}
    done = subprocess.run(["sh", "-e", "-c", lines], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (root / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")
    project(root, {"group_data/services/one.yaml": FLEET["group_data/services/one.yaml"].replace("[0]", "[9]")})
    done = subprocess.run(["sh", "-e", "-c", lines], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "<failure" in (root / job["artifacts"]["reports"]["junit"]).read_text()


@pytest.mark.full
def test_pre_commit_hook(tmp_path: Path) -> None:
    """pre-commit itself, with an environment that it installs from this checkout."""
    root = project(tmp_path / "fleet", FLEET)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    env = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), "sglfleet-check", "--all-files"]
    done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    project(root, {"group_data/services/one.yaml": FLEET["group_data/services/one.yaml"].replace("[0]", "[9]")})
    done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "GPU 9 does not exist" in done.stdout
