"""Iceberg tables become tables of a lake where they are: every kind of deletes, and columns that change."""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import (
    CorruptFileError,
    NotFoundError,
    PathError,
    StreamMismatchError,
    UnsupportedFeatureError,
)
from tests import seeds
from tests.catalog.stock import Stock
from tests.connectors.adoption import check_stock, contents, delta_vector, sorted_rows

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType

pytestmark = pytest.mark.daily(0.35)

HISTORIES, STEPS = (30, 25) if seeds.LONG else (1, 10)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    (tmp_path / "foreign").mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/iceberg.db", warehouse=f"file://{tmp_path}/foreign")
    catalog.create_namespace("n")
    yield catalog
    catalog.engine.dispose()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as lake:
        yield lake


def connect(tmp_path: Path, **settings: Any) -> quacklake.Lake:
    options = {"data_path": tmp_path / "data", "duckdb_threads": 1, "foreign_paths": [tmp_path / "foreign"], **settings}
    return quacklake.connect(f"sqlite:///{tmp_path}/lake.db", **options)


def rows(first: int = 0, count: int = 10) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})


def source(table: Table) -> str:
    return f"iceberg:{table.metadata_location}"


def folder(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def check(lake: quacklake.Lake, table: Table, stock: Stock | None = None) -> None:
    expected, found = table.scan().to_arrow(), lake.table("t").to_arrow()
    assert set(found.column_names) == set(expected.column_names)
    assert sorted_rows(found) == sorted_rows(expected.cast(found.select(expected.column_names).schema))
    assert lake.verify(deep=True).ok
    if stock is not None:
        check_stock(lake, found, stock)


def ids(lake: quacklake.Lake) -> list[int]:
    return sorted(lake.table("t").to_arrow(["id"]).column("id").to_pylist())


# -- deletes -----------------------------------------------------------------------------------------------------------


def add_deletes(
    table: Table,
    content: DataFileContent,
    data: pa.Table | bytes,
    *,
    equality_ids: list[int] | None = None,
    partition: Record | None = None,
    spec: int = 0,
) -> Table:
    """Add a delete file to a table, as other engines do."""
    puffin = isinstance(data, bytes)
    path = folder(table) / "data" / f"{uuid4()}.{'puffin' if puffin else 'parquet'}"
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        pq.write_table(data, path)
    file = DataFile.from_args(
        _table_format_version=2,
        content=content,
        file_path=path.as_uri(),
        file_format=FileFormat.PUFFIN if puffin else FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        column_sizes={}, value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={},
        key_metadata=None, split_offsets=None, equality_ids=equality_ids, sort_order_id=None,
    )  # fmt: skip
    file.spec_id = spec
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    return table.refresh()


def files_of(table: Table) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


def positions(path: str, *places: int) -> pa.Table:
    return pa.table({"file_path": [path] * len(places), "pos": pa.array(places, pa.int64())})


def test_position_deletes_are_followed(catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    table.append(rows(0))
    first = files_of(table)[0]
    table.append(rows(10))
    table = add_deletes(table, DataFileContent.POSITION_DELETES, positions(first, 1, 2))
    before = contents(folder(table))
    lake.adopt(source(table), as_="t")
    check(lake, table, stock)
    second = next(path for path in files_of(table) if path != first)
    both = pa.concat_tables([positions(first, 2, 7), positions(second, 0)])
    table = add_deletes(table, DataFileContent.POSITION_DELETES, both)
    report = lake.adopt(source(table), as_="t", sync=True)
    assert (report.added_files, report.removed_files, report.changed_files) == (0, 0, 2)
    assert len(ids(lake)) == 16
    check(lake, table, stock)
    lake.maintenance.rewrite_data_files(delete_threshold=0)
    lake.expire_snapshots(keep_last=1)
    lake.cleanup_old_files(cleanup_all=True)
    check(lake, table)
    assert before.items() <= contents(folder(table)).items()


def test_deletion_vectors_are_read(catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    table.append(rows(0))
    table.append(rows(10))
    blobs, entries, offset = b"", [], 4
    for path, places in zip(files_of(table), ([1, 2, 3], [9]), strict=True):
        vector = delta_vector(places)
        blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        facts = {"referenced-data-file": path, "cardinality": str(len(places))}
        entries.append({"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1,
                        "offset": offset, "length": len(blob), "properties": facts})  # fmt: skip
        blobs, offset = blobs + blob, offset + len(blob)
    payload = json.dumps({"blobs": entries}).encode()
    data = b"PFA1" + blobs + b"PFA1" + payload + struct.pack("<II", len(payload), 0) + b"PFA1"
    table = add_deletes(table, DataFileContent.POSITION_DELETES, data)
    lake.adopt(source(table), as_="t")
    assert len(ids(lake)) == 16
    check(lake, table, stock)


def test_equality_deletes_become_positions(catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = catalog.create_table("n.t", schema=schema)
    table.append(pa.table({"id": [0, 1, 2, None], "name": ["a", "b", None, None]}))

    def gone(**columns: Any) -> pa.Table:
        numbers = {"id": b"1", "name": b"2"}
        fields = [
            pa.field(name, array.type, metadata={b"PARQUET:field_id": numbers[name]}) for name, array in columns.items()
        ]
        return pa.table(list(columns.values()), schema=pa.schema(fields))

    table = add_deletes(table, DataFileContent.EQUALITY_DELETES, gone(id=pa.array([1], pa.int64())), equality_ids=[1])
    table.append(pa.table({"id": [1], "name": ["again"]}))  # newer than the delete
    table = add_deletes(
        table,
        DataFileContent.EQUALITY_DELETES,
        gone(id=pa.array([None, 2], pa.int64()), name=pa.array([None, "other"])),
        equality_ids=[1, 2],
    )
    lake.adopt(source(table), as_="t")
    found = lake.table("t").to_arrow()
    assert sorted_rows(found) == sorted_rows(pa.table({"id": [0, 2, 1], "name": ["a", None, "again"]}))
    check_stock(lake, found, stock)
    table = add_deletes(table, DataFileContent.EQUALITY_DELETES, gone(name=pa.array(["a"])), equality_ids=[2])
    lake.adopt(source(table), as_="t", sync=True)
    assert ids(lake) == [1, 2]
    table = add_deletes(table, DataFileContent.EQUALITY_DELETES, gone(name=pa.array(["a"])), equality_ids=[7])
    with pytest.raises(UnsupportedFeatureError, match="field id 7"):
        lake.adopt(source(table), as_="t", sync=True)


def test_equality_deletes_stay_in_their_partition(catalog: SqlCatalog, lake: quacklake.Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    table.append(pa.table({"id": [1, 2, 1], "name": ["a", "a", "b"]}))
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    one = pa.table([pa.array([1], pa.int64())], schema=pa.schema([field]))
    table = add_deletes(table, DataFileContent.EQUALITY_DELETES, one, equality_ids=[1], partition=Record("a"))
    lake.adopt(source(table), as_="t")
    assert sorted_rows(lake.table("t").to_arrow()) == sorted_rows(pa.table({"id": [2, 1], "name": ["a", "b"]}))


def test_positions_beyond_a_file_are_an_error(catalog: SqlCatalog, lake: quacklake.Lake) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    table.append(rows(0))
    table = add_deletes(table, DataFileContent.POSITION_DELETES, positions(files_of(table)[0], 99))
    with pytest.raises(CorruptFileError, match="beyond"):
        lake.adopt(source(table), as_="t")
    assert lake.current_snapshot() == 0


# -- columns -----------------------------------------------------------------------------------------------------------


def test_files_of_older_columns_are_read_by_their_ids(catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock) -> None:
    nested = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "c"}])
    lists = pa.array([[{"k": 1}], [], None])
    maps = pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64()))
    start = pa.table(
        {"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", None], "s": nested, "l": lists, "m": maps}
    )
    table = catalog.create_table("n.t", schema=start.schema)
    table.append(start)
    lake.adopt(source(table), as_="t")
    check(lake, table, stock)
    with table.update_schema() as update:
        update.rename_column("name", "label")
        update.update_column("id", LongType())
        update.rename_column(("s", "x"), "z")
        update.rename_column("l.element.k", "key")
    with table.update_schema() as update:
        update.add_column("name", IntegerType())  # the old names with another meaning
        update.add_column(("s", "x"), StringType())
    more = pa.table({"id": [10], "label": ["l"], "name": pa.array([7], pa.int32()), "s": [{"z": 5, "y": "q", "x": "new"}],
                     "l": [[{"key": 9}]], "m": pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64()))})  # fmt: skip
    table.append(more)
    lake.adopt(source(table), as_="t", sync=True)
    check(lake, table, stock)
    with table.update_schema() as update:
        update.delete_column("label")
    lake.adopt(source(table), as_="t", sync=True)  # without a new snapshot there
    check(lake, table, stock)
    with table.update_schema() as update:
        update.add_column("label", StringType())  # not the one that is in the files
    lake.adopt(source(table), as_="t", sync=True)
    assert lake.table("t").count("label IS NULL") == 4
    check(lake, table, stock)


