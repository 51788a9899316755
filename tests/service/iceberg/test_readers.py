"""Readers of Iceberg see what the lake holds, at every snapshot, after random histories."""

from __future__ import annotations

import datetime as dt
import operator
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.exceptions import RESTError
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table

import quacklake
from quacklake import Lake
from quacklake.service.iceberg import IcebergSettings
from tests.layout import plain_only
from tests.seeds import chance

from .histories import History
from .serving import Service, duckdb_reader, pyiceberg_reader, rows_of, served

FILTERS = ("a > 0", "a IS NULL", "k >= 40", "a <= -5 AND k < 100")


@pytest.mark.daily(0.35)
@pytest.mark.parametrize(
    ("number", "database", "version"),
    [(0, "sqlite", 3), (1, "postgres", 3), (2, "duckdb", 2), (3, "sqlite", 2)],
)
def test_every_snapshot_of_a_random_history_is_the_same_in_other_readers(
    service: Service,
    older_service: Service,
    new_url: Callable[[str], str],
    tmp_path: Path,
    number: int,
    database: str,
    version: int,
) -> None:
    with quacklake.connect(new_url(database), tmp_path / "data", create=True) as lake:
        history = History(lake, chance("iceberg histories", number))
        history.run(10)
        _compare(service if version == 3 else older_service, lake, history)


def _compare(service: Service, lake: Lake, history: History) -> None:
    """Every snapshot of the table is the same in pyiceberg and DuckDB, and so are filters on the newest."""
    name = service.add(lake)
    table = pyiceberg_reader(service, name).load_table("main.h")
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    assert snapshots == [id_ for id_ in lake.snapshots().column("snapshot_id").to_pylist() if id_ > 0]
    with duckdb_reader(service, name) as reader:
        for snapshot in snapshots:
            expected = lake.at(version=snapshot).table("h").to_arrow()
            found = table.scan(snapshot_id=snapshot).to_arrow()
            assert found.column_names == expected.column_names, history.done
            assert rows_of(found) == rows_of(expected), (history.done, snapshot)
            others = reader.execute(f"FROM ice.main.h AT (VERSION => {snapshot})").to_arrow_table()
            assert others.column_names == expected.column_names, history.done
            assert rows_of(others) == rows_of(expected), (history.done, snapshot)
        counted = reader.execute("SELECT count(*) FROM ice.main.h").fetchall()
        assert counted == [(lake.table("h").count(),)], history.done
        _compare_filters(table, reader, lake, history)
        for where in FILTERS:
            expected = lake.table("h").to_arrow(where=where)
            assert rows_of(table.scan(row_filter=where).to_arrow()) == rows_of(expected), (where, history.done)
            others = reader.execute(f"FROM ice.main.h WHERE {where}").to_arrow_table()
            assert rows_of(others) == rows_of(expected), (where, history.done)


_COMPARED = (
    "INTEGER",
    "BIGINT",
    "SMALLINT",
    "VARCHAR",
    "DECIMAL(12,3)",
    "DATE",
    "TIMESTAMP",
    "DOUBLE",
    "FLOAT",
    "UINTEGER",
)
_OPERATORS: dict[str, tuple[Any, Any]] = {
    "=": (EqualTo, operator.eq),
    ">=": (GreaterThanOrEqual, operator.ge),
    "<": (LessThan, operator.lt),
}


def _compare_filters(table: Table, reader: duckdb.DuckDBPyConnection, lake: Lake, history: History) -> None:
    """Readers find the rows of the newest snapshot by values of any column: no bound hides one."""
    rows = lake.table("h").to_pylist()
    for name, type_ in history.columns.items():
        values = [row[name] for row in rows if row[name] is not None]
        if type_ not in _COMPARED or not values:
            continue
        value = history.random.choice(values)
        for sign, (made, holds) in _OPERATORS.items():
            expected = sorted(row["k"] for row in rows if row[name] is not None and holds(row[name], value))
            text = value.isoformat() if isinstance(value, dt.date) else value
            found = table.scan(made(name, text), selected_fields=("k",)).to_arrow().column("k").to_pylist()
            assert sorted(found) == expected, (name, type_, sign, value, history.done)
            others = reader.execute(f'SELECT k FROM ice.main.h WHERE "{name}" {sign} ?', [value]).fetchall()
            assert sorted(row[0] for row in others) == expected, (name, type_, sign, value, history.done)


