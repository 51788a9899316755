"""Sorted tables: the order of rows in their files, and what may be a key."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core.format.layout import SortKey, SortSpec, make_sort, rename_column, sort_columns
from quacklake.errors import InputError
from tests.layout import by_hand


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=4, data_inlining_row_limit=0
    ) as lake:
        yield lake


def shuffled(count: int, seed: int = 0) -> pa.Table:
    ids: list[int | None] = list(range(count))
    random.Random(seed).shuffle(ids)
    names = [None if i is None or i % 11 == 0 else f"{'N' if i % 2 else 'n'}{i % 97:02}" for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def files(lake: quacklake.Lake, name: str = "t") -> list[pa.Table]:
    paths = lake.table(name).files().column("path").to_pylist()
    return [pq.read_table(Path(lake.data_path, path), partitioning=None) for path in paths]


def by_name(row: dict[str, Any]) -> tuple[Any, ...]:
    """``lower(name) DESC NULLS FIRST, id``."""
    name = row["name"]
    return (name is not None, [-ord(character) for character in (name or "").lower()], row["id"])


def test_a_file_is_in_the_order_of_the_table(lake: quacklake.Lake) -> None:
    data = shuffled(50_000)
    table = lake.create_table("t", data.schema, sort_by=["lower(name) DESC NULLS FIRST", "id"])
    table.append(data)
    assert table.sorted_by == ['lower("name") DESC NULLS FIRST', "id ASC NULLS LAST"]
    (found,) = files(lake)
    assert found.to_pylist() == sorted(data.to_pylist(), key=by_name)


def test_every_one_of_many_files_is_in_order(lake: quacklake.Lake) -> None:
    lake.options.set("target_file_size", "300KB")
    lake.options.set("parquet_row_group_size", 4096)
    table = lake.create_table("t", shuffled(200_000), sort_by="id DESC")
    found = [file.column("id").to_pylist() for file in files(lake)]
    assert len(found) > 2
    assert list(itertools.chain(*found)) == list(range(199_999, -1, -1))
    table.update({"name": "x"}, "id % 3 = 0")
    updated = [file.column("id").to_pylist() for file in files(lake) if set(file.column("name").to_pylist()) == {"x"}]
    assert sum(len(ids) for ids in updated) == 66_667
    assert all(ids == sorted(ids, reverse=True) for ids in updated)


def test_the_files_of_partitions_are_in_order_too(lake: quacklake.Lake) -> None:
    data = shuffled(30_000)
    lake.create_table("t", data, partition_by="bucket(7, id)", sort_by=["name DESC", "id"])
    found = files(lake)
    assert len(found) == 7
    for file in found:
        rows = file.to_pylist()
        assert rows == sorted(sorted(rows, key=lambda row: row["id"]), key=lambda row: row["name"] or "", reverse=True)
    assert sorted(row["id"] for file in found for row in file.to_pylist()) == list(range(30_000))


def test_an_option_turns_sorting_off(lake: quacklake.Lake) -> None:
    data = shuffled(1000)
    lake.create_table("t", data.schema, sort_by="id")
    lake.options.set("sort_on_insert", False, table="t")
    lake.table("t").append(data)
    assert files(lake)[0].equals(data)


def test_another_order_holds_for_new_files_only(lake: quacklake.Lake) -> None:
    data = shuffled(1000)
    table = lake.create_table("t", data, sort_by="id")
    table.set_sorted_by("id DESC")
    table.append(data)
    table.reset_sorted_by()
    table.append(data)
    one, two, three = (file.column("id").to_pylist() for file in files(lake))
    assert (one, two) == (list(range(1000)), list(range(999, -1, -1)))
    assert three == data.column("id").to_pylist()
    assert table.sorted_by == []
    assert lake.at(version=1).table("t").sorted_by == ["id ASC NULLS LAST"]


def test_an_order_of_a_transaction_holds_in_it(lake: quacklake.Lake) -> None:
    with lake.transaction() as tx:
        table = tx.create_table("t", shuffled(0).schema)
        table.set_sorted_by("id")
        table.append(shuffled(500))
        assert table.sorted_by == ["id ASC NULLS LAST"]
    assert files(lake)[0].column("id").to_pylist() == list(range(500))


def test_saying_the_same_again_changes_nothing(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", shuffled(20), sort_by="lower(name)")
    before = lake.current_snapshot()
    table.set_sorted_by("LOWER(name) ASC")
    assert lake.current_snapshot() == before
    table.reset_sorted_by()
    table.reset_sorted_by()
    assert lake.current_snapshot() == before + 1


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ("nope", "Unmatched columns were: nope"),
        ("lower(nope)", "Unmatched columns were: nope"),
        ("id, name", "not one expression"),
        ("id; DROP TABLE t", "not one expression"),
        ("id) TO 'x' --", "not one expression"),
        ("id LIMIT 1", "not one expression"),
        ("", "not one expression"),
        ("1", "no column"),
        ("random()", "no column"),
        ("sum(id)", "one row"),
        ("row_number() OVER (ORDER BY id)", "one row"),
        ("(SELECT max(id) FROM t)", "one row"),
        ("t.id", "qualified"),
        ("no_such_function(id)", "not allowed"),
        ("id + name", "cannot be computed"),
    ],
)
def test_bad_keys_are_refused_and_change_nothing(lake: quacklake.Lake, key: str, match: str) -> None:
    table = lake.create_table("t", {"id": pa.int64(), "name": pa.timestamp("us")})
    before = lake.current_snapshot()
    for keys in ((key,), ("id", key)):
        with pytest.raises(InputError, match=match):
            table.set_sorted_by(*keys)
    assert (lake.current_snapshot(), table.sorted_by) == (before, [])


def test_a_key_in_another_dialect_is_passed_over(lake: quacklake.Lake) -> None:
    lake.create_table("t", shuffled(0).schema, sort_by=["name", "id DESC"])
    with lake._context.catalog.commit() as writer:
        by_hand(writer, "UPDATE ducklake_sort_expression SET dialect = 'spark' WHERE sort_key_index = 0")
    with quacklake.connect(lake.url, data_inlining_row_limit=0) as again:
        again.table("t").append(shuffled(300))
        assert files(again)[0].column("id").to_pylist() == list(range(299, -1, -1))


def test_an_order_knows_its_columns_and_follows_their_names(lake: quacklake.Lake) -> None:
    schema = lake.create_table("t", shuffled(0).schema).info.schema
    spec = make_sort(1, ["lower(name) DESC", "id"], schema, lambda text: text)
    assert sort_columns(spec, schema) == {1, 2}
    assert sort_columns(None, schema) == frozenset()
    renamed = rename_column(spec, "NAME", "a b")
    assert [str(key) for key in renamed.keys] == ['LOWER("a b") DESC NULLS LAST', "id ASC NULLS LAST"]
    foreign = SortSpec(1, (SortKey("whatever (", dialect="duckdb"), SortKey("id", dialect="spark")))
    assert rename_column(foreign, "id", "x") == foreign
    assert sort_columns(foreign, schema) == frozenset()


def test_a_column_in_the_order_can_be_renamed_but_not_dropped(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", shuffled(0).schema, sort_by=["id DESC"])
    table.rename_column("id", "key")
    assert table.sorted_by == ['"key" DESC NULLS LAST']
    with pytest.raises(InputError, match="the table is sorted by this column"):
        table.drop_column("key")
    table.append(shuffled(300).rename_columns(["key", "name"]))
    assert files(lake)[0].column("key").to_pylist() == list(range(299, -1, -1))
    table.reset_sorted_by()
    table.drop_column("key")
    assert table.columns == ["name"]


def test_a_partitioned_column_can_be_renamed_but_not_dropped(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", shuffled(0).schema, partition_by=["bucket(2, id)"])
    table.rename_column("id", "key")
    assert table.partitioned_by == ["bucket(2, key)"]
    with pytest.raises(InputError, match="the table is partitioned by this column"):
        table.drop_column("key")