def test_a_name_that_comes_back_is_another_column(catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    table.append(rows(0))
    with table.update_schema() as update:
        update.delete_column("name")
    with table.update_schema() as update:
        update.add_column("name", StringType())
    table.append(rows(10))  # a file that looks like the first, but for the ids
    lake.adopt(source(table), as_="t")
    assert lake.table("t").count("name IS NULL") == 10
    check(lake, table, stock)


def test_partitions_and_times_are_in_the_files(catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType()),
        NestedField(3, "at", TimestampType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "name"),
        PartitionField(3, 1001, DayTransform(), "day"),
        PartitionField(1, 1002, BucketTransform(4), "bucket"),
    )
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    moments = [dt.datetime(2024, 1, 1 + n % 2, n) for n in range(8)]
    data = pa.table({"id": range(8), "name": ["a", "b/c", None, "d"] * 2, "at": moments})
    table.append(
        data.cast(
            pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("at", pa.timestamp("us"))])
        )
    )
    lake.adopt(source(table), as_="t")
    check(lake, table, stock)
    assert not lake.table("t").schema.field("id").nullable
    assert lake.table("t").count("name = 'b/c'") == 2


def test_files_without_field_ids_need_a_name_mapping(
    catalog: SqlCatalog, lake: quacklake.Lake, stock: Stock, tmp_path: Path
) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    path = tmp_path / "foreign" / "plain.parquet"
    pq.write_table(rows(), path)
    table.add_files([path.as_uri()])
    mapping = table.properties.get("schema.name-mapping.default")
    assert mapping is not None
    with table.update_schema() as update:
        update.rename_column("name", "label")
    lake.adopt(source(table), as_="t")
    check(lake, table, stock)
    with table.transaction() as tx:
        tx.remove_properties("schema.name-mapping.default")
    with pytest.raises(UnsupportedFeatureError, match="field ids"):
        lake.adopt(source(table.refresh()), as_="u")


