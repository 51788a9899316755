"""Ctrl-C anywhere: it comes through as itself, nothing is half-done, and nobody waits for a lock that was left."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import quacklake
from quacklake import Lake
from quacklake.core import faults
from tests.seeds import some

NewUrl = Callable[[str], str]
_SCHEMA = pa.schema([("id", pa.int64())])

OPERATIONS: dict[str, Callable[[Lake], object]] = {
    "append inlined": lambda lake: lake.table("t").append([{"id": 7}]),
    "append a file": lambda lake: lake.table("t").append(pa.table({"id": range(500)})),
    "update": lambda lake: lake.table("t").update({"id": 1000}, where="id < 3"),
    "delete": lambda lake: lake.table("t").delete("id = 2"),
    "create": lambda lake: lake.create_table("u", [{"a": 1}]),
    "sql": lambda lake: lake.sql("INSERT INTO t SELECT 8"),
    "transaction": lambda lake: _transaction(lake),
    "expire": lambda lake: lake.expire_snapshots(keep_last=1),
}


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Programs that a shell has put into the background are deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _transaction(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 9}])
        tx.table("t").delete("id = 1")


def _interrupted(schema: pa.Schema = _SCHEMA) -> Iterator[pa.RecordBatch]:
    for number in range(50):
        if number == 3:
            signal.raise_signal(signal.SIGINT)
        yield pa.record_batch({"id": range(number * 1000, number * 1000 + 1000)}, schema=schema)


@pytest.mark.parametrize("form", ["generator", "reader"])
def test_ctrl_c_while_rows_are_taken_from_a_generator_comes_through_as_itself(tmp_path: Path, form: str) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", [{"id": 1}])
        rows: Any = _interrupted()
        if form == "reader":
            rows = pa.RecordBatchReader.from_batches(_SCHEMA, rows)
        with pytest.raises(KeyboardInterrupt):
            table.append(rows)
        assert table.count() == 1


def test_the_error_of_a_generator_comes_through_as_itself(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": range(5000)}, schema=_SCHEMA)
        raise OSError("the sensor is gone")

    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", [{"id": 1}])
        with pytest.raises(OSError, match="the sensor is gone"):
            table.append(rows())
        assert table.count() == 1


@pytest.mark.parametrize("journal", ["rollback", "wal"])
def test_ctrl_c_right_after_a_select_of_a_commit_leaves_no_lock_behind(tmp_path: Path, journal: str) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    settings: dict[str, Any] = {"sqlite_journal": journal}
    with quacklake.connect(url, data_path=tmp_path / "data", **settings) as lake:
        lake.create_table("t", [{"id": 1}])
        engine = lake._context.catalog._engine

        @sa.event.listens_for(engine, "after_cursor_execute")
        def interrupt(connection: sa.Connection, cursor: Any, statement: str, *others: Any) -> None:
            if connection.get_execution_options().get("quacklake_commit") and statement.startswith("SELECT"):
                raise KeyboardInterrupt

        with quacklake.connect(url, busy_timeout_ms=500, ducklake_max_retry_count=0, **settings) as other:
            try:
                lake.table("t").append([{"id": 2}])
            except KeyboardInterrupt:  # which lives, with all its frames, while the other writes
                other.table("t").append([{"id": 3}])
            else:
                pytest.fail("there was no SELECT")
            assert sorted(row["id"] for row in other.table("t").to_pylist()) == [1, 3]


def _prepared(url: str, data: Path) -> None:
    with quacklake.connect(url, data_path=data) as lake:
        lake.create_table("t", pa.table({"id": range(200)}))
        lake.table("t").append([{"id": -1}])


@pytest.mark.crash
@pytest.mark.parametrize(
    "database",
    [
        "sqlite",
        "duckdb",
        "postgres",
        "mysql",
    ],
)
def test_ctrl_c_at_any_point_leaves_no_lock_behind(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(database)
    _prepared(url, tmp_path / "data")
    names = OPERATIONS if database == "sqlite" else some(OPERATIONS, 2, "interrupted operations", database)
    other = quacklake.connect(url, busy_timeout_ms=2000, ducklake_max_retry_count=0)
    with quacklake.connect(url) as lake, other:
        for name in names:
            _interrupt(name, lake, other)
        assert lake.verify().ok


def _interrupt(name: str, lake: Lake, other: Lake) -> None:
    with faults.record() as points:
        OPERATIONS[name](lake)
    for number in some(range(1, len(points) + 1), 3, "interrupts", name):
        _forget_created(lake)
        try:
            with faults.arm(faults.Fault(at=number, error=KeyboardInterrupt)):
                OPERATIONS[name](lake)
        except KeyboardInterrupt:  # which lives, with all its frames, while the other writes
            before = other.table("t").count()
            other.table("t").append([{"id": -2}])
            assert other.table("t").count() == before + 1
    _forget_created(lake)


def _forget_created(lake: Lake) -> None:
    if any(name.endswith("u") for name in lake.tables()):
        lake.drop_table("u")
