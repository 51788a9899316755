"""The figures that ``README.md`` publishes, read back: to mark what got worse, and to hold them against the aims."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.common import Measure

__all__ = ["Aim", "Line", "aims_table", "lines", "place", "size", "worse"]

_WORSE = 1.2
"""A figure that got worse by this factor is marked."""
_MORE_IS_BETTER = ("as fast", "the rate")
_RATIO = re.compile(r"([\d.,]+)× ?(.*)")
_SIZE = re.compile(r"; (quick|everyday|full) size, ")


@dataclass(frozen=True, slots=True)
class Line:
    """A published line: the words of its cells."""

    what: str
    ours: str
    peer: str
    ratio: str
    target: str

    @property
    def short(self) -> bool:
        """True when its target was missed."""
        return self.target.endswith("✗")

    @property
    def ratio_value(self) -> float | None:
        """The ratio as a number."""
        found = _RATIO.fullmatch(self.ratio)
        return None if found is None else float(found[1].replace(",", ""))


def place(name: str) -> tuple[str, str]:
    """Return the marks around the results of a benchmark in ``README.md``."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def _section(text: str, name: str) -> str:
    start, end = place(name)
    return text.partition(start)[2].partition(end)[0]


def size(text: str, name: str) -> str | None:
    """Return the size with which the figures of a benchmark were published."""
    found = _SIZE.search(_section(text, name))
    return None if found is None else found[1]


def lines(text: str, name: str) -> list[Line]:
    """Return the published lines of a benchmark, without those of its details."""
    table = _section(text, name).partition("<details>")[0]
    return list(_rows(table))


def _rows(table: str) -> Iterator[Line]:
    for row in table.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        if len(cells) == 5 and cells[0] not in ("measured", "---"):
            yield Line(*cells)


def worse(measure: Measure, published: list[Line]) -> float | None:
    """Return by how much of itself a ratio is worse than the published one; None if it is not, or there is none.

    Ratios are compared, not times: the published ones were measured on another day, perhaps on another machine.
    """
    before = next((line for line in published if _same(line, measure)), None)
    if before is None or before.ratio_value is None or measure.ratio is None:
        return None
    one, two = before.ratio_value, measure.ratio
    factor = one / max(two, 1e-9) if measure.ratio_words in _MORE_IS_BETTER else two / max(one, 1e-9)
    return factor - 1 if factor >= _WORSE else None


def _same(line: Line, measure: Measure) -> bool:
    return line.what == measure.what and (measure.peer is None or line.peer.endswith(f"({measure.peer_name})"))


# -- aims --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure that was set as an aim: the line of a benchmark that shows it, and why it is short where it is."""

    work: str
    benchmark: str
    line: str
    """A regular expression for the whole text of the line."""
    aim: str
    why: str = ""
    """The reason for a line that is short, with the profile that shows it."""


def aims_table(text: str, aims: tuple[Aim, ...]) -> str:
    """Return the aims as a table of Markdown, with the figures that are published now."""
    rows = ["| work | now | aim | |", "| --- | --: | --: | --- |"]
    for aim in aims:
        known = (line for line in lines(text, aim.benchmark) if line.target != "–")
        found = [line for line in known if re.fullmatch(aim.line, line.what)]
        now = " / ".join(line.ratio if "×" in line.target else line.ours for line in found) or "not measured"
        missed = any(line.short for line in found)
        why = f"✗ {aim.why}" if missed else "✓" if found else ""
        rows.append(f"| {aim.work} ({aim.benchmark}) | {now} | {aim.aim} | {why.strip()} |")
    return "\n".join(rows)
