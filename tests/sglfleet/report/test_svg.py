"""Pictures are valid XML, start at zero, tell arms apart without colour, and cannot be injected into."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from sglfleet.report.svg import Point, Series, _ticks, chart

NS = "{http://www.w3.org/2000/svg}"


def svg(text: str) -> ET.Element:
    return ET.fromstring(text[text.index("<svg") :])


def test_two_arms_differ_by_marker_and_dash():
    arms = [Series(n, [Point(c, v, v * 0.98, v * 1.02) for c, v in ((1, 120), (64, 1580))]) for n in ("off", "on")]
    root = svg(chart("Throughput", "concurrency", "tokens/s", arms))
    lines = root.findall(f"{NS}polyline")
    assert [line.get("stroke-dasharray") for line in lines] == [None, "6 3"]
    assert len(root.findall(f"{NS}circle")) == 3  # two points and the legend
    assert len(root.findall(f"{NS}rect")) == 3
    texts = [t.text for t in root.findall(f"{NS}text")]
    assert {"off", "on", "1", "64", "0", "concurrency", "tokens/s"} <= set(texts)


def test_names_are_escaped():
    root = svg(chart("<b>", "x", "y", [Series('"><script>', [Point(1, 1, 1, 1)])]))
    assert root.findall(f".//{NS}script") == []
    assert root.find(f"{NS}title").text == "<b>"


def test_time_is_to_scale_and_has_no_dots():
    points = [Point(t, 500 + t, 500 + t, 500 + t) for t in (0.0, 0.5, 10.0)]
    root = svg(chart("Power", "s", "W", [Series("h1", points)], by_rank=False))
    xs = [float(p.split(",")[0]) for p in root.find(f"{NS}polyline").get("points").split()]
    assert (xs[1] - xs[0]) / (xs[2] - xs[0]) < 0.06
    assert len(root.findall(f"{NS}circle")) == 1  # the legend


def test_nothing_measured_is_said():
    assert "nothing was measured" in chart("Throughput", "x", "y", [Series("a", [])])


@given(st.floats(1e-6, 1e9))
def test_the_axis_starts_at_zero_and_holds_everything(top):
    ticks = _ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-6)
    assert 3 <= len(ticks) <= 7