def test_catalogs_of_a_shared_lake_are_lakes_of_their_own(service: Service, tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", tmp_path / "data", create=True) as tenants:
        lakes = []
        for number, tenant in enumerate(("acme", "globex")):
            tenants.create(tenant)
            lake = tenants.open(tenant)
            history = History(lake, chance("iceberg tenants", number))
            history.run(6)
            lakes.append(lake)
        for lake in lakes:
            table = pyiceberg_reader(service, service.add(lake)).load_table("main.h")
            assert rows_of(table.scan().to_arrow()) == rows_of(lake.table("h").to_arrow())
            paths = [task.file.file_path for task in table.scan().plan_files()]
            assert all(path.startswith(lake.data_path) for path in paths)
            lake.close()


@pytest.mark.daily(0.35)
@pytest.mark.parametrize(
    "path", ["../../secret.parquet", "/etc/passwd", "main/../../x.parquet", "http://example.com/x.parquet"]
)
def test_paths_of_a_hostile_catalog_are_not_served(service: Service, tmp_path: Path, path: str) -> None:
    plain_only("the catalog is changed by hand")
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as lake:
        lake.options.set("data_inlining_row_limit", 0)
        lake.create_table("t", [{"id": 1}])
        lake.create_table("fine", [{"id": 1}])
        with sqlite3.connect(tmp_path / "lake.db") as catalog:
            info = lake.table("t").info
            relative = int(path.startswith((".", "main")))
            catalog.execute(
                "UPDATE ducklake_data_file SET path = ?, path_is_relative = ? WHERE table_id = ?",
                (path, relative, info.id),
            )
        catalog.close()
        name = service.add(lake)
        with pytest.raises(RESTError, match="path") as refused:
            pyiceberg_reader(service, name).load_table("main.t")
        assert "manifest" not in str(refused.value)
        assert pyiceberg_reader(service, name).load_table("main.fine").scan().to_arrow().num_rows == 1


def test_a_link_out_of_the_lake_is_not_served(service: Service, tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as lake:
        lake.options.set("data_inlining_row_limit", 0)
        lake.create_table("t", [{"id": 1}])
        (file,) = (tmp_path / "data").rglob("*.parquet")
        file.rename(tmp_path / "elsewhere.parquet")
        file.symlink_to(tmp_path / "elsewhere.parquet")
        with pytest.raises(RESTError, match=r"storage\.path") as refused:
            pyiceberg_reader(service, service.add(lake)).load_table("main.t")
        assert "elsewhere" not in str(refused.value) and str(tmp_path) not in str(refused.value)


def test_a_reader_keeps_its_snapshot_while_the_lake_changes(service: Service, lake: Lake) -> None:
    lake.create_table("t", [{"id": number} for number in range(40)])
    catalog = pyiceberg_reader(service, service.add(lake))
    table = catalog.load_table("main.t")
    lake.table("t").delete("id < 20")
    lake.table("t").append([{"id": 100}])
    lake.table("t").merge_adjacent_files()
    assert table.scan().to_arrow().num_rows == 40
    table.refresh()
    assert table.scan().to_arrow().num_rows == 21


def test_only_so_many_states_and_snapshots_are_served(lake: Lake) -> None:
    lake.create_table("t", {"id": "INTEGER"})
    for number in range(12):
        lake.table("t").append([{"id": number}])
    lake.create_table("other", {"id": "INTEGER"})
    with served(IcebergSettings(states=4)) as few, served(IcebergSettings(snapshots=3)) as fewer:
        for service, count in ((few, 5), (fewer, 3)):
            table = pyiceberg_reader(service, service.add(lake)).load_table("main.t")
            assert len(table.metadata.snapshots) == count
            for snapshot in table.metadata.snapshots:
                expected = lake.at(version=snapshot.snapshot_id).table("t").to_arrow()
                assert rows_of(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == rows_of(expected)