def test_values_that_only_the_partition_has_are_refused(catalog: SqlCatalog, lake: quacklake.Lake) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    with table.update_spec() as update:
        update.add_field("name", IdentityTransform(), "name")
    path = folder(table) / "data" / "name=a" / "f.parquet"
    path.parent.mkdir(parents=True)
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    pq.write_table(pa.table([pa.array([1], pa.int64())], schema=pa.schema([field])), path)
    file = DataFile.from_args(
        _table_format_version=2, content=DataFileContent.DATA, file_path=f"file://{path}", file_format=FileFormat.PARQUET,
        partition=Record("a"), record_count=1, file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={},
        null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={}, key_metadata=None,
        split_offsets=None, equality_ids=None, sort_order_id=None,
    )  # fmt: skip
    file.spec_id = table.spec().spec_id
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    with pytest.raises(UnsupportedFeatureError, match='"name"'):
        lake.adopt(source(table), as_="t")


def test_types_that_no_lake_has_are_refused(catalog: SqlCatalog, lake: quacklake.Lake) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    facts = json.loads(metadata.read_text())
    facts |= {"format-version": 3, "next-row-id": 0}
    facts["schemas"][0]["fields"][0]["type"] = "timestamptz_ns"
    other = metadata.with_name("v9.metadata.json")
    other.write_text(json.dumps(facts))
    with pytest.raises(UnsupportedFeatureError, match='"id"'):
        lake.adopt(f"iceberg:{other}", as_="t")


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_folder_stands_for_its_newest_metadata(catalog: SqlCatalog, lake: quacklake.Lake) -> None:
    table = catalog.create_table("n.t", schema=rows().schema)
    place = f"iceberg:{folder(table)}"
    lake.adopt(place, as_="t", sync=True)
    assert lake.table("t").count() == 0
    for first in range(0, 120, 10):  # ten come after nine
        table.append(rows(first))
    lake.adopt(place, as_="t", sync=True)
    check(lake, table)
    before = lake.current_snapshot()
    lake.adopt(source(table), as_="t", sync=True)  # the same table by another name
    assert lake.current_snapshot() == before
    metadata = Path(table.metadata_location.removeprefix("file://"))
    (metadata.parent / "version-hint.text").write_text("7\n")
    lake.adopt(place, as_="old")
    assert lake.table("old").count() == 70
    (metadata.parent / "version-hint.text").unlink()
    (metadata.parent / "00012-other.metadata.json").write_bytes(metadata.read_bytes())
    with pytest.raises(UnsupportedFeatureError, match="several"):
        lake.adopt(place, as_="t", sync=True)


