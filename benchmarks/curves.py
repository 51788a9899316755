"""Curves as SVG: how a figure grows with a size, on two logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 36, 44
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2")
_GREY = "#808080"


def draw(title: str, size: str, unit: str, curves: Mapping[str, Points]) -> str:
    """Return a picture of curves, each given by its points: a size, and what was measured there in ``unit``."""
    points = [point for curve in curves.values() for point in curve]
    across = _Scale([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Scale([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(_LEFT, 18, title, weight="bold")]
    for value in across.ticks():
        parts += [_line(across(value), _TOP, across(value), _HEIGHT - _BOTTOM)]
        parts += [_text(across(value), _HEIGHT - _BOTTOM + 16, f"{value:,g}", anchor="middle")]
    for value in up.ticks():
        parts += [_line(_LEFT, up(value), _WIDTH - _RIGHT, up(value))]
        parts += [_text(_LEFT - 6, up(value) + 4, f"{value:,g}", anchor="end")]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, size, anchor="middle"))
    parts.append(_text(_LEFT - 6, _TOP - 8, unit, anchor="end"))
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>' for x, y in curve]
        parts.append(_text(_WIDTH - _RIGHT + 12, _TOP + 12 + 18 * number, name, colour=colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>", ""])


class _Scale:
    """Places values on a logarithmic scale between powers of ten."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.first, self.last = first, last

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{_GREY}" stroke-opacity="0.3"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = _GREY) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}" font-size="12"'
    return f"<text {place}>{escape(text)}</text>"
