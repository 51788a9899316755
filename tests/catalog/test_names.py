"""Names that try to break out of SQL, in every database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.format.names import quote
from quacklake.errors import UnsupportedFeatureError
from tests.catalog.stock import Stock

NewUrl = Callable[[str], str]
ALL = [
    "sqlite",
    "duckdb",
    "postgres",
    "mysql",
]
NAMES = [
    'a"b',
    "it's",
    "100%",
    "%s",
    "%(x)s",
    ":bound",
    "?",
    "semi;colon",
    "back\\slash",
    "back`tick",
    "[bracket]",
    "{brace}",
    "two words",
    "-- comment",
    "/* comment */",
    "new\nline",
    "ünïcödé",
    "日本語",
    "🦆",
    "select",
    "row_id",
    "begin_snapshot",
    "end_snapshot",
    "rowid",
    "c1",
    "file_index",
    "file_row_number",
    "filename",
    "a.b",
    "x" * 60,
]


@pytest.mark.parametrize("database", ALL)
def test_columns_may_have_any_name(database: str, new_url: NewUrl, stock: Stock, tmp_path: Path) -> None:
    url = new_url(database)
    few = pa.table({name: pa.array([f"{name}{n}" for n in range(3)]) for name in NAMES})
    many = pa.table({name: pa.array([f"{name}{n}" for n in range(100, 130)]) for name in NAMES})
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        t = lake.create_table("t", few)
        assert t.to_arrow().to_pylist() == few.to_pylist()
        t.append(many)
        t.update({"it's": "changed"}, f"{quote('100%')} = '100%1'")
        t.delete(f"{quote('new' + chr(10) + 'line')} = 'new\nline2'")
        expected = [tuple(row.values()) for row in [*few.to_pylist(), *many.to_pylist()]]
        del expected[2]
        expected[1] = tuple(
            "changed" if name == "it's" else value for name, value in zip(NAMES, expected[1], strict=True)
        )
        found = [tuple(row.values()) for row in t.to_arrow().to_pylist()]
        assert sorted(found) == sorted(expected)
        assert t.columns == NAMES
        for name in NAMES:
            assert t.to_arrow(columns=[name], where=f"{quote(name)} = {_text(name + '105')}").to_pylist() == [
                {name: f"{name}105"}
            ]
    if database != "mysql":
        assert stock.rows(url)["main.t"] == sorted(expected, key=repr)


@pytest.mark.parametrize("database", ALL)
def test_tables_and_schemas_may_have_any_name(database: str, new_url: NewUrl, stock: Stock, tmp_path: Path) -> None:
    url = new_url(database)
    names = [name for name in NAMES if name != "new\nline"]
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        with lake.transaction() as tx:
            for n, name in enumerate(names):
                tx.create_schema(name)
                tx.create_table(f"{quote(name)}.{quote(name)}", [{"n": n}])
        for n, name in enumerate(names):
            assert lake.table(f"{quote(name)}.{quote(name)}").to_pylist() == [{"n": n}]
        assert len(lake.tables()) == len(names)
        assert set(lake.schemas()) == {"main", *names}
    if database != "mysql":
        query = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'l'"
        assert set(stock.run(url, query)) == {(name, name) for name in names}


def test_a_column_with_a_name_of_our_own_can_be_read_and_is_never_taken_for_ours(tmp_path: Path) -> None:
    rows = [{"_ql_position": 1, "_QL_ROW_ID": 0}, {"_ql_position": 0, "_QL_ROW_ID": 7}]
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=tmp_path / "data") as lake:
        t = lake.create_table("t", rows)
        assert t.to_pylist() == rows
        for write in (lambda: t.delete("_ql_position = 1"), lambda: t.update({"_ql_position": 5}, "true")):
            with pytest.raises(UnsupportedFeatureError, match="_ql_position"):
                write()
        t.delete()
        assert t.to_pylist() == []


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
