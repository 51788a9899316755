"""Expressions of the lake in Spark: each gives what it gives in DuckDB, or is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import ArithmeticException

import quacklake
from quacklake import expr
from quacklake.errors import ConstraintError, PredicateError, UnsupportedFeatureError
from quacklake.spark.runtime.session import settings, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "k INTEGER, i8 TINYINT, i INTEGER, b BIGINT, u UINTEGER, ub UBIGINT, f FLOAT, d DOUBLE, de DECIMAL(18,3), e DECIMAL(9,2),"
    " t VARCHAR, n VARCHAR, da DATE, ts TIMESTAMP, tz TIMESTAMPTZ, bo BOOLEAN, uu UUID, l INTEGER[],"
    " s STRUCT(x INTEGER, y VARCHAR), m MAP(VARCHAR, INTEGER), ti TIME, ns TIMESTAMP_NS"
)
ROWS = r"""
(0, 1, 7, 2, 3, 18446744073709551615, 0.1, 2.5, 2.5, 1.25, 'a_b', ' 5 ', '2024-01-31', '2024-01-31 23:59:59.5',
 '2024-01-31 00:00:00+00', true, '00000000-0000-0000-0000-00000000000a', [1, NULL], {'x': 1, 'y': 'p'}, MAP {'k': 1}, '10:00:00', '2024-01-01 00:00:00.123456789'),
(1, -7, -7, 3, 2, 5, 16777216, 3.5, -2.5, -1.25, 'a\xb', '-12', '2023-03-01', '2023-03-31 10:00:00',
 '2023-03-12 07:30:00+00', false, 'ffffffff-0000-0000-0000-00000000000a', [3], {'x': NULL, 'y': 'Q'}, MAP {'z': 2}, '09:59:59.5', '2024-01-01'),
(2, 127, 2147483647, 0, 0, 0, -0.5, -2.5, 0.005, 0, '100% x ', '7', '1969-12-31', '1969-12-31 23:00:00.000001',
 '1969-12-31 00:00:00+00', NULL, '0a000000-0000-0000-0000-000000000000', [], NULL, NULL, NULL, NULL),
(3, 0, 0, -9, 9, 9, 'inf', 'nan', 123456.789, 12.34, chr(9) || ' ' || chr(160) || 'Mixed Case ', '0', '2000-02-29', '2000-02-29 00:00:00',
 '2000-02-29 12:00:00+00', true, NULL, [5, 5, 6], {'x': 5, 'y': NULL}, MAP {}, '00:00:00', '1969-12-31'),
(4, 100, -5, 4000000000, 4000000000, 4000000000, 1e10, 2.675, -0.005, -99.99, 'Äpfel', '3', '2024-12-30',
 '2024-12-30 12:34:56', '2024-12-30 12:34:56+00', false, '00000000-0000-0000-0000-00000000000A', NULL, {'x': 2, 'y': ''}, NULL, '23:59:59.999999', '2000-01-01'),
(5, 3, 5, 5, 5, 5, 1.005, -0.0, 1.005, 1.00, '', '2', '2021-01-03', '2021-01-03 00:00:01', '2021-01-03 00:00:01+00', true,
 NULL, [NULL], {'x': -1, 'y': 'z'}, NULL, '10:00:00.25', NULL),
