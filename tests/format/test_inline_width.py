"""The widest rows that each database can hold."""

from __future__ import annotations

import pytest

from quacklake.core.format.inline import fits
from quacklake.core.format.schema import Column


def _columns(type_: str, count: int) -> list[Column]:
    return [Column(id_, f"c{id_}", type_) for id_ in range(1, count + 1)]


@pytest.mark.parametrize(
    ("database", "type_", "most"),
    [
        ("sqlite", "varchar", 1997),
        ("sqlite", "int64", 1997),
        ("postgres", "varchar", 336),
        ("postgres", "int64", 998),
        ("postgres", "boolean", 1597),
        ("mysql", "varchar", 196),
        ("mysql", "int64", 994),
    ],
)
def test_a_row_has_as_many_columns_as_the_database_holds_for_certain(database: str, type_: str, most: int) -> None:
    assert fits(_columns(type_, most), database)
    assert not fits(_columns(type_, most + 1), database)


@pytest.mark.parametrize("database", ["duckdb", "packed"])
def test_some_databases_hold_rows_of_any_width(database: str) -> None:
    assert fits(_columns("varchar", 10_000), database)


def test_places_between_columns_count() -> None:
    mixed = [Column(id_, f"c{id_}", "boolean" if id_ % 2 else "int64") for id_ in range(1, 999)]
    assert fits(mixed, "postgres")
    assert not fits([*mixed, *_columns("boolean", 100)], "postgres")
