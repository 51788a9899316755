"""Encrypted lakes: only the catalog holds keys, and without a key there is no data."""

from __future__ import annotations

import base64
import logging
import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry
from quacklake.cli import main
from quacklake.core.engines.duckdb import connections
from quacklake.core.scan import ScanPlan
from quacklake.errors import ConfigError, CorruptFileError, MissingExtraError, UnsupportedFeatureError

pytestmark = pytest.mark.daily(0.5)

ROWS = pa.table({"id": range(1000), "name": [f"name {i}" for i in range(1000)]})


def connect(folder: Path, **settings: Any) -> quacklake.Lake:
    options = {"data_path": folder / "data", "duckdb_threads": 1, "data_inlining_row_limit": 0, **settings}
    return quacklake.connect(f"sqlite:///{folder}/lake.db", **options)


def metadata(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / "lake.db")
    try:
        with connection:
            return connection.execute(statement).fetchall()
    finally:
        connection.close()


def keys(folder: Path) -> list[str]:
    tables = ("ducklake_data_file", "ducklake_delete_file")
    return [row[0] for table in tables for row in metadata(folder, f"SELECT encryption_key FROM {table}")]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path, encrypted=True) as lake:
        table = lake.create_table("t", ROWS)
        table.delete("id BETWEEN 100 AND 150")
        table.delete("id BETWEEN 200 AND 250")
        yield lake


