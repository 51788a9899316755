"""Statements that all lakes of a process share hold no values of any of them; tables are made when they are named."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql import visitors

import quacklake
from quacklake.core.catalog.tables import Tables
from quacklake.errors import NotFoundError


def _values(statement: Any) -> list[Any]:
    """Return the values that a statement carries in itself."""
    found = [each for each in visitors.iterate(statement) if isinstance(each, sa.BindParameter)]
    return [each.value for each in found if each.value is not None]


def test_shared_statements_hold_nothing_of_the_lakes_that_used_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        for name, count in (("acme", 3), ("globex", 5)):
            with tenants.open(name, create=True) as lake:
                lake.create_schema("inner_secret")
                lake.create_table("inner_secret.secret_table", [{"id": number} for number in range(count)])
                lake.create_table(f"only_{name}", [{"id": 1}])
        for _ in range(2):
            for name, count in (("acme", 3), ("globex", 5)):
                with tenants.open(name) as lake:
                    assert lake.table("inner_secret.secret_table").count() == count
                    assert [str(each) for each in lake.tables()] == ["inner_secret.secret_table", f"main.only_{name}"]
                    other = "globex" if name == "acme" else "acme"
                    with pytest.raises(NotFoundError):
                        lake.table(f"only_{other}").count()
    # an earlier test may have had a shared lake on another kind of database, whose statements say more
    built = {key: found for (kind, key), found in Tables.of(shared=True).statements.items() if kind == "sqlite"}
    assert {"table", "latest_snapshot"} <= {key for key in built if isinstance(key, str)}
    # what the statements say themselves: the key of the version, limits of rows
    said = {value for statement in built.values() for value in _values(statement)}
    assert said <= {"version", 1, 0}
    assert not any(word in str(statement) for statement in built.values() for word in ("secret", "acme", "globex"))


def test_a_lake_on_another_kind_of_database_does_not_get_the_statements_of_the_first(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb", "sqlite", "duckdb"):
        with quacklake.connect(f"{kind}:///{tmp_path}/{kind}.db", data_path=tmp_path / kind) as lake:
            lake.create_table("t", [{"id": 1}], if_not_exists=True)
            assert lake.table("t").to_pylist() == [{"id": 1}]
            assert lake.snapshots().num_rows == 2
    assert {"sqlite", "duckdb"} <= {kind for kind, _ in Tables.of().statements}


def test_definitions_are_those_that_sqlalchemy_writes_for_each_kind_of_database(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb", "sqlite", "duckdb"):
        with quacklake.connect(f"{kind}:///{tmp_path}/{kind}-{uuid.uuid4()}.db", data_path=tmp_path / kind) as lake:
            dialect = lake._context.catalog._engine.dialect
            tables = Tables.of()
            indexes = tables.indexes(kind) if kind == "sqlite" else ()
            wanted = {
                *(str(CreateTable(table).compile(dialect=dialect)) for table in tables.stock()),
                *(
                    str(CreateTable(table, if_not_exists=True).compile(dialect=dialect))
                    for table in tables.own.values()
                ),
                *(str(CreateIndex(index).compile(dialect=dialect)) for index in indexes),
            }
            assert {text for key, text in tables.definitions.items() if dialect.name in key} == wanted


def test_tables_are_made_when_they_are_named_and_once_for_all_threads() -> None:
    tables = Tables("1.0")
    assert "data_file" in tables
    assert "nothing" not in tables
    assert tables.get("nothing") is None
    with pytest.raises(KeyError):
        _ = tables["nothing"]
    gate, found = threading.Barrier(8), list[sa.Table]()

    def work() -> None:
        gate.wait()
        found.append(tables["data_file"])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(table) for table in found} == {id(tables["data_file"])}
    assert [table.name for table in tables.stock()][:2] == ["ducklake_metadata", "ducklake_snapshot"]
    assert len(tables.stock()) == len({table.name for table in tables.stock()})
