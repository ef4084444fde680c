"""Fixtures that all tests share: real lab hosts, and the real engine that they see.

Names and networks come from LAB_NAME and LAB_NET (default `test`, 10.77.100.0/24), so that two runs of the tests, a
demo and somebody's own lab stand side by side. All tests run in one process: pyinfra's command line replaces
threads and sockets of the process that imports it (gevent), which parallel workers do not survive.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from lab import machine
from lab.engine import Engine
from lab.fleet import Lab
from lab.settings import LabError, Settings, settings

# No deadlines: a busy machine is no fault of the code. The same examples every time, so that a run of the tests says
# the same twice; HYPOTHESIS_PROFILE=explore looks for new ones.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

os.environ.setdefault("LAB_ASK_ENGINE", "no")  # one test of its own asks; here every deploy would import the engine
TEST_ENVIRONMENT = {"LAB_NAME": "test", "LAB_NET": "10.77.100.0/24"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pure tests first, then those that need hosts, then those that need the server: the quick answers come first."""

    def cost(item: pytest.Item) -> int:
        return 2 if item.get_closest_marker("engine") else 1 if item.get_closest_marker("lab") else 0

    items.sort(key=cost)


def lab_settings(index: int) -> Settings:
    """Settings of the session's lab (0) or of one beside it: name with a number, the next /24 upwards in steps of 8."""
    base = settings(environ={**TEST_ENVIRONMENT, **os.environ})
    if index == 0:
        return base
    network = ipaddress.IPv4Network((int(base.network[0]) + 256 * 8 * index, 24))
    return dataclasses.replace(base, name=f"{base.name[:7]}{index}", network=network)


@pytest.fixture(scope="session")
def lab_machine() -> None:
    """Skip where this machine cannot hold a lab, and say why."""
    why = machine.cannot_hold_a_lab()
    if why:
        pytest.skip("; ".join(why))


@pytest.fixture(scope="session")
def lab(lab_machine: None) -> Iterator[Lab]:
    """Three hosts h1, h2, h3 for the whole session, profile h200-x1. Leave them as you found them."""
    session = Lab(lab_settings(0))
    session.up(3)
    yield session
    session.down()


@pytest.fixture
def healed(lab: Lab) -> Iterator[Lab]:
    """The session's lab, for tests that cut, crash or freeze: afterwards every host is up and reachable again."""
    yield lab
    mend(lab)


def mend(lab: Lab) -> None:
    """Whatever was cut, crashed or frozen: every host is up and reachable again."""
    for host in lab.hosts():
        if host.group.frozen():
            host.thaw()
        host.heal() if host.is_up() else host.boot()
    for host in lab.hosts():
        host.wait(300)


@pytest.fixture(scope="module")
def make_lab(lab_machine: None) -> Iterator[Callable[..., Lab]]:
    """`make_lab(5, {"h2": "l40s-x2"}, default="h100-x8")`: a lab of a module's own, taken down after its last test."""
    made: list[Lab] = []

    def make(count: int, chosen: dict[str, str] | None = None, default: str = "h200-x1") -> Lab:
        one = Lab(lab_settings(1 + len(made)))
        made.append(one)
        one.up(count, chosen, default)
        return one

    yield make
    for one in made:
        one.down()


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The real SGLang 0.5.23 and the tiny model, as paths that hold on this machine and in lab hosts."""
    from lab import engine as engines

    try:
        return engines.find(settings().cache)
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def router_venv() -> Path:
    """The real SGLang router, built once (some 30 MB); at the same path in lab hosts."""
    from lab import router

    try:
        return router.build(settings().cache)
    except LabError as error:
        pytest.skip(str(error))
