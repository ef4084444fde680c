"""What is changed, in which order, how many at a time; read from the hosts' journals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from lab.fleet import Lab
from tests.lab import journals, rolling
from tests.lab.roll.common import HOSTS, KINDS, NEW, OLD, THREE, results, to
from tests.lab.rolling import Kind

pytestmark = pytest.mark.lab


def test_six_hosts_and_a_release_that_fails_on_start(six: Lab) -> None:
    began, before = time.time(), {host: rolling.main_pid(six, host) for host in HOSTS}
    report = rolling.roll(six, to("badflag00000", HOSTS))
    assert report["exit"] == 4
    assert results(report) == {"h1": "reverted", **dict.fromkeys(HOSTS[1:], "untouched")}
    assert rolling.all_serve(six, HOSTS) == to(OLD, HOSTS)
    assert {h: rolling.main_pid(six, h) for h in HOSTS[1:]} == {h: before[h] for h in HOSTS[1:]}, "never restarted"
    assert journals.most_out(six, HOSTS, began) == 1, "only the canary was ever down"
    assert "flag no-such-flag of this service" in report["hosts"]["h1"]["diagnoses"][0]
    assert any("unrecognized arguments" in line for line in report["hosts"]["h1"]["log"])
    history = six.host("h1").exec("tail", "-n1", f"/var/lib/sglfleet/{rolling.SERVICE}/history.jsonl").stdout
    assert json.loads(history)["result"] == "reverted"


def test_a_good_release_goes_through_in_order_and_a_second_run_changes_nothing(six: Lab) -> None:
    began = time.time()
    run = rolling.start(six, to(NEW, HOSTS))
    report = run.done()
    assert report["exit"] == 0, run.lines
    assert rolling.all_serve(six, HOSTS) == to(NEW, HOSTS)
    assert 1 <= journals.most_out(six, HOSTS, began) <= 2
    stops = sorted((next(a for a, b in journals.outages(six, h) if b > began), h) for h in HOSTS)
    assert stops[0][1] == "h1"
    assert {h for _, h in stops[1:3]} == {"h2", "h3"}
    assert {h for _, h in stops[3:5]} == {"h4", "h5"}
    pids = {host: rolling.main_pid(six, host) for host in HOSTS}
    assert set(results(rolling.roll(six, to(NEW, HOSTS))).values()) == {"kept"}
    assert {host: rolling.main_pid(six, host) for host in HOSTS} == pids
    assert not six.host("h1").exec("cat", f"/var/lib/sglfleet/{rolling.SERVICE}/lock").stdout, "no lock stays"


@pytest.mark.parametrize(("back", "serves"), [(True, OLD), pytest.param(False, NEW, marks=pytest.mark.full)])
def test_a_canary_that_serves_well_and_is_too_slow(three: Lab, back: bool, serves: str) -> None:
    """It was accepted; what the service file says of slower releases decides, not `on_failure`."""
    policy = {"canary": ["h1"], "on_failure": "halt" if back else "rollback"}
    report = rolling.start(three, to(NEW), policy, slow={"h1": ("slower by 9%", back)}).done()
    assert results(report) == {"h1": "accepted", "h2": "untouched", "h3": "untouched"}
    assert (report["exit"], report["closed"]) == (4, "h1: slower by 9%")
    assert (report["hosts"]["h1"]["reason"], report["hosts"]["h1"]["stage"]) == ("slower by 9%", "benchmark")
    assert list(report["rolled_back"]) == (["h1"] if back else [])
    assert rolling.all_serve(three, THREE) == {"h1": serves, "h2": OLD, "h3": OLD}


@pytest.mark.full
@pytest.mark.parametrize(("bad", "exit_code"), [("", 0), ("h2", 4)])
def test_a_group_changes_as_one(three: Lab, bad: str, exit_code: int) -> None:
    """Two ranks of one server: both go, and where the second rank fails the first goes back too."""
    rolling.stage(three, THREE, "pair00000000")
    if bad:
        rolling.stage(three, [bad], "pair00000000", Kind(mode="bad-flag"))
    own = {"h1": {"group": "pair", "rank": 0}, "h2": {"group": "pair", "rank": 1}}
    run = rolling.start(three, to("pair00000000"), {"max_unavailable": 1}, own=own)
    report = run.done()
    assert report["exit"] == exit_code
    after = OLD if bad else "pair00000000"
    assert rolling.all_serve(three, THREE) == to(after)
    assert "h1 + h2: drain" in run.lines


@pytest.mark.full
def test_a_group_that_is_accepted_on_one_of_its_hosts_only_goes_back_as_one(three: Lab) -> None:
    """h2's turn is undone by hand behind the run's back, so h1 accepts and h2 has nothing to accept."""
    rolling.stage(three, THREE, "pair00000000")
    own = {"h1": {"group": "pair", "rank": 0}, "h2": {"group": "pair", "rank": 1}}
    run = rolling.start(three, to("pair00000000", THREE[:2]), {"soak": 8.0}, own=own)
    run.wait_for("^h1 . h2: soak")
    turn = f"/var/lib/sglfleet/{rolling.SERVICE}/.roll/turn"
    three.host("h2").exec("sed", "-i", "s/^phase=.*/phase=stopping/", turn)
    report = run.done()
    assert report["exit"] == 4
    assert results(report) == {"h1": "reverted", "h2": "reverted"}
    assert rolling.all_serve(three, THREE) == to(OLD)


@pytest.mark.full
def test_hosts_outside_of_limit_are_locked_and_counted(three: Lab) -> None:
    """Rolled to h1 alone: whoever changes the others at the same time, or one of them down, must stop it."""
    began = time.time()
    one = {"max_unavailable": 1}
    first = rolling.start(three, {"h1": NEW}, {**one, "soak": 10.0}, beyond=["h2", "h3"])
    first.wait_for("^h1: soak")
    second = rolling.start(three, {"h3": NEW}, one, beyond=["h1", "h2"]).done()
    assert second["exit"] == 4
    assert "h3: locked by" in second["refused"][0]
    assert first.done()["exit"] == 0
    three.host("h2").exec("systemctl", "stop", rolling.UNIT)
    report = rolling.start(three, {"h3": NEW}, one, beyond=["h1", "h2"]).done()
    assert "too many nodes are out already" in report["refused"][0]
    assert rolling.all_serve(three, THREE) == {"h1": NEW, "h2": "", "h3": OLD}
    assert rolling.start(three, {"h2": NEW}, one, beyond=["h1", "h3"]).done()["exit"] == 0, (
        "the one that is down may go"
    )
    assert rolling.start(three, {"h3": NEW}, one, beyond=["h1", "h2"]).done()["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)
    assert journals.most_out(three, THREE, began) == 1


@pytest.mark.full
def test_order_is_the_inventory_s_in_twenty_runs(three: Lab) -> None:
    """pyinfra's own order is that of a set. Read from the hosts' journals: when each server was stopped."""
    order = ["h3", "h1", "h2"]  # as the inventory says, neither sorted nor as it was up
    for number in range(20):
        began = time.time()
        release = NEW if number % 2 == 0 else OLD
        policy = {"max_unavailable": 1, "soak": 0.0}
        assert rolling.start(three, to(release, order), policy).done()["exit"] == 0
        stops = sorted((min(a for a, _ in journals.outages(three, h) if a > began), h) for h in order)
        assert [host for _, host in stops] == order, number
        assert journals.most_out(three, order, began) == 1


@pytest.mark.full
def test_twenty_hosts_and_a_release_that_fails_on_start(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(20)
    names = [host.name for host in lab.hosts()]
    for release in (OLD, "badflag00000"):
        rolling.stage(lab, names, release, KINDS[release])
    rolling.place(lab, names, OLD)
    began, before = time.time(), {host: rolling.main_pid(lab, host) for host in names}
    report = rolling.roll(lab, to("badflag00000", names), {"max_unavailable": 2})
    assert results(report) == {"h1": "reverted", **dict.fromkeys(names[1:], "untouched")}
    assert rolling.all_serve(lab, names) == to(OLD, names)
    assert {h: rolling.main_pid(lab, h) for h in names[1:]} == {h: before[h] for h in names[1:]}
    assert journals.most_out(lab, names, began) == 1
