"""Rolls behind the real SGLang router, under load."""

from __future__ import annotations

import json
import time

import pytest

from lab.fleet import Lab
from tests.lab import rolling
from tests.lab.roll.common import HOSTS, NEW, OLD, ROUTER, listed, results, to, until
from tests.lab.rolling import Kind

pytestmark = pytest.mark.lab


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