(6, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
SAME: dict[str, tuple[str, ...]] = {
    "casts": (
        "CAST(CASE WHEN abs(d) < 99 THEN d END AS INTEGER)", "CAST(CASE WHEN f < 9 THEN f * 5 END AS BIGINT)", "CAST(de AS INTEGER)", "CAST(e AS BIGINT)",
        "CAST(de AS DECIMAL(12,1))", "CAST(n AS INTEGER)", "CAST(n AS DECIMAL(5,1))", "CAST(n AS DOUBLE)", "CAST(bo AS INTEGER)",
        "CAST(i AS BOOLEAN)", "CAST(i AS VARCHAR)", "CAST(de AS VARCHAR)", "CAST(bo AS VARCHAR)", "CAST(uu AS VARCHAR)",
        "CAST(ts AS DATE)", "CAST(da AS TIMESTAMP)", "CAST(b AS DOUBLE)", "CAST(ub AS DOUBLE)", "CAST(b AS FLOAT)",
        "CAST(de AS DOUBLE)", "CAST(f AS DOUBLE)", "CAST(i8 AS BIGINT)", "CAST('  5 ' AS INTEGER) + i8::INTEGER",
        "CAST(' 5.7 ' AS INTEGER) * k", "CAST(abs(i // 2) AS UINTEGER)",
    ),
    "numbers": (
        "i / 2", "i / b", "0 / 0 + i", "d // 0", "d / b", "d / 0", "de / e", "f / 3", "i // 2", "i // b", "b // -4", "d // 2", "i % 3", "i % b", "b % -4",
        "mod(b, 5)", "d % 2", "de % 2", "e % 0.3", "i8::INTEGER + 1000", "b + i", "b - 1.5", "d + 0.1", "f + 0.1", "f * 3", "de * e",
        "de + e", "de - 1", "b * de", "ub + 0", "u + b", "-b", "-d", "abs(b)", "abs(d)", "isnan(d)", "sign(b)", "sign(de)", "ceil(d)", "floor(d)",
        "ceil(de)", "floor(de)", "floor(f::DOUBLE)", "round(d)", "round(d, 2)", "round(de)", "round(de, 2)", "round(e, 1)",
        "round(d / 3, 5)", "greatest(i, b, NULL)", "least(i, de, 0.5)", "greatest(d, f)", "nullif(b, 0)", "coalesce(b, 1.5)",
        "CASE WHEN i > 0 THEN 1 WHEN i < 0 THEN 2.5 END", "CASE i WHEN 7 THEN d ELSE 0 END", "if(bo, i, de)",
    ),
    "comparisons": (
        "f = 0.1", "f > i", "d > f", "d = 'nan'::DOUBLE", "b = 4e9", "ub > b", "ub = 18446744073709551615", "de = 1.005", "de > d",
        "e < i", "i IN (7, 0, NULL)", "i NOT IN (7, 0)", "b IN (2, 2.5, 3)", "i BETWEEN b AND 10", "i NOT BETWEEN 0 AND 10",
        "t > 'a'", "t < 'b'", "t = ''", "da > '2000-02-29'", "da = ts", "ts >= DATE '2024-01-31'", "ts < '2024-01-01 00:00:00'",
        "tz > TIMESTAMPTZ '2000-01-01 00:00:00+00'", "tz < now()", "uu = '00000000-0000-0000-0000-00000000000A'", "bo > false",
        "bo IS TRUE", "bo IS NOT FALSE", "i IS DISTINCT FROM 7", "i IS NOT DISTINCT FROM NULL", "s.x > 1", "target.s.y = 'Q'",
        "s IS NULL", "l IS NOT NULL", "bo AND NULL", "bo OR NULL", "NOT bo", "i = '7'", "ti > '10:00:00'", "ti = TIME '09:59:59.5'",
        "ns > '2024-01-01'", "ns = TIMESTAMP_NS '2024-01-01 00:00:00.123456789'", "'2024-01-31' = da",
    ),
    "texts": (
        r"t LIKE 'a\_b'", r"t LIKE 'a\_%'", "t LIKE 'a_b'", "t LIKE '100!% %' ESCAPE '!'", "t NOT LIKE '%!%%' ESCAPE '!'",
        "t LIKE '%!%'", "t ILIKE 'A%'", "t NOT ILIKE '%CASE%'", "t || NULL", "t || n", "t || i", "t || de || bo", "concat(t, NULL, i)",
        "concat(NULL, n)", "concat_ws('-', t, NULL, n)", "lower(t)", "upper(t)", "length(t)", "substring(t, 2, 3)", "substr(t, 3)",
        "left(t, 2)", "right(t, 2)", "trim(t)", "ltrim(t)", "rtrim(t)", "trim(t, 'ab ')", "rtrim(t, ' x')", "replace(t, 'a', 'zz')",
        "replace(t, '', 'z')", "starts_with(t, 'a')", "ends_with(t, 'b')", "suffix(t, ' ')", "contains(t, '%')", "instr(t, 'x')",
        "strpos(t, '')", "position('b' IN t)", "lpad(t, 4, '*')", "rpad(t, 6, 'ab')", "md5(t)",
        "coalesce(t, 'none')", "nullif(t, '')", "greatest(t, n)",
    ),
    "times": (
        "da + 1", "da - 1", "3 + da", "da - DATE '2024-01-01'", "da + INTERVAL 1 MONTH", "da - INTERVAL '1 year 1 day'",
        "ts + INTERVAL '1 month 2 days 3.5 seconds'", "ts - INTERVAL 90 MINUTE", "tz + INTERVAL 2 HOUR", "tz - INTERVAL 36 HOUR", "year(da)", "month(ts)",
        "day(ts)", "quarter(da)", "week(da)", "dayofyear(da)", "dayofweek(da)", "isodow(ts)", "hour(ts)", "minute(ts)",
        "extract(dow FROM da)", "date_part('year', ts)", "date_trunc('month', ts)", "date_trunc('week', da)",
        "date_trunc('hour', ts)", "date_trunc('minute', ts)", "date_trunc('second', ts)",
        "date_trunc('quarter', ts)", "date_trunc('day', ts)", "date_diff('day', da, ts::DATE)", "datediff('day', ts, TIMESTAMP '2024-01-01')",
        "last_day(da)", "greatest(da, DATE '2000-01-01')", "coalesce(da, ts)",
    ),
    "lists": (
        "l[1]", "l[-1]", "l[9]", "len(l)", "list_contains(l, 5)", "list_contains(l, i8::INTEGER)", "[i, 1]", "[de, 1.5]", "s.y", "s['x']",
        "m['k']", "{'a': i, 'b': t}", "struct_pack(a := k)",
    ),
}  # fmt: skip
REFUSED = (
    "t = 5", "regexp_matches(t, 'a')", "t SIMILAR TO 'a'", "t GLOB 'a*'", "CAST(d AS VARCHAR)", "CAST(d AS DECIMAL(9,2))", "CAST(t AS TIMESTAMP)",
    "CAST(ts AS TIMESTAMPTZ)", "CAST(tz AS DATE)", "TRY_CAST(t AS INTEGER)", "strftime(ts, '%Y')", "substr(t, -2)", "substr(t, i)",
    "left(t, -1)", "reverse(t)", "pow(d, 2)", "ln(d)", "random() < d", "tz + INTERVAL 1 DAY", "tz > ts", "ts - ts", "date_trunc('month', tz)", "hour(tz)",
    "t COLLATE nocase = 'a'", "l = [1]", "i::HUGEINT * 2", "de * 1.000000000000000000001",
)  # fmt: skip
WRONG = (
    "i IN (SELECT 1)",
    "nothing = 1",
    "i +",
    "i; DROP TABLE t",
    "sum(i) > 1",
    "row_number() OVER () > 1",
    "i > 1 ORDER BY i",
    "1 AS x",
    "nothing(i)",
    "rowid = 1 AND nil",
)


#: To compile it all would take longer than to compute it; and Spark 3.5 has to be told to tell of wrong numbers.
INTERPRETED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> quacklake.Lake:
    folder = tmp_path_factory.mktemp("expressions")
    lake = quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=str(folder / "data"))
    lake.sql(f"CREATE TABLE t({COLUMNS})")
    lake.sql(f"INSERT INTO t VALUES {ROWS}")
    return lake


