"""Pictures as shapes, and as SVG and PNG: a panel for each line, one below the other."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from quacklake.errors import ConfigError
from quacklake.pond.downsampling import Line
from quacklake.pond.plots.axes import extent, number_text, time_text, time_ticks, value_ticks

PANEL = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 28, 24
_LETTER = 7
"""About the width of a letter."""
Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """A line with its name."""

    title: str
    line: Line


@dataclass(frozen=True, slots=True)
class Shape:
    """A part of a picture: a text at a spot, or else a line or an area through spots. ``role`` says how it looks."""

    role: str
    spots: tuple[Spot, ...]
    text: str = ""
    anchor: str = "start"


def shapes(panels: Sequence[Panel], start: int, end: int, width: int) -> Iterator[Shape]:
    """Yield the shapes of panels over a range of time."""
    for number, panel in enumerate(panels):
        yield from _panel(panel, start, end, width, number * PANEL)


def plot_width(width: int) -> int:
    """Return how many pixels of a picture the lines have; none when it is too narrow for any."""
    return max(width - _LEFT - _RIGHT, 0)


def _panel(panel: Panel, start: int, end: int, width: int, top: int) -> Iterator[Shape]:
    line = panel.line
    low, high = extent([*line.values, *(line.low or ()), *(line.high or ())])
    left, right, upper, lower = _LEFT, width - _RIGHT, top + _TOP, top + PANEL - _BOTTOM

    def x(t: int) -> float:
        return left + (t - start) / max(end - start, 1) * (right - left)

    def y(value: float) -> float:
        return lower - (value - low) / (high - low) * (lower - upper)

    yield Shape("title", ((left, top + 18),), panel.title)
    for tick in value_ticks(low, high, 4):
        yield Shape("grid", ((left, y(tick)), (right, y(tick))))
        yield Shape("label", ((left - 6, y(tick) + 4),), number_text(tick), "end")
    free = 0.0
    for t, text in time_ticks(start, end, max((right - left) // 110, 1)):
        if x(t) - len(text) * _LETTER / 2 > free and x(t) + len(text) * _LETTER / 2 < width:
            yield Shape("label", ((x(t), lower + 16),), text, "middle")
            free = x(t) + len(text) * _LETTER / 2 + 6
        yield Shape("grid", ((x(t), upper), (x(t), lower)))
    for part in _parts(line):
        if line.low is not None and line.high is not None:
            band = [(line.times[n], line.low[n], line.high[n]) for n in part]
            upward = [(x(t), y(value)) for t, value, _ in band if value is not None]
            back = [(x(t), y(value)) for t, _, value in reversed(band) if value is not None]
            yield Shape("band", (*upward, *back))
        spots = [(x(line.times[n]), y(value)) for n in part if (value := line.values[n]) is not None]
        yield Shape("line", (*spots, (spots[0][0] + 1, spots[0][1])) if len(spots) == 1 else tuple(spots))


def _parts(line: Line) -> Iterator[list[int]]:
    """Yield the numbers of the points between gaps."""
    part: list[int] = []
    for number, value in enumerate(line.values):
        if value is None and part:
            yield part
            part = []
        elif value is not None:
            part.append(number)
    if part:
        yield part


_STYLE = """
svg{background:#fff;color:#222;font:12px system-ui,sans-serif}
text{fill:currentColor}.title{font-weight:600}.label{fill-opacity:.7}
.grid{stroke:currentColor;stroke-opacity:.15}.line{fill:none;stroke:#0a6fb8;stroke-width:1.4;stroke-linejoin:round}
.band{fill:#0a6fb8;fill-opacity:.18}
@media(prefers-color-scheme:dark){svg{background:#15191e;color:#dfe5ea}.line{stroke:#5bb8f5}.band{fill:#5bb8f5}}
@media print{svg{background:#fff;color:#000}.line{stroke:#0a6fb8}}
"""


def svg(panels: Sequence[Panel], start: int, end: int, width: int) -> str:
    """Return a picture as SVG, for light and dark screens and for paper."""
    height = PANEL * len(panels)
    about = f"{', '.join(panel.title for panel in panels)}, {time_text(start)} to {time_text(end)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" aria-label="{escape(about)}"><style>{_STYLE}</style>'
    ]
    for shape in shapes(panels, start, end, width):
        if shape.text:
            (x, y), words = shape.spots[0], escape(shape.text)
            parts.append(
                f'<text class="{shape.role}" x="{x:.1f}" y="{y:.1f}" text-anchor="{shape.anchor}">{words}</text>'
            )
        else:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in shape.spots)
            parts.append(f'<path class="{shape.role}" d="M{path}{"Z" if shape.role == "band" else ""}"/>')
    return "\n".join([*parts, "</svg>\n"])


_COLORS = {"title": "#222222", "label": "#666666", "grid": "#e2e2e2", "line": "#0a6fb8", "band": "#d3e5f3"}
_SHARP = 2
"""PNG pictures have this many pixels for each, so that they look sharp on every screen."""


_ALSO = "°·±"
"""The letters beyond ASCII that Pillow's own font has."""
_SPELLED = {
    "\N{MICRO SIGN}": "u",
    "\N{GREEK SMALL LETTER MU}": "u",
    "\N{GREEK CAPITAL LETTER OMEGA}": "Ohm",
    "\N{EN DASH}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{PER MILLE SIGN}": "0/00",
    "\N{LATIN SMALL LETTER SHARP S}": "ss",
}


def in_few_letters(text: str) -> str:
    """Return a text in the letters of Pillow's own font, which would draw a box for any other.

    >>> in_few_letters("Actual Conductivity.µS/cm at Högdal, g/cm³")
    'Actual Conductivity.uS/cm at Hogdal, g/cm3'
    """
    return "".join(
        letter if letter.isascii() or letter in _ALSO else _SPELLED.get(letter) or _decompose(letter)
        for letter in unicodedata.normalize("NFC", text)
    )


def _decompose(letter: str) -> str:
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


def png(panels: Sequence[Panel], start: int, end: int, width: int) -> bytes:
    """Return a picture as PNG. It takes Pillow, which is one wheel with a font in it; raises ``ConfigError`` else."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ConfigError(
            "PNG pictures need the package pillow", hint="pip install 'quacklake[plot]', or --to x.svg"
        ) from None
    image = Image.new("RGB", (width * _SHARP, PANEL * len(panels) * _SHARP), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12 * _SHARP)
    for shape in shapes(panels, start, end, width):
        spots = [(x * _SHARP, y * _SHARP) for x, y in shape.spots]
        color = _COLORS[shape.role]
        if shape.text:
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            draw.text(spots[0], in_few_letters(shape.text), color, font, anchor)
        elif shape.role == "band":
            if len(spots) > 2:
                draw.polygon(spots, color)
        else:
            draw.line(spots, color, 3 if shape.role == "line" else 1)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