def test_rows_are_read_changed_and_travelled_through(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = lake.table("t")
    assert table.update({"name": "new"}, "id < 100") == 100
    assert (table.count("id >= 0"), table.count("name = 'new'")) == (898, 100)
    assert lake.at(version=1).table("t").count("id >= 0") == 1000
    assert lake.at(version=2).table("t").count("id >= 0") == 949
    with lake.transaction() as tx:
        tx.table("t").append(pa.table({"id": range(5000, 5020), "name": ["tx"] * 20}))
        tx.table("t").delete("id = 5003")
        assert tx.table("t").count("name = 'tx'") == 19
    assert table.count("name = 'tx'") == 19
    with connect(tmp_path) as again:
        assert again.table("t").count("id >= 0") == 917
    assert len(set(keys(tmp_path))) == len(keys(tmp_path))


def test_each_of_200_files_has_its_key(tmp_path: Path) -> None:
    with connect(tmp_path, encrypted=True) as lake:
        table = lake.create_table("t", {"id": pa.int64(), "part": pa.int64()})
        with lake.transaction() as tx:
            for part in range(200):
                tx.table("t").append(pa.table({"id": range(part * 10, part * 10 + 10), "part": [part] * 10}))
        table.delete("id % 10 = 3 AND part < 20")
        assert len(set(keys(tmp_path))) == 220
        assert table.scan(["id"], row_ids=True).to_arrow().num_rows == 1980
        ids = table.scan(["id", "part"], "id >= 1000", row_ids=True).to_arrow()
        assert ids.num_rows == 1000
        assert ids.column("rowid").to_pylist() == ids.column("id").to_pylist()
        assert table.update({"part": -1}, "id % 100 = 7") == 20
        assert table.count("part = -1") == 20


def test_without_its_key_no_file_is_read(lake: quacklake.Lake, tmp_path: Path) -> None:
    wrong = connections.new_key()
    for statement, message in (
        (f"UPDATE ducklake_data_file SET encryption_key = '{wrong}'", "missing or wrong"),
        ("UPDATE ducklake_data_file SET encryption_key = NULL", "has no key for"),
        ("UPDATE ducklake_data_file SET encryption_key = 'short'", "is not valid"),
        ("UPDATE ducklake_data_file SET encryption_key = '🔑'", "is not valid"),
    ):
        metadata(tmp_path, statement)
        with pytest.raises(CorruptFileError, match=message) as caught:
            lake.table("t").to_arrow()
        assert wrong not in "".join(traceback.format_exception(caught.value))


def test_without_its_key_no_delete_file_is_read(lake: quacklake.Lake, tmp_path: Path) -> None:
    wrong = connections.new_key()
    metadata(tmp_path, f"UPDATE ducklake_delete_file SET encryption_key = '{wrong}'")
    with pytest.raises(CorruptFileError, match="missing or wrong"):
        lake.table("t").to_arrow()
    with pytest.raises(CorruptFileError, match="missing or wrong"):
        lake.table("t").delete("id < 50")
    metadata(tmp_path, "UPDATE ducklake_delete_file SET encryption_key = NULL")
    with pytest.raises(CorruptFileError, match="has no key for"):
        lake.table("t").to_arrow()


def test_a_plain_file_in_an_encrypted_lake_is_refused(lake: quacklake.Lake, tmp_path: Path) -> None:
    (file,) = (path for path in (tmp_path / "data").rglob("*.parquet") if not path.stem.endswith("-delete"))
    duckdb.sql(f"COPY (SELECT 1 AS id, 'x' AS name) TO '{file}'")
    with pytest.raises(CorruptFileError, match="missing or wrong"):
        lake.table("t").to_arrow()


def test_no_key_is_shown_anywhere(
    lake: quacklake.Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    table = lake.table("t")
    table.append(ROWS)
    plan = table.plan()
    user = duckdb.connect()
    lake.register(user)
    shown = [
        repr(plan),
        str(plan),
        repr(table),
        repr(lake),
        str(table.files()),
        str(table.history()),
        str(lake.snapshots()),
        str(lake.options.list()),
        str(telemetry.snapshot()) if hasattr(telemetry, "snapshot") else "",
        str(user.execute("SELECT sql FROM duckdb_views()").fetchall()),
        str(user.execute("EXPLAIN ANALYZE SELECT sum(id) FROM t").fetchall()),
    ]
    with pytest.raises(quacklake.errors.PredicateError) as caught:
        table.count("nonsense = 1")
    shown.append("".join(traceback.format_exception(caught.value)))
    url = f"sqlite:///{tmp_path}/lake.db"
    for command in (["files", "t"], ["show", "t"], ["info"], ["history", "t"], ["settings"]):
        main([*command, "--lake", url])
    printed = capsys.readouterr()
    shown += [printed.out, printed.err, caplog.text]
    assert user.execute("SELECT count(*) FROM t").fetchone() == (1898,)
    for key in keys(tmp_path):
        forms = (key, base64.b64decode(key).hex(), repr(base64.b64decode(key)))
        assert not [text for text in shown for form in forms if form in text]


def test_a_plan_takes_the_keys_along_for_who_will_run_it(lake: quacklake.Lake) -> None:
    plan = ScanPlan.from_ipc(lake.table("t").plan().to_ipc())
    assert lake._context.engine.count(plan, "id >= 0") == 898


def test_what_a_lake_is_cannot_be_changed(lake: quacklake.Lake, tmp_path: Path) -> None:
    with connect(tmp_path, encrypted=True) as again:
        assert again.table("t").count("id >= 0") == 898
    with pytest.raises(ConfigError, match="are encrypted, but plain"):
        connect(tmp_path, encrypted=False)
    plain = tmp_path / "plain"
    plain.mkdir()
    with connect(plain) as made:
        made.create_table("t", ROWS)
    with pytest.raises(ConfigError, match="are plain, but encrypted"):
        connect(plain, encrypted=True)
    assert not any(keys(plain))


def test_writing_without_the_extension_that_encrypts_is_refused(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "load_httpfs", lambda connection: False)
    with connect(tmp_path) as lake:
        before = lake.current_snapshot()
        with pytest.raises(MissingExtraError, match="httpfs"):
            lake.table("t").append(ROWS)
        with pytest.raises(MissingExtraError, match="httpfs"):
            lake.table("t").delete("id < 50")
        assert lake.current_snapshot() == before
        assert lake.table("t").count("id >= 0") == 898


def test_small_changes_stay_in_the_catalog_in_the_clear(tmp_path: Path) -> None:
    with connect(tmp_path, encrypted=True, data_inlining_row_limit=10) as lake:
        table = lake.create_table("t", [{"id": 1, "name": "in the catalog"}])
        assert not list((tmp_path / "data").rglob("*.parquet"))
        assert table.to_pylist() == [{"id": 1, "name": "in the catalog"}]
    assert b"in the catalog" in (tmp_path / "lake.db").read_bytes()


def test_the_changes_of_an_encrypted_table_are_told(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    first = lake.current_snapshot() + 1
    table.update({"name": "new"}, "id < 30")
    table.delete("id BETWEEN 30 AND 59")
    kinds = table.changes(first).to_arrow().column("change_type").to_pylist()
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "update_preimage": 30,
        "update_postimage": 30,
        "delete": 30,
    }


def test_deletion_vectors_are_not_written_in_the_clear(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.options.set("write_deletion_vectors", True)
    table = lake.create_table("v", ROWS)
    table.delete("id < 100")
    assert table.count("id >= 0") == 900
    assert not list((tmp_path / "data").rglob("*.puffin"))


def test_partitioned_encrypted_tables_are_read_and_written(lake: quacklake.Lake) -> None:
    table = lake.create_table("p", {"id": pa.int64(), "part": pa.int64()}, partition_by="part")
    table.append(pa.table({"id": range(90), "part": [i % 3 for i in range(90)]}))
    table.delete("part = 1 AND id < 50")
    assert [table.count(f"part = {part}") for part in range(3)] == [30, 13, 30]


def test_encrypted_files_older_than_a_change_inside_a_nested_column_are_read(lake: quacklake.Lake) -> None:
    rows = [{"a": i, "gone": i, "l": [{"x": i}], "m": [("k", {"y": i})]} for i in range(20)]
    inner = pa.list_(pa.struct({"x": pa.int64()}))
    map_ = pa.map_(pa.string(), pa.struct({"y": pa.int64()}))
    type_ = pa.struct({"a": pa.int32(), "gone": pa.int64(), "l": inner, "m": map_})
    table = lake.create_table("n", pa.table({"id": range(20), "s": pa.array(rows, type_)}))
    table.rename_column("s.a", "b")
    table.drop_column("s.gone")
    table.rename_column("s.l.element.x", "z")
    table.add_column("s.m.value.more", "int64")
    table.alter_column("s.b", type="int64")
    new_type = table.to_arrow().schema.field("s").type
    new = {"b": 1 << 40, "l": [{"z": 20}], "m": [("k", {"y": 20, "more": 7})]}
    table.append(pa.table({"id": [20], "s": pa.array([new], new_type)}))
    table.rename_column("s", "t")
    found = {row["id"]: row["t"] for row in table.to_arrow().to_pylist()}
    assert found[3] == {"b": 3, "l": [{"z": 3}], "m": [("k", {"y": 3, "more": None})]}
    assert found[20] == new
    assert table.count("t.b = 7") == 1
    plan = table.plan()
    assert ScanPlan.from_ipc(plan.to_ipc()).past == plan.past != ()
    table.delete("id = 5")
    (gone,) = table.deletions(lake.current_snapshot()).to_arrow().to_pylist()
    assert gone["t"]["b"] == 5


def test_a_field_that_was_dropped_and_came_again_is_not_the_old_one_in_encrypted_files(lake: quacklake.Lake) -> None:
    table = lake.create_table("n", {"s": pa.struct({"a": pa.int64(), "b": pa.int64()})})
    table.append([{"s": {"a": 1, "b": 1}}])
    table.drop_column("s.a")
    table.add_column("s.a", "int64")
    table.append([{"s": {"a": 2, "b": 2}}])
    table.rename_column("s.b", "c")
    table.rename_column("s.a", "b")
    table.append([{"s": {"b": 3, "c": 3}}])
    found = sorted(table.to_arrow().column("s").to_pylist(), key=lambda row: row["c"])
    assert found == [{"c": 1, "b": None}, {"c": 2, "b": 2}, {"c": 3, "b": 3}]


def test_a_transaction_sees_what_it_wrote_before_it_changed_nested_fields_of_an_encrypted_table(
    lake: quacklake.Lake,
) -> None:
    table = lake.create_table("n", {"s": pa.struct({"a": pa.int64()})})
    table.append([{"s": {"a": 1}}])
    with lake.transaction() as tx:
        mine = tx.table("n")
        mine.append([{"s": {"a": 2}}])
        mine.rename_column("s.a", "b")
        mine.append([{"s": {"b": 3}}])
        assert sorted(row["b"] for row in mine.to_arrow().column("s").to_pylist()) == [1, 2, 3]
    assert sorted(row["b"] for row in lake.table("n").to_arrow().column("s").to_pylist()) == [1, 2, 3]


def test_names_that_the_history_no_longer_explains_are_a_clear_error(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("n", pa.table({"s": pa.array([{"a": i} for i in range(50)])}))
    table.rename_column("s.a", "b")
    metadata(tmp_path, "DELETE FROM ducklake_column WHERE column_name = 'a'")
    with connect(tmp_path) as other, pytest.raises(UnsupportedFeatureError, match="cannot be identified"):
        other.table("n").to_arrow()
