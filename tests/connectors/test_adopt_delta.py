"""Delta tables become tables of a lake where they are, are followed, and stay their owner's."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import (
    AlreadyExistsError,
    ConfigError,
    CorruptFileError,
    InputError,
    NotFoundError,
    PathError,
    QuacklakeError,
    SchemaMismatchError,
    StreamMismatchError,
    UnsupportedFeatureError,
)
from tests.catalog.stock import Stock
from tests.connectors.adoption import HandMade, check_stock, contents, field, sorted_rows

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")

pytestmark = pytest.mark.daily(0.35)


def rows(first: int = 0, count: int = 10) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})


FIELDS = [field("id", "long"), field("name", "string")]


def write(path: Path, table: pa.Table, **options: Any) -> None:
    deltalake.write_deltalake(str(path), table, mode=options.pop("mode", "append"), **options)


def as_delta_reads(path: Path) -> pa.Table:
    """The rows as the library reads them; its queries know deletion vectors and column mapping."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path))).execute("SELECT * FROM t")
    return pa.table(query)


def url_of(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/lake.db"


def connect(tmp_path: Path, **settings: Any) -> quacklake.Lake:
    options = {"data_path": tmp_path / "data", "duckdb_threads": 1, "foreign_paths": [tmp_path / "foreign"], **settings}
    return quacklake.connect(url_of(tmp_path), **options)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "foreign").mkdir()
    return tmp_path / "foreign" / "t"


@pytest.fixture
def lake(tmp_path: Path, place: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as lake:
        yield lake


def check(lake: quacklake.Lake, place: Path, stock: Stock | None = None, name: str = "t") -> None:
    """Assert that we and stock DuckDB read the same rows as the library."""
    expected = as_delta_reads(place)
    found = lake.table(name).to_arrow()
    assert set(found.column_names) == set(expected.column_names)
    assert sorted_rows(found) == sorted_rows(expected.cast(found.select(expected.column_names).schema))
    assert lake.verify(deep=True).ok
    if stock is not None:
        check_stock(lake, found, stock, name)


# -- ownership ---------------------------------------------------------------------------------------------------------


def maintain(lake: quacklake.Lake) -> None:
    """Everything that may remove a file."""
    maintenance = lake.maintenance
    maintenance.merge_adjacent_files()
    maintenance.rewrite_data_files(delete_threshold=0)
    lake.expire_snapshots(keep_last=1)
    lake.cleanup_old_files(cleanup_all=True)
    lake.delete_orphaned_files(cleanup_all=True)


@pytest.mark.daily(1)
@pytest.mark.parametrize("followed", [False, True])
def test_maintenance_never_touches_what_was_adopted(lake: quacklake.Lake, place: Path, followed: bool) -> None:
    table = HandMade(place, [*FIELDS, field("p", "integer")], partition_by=["p"], features=["deletionVectors"])
    for number in range(4):
        vector = table.vector([1, 2]) if number < 2 else None
        table.commit(table.file(f"p={number}/f.parquet", rows(number * 10), {"p": str(number)}, vector))
    before = contents(place)
    lake.adopt(f"delta:{place}", as_="t")
    check(lake, place)
    maintain(lake)
    assert contents(place) == before
    check(lake, place)
    if followed:
        table.commit(table.file("p=4/f.parquet", rows(40), {"p": "4"}))
        before = contents(place)
        report = lake.adopt(f"delta:{place}", as_="t", sync=True)  # takes its files back from the compacted ones
        assert report.added_files == 5
        check(lake, place)
        maintain(lake)
        assert contents(place) == before
        check(lake, place)
    lake.table("t").delete("id < 25")
    lake.table("t").update({"name": "x"}, "id = 30")
    maintain(lake)
    lake.drop_table("t")
    maintain(lake)
    assert contents(place) == before
    assert as_delta_reads(place).num_rows == (46 if followed else 36)


@pytest.mark.daily(1)
def test_stock_may_clean_up_what_our_maintenance_schedules(lake: quacklake.Lake, place: Path, stock: Stock) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    for number in range(4):
        table.commit(table.file(f"{number}.parquet", rows(number), vector=table.vector([1]) if number < 2 else None))
    before = contents(place)
    for name in ("t", "dropped"):
        lake.adopt(f"delta:{place}", as_=name)
    lake.drop_table("dropped")
    lake.maintenance.merge_adjacent_files()
    lake.maintenance.rewrite_data_files(delete_threshold=0)
    lake.expire_snapshots(keep_last=1)
    removed = stock.run(lake.url, "CALL ducklake_cleanup_old_files('l', cleanup_all => true)")
    assert len(removed) >= 4  # delete files of ours
    assert contents(place) == before
    check(lake, place)


def test_a_table_in_the_data_path_is_refused(tmp_path: Path, lake: quacklake.Lake) -> None:
    inside = Path(lake.data_path) / "foreign"
    write(inside, rows())
    link = tmp_path / "foreign" / "link"
    link.symlink_to(inside)
    for path in (inside, link):
        with pytest.raises(PathError, match=r"data path|symbolic link"):
            lake.adopt(f"delta:{path}", as_="t")
    assert lake.current_snapshot() == 0


def test_a_log_may_not_lead_into_the_data_path(lake: quacklake.Lake, place: Path) -> None:
    inside = Path(lake.data_path) / "f.parquet"
    inside.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(), inside)
    table = HandMade(place, FIELDS)
    add = table.file("f.parquet", rows())
    add["add"]["path"] = str(inside)
    table.commit(add)
    with pytest.raises(PathError, match="data path"):
        lake.adopt(f"delta:{place}", as_="t")


