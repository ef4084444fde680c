"""Names and networks of labs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.settings import NAME, LabError, number, settings


def test_defaults() -> None:
    lab = settings(environ={})
    assert (lab.name, str(lab.network), lab.bridge, lab.gateway) == ("lab", "10.77.0.0/24", "labbr0", "10.77.0.1")
    assert lab.address("h1") == "10.77.0.11"


def test_arguments_before_environment_before_defaults() -> None:
    env = {"LAB_NAME": "blue", "LAB_NET": "10.77.8.0/24", "SGLFLEET_LAB_CACHE": "/srv/cache"}
    lab = settings(name="red", environ=env)
    assert (lab.name, lab.address("h3"), str(lab.cache)) == ("red", "10.77.8.13", "/srv/cache")


def test_a_short_network() -> None:
    assert str(settings(network="10.77.9", environ={}).network) == "10.77.9.0/24"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"LAB_NAME": "a-b"}, "LAB_NAME: 'a-b' is no lab's name"),
        ({"LAB_NAME": "../x"}, "LAB_NAME: '../x' is no lab's name"),
        ({"LAB_NAME": "abcdefghij"}, "LAB_NAME: 'abcdefghij'"),
        ({"LAB_NET": "8.8.8.0/24"}, "8.8.8.0/24 is not a private /24"),
        ({"LAB_NET": "10.0.0.0/30"}, "10.0.0.0/30 is not a private /24"),
        ({"LAB_NET": "ten"}, "LAB_NET: "),
        ({"LAB_DISK_MIB": "much"}, "LAB_DISK_MIB: 'much'"),
    ],
)
def test_what_is_wrong_is_said(env: dict[str, str], said: str) -> None:
    with pytest.raises(LabError) as caught:
        settings(environ=env)
    assert said in str(caught.value)
    assert ": use " in str(caught.value) or ": write " in str(caught.value)


def test_all_at_once() -> None:
    with pytest.raises(LabError) as caught:
        settings(environ={"LAB_NAME": "_", "LAB_NET": "x", "LAB_DISK_MIB": "-1"})
    assert len(str(caught.value).splitlines()) == 3


@given(st.text("abzAZ09", max_size=8).map("x".__add__), st.integers(1, 200))
def test_links_fit_into_the_kernels_15_characters(name: str, index: int) -> None:
    assert NAME.fullmatch(name)
    lab = settings(name=name, environ={})
    assert len(lab.bridge) <= 15
    assert len(lab.link(f"h{index}")) <= 15


@pytest.mark.parametrize("name", ["h0", "h", "h01", "h201", "x1", "h1/..", "h-1", ""])
def test_names_that_are_no_host(name: str) -> None:
    with pytest.raises(LabError):
        number(name)
