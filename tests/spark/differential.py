"""Expressions over edge values, computed by DuckDB and by Spark, must give the same values.

Every function, operator, aggregate and cast that may be translated is called with columns and constants of every type.
A call is refused, or each of its values must be the same, of the type that Spark shows for DuckDB's.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

import quacklake
from quacklake.core.format.schema import TableSchema
from quacklake.errors import QuacklakeError
from quacklake.spark.expressions.functions import _MAKERS
from quacklake.spark.runtime.session import has_time, settings, to_arrow
from quacklake.spark.runtime.types import RAISED, shown_type
from quacklake.spark.sql.view_queries import ViewBinder, ViewTranslator
from tests.spark.expressions import COLUMNS, ROWS, Expressions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.lake import SparkLake

__all__ = ["Outcome", "column_values", "compare", "expressions", "is_refusal", "make_table", "shared_aggregates"]

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ansi.enabled": "true",
}


@dataclass
class Outcome:
    """The outcome of a comparison; ``different`` has the expressions that must not be translated, and both answers."""

    tried: int
    translated: list[str]
    different: dict[str, Any]


def make_table(lake: quacklake.Lake) -> None:
    """A table of the values, and one row of NULLs."""
    lake.sql(f"CREATE TABLE edges(k INTEGER, {', '.join(f'{name} {type_}' for name, (type_, _) in COLUMNS.items())})")
    rows = [f"({n + 1}, {', '.join(values[n] for _, values in COLUMNS.values())})" for n in range(6)]
    lake.sql(f"INSERT INTO edges VALUES (0{', NULL' * len(COLUMNS)}), {', '.join(rows)}")


def expressions(session: SparkSession, chance: random.Random) -> Expressions:
    """A maker of expressions with the functions that both sides have."""
    with duckdb.connect() as own:
        return Expressions(own, chance, _of_spark(session), set(_MAKERS))


def shared_aggregates(session: SparkSession) -> list[str]:
    """The aggregates that both sides have."""
    with duckdb.connect() as own:
        query = "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'aggregate'"
        return sorted({name for (name,) in own.execute(query).fetchall()} & _of_spark(session))


def _of_spark(session: SparkSession) -> set[str]:
    return {str(row[0]).lower() for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)  # which tells 0.0 from -0.0
    if isinstance(value, dt.time):  # a text in Spark, where it has no such type
        return value.isoformat().rstrip("0") if value.microsecond else value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; dates and times as numbers, which Python has for all of them."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return [_plain(value) for value in column.to_pylist()]


class _Translations:
    """Translates expressions over the table, as views do."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: TableSchema, *, time: bool) -> None:
        self.connection = connection
        self.binder = ViewBinder(connection, {"edges": schema})
        self.time = time

    def sql(self, text: str) -> tuple[str, str] | None:
        """An expression in the SQL of Spark, and the type that it should have; None when it is refused."""
        document = json.loads(
            self.connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT {text}"]).fetchall()[0][0]
        )
        if document["error"]:
            return None
        node = document["statements"][0]["node"]["select_list"][0]
        try:
            found = ViewTranslator(self.binder, time=self.time).value(node)
            type_ = self.binder.type_of(node)
        except (QuacklakeError, KeyError):
            return None
        if any(leaf.type == "interval" for leaf in type_.leaves()):  # a text in Spark, as in tables
            return None
        return found.sql, "DECIMAL(38,0)" if type_.type == "int128" else shown_type(type_, time=self.time)


