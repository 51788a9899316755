"""Histories that meet the rules of the format, by topic. Every step makes at most one snapshot, in either client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from ..clients import LakeSite, plain_duckdb
from ..steps import (
    AddColumn,
    AlterColumn,
    Append,
    Both,
    Create,
    CreateSchema,
    Delete,
    Drop,
    DropColumn,
    Partition,
    Rename,
    RenameColumn,
    SetDefault,
    SetNullable,
    Sort,
    Step,
    Stock,
    Update,
    rows_of,
)

__all__ = ["ODD", "TYPES", "Topic", "topics", "upkeep"]

ODD = '"odd. ""name"" ü"'
TYPES = (
    "k INTEGER, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i64 BIGINT, i128 HUGEINT, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER,"
    " u64 UBIGINT, u128 UHUGEINT, f32 FLOAT, f64 DOUBLE, m DECIMAL(9,2), t TIME, d DATE, ts TIMESTAMP,"
    " tstz TIMESTAMPTZ, s TIMESTAMP_S, ms TIMESTAMP_MS, ns TIMESTAMP_NS, iv INTERVAL, v VARCHAR, x BLOB, j JSON, u UUID"
)
FIELDS = (
    "id INTEGER, small SMALLINT, real FLOAT, s STRUCT(a INTEGER, b VARCHAR), l INTEGER[], m MAP(VARCHAR, BIGINT),"
    " gone VARCHAR"
)
LATER = (
    "id INTEGER, large BIGINT, real DOUBLE, s STRUCT(a INTEGER, b VARCHAR, c DATE), l INTEGER[], m MAP(VARCHAR, BIGINT)"
)
_VALUES = """
    VALUES (0, false, -128, -32768, -9223372036854775808, -5, 0, 0, 0, 0, 0, '-inf'::FLOAT, '-inf'::DOUBLE, -9999999.99,
     '00:00:00'::TIME, DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59.999999',
     TIMESTAMPTZ '1969-12-31 23:59:59+00', '2000-02-29 12:00:00'::TIMESTAMP_S, '1969-12-31 23:59:59.999'::TIMESTAMP_MS,
     '2024-01-01 00:00:00.123456789'::TIMESTAMP_NS, INTERVAL '1 month 3 days', '', ''::BLOB, '{}'::JSON,
     '00000000-0000-0000-0000-000000000000'::UUID),
    (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL, NULL, NULL, NULL, NULL),
    (2, true, 127, 32767, 9223372036854775807, 1267650600228229401496703205376, 255, 65535, 4294967295,
     18446744073709551615, 1267650600228229401496703205376, 3.4028235e38, 1.5, 9999999.99,
     '23:59:59.999999', '9999-12-31', '9999-12-31 23:59:59.999999', '2024-03-31 03:30:00+02',
     '9999-12-31 23:59:59', '9999-12-31 23:59:59.999', '2262-04-11 23:47:16.854775806', INTERVAL '1 year 2 days 03:04:05',
     'Zürich ☃ "it''s"', '\\x00\\xFF'::BLOB, '{"ü": [1, null]}', 'ffffffff-ffff-ffff-ffff-ffffffffffff')
