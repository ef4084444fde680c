"""Rolls behind the real SGLang router, under load."""

from __future__ import annotations

import json
import time

import pytest

from lab.fleet import Lab
from tests.lab import journals, rolling
from tests.lab.load import Load
from tests.lab.roll.common import HOSTS, NEW, OLD, ROUTER, listed, results, to, until
from tests.lab.rolling import Kind

pytestmark = pytest.mark.lab


def test_no_request_fails_while_four_nodes_roll(six: Lab, routed: str) -> None:
    four = HOSTS[:4]
    assert rolling.roll(six, to(OLD, four), router=ROUTER)["exit"] == 0
    assert listed(six) == {str(six.host(h).ip) for h in four}, "nothing had to change, and the list is right"
    with Load(routed) as load:
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
    with Load(routed) as load:
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
    # the router looks once a minute, and believes the third look
    until(lambda: listed(six) == {str(six.host("h1").ip)}, 900)
    report = rolling.roll(six, to(NEW, two), {"max_unavailable": 2}, router=ROUTER)
    assert report["exit"] == 0, "the node that was down went first"
    assert rolling.all_serve(six, two) == to(NEW, two)


@pytest.mark.full
def test_the_router_comes_back_in_the_middle(six: Lab, routed: str) -> None:
    """Killed and started again by systemd while nodes roll: no reason to stop, and its list is right."""
    four = HOSTS[:4]
    rolling.roll(six, to(OLD, four), router=ROUTER)
    run = rolling.start(six, to(NEW, four), {"soak": 4.0}, router=ROUTER)
    run.wait_for("^h1: soak")
    six.host("h6").exec("systemctl", "kill", "-s", "KILL", f"sglang-router-{rolling.SERVICE}")
    assert run.done()["exit"] == 0
    assert rolling.all_serve(six, four) == to(NEW, four)
    assert listed(six) == {str(six.host(h).ip) for h in four}


@pytest.mark.full
def test_a_host_alone_leaves_the_others_in_the_router(six: Lab, routed: str) -> None:
    """--limit h2: nobody else is known to have left the service."""
    four = HOSTS[:4]
    rolling.roll(six, to(OLD, four), router=ROUTER)
    report = rolling.start(six, {"h2": NEW}, router=ROUTER, beyond=["h1", "h3", "h4"]).done()
    assert report["exit"] == 0
    assert rolling.all_serve(six, four) == {**to(OLD, four), "h2": NEW}
    assert listed(six) == {str(six.host(h).ip) for h in four}


@pytest.mark.full
def test_no_request_fails_while_pairs_of_prefill_and_decode_roll(six: Lab, routed: str) -> None:
    """Two of each: prefill first, one of each role always stays."""
    four, roles = HOSTS[:4], {"h1": "prefill", "h2": "decode", "h3": "prefill", "h4": "decode"}
    for host, role in roles.items():
        for release in ("pair00000001", "pair00000002"):
            rolling.stage(six, [host], release, Kind(role=role))
    own = {host: {"role": role} for host, role in roles.items()}
    rolling.start(six, to("pair00000001", four), router=ROUTER, own=own).done()
    began = time.time()
    with Load(routed) as load:
        time.sleep(2)
        report = rolling.start(six, to("pair00000002", four), {"drain": 20.0}, ROUTER, own).done()
        assert results(report) == dict.fromkeys(four, "accepted")
        time.sleep(2)
    assert rolling.all_serve(six, four) == to("pair00000002", four)
    assert load.failures == []
    assert load.done > 20
    stops = sorted((min(a for a, b in journals.outages(six, h) if b > began), h) for h in four)
    assert [host for _, host in stops] == ["h1", "h3", "h2", "h4"], "one role after the other"
    assert journals.most_out(six, four, began) == 1, "of two, one stays"
    assert listed(six) == {str(six.host(h).ip) for h in four}
    assert any("prefill server alone" in note for note in report["hosts"]["h1"]["gate"]["notes"])


@pytest.mark.full
def test_workers_with_a_key_of_their_own(six: Lab, routed: str) -> None:
    """The router hands the client's key on and has none itself: who brings none is refused by the server."""
    four, file = HOSTS[:4], "/etc/sglfleet-key"
    rolling.on_all(six, four, f"umask 077; printf %s {rolling.KEY} > {file}")
    for release in ("keyed0000001", "keyed0000002"):
        rolling.stage(six, four, release, Kind(key=rolling.KEY))
    assert rolling.roll(six, to("keyed0000001", four), router=ROUTER, key_file=file)["exit"] == 0
    with Load(routed) as load:
        report = rolling.roll(six, to("keyed0000002", four), {"drain": 20.0}, router=ROUTER, key_file=file)
    assert results(report) == dict.fromkeys(four, "accepted")
    assert load.failures == []
    assert rolling.all_serve(six, four) == to("keyed0000002", four)
    without = ["curl", "-s", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}", "-d", '{"text": "x"}']
    asked = six.host("h6").exec(*without, "-H", "Content-Type: application/json", "http://127.0.0.1:30100/generate")
    assert asked.stdout == "401"
    known = six.host("h6").exec("grep", "-rs", rolling.KEY, "/etc/sglfleet", "/etc/systemd/system").stdout
    assert not known, "the router's host has no key"


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
    began = time.time()
    with Load(routed, threads=2, seconds=0) as load:
        report = rolling.start(six, to("engine000002", four), policy, ROUTER, **limits).done(1800)
    print(json.dumps(report, indent=1), load.done)
    assert report["exit"] == 0
    assert rolling.all_serve(six, four) == to("engine000002", four)
    assert journals.most_out(six, four, began) <= 2
    assert load.failures == []
    assert load.done > 20
    assert report["hosts"]["h1"]["gate"]["prompt_tokens"], "the gate asked the engine"
