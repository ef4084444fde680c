"""Hosts that are lost, reboot, hang, run full or have a wrong clock in the middle of a roll."""

from __future__ import annotations

import time

import pytest

from lab.fleet import Lab
from tests.lab import journals, rolling
from tests.lab.roll.common import NEW, OLD, THREE, results, to, turn, until
from tests.lab.rolling import Kind

pytestmark = pytest.mark.lab


@pytest.mark.full
def test_unreachable_before(three: Lab) -> None:
    three.host("h2").cut()
    report = rolling.roll(three, to(NEW))
    three.host("h2").heal()
    assert "h2" in report["unreachable"]
    assert report["exit"] == 4
    assert rolling.all_serve(three, THREE) == {"h1": NEW, "h2": OLD, "h3": NEW}


@pytest.mark.full
def test_unreachable_during_drain(three: Lab) -> None:
    busy = 'curl -s -m 60 -d \'{"text": "x", "seconds": 40}\' http://127.0.0.1:30000/generate'
    three.host("h1").exec("systemd-run", "--collect", "sh", "-c", busy)
    run = rolling.start(three, to(NEW), {"drain": 60.0, "lost_after": 4.0})
    run.wait_for("^h1: drain")
    time.sleep(1)
    three.host("h1").cut()
    report = run.done()
    three.host("h1").heal()
    assert report["hosts"]["h1"]["stage"] == "drain"
    assert results(report)["h2"] == "untouched"
    assert rolling.all_serve(three, THREE) == to(OLD), "nothing was switched"


def test_unreachable_between_stop_and_start(three: Lab) -> None:
    """The host finishes the start on its own, and goes back on its own when nobody accepts it."""
    began = time.time()
    rolling.stage(three, ["h1"], "slow00000000", Kind(delay=10.0))
    run = rolling.start(three, to("slow00000000"), {"lost_after": 2.0, "gate_deadline": 15.0, "margin": 3.0})
    run.wait_for("^h1: start")
    until(lambda: turn(three, "h1").get("phase") == "starting")
    three.host("h1").cut()
    rolling.forget(three, "h1")
    until(lambda: turn(three, "h1").get("phase") == "reverted")
    assert "started" in turn(three, "h1"), "the start was finished first, with nobody there"
    assert results(run.done()) == {"h1": "lost", "h2": "untouched", "h3": "untouched"}
    assert rolling.all_serve(three, THREE) == to(OLD)
    three.host("h1").heal()
    assert journals.most_out(three, THREE, began) == 1
    report = rolling.roll(three, to("slow00000000"))
    assert report["exit"] == 0, "healed, the second run finishes the job"


@pytest.mark.full
def test_unreachable_after_start_for_good(three: Lab) -> None:
    """It serves the new release meanwhile, and goes back on its own when the lease of the run that lost it is over."""
    began = time.time()
    run = rolling.start(three, to(NEW), {"lost_after": 2.0, "gate_deadline": 60.0, "soak": 20.0})
    run.wait_for("^h1: soak")
    three.host("h1").cut()
    assert results(run.done()) == {"h1": "lost", "h2": "untouched", "h3": "untouched"}
    assert "goes back by itself within" in run.report["hosts"]["h1"]["warning"]
    until(lambda: turn(three, "h1").get("phase") == "reverted")
    assert rolling.all_serve(three, THREE) == to(OLD)
    assert journals.most_out(three, THREE, began) == 1
    three.host("h1").heal()
    assert rolling.roll(three, to(NEW))["exit"] == 0


