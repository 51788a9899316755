"""Encrypted lakes: both clients read what the other wrote, at every snapshot."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pytest

from .conftest import MakeSite, kinds
from .history import DIRECTIONS, History, compare, compare_ours
from .steps import Append, Create, Delete, Step, Stock, Update

pytestmark = pytest.mark.daily(0.45)

_STEPS: list[Step] = [
    Create("t", "id BIGINT, name VARCHAR, tags VARCHAR[]"),
    Append("t", "SELECT i, 'n' || i, ['a', 'b'] FROM range(40) r(i)"),
    Append("t", "SELECT i, 'm' || i, NULL::VARCHAR[] FROM range(100, 130) r(i)"),
    Append("t", "SELECT 500::BIGINT, 'inlined', NULL::VARCHAR[]"),
    Delete("t", "id BETWEEN 10 AND 24"),
    Update("t", {"name": "'changed'"}, "id BETWEEN 100 AND 114"),
    Delete("t", "id = 3"),
    Delete("t", "id BETWEEN 25 AND 37"),
    Delete("t", "id >= 100"),
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_f5_11_an_encrypted_lake_is_one_lake_for_both(make_site: MakeSite, kind: str, direction: str) -> None:
    site = make_site(kind, encrypted=True)
    history = History(site)
    history.play(_STEPS, DIRECTIONS[direction])
    compare(history)
    keys = site.metadata(
        "SELECT encryption_key FROM {m}.ducklake_data_file UNION ALL SELECT encryption_key FROM {m}.ducklake_delete_file"
    )
    assert {len(base64.b64decode(key)) for (key,) in keys} == {16}
    if direction == "we-write":  # stock shares the key of an update between its two files
        assert len(set(keys)) == len(keys)
    assert all(_is_encrypted(path) for path in site.data_path.rglob("*.parquet"))
    assert site.metadata("SELECT value FROM {m}.ducklake_metadata WHERE key = 'encrypted'") == [("true",)]


@pytest.mark.mysql
def test_f5_11_an_encrypted_lake_in_mysql_holds_what_was_written(make_site: MakeSite) -> None:
    history = History(make_site("mysql", encrypted=True))
    history.play(_STEPS, DIRECTIONS["we-write"])
    history.site.close_lake()
    compare_ours(history)
    assert all(_is_encrypted(path) for path in history.site.data_path.rglob("*.parquet"))


def test_what_stock_has_flushed_and_merged_is_read(make_site: MakeSite) -> None:
    site = make_site("sqlite", encrypted=True)
    history = History(site)
    steps: list[Step] = [
        *_STEPS,
        Append("t", "SELECT i, 'x', NULL::VARCHAR[] FROM range(600, 605) r(i)"),
        Stock("CALL ducklake_flush_inlined_data('l')"),
        Stock("CALL ducklake_merge_adjacent_files('l')"),
        Delete("t", "id BETWEEN 0 AND 9"),
    ]
    history.play(steps, ("ours",))
    compare(history)


def _is_encrypted(path: Path) -> bool:
    return path.read_bytes()[-4:] == b"PARE"


def test_deletion_vectors_of_stock_in_an_encrypted_lake_are_read(make_site: MakeSite) -> None:
    site = make_site("sqlite", encrypted=True)
    stock = site.stock()
    stock.execute("CALL l.set_option('write_deletion_vectors', true)")
    stock.execute("CREATE TABLE t AS SELECT i FROM range(100) r(i)")
    stock.execute("DELETE FROM t WHERE i < 50")
    formats = site.metadata("SELECT format, encryption_key IS NULL FROM {m}.ducklake_delete_file")
    assert [name for name, _ in formats] == ["puffin"]
    table = site.lake().table("t")
    assert table.count("i >= 0") == 50
    table.delete("i BETWEEN 50 AND 69")
    assert site.lake().table("t").count("i >= 0") == 30
    assert site.stock().execute("SELECT count(*) FROM t").fetchone() == (30,)


_NESTED = [
    "CREATE TABLE n (id BIGINT, s STRUCT(a INTEGER, gone INTEGER, l STRUCT(x INTEGER)[]))",
    "INSERT INTO n SELECT i, {'a': i, 'gone': -i, 'l': [{'x': i}]} FROM range(30) r(i)",
    "ALTER TABLE n RENAME COLUMN s.a TO b",
    "ALTER TABLE n DROP COLUMN s.gone",
    "ALTER TABLE n ADD COLUMN s.gone INTEGER",
    "ALTER TABLE n RENAME COLUMN s.l.element.x TO z",
    "INSERT INTO n SELECT i, {'b': i, 'l': [{'z': i}], 'gone': i} FROM range(30, 60) r(i)",
    "ALTER TABLE n RENAME COLUMN s TO t",
    "DELETE FROM n WHERE id IN (3, 40)",
]
_READ = "SELECT id, t.b, t.gone, t.l[1].z FROM n ORDER BY id"
_EXPECTED = [(i, i, None if i < 30 else i, i) for i in range(60) if i not in (3, 40)]


def test_files_of_stock_older_than_a_change_inside_a_nested_column_are_read(make_site: MakeSite) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    for statement in _NESTED:
        site.stock().execute(statement)
    assert site.stock().execute(_READ).fetchall() == _EXPECTED
    rows = site.lake().table("n").to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["t"]["b"], row["t"]["gone"], row["t"]["l"][0]["z"]) for row in rows] == _EXPECTED
    old = site.lake().at(version=2).table("n").to_arrow().sort_by("id").to_pylist()
    assert old[7]["s"] == {"a": 7, "gone": -7, "l": [{"x": 7}]}


def test_our_files_older_than_a_change_inside_a_nested_column_are_read_by_stock(make_site: MakeSite) -> None:
    site = make_site("sqlite", 0, encrypted=True)
    type_ = pa.struct({"a": pa.int32(), "gone": pa.int32(), "l": pa.list_(pa.struct({"x": pa.int32()}))})
    table = site.lake().create_table("n", {"id": pa.int64(), "s": type_})
    first = [{"a": i, "gone": -i, "l": [{"x": i}]} for i in range(30)]
    table.append(pa.table({"id": range(30), "s": pa.array(first, type_)}))
    table.rename_column("s.a", "b")
    table.drop_column("s.gone")
    table.add_column("s.gone", "int32")
    table.rename_column("s.l.element.x", "z")
    second = [{"b": i, "l": [{"z": i}], "gone": i} for i in range(30, 60)]
    table.append(pa.table({"id": range(30, 60), "s": pa.array(second, table.schema.field("s").type)}))
    table.rename_column("s", "t")
    table.delete("id IN (3, 40)")
    rows = table.to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["t"]["b"], row["t"]["gone"], row["t"]["l"][0]["z"]) for row in rows] == _EXPECTED
    assert site.stock().execute(_READ).fetchall() == _EXPECTED
