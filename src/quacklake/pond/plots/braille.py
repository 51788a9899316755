"""Pictures in the terminal, of Braille letters: each has two by four dots."""

from __future__ import annotations

from quacklake.pond.downsampling import Line
from quacklake.pond.plots.axes import extent, number_text, time_text, time_ticks, value_ticks

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of a dot, by its column and row in a letter."""
_BLANK = 0x2800


class Canvas:
    """Dots, two a letter wide and four high."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = columns * 2, rows * 4
        self._letters = [[0] * columns for _ in range(rows)]

    def dot(self, x: int, y: int) -> None:
        """Set a dot; (0, 0) is at the top on the left."""
        if 0 <= x < self.width and 0 <= y < self.height:
            self._letters[y // 4][x // 2] |= _DOTS[x % 2][y % 4]

    def line(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        """Draw a line between two dots."""
        steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
        for n in range(steps + 1):
            self.dot(a[0] + round((b[0] - a[0]) * n / steps), a[1] + round((b[1] - a[1]) * n / steps))

    def rows(self) -> list[str]:
        """Return the rows of letters."""
        return ["".join(chr(_BLANK | bits) if bits else " " for bits in row) for row in self._letters]


def draw(title: str, line: Line, start: int, end: int, columns: int = 80, rows: int = 12) -> list[str]:
    """Return the picture of a line as rows of text, with axes. Where readings have bounds, these are drawn, too."""
    if not any(value is not None for value in line.values):
        return [title, "  no readings"]
    low, high = extent([*line.values, *(line.low or ()), *(line.high or ())])
    ticks = {
        round((high - tick) / (high - low) * (rows - 1)): tick for tick in value_ticks(low, high, max(rows // 3, 2))
    }
    margin = max(len(number_text(tick)) for tick in ticks.values()) + 2
    canvas = Canvas(max(columns - margin - 1, 8), rows)

    def place(t: int, value: float) -> tuple[int, int]:
        x = (t - start) / max(end - start, 1) * (canvas.width - 1)
        return round(x), round((high - value) / (high - low) * (canvas.height - 1))

    before: tuple[int, int] | None = None
    lows, highs = line.low or line.values, line.high or line.values
    for t, value, least, most in zip(line.times, line.values, lows, highs, strict=True):
        if value is None:
            before = None
            continue
        here = place(t, value)
        canvas.line(before or here, here)
        if least is not None and most is not None:
            canvas.line(place(t, least), place(t, most))
        before = here
    shown = [title]
    for number, row in enumerate(canvas.rows()):
        label = number_text(ticks[number]) if number in ticks else ""
        shown.append(f"{label:>{margin - 1}} {'┤' if label else '│'}{row}".rstrip())
    return [*shown, *_time_axis(start, end, margin, canvas.width // 2)]


def _time_axis(start: int, end: int, margin: int, columns: int) -> list[str]:
    axis, labels = list("─" * columns), list(" " * columns)
    free = 0
    for t, text in time_ticks(start, end, max(columns // 14, 1)):
        x = round((t - start) / max(end - start, 1) * (columns - 1))
        axis[x] = "┬"
        begin = min(max(x - len(text) // 2, 0), columns - len(text))
        if begin >= free:
            labels[begin : begin + len(text)] = text
            free = begin + len(text) + 1
    edges = f"{time_text(start)} – {time_text(end)}"
    return [f"{' ' * margin}└{''.join(axis)}", f"{' ' * margin} {''.join(labels)}".rstrip(), f"{' ' * margin} {edges}"]
