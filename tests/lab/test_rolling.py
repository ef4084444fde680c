"""Rolls over real hosts with stand-ins, and every fault: each test says what every node serves afterwards.

That never more nodes were out than allowed is read from the hosts' journals, not from the program.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.fleet import Lab
from tests.lab import rolling
from tests.lab.rolling import Kind

pytestmark = pytest.mark.lab

OLD, NEW = "old000000000", "new000000000"
HOSTS = ["h1", "h2", "h3", "h4", "h5", "h6"]
THREE = HOSTS[:3]
KINDS = {
    OLD: Kind(),
    NEW: Kind(),
    "badflag00000": Kind(mode="bad-flag"),
    "crash0000000": Kind(mode="crash", cut=3.0),
    "never0000000": Kind(mode="never", start=6),
    "wrong0000000": Kind(mode="wrong"),
    "empty0000000": Kind(mode="empty"),
    "porttaken000": Kind(port=30777),
    "slow00000000": Kind(delay=5.0),
}


def staged(lab: Lab) -> Lab:
    for release, kind in KINDS.items():
        rolling.stage(lab, [host.name for host in lab.hosts()], release, kind)
    return lab


def served(lab: Lab) -> Iterator[Lab]:
    """Every host up, reachable and serving the old release, before and after."""
    rolling.place(lab, [host.name for host in lab.hosts()], OLD)
    yield lab
    for host in lab.hosts():
        if host.group.frozen():
            host.thaw()
        host.heal() if host.is_up() else host.boot()
    for host in lab.hosts():
        host.wait()


@pytest.fixture(scope="module")
def small(make_lab: Callable[..., Lab]) -> Lab:
    return staged(make_lab(3))


@pytest.fixture(scope="module")
def large(make_lab: Callable[..., Lab]) -> Lab:
    return staged(make_lab(6))


@pytest.fixture
def three(small: Lab) -> Iterator[Lab]:
    """h1, h2, h3, serving."""
    yield from served(small)


@pytest.fixture
def six(large: Lab) -> Iterator[Lab]:
    """h1 to h6, serving."""
    yield from served(large)


def to(release: str, hosts: list[str] = THREE) -> dict[str, str]:
    return dict.fromkeys(hosts, release)


def results(report: dict[str, Any]) -> dict[str, str]:
    print(json.dumps(report, indent=1))  # pytest shows it where the test fails
    return {host: row["result"] for host, row in report["hosts"].items()}


def turn(lab: Lab, host: str) -> dict[str, str]:
    text = lab.host(host).exec("cat", f"/var/lib/sglfleet/{rolling.SERVICE}/.roll/turn").stdout
    return dict(line.partition("=")[::2] for line in text.splitlines())


def until(what: Callable[[], bool], timeout: float = 120.0) -> None:
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.2)


# --- in order -------------------------------------------------------------------------------------------------------


def test_six_hosts_and_a_release_that_fails_on_start(six: Lab) -> None:
    began, before = time.time(), {host: rolling.main_pid(six, host) for host in HOSTS}
    report = rolling.roll(six, to("badflag00000", HOSTS))
    assert report["exit"] == 4
    assert results(report) == {"h1": "reverted", **dict.fromkeys(HOSTS[1:], "untouched")}
    assert rolling.all_serve(six, HOSTS) == to(OLD, HOSTS)
    assert {h: rolling.main_pid(six, h) for h in HOSTS[1:]} == {h: before[h] for h in HOSTS[1:]}, "never restarted"
    assert rolling.most_out(six, HOSTS, began) == 1, "only the canary was ever down"
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
    assert 1 <= rolling.most_out(six, HOSTS, began) <= 2
    stops = sorted((next(a for a, b in rolling.outages(six, h) if b > began), h) for h in HOSTS)
    assert stops[0][1] == "h1"
    assert {h for _, h in stops[1:3]} == {"h2", "h3"}
    assert {h for _, h in stops[3:5]} == {"h4", "h5"}
    pids = {host: rolling.main_pid(six, host) for host in HOSTS}
    assert set(results(rolling.roll(six, to(NEW, HOSTS))).values()) == {"kept"}
    assert {host: rolling.main_pid(six, host) for host in HOSTS} == pids
    assert not six.host("h1").exec("cat", f"/var/lib/sglfleet/{rolling.SERVICE}/lock").stdout, "no lock stays"


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
    assert rolling.most_out(three, THREE, began) == 1
    state = three.host("h1").exec("systemctl", "show", "-P", "NRestarts,ActiveState", rolling.UNIT).stdout.split()
    assert "active" in state, "no restart of the bad release goes on in the background"


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
    assert rolling.most_out(three, THREE, began) == 1


@pytest.mark.full
def test_a_first_deploy_that_fails_leaves_the_unit_stopped_and_disabled(three: Lab) -> None:
    three.host("h1").exec(
        "sh", "-c", f"systemctl disable --now {rolling.UNIT}; rm -f /var/lib/sglfleet/standin/current"
    )
    report = rolling.roll(three, {"h1": "badflag00000"})
    assert results(report) == {"h1": "stopped"}
    shown = three.host("h1").exec("systemctl", "show", "-P", "ActiveState", "-P", "UnitFileState", rolling.UNIT).stdout
    assert set(shown.split()) <= {"inactive", "disabled"}


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
def test_order_is_the_inventory_s_in_twenty_runs(three: Lab) -> None:
    """pyinfra's own order is that of a set. Read from the hosts' journals: when each server was stopped."""
    order = ["h3", "h1", "h2"]  # as the inventory says, neither sorted nor as it was up
    for number in range(20):
        began = time.time()
        release = NEW if number % 2 == 0 else OLD
        policy = {"max_unavailable": 1, "soak": 0.0}
        assert rolling.start(three, to(release, order), policy).done()["exit"] == 0
        stops = sorted((min(a for a, _ in rolling.outages(three, h) if a > began), h) for h in order)
        assert [host for _, host in stops] == order, number
        assert rolling.most_out(three, order, began) == 1


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
    assert rolling.most_out(lab, names, began) == 1


# --- the network, the host ------------------------------------------------------------------------------------------


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
    run = rolling.start(three, to("slow00000000"), {"lost_after": 2.0, "gate_deadline": 20.0, "margin": 3.0})
    run.wait_for("^h1: start")
    until(lambda: turn(three, "h1").get("phase") == "starting")
    three.host("h1").cut()
    until(lambda: rolling.serves(three, "h1") == "slow00000000", 60)
    assert results(run.done()) == {"h1": "lost", "h2": "untouched", "h3": "untouched"}
    until(lambda: turn(three, "h1").get("phase") == "reverted", 120)
    assert rolling.all_serve(three, THREE) == to(OLD)
    three.host("h1").heal()
    assert rolling.most_out(three, THREE, began) == 1
    report = rolling.roll(three, to("slow00000000"))
    assert report["exit"] == 0, "healed, the second run finishes the job"


@pytest.mark.full
def test_unreachable_after_start_for_a_moment(three: Lab) -> None:
    """Shorter than `lost_after`: the roll goes on over a new connection."""
    run = rolling.start(three, to(NEW), {"lost_after": 40.0, "soak": 4.0})
    run.wait_for("^h1: soak")
    three.host("h1").cut()
    time.sleep(6)
    three.host("h1").heal()
    assert run.done()["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)


@pytest.mark.full
def test_rebooted_in_its_turn(three: Lab) -> None:
    run = rolling.start(three, to(NEW), {"lost_after": 60.0, "soak": 20.0})
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
    run = rolling.start(three, to(NEW), {"lost_after": 4.0, "soak": 15.0, "gate_deadline": 5.0, "margin": 2.0})
    run.wait_for("^h1: soak")
    three.host("h1").freeze()
    report = run.done()
    three.host("h1").thaw()
    assert results(report) == {"h1": "lost", "h2": "untouched", "h3": "untouched"}
    until(lambda: turn(three, "h1").get("phase") == "reverted", 120)
    assert rolling.all_serve(three, THREE) == to(OLD)


@pytest.mark.full
def test_sshd_restarted(three: Lab) -> None:
    run = rolling.start(three, to(NEW), {"soak": 5.0, "lost_after": 20.0})
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
@pytest.mark.parametrize("hours", [1, -1])
def test_a_host_s_clock_is_an_hour_off(three: Lab, hours: int) -> None:
    """Hosts of the lab share one kernel clock, so `date` is what lies; nothing else of ours asks for the time."""
    lie = f"#!/bin/sh\nexec /bin/date -d '{hours} hour' \"$@\"\n"
    three.host("h1").exec("sh", "-c", "cat > /usr/local/bin/date; chmod 755 /usr/local/bin/date", stdin=lie)
    assert rolling.roll(three, to(NEW))["exit"] == 0
    assert rolling.all_serve(three, THREE) == to(NEW)


# --- controllers ----------------------------------------------------------------------------------------------------


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
    served = rolling.all_serve(three, THREE)
    assert served["h2"] == served["h3"] == OLD
    report = rolling.roll(three, to(NEW), {"soak": 2.0})
    assert report["exit"] == 0, "the lock of a controller that is gone does not stop the next one"
    assert rolling.all_serve(three, THREE) == to(NEW)
    assert rolling.most_out(three, THREE, began) <= 2
    time.sleep(1)
    assert turn(three, "h1")["phase"] == "accepted"
    timers = three.host("h1").exec("systemctl", "list-timers", "--all", "--no-legend", "sglfleet-*").stdout
    assert not timers.strip(), "nobody takes the host back later"


@pytest.mark.full
def test_the_controller_is_killed_with_a_bad_release_in_the_gate(three: Lab) -> None:
    """Nobody is there to undo it: the host goes back by itself."""
    run = rolling.start(three, to("wrong0000000"), {"gate_deadline": 4.0, "margin": 2.0, "lost_after": 2.0})
    run.wait_for("^h1: gate")
    run.kill()
    until(lambda: turn(three, "h1").get("phase") == "reverted", 120)
    assert rolling.all_serve(three, THREE) == to(OLD)


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
def test_a_controller_that_slept_does_nothing_after_its_lock_was_taken_over(three: Lab) -> None:
    import signal

    first = rolling.start(three, to(NEW), {"soak": 6.0})
    first.wait_for("^h1: soak")
    first.process.send_signal(signal.SIGSTOP)
    lock = f"/var/lib/sglfleet/{rolling.SERVICE}/lock"
    # as if its lease had run out long ago, and the other one had come from another machine
    rolling.on_all(three, THREE, f"sed -i 's/^renewed=.*/renewed=1/; s/^origin=.*/origin=elsewhere/' {lock}")
    assert rolling.roll(three, to(OLD))["exit"] == 0
    first.process.send_signal(signal.SIGCONT)
    report = first.done()
    assert report["exit"] == 4
    assert rolling.all_serve(three, THREE) == to(OLD)


# --- the commands ---------------------------------------------------------------------------------------------------


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


# --- behind the router ----------------------------------------------------------------------------------------------

ROUTER: dict[str, Any] = {
    "host": "h6",
    "data": {"service": rolling.SERVICE, "port": 30100, "policy": "round_robin", "stop_timeout": 20},
}


@pytest.fixture
def routed(six: Lab, router_venv: Path) -> Iterator[str]:
    """The router's address; it runs on h6 and fronts h1 to h4."""
    ROUTER["data"]["venv"] = str(router_venv)
    yield f"http://{six.host('h6').ip}:30100"
    six.host("h6").exec("sh", "-c", "systemctl disable --now 'sglang-router-*.service'; rm -rf /etc/sglfleet/router-*")


