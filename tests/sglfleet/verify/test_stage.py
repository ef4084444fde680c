"""The proof inside a deploy: what is done about a contradiction, and which hosts are profiled."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# in a process of its own: reaching hosts patches the standard library for good
CODE = """
import json, sys
from sglfleet.fleet import connect
from sglfleet.inventory import Host, Inventory, Layer
from sglfleet.verify.stage import Stage
from validators.load import load

packed, policy, same = sys.argv[1:]
text = (
    "service: moe\\nengine: {sglang: 0.5.16, venv: /e}\\nmodel: /models/x\\ngpus: [0]\\n"
    f"verify: {{profile: true, on_contradicted: {policy}}}\\n"
)
service = load(text, "moe.yaml").service
quick = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": {"END_OF_BUNDLE": packed}}
names = ["@fake/h1", "@fake/h2"]
inventory = Inventory({n: Host(n, (), (Layer("test", quick),)) for n in names})
said = []
with connect(inventory) as fleet:
    pairs = {(n, "moe"): service for n in names}
    releases = {(n, "moe"): "r1" if same == "same" else n for n in names}
    stage = Stage(fleet.hosts, pairs, said.append, releases)
    why = [stage(n, "moe") for n in names]
print(json.dumps([why, said, stage.document("x").to_json()]))
"""


def run(answer, policy="report", same="same"):
    packed = base64.b64encode(zlib.compress(json.dumps(answer).encode())).decode()
    argv = [sys.executable, "-c", CODE, packed, policy, same]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def answer(argv):
    gone = {"flag": "x", "value": True, "outcome": "inert", "decision": "drop", "reason": "", "rule": ""}
    return {
        "process": {"pid": 1, "argv": argv, "env": {}}, "server_info": {"version": "0.5.16"}, "gaps": {}, "seconds": {},
        "manifest": {"release": "r1", "verdicts": [gone]},
        "outputs": [{"name": "3 tokens", "status": 200, "ids": [1, 2], "text": "a b"}],
    }  # fmt: skip


def test_what_is_proven_stays():
    why, said, document = run(answer(["python"]), "rollback")
    assert why == ["", ""]
    assert any("proven: x" in line for line in said)
    assert document["exit"] == 0


@pytest.mark.parametrize(("policy", "undone"), [("rollback", True), ("report", False)])
def test_a_contradiction_is_undone_or_reported(policy, undone):
    why, said, document = run(answer(["python", "--x"]), policy)
    assert all(("contradicted after launch: x" in text) is undone for text in why)
    assert any("CONTRADICTED: x" in line for line in said)
    assert document["exit"] == 1


def test_one_host_of_a_release_is_profiled():
    _, _, document = run(answer(["python"]))
    gaps = [host["gaps"].get("profile", "") for host in document["hosts"]]
    assert gaps == ["", "@fake/h1 was profiled, which runs the same release"]
    _, _, document = run(answer(["python"]), same="different")
    assert not any("was profiled" in host["gaps"].get("profile", "") for host in document["hosts"])


def test_a_host_that_cannot_be_proven_is_told_and_not_undone():
    why, said, document = run({"gaps": {"server_info": "no answer"}}, "rollback")
    assert why == ["", ""]
    assert all("could not be proven" in line for line in said)
    assert document["exit"] == 4