def plain(value: Any) -> Any:
    """A value in which a NaN is equal to itself, and maps and structs to those of the other side."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("kind", SAME)
def test_values_are_the_same(kind: str, lake: quacklake.Lake, session: SparkSession) -> None:
    spark = quacklake.spark(lake, session)
    schema = lake.handle.view().find_table("main", "t").schema
    texts = SAME[kind]
    with settings(session, INTERPRETED):
        scope = spark._engine.scope(target=schema)
        frame = spark.table("t").selectExpr("k", *(f"{scope.value(text)} AS v{i}" for i, text in enumerate(texts)))
        found = to_arrow(frame).sort_by("k")
    own = lake.sql(f"SELECT {', '.join(texts)} FROM t AS target ORDER BY k").to_arrow()
    different = {
        text: (own.column(i).to_pylist(), found.column(i + 1).to_pylist())
        for i, text in enumerate(texts)
        if plain(own.column(i).to_pylist()) != plain(found.column(i + 1).to_pylist())
    }
    assert different == {}


def test_what_spark_would_understand_otherwise_is_refused(lake: quacklake.Lake, session: SparkSession) -> None:
    spark = quacklake.spark(lake, session)
    scope = spark._engine.scope(target=lake.handle.view().find_table("main", "t").schema)
    for text in REFUSED:
        with pytest.raises(UnsupportedFeatureError, match="in "):
            scope.value(text)
    for text in WRONG:
        with pytest.raises(PredicateError):
            scope.condition(text)
    loose = replace(scope, ansi=False)
    assert loose.condition("i > 5 AND t LIKE 'a%' AND da < '2024-01-01'")
    with pytest.raises(UnsupportedFeatureError, match="too large"):
        loose.condition("i + 1 > 5")


@pytest.mark.needs_spark("4.0")
def test_what_is_too_large_is_an_error(lake: quacklake.Lake, session: SparkSession) -> None:
    spark = quacklake.spark(lake, session)
    scope = spark._engine.scope(target=lake.handle.view().find_table("main", "t").schema)
    for text in ("i + 1", "i8 + 1", "CAST(b AS INTEGER)", "CAST(d AS INTEGER)"):
        with settings(session, INTERPRETED), pytest.raises(ArithmeticException):
            spark.table("t").selectExpr(scope.value(text)).collect()
    version = lake.current_snapshot()
    for text in ("u - 1", "length(upper('ß' || t))"):
        with pytest.raises(ConstraintError, match="out of range" if text == "u - 1" else "do not agree"):
            spark.delete("t", f"{text} IS NULL")
    assert lake.current_snapshot() == version


@pytest.mark.needs_spark("4.0")
def test_statements_change_the_same_rows_in_both(lake: quacklake.Lake, session: SparkSession) -> None:
    """The same delete, update and merge leave the same rows, whether DuckDB or Spark runs them."""
    spark = quacklake.spark(lake, session)
    finite = "d IS NOT NULL AND abs(d) < 100"
    values = {
        "i": expr("CAST(d AS INTEGER)"),
        "b": expr("CAST(de AS BIGINT) // -2"),
        "d": expr("i / b"),
        "t": expr("concat(t, NULL, '|', n)"),
        "da": expr("CAST(da + INTERVAL 1 MONTH AS DATE)"),
        "l": expr("[i % 3, NULL]"),
    }
    gone = "k < 6 AND (CAST(de AS INTEGER) = 3 OR t LIKE 'a\\_%')"
    for name in ("here", "there"):
        lake.sql(f"CREATE TABLE {name} AS SELECT * EXCLUDE (ti, ns) FROM t")
    lake.table("here").update(values, finite)
    spark.update("there", values, finite)
    assert read(lake, "here") == read(lake, "there")
    assert lake.table("here").delete(gone) == spark.delete("there", gone).rows_deleted == 2
    assert spark.table("t", where=gone).count() == lake.table("t").count(gone) == 2
    source = session.createDataFrame([(0, 2.5), (1, 3.5), (9, -0.5)], "k INT, d DOUBLE")
    done = (
        spark.merge("there", source, "target.k = source.k AND CAST(source.d AS INTEGER) < 4")
        .when_matched_update({"i": expr("CAST(source.d AS INTEGER) + target.k // 2")})
        .when_not_matched_insert({"k": expr("source.k"), "i": expr("CAST(d AS INTEGER)")}, "source.d < 0")
        .execute()
    )
    lake.sql(
        """MERGE INTO here AS target USING (VALUES (0, 2.5::DOUBLE), (1, 3.5::DOUBLE), (9, -0.5::DOUBLE)) AS source(k, d)
        ON target.k = source.k AND CAST(source.d AS INTEGER) < 4
        WHEN MATCHED THEN UPDATE SET i = CAST(source.d AS INTEGER) + target.k // 2
        WHEN NOT MATCHED AND source.d < 0 THEN INSERT (k, i) VALUES (source.k, CAST(source.d AS INTEGER))"""
    )
    assert done.rows_inserted == 1
    assert read(lake, "here") == read(lake, "there")


def read(lake: quacklake.Lake, name: str) -> Any:
    return plain([list(row.values()) for row in lake.sql(f"FROM {name} ORDER BY k").to_arrow().to_pylist()])
