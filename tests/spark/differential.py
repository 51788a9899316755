"""Expressions over edge values, computed by DuckDB and by Spark: what Spark is given must come to the same values.

Every function, operator, aggregate and cast that may be translated is called with columns and constants of every type.
A call is refused, or each of its values must be the same, of the type that Spark shows for DuckDB's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

import quacklake
from quacklake.engines.spark import to_arrow
from quacklake.engines.spark.session import has_time, settings
from quacklake.errors import QuacklakeError
from quacklake.format.schema import TableSchema
from quacklake.format.spark import RAISED, shown_type
from quacklake.lake.spark.expressions.functions import _MAKERS
from quacklake.sql.spark.view_aggregates import _AGGREGATES, ViewBinder, ViewTranslator
from tests.seeds import chance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.lake.spark import SparkLake

__all__ = ["COLUMNS", "Outcome", "aggregates", "calls", "casts", "compare", "make_table"]

#: Columns with the values that functions stumble over. The first row has NULL in each.
COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "i8": ("TINYINT", ("0", "-128", "127", "1", "-1", "7")),
    "i32": ("INTEGER", ("0", "-2147483648", "2147483647", "-7", "3", "10")),
    "i64": ("BIGINT", ("0", "-9223372036854775808", "9223372036854775807", "9007199254740993", "-3", "2")),
    "u32": ("UINTEGER", ("0", "4294967295", "1", "2147483648", "9", "5")),
    "u64": ("UBIGINT", ("0", "18446744073709551615", "9223372036854775808", "1", "64", "3")),
    "f32": ("FLOAT", ("0.1", "-0.0", "'nan'", "'inf'", "-2.5", "3.4e38")),
    "f64": ("DOUBLE", ("0.1", "-0.0", "'nan'", "'-inf'", "2.5", "1e300")),
    "g64": ("DOUBLE", ("2.675", "0.5", "-1.5", "4503599627370497.5", "1e-300", "1e15")),
    "d9": ("DECIMAL(9,2)", ("0", "-9999999.99", "9999999.99", "0.05", "1.25", "-2.50")),
    "d18": ("DECIMAL(18,3)", ("0.005", "-999999999999999.999", "999999999999999.999", "2.5", "-0.001", "100")),
    "d38": ("DECIMAL(38,10)", ("0", "1.0000000001", "-9999999999999999999999999999.9999999999", "2.5", "7", "0.5")),
    "bo": ("BOOLEAN", ("true", "false", "true", "false", "true", "NULL")),
    "v": ("VARCHAR", ("''", "'Äpfel ß'", "' a_b%c '", "'🦆é'", "'ǅ ŉ İstanbul'", "chr(9) || 'x\\y' || chr(160)")),
    "w": ("VARCHAR", ("'0'", "'-12'", "' 7 '", "'127'", "'10'", "'+3'")),
    "da": ("DATE", ("'1970-01-01'", "'0001-01-01'", "'9999-12-31'", "'2024-02-29'", "'1582-10-10'", "'2021-01-03'")),
    "ts": ("TIMESTAMP", ("'1970-01-01 00:00:00'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'",
           "'2024-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999999'", "'2024-12-30 00:00:00'")),
    "tz": ("TIMESTAMPTZ", ("'1970-01-01 00:00:00+00'", "'1900-01-01 00:00:00+00'", "'2024-03-10 07:30:00+00'",
           "'2024-11-03 05:30:00+00'", "'1969-12-31 23:59:59.999999+00'", "'2024-12-30 00:00:00+00'")),
    "uu": ("UUID", ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'80000000-0000-4000-8000-00000000000A'",
           "'7fffffff-0000-4000-8000-00000000000b'", "'0a000000-0000-4000-8000-00000000000c'", "NULL")),
    "li": ("INTEGER[]", ("[]", "[1, NULL]", "[NULL]", "[3, 3, 5]", "[-2147483648]", "[0]")),
}  # fmt: skip
TYPES = ("BOOLEAN", "TINYINT", "INTEGER", "BIGINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(38,10)",
         "VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "UUID", "TIME")  # fmt: skip
_OPERATORS = (
    "=",
    "<>",
    "<",
    ">=",
    "IS DISTINCT FROM",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "||",
    "LIKE",
    "ILIKE",
)
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ansi.enabled": "true",
}


@dataclass
class Outcome:
    """What came of some expressions; ``different`` tells those that must not be translated, with both answers."""

    tried: int
    translated: list[str]
    different: dict[str, Any]


def make_table(lake: quacklake.Lake) -> None:
    """A table of the values, and one row of NULLs."""
    lake.sql(f"CREATE TABLE edges(k INTEGER, {', '.join(f'{name} {type_}' for name, (type_, _) in COLUMNS.items())})")
    rows = [f"({n + 1}, {', '.join(values[n] for _, values in COLUMNS.values())})" for n in range(6)]
    lake.sql(f"INSERT INTO edges VALUES (0{', NULL' * len(COLUMNS)}), {', '.join(rows)}")


#: Columns and constants that functions take together.
_GROUPS = (
    ("i8", "i32", "i64", "u32", "u64", "f32", "f64", "g64", "d9", "d18", "d38", "0", "1", "-1", "2", "2.5", "1e0", "3000000000", "NULL"),
    ("v", "w", "'a'", "''", "'%a_'", "'é'", "1", "2", "100", "NULL"),
    ("da", "ts", "tz", "DATE '2024-01-31'", "TIMESTAMP '2024-01-31 10:00:00'", "INTERVAL 1 MONTH", "INTERVAL '-36 hours'", "1"),
    ("'day'", "'year'", "'month'", "'week'", "'hour'", "'dow'", "da", "ts", "tz"),
    ("li", "i32", "1", "bo", "true", "uu", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
)  # fmt: skip


def calls(count: int) -> list[str]:
    """Some calls of the functions and operators that may be translated, with one to three arguments."""
    names = sorted(name for name in _MAKERS if name.isidentifier())
    chosen, found = chance("calls"), set()
    while len(found) < count:
        group = chosen.choice(_GROUPS)
        one, two, three = (chosen.choice(group) for _ in range(3))
        name, operator = chosen.choice(names), chosen.choice(_OPERATORS)
        texts = (f"({one} {operator} {two})", f"({one} IN ({two}, {three}))", f"{name}({one})", f"{name}({one}, {two})")
        found.add(
            chosen.choice(
                (
                    *texts,
                    texts[0],
                    f"{name}({one}, {two}, {three})",
                    f"CASE WHEN {one} < {two} THEN {one} ELSE {three} END",
                )
            )
        )
    return sorted(found)


def casts() -> list[str]:
    """Casts of every column to every type."""
    return [f"CAST({column} AS {type_})" for column in COLUMNS for type_ in TYPES]


def aggregates() -> list[str]:
    """Aggregates of every column."""
    names = [name for name in _AGGREGATES if name != "count_star"]
    return [f"{name}({distinct}{column})" for name in names for distinct in ("", "DISTINCT ") for column in COLUMNS] + [
        "count(*)"
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _values(column: pa.ChunkedArray) -> list[Any]:
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
    with duckdb.connect() as own, lake._shared.engine.connection() as connection:
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
    """What DuckDB gives for each row, and the rows for which it gives anything."""
    if not rows:
        try:
            return _values(own.execute(f"SELECT {text} AS v FROM edges").to_arrow_table().column("v")), [0]
        except duckdb.Error:
            return [None], []
    try:
        values = own.execute(f"SELECT {text} AS v FROM edges ORDER BY k").to_arrow_table().column("v")
        return _values(values), list(range(7))
    except duckdb.Error:
        pass
    answers: list[Any] = [None] * 7
    good = []
    for k in range(7):
        try:
            answers[k] = _values(
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
            if not rows or len(good) == 7
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
            if RAISED not in said:  # an error of ours is a refusal, too
                yield found[0][0], said
            return
        middle = len(found) // 2
        yield from _of_some(frame, found[:middle], rows=rows)
        yield from _of_some(frame, found[middle:], rows=rows)
        return
    for i, (text, (_, wanted, values, good)) in enumerate(found):
        theirs = _values(answers.column(i))
        if theirs != values and (rows or good):
            yield text, (values, theirs)
        elif types[i] != _simple(wanted):
            yield text, (wanted, types[i])


def _simple(type_: str) -> str:
    return type_.lower().replace("timestamp_ltz", "timestamp").replace(" ", "").replace("`", "")
