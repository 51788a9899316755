"""Compares what a statement gave with what a test file expects, as the runner of DuckDB does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import duckdb
import pyarrow as pa

__all__ = ["difference", "says", "texts"]

_SEPARATOR = re.compile(r"\t+")


def says(message: str, expected: Sequence[str]) -> bool:
    """True when an error has the expected text somewhere, or matches it; no text expects nothing of it."""
    wanted = "\n".join(expected).strip()
    if wanted.startswith("<REGEX>:"):
        return re.fullmatch(wanted.removeprefix("<REGEX>:"), message, re.DOTALL) is not None
    if wanted.startswith("<!REGEX>:"):
        return re.fullmatch(wanted.removeprefix("<!REGEX>:"), message, re.DOTALL) is None
    return wanted in message


def texts(table: pa.Table) -> list[list[str]]:
    """The values as DuckDB prints them."""
    if not table.num_columns:
        return []
    names = [f"c{number}" for number in range(table.num_columns)]
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", table.rename_columns(names))
        found = connection.execute(f"SELECT {', '.join(f'{name}::VARCHAR' for name in names)} FROM rows").fetchall()
    return [["NULL" if value is None else value.replace("\0", "\\0") or "(empty)" for value in row] for row in found]


def difference(rows: list[list[str]], expected: list[str], columns: int, sort: str) -> str | None:
    """Describe how the rows differ from the lines of a file; return None when they do not."""
    flat = [value for row in rows for value in row]
    if len(expected) == 1 and "values hashing to" in expected[0]:
        ordered = (
            sorted(flat)
            if sort == "valuesort"
            else [v for r in (sorted(rows) if sort == "rowsort" else rows) for v in r]
        )
        digest = hashlib.md5("".join(f"{value}\n" for value in ordered).encode()).hexdigest()
        return None if expected[0].endswith(digest) else f"other values than {expected[0]}"
    width = len(rows[0]) if rows else columns
    if rows and width != columns:
        return f"{width} columns, not {columns}"
    wanted = [_SEPARATOR.split(line) if columns > 1 else [line] for line in expected]
    if columns > 1 and any(len(row) != columns for row in wanted):
        wanted = [line.split("\t") for line in expected]
    if columns > 1 and all(len(row) == 1 for row in wanted):
        single = [row[0] for row in wanted]
        wanted = [single[at : at + columns] for at in range(0, len(single), columns)]
    if sort == "rowsort":
        rows, wanted = sorted(rows), sorted(wanted)
    if sort == "valuesort":
        rows, wanted = [[value] for value in sorted(flat)], [[v] for v in sorted(v for r in wanted for v in r)]
    same = len(rows) == len(wanted) and all(
        len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
        for one, two in zip(rows, wanted, strict=True)
    )
    return None if same else f"got {rows[:6]}, expected {wanted[:6]}"


def _same(found: str, wanted: str) -> bool:
    if found == wanted or found.strip() == wanted.strip():
        return True
    if wanted.startswith("<REGEX>:"):
        return re.fullmatch(wanted.removeprefix("<REGEX>:"), found, re.DOTALL) is not None
    if wanted.startswith("<!REGEX>:"):
        return re.fullmatch(wanted.removeprefix("<!REGEX>:"), found, re.DOTALL) is None
    if {found.lower(), wanted.lower()} in ({"true", "1"}, {"false", "0"}, {"true"}, {"false"}):
        return True
    try:
        return abs(float(found) - float(wanted)) <= 1e-9 * max(1.0, abs(float(wanted)))
    except ValueError:
        return False
