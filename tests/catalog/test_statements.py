"""The statements that reach the database: no user data in their text, and no more of them for more data."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from quacklake import Lake
from quacklake.core.catalog.databases import sqlite
from quacklake.core.catalog.statements import among, arrow_table
from tests.catalog.driver import watch_driver, watch_sqlite
from tests.layout import LAYOUT

NewUrl = Callable[[str], str]
ALL = [
    "sqlite",
    "duckdb",
    "postgres",
    "mysql",
]
MARK = "zq'\"%s:x;--"
"""Part of every value and name that a user gives."""
NUMBER = 918273645


@contextmanager
def captured(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The text of every statement, also of those that go to the driver directly."""
    statements: list[str] = []
    engine = lake._context.catalog._engine

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    if engine.dialect.name == "postgresql":
        with monkeypatch.context() as patch:
            watch_driver(patch, lambda statement, _: statements.append(statement))
            yield statements
        return
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        with monkeypatch.context() as patch:
            watch_sqlite(patch, lambda statement, _: statements.append(statement))
            yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize("database", ALL)
def test_no_statement_has_user_data_in_its_text(
    database: str, new_url: NewUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        schema, table = f"schema {MARK}", f"table {MARK}"
        name = '"' + schema.replace('"', '""') + '"."' + table.replace('"', '""') + '"'
        column = f"column {MARK}"
        where = '"' + column.replace('"', '""') + "\" = 'zq''\"%s:x;--5' OR n = 918273645"
        with captured(lake, monkeypatch) as statements:
            lake.create_schema(schema)
            lake.create_table(name, [{column: f"{MARK}{n}", "n": NUMBER} for n in range(4)])
            lake.table(name).append([{column: f"{MARK}{n}", "n": NUMBER + n} for n in range(30)])
            lake.table(name).update({column: MARK}, where)
            lake.table(name).delete("n = 918273645")
            with lake.transaction(message=MARK, author=MARK, extra=MARK) as tx:
                tx.table(name).append([{column: MARK, "n": NUMBER}])
            assert lake.table(name).count(where) == 1
            lake.table(name).merge([{column: MARK, "n": NUMBER}], on=column)
            lake.table(name).set_comment(MARK)
            lake.table(name).set_column_comment(column, MARK)
            lake.table(name).set_tags({MARK: MARK})
            view, sql = name.replace("table", "view"), f"SELECT 'zq''\"%s:x;--' AS v FROM {name}"
            assert lake.create_view(view, sql).count() == lake.table(name).count()
            lake.create_macro(name.replace("table", "macro"), {MARK: MARK}, "'zq''\"%s:x;--'")
            assert (lake.table(name).tags, len(lake.macros()), lake.views()) == (
                {MARK: MARK},
                1,
                [f"{schema}.view {MARK}"],
            )
            lake.snapshots()
            lake.tables()
            new_name = name.replace("table", "other")
            lake.rename_table(name, new_name)
            lake.drop_schema(schema, cascade=True)
    assert len(statements) > 50
    for statement in statements:
        assert str(NUMBER) not in statement
        assert "table zq" not in statement
        assert "other zq" not in statement
        assert "schema zq" not in statement
        # the columns of inlined rows are columns of the database too: quoted names, nothing else
        left = statement.replace("%%", "%")
        for quoted in (f'"{column.replace(chr(34), chr(34) * 2)}"', f"`{column}`"):
            left = left.replace(quoted, "")
        for word in ("column_zq", "_s:x;--"):
            left = left.replace(word, "")
        assert "zq'" not in left, statement
    assert any("zq" in statement for statement in statements) == (LAYOUT == "plain"), "packed rows have no columns"


def _count(lake: Lake, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    with captured(lake, monkeypatch) as statements:
        work()
    return len(statements)


@pytest.mark.parametrize("database", ALL)
def test_a_commit_has_the_same_number_of_statements_whatever_it_writes(
    database: str, new_url: NewUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(columns: int, rows: int) -> pa.Table:
        return pa.table({f"c{n}": list(range(rows)) for n in range(columns)})

    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        counts = []
        for columns in (2, 40):
            lake.create_table(f"t{columns}", table(columns, 3))
            lake.table(f"t{columns}").append(table(columns, 3))
            lake.table(f"t{columns}").append(table(columns, 30))
            counts.append(
                (
                    _count(lake, monkeypatch, lambda c=columns: lake.table(f"t{c}").append(table(c, 1))),  # type: ignore[misc]
                    _count(lake, monkeypatch, lambda c=columns: lake.table(f"t{c}").append(table(c, 9))),  # type: ignore[misc]
                    _count(lake, monkeypatch, lambda c=columns: lake.table(f"t{c}").append(table(c, 500))),  # type: ignore[misc]
                )
            )
        few, many = counts
        assert few == many
        assert few[0] == few[1]
        assert max(few) < 20


@pytest.mark.parametrize("database", ALL)
def test_planning_has_the_same_number_of_statements_whatever_there_is(
    database: str, new_url: NewUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"x": n} for n in range(20)]
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        t = lake.create_table("t", rows)
        t.append(rows[:3])
        t.delete("x = 3")
        t.delete("x > 15")
        first = _count(lake, monkeypatch, lambda: t.plan("x > 5"))
        for _ in range(6):
            t.append(rows)
            t.append(rows[:2])
            t.delete("x = 7")
        assert _count(lake, monkeypatch, lambda: t.plan("x > 5")) == first


@given(st.lists(st.integers(0, 60), unique=True, max_size=60))
@settings(max_examples=30)
def test_ids_are_found_by_their_runs_or_one_by_one(ids: list[int]) -> None:
    numbers = sa.Table("numbers", sa.MetaData(), sa.Column("id", sa.BigInteger(), primary_key=True))
    with sa.create_engine("sqlite://").begin() as connection:
        numbers.create(connection)
        connection.execute(sa.insert(numbers), [{"id": id_} for id_ in range(61)])
        found = connection.execute(sa.select(numbers.c.id).where(among(numbers.c.id, ids))).scalars()
        assert sorted(found) == sorted(ids)


@pytest.mark.skipif(LAYOUT == "shared", reason="has a lake of each kind")
@pytest.mark.parametrize("shared", [False, True])
def test_many_rows_are_stored_in_sqlite_as_few_are(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([(f"{MARK}?", pa.string()), ("%", pa.bool_()), ("at", pa.timestamp("us")), ("b", pa.binary())])
    columns = [[MARK, None] * 4, [True, False, None, True] * 2, [0, 1, None, -1] * 2, [b"\0", b"x"] * 4]
    rows = pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
    stored = []
    for many in (1, 1_000):
        monkeypatch.setattr(sqlite, "_MANY", many)
        path = tmp_path / f"{many}.db"
        options: dict[str, Any] = {"data_path": tmp_path / f"data-{many}"}
        if shared:
            with quacklake.tenants(f"sqlite:///{path}", **options) as tenants:
                tenants.create("other")
                tenants.create("mine")
            options = {"catalog": "mine"}
        with quacklake.connect(f"sqlite:///{path}", **options) as lake:
            for name in ("inlined", "flushed"):
                table = lake.create_table(name, schema)
                table.append(rows)
                assert table.to_arrow().equals(rows)
            assert table.flush_inlined_data()
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            names = [name for (name,) in found if "inlined" in name or name.endswith("_stats")]
            stored.append([(name, database.execute(f'SELECT * FROM "{name}"').fetchall()) for name in names])
    assert stored[0] == stored[1]
    assert sum(len(kept) for _, kept in stored[0]) > len(rows)


@pytest.mark.parametrize("times", [1, 600])
@pytest.mark.parametrize(
    "stored", [[], [1, 0, None], ["true", "0", "F", "T", None, 1, 0]], ids=["none", "ints", "texts"]
)
def test_rows_become_arrow_whatever_their_number_and_however_a_flag_is_stored(stored: list[Any], times: int) -> None:
    rows = [{"n": n, "flag": value} for n, value in enumerate(stored * times)]
    with sa.create_engine("sqlite://").connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n BIGINT, flag)")
        if rows:
            connection.execute(sa.text("INSERT INTO t VALUES (:n, :flag)"), rows)
        found = connection.execute(sa.text("SELECT n, flag FROM t ORDER BY n"))
        table = arrow_table(found, {"n": pa.int64(), "flag": pa.bool_()})
    true = {1: True, "true": True, "T": True, None: None}
    assert table.schema == pa.schema([("n", pa.int64()), ("flag", pa.bool_())])
    assert table.to_pylist() == [{"n": row["n"], "flag": true.get(row["flag"], False)} for row in rows]
