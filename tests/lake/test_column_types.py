"""Tables can be created with types in the words that users know."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError, SchemaMismatchError
from quacklake.inputs.column_types import to_column, to_schema


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        yield lake


def test_a_mapping_of_names_to_types_is_a_schema(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"a": "int64", "name": str, "price": "DECIMAL(10, 2)", "at": pa.timestamp("us")})
    assert table.count() == 0
    assert [(column.name, column.type) for column in table.info.schema.columns] == [
        ("a", "int64"),
        ("name", "varchar"),
        ("price", "decimal(10,2)"),
        ("at", "timestamp"),
    ]
    table.append([{"a": 1, "name": "x", "price": Decimal("1.50"), "at": dt.datetime(2025, 1, 2)}])
    assert table.count() == 1


@pytest.mark.parametrize(
    ("type_", "duckdb"),
    [
        # SQL
        ("BIGINT", "BIGINT"),
        ("int", "INTEGER"),
        ("FLOAT", "FLOAT"),
        ("varchar(20)", "VARCHAR"),
        ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
        ("STRUCT(a INTEGER, b VARCHAR[])", 'STRUCT("a" INTEGER, "b" VARCHAR[])'),
        ("MAP(VARCHAR, INTEGER)", "MAP(VARCHAR, INTEGER)"),
        ("json", "JSON"),
        ("uuid", "UUID"),
        # Arrow and pandas
        ("int64", "BIGINT"),
        ("Int64", "BIGINT"),
        ("uint8", "UTINYINT"),
        ("float64", "DOUBLE"),
        ("double", "DOUBLE"),
        ("bool", "BOOLEAN"),
        ("str", "VARCHAR"),
        ("large_string", "VARCHAR"),
        ("string[pyarrow]", "VARCHAR"),
        ("binary", "BLOB"),
        ("date32", "DATE"),
        ("timestamp[us]", "TIMESTAMP"),
        ("timestamp[ns]", "TIMESTAMP_NS"),
        ("datetime64[ns]", "TIMESTAMP_NS"),
        ("datetime64[ns, UTC]", "TIMESTAMP WITH TIME ZONE"),
        ("timestamp[us, tz=Europe/Oslo]", "TIMESTAMP WITH TIME ZONE"),
        ("decimal128(10, 2)", "DECIMAL(10,2)"),
        ("list<item: int64>", "BIGINT[]"),
        (np.dtype("float32"), "FLOAT"),
        (np.int8, "TINYINT"),
        (pd.Int64Dtype(), "BIGINT"),
        (pl.Int32, "INTEGER"),
        (pl.List(pl.String), "VARCHAR[]"),
        (pa.list_(pa.int64()), "BIGINT[]"),
        # Python
        (int, "BIGINT"),
        (float, "DOUBLE"),
        (str, "VARCHAR"),
        (bool, "BOOLEAN"),
        (bytes, "BLOB"),
        (dt.datetime, "TIMESTAMP"),
        (dt.date, "DATE"),
        (dt.time, "TIME"),
        (dt.timedelta, "INTERVAL"),
        (Decimal, "DECIMAL(18,3)"),
        (uuid.UUID, "UUID"),
        (list[int], "BIGINT[]"),
        (tuple[str, ...], "VARCHAR[]"),
        (list[dict[str, float]], "MAP(VARCHAR, DOUBLE)[]"),
        (int | None, "BIGINT"),
        (Optional[dt.date], "DATE"),  # noqa: UP045
        ({"x": float, "tags": list[str]}, 'STRUCT("x" DOUBLE, "tags" VARCHAR[])'),
    ],
    ids=str,
)
def test_a_type_can_be_written_in_many_ways(type_: Any, duckdb: str) -> None:
    assert to_column("c", type_).duckdb_type().replace('"', "") == duckdb.replace('"', "")


@pytest.mark.parametrize(
    ("type_", "message", "hint"),
    [
        ("int8", "can mean different things", "TINYINT"),
        ("float", "can mean different things", "DOUBLE"),
        ("object", "can mean different things", "VARCHAR"),
        (object, "object is not a type of a column", "VARCHAR"),
        (np.dtype(object), "can mean different things", "VARCHAR"),
        (list, "list is not a type of a column", r"list\[int\]"),
        (dict, "dict is not a type of a column", "JSON"),
        (complex, "complex is not a type of a column", "BIGINT"),
        (int | str, "is not a type of a column", "BIGINT"),
        ("bigimt", "unsupported type BIGIMT", 'did you mean "bigint"'),
        ("hello world", "unsupported type HELLO", "to give values, pass a list"),
        ("", "unsupported type", "write it as DuckDB does"),
    ],
    ids=str,
)
def test_what_is_no_type_is_refused_with_what_to_write(
    lake: quacklake.Lake, type_: Any, message: str, hint: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        lake.create_table("t", {"c": type_})
    assert caught.value.message.startswith('the column "c": ')
    assert caught.value.hint is not None
    assert re.search(hint, caught.value.hint)
    assert lake.tables() == []


def test_columns_can_be_not_null(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"a": "BIGINT NOT NULL", "b": pa.field("x", pa.string(), nullable=False), "c": int})
    assert [field.nullable for field in table.schema] == [False, False, True]


def test_pairs_and_fields_and_the_schema_of_polars_are_schemas(lake: quacklake.Lake) -> None:
    for number, columns in enumerate(
        (
            [("id", "BIGINT"), ("name", str)],
            [pa.field("id", pa.int64()), pa.field("name", pa.string())],
            pl.DataFrame({"id": [1], "name": ["x"]}).schema,
            pd.DataFrame({"id": [1], "name": ["x"]}).dtypes.to_dict(),
        )
    ):
        table = lake.create_table(f"t{number}", columns)
        assert table.count() == 0
        assert [column.type for column in table.info.schema.columns] == ["int64", "varchar"]


def test_a_mapping_of_names_to_values_stays_data(lake: quacklake.Lake) -> None:
    assert lake.create_table("t", {"a": [1, 2], "b": ["int", "float"]}).count() == 2
    assert lake.create_table("u", {"a": np.arange(3), "b": pa.array(["x"] * 3), "c": pd.Series([1, 2, 3])}).count() == 3
    assert to_schema({"a": ["int"]}) is None


def test_types_beside_values_are_refused(lake: quacklake.Lake) -> None:
    with pytest.raises(InputError, match='the column "a" has a type, the column "b" has list'):
        lake.create_table("t", {"a": "int64", "b": [1, 2]})


def test_one_value_in_place_of_a_column_is_refused(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": int, "name": str})
    for row in ({"id": [1], "name": "xyz"}, {"id": 1, "name": "xyz"}):
        with pytest.raises(SchemaMismatchError, match="is one value") as caught:
            table.append(row)
        assert caught.value.hint == "pass [{…}] for one row, or a list for each column"
    assert table.count() == 0


def test_nested_columns_hold_values(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"p": {"x": float, "tags": list[str]}, "m": dict[str, int]})
    rows = [{"p": {"x": 1.5, "tags": ["a"]}, "m": [("k", 1)]}]
    table.append(pa.Table.from_pylist(rows, schema=table.schema))
    assert table.to_pylist() == rows


def test_a_column_is_added_with_a_type_of_python(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": int})
    table.add_column("name", str)
    table.add_column("tags", list[str])
    assert [str(field.type) for field in table.schema] == ["int64", "string", "list<l: string>"]
    with pytest.raises(InputError, match="complex is not a type"):
        table.add_column("z", complex)