def listed(six: Lab) -> set[str]:
    out = six.host("h6").exec("curl", "-s", "http://127.0.0.1:30100/workers").stdout
    return {row["url"].split("//")[1].split(":")[0] for row in json.loads(out)["workers"] if row["is_healthy"]}


def test_no_request_fails_while_four_nodes_roll(six: Lab, routed: str) -> None:
    four = HOSTS[:4]
    assert rolling.roll(six, to(OLD, four), router=ROUTER)["exit"] == 0
    assert listed(six) == {str(six.host(h).ip) for h in four}, "nothing had to change, and the list is right"
    with rolling.Load(routed) as load:
        time.sleep(2)
        report = rolling.roll(six, to(NEW, four), {"drain": 20.0}, router=ROUTER)
    assert report["exit"] == 0
    assert rolling.all_serve(six, four) == to(NEW, four)
    assert load.failures == []
    assert load.done > 50
    assert listed(six) == {str(six.host(h).ip) for h in four}
    remembered = six.host("h6").exec("cat", f"/etc/sglfleet/router-{rolling.SERVICE}/workers").stdout
    assert remembered.count("http://") == 4, "a restart of the router finds them again"


@pytest.mark.full
def test_a_bad_release_behind_the_router_fails_no_request(six: Lab, routed: str) -> None:
    four = HOSTS[:4]
    rolling.roll(six, to(OLD, four), router=ROUTER)
    with rolling.Load(routed) as load:
        report = rolling.roll(six, to("wrong0000000", four), {"drain": 20.0}, router=ROUTER)
    assert results(report)["h1"] == "reverted"
    assert load.failures == []
    assert listed(six) == {str(six.host(h).ip) for h in four}, "back in the router on its previous release"


