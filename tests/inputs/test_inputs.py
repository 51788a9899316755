"""Rows in and out, in every form a user may have them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import quacklake
from quacklake.core.scan import ScanPlan

_ROWS = [{"id": 1, "name": "a", "v": 1.5}, {"id": 2, "name": None, "v": 2.5}]


class _Capsule:
    """Any object that speaks the Arrow C stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _forms() -> dict[str, Any]:
    table = pa.Table.from_pylist(_ROWS)
    return {
        "list of dictionaries": lambda: _ROWS,
        "generator of dictionaries": lambda: (row for row in _ROWS),
        "dictionary of columns": lambda: {name: table.column(name).to_pylist() for name in table.column_names},
        "pandas": lambda: pd.DataFrame(_ROWS),
        "polars": lambda: pl.DataFrame(_ROWS),
        "arrow table": lambda: table,
        "arrow batch": lambda: table.to_batches()[0],
        "arrow reader": lambda: table.to_reader(),
        "c stream": lambda: _Capsule(table),
        "duckdb relation": lambda: duckdb.from_arrow(table),
    }


@pytest.fixture(params=[0, 10], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=request.param
    ) as lake:
        yield lake


@pytest.mark.parametrize("form", _forms())
def test_rows_can_be_appended_from(lake: quacklake.Lake, form: str) -> None:
    make = _forms()[form]
    created = lake.create_table("created", make())
    assert created.to_pylist() == _ROWS
    table = lake.create_table("t", pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.float64())]))
    assert table.append(make()) == 2
    assert table.to_pylist() == _ROWS


def test_rows_can_be_read_as_every_form(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", _ROWS)
    assert table.to_pandas()["id"].tolist() == [1, 2]
    assert table.to_polars().get_column("id").to_list() == [1, 2]
    assert table.to_arrow().schema == table.schema
    assert [batch.num_rows for batch in table.to_batches()] == [2]
    assert pa.table(table).num_rows == 2
    assert pl.DataFrame(table).height == 2
    assert duckdb.from_arrow(pa.table(table.scan(["id"]))).fetchall() == [(1,), (2,)]
    assert lake.scan("t", where="id = 2").to_pylist() == [_ROWS[1]]
    assert table.scan().select("name").where("id = 1").limit(5).to_pylist() == [{"name": "a"}]
    assert table.count() == 2


def test_columns_are_matched_by_name_and_may_come_in_any_order_and_case(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", _ROWS)
    table.append([{"V": 9, "NAME": "x", "Id": 3}])
    assert table.to_pylist(where="id = 3") == [{"id": 3, "name": "x", "v": 9.0}]


def test_numbers_are_converted_when_they_fit(lake: quacklake.Lake) -> None:
    table = lake.create_table(
        "t",
        pa.schema([("small", pa.int8()), ("money", pa.decimal128(8, 2)), ("real", pa.float32()), ("day", pa.date32())]),
    )
    table.append({"small": [100], "money": [Decimal("1.5")], "real": [2], "day": [dt.date(2024, 2, 29)]})
    assert table.to_pylist() == [{"small": 100, "money": Decimal("1.50"), "real": 2.0, "day": dt.date(2024, 2, 29)}]


def test_a_plan_encodes_to_arrow_and_back(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100), "name": ["x"] * 100}))
    table.append(_short())
    table.delete("id < 3")
    plan = table.plan(where="id > 1")
    decoded = ScanPlan.from_ipc(plan.to_ipc())
    assert decoded.files.equals(plan.files)
    assert decoded.schema == plan.schema
    assert decoded.deletes.equals(plan.deletes)
    assert (decoded.inlined is None) == (plan.inlined is None)
    assert decoded.snapshot_id == plan.snapshot_id
    assert pa.ipc.open_file(plan.to_ipc()).read_all().column_names[:2] == ["data_file_id", "path"]
    with pytest.raises(quacklake.errors.CorruptFileError):
        ScanPlan.from_ipc(b"something else")


def _short() -> list[dict[str, Any]]:
    return [{"id": 500, "name": "y"}]


def test_time_travel_by_version_and_by_time(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", _ROWS)
    table.append([{"id": 3, "name": "c", "v": 0.0}])
    times = lake.snapshots().column("snapshot_time").to_pylist()
    assert lake.at(version=1).table("t").count() == 2
    assert lake.at(timestamp=times[1]).table("t").count() == 2
    assert lake.at(timestamp=str(times[2])).table("t").count() == 3
    assert lake.at(version=0).tables() == []
    with pytest.raises(quacklake.errors.NotFoundError):
        lake.at(version=99)
    with pytest.raises(quacklake.errors.NotFoundError):
        lake.at(timestamp="1999-01-01")


def test_a_commit_can_be_signed_and_shows_in_the_history(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", _ROWS)
    with lake.transaction(message="load", author="me", extra='{"job": 7}') as tx:
        tx.table("t").append([{"id": 3, "name": "c", "v": 0.0}])
    newest = table.history().to_pylist()[0]
    assert (newest["author"], newest["commit_message"], newest["commit_extra_info"]) == ("me", "load", '{"job": 7}')
    assert table.history().num_rows == 2


def test_what_is_shown_is_useful(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1, "name": "<b>bold</b>"}])
    assert lake.url in repr(lake)
    assert repr(table) == "<Table main.t>"
    assert repr(table.scan(["id"], "id > 0", limit=3)) == "<TableScan main.t [id] WHERE id > 0 LIMIT 3>"
    assert repr(table.changes(1, 2)) == "<ChangeScan main.t since 1 until 2>"
    assert repr(lake.create_view("v", "SELECT 1 AS x")) == "<View main.v>"
    assert "&lt;b&gt;" in table.scan()._repr_html_()
    assert "name" in table._repr_html_()


def test_options_hold_for_a_table_a_schema_or_the_lake(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", _ROWS)
    lake.options.set("data_inlining_row_limit", 1, table="t")
    files = table.files().num_rows
    table.append([{"id": 10, "name": "in", "v": 0.0}])
    assert table.files().num_rows == files
    table.append([{"id": 11, "name": "out", "v": 0.0}, {"id": 12, "name": "out", "v": 0.0}])
    assert table.files().num_rows == files + 1
    with pytest.raises(quacklake.errors.ConfigError):
        lake.options.set("no_such_option", 1)
    with pytest.raises(quacklake.errors.ConfigError):
        lake.options.set("data_inlining_row_limit", "many")


def test_nothing_is_asked_of_the_catalog_to_show_an_object_or_to_ask_whether_it_is_there(
    lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, past = lake.create_table("t", [{"id": 1}]), lake.at(version=0)

    def asked(*_: object) -> None:
        raise AssertionError("the catalog was asked")

    for name in ("read", "commit"):
        monkeypatch.setattr(type(lake.handle.context.catalog), name, asked)
    objects = [lake, past, table, table.scan(), table.changes(0), lake.view("v"), lake.table("missing")]
    assert all(repr(each) for each in objects)
    assert all(bool(each) for each in (lake, table, lake.table("missing")))
    monkeypatch.undo()
    with pytest.raises(TypeError, match="has no len"):
        len(table)  # type: ignore[arg-type]
