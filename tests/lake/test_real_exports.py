"""Exports as programs write them, made at random: read right with the options that describe them, or refused.

The oracle is the list of values that were written.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quacklake.errors import InputError
from quacklake.operations.input_csv import CsvOptions
from quacklake.operations.input_files import open_files
from tests.seeds import chance, some

NAMES = ("id", "Größe", "Tag", "Zeit", "Notiz")
TEXTS = ("Köln", "a;b,c\td", 'say "hi"', "two\nlines", "Ångström", "plain", "007x", " x ")
MARKED = ("utf-8-sig", "utf-16", "utf-32", "utf-8")
CHOSEN = ("utf-16-le", "utf-16-be", "windows-1252", "latin-1", "cp850")


@dataclass
class Export:
    """A file, its rows, and the options that read it: those that are ``needed`` are errors or texts without them."""

    content: bytes
    rows: list[tuple[Any, ...]]
    options: dict[str, Any] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)


def number(value: float, decimal: str, thousands: str) -> str:
    text = f"{value:,.2f}" if thousands else f"{value:.2f}"
    return text.replace(",", "T").replace(".", decimal).replace("T", thousands)


def export(random: random.Random) -> Export:
    """Make an export in one of the many shapes that programs write."""
    made = Export(b"", [])
    german = random.random() < 0.5
    decimal, thousands = (",", random.choice(("", "."))) if german else (".", random.choice(("", ",")))
    day, moment = random.choice((("%d.%m.%Y", "%d.%m.%Y %H:%M"), ("%m/%d/%Y", "%m/%d/%Y %H:%M"), ("", "")))
    missing = random.choice(("", "n/a", "-", "k. A."))
    delimiter = random.choice((";", ",", "\t", "|"))
    short, trailing, comment = random.random() < 0.3, random.random() < 0.2, random.random() < 0.2
    made.options |= {"delimiter": delimiter, "header": True}
    if german:
        made.options["decimal"] = decimal
    if thousands:
        made.options["thousands"] = thousands
    if day:
        made.options |= {"date_format": day, "timestamp_format": moment}
    if missing:
        made.options["nulls"] = [missing]
    lines: list[list[str]] = []
    for row in range(random.randint(3, 12)):
        value = None if row and random.random() < 0.2 else random.randint(100_000, 900_000_000) / 100
        date = dt.date(2024, 1, 1) + dt.timedelta(days=random.randrange(700))
        time = dt.datetime(2024, 1, 1) + dt.timedelta(minutes=random.randrange(10**6))
        note = random.choice(TEXTS)
        if missing == note.strip():
            note = "plain"
        fields = [
            str(row),
            missing if value is None else number(value, decimal, thousands),
            date.strftime(day or "%Y-%m-%d"),
            time.strftime(moment or "%Y-%m-%d %H:%M"),
            note,
        ]
        found: tuple[Any, ...] = (row, value, date, time, note)
        if short and row > 1 and random.random() < 0.4:
            kept = random.randint(1, 4)
            fields, found = fields[:kept], found[:kept] + (None,) * (5 - kept)
            if "fill_short_rows" not in made.needed:
                made.needed.append("fill_short_rows")
                made.options["fill_short_rows"] = True
        lines.append(fields)
        made.rows.append(found)
    text = io.StringIO(newline="")
    end = random.choice(("\n", "\r\n"))
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    if comment:
        text.write(f"Export of 2024{end}{end}")
        made.options["skip"] = 1
    for line in [list(NAMES), *lines]:
        full = [*line, ""] if trailing and len(line) == len(NAMES) else line
        writer.writerow(full)
        if random.random() < 0.1 and len(line) < len(NAMES):
            text.write(end)
    encoding = random.choice([*MARKED, *CHOSEN])
    content = text.getvalue()
    if encoding in CHOSEN:
        made.options["encoding"] = encoding
        made.needed.append("encoding")
    made.content = content.encode(encoding)
    return made


def read(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    table = open_files(path, csv=CsvOptions(**options)).read().read_all().select(list(NAMES))
    return list(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))


@pytest.mark.parametrize("seed", some(range(300), 40, "exports"))
def test_exports_are_read_right(tmp_path: Path, seed: int) -> None:
    made = export(chance("export", seed))
    path = tmp_path / "export.csv"
    path.write_bytes(made.content)
    found = read(path, **made.options)
    assert [(int(row[0]), *row[1:]) for row in found] == made.rows
    for name in made.needed:
        if name == "encoding" and made.content.isascii() and b"\0" not in made.content:
            continue
        with pytest.raises(InputError) as caught:
            read(path, **{key: value for key, value in made.options.items() if key != name})
        if name == "fill_short_rows":
            assert "--fill-short-rows" in str(caught.value.hint)
        else:
            assert "--encoding" in str(caught.value.hint)