def test_only_the_foreign_paths_are_read(tmp_path: Path, place: Path) -> None:
    write(place, rows())
    with connect(tmp_path, foreign_paths=[]) as lake:
        with pytest.raises(PathError) as caught:
            lake.adopt(f"delta:{place}", as_="t")
        assert "foreign_paths" in str(caught.value.hint)


# -- adopting ----------------------------------------------------------------------------------------------------------


def test_types_partitions_and_nested_columns_are_read_by_everybody(
    lake: quacklake.Lake, place: Path, stock: Stock
) -> None:
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)
    table = pa.table(
        {
            "i8": pa.array([1, None, 3], pa.int8()),
            "i16": pa.array([1, None, 3], pa.int16()),
            "i32": pa.array([1, None, 3], pa.int32()),
            "f": pa.array([1.5, None, 3], pa.float32()),
            "d": pa.array([1.5, None, 3], pa.float64()),
            "dec": pa.array(["1.25", None, "3.50"]).cast(pa.decimal128(12, 2)),
            "b": pa.array([True, None, False]),
            "bin": pa.array([b"\x00x", None, b""]),
            "day": pa.array([dt.date(2024, 1, 2), None, dt.date(1969, 1, 1)]),
            "ts": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
            "ntz": pa.array([moment, None, moment], pa.timestamp("us")),
            "s": pa.array([{"x": 1, "y": {"z": ["a", None]}}, None, {"x": None, "y": None}]),
            "m": pa.array([[("k", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
            "part": ["a b/c", None, "ünï=%"],
            "part_day": pa.array([dt.date(2024, 1, 2), dt.date(2024, 1, 3), None]),
        }
    )
    write(place, table, partition_by=["part", "part_day"])
    report = lake.adopt(f"delta:{place}", "t")
    assert (report.created, report.added_files, report.added_rows, report.version) == (True, 3, 3, 0)
    assert not list(Path(lake.data_path).rglob("*.parquet"))
    check(lake, place, stock)
    assert lake.table("t").count("part_day = DATE '2024-01-03'") == 1
    assert lake.table("t").tags == {}
    assert lake.table("t").append(table.slice(0, 1)) == 1
    assert lake.table("t").count() == 4


def test_paths_and_names_are_taken_in_every_spelling(
    lake: quacklake.Lake, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = place.parent / "a [b] c"
    table = HandMade(odd, FIELDS)
    table.commit(table.file("f.parquet", rows()))
    monkeypatch.chdir(odd.parent)
    lake.create_schema("other")
    lake.adopt(f"delta:{odd}/", as_="one")
    lake.adopt(f"delta:file://{odd}", **{"as": "other.two"})  # type: ignore[arg-type]
    lake.adopt("Delta:a [b] c", "three")
    assert [lake.table(name).count() for name in ("one", "other.two", "three")] == [10, 10, 10]


def test_a_dry_run_changes_nothing(lake: quacklake.Lake, place: Path, tmp_path: Path) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    table.commit(table.file("a.parquet", rows(), vector=table.vector([1])))
    before = contents(tmp_path / "data") if (tmp_path / "data").exists() else {}
    report = lake.adopt(f"delta:{place}", as_="t", dry_run=True)
    assert (report.dry_run, report.created, report.added_files, report.added_rows) == (True, True, 1, 9)
    assert lake.current_snapshot() == 0
    lake.adopt(f"delta:{place}", as_="t")
    table.commit(table.file("b.parquet", rows(10)))
    report = lake.adopt(f"delta:{place}", as_="t", sync=True, dry_run=True)
    assert (report.created, report.added_files) == (False, 1)
    assert (lake.current_snapshot(), lake.table("t").count("id >= 0")) == (1, 9)
    assert before == {}


@pytest.mark.parametrize("source", ["", "delta:", "/path", "delta", "s3://bucket/x", "delta://x", None])
def test_a_source_that_names_no_table_is_an_error(lake: quacklake.Lake, source: Any) -> None:
    with pytest.raises((InputError, ConfigError)):
        lake.adopt(source, as_="t")


def test_options_and_kinds_that_do_not_exist_are_errors(lake: quacklake.Lake, place: Path) -> None:
    with pytest.raises(NotFoundError, match="no Delta table"):
        lake.adopt(f"delta:{place}", as_="t")
    with pytest.raises(ConfigError, match="no connector"):
        lake.adopt(f"parrot:{place}", as_="t")
    with pytest.raises(ConfigError, match="foreign_table"):
        lake.adopt(f"nats:{place}", as_="t")
    with pytest.raises(InputError, match="name"):
        lake.adopt(f"delta:{place}")
    with pytest.raises(InputError, match="'mode'"):
        lake.adopt(f"delta:{place}", as_="t", mode="x")
    with pytest.raises(PathError, match=r"another kind of store|outside"):
        lake.adopt("delta:s3://bucket/t", as_="t")


def test_a_table_that_is_there_is_not_replaced(lake: quacklake.Lake, place: Path) -> None:
    write(place, rows())
    lake.create_table("t", rows())
    for sync in (False, True):
        with pytest.raises(AlreadyExistsError):
            lake.adopt(f"delta:{place}", as_="t", sync=sync)
    lake.adopt(f"delta:{place}", as_="u")
    with pytest.raises(AlreadyExistsError) as caught:
        lake.adopt(f"delta:{place}", as_="u")
    assert "sync=True" in str(caught.value.hint)
    with pytest.raises(InputError, match="reserved for Quacklake"):
        lake.table("u").set_tags({"quacklake_adopted": "x"})


def test_an_empty_table_is_adopted_and_followed(lake: quacklake.Lake, place: Path) -> None:
    table = HandMade(place, FIELDS)
    lake.adopt(f"delta:{place}", as_="t")
    table.commit(table.file("empty.parquet", rows(0, 0)))
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert lake.table("t").count() == 0
    table.commit(table.file("a.parquet", rows()))
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place)


def test_an_encrypted_lake_adopts_nothing(tmp_path: Path, place: Path) -> None:
    write(place, rows())
    with connect(tmp_path, encrypted=True) as lake, pytest.raises(UnsupportedFeatureError, match="encrypted"):
        lake.adopt(f"delta:{place}", as_="t")


# -- following ---------------------------------------------------------------------------------------------------------


@pytest.mark.daily(1)
def test_following_registers_only_what_changed(lake: quacklake.Lake, place: Path, stock: Stock) -> None:
    write(place, rows(0))
    write(place, rows(10))
    source = f"delta:{place}"
    lake.adopt(source, as_="t", sync=True)
    kept = set(lake.table("t").files().column("data_file_id").to_pylist())
    write(place, rows(20))
    deltalake.DeltaTable(str(place)).delete("id < 5")
    report = lake.adopt(source, as_="t", sync=True)
    assert (report.added_files, report.removed_files, report.changed_files, report.added_rows) == (2, 1, 0, 15)
    assert len(kept & set(lake.table("t").files().column("data_file_id").to_pylist())) == 1
    check(lake, place, stock)
    version = lake.current_snapshot()
    assert lake.adopt(source, as_="t", sync=True).added_files == 0
    assert lake.current_snapshot() == version
    deltalake.DeltaTable(str(place)).optimize.compact()
    report = lake.adopt(source, as_="t", sync=True)
    assert (report.added_files, report.removed_files) == (1, 3)
    deltalake.DeltaTable(str(place)).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    report = lake.adopt(source, as_="t", sync=True)
    assert (report.added_files, report.removed_files, report.version) == (0, 0, 5)
    check(lake, place, stock)
    assert lake.at(version=1).table("t").count("id >= 0") == 20


def test_deletion_vectors_grow_and_shrink(lake: quacklake.Lake, place: Path, stock: Stock) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    vectors = [table.vector([1, 3], prefix="ab"), table.vector([0, 9], inline=True), None]
    adds = [table.file(f"{n}.parquet", rows(n * 10), vector=vector) for n, vector in enumerate(vectors)]
    table.commit(*adds)
    lake.adopt(f"delta:{place}", as_="t")
    check(lake, place, stock)

    def replace(number: int, vector: dict[str, Any] | None) -> None:
        before = adds[number]["add"]
        adds[number] = table.file(before["path"], rows(), vector=vector)
        remove = {"path": before["path"], "dataChange": True, "deletionTimestamp": 0}
        if "deletionVector" in before:
            remove["deletionVector"] = before["deletionVector"]
        table.commit(adds[number], {"remove": remove})

    replace(0, table.vector([1, 3, 4, 5]))  # more
    report = lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert (report.added_files, report.removed_files, report.changed_files) == (0, 0, 1)
    check(lake, place, stock)
    replace(1, table.vector([0, 2]))  # one more, one less
    replace(2, table.vector(range(10)))  # all
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place, stock)
    replace(0, None)  # none, as after a restore
    replace(2, table.vector([5], inline=True))
    report = lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert (report.added_files, report.removed_files, report.changed_files) == (1, 0, 1)
    check(lake, place, stock)


def test_an_absolute_deletion_vector_is_read(lake: quacklake.Lake, place: Path) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    vector = table.vector([7], prefix="x")
    file = next((place / "x").iterdir())
    vector |= {"storageType": "p", "pathOrInlineDv": file.as_uri()}
    table.commit(table.file("a.parquet", rows(), vector=vector))
    lake.adopt(f"delta:{place}", as_="t")
    assert lake.table("t").count("id >= 0") == 9
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptFileError, match="checksum"):
        lake.adopt(f"delta:{place}", as_="u")


def test_another_table_in_its_place_is_an_error(lake: quacklake.Lake, place: Path) -> None:
    write(place, rows())
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    shutil.rmtree(place)
    write(place, rows(100))
    with pytest.raises(StreamMismatchError, match="another table"):
        lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert lake.current_snapshot() == 1


def test_rows_that_were_changed_here_are_not_undone(lake: quacklake.Lake, place: Path) -> None:
    write(place, rows())
    lake.adopt(f"delta:{place}", as_="t")
    lake.table("t").delete("id = 3")
    write(place, rows(10))
    with pytest.raises(StreamMismatchError, match="snapshot 2"):
        lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert lake.table("t").count("id >= 0") == 9
    lake.rollback(to=1)
    lake.create_table("beside", rows())
    lake.adopt(f"delta:{place}", as_="u", sync=True)
    check(lake, place, name="u")


def test_a_lake_that_goes_back_follows_again(lake: quacklake.Lake, place: Path) -> None:
    write(place, rows())
    lake.adopt(f"delta:{place}", as_="t")
    write(place, rows(10))
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    lake.rollback(to=1)
    assert lake.table("t").count("id >= 0") == 10
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place)


def test_columns_follow(lake: quacklake.Lake, place: Path, stock: Stock) -> None:
    write(place, rows())
    lake.adopt(f"delta:{place}", as_="t")
    more = rows(10).append_column("extra", pa.array(range(10), pa.int32()))
    write(place, more, schema_mode="merge")
    report = lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert (report.added_files, report.removed_files, report.changed_files) == (1, 0, 1)
    check(lake, place, stock)
    write(place, pa.table({"name": [1, 2], "only": ["x", "y"]}), mode="overwrite", schema_mode="overwrite")
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place, stock)
    assert lake.at(version=1).table("t").to_pylist()[0] == {"id": 0, "name": "n0"}
    assert lake.at(version=2).table("t").count("extra IS NULL") == 10


