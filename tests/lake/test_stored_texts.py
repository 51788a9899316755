"""Texts of the metadata and of applications run as expressions over a row only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import InputError, QuacklakeError
from tests.hostile import payloads
from tests.seeds import chance, some

OUTSIDE = "what is outside"
READ = "(SELECT content FROM read_text('{}'))"
#: Texts that are more than one expression over a row. ``{}`` is a file that nobody may read, and one that nobody made.
HOSTILE = (
    f'"{READ}) AS VARCHAR) AS VARCHAR) AS v FROM (SELECT 7) AS src(c0) --".*',
    "\"src(c0); COPY (SELECT 1) TO '{}.new'; SELECT 7 AS id, 'x' AS v --\".*",
    "\"id) TO '{}.new' (FORMAT parquet) --\".*",
    f'"{READ}, t".*',
    f'COLUMNS("{READ}, t".*)',
    READ,
    "read_text('{}')",
    "1; COPY (SELECT 1) TO '{}.new'",
    "1) AS VARCHAR), (2",
    "1 FROM t",
    "1 GROUP BY ALL",
    "1 UNION SELECT 2",
    "1, 2",
    "1 AS x",
    "*",
    "t.*",
    "current_setting('allowed_directories')",
    "getenv('HOME')",
    "getvariable('x')",
    "query('SELECT 1')",
    "?",
    "$x",
    "",
    "--",
    "'",
    "\0",
    "(" * 5000,
    "1" + " + 1" * 5000,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text(OUTSIDE)
    with opened(tmp_path) as lake:
        lake.sql("CREATE TABLE t (id BIGINT, v VARCHAR DEFAULT 'a')")
        lake.sql("ALTER TABLE t SET SORTED BY (id)")
        lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return tmp_path


def opened(folder: Path) -> Lake:
    return quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=folder / "data")


def change_metadata(folder: Path, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(folder / "lake.db")) as connection, connection:
        connection.execute(statement, values)


def assert_safe(folder: Path, run: Callable[[], object], text: str) -> None:
    """Assert that something fails with a typed error, shows nothing and writes nothing."""
    with pytest.raises(QuacklakeError) as failed:
        run()
    assert OUTSIDE not in str(failed.value)
    assert not list(folder.glob("*.new")), text


def test_a_hostile_default_runs_nothing(folder: Path) -> None:
    writes: list[Callable[[Lake], object]] = [
        lambda lake: lake.sql("INSERT INTO t (id) VALUES (7) RETURNING v").fetchall(),
        lambda lake: lake.sql("INSERT INTO t VALUES (7, DEFAULT)"),
        lambda lake: lake.sql("UPDATE t SET v = DEFAULT"),
        lambda lake: lake.sql(
            "MERGE INTO t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (id)"
        ),
        lambda lake: lake.table("t").append([{"id": 8}]),
    ]
    for text in some(HOSTILE, 8, "hostile defaults", always=HOSTILE[:2]):
        text = text.replace("{}", str(folder / "outside.txt"))
        kind = "default_value_type = 'expression', default_value_dialect = 'duckdb', default_value = ?"
        change_metadata(folder, f"UPDATE ducklake_column SET {kind} WHERE column_name = 'v'", text)
        with opened(folder) as lake:
            for write in writes:
                assert_safe(folder, lambda write=write, lake=lake: write(lake), text)  # type: ignore[misc]
            assert lake.table("t").count() == 2
            lake.sql("SHOW CREATE TABLE t")
            lake.sql("FROM duckdb_columns()")


def test_a_hostile_sort_key_runs_nothing(folder: Path) -> None:
    for text in some(HOSTILE, 8, "hostile sort keys", always=HOSTILE[2:3]):
        text = text.replace("{}", str(folder / "outside.txt"))
        change_metadata(folder, "UPDATE ducklake_sort_expression SET expression = ?", text)
        with opened(folder) as lake:
            assert_safe(folder, lake.maintenance.flush_inlined_data, text)
            assert_safe(folder, lambda lake=lake: lake.sql("INSERT INTO t VALUES (3, 'c')"), text)  # type: ignore[misc]
            assert lake.table("t").count() == 2


def test_a_hostile_macro_runs_nothing(folder: Path) -> None:
    with opened(folder) as lake:
        lake.sql("CREATE MACRO twice(x) AS x * 2")
        lake.sql("CREATE MACRO rows_of(x) AS TABLE SELECT * FROM t WHERE id = x")
        lake.sql("CREATE VIEW seen AS SELECT id FROM t")
    for text in some(HOSTILE, 8, "hostile macros", always=HOSTILE[:2]):
        text = text.replace("{}", str(folder / "outside.txt"))
        if any(read in text for read in ("current_setting", "getenv", "getvariable", "COLUMNS")) or text in ("1 AS x",):
            continue  # whoever runs it may read that
        change_metadata(folder, "UPDATE ducklake_macro_impl SET sql = ?", text)
        change_metadata(folder, "UPDATE ducklake_view SET sql = ?", text)
        with opened(folder) as lake:
            for sql in ("SELECT twice(2)", "FROM rows_of(1)", "FROM seen", "SELECT twice(id) FROM t"):
                assert_safe(folder, lambda sql=sql, lake=lake: lake.sql(sql).fetchall(), text)  # type: ignore[misc]
            lake.sql("FROM duckdb_functions() WHERE function_name = 'twice'")
            lake.sql("SHOW TABLES")


def test_hostile_texts_of_applications_run_nothing(folder: Path) -> None:
    uses: list[Callable[[Lake, str], object]] = [
        lambda lake, text: lake.table("t").update({"v": quacklake.expr(text)}),
        lambda lake, text: lake.table("t").update({"v": "x"}, where=text),
        lambda lake, text: lake.table("t").delete(text),
        lambda lake, text: lake.table("t").to_arrow(where=text),
        lambda lake, text: lake.table("t").count(text),
        lambda lake, text: lake.table("t").set_sorted_by(text),
        lambda lake, text: lake.table("t").merge([{"id": 1}]).on(text).when_matched_delete().execute(),
    ]
    with opened(folder) as lake:
        before = lake.sql("FROM t ORDER BY id").fetchall()
        for text in some(HOSTILE, 8, "hostile texts", always=HOSTILE[:4]):
            text = text.replace("{}", str(folder / "outside.txt"))
            for use in uses:
                assert_safe(folder, lambda use=use, text=text: use(lake, text), text)  # type: ignore[misc]
        for name in some(payloads(str(folder / "outside.txt")), 8, "hostile names in expressions"):
            quoted = '"' + name.replace('"', '""') + '"'
            text = chance("places of names", name).choice(
                [f"{quoted}.*", f"COLUMNS({quoted}.*)", f"(v).{quoted}", f"${quoted}", f"v::{quoted}", f"{quoted}(v)"]
            )
            for use in uses:
                assert_safe(folder, lambda use=use, text=text: use(lake, text), text)  # type: ignore[misc]
        assert lake.sql("FROM t ORDER BY id").fetchall() == before


def test_names_that_need_quotes_keep_their_meaning(folder: Path) -> None:
    with opened(folder) as lake:
        lake.sql("""CREATE TABLE c ("it's" INTEGER, s STRUCT("it's" INTEGER, "it''s" INTEGER, "a b" INTEGER))""")
        lake.sql("""INSERT INTO c SELECT "a b".* FROM (SELECT 1, {'it''s': 2, 'it''''s': 3, 'a b': 4}) AS "a b" """)
        lake.sql('CREATE VIEW of_c AS SELECT "a b".* FROM c AS "a b"')
        lake.sql('CREATE MACRO all_c() AS TABLE SELECT "a b".* FROM c AS "a b"')
        row = (1, {"it's": 2, "it''s": 3, "a b": 4})
        for sql in (
            'SELECT "a b".* FROM c AS "a b"',
            "FROM of_c",
            "FROM all_c()",
            'SELECT COLUMNS("a b".*) FROM c "a b"',
        ):
            assert lake.sql(sql).fetchall() == [row], sql
        assert lake.sql('SELECT "a b".*, rowid FROM c AS "a b"').fetchall() == [(*row, 0)]
        field = """SELECT (s)."it's", (s)."it''s", (s)."a b", main.c."it's", s."it's" FROM c WHERE rowid = 0"""
        assert lake.sql(field).fetchall() == [(2, 3, 4, 1, 2)]
        assert lake.sql("SELECT (CASE WHEN true THEN [1, 2] END)[1:1] FROM c WHERE rowid = 0").fetchall() == [([1],)]
        assert lake.table("c").update({"it's": quacklake.expr("""(s)."it's" """)}) == 1
        assert lake.sql("""SELECT "it's" FROM c""").fetchall() == [(2,)]
        with pytest.raises(InputError):
            lake.table("c").update({"it's": quacklake.expr('"a b".*')})


def test_variables_of_any_type_stand_in_conditions(folder: Path) -> None:
    with opened(folder) as lake:
        for value, condition in (
            ("'a' || chr(0) || 'b'", "v < getvariable('x')"),
            ("union_value(k := 1)", "id = getvariable('x').k"),
            ("{'a\"b': 1}", 'id = getvariable(\'x\')."a""b"'),
            ("1", "id = getvariable('x')"),
        ):
            lake.sql(f"SET VARIABLE x = {value}")
            assert lake.sql(f"SELECT id FROM t WHERE {condition}").fetchall() == [(1,)], condition
