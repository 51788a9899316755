"""Exports as programs write them, made at random: read right with the options that describe them.

A user who knows none of the options finds them by the errors: each refusal names the line or the option that reads it.
The oracle is the list of values that were written.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core.format.schema import TableSchema, from_arrow
from quacklake.errors import InputError
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.files import open_files
from tests.seeds import chance, some

NAMES = ("id", "Größe", "Tag", "Zeit", "Notiz")
TYPES = ("BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "VARCHAR")
TEXTS = ("Köln", "a;b,c\td", 'say "hi"', "two\nlines", "two\r\nlines", "Ångström", "plain", "007x", " x ", "1|2", "'q'")
MARKED = ("utf-8-sig", "utf-16", "utf-32", "utf-8")
CHOSEN = ("utf-16-le", "utf-16-be", "windows-1252", "latin-1", "cp850")
FORMS = (("%d.%m.%Y", "%d.%m.%Y %H:%M"), ("%m/%d/%Y", "%m/%d/%Y %H:%M"), ("%d/%m/%Y", "%d/%m/%Y %H:%M:%S"), ("", ""))
MISSING = ("", "n/a", "-", "k. A.", "NULL", "#N/A")
_MAX_TRIES = 12
_VALUE = r"""("[^"]*"|'[^']*'|,|[^\s;,]+)"""
_NAMED = re.compile(rf"--(encoding|decimal|thousands|date-format|timestamp-format|null|skip-lines) {_VALUE}")


@dataclass
class Export:
    """A file, its rows, and the options that read it.

    Without those that are ``needed``, reading is an error. ``long`` is the number of a line that has too many fields.
    """

    content: bytes
    rows: list[tuple[Any, ...]]
    options: dict[str, Any] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)
    encoding: str = "utf-8"
    long: int | None = None


def number(value: float, decimal: str, thousands: str) -> str:
    text = f"{value:,.2f}" if thousands else f"{value:.2f}"
    return text.replace(",", "T").replace(".", decimal).replace("T", thousands)


def export(random: random.Random) -> Export:
    """Make an export in one of the many shapes that programs write."""
    made = Export(b"", [])
    german = random.random() < 0.5
    decimal = "," if german else "."
    thousands = random.choice(("", "", ".", "'", " ") if german else ("", "", ",", "'"))
    day, moment = random.choice(FORMS)
    missing = random.choice(MISSING)
    delimiter = random.choice((";", ",", "\t", "|"))
    quoting = random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC))
    short, trailing, title = random.random() < 0.3, random.random() < 0.2, random.random() < 0.2
    ends = random.choice((["\n"], ["\r\n"], ["\r\n"], ["\r"], ["\n", "\r\n"], ["\r\n", "\n", "\r"]))
    first_line = "" if title or random.random() < 0.8 else f"sep={delimiter}"
    if german:
        made.options["decimal"] = decimal
    if thousands:
        made.options["thousands"] = thousands
    if day:
        made.options |= {"date_format": day, "timestamp_format": moment}
    if missing:
        made.options["nulls"] = [missing]
    lines: list[list[Any]] = []
    for row in range(random.randint(3, 12)):
        value = None if row and random.random() < 0.2 else random.randint(100_000, 900_000_000) / 100
        date = dt.date(2024, 1, 1) + dt.timedelta(days=random.randrange(700) if row else 30)
        time = dt.datetime(2024, 1, 1) + dt.timedelta(minutes=random.randrange(10**6) if row else 60 * 24 * 27)
        note = random.choice(TEXTS)
        texts = [
            row,
            missing if value is None else number(value, decimal, thousands),
            date.strftime(day or "%Y-%m-%d"),
            time.strftime(moment or "%Y-%m-%d %H:%M"),
            note,
        ]
        found: tuple[Any, ...] = (row, value, date, time, note)
        if short and row > 1 and random.random() < 0.4:
            kept = random.randint(1, 4)
            texts, found = texts[:kept], found[:kept] + (None,) * (5 - kept)
            made.options["fill_short_rows"] = True
        lines.append(texts)
        made.rows.append(found)
    text = io.StringIO(newline="")
    if title:
        text.write(f"Export of {random.choice(('2024', 'the plant', 'values'))}{ends[0]}")
        made.options["skip"] = 1
    if first_line:
        text.write(first_line + ends[0])
    for line in [list(NAMES), *lines]:
        full = [*line, ""] if trailing and len(line) == len(NAMES) else line
        record = io.StringIO(newline="")
        csv.writer(record, delimiter=delimiter, lineterminator="\r\n", quoting=quoting).writerow(full)
        text.write(record.getvalue().removesuffix("\r\n") + random.choice(ends))
    content = text.getvalue()
    if random.random() < 0.2 and quoting == csv.QUOTE_MINIMAL:
        content = content.removesuffix("\n").removesuffix("\r")
    elif random.random() < 0.2:
        content += ends[0] * random.randint(1, 3)
    if random.random() < 0.1 and not short:
        content = content.rstrip("\r\n") + f"{ends[0]}1{delimiter * (len(NAMES) + 1)}x{ends[0]}"
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
        for _ in range(len(lines) + 1 + title + bool(first_line)):
            next(reader)
        made.long = reader.line_num + 1
    made.encoding = random.choice([*MARKED, *CHOSEN])
    if made.encoding in CHOSEN:
        made.options["encoding"] = made.encoding
    made.needed = [name for name in ("encoding", "fill_short_rows", "skip") if name in made.options]
    if content.isascii() and not made.encoding.startswith("utf-16"):
        made.needed = [name for name in made.needed if name != "encoding"]
    made.content = content.encode(made.encoding)
    return made


