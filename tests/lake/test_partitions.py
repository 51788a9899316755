"""Partitioned tables: which files rows go into, where those lie, and which of them a scan can leave out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.format.transforms import bucket
from quacklake.errors import InputError, QuacklakeError, UnsupportedFeatureError
from tests.lake.test_statements import statements
from tests.layout import by_hand

_ODD = [
    "eu",
    "",
    None,
    "a/b",
    "..",
    "../../up",
    "x=1",
    "50%",
    "%2e%2e",
    "o'clock",
    'say "hi"',
    "naïve ☃",
    "y" * 400,
    "*?[",
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=2, data_inlining_row_limit=0
    ) as lake:
        yield lake


def events(count: int, first: int = 0) -> pa.Table:
    """One row every six hours from 2024 on, in three regions."""
    ids = range(first, first + count)
    start = dt.datetime(2024, 1, 1)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "region": ["eu" if i % 3 == 0 else "us" if i % 3 == 1 else None for i in ids],
            "ts": pa.array([start + dt.timedelta(hours=6 * i) for i in ids], pa.timestamp("us")),
        }
    )


def ordered(table: quacklake.Table, where: str | None = None) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(where=where), key=lambda row: row["id"])


def query(lake: quacklake.Lake, sql: str) -> list[tuple[Any, ...]]:
    with lake._context.catalog.read() as reader:
        return [tuple(row) for row in by_hand(reader, sql)]


def values(lake: quacklake.Lake) -> set[tuple[Any, ...]]:
    """Of every live file: its folder, and its partition values in order."""
    found: dict[str, list[Any]] = {}
    for path, text in query(
        lake,
        "SELECT path, partition_value FROM ducklake_data_file f LEFT JOIN ducklake_file_partition_value v"
        " ON v.data_file_id = f.data_file_id WHERE end_snapshot IS NULL ORDER BY path, partition_key_index",
    ):
        found.setdefault(path, []).append(text)
    return {(path.rpartition("/")[0], *texts) for path, texts in found.items()}


def stored(lake: quacklake.Lake) -> set[str]:
    return {entry.path for entry in lake._context.store.list()}


def test_rows_go_into_a_file_and_a_folder_for_each_combination_of_keys(lake: quacklake.Lake) -> None:
    data = events(240)
    table = lake.create_table("t", data, partition_by=["region", "month(ts)"])
    assert values(lake) == {
        (f"region={folder}/month={month}", region, str(month))
        for region, folder in (("eu", "eu"), ("us", "us"), (None, "__HIVE_DEFAULT_PARTITION__"))
        for month in (1, 2)
    }
    assert table.to_arrow().sort_by("id").equals(data)
    assert table.partitioned_by == ["region", "month(ts)"]
    for file in table.files().to_pylist():
        kept = pq.read_table(Path(lake.data_path, file["path"]), partitioning=None)
        assert kept.column_names == ["id", "region", "ts"]
        assert len(set(kept.column("region").to_pylist())) == 1


def test_without_the_hive_pattern_files_lie_in_the_folder_of_the_table(lake: quacklake.Lake) -> None:
    lake.options.set("hive_file_pattern", False)
    lake.create_table("t", events(30), partition_by="region")
    assert values(lake) == {("", "eu"), ("", "us"), ("", None)}


@pytest.mark.parametrize("sort", [(), ("id DESC",)], ids=["at once", "in turn"])
def test_odd_values_are_kept_and_never_lead_out_of_the_table(lake: quacklake.Lake, sort: tuple[str, ...]) -> None:
    rows = [{"id": i, "v": _ODD[i % len(_ODD)]} for i in range(3 * len(_ODD))]
    table = lake.create_table("t", {"id": pa.int64(), "v": pa.string()}, partition_by="v", sort_by=sort)
    table.append(rows)
    assert ordered(table) == rows
    folders = values(lake)
    assert {text for _, text in folders} == set(_ODD)
    assert {folder for folder, text in folders if text == "y" * 400} == {""}, "too long for the name of a folder"
    assert {folder for folder, text in folders if text == "../../up"} == {""}, (
        "no folder, rather than one that hides dots"
    )
    assert {folder for folder, text in folders if text == "a/b"} == {"v=a%2Fb"}
    assert all(path.startswith("main/t/") for path in stored(lake))
    for value in _ODD:
        where = "v IS NULL" if value is None else "v = '" + value.replace("'", "''") + "'"
        assert table.count(where) == 3
        assert len(table.plan(where).files) == 1


def test_a_value_that_no_catalog_can_store_is_refused_without_leaving_files(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": pa.int64(), "v": pa.string()}, partition_by="v")
    with pytest.raises(InputError, match="NUL"):
        table.append([{"id": i, "v": "a\0b" if i == 7 else "ab"} for i in range(20)])
    assert stored(lake) == set()


@pytest.mark.parametrize("sort", [(), ("id",)], ids=["at once", "in turn"])
@pytest.mark.parametrize(
    ("point", "at"), [("engine.write.before", 1), ("engine.write.after", 1), ("storage.*.after", 4), ("*sync*", 3)]
)
def test_a_failure_leaves_no_file_behind(lake: quacklake.Lake, point: str, at: int, sort: tuple[str, ...]) -> None:
    table = lake.create_table("t", events(40), partition_by=["region", "day(ts)"], sort_by=sort)
    before = stored(lake), lake.current_snapshot()
    with faults.arm(faults.Fault(pattern=point, at=at)), pytest.raises(faults.FaultInjected):
        table.append(events(40, 1000))
    assert (stored(lake), lake.current_snapshot()) == before


def test_a_range_of_time_leaves_out_files_by_their_month(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(1460), partition_by=["year(ts)", "month(ts)"])
    assert len(table.plan().files) == 12
    assert len(table.plan("ts >= '2024-03-01' AND ts < '2024-04-01'").files) == 1
    assert table.count("ts >= '2024-03-01' AND ts < '2024-04-01'") == 31 * 4


def test_equality_leaves_out_the_other_buckets(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(2000), partition_by="bucket(16, id)")
    assert len(table.plan().files) == 16
    for wanted in (0, 7, 1999):
        plan = table.plan(f"id = {wanted}")
        assert len(plan.files) == 1
        assert f"bucket={bucket(wanted, 'int64', 16)}/" in plan.files.column("path")[0].as_py()
        assert table.count(f"id = {wanted}") == 1
    assert len(table.plan("id IN (1, 2, 3)").files) == len({bucket(i, "int64", 16) for i in (1, 2, 3)})
    assert len(table.plan("id > 5").files) == 16


def test_files_keep_the_partitioning_they_were_written_under(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(100), partition_by="bucket(4, id)")
    table.set_partitioned_by("bucket(8, id)")
    table.append(events(100))
    table.reset_partitioned_by()
    table.append(events(100))
    assert table.partitioned_by == []
    assert len(table.plan().files) == 4 + 8 + 1
    assert len(table.plan("id = 42").files) == 3
    assert table.count("id = 42") == 3
    ids = dict(query(lake, "SELECT partition_id, count(*) FROM ducklake_data_file GROUP BY 1"))
    assert sorted(ids.values()) == [1, 4, 8]
    assert ids[None] == 1, "files of a table without keys belong to no partition"


def test_a_value_that_cannot_be_read_keeps_its_file(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(100), partition_by="bucket(4, id)")
    with lake._context.catalog.commit() as writer:
        by_hand(writer, "UPDATE ducklake_file_partition_value SET partition_value = 'three'")
    assert len(table.plan("id = 42").files) == 4
    with lake._context.catalog.commit() as writer:
        by_hand(writer, "UPDATE ducklake_partition_column SET transform = 'moon(3)'")
    with quacklake.connect(lake.url) as again:
        assert again.table("t").count("id = 42") == 1
        assert again.table("t").partitioned_by == ["moon(3, id)"]
        with pytest.raises(UnsupportedFeatureError, match="moon"):
            again.table("t").append(events(20))


def test_updates_and_merges_move_rows_to_their_partition_and_keep_their_ids(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(60), partition_by="region")
    ids = {row["id"]: row["rowid"] for row in table.scan(row_ids=True).to_pylist()}
    table.update({"region": "moved"}, "id < 20")
    table.merge(pa.table({"id": pa.array([30, 31, 100], pa.int64()), "region": ["m/1", "m/2", "m/1"]}), on="id")
    assert table.count("region = 'moved'") == 20
    assert len(table.plan("region = 'moved'").files) == 1
    assert {text for _, text in values(lake)} == {"eu", "us", None, "moved", "m/1", "m/2"}
    after = {row["id"]: row["rowid"] for row in table.scan(row_ids=True).to_pylist()}
    assert {id_: after[id_] for id_ in ids} == ids
    assert [row["region"] for row in ordered(table, "id IN (30, 31, 100)")] == ["m/1", "m/2", "m/1"]


def test_deletes_overwrites_and_time_travel_work_across_partitions(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(90), partition_by="region")
    first = lake.current_snapshot()
    assert table.delete("region = 'eu' AND id < 30") == 10
    assert table.delete("region = 'us'") == 30
    assert table.count() == 50
    table.overwrite(events(15), where="region = 'eu'")
    assert table.count("region = 'eu'") == 5
    assert lake.at(version=first).table("t").count("region = 'us'") == 30


def test_small_inserts_stay_in_the_catalog_and_are_partitioned_once_they_become_a_file(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", events(3), partition_by="region")
        assert values(lake) == set()
        assert table.count("region = 'eu'") == 1
        with lake.transaction() as tx:
            for first in range(0, 30, 5):
                tx.table("t").append(events(5, 100 + first))
        assert {text for _, text in values(lake)} == {"eu", "us", None}
        assert table.count("region = 'eu'") == 11


def test_a_transaction_partitions_what_it_writes_after_saying_so(lake: quacklake.Lake) -> None:
    lake.create_table("t", events(30))
    with lake.transaction() as tx:
        table = tx.table("t")
        table.set_partitioned_by("region")
        table.append(events(30, 100))
        assert table.partitioned_by == ["region"]
        assert table.count() == 60
        assert table.count("region = 'eu'") == 20
        table.set_partitioned_by("bucket(2, id)")
        table.append(events(30, 200))
    assert lake.table("t").partitioned_by == ["bucket(2, id)"]
    assert lake.table("t").count("id = 205") == 1
    by_spec = dict(query(lake, "SELECT partition_id, count(*) FROM ducklake_data_file GROUP BY 1"))
    assert sorted(by_spec.values()) == [2, 4], "a partitioning that never was is not referred to"
    assert query(lake, "SELECT count(*) FROM ducklake_partition_info") == [(1,)]


def test_large_partitions_become_files_of_the_wanted_size(lake: quacklake.Lake) -> None:
    lake.options.set("target_file_size", "64KB")
    lake.options.set("parquet_row_group_size", 2048)
    table = lake.create_table("t", events(60_000), partition_by="region")
    assert len(table.plan("region = 'eu'").files) > 1
    assert max(file["file_size_bytes"] for file in table.files().to_pylist()) < 128_000
    assert ordered(table) == events(60_000).to_pylist()


def test_many_partitions_are_hardly_more_files(lake: quacklake.Lake) -> None:
    data = pa.table({"id": pa.array(range(30_000), pa.int64()), "k": pa.array([i % 600 for i in range(30_000)])})
    table = lake.create_table("t", data, partition_by="k")
    assert 600 <= len(table.files()) < 700, "a file may be closed and begun again where two threads meet"
    assert table.count("k = 17") == 50


def test_columns_called_like_our_own_names_do_no_harm(lake: quacklake.Lake) -> None:
    data = pa.table({"rowid": [1, 1, 2] * 10, "_ql_key0": ["a", "b", "c"] * 10, "month": [None, "m", "n"] * 10})
    for number, sort in enumerate([(), ("rowid",)]):
        table = lake.create_table(f"t{number}", data, partition_by=["_ql_key0", "month"], sort_by=sort)
        assert len(table.files()) == 3
        assert sorted(table.to_pylist(), key=repr) == sorted(data.to_pylist(), key=repr)


def test_planning_costs_the_same_statements_whatever_the_number_of_files(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(50), partition_by="bucket(2, id)")
    table.plan("id = 1")
    few = statements(lambda: table.plan("id = 2"))  # the same plan again would be remembered
    table.set_partitioned_by("bucket(80, id)")
    table.append(events(3000))
    table.append(events(3000))
    table.plan("id = 1")
    assert statements(lambda: table.plan("id = 2")) == few
    assert len(table.plan("id = 1").files) == 3
    assert statements(table.plan) == few - 1, "without a filter no partition value is read"


@pytest.mark.parametrize(
    ("keys", "error", "match"),
    [
        (["nope"], InputError, "does not exist"),
        (["bucket(0, id)"], InputError, "positive"),
        (["bucket(id)"], InputError, "bucket_count"),
        (["week(ts)"], InputError, "Unsupported partition function"),
        (["epoch_day(ts)"], UnsupportedFeatureError, "1.1"),
        (["month(id)"], InputError, "cannot be partitioned"),
        (["s"], InputError, "cannot be partitioned"),
        (["s.a"], InputError, "qualified"),
        (["id", "id"], InputError, "twice"),
        (["id; DROP TABLE t"], InputError, "does not exist"),
        ([], InputError, "no partition keys"),
        ([5], InputError, "must be text"),
    ],
    ids=str,
)
def test_bad_keys_are_refused_and_change_nothing(
    lake: quacklake.Lake, keys: list[Any], error: type[QuacklakeError], match: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("s", pa.struct([("a", pa.int64())]))])
    table = lake.create_table("t", schema)
    before = lake.current_snapshot()
    with pytest.raises(error, match=match):
        table.set_partitioned_by(*keys)
    with lake.transaction() as tx:
        if keys:
            with pytest.raises(error, match=match):
                tx.create_table("u", schema, partition_by=keys)
        assert tx.tables() == ["main.t"]
    assert lake.current_snapshot() == before
    assert table.partitioned_by == []


def test_saying_the_same_again_changes_nothing(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", events(20), partition_by="region")
    before = lake.current_snapshot()
    table.set_partitioned_by("REGION")
    assert lake.current_snapshot() == before
    table.reset_partitioned_by()
    table.reset_partitioned_by()
    assert lake.current_snapshot() == before + 1


def test_a_table_partitioned_by_a_later_format_is_read_but_not_written(lake: quacklake.Lake) -> None:
    lake.create_table("t", events(60), partition_by="day(ts)")
    with lake._context.catalog.commit() as writer:
        by_hand(writer, "UPDATE ducklake_partition_column SET transform = 'epoch_day'")
        by_hand(
            writer,
            "UPDATE ducklake_file_partition_value"
            " SET partition_value = CAST(CAST(partition_value AS INTEGER) + 19722 AS TEXT)",
        )
    with quacklake.connect(lake.url) as again:
        table = again.table("t")
        assert table.partitioned_by == ["epoch_day(ts)"]
        assert table.count("ts >= '2024-01-05' AND ts < '2024-01-06'") == 4
        with pytest.raises(UnsupportedFeatureError, match="later version"):
            table.append(events(20))


def test_f3_4_epochs_count_from_1970_and_prune(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/next.db"
    with quacklake.connect(url, data_path=tmp_path / "next", format_version="1.1") as lake:
        keys = ("epoch_year(ts)", "epoch_month(ts)", "epoch_day(ts)", "epoch_hour(ts)")
        table = lake.create_table("t", pa.schema([("ts", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))]))
        table.set_partitioned_by(*keys, "epoch_day(at)")
        assert table.partitioned_by == [*keys, "epoch_day(at)"]
        moments = [dt.datetime(2024, 2, 10, 13, 5), dt.datetime(1969, 12, 31, 23, 59), None]
        rows = [{"ts": moment, "at": moment and moment.replace(tzinfo=dt.UTC)} for moment in moments]
        table.append(rows * 5)
        folders = {
            str(path).partition("/t/")[2].rpartition("/")[0] for path in table.files().column("path").to_pylist()
        }
        null = "__HIVE_DEFAULT_PARTITION__"
        assert folders == {
            "epoch_year=54/epoch_month=649/epoch_day=19763/epoch_hour=474325/epoch_day_at=19763",
            "epoch_year=-1/epoch_month=-1/epoch_day=-1/epoch_hour=-1/epoch_day_at=-1",
            f"epoch_year={null}/epoch_month={null}/epoch_day={null}/epoch_hour={null}/epoch_day_at={null}",
        }
        # infinite dates have no parts either, so what has none stays
        assert table.plan("ts >= TIMESTAMP '2024-02-10' AND ts < TIMESTAMP '2024-02-11'").files.num_rows == 2
        assert table.count("ts < TIMESTAMP '1970-01-01'") == 5
        assert table.count("ts IS NULL") == 5
        assert lake.verify(deep=True).findings == ()
