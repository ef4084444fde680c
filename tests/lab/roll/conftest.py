"""Labs of three and of six hosts whose stand-ins serve the old release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.fleet import Lab
from tests.conftest import mend
from tests.lab import journals, rolling
from tests.lab.roll.common import KINDS, OLD, ROUTER


def staged(lab: Lab) -> Lab:
    for release, kind in KINDS.items():
        rolling.stage(lab, [host.name for host in lab.hosts()], release, kind)
    return lab


def served(lab: Lab) -> Iterator[Lab]:
    """Every host up, reachable and serving the old release; afterwards never more were out than any test allows."""
    names = [host.name for host in lab.hosts()]
    rolling.place(lab, names, OLD)
    yield lab
    mend(lab)
    assert journals.most_out(lab, names, rolling.placed[lab.settings.name]) <= rolling.POLICY["max_unavailable"]


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


@pytest.fixture
def routed(six: Lab, router_venv: Path) -> Iterator[str]:
    """The router's address; it runs on h6 and fronts h1 to h4."""
    ROUTER["data"]["venv"] = str(router_venv)
    yield f"http://{six.host('h6').ip}:30100"
    six.host("h6").exec("sh", "-c", "systemctl disable --now 'sglang-router-*.service'; rm -rf /etc/sglfleet/router-*")
