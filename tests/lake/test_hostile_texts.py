"""Texts that others write, in the metadata or through an application, compute values from rows and reach nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import InputError, PredicateError, QuacklakeError

_SECRET = "canary-91c2"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of somebody else."""
    folder = tmp_path / "victim" / "main"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"v": [_SECRET]}), folder / "a.parquet")
    return tmp_path / "victim"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "files") as found:
        found.create_table("t", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        yield found


def _hostile(victim: Path) -> list[str]:
    files = f"read_parquet('{victim}/**/*.parquet')"
    return [
        f"EXISTS (FROM {files} WHERE v = '{_SECRET}')",
        f"id IN (SELECT length(v) FROM {files})",
        f"(SELECT count(*) FROM '{victim}/main/a.parquet') = 1",
        f"list_transform([1], x -> (SELECT v FROM {files}))[1] = '{_SECRET}'",
        f"CASE WHEN id = 1 THEN (SELECT true FROM {files}) END",
        "id < ALL (SELECT 1)",
        "getvariable('x') IS NULL",
        "current_setting('temp_directory') IS NOT NULL",
        "getenv('HOME') IS NOT NULL",
        "write_log('x') IS NULL",
        "json_serialize_sql('SELECT 1') IS NOT NULL",
        "true FROM range(3)",
        "true; SELECT 1",
        "id = ?",
    ]


_USES: dict[str, Callable[[quacklake.Table, str], object]] = {
    "count": lambda table, text: table.count(text),
    "scan": lambda table, text: table.to_arrow(where=text),
    "frame": lambda table, text: table.scan().where("id > 0").where(text).to_arrow(),
    "delete": lambda table, text: table.delete(text),
    "update": lambda table, text: table.update({"name": "x"}, text),
    "value": lambda table, text: table.update({"name": quacklake.Expression(text)}),
    "overwrite": lambda table, text: table.overwrite([{"id": 9, "name": "z"}], text),
    "compaction": lambda table, text: table.optimize(where=text),
    "changes": lambda table, text: table.changes(0).where(text).to_arrow(),
    "sort": lambda table, text: table.set_sorted_by(text),
    "default": lambda table, text: table.set_default("name", quacklake.Expression(text)),
}


@pytest.mark.parametrize("use", _USES)
def test_a_text_that_reaches_beyond_the_row_is_refused(lake: quacklake.Lake, victim: Path, use: str) -> None:
    before = lake.current_snapshot()
    for text in _hostile(victim):
        with pytest.raises(InputError) as caught:
            _USES[use](lake.table("t"), text)
        assert use not in ("count", "scan", "delete", "update") or isinstance(caught.value, PredicateError), text
    assert lake.current_snapshot() == before


@pytest.mark.parametrize(
    "text",
    [
        "id = 1 -- the first",
        "name LIKE 'a%' AND id BETWEEN 0 AND 1",
        "list_contains(list_transform([1], x -> x + 0), id)",
        "id IS NOT DISTINCT FROM 1",
        "coalesce(TRY_CAST(name AS INTEGER), id) = 1 AND now() > DATE '2020-01-01'",
        "id::DOUBLE = 1e0",
    ],
)
def test_a_plain_condition_is_still_one(lake: quacklake.Lake, text: str) -> None:
    assert lake.table("t").count(text) == 1


def _stored(lake: quacklake.Lake, tmp_path: Path, statement: str, *values: object) -> None:
    """Change the metadata as another client might."""
    lake.close()
    with sqlite3.connect(tmp_path / "lake.db") as database:
        assert database.execute(statement, values).rowcount
    database.close()


_DEFAULTS = [
    "(SELECT string_agg(v, ';') FROM read_parquet('{victim}/**/*.parquet'))",
    "(SELECT content FROM read_text('{victim}/main/a.parquet'))",
    "getvariable('ql_keys')",
    "current_setting('secret_directory')",
    "'x') AS VARCHAR), (SELECT 1",
    "'x'; COPY (SELECT 1) TO '{victim}/written.csv'",
]


@pytest.mark.parametrize("default", _DEFAULTS)
def test_a_stored_default_that_reaches_beyond_values_is_never_computed(
    lake: quacklake.Lake, tmp_path: Path, victim: Path, default: str
) -> None:
    _stored(
        lake,
        tmp_path,
        "UPDATE ducklake_column SET default_value = ?, default_value_type = 'expression' WHERE column_name = 'name'",
        default.format(victim=victim),
    )
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as again:
        table = again.table("t")
        writes: list[Callable[[], object]] = [
            lambda: table.append([{"id": 3}]),
            lambda: table.append(pa.table({"id": range(1000)})),
            lambda: again.sql("INSERT INTO t (id) VALUES (3)"),
            lambda: again.sql("INSERT INTO t DEFAULT VALUES"),
            lambda: again.sql("UPDATE t SET name = DEFAULT"),
            lambda: again.sql(
                "MERGE INTO t USING (SELECT 8 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
            ),
        ]
        for write in writes:
            with pytest.raises(QuacklakeError):
                write()
        assert table.count() == 2
        # listings bind what is stored, and must not fail for it, nor run it
        assert again.sql("SELECT count(*) FROM duckdb_columns() WHERE table_name = 't'").fetchall() == [(2,)]
    assert [path.name for path in victim.rglob("*.csv")] == []


def test_a_comment_in_a_stored_default_swallows_nothing(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.table("t").add_column("more", "VARCHAR")
    evil = "'\n) AS VARCHAR), CAST((SELECT 42) AS VARCHAR) --'"
    change = "UPDATE ducklake_column SET default_value = ?, default_value_type = 'expression' WHERE column_name = ?"
    _stored(lake, tmp_path, change, "'x' --", "name")
    _stored(lake, tmp_path, change, evil, "more")
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as again:
        again.table("t").append([{"id": 3}])
        (row,) = again.table("t").to_pylist(where="id = 3")
    assert row == {"id": 3, "name": "x", "more": evil[1:-1]}


def test_a_stored_order_that_reaches_beyond_the_row_is_never_computed(
    lake: quacklake.Lake, tmp_path: Path, victim: Path
) -> None:
    lake.table("t").set_sorted_by("name")
    files = f"read_parquet('{victim}/**/*.parquet')"
    changes = [
        ("expression", f"(SELECT error(v) FROM {files})"),
        ("expression", f"name; COPY (FROM {files}) TO '{victim}/written.csv'"),
        ("sort_direction", f"ASC, (SELECT error(v) FROM {files})"),
        ("null_order", f"NULLS LAST, (SELECT error(v) FROM {files})"),
    ]
    kept = {"expression": "name", "sort_direction": "ASC", "null_order": "NULLS_LAST"}
    for column, text in changes:
        _stored(lake, tmp_path, f"UPDATE ducklake_sort_expression SET {column} = ?", text)
        with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as again:
            with pytest.raises(InputError) as caught:
                again.table("t").append(pa.table({"id": range(1000), "name": ["x"] * 1000}))
            with pytest.raises(InputError):
                again.sql("INSERT INTO t SELECT 1, 'x'")
        assert f"Error: {_SECRET}" not in str(caught.value)
        _stored(lake, tmp_path, f"UPDATE ducklake_sort_expression SET {column} = ?", kept[column])
    assert [path.name for path in victim.rglob("*.csv")] == []


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("macro", "(SELECT max(v) FROM read_parquet('{victim}/**/*.parquet'))"),
        ("macro", "1; COPY (SELECT 1) TO '{victim}/written.csv'"),
        ("parameter", "1) AS 1; COPY (SELECT 1) TO '{victim}/written.csv'; CREATE TEMP MACRO q(x := (1"),
        ("view", "SELECT 1; COPY (SELECT 1) TO '{victim}/written.csv'"),
        ("view", "SELECT * FROM read_parquet('{victim}/**/*.parquet')"),
        ("view", "SELECT * FROM '{victim}/main/a.parquet'"),
    ],
)
def test_what_is_stored_of_views_and_macros_runs_nothing_when_it_is_listed_or_sorted_by(
    lake: quacklake.Lake, tmp_path: Path, victim: Path, kind: str, sql: str
) -> None:
    lake.sql("CREATE MACRO m(x, y := 1) AS x; CREATE VIEW w AS SELECT 1 AS one")
    lake.table("t").set_sorted_by("m(name)")
    change = {
        "macro": "UPDATE ducklake_macro_impl SET sql = ?",
        "parameter": "UPDATE ducklake_macro_parameters SET default_value = ?, default_value_type = 'expression'"
        " WHERE parameter_name = 'y'",
        "view": "UPDATE ducklake_view SET sql = ?",
    }[kind]
    _stored(lake, tmp_path, change, sql.format(victim=victim))
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as again:
        for listing in ("duckdb_functions", "duckdb_views", "duckdb_columns"):
            again.sql(f"FROM {listing}() WHERE database_name = 'lake'").to_arrow()
        shown = again.sql("SELECT count(*) FROM duckdb_columns() WHERE column_name = 'v'").fetchall()
        assert shown == [(0,)]
        rows = pa.table({"id": range(1000), "name": ["x"] * 1000})
        if kind == "view":
            again.table("t").append(rows)
        else:
            with pytest.raises(InputError):
                again.table("t").append(rows)
    assert [path.name for path in victim.rglob("*.csv")] == []
