"""The sinks of the demo as foreign readers see them: deltalake, pyiceberg, and DuckDB with its ducklake extension."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import connect
from quacklake_demo.chaos import SinkCount
from services.demo.blocks import good_up_to, options

__all__ = ["Sequences", "count", "read_delta", "read_iceberg", "stock_duckdb"]

Sequences = Callable[[], pa.ChunkedArray]
"""Reads the sequences of all rows of a sink."""
_NONE = pa.chunked_array([pa.array([], pa.int64())])


def count(sink: str, found: pa.ChunkedArray, position: int) -> SinkCount:
    """Count the rows of a sink: ``position`` is the last sequence that every sink must have shown."""
    different = pc.unique(found)
    done = pc.sum(pc.less_equal(different, position)).as_py() or 0
    return SinkCount(sink, len(different), len(found) - len(different), max(0, good_up_to(position) - done))


def read_delta(folder: Path) -> pa.ChunkedArray:
    """Return the sequences of the Delta table, as the library deltalake reads them."""
    from deltalake import DeltaTable

    if not (folder / "delta" / "_delta_log").exists():
        return _NONE
    table = DeltaTable(**options(folder, "delta"))
    return table.to_pyarrow_table(columns=["_sequence"]).column(0)


def read_iceberg(folder: Path) -> pa.ChunkedArray:
    """Return the sequences of the Iceberg table, as pyiceberg reads them."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    if not (folder / "iceberg.db").exists():
        return _NONE
    with closing(SqlCatalog("quacklake", **options(folder, "iceberg"))) as catalog:
        try:
            table = catalog.load_table(("ekko", "transactions"))
        except NoSuchTableError:
            return _NONE
        return table.scan(selected_fields=("_sequence",)).to_arrow().column(0)


def stock_duckdb(attach: str, table: str) -> pa.ChunkedArray:
    """Return the sequences of a table of the lake, as DuckDB reads it with its own extensions.

    Raise ``ImportError`` or DuckDB's error where these are not installed for this version of DuckDB.
    """
    wheels = importlib.import_module("duckdb_extensions")
    with tempfile.TemporaryDirectory(prefix="quacklake-extensions-") as folder:
        config: dict[str, str | bool | int | float | list[str]] = {
            "extension_directory": folder,
            "autoinstall_known_extensions": False,
        }
        with connect(config=config) as connection:
            _load(connection, wheels, ("ducklake", "postgres_scanner", "sqlite_scanner"))
            connection.execute(attach)
            rows = connection.execute(f"SELECT _sequence FROM lake.{table}").fetchall()
            return pa.chunked_array([pa.array([row[0] for row in rows], pa.int64())])


def _load(connection: duckdb.DuckDBPyConnection, wheels: object, names: Iterable[str]) -> None:
    for name in names:
        wheels.import_extension(name, con=connection)  # type: ignore[attr-defined]
        connection.execute(f"LOAD {name}")