@pytest.mark.full
def test_unreachable_after_start_for_a_moment(three: Lab) -> None:
    """Shorter than `lost_after`: the roll goes on over a new connection."""
    run = rolling.start(three, to(NEW), {"lost_after": 120.0, "soak": 4.0})
    run.wait_for("^h1: soak")
    three.host("h1").cut()
    time.sleep(6)
    three.host("h1").heal()
    assert run.done()["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)


@pytest.mark.full
def test_rebooted_in_its_turn(three: Lab) -> None:
    run = rolling.start(three, to(NEW), {"lost_after": 240.0, "soak": 20.0})
    run.wait_for("^h1: soak")
    three.host("h1").crash()
    three.host("h1").boot()
    report = run.done()
    assert results(report) == {"h1": "reverted", "h2": "untouched", "h3": "untouched"}
    assert "rebooted" in report["hosts"]["h1"]["reason"]
    assert rolling.all_serve(three, THREE) == to(OLD)


@pytest.mark.full
def test_frozen_in_its_turn(three: Lab) -> None:
    """A host that hangs: TCP connects, nobody answers. Thawed, it goes back by itself."""
    run = rolling.start(three, to(NEW), {"lost_after": 4.0, "soak": 15.0, "gate_deadline": 40.0, "margin": 2.0})
    run.wait_for("^h1: soak")
    three.host("h1").freeze()
    report = run.done()
    three.host("h1").thaw()
    assert results(report) == {"h1": "lost", "h2": "untouched", "h3": "untouched"}
    until(lambda: turn(three, "h1").get("phase") == "reverted")
    assert rolling.all_serve(three, THREE) == to(OLD)


@pytest.mark.full
def test_sshd_restarted(three: Lab) -> None:
    run = rolling.start(three, to(NEW), {"soak": 5.0, "lost_after": 120.0})
    run.wait_for("^h1: soak")
    three.host("h1").exec(
        "sh",
        "-c",
        "systemctl kill -s KILL ssh.service; pkill -KILL -x sshd; systemctl restart ssh.service",
    )
    assert run.done()["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)


@pytest.mark.full
def test_disk_full(three: Lab) -> None:
    """Nothing can be written on the canary: nothing is begun anywhere."""
    before = {host: rolling.main_pid(three, host) for host in THREE}
    roll = f"/var/lib/sglfleet/{rolling.SERVICE}/.roll"
    script = f"mkdir -p {roll} && mount -t tmpfs -o size=8k full {roll} && head -c 8192 /dev/zero > {roll}/x"
    assert three.host("h1").exec("sh", "-c", script).returncode == 0
    report = rolling.roll(three, to(NEW))
    three.host("h1").exec("umount", roll)
    assert report["exit"] == 4
    assert "space" in report["refused"][0]
    assert {host: rolling.main_pid(three, host) for host in THREE} == before
    assert rolling.roll(three, to(NEW))["exit"] == 0


@pytest.mark.full
def test_disk_full_in_the_middle_of_a_turn(three: Lab) -> None:
    """What happens can no longer be written down: the node serves its previous release, and nobody waits for ever."""
    began = time.time()
    roll = f"/var/lib/sglfleet/{rolling.SERVICE}/.roll"
    three.host("h1").exec("sh", "-c", f"mkdir -p {roll} && mount -t tmpfs -o size=1m full {roll}")
    rolling.stage(three, ["h1"], "slow00000000", Kind(delay=10.0))
    run = rolling.start(three, to("slow00000000"))
    run.wait_for("^h1: start")
    until(lambda: turn(three, "h1").get("phase") == "starting")
    three.host("h1").exec("sh", "-c", f"cat /dev/zero > {roll}/x")
    report = run.done()
    assert report["exit"] == 4
    assert report["hosts"]["h1"]["serves"] == OLD
    assert results(report)["h2"] == "untouched"
    assert rolling.all_serve(three, THREE) == to(OLD)
    three.host("h1").exec("umount", roll)
    assert rolling.roll(three, to(NEW))["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)
    assert journals.most_out(three, THREE, began) <= 2


@pytest.mark.full
@pytest.mark.parametrize("hours", [1, -1])
def test_a_host_s_clock_is_an_hour_off(three: Lab, hours: int) -> None:
    """Hosts of the lab share one kernel clock, so `date` is what lies; nothing else of ours asks for the time."""
    lie = f"#!/bin/sh\nexec /bin/date -d '{hours} hour' \"$@\"\n"
    three.host("h1").exec("sh", "-c", "cat > /usr/local/bin/date; chmod 755 /usr/local/bin/date", stdin=lie)
    assert rolling.roll(three, to(NEW))["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)
