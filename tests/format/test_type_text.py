"""Types as DuckDB writes them."""

from __future__ import annotations

import duckdb
import pytest

from quacklake.core.format.texts import parse_column
from quacklake.errors import InputError


@pytest.mark.parametrize(
    "text",
    [
        "INTEGER",
        "int",
        "long",
        "VARCHAR(10)",
        "text",
        "DECIMAL",
        "DECIMAL(10,2)",
        "numeric(9)",
        "DOUBLE PRECISION",
        "REAL",
        "TIMESTAMP WITH TIME ZONE",
        "timestamptz",
        "TIME WITH TIME ZONE",
        "TIMESTAMP_NS",
        "UHUGEINT",
        "BLOB",
        "INTERVAL",
        "UUID",
        "INTEGER[][]",
        'STRUCT(a INTEGER, "b c" VARCHAR[], "q""q" DATE)[]',
        "MAP(VARCHAR, STRUCT(x DOUBLE, y MAP(INTEGER, TIME)))",
        "  struct( a  integer )  ",
    ],
)
def test_a_type_means_what_it_means_in_duckdb(text: str) -> None:
    assert duckdb.sqltype(parse_column("c", text).duckdb_type()) == duckdb.sqltype(text)


def test_the_names_of_the_format_are_understood() -> None:
    assert [parse_column("c", name).type for name in ("int32", "uint8", "float64", "json")] == [
        "int32",
        "uint8",
        "float64",
        "json",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "INTEGR",
        "int8",
        "list",
        "unknown",
        "STRUCT()",
        "STRUCT(a)",
        "STRUCT(a INTEGER, A DATE)",
        "STRUCT(a INTEGER",
        "MAP(VARCHAR)",
        "INTEGER[3]",
        "INTEGER INTEGER",
        "INTEGER); DROP TABLE x",
        "ENUM('a')",
        "DECIMAL(50,2)",
        "DECIMAL(2,5)",
        "DECIMAL(a)",
        '"INTEGER',
        "INTEGER[]" * 3 + "]",
        "STRUCT(a " * 200 + "INTEGER" + ")" * 200,
    ],
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        parse_column("c", text)