"""


_SHAPES = (
    "SELECT i::INTEGER AS id, {{'a': i, 'b': ['x' || i]}}{} AS v, CAST('POINT(' || i || ' 2)' AS GEOMETRY) AS g,"
    " {{'g': 'LINESTRING(0 0, 1 1)'::GEOMETRY}} AS n FROM range(12) r(i)"
)


def _typed(columns: str, values: str) -> str:
    with plain_duckdb() as connection:
        connection.execute(f"CREATE TABLE t({columns})")
        described = connection.execute("DESCRIBE t").fetchall()
    names = ", ".join(f"v{number}" for number in range(len(described)))
    casts = ", ".join(f'v{number}::{row[1]} AS "{row[0]}"' for number, row in enumerate(described))
    return f"SELECT {casts} FROM ({values}) r({names})"


def numbers(first: int, count: int) -> str:
    return f"SELECT i::INTEGER AS id, 'n' || i AS name, (i / 4)::DOUBLE AS amount FROM range({first}, {first + count}) r(i)"


def _days(first: int, count: int) -> str:
    return (
        f"SELECT i::INTEGER AS id, CASE WHEN i % 5 = 0 THEN NULL ELSE 'r' || (i % 2) END AS region,"
        f" TIMESTAMP '2023-06-15 10:00:00' + INTERVAL (i * 20) DAY AS ts FROM range({first}, {first + count}) r(i)"
    )


@dataclass(frozen=True)
class Topic:
    """Steps about some rules; the tables are those to read at each of its snapshots.

    Those in ``texts`` have types that Arrow does not carry, and are read at the last one as SQL shows them.
    """

    tables: Sequence[str]
    steps: Sequence[Step]
    texts: Sequence[str] = ()


def foreign_folder(site: LakeSite) -> Path:
    """Return a folder with files to add: two, in folders that hold the column ``part``."""
    folder = site.folder / "outside"
    for number in range(2):
        place = folder / f"part={number}"
        if not place.exists():
            place.mkdir(parents=True)
            select = (
                f"SELECT i::INTEGER AS id, 'n' || i AS \"NAME\" FROM range({number * 100}, {number * 100} + 12) r(i)"
            )
            duckdb.sql(f"COPY ({select}) TO '{place}/f.parquet'")
    return folder


def _option(name: str, value: Any, words: str = "", **where: str) -> Both:
    given = f"'{value}'" if isinstance(value, str) else str(value).lower()
    return Both(f"CALL l.set_option('{name}', {given}{words})", lambda lake: lake.options.set(name, value, **where))


def topics(site: LakeSite) -> Mapping[str, Topic]:
    """The history of a lake, in order."""
    folder = foreign_folder(site)
    return {
        # first: once a lake has views, stock DuckLake 1.5.5 ends with a segmentation fault when the lake or a schema gets
        # an option
        "options": Topic(
            [],
            [
                CreateSchema("s"),
                Create("s.optional", "id INTEGER"),
                _option("parquet_compression", "zstd"),
                _option("data_inlining_row_limit", 7, ", schema => 's'", schema="s"),
                _option("target_file_size", "10MiB", ", schema => 's', table_name => 'optional'", table="s.optional"),
            ],
        ),
        "objects": Topic(
            ["place", "moved"],
            [
                CreateSchema('odd. "name" ü'),
                Create(f'{ODD}."t, 1"', "id INTEGER, name VARCHAR, amount DOUBLE"),
                Append(f'{ODD}."t, 1"', numbers(0, 12)),
                Create("place", "id INTEGER, name VARCHAR, amount DOUBLE"),
                Append("place", numbers(0, 12)),
                Rename("place", "moved"),
                Append("moved", numbers(12, 2)),
                Create("short", "id INTEGER, name VARCHAR, amount DOUBLE"),
                Append("short", numbers(0, 12)),
                Drop("short"),
                Both(
                    "CREATE VIEW v AS SELECT id, name FROM moved WHERE id > 1",
                    lambda lake: lake.create_view("v", "SELECT id, name FROM moved WHERE id > 1"),
                ),
                Both(
                    'CREATE VIEW s.w(x, "y ""z") AS SELECT id, name FROM main.moved',
                    lambda lake: lake.create_view("s.w", "SELECT id, name FROM main.moved", columns=["x", 'y "z']),
                ),
                Both("ALTER VIEW v RENAME TO v2", lambda lake: lake.rename_view("v", "v2")),
                Both("COMMENT ON VIEW v2 IS 'it''s a view'", lambda lake: lake.view("v2").set_comment("it's a view")),
                Both("COMMENT ON TABLE moved IS 'first'", lambda lake: lake.table("moved").set_comment("first")),
                Both("COMMENT ON TABLE moved IS 'second'", lambda lake: lake.table("moved").set_comment("second")),
                Both(
                    "COMMENT ON COLUMN moved.name IS 'who'",
                    lambda lake: lake.table("moved").set_column_comment("name", "who"),
                ),
                Both(
                    "CREATE MACRO s.two(x, y := 5, z := 'it''s') AS x + y",
                    lambda lake: lake.create_macro("s.two", {"x": None, "y": 5, "z": "it's"}, "x + y"),
                ),
                Both(
                    "CREATE MACRO above(n) AS TABLE SELECT id FROM moved WHERE id > n",
                    lambda lake: lake.create_macro("above", ["n"], "SELECT id FROM moved WHERE id > n", table=True),
                ),
                Both("DROP MACRO s.two", lambda lake: lake.drop_macro("s.two")),
                Both(
                    [
                        "BEGIN",
                        "CALL l.set_commit_message('me', 'why', extra_info => '{\"a\": 1}')",
                        "INSERT INTO moved VALUES (50, 'signed', 1.5)",
                        "COMMIT",
                    ],
                    lambda lake: (
                        lake.signed("why", "me", '{"a": 1}')
                        .table("moved")
                        .append([{"id": 50, "name": "signed", "amount": 1.5}])
                    ),
                ),
            ],
        ),
        "types": Topic(
            ["kinds"],
            [
                Create("kinds", TYPES),
                Append("kinds", _typed(TYPES, _VALUES)),
                Append(
                    "kinds",
                    f"SELECT q.* REPLACE ((k + 10 * i)::INTEGER AS k) FROM ({_typed(TYPES, _VALUES)}) q, range(1, 6) r(i)",
                ),
                Update("kinds", {"k": "k + 1000"}, "k = 2"),
                Delete("kinds", "k = 1"),
            ],
        ),
        "zones": Topic(
            [],
            [
                Create("zones", "k INTEGER"),
                Append("zones", "SELECT i::INTEGER FROM range(12) r(i)"),
                AddColumn("zones", "tz", "TIMETZ"),
                Update("zones", {"tz": "CAST('12:34:56.5+0' || k || ':30' AS TIMETZ)"}, "k < 10"),
            ],
            ["zones"],
        ),
        "evolution": Topic(
            ["fields"],
            [
                Create("fields", FIELDS),
                Append(
                    "fields",
                    _typed(
                        FIELDS,
                        "SELECT i, i, i / 4, {'a': i, 'b': 'b' || i}, [i, NULL], MAP {'k': i}, 'g' FROM range(12) r(i)",
                    ),
                ),
                Append("fields", _typed(FIELDS, "SELECT 20, 1, 0.5, NULL, NULL, NULL, 'g'")),
                AddColumn("fields", "added", "INTEGER", 7),
                RenameColumn("fields", "small", "large"),
                AlterColumn("fields", "large", "BIGINT"),
                AlterColumn("fields", "real", "DOUBLE"),
                DropColumn("fields", "gone"),
                AddColumn("fields", "s.c", "DATE"),
                SetDefault("fields", "added", 9),
                SetNullable("fields", "id", False),
                Append(
                    "fields",
                    _typed(LATER, "SELECT 30, 5000000000, 1e300, NULL, NULL, NULL"),
                    ("id", "large", "real", "s", "l", "m"),
                ),
                Append(
                    "fields",
                    _typed(
                        f"{LATER}, added INTEGER",
                        "SELECT i, 5000000000, 1e300, {'a': i, 'b': 'x', 'c': DATE '2024-01-01'}, [], MAP {}, i"
                        " FROM range(40, 52) r(i)",
                    ),
                ),
            ],
        ),
        "partitions": Topic(
            ["parts"],
            [
                Create("parts", "id INTEGER, region VARCHAR, ts TIMESTAMP"),
                Partition("parts", ["bucket(4, id)", "year(ts)"]),
                Append("parts", _days(0, 24)),
                Partition("parts", ["region", "month(ts)"]),
                Append("parts", _days(24, 24)),
                Update("parts", {"region": "'moved/on'"}, "id < 20"),
                Partition("parts"),
                Append("parts", _days(48, 12)),
            ],
        ),
        "orders": Topic(
            ["ordered"],
            [
                Create("ordered", "id INTEGER, name VARCHAR, amount DOUBLE"),
                Sort("ordered", ["name DESC NULLS FIRST", "id % 7"]),
                Append("ordered", numbers(0, 30)),
                Sort("ordered"),
                Append("ordered", numbers(30, 12)),
            ],
        ),
        "deletes": Topic(
            ["things"],
            [
                Create("things", "id INTEGER, name VARCHAR, amount DOUBLE"),
                Append("things", numbers(0, 60)),
                Append("things", numbers(100, 20)),
                Append("things", numbers(200, 4)),
                Delete("things", "id BETWEEN 5 AND 19"),
                Delete("things", "id BETWEEN 20 AND 34"),
                Delete("things", "id IN (1, 200)"),
                Update("things", {"name": "'big'"}, "id BETWEEN 35 AND 49"),
                Update("things", {"name": "'small'"}, "id IN (2, 201)"),
                Delete("things", "id BETWEEN 100 AND 119"),
                Delete("things"),
                Append("things", numbers(300, 12)),
            ],
        ),
        "vectors": Topic(
            ["vectors"],
            [
                Create("vectors", "id INTEGER, name VARCHAR, amount DOUBLE"),
                _option("write_deletion_vectors", True, ", table_name => 'vectors'", table="vectors"),
                Append("vectors", numbers(0, 40)),
                Delete("vectors", "id BETWEEN 5 AND 30"),
            ],
        ),
        "variants": Topic(
            [],
            [
                Create("shapes", "id INTEGER, v VARIANT, g GEOMETRY, n STRUCT(g GEOMETRY)"),
                Both(
                    f"INSERT INTO shapes {_SHAPES.format('::VARIANT')}",
                    lambda lake: lake.table("shapes").append(rows_of(_SHAPES.format(""))),
                ),
                Delete("shapes", "id = 3"),
            ],
            ["shapes"],
        ),
        "added": Topic(
            ["added"],
            [
                Create("added", "id BIGINT, name VARCHAR, part INTEGER"),
                Both(
                    f"CALL ducklake_add_data_files('l', 'added', '{folder}/*/*.parquet', hive_partitioning => true)",
                    lambda lake: lake.table("added").add_files(folder / "*" / "*.parquet"),
                ),
                Delete("added", "id BETWEEN 100 AND 104"),
                RenameColumn("added", "name", "label"),
                Append("added", "SELECT 500::BIGINT, 'own', 5"),
            ],
        ),
    }


def upkeep(site: LakeSite) -> Mapping[str, Topic]:
    """Return histories with compaction, by topic; the reference implementation compacts in every lake."""
    return {
        "flush": Topic(
            ["flushed"],
            [
                Create("flushed", "id INTEGER, name VARCHAR, amount DOUBLE"),
                Append("flushed", numbers(0, 30)),
                Append("flushed", numbers(100, 4)),
                Append("flushed", numbers(104, 3)),
                Delete("flushed", "id IN (3, 101)"),
                Delete("flushed", "id IN (4, 5)"),
                Stock("CALL ducklake_flush_inlined_data('l', table_name => 'flushed')"),
                Delete("flushed", "id IN (6, 102)"),
            ],
        ),
        "merge": Topic(
            ["merged"],
            [
                Create("merged", "id INTEGER, name VARCHAR, amount DOUBLE"),
                Append("merged", numbers(0, 30)),
                Append("merged", numbers(30, 30)),
                Append("merged", numbers(60, 30)),
                Stock("CALL ducklake_merge_adjacent_files('l', 'merged')"),
                Delete("merged", "id BETWEEN 20 AND 40"),
                Update("merged", {"name": "'late'"}, "id BETWEEN 50 AND 70"),
            ],
        ),
    }
