"""Arms are told apart by people who cannot tell red from green, on a light page and on a dark one.

Colours are changed as those people see them by the matrices of Machado, Oliveira and Fernandes (2009, severity 1), and
compared in CIELAB, where 10 is far beyond what is just noticed (about 2.3).
"""

from __future__ import annotations

import itertools
import re

import pytest

from sglfleet.report.svg import STYLE

SEEN_AS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red cones": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green cones": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)


def times(matrix, vector):
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def lab(colour, cones):
    seen = [min(1.0, max(0.0, v)) for v in times(SEEN_AS[cones], linear(colour))]
    x, y, z = (v / w for v, w in zip(times(XYZ, seen), WHITE, strict=True))
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def palette(dark):
    light, _, night = STYLE.partition("@media (prefers-color-scheme:dark)")
    found = dict(re.findall(r"--arm-(\d):(#[0-9a-f]{6})", night if dark else light))
    return [found[str(i)] for i in range(4)]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("cones", SEEN_AS)
def test_any_two_arms_differ(dark, cones):
    for a, b in itertools.combinations(palette(dark), 2):
        distance = sum((x - y) ** 2 for x, y in zip(lab(a, cones), lab(b, cones), strict=True)) ** 0.5
        assert distance > 10, (a, b, distance)


@pytest.mark.parametrize(("dark", "page"), [(False, "#ffffff"), (True, "#0d1117")], ids=["light", "dark"])
def test_every_arm_stands_out_from_the_page(dark, page):
    """At least 3 to 1, as WCAG asks of graphics."""
    for colour in palette(dark):
        a, b = (times(XYZ, linear(c))[1] for c in (colour, page))
        assert (max(a, b) + 0.05) / (min(a, b) + 0.05) >= 3, colour
