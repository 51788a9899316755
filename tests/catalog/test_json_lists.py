"""Columns that SQLite hands over as lists in JSON: the same files and values as row by row, whatever is in a catalog."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import quacklake
from quacklake import telemetry
from quacklake.core.catalog.reading import reader
from quacklake.core.catalog.statements import from_json
from tests.layout import LAYOUT

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(st.sampled_from(['"', ",", "null", "\\", "[", "]", '","', "\n", "\0", "a", "1"]), max_size=5).map("".join),
)


def listed(values: Sequence[Any]) -> str:
    """The list that SQLite makes of values."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (v)")
        database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        return str(database.execute("SELECT json_group_array(v) FROM t").fetchone()[0])


@settings(max_examples=60)
@given(st.lists(INTEGERS) | st.lists(st.none() | INTEGERS, max_size=6))
def test_numbers_come_back_as_they_were(values: list[int | None]) -> None:
    found = from_json(listed(values), pa.int64(), lambda parsed: pa.array(parsed, pa.int64()))
    assert found.equals(pa.array(values, pa.int64()))


@settings(max_examples=60)
@given(st.lists(TEXTS) | st.lists(st.none() | TEXTS, max_size=6))
@example(["nullnullnull"])
@example([",", ",", None, ",", "x"])
@example(["a", None, ","])
@example([""])
def test_texts_come_back_as_they_were(values: list[str | None]) -> None:
    found = from_json(listed(values), pa.string(), lambda parsed: pa.array(parsed, pa.string()))
    assert found.equals(pa.array(values, pa.string()))


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0, 1, None, "true", 1.0]), max_size=6))
def test_whatever_is_no_number_is_converted_as_a_row_would_be(values: list[Any]) -> None:
    plain = all(isinstance(value, int) for value in values) or not any(value is not None for value in values)
    seen: list[Sequence[Any]] = []

    def convert(parsed: Sequence[Any]) -> pa.Array:
        seen.append(parsed)
        return pa.nulls(len(parsed), pa.bool_())

    found = from_json(listed(values), pa.bool_(), convert)
    assert len(found) == len(values)
    assert seen == ([] if plain else [values])


@pytest.mark.skipif(LAYOUT == "shared", reason="a plain lake's tables are changed by hand")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ducklake_data_file SET data_file_id = 100 - data_file_id",
        "UPDATE ducklake_data_file SET path = 'a\"b\\c,' || data_file_id || char(10) || 'é.parquet'",
        "UPDATE ducklake_data_file SET path_is_relative = 'true'",
        "UPDATE ducklake_data_file SET path = CAST(path AS BLOB) WHERE data_file_id = 1",
        "UPDATE ducklake_data_file SET footer_size = NULL, partial_max = begin_snapshot WHERE data_file_id % 2 = 0",
        "DELETE FROM ducklake_data_file",
    ],
)
def test_files_are_those_that_come_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    path = tmp_path / "lake.db"
    with quacklake.connect(f"sqlite:///{path}", data_path=tmp_path / "data", data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.schema([("id", pa.int64())]))
        for number in range(4):
            table.append([{"id": number}, {"id": number + 10}])
        table.delete("id = 2")
        lake.create_table("other", [{"id": 1}])
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(change)
        snapshot = lake.current_snapshot()
        found = []
        for many in (0, 10**9):
            monkeypatch.setattr(reader, "_MANY", many)
            with lake._context.catalog.read() as sql:
                found.append(sql.files.matching(sql.snapshots.find(snapshot), table.info))
    assert found[0].equals(found[1])
    assert found[0].num_rows == (0 if change.startswith("DELETE") else 4)


@pytest.mark.skipif(LAYOUT == "shared", reason="a plain lake's tables are changed by hand")
def test_a_path_of_bytes_costs_one_statement_more_and_hides_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lake.db"
    monkeypatch.setattr(reader, "_MANY", 0)
    with quacklake.connect(f"sqlite:///{path}", data_path=tmp_path / "data", plan_cache_bytes=0) as lake:
        table = lake.create_table("t", [{"id": number} for number in range(100)])
        table.append([{"id": number} for number in range(100)])
        statements = []
        for change in (None, "UPDATE ducklake_data_file SET path = CAST(path AS BLOB)"):
            if change is not None:
                with closing(sqlite3.connect(path)) as database, database:
                    database.execute(change)
            before = telemetry.snapshot().counters["catalog.statements"]
            assert table.to_arrow().num_rows == 200
            statements.append(telemetry.snapshot().counters["catalog.statements"] - before)
    assert statements[1] == statements[0] + 1
