"""Pictures of measurements as inline SVG: no script, no font, no colour that carries meaning alone.

Colours are CSS variables of the page (`--ink`, `--grid`, `--arm-0` …), so the same picture is right in light and dark;
arms differ by marker and dash as well as by colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

# Small enough that its 12-pixel text is still 10 pixels high on a phone, where the picture is as wide as the screen.
WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, BOTTOM = 52, 14, 40
HEAD, LEGEND = 22, 17  # of the unit above the axis, and of each arm's line in the legend
DODGE = 5  # between arms at the same x, so that no interval hides another
DASHES = ("", "6 3", "2 3", "8 3 2 3")
# Okabe and Ito's palette: told apart with any colour vision.
STYLE = """<style>
.chart{--arm-0:#0072b2;--arm-1:#d55e00;--arm-2:#007a5a;--arm-3:#b0508a;--ink:#222;--grid:#ddd}
.chart{width:100%;max-width:520px;height:auto}
.chart text{fill:var(--ink);font:12px system-ui,sans-serif}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:.5rem 1.5rem}
.figures figure{margin:0}.figures figcaption{font-weight:600;margin-bottom:.2rem}
.effects th,.effects td{white-space:nowrap}
@media (prefers-color-scheme:dark){
.chart{--arm-0:#56b4e9;--arm-1:#e69f00;--arm-2:#3fc79a;--arm-3:#e79ac6;--ink:#ddd;--grid:#444}}
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
    top = LEGEND * len(drawn) + HEAD
    height = HEIGHT + LEGEND * len(drawn)
    inset = 30 if by_rank else 0  # room for the arms side by side, and none of them on the axis
    span_x, span_y = WIDTH - LEFT - RIGHT - 2 * inset, height - top - BOTTOM

    def px(x: float, index: int = 0) -> float:
        dodge = (index - (len(drawn) - 1) / 2) * DODGE if by_rank else 0
        if len(xs) == 1:
            return LEFT + inset + span_x / 2 + dodge
        share = xs.index(x) / (len(xs) - 1) if by_rank else (x - xs[0]) / (xs[-1] - xs[0])
        return LEFT + inset + share * span_x + dodge

    def py(y: float) -> float:
        return top + span_y * (1 - y / ticks[-1])

    out = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in ticks:
        out.append(_line(LEFT, py(tick), WIDTH - RIGHT, py(tick), "var(--grid)"))
        out.append(f'<text x="{LEFT - 6}" y="{py(tick) + 4:.1f}" text-anchor="end">{_short(tick)}</text>')
    for x in xs if by_rank else (xs[0], xs[len(xs) // 2], xs[-1]):
        out.append(f'<text x="{px(x):.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    out.append(f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    out.append(f'<text x="4" y="{top - 9}">{escape(y_label)}</text>')
    for index, one in enumerate(drawn):
        at = [(px(p.x, index), py(p.y), py(p.low), py(p.high)) for p in one.points]
        out += _series(one, index, at, dots=by_rank)
    out.append("</svg>")
    return STYLE + "".join(out)


def figure(title: str, picture: str) -> str:
    """A picture under its title, to stand among others in a `figures` block."""
    return f"<figure><figcaption>{escape(title)}</figcaption>{picture}</figure>"


def _short(value: float) -> str:
    """An axis number of at most five places: 12500 is 12.5k."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"


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
    legend = 8 + LEGEND * index
    out.append(f'<line x1="4" y1="{legend}" x2="32" y2="{legend}" stroke="{colour}" stroke-width="2"{dash}/>')
    out.append(_marker(index, 18, legend, colour))
    out.append(f'<text x="40" y="{legend + 4}">{escape(series.name)}</text>')
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
