"""Inlined rows whose text DuckDB reads otherwise than it was written: kept out of the catalog, and read if they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.format.texts import parse_column
from quacklake.core.scan.nested_texts import parse_nested
from quacklake.errors import CatalogError, ConstraintError
from tests.catalog.stock import Stock
from tests.layout import LAYOUT

DATABASES = ("sqlite", "duckdb", "postgres", "mysql")

# type -> SQL of a value whose text DuckDB does not read again as the value
LOST = {
    "JSON[]": "[NULL]::JSON[]",
    "JSON[][]": "[[NULL, '1'::JSON]]",
    "VARCHAR[][]": "[['a,b]']]",
    "STRUCT(a VARCHAR[])": "{'a': ['a,b]']}",
    "MAP(VARCHAR, VARCHAR[])": "MAP {'k': ['a]']}",
    "STRUCT(i INTERVAL, s VARCHAR[])": "{'i': INTERVAL 3 HOUR, 's': ['a]']}",
    "STRUCT(s VARCHAR)[]": "[{'s': '}'}]",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as opened:
        yield opened


def _shown(lake: quacklake.Lake, name: str = "t") -> list[tuple[Any, ...]]:
    return lake.sql(f"SELECT id, v::VARCHAR FROM {name} ORDER BY id").fetchall()


@pytest.mark.parametrize("type_", LOST)
@pytest.mark.parametrize("database", DATABASES)
def test_a_row_that_its_text_does_not_bring_back_goes_into_a_file(
    database: str, type_: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url, value = new_url(database), LOST[type_]
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.sql(f"CREATE TABLE t (id INTEGER, v {type_})")
        lake.sql(f"INSERT INTO t VALUES (1, {value}), (2, NULL)")
        ((text,),) = lake.sql(f"SELECT ({value})::{type_}::VARCHAR").fetchall()
        assert _shown(lake) == [(1, text), (2, None)]
        assert [file["record_count"] for file in lake.table("t").files().to_pylist()] == [1]
        with lake.transaction() as tx:
            tx.table("t").update({"id": 3}, "id = 1")
            assert tx.table("t").count("id = 3") == 1
        if "INTERVAL" not in type_:
            lake.table("t").append(lake.table("t").to_arrow(where="id = 3"))
            lake.table("t").update({"id": 4}, "id = 3 AND rowid > 1")
            assert _shown(lake) == [(2, None), (3, text), (4, text)]
        rowids = lake.sql("SELECT rowid FROM t").fetchall()
        before = _shown(lake)
        assert not any(report.skipped for report in lake.maintenance.flush_inlined_data())
        assert (_shown(lake), sorted(lake.sql("SELECT rowid FROM t").fetchall())) == (before, sorted(rowids))
    if database != "mysql" and LAYOUT == "plain":
        with Stock() as stock:
            assert stock.run(url, "SELECT id, v::VARCHAR FROM t ORDER BY id") == before


def test_a_column_that_is_added_in_the_same_transaction_leaves_such_rows_as_they_are(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INTEGER, v VARCHAR[][])")
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 1, "v": [["a]"]]}, {"id": 2, "v": [["a"]]}])
        tx.table("t").add_column("k", "int64")
        tx.table("t").append([{"id": 3, "v": [["b]"]], "k": 1}])
    assert _shown(lake) == [(1, "[['a]']]"), (2, "[[a]]"), (3, "[['b]']]")]


def test_a_row_that_neither_the_catalog_nor_a_file_can_hold_is_refused(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INTEGER, v VARCHAR[][], h HUGEINT)")
    with pytest.raises(ConstraintError, match="rounded"):
        lake.sql(f"INSERT INTO t VALUES (1, [['a]']], {2**70 + 1})")
    lake.sql(f"INSERT INTO t VALUES (1, [['a]']], 5), (2, NULL, {2**70 + 1})")
    assert lake.sql("SELECT id, h FROM t ORDER BY id").fetchall() == [(1, 5), (2, 2**70 + 1)]


def _store(lake: quacklake.Lake, values: dict[int, tuple[str, str]]) -> None:
    """Write texts into inlined rows as another client did: id -> column and text."""
    engine = sa.create_engine(lake.url)
    with engine.begin() as connection:
        names = [name for name in sa.inspect(engine).get_table_names() if name.startswith("ducklake_inlined_data_")]
        (table,) = (name for name in names if name != "ducklake_inlined_data_tables")
        for id_, (column, text) in values.items():
            connection.execute(
                sa.text(f"UPDATE {table} SET {column} = :text WHERE id = :id"), {"text": text, "id": id_}
            )
    engine.dispose()


@pytest.mark.skipif(LAYOUT == "shared", reason="it writes into the table of a plain lake")
def test_rows_that_another_client_left_are_read_where_the_text_says_what_they_are(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INTEGER, v JSON[], w VARCHAR[][], x STRUCT(a VARCHAR[]), m MAP(VARCHAR, VARCHAR[]))")
    lake.sql("INSERT INTO t SELECT i, NULL, NULL, NULL, NULL FROM range(6) r(i)")
    _store(
        lake,
        {
            0: ("v", "[NULL]"),
            1: ("w", "[['a,b]'], NULL, ['', 'NULL', NULL, '\\'']]"),
            2: ("x", "{'a': ['a]']}"),
            3: ("m", "{k=['a]'], 'b=c'=NULL}"),
            4: ("w", "[['a]', ',[b'], [c]]"),
        },
    )
    with quacklake.connect(lake.url) as other:
        for _ in range(2):
            assert other.sql("SELECT v, w, x, m FROM t ORDER BY id").fetchall() == [
                ([None], None, None, None),
                (None, [["a,b]"], None, ["", "NULL", None, "'"]], None, None),
                (None, None, {"a": ["a]"]}, None),
                (None, None, None, [("k", ["a]"]), ("b=c", None)]),
                (None, [["a]", ",[b"], ["c"]], None, None),
                (None, None, None, None),
            ]
            assert other.table("t").flush_inlined_data().skipped == ()


@pytest.mark.skipif(LAYOUT == "shared", reason="it writes into the table of a plain lake")
def test_a_row_that_cannot_be_read_leaves_the_others_as_they_are_and_can_be_deleted(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INTEGER, v VARCHAR[][], d DATE)")
    lake.sql("INSERT INTO t SELECT i, [['a']], '2020-01-01' FROM range(4) r(i)")
    _store(lake, {1: ("v", "[[[["), 2: ("d", "nonsense")})
    with quacklake.connect(lake.url) as other:
        assert other.sql("SELECT id, v::VARCHAR FROM t WHERE id <> 1 ORDER BY 1").fetchall() == [
            (0, "[[a]]"),
            (2, "[[a]]"),
            (3, "[[a]]"),
        ]
        assert other.table("t").count("d = '2020-01-01' AND id <> 2") == 3
        for text in ("FROM t", "SELECT v FROM t", "SELECT max(d) FROM t"):
            with pytest.raises(CatalogError, match=r'column "[vd]", rowid [12]') as caught:
                other.sql(text).fetchall()
            assert "rowid" in str(caught.value.hint)
        with pytest.raises(CatalogError, match="cannot be read"):
            other.table("t").to_arrow()
        report = other.table("t").flush_inlined_data()
        assert [each.what for each in report.skipped] == ["2 rows"]
        assert other.sql("SELECT id FROM t ORDER BY id").fetchall() == [(0,), (1,), (2,), (3,)]
        other.sql("DELETE FROM t WHERE rowid = 1")
        other.table("t").update({"d": None}, "id = 2")
        assert _shown(other) == [(0, "[[a]]"), (2, "[[a]]"), (3, "[[a]]")]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("VARCHAR[]", "[a"),
        ("VARCHAR[]", "[a]b"),
        ("VARCHAR[]", "['a]"),
        ("STRUCT(a INTEGER)", "{'b': 1}"),
        ("STRUCT(a INTEGER)", "{'a': 1"),
        ("MAP(VARCHAR, INTEGER)", "{a}"),
        ("JSON[]", "[{]"),
    ],
)
def test_a_text_of_another_form_is_refused(type_: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_nested(text, parse_column("v", type_))
