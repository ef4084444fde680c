"""`sglfleet status`, `rollback` and `resume` on real hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.fleet import Lab
from tests.lab import rolling
from tests.lab.roll.common import NEW, OLD, THREE, to

pytestmark = pytest.mark.lab


def test_status_rollback_and_resume(three: Lab, tmp_path: Path) -> None:
    import jsonschema

    inventory = str(rolling.project(three, THREE, tmp_path))
    assert rolling.roll(three, to(NEW))["exit"] == 0
    told = rolling.sglfleet("status", inventory, "--format", "json", cwd=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    document = json.loads(told.stdout)
    jsonschema.validate(document, json.loads((rolling.ROOT / "schemas" / "status.json").read_text(encoding="utf-8")))
    assert [(row["host"], row["release"], row["health"], row["drift"]) for row in document["rows"]] == [
        (host, NEW, "ok", "") for host in THREE
    ]
    assert document["rows"][0]["last"].startswith("accepted ")

    dry = rolling.sglfleet("rollback", inventory, rolling.SERVICE, "--dry", cwd=tmp_path)
    assert "h1 new000000000 -> old000000000" in dry.stdout, dry.stderr
    assert rolling.all_serve(three, THREE) == to(NEW), "a dry run touches nothing"
    back = rolling.sglfleet("rollback", inventory, rolling.SERVICE, cwd=tmp_path)
    assert back.returncode == 0, back.stdout + back.stderr
    assert rolling.all_serve(three, THREE) == to(OLD)

    three.host("h2").exec("systemctl", "stop", rolling.UNIT)
    told = rolling.sglfleet("status", inventory, cwd=tmp_path)
    assert told.returncode == 4
    assert "inactive" in told.stdout
    resumed = rolling.sglfleet("resume", inventory, rolling.SERVICE, "--format", "json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert {h: r["result"] for h, r in json.loads(resumed.stdout)["hosts"].items()} == {
        "h1": "kept",
        "h2": "accepted",
        "h3": "kept",
    }
    assert rolling.all_serve(three, THREE) == to(OLD)


def test_commands_say_what_is_wrong_with_their_input(three: Lab, tmp_path: Path) -> None:
    inventory = str(rolling.project(three, THREE, tmp_path))
    for words, said in (
        (("rollback", inventory, "nothing"), "its services are standin"),
        (("rollback", inventory, rolling.SERVICE, "zzz"), "h3: release zzz: not kept there"),
        (("status", str(tmp_path / "no" / "such.py")), "such.py"),
    ):
        done = rolling.sglfleet(*words, cwd=tmp_path)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert said in done.stderr