@pytest.mark.full
def test_router_down_in_the_middle(six: Lab, routed: str) -> None:
    """The node in its turn serves the new release; no other one is touched, as it could not be drained."""
    four = HOSTS[:4]
    rolling.roll(six, to(OLD, four), router=ROUTER)
    run = rolling.start(six, to(NEW, four), {"soak": 4.0}, router=ROUTER)
    run.wait_for("^h1: soak")
    six.host("h6").exec("systemctl", "stop", f"sglang-router-{rolling.SERVICE}")
    report = run.done()
    assert report["exit"] == 4
    assert "router" in report["closed"]
    assert rolling.all_serve(six, four) == {"h1": NEW, **to(OLD, HOSTS[1:4])}
    assert rolling.roll(six, to(NEW, four), router=ROUTER)["exit"] == 0, "the next run starts the router and goes on"
    assert listed(six) == {str(six.host(h).ip) for h in four}


@pytest.mark.full
def test_the_last_worker_is_never_removed(six: Lab, routed: str) -> None:
    two = HOSTS[:2]
    rolling.roll(six, to(OLD, two), router=ROUTER)
    six.host("h2").exec("systemctl", "stop", rolling.UNIT)
    until(lambda: listed(six) == {str(six.host("h1").ip)}, 120)
    report = rolling.roll(six, to(NEW, two), {"max_unavailable": 2}, router=ROUTER)
    assert report["exit"] == 0, "the node that was down went first"
    assert rolling.all_serve(six, two) == to(NEW, two)


