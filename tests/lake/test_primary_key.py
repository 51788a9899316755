"""A primary key is what rows are merged and deduplicated by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.format.evolution import key_columns
from quacklake.errors import CatalogError, ConstraintError, InputError
from tests.catalog.stock import Stock


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        yield lake


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": id_, "name": name} for id_, name in pairs]


def test_merge_and_append_go_by_the_primary_key(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", rows((1, "a"), (2, "b")), primary_key="id")
    assert table.primary_key == ("id",)
    result = table.merge(rows((2, "B"), (3, "c")))
    assert (result.updated, result.inserted) == (1, 1)
    assert table.append(rows((3, "no"), (4, "d"), (4, "no"), (5, "e")), dedup=True) == 2
    assert table.append([], dedup=True) == 0
    assert table.append(rows((1, "no")), dedup=True) == 0
    assert sorted((row["id"], row["name"]) for row in table.to_pylist()) == [
        (1, "a"),
        (2, "B"),
        (3, "c"),
        (4, "d"),
        (5, "e"),
    ]
    assert table.append(rows((1, "twice"))) == 1  # a plain append does not look
    assert table.tags == {}


def test_deduplication_works_for_files_keys_of_several_columns_and_streams(lake: quacklake.Lake) -> None:
    columns = {"a": pa.int64(), "b": pa.string(), "n": pa.int64()}
    table = lake.create_table("t", columns, primary_key=["b", "a"])
    assert table.primary_key == ("b", "a")
    batch = pa.table({"a": list(range(100)) * 2, "b": ["x"] * 200, "n": range(200)}, schema=pa.schema(columns.items()))
    assert table.append(batch.to_reader(), dedup=True) == 100
    assert table.append(batch, dedup=True) == 0
    assert table.count("n < 100") == 100
    table.delete("a < 10")
    assert table.append(batch, dedup=True) == 10
    with lake.transaction() as tx:
        tx.table("t").append([{"a": 1000, "b": "y", "n": 1}])
        assert tx.table("t").append([{"a": 1000, "b": "y", "n": 2}, {"a": 1001, "b": "y", "n": 2}], dedup=True) == 1


def test_the_key_takes_no_null_and_no_duplicate_from_the_beginning(lake: quacklake.Lake) -> None:
    with pytest.raises(ConstraintError, match="duplicate"):
        lake.create_table("t", rows((1, "a"), (1, "b")), primary_key="id")
    table = lake.create_table("t", rows((1, "a")), primary_key="id")
    assert not table.schema.field("id").nullable
    for work in (table.append, table.merge, lambda data: table.append(data, dedup=True)):
        with pytest.raises(ConstraintError):
            work([{"id": None, "name": "x"}])
    assert lake.current_snapshot() == 1


def test_what_cannot_be_a_key_is_refused(lake: quacklake.Lake) -> None:
    for key in ([], ["id", "ID"], ["missing"], ["tags"]):
        with pytest.raises(quacklake.QuacklakeError):
            lake.create_table("t", [{"id": 1, "tags": ["a"]}], primary_key=key)
    table = lake.create_table("t", rows((1, "a")))
    assert table.primary_key == ()
    with pytest.raises(InputError, match="no primary key"):
        table.merge(rows((1, "a")))
    with pytest.raises(InputError, match="no primary key"):
        table.append(rows((1, "a")), dedup=True)
    assert lake.current_snapshot() == 1


def test_two_appends_of_one_key_at_the_same_time_add_it_once(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", rows((1, "a")), primary_key="id")
    with pytest.raises(quacklake.errors.CommitConflict), lake.transaction() as tx:
        assert tx.table("t").append(rows((7, "mine")), dedup=True) == 1
        assert table.append(rows((7, "theirs")), dedup=True) == 1
    assert table.to_pylist(where="id = 7") == rows((7, "theirs"))


def test_the_key_does_not_disturb_other_clients_and_survives_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", rows((1, "a")), primary_key="id")
    with Stock() as stock:
        stock.run(
            url,
            "INSERT INTO t VALUES (2, 'b')",
            "ALTER TABLE t RENAME COLUMN id TO number",
            "ALTER TABLE t ADD COLUMN more INTEGER",
            "ALTER TABLE t RENAME TO u",
        )
    with quacklake.connect(url) as lake:
        table = lake.table("u")
        assert table.primary_key == ("number",)
        assert table.merge([{"number": 2, "name": "B"}]).updated == 1
        more = [{"number": 2, "name": "no", "more": 1}, {"number": 3, "name": "c", "more": 1}]
        assert table.append(more, dedup=True) == 1
    with Stock() as stock:
        assert stock.run(url, "SELECT number, name FROM u ORDER BY ALL") == [(1, "a"), (2, "B"), (3, "c")]
        stock.run(url, "ALTER TABLE u DROP COLUMN number")
    with quacklake.connect(url) as lake:
        assert lake.table("u").primary_key == ()


def test_a_key_that_is_no_list_of_ids_is_an_error(lake: quacklake.Lake) -> None:
    schema = lake.create_table("t", rows((1, "a"))).info.schema
    assert key_columns(schema, "[1]") == ("id",)
    assert key_columns(schema, "[1, 99]") == ()
    for text in ("nonsense", "7", '["x"]'):
        with pytest.raises(CatalogError):
            key_columns(schema, text)
