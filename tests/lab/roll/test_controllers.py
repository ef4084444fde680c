"""Controllers that are killed, sleep, or come in pairs."""

from __future__ import annotations

import signal
import time

import pytest

from lab.fleet import Lab
from tests.lab import journals, rolling
from tests.lab.roll.common import NEW, OLD, THREE, results, to, turn, until

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    "stage",
    [
        "gate",
        *(
            pytest.param(stage, marks=pytest.mark.full)
            for stage in ("drain", "switching", "start", "soak", "accept", "serves")
        ),
    ],
)
def test_the_controller_is_killed_then_run_again(three: Lab, stage: str) -> None:
    began = time.time()
    run = rolling.start(three, to(NEW), {"soak": 2.0})
    run.wait_for(f"^h1: {stage}")
    run.kill()
    if stage != "serves":  # then the next batch may have begun
        served = rolling.all_serve(three, THREE[1:])
        assert served == to(OLD, THREE[1:])
    report = rolling.roll(three, to(NEW), {"soak": 2.0})
    assert report["exit"] == 0, "the lock of a controller that is gone does not stop the next one"
    assert rolling.all_serve(three, THREE) == to(NEW)
    assert journals.most_out(three, THREE, began) <= 2
    for host in THREE:
        assert turn(three, host)["phase"] == "accepted"
        timers = three.host(host).exec("systemctl", "list-timers", "--all", "--no-legend", "sglfleet-*").stdout
        assert not timers.strip(), "nobody takes the host back later"


@pytest.mark.full
def test_the_controller_is_killed_with_a_bad_release_in_the_gate(three: Lab) -> None:
    """Nobody is there to undo it: the host goes back by itself."""
    began = time.time()
    run = rolling.start(three, to("wrong0000000"), {"gate_deadline": 15.0, "margin": 2.0, "lost_after": 2.0})
    run.wait_for("^h1: gate")
    run.kill()
    rolling.forget(three, "h1")
    until(lambda: turn(three, "h1").get("phase") == "reverted")
    assert rolling.all_serve(three, THREE) == to(OLD)
    assert journals.most_out(three, THREE, began) == 1


def half_done(lab: Lab) -> float:
    """h3 serves the new release, nobody accepted it, and its time is over in a moment. When it was switched."""
    began = time.time()
    run = rolling.start(lab, {"h3": NEW}, {"soak": 60.0})
    run.wait_for("^h3: soak")
    run.kill()
    lab.host("h3").exec("systemctl", "stop", f"sglfleet-watch-{rolling.SERVICE}.timer")
    node = f"/bin/sh /var/lib/sglfleet/{rolling.SERVICE}/.roll/node.sh watchdog {rolling.SERVICE}"
    words = f"--unit=sglfleet-watch-{rolling.SERVICE} --collect --on-active=5 --timer-property=AccuracySec=1s {node}"
    lab.host("h3").exec("sh", "-c", f"systemd-run {words} {turn(lab, 'h3')['run']}")
    return began


def test_a_run_that_takes_over_a_half_done_node_keeps_it_meanwhile(three: Lab) -> None:
    """Its time is over while the next run changes the other hosts: it must not go back, or one more would be out."""
    began = half_done(three)
    report = rolling.roll(three, to(NEW), {"soak": 6.0, "max_unavailable": 1})
    assert results(report) == dict.fromkeys(THREE, "accepted")
    assert rolling.all_serve(three, THREE) == to(NEW)
    assert len([a for a, b in journals.outages(three, "h3") if b > began]) == 1, "stopped once, by the first run"
    assert journals.most_out(three, THREE, began) == 1


@pytest.mark.full
def test_a_half_done_node_goes_back_when_the_next_run_ends_without_it(three: Lab) -> None:
    began = half_done(three)
    assert rolling.roll(three, {**to("wrong0000000"), "h3": NEW}, {"max_unavailable": 1})["exit"] == 4
    until(lambda: turn(three, "h3").get("phase") == "reverted")
    assert rolling.all_serve(three, THREE) == to(OLD)
    assert journals.most_out(three, THREE, began) == 1


def test_two_controllers(three: Lab) -> None:
    first = rolling.start(three, to(NEW), {"soak": 8.0})
    first.wait_for("^h1: soak")
    second = rolling.roll(three, to("slow00000000"))
    assert second["exit"] == 4
    assert "locked by" in second["refused"][0]
    assert "since 20" in second["refused"][0]
    assert first.done()["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)


@pytest.mark.full
def test_a_controller_that_slept_longer_than_its_lock_does_nothing_more(three: Lab) -> None:
    began = time.time()
    first = rolling.start(three, to(NEW), {"soak": 6.0})
    first.wait_for("^h1: soak")
    first.process.send_signal(signal.SIGSTOP)
    second = rolling.roll(three, to(OLD))
    assert "locked by" in second["refused"][0], "it sleeps, it is not dead: its lease decides"
    end = time.monotonic() + 300
    while second["refused"]:
        assert time.monotonic() < end
        second = rolling.roll(three, to(OLD))
    assert second["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(OLD)
    pids = {host: rolling.main_pid(three, host) for host in THREE}
    first.process.send_signal(signal.SIGCONT)
    report = first.done()
    assert report["exit"] == 4
    assert "lock" in report["closed"]
    assert rolling.all_serve(three, THREE) == to(OLD)
    assert {host: rolling.main_pid(three, host) for host in THREE} == pids, "nothing was restarted"
    assert journals.most_out(three, THREE, began) == 1