def compare(lake: quacklake.Lake, spark: SparkLake, texts: Sequence[str], *, rows: bool = True) -> Outcome:
    """Compute expressions on both sides, for each row or (without ``rows``) for all of them together."""
    session = spark.session
    schema = lake.handle.view().find_table("main", "edges").schema
    table = lake.table("edges").to_arrow()
    found: dict[str, tuple[str, str, list[Any], list[int]]] = {}
    with duckdb.connect() as own, lake._context.engine.connection() as connection:
        own.execute("SET TimeZone = 'UTC'")
        own.register("source", table)
        names = ", ".join(
            f"CAST({column.name} AS {column.duckdb_type()}) AS {column.name}" for column in schema.columns
        )
        own.execute(f"CREATE TABLE edges AS SELECT {names} FROM source ORDER BY k")
        translations = _Translations(connection, schema, time=has_time(session))
        for text in texts:
            made = translations.sql(text)
            if made is not None:
                found[text] = (*made, *_answers(own, text, rows=rows))
    return Outcome(len(texts), list(found), dict(_differences(spark, found, rows=rows)))


def _answers(own: duckdb.DuckDBPyConnection, text: str, *, rows: bool) -> tuple[list[Any], list[int]]:
    """Return DuckDB's value for each row, and the rows for which it has one."""
    if not rows:
        try:
            return column_values(own.execute(f"SELECT {text} AS v FROM edges").to_arrow_table().column("v")), [0]
        except duckdb.Error:
            return [None], []
    try:
        values = own.execute(f"SELECT {text} AS v FROM edges ORDER BY k").to_arrow_table().column("v")
        return column_values(values), list(range(ROWS))
    except duckdb.Error:
        pass
    answers: list[Any] = [None] * ROWS
    good = []
    for k in range(ROWS):
        try:
            answers[k] = column_values(
                own.execute(f"SELECT {text} AS v FROM edges WHERE k = {k}").to_arrow_table().column("v")
            )[0]
            good.append(k)
        except duckdb.Error:
            continue
    return answers, good


def _differences(
    spark: SparkLake, found: dict[str, tuple[str, str, list[Any], list[int]]], *, rows: bool
) -> Iterator[tuple[str, Any]]:
    with settings(spark.session, _INTERPRETED):
        frame = spark.table("edges")
        for start in range(0, len(found), 400):
            yield from _of_some(frame, list(found.items())[start : start + 400], rows=rows)


def _of_some(frame: DataFrame, found: list[tuple[str, Any]], *, rows: bool) -> Iterator[tuple[str, Any]]:
    """Differences of some expressions; one that fails is looked for by halves."""
    if not found:
        return
    select = []
    for i, (_, (sql, _, _, good)) in enumerate(found):
        chosen = (
            sql
            if not rows or len(good) == ROWS
            else f"CASE WHEN k IN ({', '.join(map(str, good)) or 'NULL'}) THEN {sql} END"
        )
        select.append(f"{chosen} AS v{i}")
    try:
        given = frame.selectExpr("k", *select) if rows else frame.selectExpr(*select)
        types = [field.dataType.simpleString() for field in given.schema.fields][1 if rows else 0 :]
        answers = to_arrow(given)
        answers = answers.sort_by("k").drop_columns(["k"]) if rows else answers
    except Exception as error:
        if len(found) == 1:
            said = str(error).splitlines()[0]
            if not is_refusal(found[0][0], said):
                yield found[0][0], said
            return
        middle = len(found) // 2
        yield from _of_some(frame, found[:middle], rows=rows)
        yield from _of_some(frame, found[middle:], rows=rows)
        return
    for i, (text, (_, wanted, values, good)) in enumerate(found):
        theirs = column_values(answers.column(i))
        if theirs != values and (rows or good):
            yield text, (values, theirs)
        elif types[i] != _simple(wanted):
            yield text, (wanted, types[i])


def is_refusal(text: str, said: str) -> bool:
    """Return whether an error of Spark may stand for a value of DuckDB.

    Errors of ours may, and those of texts that Spark does not read as numbers or dates. Which part of a condition is
    computed first is open, so that one that fails may be left out by one side.
    """
    of_value = "SQLSTATE: 22" in said and (" AND " in text or " OR " in text)
    return RAISED in said or "[CAST_INVALID_INPUT]" in said or of_value


def _simple(type_: str) -> str:
    return type_.lower().replace("timestamp_ltz", "timestamp").replace(" ", "").replace("`", "")
