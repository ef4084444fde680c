"""Every JSON that leaves a command fits its schema; the commands are run, not imitated."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from sglfleet.report import effects
from tests.sglfleet.verify.test_compare import arm
from tests.sglfleet.verify.test_statistics import arms

ROOT = Path(__file__).parents[2]
LAUNCH = "python -m sglang.launch_server --model-path x --tp 4 --enable-flashinfer-allreduce-fusion --no-such-flag 1"
COMMANDS = {
    "check": ["check", "inventory/prod.py", "--format", "json"],
    "lint": ["lint", "--sglang", "0.5.9", "--sm", "12.0", "--format", "json", LAUNCH],
    "explanation": shlex.split("explain enable-flashinfer-allreduce-fusion --sglang 0.5.9 --sm 12.0 --format json"),
    "matrix": shlex.split("matrix --sglang 0.5.9 --format json"),
    "upgrade": shlex.split("upgrade qwen35-122b --to 0.5.9 --sm 12.0 --defaults --format json"),
    "rules": shlex.split("rules --format json"),
}


def run(*words: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sglfleet", *words], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def schema(name: str) -> jsonschema.Draft7Validator:
    text = json.loads((ROOT / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft7Validator.check_schema(text)
    return jsonschema.Draft7Validator(text)


@pytest.mark.parametrize(("name", "words"), COMMANDS.items(), ids=COMMANDS)
def test_output_fits_its_schema(name: str, words: list[str]) -> None:
    document = json.loads(run(*words))
    assert document["schema_version"] == 1
    schema(name).validate(document)
    assert not schema(name).is_valid({**document, "surprise": 1})


def test_judge_lines(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    case = {"id": "a", "sglang": "0.5.9", "sm": "12.0", "args": {"tp-size": 4, "enable-pdmux": True, "nope": 1}}
    file.write_text("\n".join([json.dumps(case), json.dumps({**case, "sm": "x"}), "not json"]))
    done = subprocess.run(
        [sys.executable, "-m", "sglfleet", "judge", "--cases", str(file)], cwd=ROOT, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        schema("judge").validate(json.loads(line))


def test_measurements(tmp_path: Path) -> None:
    off, on = arms(random.Random(1), cv=0.015, change=0.36)  # type: ignore[no-untyped-call]
    runs = arm("off", off) + arm("on", on)  # type: ignore[no-untyped-call]
    path = tmp_path / "ab.jsonl"
    path.write_text("".join(run.model_dump_json() + "\n" for run in runs))
    document = json.loads(run("bench", "compare", f"{path}#off", f"{path}#on", "--format", "json"))
    schema("comparison").validate(document)
    schema("benchmark").validate(json.loads(json.dumps(effects.runs_json("one", runs, []))))
    answer = {"flag": "x", "outcome": "active", "effect": "faster", "skipped": "", "pairs": 5, "comparison": document}
    schema("ablation").validate({"schema_version": 1, "kind": "ablation", "service": "one", "flags": [answer]})


def test_every_schema_is_one() -> None:
    for path in sorted((ROOT / "schemas").glob("*.json")):
        document = json.loads(path.read_text())
        jsonschema.validators.validator_for(document).check_schema(document)
        assert document["$schema"], path.name


@pytest.mark.lab
def test_lab_status(lab: object) -> None:
    settings = lab.settings  # type: ignore[attr-defined]
    found = json.loads(run("lab", "status", "--json", LAB_NAME=settings.name, LAB_NET=str(settings.network)))
    schema("lab").validate(found)
    assert [host["host"] for host in found["hosts"]] == ["h1", "h2", "h3"]
