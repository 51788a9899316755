"""Operations of materialized views that are crashed, the lake that they run on, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import duckdb

from quacklake import Lake
from quacklake.core import faults
from quacklake.core.catalog import own_tables
from quacklake.core.format.objects import is_view_stream
from quacklake.core.materialized import registry
from tests.crash.homes import Home

__all__ = ["CHANGES", "OPERATIONS", "check_next", "check_views", "operate", "prepare"]

_QUERIES = {
    "main.picked": "SELECT id, x * 2 AS y FROM t WHERE x > 3",
    "main.sums": "SELECT k, sum(x) AS s, count(*) AS n, max(x) AS m FROM t GROUP BY k",
    "main.middle": "SELECT k, median(x) AS m FROM t GROUP BY k",
    "main.eager": "SELECT k, sum(x) AS s, count(*) AS n FROM u GROUP BY k",
    "s.inner": "SELECT k, min(x) AS low FROM main.t GROUP BY k",
    "main.made": "SELECT k, count(DISTINCT x) AS n FROM t GROUP BY k",
}
_ROWS = "SELECT i AS id, 'k' || i % 5 AS k, i % 11 AS x FROM range({}, {}) r(i)"
_INSERT = f"INSERT INTO t {_ROWS.format(100, 130)}"

#: The change that a refresh finds, and the way that it takes.
CHANGES: Mapping[str, tuple[str, str]] = {
    "append": (_INSERT, "append"),
    "rows": ("UPDATE t SET x = x + 1 WHERE id < 20", "rows"),
    "merge": (_INSERT, "merge"),
    "groups": ("DELETE FROM t WHERE id % 7 = 0", "groups"),
    "full": (_INSERT, "full"),
    "touched": (_INSERT, "groups"),
}
OPERATIONS: Mapping[str, Callable[[Lake], object]] = {
    "append": lambda lake: lake.refresh("picked"),
    "rows": lambda lake: lake.refresh("picked"),
    "merge": lambda lake: lake.refresh("sums"),
    "groups": lambda lake: lake.refresh("sums"),
    "full": lambda lake: lake.refresh("sums", full=True),
    "touched": lambda lake: lake.refresh("middle"),
    "on commit": lambda lake: lake.sql(f"INSERT INTO u {_ROWS.format(60, 90)}"),
    "create": lambda lake: lake.create_materialized_view("made", _QUERIES["main.made"]),
    "replace": lambda lake: lake.create_materialized_view("sums", _QUERIES["main.sums"], replace=True),
    "drop": lambda lake: lake.materialized_views.drop("sums"),
    "drop schema": lambda lake: lake.drop_schema("s", cascade=True),
}


def prepare(lake: Lake) -> None:
    """Make tables with rows in files and in the catalog, and views of them."""
    for table in "tu":
        lake.sql(f"CREATE TABLE {table} AS {_ROWS.format(0, 50)}")
        lake.sql(f"INSERT INTO {table} {_ROWS.format(50, 53)}")
    for name in ("picked", "sums", "middle"):
        lake.create_materialized_view(name, _QUERIES[f"main.{name}"])
    lake.create_schema("s")
    lake.create_materialized_view("s.inner", _QUERIES["s.inner"])
    lake.create_materialized_view("eager", _QUERIES["main.eager"], refresh="on commit")


def operate(url: str, operation: str, fault: str) -> None:
    """Open a lake, then run an operation on it with a fault armed."""
    with Home(url, None).connect() as lake, faults.arm(faults.Fault.parse(fault)):  # type: ignore[arg-type]
        OPERATIONS[operation](lake)


_oracle: list[duckdb.DuckDBPyConnection] = []


def _answer(lake: Lake, name: str, snapshot: int) -> list[tuple[Any, ...]]:
    """Return what plain DuckDB answers to the query of a view over its table at a snapshot."""
    if not _oracle:
        _oracle.append(duckdb.connect(config={"threads": 1}))
    table = "u" if name == "main.eager" else "t"
    _oracle[0].register("ql_rows", lake.at(version=snapshot).table(table).to_arrow())
    _oracle[0].execute(f"CREATE OR REPLACE TABLE {table} AS FROM ql_rows")
    return sorted(_oracle[0].execute(_QUERIES[name].replace("main.", "")).fetchall())


def _rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    columns = lake.table(name).to_arrow().columns
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def check_views(lake: Lake) -> None:
    """Every view holds the answer at the snapshot at which it stands, and no position is that of no view."""
    context = lake._context
    views = registry.views(context, context.latest())
    for view in views:
        assert view.position is not None, view.name
        assert _rows(lake, view.name) == _answer(lake, view.name, view.position.snapshot), view.name
    with context.catalog.read() as reader:
        kept = {mark.name for mark in own_tables.streams(reader) if is_view_stream(mark.name)}
    assert kept == {view.stream for view in views}


def check_next(home: Home, lake: Lake) -> None:
    """The next refresh of every view is right, and what the crash has left can be removed."""
    for name in lake.materialized_views.names():
        lake.refresh(name)
        assert _rows(lake, name) == _answer(lake, name, lake.current_snapshot()), name
    lake.delete_orphaned_files(cleanup_all=True)
    home.check_files(left=())