@pytest.mark.full
@pytest.mark.engine
def test_no_request_fails_while_four_real_engines_roll(six: Lab, routed: str) -> None:
    """Four times the real SGLang on the CPU, some 8 GiB."""
    if not (rolling.ENGINE / "bin" / "python").exists():
        pytest.skip(f"no engine in {rolling.ENGINE}: make engine")
    four, kind = HOSTS[:4], Kind(engine=True, start=900)
    for release in ("engine000001", "engine000002"):
        rolling.stage(six, four, release, kind)
    limits = {"start_timeout": 900.0, "stop_timeout": 120.0}
    policy = {"drain": 60.0, "soak": 5.0, "gate_deadline": 300.0, "lost_after": 60.0, "max_unavailable": 2}
    rolling.place(six, four, "engine000001")
    assert rolling.roll(six, to("engine000001", four), policy, ROUTER, **limits)["exit"] == 0, "the router knows them"
    with rolling.Load(routed, threads=2, seconds=0) as load:
        report = rolling.start(six, to("engine000002", four), policy, ROUTER, **limits).done(1800)
    print(json.dumps(report, indent=1), load.done)
    assert report["exit"] == 0
    assert rolling.all_serve(six, four) == to("engine000002", four)
    assert load.failures == []
    assert load.done > 20
    assert report["hosts"]["h1"]["gate"]["prompt_tokens"], "the gate asked the engine"
