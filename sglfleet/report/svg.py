"""Pictures of measurements as inline SVG: no script, no font, no colour that carries meaning alone.

Colours are CSS variables of the page (`--ink`, `--grid`, `--arm-0` …), so the same picture is right in light and dark;
arms differ by marker and dash as well as by colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 48
DASHES = ("", "6 3", "2 3", "8 3 2 3")
# Okabe and Ito's palette: told apart with any colour vision.
STYLE = """<style>
.chart{--arm-0:#0072b2;--arm-1:#d55e00;--arm-2:#009e73;--arm-3:#cc79a7;--ink:#222;--grid:#ddd;max-width:100%;height:auto}
.chart text{fill:var(--ink);font:12px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.chart{--arm-0:#56b4e9;--arm-1:#e69f00;--ink:#ddd;--grid:#444}}
</style>"""


@dataclass(frozen=True, slots=True)
class Point:
    """One value with its interval; `low` and `high` equal `y` where there is none."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """One arm."""

    name: str
    points: Sequence[Point]


def chart(title: str, x_label: str, y_label: str, series: Sequence[Series], *, by_rank: bool = True) -> str:
    """A line chart. `by_rank` puts x values at equal distances (concurrencies 1, 16, 64); else x is to scale (time)."""
    drawn = [s for s in series if s.points]
    if not drawn:
        return f"<p>{escape(title)}: nothing was measured.</p>"
    xs = sorted({p.x for s in drawn for p in s.points})
    ticks = _ticks(max(p.high for s in drawn for p in s.points))
    span_x, span_y = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def px(x: float) -> float:
        if len(xs) == 1:
            return LEFT + span_x / 2
        share = xs.index(x) / (len(xs) - 1) if by_rank else (x - xs[0]) / (xs[-1] - xs[0])
        return LEFT + share * span_x

    def py(y: float) -> float:
        return TOP + span_y * (1 - y / ticks[-1])

    out = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in ticks:
        out.append(_line(LEFT, py(tick), WIDTH - RIGHT, py(tick), "var(--grid)"))
        out.append(f'<text x="{LEFT - 6}" y="{py(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for x in xs if by_rank else (xs[0], xs[len(xs) // 2], xs[-1]):
        out.append(f'<text x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    middle = LEFT + span_x / 2
    out.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    out.append(f'<text x="4" y="{TOP - 4}">{escape(y_label)}</text>')
    for index, one in enumerate(drawn):
        out += _series(one, index, [(px(p.x), py(p.y), py(p.low), py(p.high)) for p in one.points], dots=by_rank)
    out.append("</svg>")
    return STYLE + "".join(out)


def _series(series: Series, index: int, points: list[tuple[float, float, float, float]], dots: bool) -> list[str]:
    colour = f"var(--arm-{index % 4})"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    dash = f' stroke-dasharray="{DASHES[index % 4]}"' if DASHES[index % 4] else ""
    out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    for x, y, low, high in points if dots else ():
        if low != high:
            out.append(_line(x, low, x, high, colour))
            out += [_line(x - 4, edge, x + 4, edge, colour) for edge in (low, high)]
        out.append(_marker(index, x, y, colour))
    legend = TOP + 8 + 16 * index
    out.append(_marker(index, LEFT + 12, legend, colour))
    out.append(f'<text x="{LEFT + 22}" y="{legend + 4}">{escape(series.name)}</text>')
    return out


def _marker(index: int, x: float, y: float, colour: str) -> str:
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
        f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}"/>',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z" fill="{colour}"/>',
    )
    return shapes[index % 4]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _ticks(top: float) -> list[float]:
    """Zero and four or five round steps up to `top` or just above it: an axis that starts elsewhere flatters."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / 4
    power = 10.0 ** floor(log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    return [i * step for i in range(ceil(top / step - 1e-9) + 1)]
