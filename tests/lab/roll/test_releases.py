"""Releases that are bad in all known ways, and what every node serves afterwards."""

from __future__ import annotations

import time

import pytest

from lab.fleet import Lab
from tests.lab import journals, rolling
from tests.lab.roll.common import NEW, OLD, THREE, results, to, until
from tests.lab.rolling import Kind

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("release", "stage", "said"),
    [
        ("wrong0000000", "gate", "one token repeated"),
        pytest.param("empty0000000", "gate", "empty text", marks=pytest.mark.full),
        ("crash0000000", "gate|soak", "restarted meanwhile|ended after its start|no answer|refused"),
        pytest.param("never0000000", "start", "the start failed", marks=pytest.mark.full),
    ],
)
def test_bad_releases(three: Lab, release: str, stage: str, said: str) -> None:
    import re

    began = time.time()
    report = rolling.roll(three, to(release), {"soak": 6.0})
    assert results(report) == {"h1": "reverted", "h2": "untouched", "h3": "untouched"}
    assert re.fullmatch(stage, report["hosts"]["h1"]["stage"])
    assert re.search(said, report["hosts"]["h1"]["reason"])
    assert rolling.all_serve(three, THREE) == to(OLD)
    assert journals.most_out(three, THREE, began) == 1
    state = three.host("h1").exec("systemctl", "show", "-P", "NRestarts,ActiveState", rolling.UNIT).stdout.split()
    assert "active" in state, "no restart of the bad release goes on in the background"


@pytest.mark.full
def test_crash_twenty_seconds_after_start(three: Lab) -> None:
    began = time.time()
    rolling.stage(three, THREE, "crash20s0000", Kind(mode="crash", cut=20.0))
    report = rolling.roll(three, to("crash20s0000"), {"soak": 60.0})
    assert results(report) == {"h1": "reverted", "h2": "untouched", "h3": "untouched"}
    assert report["hosts"]["h1"]["stage"] == "soak"
    assert any("memory" in text for text in report["hosts"]["h1"]["diagnoses"])
    assert rolling.all_serve(three, THREE) == to(OLD)
    assert journals.most_out(three, THREE, began) == 1


@pytest.mark.full
def test_port_taken(three: Lab) -> None:
    taker = "import socket,time; s=socket.socket(); s.bind(('0.0.0.0',30777)); s.listen(); time.sleep(120)"
    three.host("h1").exec("systemd-run", "--unit=taker", "--collect", "/usr/bin/python3", "-c", taker)
    report = rolling.roll(three, to("porttaken000"))
    three.host("h1").exec("systemctl", "stop", "taker")
    assert results(report)["h1"] == "reverted"
    assert any("port 30777" in text for text in report["hosts"]["h1"]["diagnoses"])
    assert rolling.all_serve(three, THREE) == to(OLD)


@pytest.mark.full
def test_what_served_before_does_not_start_at_the_first_try(three: Lab) -> None:
    """As on a busy machine, or with memory that is not free yet: no reason to give a good release up."""
    rolling.stage(three, ["h1"], "moody0000000", Kind(moody=True))
    rolling.place(three, ["h1"], "moody0000000")
    three.host("h1").exec("touch", "/run/moody")
    report = rolling.roll(three, to("badflag00000"))
    assert results(report)["h1"] == "reverted"
    assert rolling.all_serve(three, THREE) == {**to(OLD), "h1": "moody0000000"}
    assert three.host("h1").exec("test", "-e", "/run/moody").returncode, "the first try failed"


@pytest.mark.full
def test_removing_old_engines_takes_longer_than_anybody_waits(three: Lab) -> None:
    """Gigabytes on a slow disk: a good node must not count as lost, and its history has one line of it."""
    slow = '#!/bin/sh\ncase $* in */opt/sglfleet/*) sleep 90;; esac\nexec /bin/rm "$@"\n'
    engines = "mkdir -p /opt/sglfleet/engines/older; sleep 1; mkdir -p /opt/sglfleet/engines/newer"
    three.host("h1").exec("sh", "-c", f"cat > /usr/local/bin/rm; chmod 755 /usr/local/bin/rm; {engines}", stdin=slow)
    try:
        report = rolling.roll(three, to(NEW))
    finally:
        three.host("h1").exec("/bin/rm", "/usr/local/bin/rm")
    assert results(report) == dict.fromkeys(THREE, "accepted")
    lines = three.host("h1").exec("cat", f"/var/lib/sglfleet/{rolling.SERVICE}/history.jsonl").stdout.splitlines()
    assert len(lines) == 1
    until(lambda: three.host("h1").exec("ls", "/opt/sglfleet/engines").stdout.split() == ["newer"])


@pytest.mark.full
def test_canary_bad_then_fixed(three: Lab) -> None:
    assert rolling.roll(three, to("badflag00000"))["exit"] == 4
    report = rolling.roll(three, to(NEW))
    assert report["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)


@pytest.mark.full
@pytest.mark.parametrize(("on_failure", "h1"), [("rollback", OLD), ("halt", NEW)])
def test_the_second_node_fails(three: Lab, on_failure: str, h1: str) -> None:
    """The release is good on the first node and bad on the second: nodes already done go back, or stay."""
    began = time.time()
    rolling.stage(three, ["h2"], "mixed0000000", Kind(mode="bad-flag"))
    rolling.stage(three, ["h1", "h3"], "mixed0000000")
    report = rolling.roll(three, to("mixed0000000"), {"max_unavailable": 1, "on_failure": on_failure})
    assert report["exit"] == 4
    assert rolling.all_serve(three, THREE) == {"h1": h1 if h1 == OLD else "mixed0000000", "h2": OLD, "h3": OLD}
    assert ("h1" in report["rolled_back"]) is (on_failure == "rollback")
    assert journals.most_out(three, THREE, began) == 1


@pytest.mark.full
def test_a_first_deploy_that_fails_leaves_the_unit_stopped_and_disabled(three: Lab) -> None:
    three.host("h1").exec(
        "sh", "-c", f"systemctl disable --now {rolling.UNIT}; rm -f /var/lib/sglfleet/standin/current"
    )
    report = rolling.roll(three, {"h1": "badflag00000"})
    assert results(report) == {"h1": "stopped"}
    shown = three.host("h1").exec("systemctl", "show", "-P", "ActiveState", "-P", "UnitFileState", rolling.UNIT).stdout
    assert set(shown.split()) <= {"inactive", "disabled"}
