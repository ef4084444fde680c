"""`sglfleet facts`: recording, drift, and hosts that cannot be asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from lab.fleet import Lab
from sglfleet.record import load
from tests.sglfleet.test_inventory import project

ROOT = Path(__file__).parents[3]
INVENTORY = """
from sglfleet import facts, simulate
quick = {{"fake_delay": 0, "fake_delay_jitter": 0}}
def _host(name, profile):
    return f"@fake/{{name}}", {{"fake_responses": {{facts.MARKER: simulate.answer(profile)}}, **quick}}
pro = [_host(f"p{{i}}", {pro!r}) for i in range(3)]
h100 = [_host("h1", "h100 x8")]
mute = [("@fake/mute", quick)]
"""


def facts(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = [sys.executable, "-m", "sglfleet", "facts", *words]
    return subprocess.run(done, cwd=root, env=env, capture_output=True, text=True)


def fleet(root: Path, pro: object = "rtx-pro-6000 x4", mute: bool = False) -> Path:
    text = INVENTORY.format(pro=pro)
    return project(root, {"inventory/prod.py": text if mute else text.split("mute =")[0], "group_data/all.py": ""})


def test_record_review_and_drift(tmp_path: Path) -> None:
    root = fleet(tmp_path)
    done = facts(root)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["changed facts/h100-x8.json", "changed facts/rtx-pro-6000-x4.json", "4 hosts recorded, 2 files changed"],
    )
    before = {path.name: path.read_bytes() for path in (root / "facts").iterdir()}
    for text in before.values():
        schema = json.loads((ROOT / "schemas" / "host-class.json").read_text())
        jsonschema.Draft7Validator(schema).validate(json.loads(text))
    assert facts(root).stdout == "4 hosts recorded, 0 files changed\n"
    assert {path.name: path.read_bytes() for path in (root / "facts").iterdir()} == before
    assert facts(root, "--check").stdout == "4 hosts as recorded, 0 not, 0 could not be asked\n"

    fleet(root, pro={"profile": "rtx-pro-6000 x3", "driver": "590.1"})
    done = facts(root, "--check")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "@fake/p0, @fake/p1, @fake/p2:",
        "  GPUs: 4 were recorded, 3 are there",
        "  driver: 580.159.04 was recorded, 590.1 is there",
        "1 host as recorded, 3 not, 0 could not be asked",
    ]
    assert {path.name: path.read_bytes() for path in (root / "facts").iterdir()} == before
    assert facts(root, "prod-typo.py").returncode == 2
    assert facts(root, "inventory/prod.py", "nobody").returncode == 2


def test_one_host_only_and_json(tmp_path: Path) -> None:
    root = fleet(tmp_path)
    done = facts(root, "inventory/prod.py", "@fake/h1", "--format", "json")
    document = json.loads(done.stdout)
    jsonschema.Draft7Validator(json.loads((ROOT / "schemas" / "facts.json").read_text())).validate(document)
    assert list(document["hosts"]) == ["@fake/h1"]
    assert [(one.name, one.hosts) for one in load(root)] == [("h100-x8", ("@fake/h1",))]


def test_a_host_that_tells_nothing_is_named_and_keeps_its_record(tmp_path: Path) -> None:
    root = fleet(tmp_path, mute=True)
    done = facts(root)
    assert done.returncode == 4
    assert done.stderr == "@fake/mute: could not be asked: the host did not answer\n"
    assert "4 hosts recorded" in done.stdout
    assert all("@fake/mute" not in one.hosts for one in load(root))


@pytest.mark.lab
def test_real_hosts(make_lab: object, tmp_path: Path) -> None:
    """Over SSH as a user with sudo: two kinds of GPU, no driver, and a host that is cut off."""
    lab: Lab = make_lab(4, {"h2": "l40s-x2", "h3": "no-driver"}, default="h200-x2")  # type: ignore[operator]
    login = {"ssh_user": "deploy", "ssh_key": str(lab.key), "ssh_known_hosts_file": str(lab.known_hosts)}
    names = [f"h{i}" for i in range(1, 5)]
    hosts = [(name, {"ssh_hostname": lab.host(name).ip, **login}) for name in names]
    root = project(tmp_path, {"inventory/prod.py": f"g = {hosts!r}", "group_data/all.py": ""})
    lab.host("h4").cut()
    try:
        done = facts(root)
    finally:
        lab.host("h4").heal()
    assert done.returncode == 4, done.stdout + done.stderr
    assert "h4: could not be asked" in done.stderr
    found = {one.hosts: one.facts for one in load(root)}
    assert set(found) == {("h1",), ("h2",), ("h3",)}
    assert [gpu.sm for gpu in found[("h1",)].gpus or ()] == ["9.0", "9.0"]
    assert found[("h1",)].interconnect == "nvswitch"
    assert [gpu.sm for gpu in found[("h2",)].gpus or ()] == ["8.9", "8.9"]
    assert found[("h3",)].gpus is None
    assert "couldn't communicate with the NVIDIA driver" in found[("h3",)].gpu_error
    lab.set_profile("h1", "h200-x1")
    done = facts(root, "inventory/prod.py", "h1", "--check")
    assert done.returncode == 1
    assert "GPUs: 2 were recorded, 1 are there" in done.stdout