def test_replaced_missing_and_broken_tables_are_errors(
    catalog: SqlCatalog, lake: quacklake.Lake, tmp_path: Path
) -> None:
    first, second = (catalog.create_table(f"n.{name}", schema=rows().schema) for name in "ab")
    first.append(rows())
    lake.adopt(source(first), as_="t", sync=True)
    with pytest.raises(StreamMismatchError, match="another table"):
        lake.adopt(source(second), as_="t", sync=True)
    with pytest.raises(NotFoundError, match="no Iceberg table"):
        lake.adopt(f"iceberg:{tmp_path}/foreign/none", as_="u")
    broken = tmp_path / "foreign" / "v1.metadata.json"
    broken.write_text("{}")
    with pytest.raises(CorruptFileError):
        lake.adopt(f"iceberg:{broken}", as_="u")
    with connect(tmp_path, foreign_paths=[]) as strict, pytest.raises(PathError):
        strict.adopt(source(second), as_="u")


# -- random histories --------------------------------------------------------------------------------------------------


def change(table: Table, chance: random.Random, step: int) -> str:
    """Change a table at random, as pyiceberg can."""
    names = [field.name for field in table.schema().fields]

    def more(count: int) -> pa.Table:
        data = pa.table({"id": pa.array(range(step * 100, step * 100 + count), pa.int64())})
        for name in names[1:]:
            data = data.append_column(
                name, pa.array([chance.choice(["a", "b", None]) for _ in range(count)], pa.string())
            )
        return data

    kind = chance.choice(
        ["append", "append", "delete", "delete", "overwrite", "upsert", "columns", "columns", "positions"]
    )
    if kind == "append":
        table.append(more(chance.randrange(1, 20)))
    elif kind == "delete":
        table.delete(f"id >= {step * 50} AND id < {step * 50 + chance.randrange(60)}")
    elif kind == "overwrite":
        table.overwrite(more(5), overwrite_filter=f"id < {chance.randrange(step * 100 + 1)}")
    elif kind == "upsert":
        table.upsert(more(7), join_cols=["id"])
    elif kind == "positions" and (files := list(table.scan().plan_files())):
        task = chance.choice(files)
        places = chance.sample(range(task.file.record_count), min(2, task.file.record_count))
        add_deletes(table, DataFileContent.POSITION_DELETES, positions(task.file.file_path, *places))
    else:
        rename_columns(table, names, chance, step)
    return kind


def rename_columns(table: Table, names: Sequence[str], chance: random.Random, step: int) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        if len(names) > 2 and chance.random() < 0.5:
            update.delete_column(names[-1])
        elif len(names) > 1 and chance.random() < 0.25:
            update.rename_column(names[1], f"renamed{step}")
        else:
            free = [name for name in ("again", "more") if name not in names]  # names come back
            update.add_column(chance.choice(free) if free else f"c{step}", StringType())


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_followed_table_is_what_pyiceberg_reads(
    catalog: SqlCatalog, lake: quacklake.Lake, stock_if_plain: Stock | None, number: int
) -> None:
    chance = seeds.chance("adopt iceberg", number)
    table = catalog.create_table("n.t", schema=rows().schema)
    done: list[str] = []
    for step in range(STEPS):
        done.append(change(table, chance, step))
        table = catalog.load_table("n.t")
        before = contents(folder(table))
        lake.adopt(source(table), as_="t", sync=True)
        if chance.random() < 0.3:
            done.append("maintained")
            lake.maintenance.merge_adjacent_files()
            lake.maintenance.rewrite_data_files(delete_threshold=0)
            lake.expire_snapshots(keep_last=1)
            lake.cleanup_old_files(cleanup_all=True)
        expected, found = table.scan().to_arrow(), lake.table("t").to_arrow()
        assert sorted_rows(found) == sorted_rows(expected.cast(found.select(expected.column_names).schema)), done
        if step % 3 == 2:  # all files at once
            lake.adopt(source(table), as_="fresh")
            assert sorted_rows(lake.table("fresh").to_arrow()) == sorted_rows(found), done
            lake.drop_table("fresh")
        assert contents(folder(table)) == before
    if stock_if_plain is not None:
        check_stock(lake, found, stock_if_plain)