def test_an_order_or_partitions_given_here_may_stop_following(lake: quacklake.Lake, place: Path) -> None:
    write(place, rows())
    lake.adopt(f"delta:{place}", as_="t")
    lake.table("t").set_sorted_by("name")
    write(place, rows(10))
    lake.adopt(f"delta:{place}", as_="t", sync=True)  # an order of new files is no matter
    write(place, rows(20).select(["id"]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(UnsupportedFeatureError, match="sorted by"):
        lake.adopt(f"delta:{place}", as_="t", sync=True)
    lake.table("t").reset_sorted_by()
    lake.table("t").set_partitioned_by("id")
    with pytest.raises(UnsupportedFeatureError, match="partitioned"):
        lake.adopt(f"delta:{place}", as_="t", sync=True)
    lake.table("t").reset_partitioned_by()
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_found_renamed_and_dropped(
    lake: quacklake.Lake, place: Path, stock: Stock, mode: str
) -> None:
    inner = {"type": "struct", "fields": [field("x", "long", id_=4, physical="col-x")]}

    def fields(name: str, *, with_name: bool = True) -> list[dict[str, Any]]:
        found = [field(name, "long", id_=1, physical="col-1"), field("s", inner, id_=3, physical="col-s")]
        return [*found, *([field("name", "string", id_=2, physical="col-2")] if with_name else [])]

    configuration = {"delta.columnMapping.mode": mode}
    table = HandMade(place, fields("id"), configuration=configuration, features=["columnMapping"])
    ids = {"col-1": 1, "col-2": 2, "col-s": 3, "col-x": 4, "other": 9}

    def numbered(arrow: pa.Schema) -> pa.Schema:
        nested = pa.struct([pa.field("col-x", pa.int64(), metadata={b"PARQUET:field_id": b"4"})])
        return pa.schema(
            [
                pa.field(each.name, nested if each.name == "col-s" else each.type, metadata={b"PARQUET:field_id": str(ids[each.name]).encode()})
                for each in arrow
            ]
        )  # fmt: skip

    def stored(first: int) -> pa.Table:
        columns = {
            "col-2": [f"n{n}" for n in range(first, first + 5)],
            "col-1": range(first, first + 5),
            "other": [0] * 5,
        }
        table = pa.table({**columns, "col-s": [{"col-x": n} for n in range(5)]})
        return table.cast(numbered(table.schema))

    table.commit(table.file("ab/one.parquet", stored(0)))
    lake.adopt(f"delta:{place}", as_="t")
    check(lake, place, stock)
    table.commit(table.metadata(fields("number", with_name=False), (), configuration))
    table.commit(table.file("cd/two.parquet", stored(5)))
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert lake.table("t").columns == ["s", "number"]
    check(lake, place, stock)
    table.commit(table.metadata(fields("number"), (), configuration))  # the column comes back with its id
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place, stock)


def test_a_renamed_partition_column_is_read_from_its_old_folders(
    lake: quacklake.Lake, place: Path, stock: Stock
) -> None:
    def fields(name: str) -> list[dict[str, Any]]:
        return [field("id", "long", id_=1, physical="id"), field(name, "string", id_=2, physical="p")]

    configuration = {"delta.columnMapping.mode": "name"}
    table = HandMade(place, fields("p"), partition_by=["p"], configuration=configuration, features=["columnMapping"])
    for value in ("a", "b"):
        table.commit(table.file(f"p={value}/f.parquet", rows().select(["id"]), {"p": value}))
    lake.adopt(f"delta:{place}", as_="t")
    check(lake, place, stock)
    table.commit(table.metadata(fields("region"), ["region"], configuration))
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    assert lake.table("t").count("region = 'b'") == 10
    check(lake, place, stock)


# -- refusals ----------------------------------------------------------------------------------------------------------


def refused(lake: quacklake.Lake, place: Path, error: type[QuacklakeError], match: str) -> None:
    with pytest.raises(error, match=match):
        lake.adopt(f"delta:{place}", as_="t")
    assert lake.current_snapshot() == 0


@pytest.mark.parametrize("feature", ["variantType", "catalogManaged", "unheard-of"])
def test_features_that_no_lake_reads_are_refused(lake: quacklake.Lake, place: Path, feature: str) -> None:
    HandMade(place, FIELDS, features=["deletionVectors", feature])
    refused(lake, place, UnsupportedFeatureError, feature)


@pytest.mark.parametrize(
    "type_", ["variant", "void", {"type": "array", "elementType": "interval", "containsNull": True}]
)
def test_types_that_no_lake_has_are_refused(lake: quacklake.Lake, place: Path, type_: Any) -> None:
    HandMade(place, [*FIELDS, field("odd", type_)])
    refused(lake, place, UnsupportedFeatureError, '"odd"')


def test_files_of_another_type_are_refused(lake: quacklake.Lake, place: Path) -> None:
    table = HandMade(place, [field("id", "integer"), field("name", "string")])
    table.commit(table.file("a.parquet", rows()))
    refused(lake, place, SchemaMismatchError, '"id"')


def test_old_times_without_a_zone_are_refused(lake: quacklake.Lake, place: Path) -> None:
    table = HandMade(place, [field("ts", "timestamp")])
    place.mkdir(exist_ok=True)
    moments = pa.table({"ts": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ns"))})
    pq.write_table(moments, place / "a.parquet", use_deprecated_int96_timestamps=True)
    table.commit(table.file("a.parquet", moments))
    refused(lake, place, SchemaMismatchError, '"ts"')


@pytest.mark.parametrize(
    ("path", "value", "type_"),
    [
        ("f.parquet", "1", "integer"),
        ("q=1/f.parquet", "1", "integer"),
        ("p=2/f.parquet", "1", "integer"),
        ("p=1/f.parquet", None, "integer"),
        ("p=__HIVE_DEFAULT_PARTITION__/f.parquet", "1", "integer"),
        ("p=x/f.parquet", "x", "integer"),
        ("p=null/f.parquet", "null", "string"),
        ("p=2024-01-01%2000:00:00/f.parquet", "2024-01-01 00:00:00", "timestamp"),
        ("p=x/f.parquet", "x", "binary"),
    ],
)
def test_folders_that_do_not_say_the_value_are_refused(
    lake: quacklake.Lake, place: Path, path: str, value: str | None, type_: str
) -> None:
    table = HandMade(place, [*FIELDS, field("p", type_)], partition_by=["p"])
    add = table.file(path, rows(), {"p": value})
    add["add"]["path"] = path.replace("%", "%25")
    table.commit(add)
    refused(lake, place, UnsupportedFeatureError, 'the column "p"')


@pytest.mark.parametrize(
    ("path", "value", "type_", "expected"),
    [
        ("p=01/f.parquet", "1", "integer", 1),
        ("p=1.50/f.parquet", "1.5", "double", 1.5),
        ("p=TRUE/f.parquet", "true", "boolean", True),
        ("p=__HIVE_DEFAULT_PARTITION__/f.parquet", None, "string", None),
        ("p=2024-01-01T00%3A00%3A00Z/f.parquet", "2024-01-01T00:00:00.000000Z", "timestamp", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    ],
)  # fmt: skip
def test_folders_may_spell_a_value_otherwise(
    lake: quacklake.Lake, place: Path, stock: Stock, path: str, value: str | None, type_: str, expected: Any
) -> None:
    table = HandMade(place, [*FIELDS, field("p", type_)], partition_by=["p"])
    add = table.file(path, rows(), {"p": value})
    add["add"]["path"] = path.replace("%", "%25")
    table.commit(add)
    lake.adopt(f"delta:{place}", as_="t")
    assert set(lake.table("t").to_arrow(["p"]).column("p").to_pylist()) == {expected}
    assert stock.run(lake.url, "SELECT count(*) FROM t WHERE p IS NOT DISTINCT FROM (SELECT max(p) FROM t)") == [(10,)]


def test_a_missing_file_and_a_log_with_gaps_are_told(lake: quacklake.Lake, place: Path) -> None:
    for first in (0, 10, 20):
        write(place, rows(first))
    (place / "_delta_log" / f"{1:020}.json").rename(place / "hidden")
    refused(lake, place, CorruptFileError, "lacks version 1")
    (place / "hidden").rename(place / "_delta_log" / f"{1:020}.json")
    next(place.glob("*.parquet")).unlink()
    refused(lake, place, CorruptFileError, "parquet")


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_stands_for_the_commits_before_it(lake: quacklake.Lake, place: Path) -> None:
    for first in (0, 10, 20):
        write(place, rows(first).append_column("p", pa.array([first] * 10)), partition_by=["p"])
    deltalake.DeltaTable(str(place)).delete("id = 25")
    deltalake.DeltaTable(str(place)).create_checkpoint()
    for version in range(3):
        (place / "_delta_log" / f"{version:020}.json").unlink()
    lake.adopt(f"delta:{place}", as_="t")
    check(lake, place)
    write(place, rows(30).append_column("p", pa.array([30] * 10)), partition_by=["p"])
    lake.adopt(f"delta:{place}", as_="t", sync=True)
    check(lake, place)


@pytest.mark.parametrize("form", ["parts", "unfinished", "sidecars"])
def test_checkpoints_of_several_files_are_read(lake: quacklake.Lake, place: Path, form: str) -> None:
    for first in (0, 10):
        write(place, rows(first))
    deltalake.DeltaTable(str(place)).create_checkpoint()
    log = place / "_delta_log"
    whole = log / f"{1:020}.checkpoint.parquet"
    actions = pq.read_table(whole)
    adds = actions.filter(actions.column("add").is_valid()).select(["add"])
    others = actions.filter(actions.column("add").is_null())
    whole.unlink()
    if form == "sidecars":
        (log / "_sidecars").mkdir()
        pq.write_table(adds, log / "_sidecars" / "one.parquet")
        name = {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 0, "tags": None}
        sidecar = pa.array([None] * others.num_rows + [name])
        empty = pa.Table.from_pylist([{}], schema=others.schema)
        pq.write_table(
            pa.concat_tables([others, empty]).append_column("sidecar", sidecar),
            log / f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
        )
    else:
        pq.write_table(others.select(["metaData", "protocol"]), log / f"{1:020}.checkpoint.{1:010}.{2:010}.parquet")
        if form == "parts":
            pq.write_table(adds, log / f"{1:020}.checkpoint.{2:010}.{2:010}.parquet")
    if form != "unfinished":
        for version in range(2):
            (log / f"{version:020}.json").unlink()
    lake.adopt(f"delta:{place}", as_="t")
    assert lake.table("t").count("id >= 0") == 20


# -- faults and races --------------------------------------------------------------------------------------------------


@pytest.mark.daily(1)
def test_a_fault_anywhere_leaves_nothing(tmp_path: Path, lake: quacklake.Lake, place: Path) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    table.commit(table.file("a.parquet", rows(), vector=table.vector([1])))
    before = contents(place)
    lake.create_table("other", rows())
    snapshot, committed = lake.current_snapshot(), 0
    for number in itertools.count(1):
        name = f"t{number}"
        try:
            with arm(Fault(at=number)):
                lake.adopt(f"delta:{place}", as_=name)
            done = True
        except FaultInjected:
            done = False
        there = name in [each.partition(".")[2] for each in lake.tables()]
        assert there == (lake.current_snapshot() > snapshot)
        assert there or not done
        snapshot = lake.current_snapshot()
        if there:
            committed += 1
            assert lake.table(name).count("id >= 0") == 9
        if done:
            break
    assert number > 10
    assert committed < number / 2
    lake.delete_orphaned_files(cleanup_all=True)
    assert len([path for path in (tmp_path / "data").rglob("*") if path.is_file()]) == committed
    assert lake.verify(deep=True).ok
    assert contents(place) == before


def test_a_refusal_leaves_no_file_behind(tmp_path: Path, lake: quacklake.Lake, place: Path) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    table.commit(
        table.file("a.parquet", rows(), vector=table.vector([1])),
        table.file("b.parquet", rows(), vector=table.vector([99])),
    )
    refused(lake, place, CorruptFileError, "beyond")
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_two_who_follow_at_once_add_each_file_once(tmp_path: Path, lake: quacklake.Lake, place: Path) -> None:
    write(place, rows())
    lake.adopt(f"delta:{place}", as_="t")
    for first in (10, 20, 30):
        write(place, rows(first))

    def follow(number: int) -> int:
        with connect(tmp_path) as own:
            return own.adopt(f"delta:{place}", as_="t", sync=True).added_files

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(follow, range(3))) == [0, 0, 3]
    check(lake, place)
    assert lake.current_snapshot() == 2


# -- databases ---------------------------------------------------------------------------------------------------------


@pytest.mark.daily(0.25)
@pytest.mark.parametrize("database", ["duckdb", "postgres", "mysql"])
def test_every_database_remembers_what_is_followed(
    tmp_path: Path, place: Path, new_url: Callable[[str], str], database: str
) -> None:
    table = HandMade(place, FIELDS, features=["deletionVectors"])
    table.commit(table.file("a.parquet", rows(), vector=table.vector([1, 2])))
    source, settings = f"delta:{place}", {"data_path": tmp_path / "data", "foreign_paths": [tmp_path / "foreign"]}
    with quacklake.connect(new_url(database), **settings) as lake:
        lake.adopt(source, as_="t")
        table.commit(table.file("b.parquet", rows(10)))
        table.commit(table.metadata([*FIELDS, field("x", "date")]))
        assert lake.adopt(source, as_="t", sync=True).added_files == 1
        assert lake.adopt(source, as_="t", sync=True).added_files == 0
        check(lake, place)
        lake.table("t").delete("id = 3")
        with pytest.raises(StreamMismatchError):
            lake.adopt(source, as_="t", sync=True)
