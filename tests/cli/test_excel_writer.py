"""Rows as workbooks: what Excel, other libraries and Quacklake itself read of them."""

from __future__ import annotations

import datetime as dt
import sys
import zipfile
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

import quacklake
from quacklake import open_files
from quacklake.cli import excel_writer
from quacklake.cli.excel_writer import write_workbook
from quacklake.errors import LimitError, MissingExtraError
from tests.seeds import chance, some


def write(rows: pa.Table | str, path: Path) -> Path:
    """Write rows, or those of a query, to a workbook."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        table = connection.sql(rows).to_arrow_table() if isinstance(rows, str) else rows
    assert write_workbook(table.to_reader(), path) == table.num_rows
    return path


def seen(path: Path) -> list[tuple[Any, ...]]:
    """Return the cells below the header, as openpyxl reads them."""
    return list(openpyxl.load_workbook(path).active.iter_rows(min_row=2, values_only=True))


def value_of(sql: str, path: Path) -> Any:
    return seen(write(f"SELECT 1 AS n, {sql} AS v", path))[0][1]


@pytest.mark.parametrize(
    ("sql", "cell"),
    [
        ("DATE '2024-02-29'", dt.datetime(2024, 2, 29)),
        ("DATE '1900-03-01'", dt.datetime(1900, 3, 1)),
        ("TIMESTAMP '2024-02-29 23:59:59.999999'", dt.datetime(2024, 2, 29, 23, 59, 59, 999000)),
        ("TIMESTAMPTZ '2024-02-29 12:00:00+02'", dt.datetime(2024, 2, 29, 10)),
        ("TIMESTAMP_NS '2024-02-29 12:00:00.123456789'", dt.datetime(2024, 2, 29, 12, 0, 0, 123000)),
        ("TIME '08:30:00.25'", dt.time(8, 30, 0, 250000)),
        ("INTERVAL '30 hours'", dt.timedelta(hours=30)),
        ("12.34::DECIMAL(10,2)", 12.34),
        ("0.1::FLOAT", 0.1),
        ("0.30000000000000004::DOUBLE", 0.30000000000000004),
        ("999999999999999::BIGINT", 999_999_999_999_999),
        ("true", True),
        ("NULL::VARCHAR", None),
        ("['a', 'b']", "[a, b]"),
    ],
)
def test_values_are_cells_of_their_kind(sql: str, cell: Any, tmp_path: Path) -> None:
    found = value_of(sql, tmp_path / "a.xlsx")
    assert (found, type(found)) == (cell, type(cell))


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("9007199254740993::BIGINT", "9007199254740993"),
        ("-1000000000000000::BIGINT", "-1000000000000000"),
        ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
        ("12345678901234.56::DECIMAL(38,2)", "12345678901234.56"),
        ("'nan'::DOUBLE", "nan"),
        ("'-inf'::FLOAT", "-inf"),
        ("DATE '1900-02-28'", "1900-02-28"),
        ("'infinity'::DATE", "infinity"),
        ("TIMESTAMP '1800-01-01 10:00:00'", "1800-01-01 10:00:00"),
        ("INTERVAL '-1 hour'", "-01:00:00"),
        ("INTERVAL '1 month'", "1 month"),
        ("TIME '24:00:00'", "24:00:00"),
    ],
)
def test_values_that_excel_has_no_number_for_are_texts(sql: str, text: str, tmp_path: Path) -> None:
    assert value_of(sql, tmp_path / "a.xlsx") == text


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        '=HYPERLINK("http://x.org")',
        "+1",
        "-1",
        "@SUM(A1)",
        "https://x.org",
        "<r>x</r>",
        "<r></t></is></c><c><f>1+1</f></c></r>",
        "_x000D_",
        "a\r\nb",
        " x ",
        "a\tb\x01c",
        "007",
        "日本 🦆",
    ],
)
def test_a_text_stays_a_text(text: str, tmp_path: Path) -> None:
    path = write(pa.table({text: [text], "n": [1]}), tmp_path / "a.xlsx")
    cell = openpyxl.load_workbook(path).active["A2"]
    assert cell.data_type == "s" and cell.hyperlink is None
    assert b"<f>" not in zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml")
    assert open_files(path).read().read_all().column(0).to_pylist() == [text]


def test_pandas_reads_what_was_written(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", None], "at": [dt.datetime(2024, 1, 2, 3), None], "x": [0.1, -2.5]})
    frame = pd.read_excel(write(rows, tmp_path / "a.xlsx"), engine="openpyxl")
    pd.testing.assert_frame_equal(frame, rows.to_pandas(), check_dtype=False)


def test_more_than_a_sheet_or_a_cell_holds_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excel_writer, "MAX_ROWS", 4)
    write("SELECT * FROM range(3)", tmp_path / "a.xlsx")
    with pytest.raises(LimitError, match="more than 3 rows: a sheet of Excel holds 4 with its header"):
        write("SELECT * FROM range(4)", tmp_path / "a.xlsx")
    with pytest.raises(LimitError, match=r"row 1 has a text of 40,000 characters in the column 'v'"):
        write("SELECT repeat('x', 40000) AS v", tmp_path / "a.xlsx")
    with pytest.raises(LimitError, match=r"holds 32,767"):
        write("SELECT repeat('🦆', 16384) AS v", tmp_path / "a.xlsx")
    with pytest.raises(LimitError, match=r"16,385 columns, and a sheet holds 16,384"):
        write_workbook(pa.table({f"c{place}": [1] for place in range(16_385)}).to_reader(), tmp_path / "a.xlsx")


def test_the_limit_is_that_of_excel() -> None:
    assert (excel_writer.MAX_ROWS, excel_writer.MAX_COLUMNS, excel_writer.MAX_TEXT) == (2**20, 2**14, 2**15 - 1)


def test_without_the_extra_an_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(MissingExtraError, match="XlsxWriter") as caught:
        write("SELECT 1", tmp_path / "a.xlsx")
    assert caught.value.hint == "pip install 'quacklake[excel]'"


TEXTS = ("Köln", "=A1", "two\nlines", "_x0041_", "<r>b</r>", "1", " ", "x" * 300, "&\"'<>")


def random_column(random: Random, rows: int) -> pa.Array:
    """Return values of one type that a workbook holds exactly."""
    first = dt.datetime(1900, 3, 1)
    makers = (
        (pa.int64(), lambda: random.randrange(-(10**15) + 1, 10**15)),
        (pa.float64(), lambda: random.choice((random.random(), random.gauss(0, 1e9), 1e-300, 0.5))),
        (pa.decimal128(12, 3), lambda: Decimal(random.randrange(-(10**11), 10**11)) / 1000),
        (pa.string(), lambda: random.choice(TEXTS)),
        (pa.bool_(), lambda: random.random() < 0.5),
        (pa.date32(), lambda: (first + dt.timedelta(days=random.randrange(2_900_000))).date()),
        (pa.timestamp("us"), lambda: first + dt.timedelta(milliseconds=random.randrange(2_900_000 * 86_400_000))),
        (
            pa.timestamp("us", "UTC"),
            lambda: first.replace(tzinfo=dt.UTC) + dt.timedelta(seconds=random.randrange(10**10)),
        ),
        (pa.time64("us"), lambda: (first + dt.timedelta(milliseconds=random.randrange(86_400_000))).time()),
    )
    type_, make = random.choice(makers)
    return pa.array([make() if random.random() < 0.8 else None for _ in range(rows)], type_)


@pytest.mark.parametrize("seed", some(range(60), 12, "round trips"))
def test_random_rows_come_back_into_their_table(seed: int, tmp_path: Path) -> None:
    random = chance("round trip", seed)
    rows, columns = random.choice((1, 7, 60)), random.randint(1, 6)
    table = pa.table(
        {"id": pa.array(range(rows))} | {f"c{place}": random_column(random, rows) for place in range(columns)}
    )
    write(table, tmp_path / "a.xlsx")
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        made = lake.create_table("t", table.schema)
        made.append(tmp_path / "a.xlsx")
        assert made.to_arrow().sort_by("id").equals(table.cast(made.schema))
    for row, cells in zip(table.to_pylist(), seen(tmp_path / "a.xlsx"), strict=True):
        for value, cell in zip(row.values(), cells, strict=True):
            assert (value is None) == (cell is None)
            if isinstance(value, int | float | str):
                # this library leaves escaped characters as they are
                assert cell == value or str(cell).replace("_x005F_", "_") == value
