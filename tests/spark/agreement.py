"""Ours, stock DuckDB and Spark must see the same rows under the same row ids, at every snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import quacklake
from quacklake.spark.read.scan import ROW_ID
from quacklake.spark.runtime.types import quote
from tests.conformance.clients import LakeSite, plain_duckdb
from tests.conformance.history import _sorted
from tests.seeds import LONG

from .reading import texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Rows", "all_agree", "rows_of"]

Rows = tuple[tuple[str | None, ...], ...]


def rows_of(site: LakeSite, table: str, version: int) -> Rows:
    """Return the rows that stock DuckDB reads: row ids and values as text."""
    query = f"SELECT rowid::VARCHAR, COLUMNS(*)::VARCHAR FROM {table} AT (VERSION => {version:d})"
    return _sorted(site.stock().execute(query).fetchall())


def _ours(lake: quacklake.Lake, table: str, version: int) -> Rows:
    handle = lake.at(version=version).table(table)
    with plain_duckdb() as scratch:
        scratch.register("found", handle.to_arrow(["rowid", *handle.columns]))
        select = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in ("rowid", *handle.columns))
        return _sorted(scratch.execute(f"SELECT {select} FROM found").fetchall())


def _sparks(lake: quacklake.Lake, session: SparkSession, table: str, version: int) -> Rows:
    spark = quacklake.spark(lake, session)
    handle = lake.at(version=version).table(table)
    frame = spark._engine.scan.frame(handle.plan(), rows=True)
    columns = [("rowid", "BIGINT"), *((column.name, column.duckdb_type()) for column in handle.info.schema.columns)]
    selected = frame.selectExpr(ROW_ID, *(quote(column.name) for column in handle.info.schema.columns))
    with plain_duckdb() as scratch:
        return texts(selected, [(name, _canonical(type_)) for name, type_ in columns], scratch)


def _canonical(type_: str) -> str:
    return "TIMESTAMP WITH TIME ZONE" if type_ == "TIMESTAMPTZ" else type_


def all_agree(site: LakeSite, session: SparkSession, versions: Iterable[int] | None = None, table: str = "t") -> Rows:
    """Compare the three at some snapshots (the newest, if none are named); returns what the last one holds.

    Every day Spark is asked for the last one only.
    """
    chosen = [site.lake()._context.latest().id] if versions is None else list(versions)
    lake = site.lake()
    ours = {version: _ours(lake, table, version) for version in chosen}
    for version in chosen if LONG else chosen[-1:]:
        assert _sparks(lake, session, table, version) == ours[version], f"Spark and ours differ at {version}"
    for version, rows in ours.items():
        assert rows_of(site, table, version) == rows, f"stock and ours differ at {version}"
        assert len({row[0] for row in rows}) == len(rows), "a row id is there twice"
    return ours[chosen[-1]]