def read(path: Path, wanted: TableSchema | None = None, **options: Any) -> list[tuple[Any, ...]]:
    table = open_files(path, csv=CsvOptions(**options)).read(wanted).read_all().select(list(NAMES))
    return list(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))


def learn(options: dict[str, Any], hint: str) -> dict[str, Any]:
    """Return options with those that a hint names."""
    learned = dict(options)
    for name, text in _NAMED.findall(hint):
        (value,) = shlex.split(text)
        if name == "null":
            learned["nulls"] = [*learned.get("nulls", []), value]
        elif name == "skip-lines":
            learned["skip"] = int(value)
        else:
            learned[name.replace("-", "_")] = value
    if "--fill-short-rows" in hint:
        learned["fill_short_rows"] = True
    return learned


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> TableSchema:
    place = tmp_path_factory.mktemp("lake")
    with quacklake.connect(f"sqlite:///{place}/lake.db", data_path=place / "data") as lake:
        return from_arrow(lake.create_table("t", dict(zip(NAMES, TYPES, strict=True))).schema)


def attempt(
    path: Path, wanted: TableSchema, options: dict[str, Any]
) -> tuple[list[tuple[Any, ...]], InputError | None]:
    try:
        return read(path, wanted, **options), None
    except InputError as error:
        return [], error


SEEDS = some(range(300), 40, "exports")


@pytest.mark.parametrize("seed", SEEDS)
def test_exports_are_read_right(tmp_path: Path, seed: int) -> None:
    made = export(chance("export", seed))
    path = tmp_path / "export.csv"
    path.write_bytes(made.content)
    if made.long is not None:
        with pytest.raises(InputError, match=f"line {made.long} has "):
            read(path, **made.options)
        return
    assert read(path, **made.options) == made.rows
    for name in made.needed:
        with pytest.raises(InputError) as caught:
            read(path, **{key: value for key, value in made.options.items() if key != name})
        option = {"encoding": "--encoding", "skip": "--skip-lines 1"}.get(name, "--fill-short-rows")
        assert option in str(caught.value.hint)


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_lead_to_the_options_of_an_export(tmp_path: Path, wanted: TableSchema, seed: int) -> None:
    """A table with types takes the file as soon as the user has done what each error says."""
    made = export(chance("export", seed))
    path = tmp_path / "export.csv"
    path.write_bytes(made.content)
    # its bytes are windows-1252, too
    options: dict[str, Any] = {"encoding": "cp850"} if made.encoding == "cp850" else {}
    refusal: InputError | None = None
    for _ in range(_MAX_TRIES):
        found, refusal = attempt(path, wanted, options)
        if refusal is None or (made.long is not None and f"line {made.long} has " in refusal.message):
            break
        learned = learn(options, str(refusal.hint))
        assert learned != options, f"{refusal} after {options}"
        options = learned
    assert (refusal is None) == (made.long is None), f"{refusal} after {options}"
    assert refusal is not None or found == made.rows, f"after {options}"
