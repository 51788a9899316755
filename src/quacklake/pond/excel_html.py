"""Reports that are called Excel files and are HTML, as some loggers export readings."""

from __future__ import annotations

import csv
from html.parser import HTMLParser
from pathlib import Path

from quacklake.errors import InputError

_REPORT = "isi-report"
_BLOCK = 1 << 16


def looks_like_report(head: bytes) -> bool:
    """Return whether a file begins as such a report does."""
    return head.lstrip()[:1] == b"<" and _REPORT.encode() in head


def to_csv(source: Path, target: Path) -> int:
    """Write the readings of a report as CSV, and return their number. Raise ``InputError`` for a file without any.

    The table has the id ``isi-report``; its header row has the class ``dataHeader`` or the attribute
    ``isi-data-table``, its data rows the class ``data`` or the attribute ``isi-data-row``.
    """
    with source.open(encoding="utf-8-sig") as text, target.open("w", encoding="utf-8", newline="") as out:
        parser = _Report(csv.writer(out), source.name)
        try:
            while block := text.read(_BLOCK):
                parser.feed(block)
        except UnicodeDecodeError:
            raise InputError(f"{source.name} is not UTF-8 text") from None
        parser.close()
    if not parser.width:
        raise InputError(f"{source.name} has no report with readings", hint=f'a table with the id "{_REPORT}"')
    return parser.count


class _Report(HTMLParser):
    """Passes each row on as soon as it ends."""

    def __init__(self, writer: object, name: str) -> None:
        super().__init__(convert_charrefs=True)
        self._writer, self._name = writer, name
        self._inside = False
        self._row: list[str] | None = None
        self._cell: list[str] | None = None
        self._is_header = False
        self.width = 0
        self.count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table" and given.get("id") == _REPORT:
            self._inside = True
        elif tag == "tr" and self._inside:
            classes = (given.get("class") or "").split()
            self._is_header = "dataHeader" in classes or "isi-data-table" in given
            is_data = "data" in classes or "isi-data-row" in given
            self._row = [] if self._is_header or is_data else None
        elif tag in ("td", "th") and self._row is not None:
            self._cell = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._row is not None and self._cell is not None:
            self._row.append("".join(self._cell).strip())
            self._cell = None
        elif tag == "tr" and self._row is not None:
            self._end_row(self._row)
            self._row = None
        elif tag == "table":
            self._inside = False

    def _end_row(self, row: list[str]) -> None:
        if self._is_header:
            self.width = len(row)
        else:
            self.count += 1
        if len(row) != self.width:
            line = self.getpos()[0]
            raise InputError(f"line {line} of {self._name} has {len(row)} cells, and the header has {self.width}")
        self._writer.writerow(row)  # type: ignore[attr-defined]
