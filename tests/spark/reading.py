"""Compare the rows that Spark reads from a lake with those of the conformance tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb

import quacklake
from quacklake.extend.names import quote
from quacklake.spark.runtime.session import to_arrow
from tests.conformance.clients import plain_duckdb
from tests.conformance.history import History, Row, TableState, _sorted, canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["compare_spark", "texts"]


def texts(frame: DataFrame, columns: Sequence[tuple[str, str]], scratch: duckdb.DuckDBPyConnection) -> tuple[Row, ...]:
    """The rows of a frame as DuckDB writes values of these (name, type)s, sorted."""
    neutral = frame.toDF(*(f"c{number}" for number in range(len(columns))))
    selected = [_carried(f"c{number}", type_) for number, (_, type_) in enumerate(columns)]
    scratch.register("read", to_arrow(neutral.selectExpr(*selected)))
    select = [f"CAST({_value(f'c{number}', type_)} AS VARCHAR)" for number, (_, type_) in enumerate(columns)]
    try:
        return _sorted(scratch.execute(f"SELECT {', '.join(select)} FROM read").fetchall())
    finally:
        scratch.unregister("read")


def _carried(name: str, type_: str) -> str:
    if type_ == "TIMESTAMP":  # Arrow's have no zone, and Python shifts what it takes for an instant
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {name}) AS {name}"
    return f"unix_micros({name}) AS {name}" if type_ == "TIMESTAMP WITH TIME ZONE" else name


def _value(name: str, type_: str) -> str:
    if type_ == "TIMESTAMP":
        return f"make_timestamp({name})"
    if type_ == "TIMESTAMP WITH TIME ZONE":
        return f"CAST(CAST(make_timestamp({name}) AS VARCHAR) || '+00' AS TIMESTAMPTZ)"
    return f"make_timestamp_ns({name})" if type_ == "TIMESTAMP_NS" else f"CAST({name} AS {type_})"


def compare_spark(history: History, session: SparkSession, versions: Sequence[int] | None = None) -> None:
    """Spark must see what the model held, at every snapshot."""
    lake = history.site.lake()
    spark = quacklake.spark(lake, session)
    with plain_duckdb() as scratch:
        for version, tables in history.expected.items():
            if versions is not None and version not in versions:
                continue
            for key, expected in tables.items():
                frame = spark.table(".".join(map(quote, key)), at=version)
                columns = tuple((name, canonical(type_)) for name, type_ in expected.columns)
                assert frame.columns == [name for name, _ in columns], f"the columns of {key} at {version}"
                found = TableState(expected.columns, texts(frame, columns, scratch))
                if found.rows != expected.rows:
                    missing = sorted(set(expected.rows) - set(found.rows), key=str)[:3]
                    extra = sorted(set(found.rows) - set(expected.rows), key=str)[:3]
                    raise AssertionError(
                        f"Spark, {key} at {version}: {len(found.rows)} rows, not {len(expected.rows)};"
                        f" missing {missing}, extra {extra}"
                    )
