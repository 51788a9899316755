"""Files from elsewhere become part of a table: found by name, checked, read and changed like any others."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake import telemetry
from quacklake.cli import main
from quacklake.core.scan import ScanPlan
from quacklake.errors import (
    AlreadyExistsError,
    CommitConflict,
    ConfigError,
    ConstraintError,
    CorruptFileError,
    InputError,
    NotFoundError,
    PathError,
    QuacklakeError,
    ReadOnlyError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)

pytestmark = pytest.mark.daily(0.5)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])


def rows(first: int, count: int = 20) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids], "value": [i / 2 for i in ids]}, schema=SCHEMA)


def put(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def connect(tmp_path: Path, **settings: Any) -> quacklake.Lake:
    options = {"data_path": tmp_path / "data", "duckdb_threads": 1, "foreign_paths": [tmp_path / "outside"], **settings}
    return quacklake.connect(f"sqlite:///{tmp_path}/lake.db", **options)


@pytest.fixture
def lake(tmp_path: Path, outside: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as lake:
        lake.create_table("t", SCHEMA)
        yield lake


def ids(table: quacklake.Table, where: str | None = None) -> list[int]:
    return sorted(table.to_arrow(["id"], where).column("id").to_pylist())


# -- reading and changing ----------------------------------------------------------------------------------------------


def test_a_path_a_pattern_and_a_list_are_added_without_a_copy(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.table("t")
    one = put(outside / "one.parquet", rows(0))
    for number in range(3):
        put(outside / "more" / f"{number}.parquet", rows(100 * (number + 1)))
    assert table.add_files(one) == 20
    assert table.add_files(str(outside / "more" / "[01].parquet")) == 40
    assert table.add_files([outside / "more" / "2.parquet", str(outside / "more" / "2.*")]) == 20
    assert (table.count(), table.count("id >= 0")) == (80, 80)
    assert ids(table, "id > 310") == list(range(311, 320))
    assert sorted(table.scan(["id"], row_ids=True).to_arrow().column("rowid").to_pylist()) == list(range(80))
    assert set(table.files().column("path").to_pylist()) == {str(path) for path in outside.rglob("*.parquet")}
    assert not list(Path(lake.data_path).rglob("*.parquet"))
    assert lake.snapshots().column("changes").to_pylist()[-1].startswith("inserted_into_table:")


def test_added_rows_are_deleted_and_updated_like_others(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.table("t")
    file = put(outside / "f.parquet", rows(0, 1000), row_group_size=100)
    before = file.read_bytes()
    table.add_files(file)
    table.append(rows(5000, 30))
    assert table.delete("id BETWEEN 100 AND 199") == 100
    assert table.delete("id = 5") == 1
    assert table.update({"name": "new"}, "id BETWEEN 300 AND 349") == 50
    assert (table.count("id >= 0"), table.count("name = 'new'")) == (929, 50)
    found = table.scan(["id"], "id BETWEEN 290 AND 310", row_ids=True).to_arrow()
    assert found.column("rowid").to_pylist() == found.column("id").to_pylist()
    assert lake.at(version=2).table("t").count("id >= 0") == 1000
    table.delete()
    assert table.count() == 0
    assert file.read_bytes() == before


def test_a_transaction_sees_its_added_files_and_a_rollback_leaves_them(lake: quacklake.Lake, outside: Path) -> None:
    file = put(outside / "f.parquet", rows(0))
    with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
        tx.table("t").add_files(file)
        tx.table("t").delete("id < 5")
        assert ids(tx.table("t")) == list(range(5, 20))
        raise ZeroDivisionError
    assert file.exists()
    assert lake.table("t").count() == 0
    with lake.transaction() as tx:
        tx.create_table("new", SCHEMA)
        tx.table("new").add_files(file)
        tx.table("new").delete("id < 5")
        with pytest.raises(AlreadyExistsError):
            tx.table("new").add_files(file)
    assert ids(lake.table("new")) == list(range(5, 20))


def test_files_below_the_table_s_folder_are_named_relative_to_it(lake: quacklake.Lake, tmp_path: Path) -> None:
    inside = put(Path(lake.data_path) / "main" / "t" / "sub" / "f.parquet", rows(0))
    beside = put(Path(lake.data_path) / "f.parquet", rows(100))
    lake.table("t").add_files([inside, beside])
    connection = sqlite3.connect(tmp_path / "lake.db")
    paths = connection.execute("SELECT path, path_is_relative FROM ducklake_data_file ORDER BY data_file_id").fetchall()
    connection.close()
    assert paths == [("sub/f.parquet", 1), (str(beside), 0)]
    with connect(tmp_path, foreign_paths=[]) as again:  # what is in the data path needs no leave
        assert again.table("t").count("id >= 0") == 40


def test_files_without_rows_add_nothing(lake: quacklake.Lake, outside: Path) -> None:
    before = lake.current_snapshot()
    assert lake.table("t").add_files(put(outside / "f.parquet", rows(0, 0))) == 0
    assert lake.current_snapshot() == before


def test_statistics_prune_added_files(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.table("t")
    for number in range(5):
        put(outside / f"{number}.parquet", rows(number * 100), row_group_size=7)
    table.add_files(outside / "*.parquet")
    assert table.plan("id BETWEEN 210 AND 215").files.num_rows == 1
    assert table.plan("name = 'n205'").files.num_rows == 2
    assert table.plan("name = 'zz'").files.num_rows == 0
    assert ids(table, "name = 'n205'") == [205]


def test_a_plan_takes_the_mapping_along(lake: quacklake.Lake, outside: Path) -> None:
    lake.table("t").add_files(put(outside / "f.parquet", rows(0)))
    plan = ScanPlan.from_ipc(lake.table("t").plan().to_ipc())
    assert lake._context.engine.count(plan, "name = 'n3'") == 1


# -- columns -----------------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_in_any_order_and_case(lake: quacklake.Lake, outside: Path) -> None:
    table = pa.table({"VALUE": [1.5], "Name": ["x"], "ID": pa.array([1], pa.int32())})
    lake.table("t").add_files(put(outside / "f.parquet", table))
    assert lake.table("t").to_pylist() == [{"id": 1, "name": "x", "value": 1.5}]


def test_missing_and_extra_columns_need_leave(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.table("t")
    less = put(outside / "less.parquet", rows(0).select(["id", "name"]))
    more = put(outside / "more.parquet", rows(100).append_column("extra", pa.array(range(20))))
    with pytest.raises(
        SchemaMismatchError, match='Column "value" exists in table "t" but was not found in file'
    ) as caught:
        table.add_files(less)
    assert "allow_missing" in str(caught.value)
    with pytest.raises(
        SchemaMismatchError, match=r'"extra" exists in file .* but was not found in table "t"'
    ) as caught:
        table.add_files(more)
    assert "ignore_extra_columns" in str(caught.value)
    table.add_files(less, allow_missing=True)
    table.add_files(more, ignore_extra_columns=True)
    assert table.count("value IS NULL") == 20
    assert ids(table, "value > 0 OR value IS NULL") == [*range(20), *range(100, 120)]
    assert table.schema == SCHEMA


NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("d", pa.date32())]))])),
        ("l", pa.list_(pa.struct([("x", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("y", pa.float64())]))),
    ]
)


def test_nested_columns_are_mapped_at_every_depth(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.create_table("nested", NESTED)
    query = (
        "SELECT {'b': {'D': DATE '2024-01-02', 'c': 'x' || i}, 'a': i::INTEGER} AS S, [{'x': i::SMALLINT}, NULL] AS l,"
        " MAP {'k': {'y': i::FLOAT}} AS m FROM range(3) r(i)"
    )
    duckdb.sql(f"COPY ({query}) TO '{outside}/f.parquet'")
    table.add_files(outside / "f.parquet")
    first = table.to_pylist(where="s.a = 1")[0]
    assert first["s"]["b"]["c"] == "x1"
    assert str(first["s"]["b"]["d"]) == "2024-01-02"
    assert (first["l"], first["m"]) == ([{"x": 1}, None], [("k", {"y": 1.0})])
    lacking = "SELECT {'a': 7::BIGINT} AS s, NULL AS l, NULL AS m"
    duckdb.sql(
        f"COPY (SELECT s, l::STRUCT(x BIGINT)[] AS l, m::MAP(VARCHAR, STRUCT(y DOUBLE)) AS m FROM ({lacking}))"
        f" TO '{outside}/g.parquet'"
    )
    with pytest.raises(SchemaMismatchError, match=r"s\.b"):
        table.add_files(outside / "g.parquet")
    table.add_files(outside / "g.parquet", allow_missing=True)
    assert table.to_pylist(where="s.a = 7") == [{"s": {"a": 7, "b": None}, "l": None, "m": None}]
    assert table.count("s.b.c = 'x2'") == 1


@pytest.mark.parametrize(
    ("file", "column", "good"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.uint16(), pa.int32(), True),
        (pa.int64(), pa.int32(), False),
        (pa.uint64(), pa.int64(), False),
        (pa.uint8(), pa.uint32(), True),
        (pa.int8(), pa.uint8(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), True),
        (pa.decimal128(9, 0), pa.decimal128(9, 3), False),
        (pa.timestamp("ms"), pa.timestamp("us"), True),
        (pa.timestamp("ns"), pa.timestamp("us"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.binary(), pa.string(), False),
        (pa.string(), pa.binary(), False),
        (pa.date32(), pa.date32(), True),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.time64("us"), pa.time64("us"), True),
        (pa.bool_(), pa.bool_(), True),
        (pa.list_(pa.int32()), pa.int32(), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.struct([("a", pa.int32())]), pa.list_(pa.int64()), False),
    ],
    ids=str,
)
def test_types_may_widen_and_nothing_else(
    lake: quacklake.Lake, outside: Path, file: pa.DataType, column: pa.DataType, good: bool
) -> None:
    table = lake.create_table("typed", pa.schema([("c", column)]))
    put(outside / "f.parquet", pa.table({"c": pa.nulls(2, file)}))
    if good:
        assert table.add_files(outside / "f.parquet") == 2
        assert table.to_arrow().column("c").null_count == 2
    else:
        with pytest.raises(SchemaMismatchError, match='"c"'):
            table.add_files(outside / "f.parquet")


def test_a_finer_time_is_found_where_it_is_read(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.create_table("times", pa.schema([("moment", pa.timestamp("us"))]))
    nanos = pa.array([1_700_000_000_000_000_999], pa.timestamp("ns"))
    table.add_files(put(outside / "f.parquet", pa.table({"moment": nanos})))
    (found,) = table.to_pylist()
    assert table.count(f"moment = TIMESTAMP '{found['moment']}'") == 1


def test_not_null_columns_stay_so(lake: quacklake.Lake, outside: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    table = lake.create_table("strict", schema)
    good = put(outside / "good.parquet", pa.table({"id": [1], "name": ["x"]}))
    null = put(outside / "null.parquet", pa.table({"id": pa.array([None], pa.int64()), "name": ["x"]}))
    silent = put(outside / "silent.parquet", pa.table({"id": [1], "name": ["x"]}), write_statistics=False)
    lacking = put(outside / "lacking.parquet", pa.table({"name": ["x"]}))
    for bad in (null, silent):
        with pytest.raises(ConstraintError, match="NOT NULL"):
            table.add_files(bad)
    with pytest.raises(ConstraintError, match="NOT NULL"):
        table.add_files(lacking, allow_missing=True)
    assert table.add_files(good) == 1


# -- folders -----------------------------------------------------------------------------------------------------------


def test_folders_give_typed_columns(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.create_table("h", pa.schema([("id", pa.int64()), ("day", pa.date32()), ("city", pa.string())]))
    for number, folder in enumerate(
        (
            "day=2024-01-01/city=a%20b",
            "day=2024-01-02/city=NULL",
            "day=__HIVE_DEFAULT_PARTITION__/city=",
            "day=/city=x'y",
        )
    ):
        put(outside / folder / "f.parquet", pa.table({"id": [number, number + 10]}))
    assert table.add_files(outside / "**/*.parquet") == 8
    found = {row["id"]: (str(row["day"]), row["city"]) for row in table.to_pylist()}
    assert found[0] == found[10] == ("2024-01-01", "a b")
    assert found[1] == ("2024-01-02", None)
    assert found[2] == ("None", "")
    assert found[3] == ("None", "x'y")
    assert table.plan("day = DATE '2024-01-02' AND city IS NULL AND id < 5").files.num_rows < 4
    assert table.count("day = DATE '2024-01-02'") == 2
    assert table.count("day IS NULL") == 4
    assert table.delete("city = 'a b' AND id = 10") == 1
    assert ids(table, "day = DATE '2024-01-01'") == [0]


def test_a_folder_that_is_no_value_is_refused_unless_folders_mean_nothing(lake: quacklake.Lake, outside: Path) -> None:
    file = put(outside / "id=x" / "f.parquet", rows(0))
    with pytest.raises(SchemaMismatchError, match=r"Unable to cast 'x' .from hive partition column 'ID'. to:"):
        lake.table("t").add_files(file)
    assert lake.table("t").add_files(file, hive_partitioning=False) == 20
    assert ids(lake.table("t")) == list(range(20))


def test_a_partitioned_table_takes_files_whose_folders_prove_their_keys(lake: quacklake.Lake, outside: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("city", pa.string())])
    table = lake.create_table("p", schema, partition_by=["city", "day"])
    for folder in ("day=2024-01-01/city=x", "city=NULL/day=2024-01-02"):
        put(outside / folder / "f.parquet", pa.table({"id": [1, 2]}))
    table.add_files(outside / "**/*.parquet")
    assert table.plan("city = 'x'").files.num_rows == 1
    assert table.plan("day = DATE '2024-01-02'").files.num_rows == 1
    assert (table.count("city = 'x'"), table.count("city IS NULL"), table.count()) == (2, 2, 4)
    lonely = put(outside / "city=x" / "f.parquet", pa.table({"id": [1]}))
    with pytest.raises(SchemaMismatchError, match='partitioned by "day"'):
        table.add_files(lonely, allow_missing=True)
    with pytest.raises(SchemaMismatchError, match="partitioned by"):
        table.add_files(put(outside / "day=2024-01-03" / "city=x" / "f.parquet", rows(0)), hive_partitioning=False)
    by_year = lake.create_table("y", schema, partition_by=["year(day)"])
    with pytest.raises(UnsupportedFeatureError, match="year"):
        by_year.add_files(lonely, allow_missing=True)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_files_outside_need_the_setting(lake: quacklake.Lake, tmp_path: Path, outside: Path) -> None:
    stranger = put(tmp_path / "other" / "f.parquet", rows(0))
    with pytest.raises(PathError, match="outside the data root") as caught:
        lake.table("t").add_files(stranger)
    assert "foreign_paths" in str(caught.value)
    (outside / "link.parquet").symlink_to(stranger)
    with pytest.raises(PathError, match="symbolic link"):
        lake.table("t").add_files(outside / "link.parquet")
    lake.table("t").add_files(put(outside / "f.parquet", rows(0)))
    with connect(tmp_path, foreign_paths=[]) as careful, pytest.raises(PathError, match="outside") as caught:
        careful.table("t").to_arrow()
    assert "foreign_paths" in str(caught.value)
    with connect(tmp_path, foreign_paths=f"{tmp_path}/other,{outside}") as both:
        assert both.table("t").count("id >= 0") == 20
    with pytest.raises(ConfigError, match="foreign_paths"):
        connect(tmp_path, foreign_paths=["s3://b/../c"])


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "etc/passwd", "file:///etc/passwd", "s3://b/x"])
def test_a_hostile_path_in_the_catalog_is_not_read(
    lake: quacklake.Lake, tmp_path: Path, outside: Path, path: str
) -> None:
    lake.table("t").add_files(put(outside / "f.parquet", rows(0)))
    connection = sqlite3.connect(tmp_path / "lake.db")
    with connection:
        connection.execute("UPDATE ducklake_data_file SET path = ?, path_is_relative = 0", [path])
    connection.close()
    with pytest.raises(PathError):
        lake.table("t").to_arrow()


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def no_parquet(path: Path) -> None:
    path.write_text("id,name,value\n1,x,2\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [damaged, no_parquet, empty])
def test_one_bad_file_adds_none(lake: quacklake.Lake, outside: Path, harm: Callable[[Path], None]) -> None:
    put(outside / "a.parquet", rows(0))
    harm(put(outside / "b.parquet", rows(100)))
    before = lake.current_snapshot()
    with pytest.raises(CorruptFileError, match=r"b\.parquet"):
        lake.table("t").add_files(outside / "*.parquet")
    assert (lake.current_snapshot(), lake.table("t").count()) == (before, 0)


def test_bad_calls_are_refused(lake: quacklake.Lake, tmp_path: Path, outside: Path) -> None:
    table = lake.table("t")
    file = put(outside / "f.parquet", rows(0))
    for paths in ([], "", [file, 3]):
        with pytest.raises(InputError):
            table.add_files(paths)
    for missing in (outside / "no.parquet", outside / "no*.parquet", outside, "/"):
        with pytest.raises(NotFoundError):
            table.add_files(missing)
    with pytest.raises(PathError, match="another kind of store"):
        table.add_files("s3://bucket/f.parquet")
    table.add_files(file)
    with pytest.raises(AlreadyExistsError, match=r"f\.parquet"):
        table.add_files(file)
    with pytest.raises(ReadOnlyError):
        lake.at(version=1).table("t").add_files(file)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "ID"])
    with pytest.raises(SchemaMismatchError, match="twice"):
        table.add_files(put(outside / "twice.parquet", twice), allow_missing=True)
    assert table.count() == 20


def test_an_encrypted_lake_takes_no_plain_files(tmp_path: Path, outside: Path) -> None:
    with connect(tmp_path, encrypted=True) as lake:
        lake.create_table("t", SCHEMA)
        with pytest.raises(UnsupportedFeatureError, match="encrypted"):
            lake.table("t").add_files(put(outside / "f.parquet", rows(0)))


def test_two_who_add_the_same_file_add_it_once(lake: quacklake.Lake, tmp_path: Path, outside: Path) -> None:
    file = put(outside / "f.parquet", rows(0))
    with connect(tmp_path) as other, pytest.raises(CommitConflict, match="a file was added"), lake.transaction() as tx:
        tx.table("t").add_files(file)
        other.table("t").add_files(file)
    assert lake.table("t").count("id >= 0") == 20


def test_a_file_that_has_gone_is_a_typed_error(lake: quacklake.Lake, outside: Path) -> None:
    file = put(outside / "f.parquet", rows(0))
    lake.table("t").add_files(file)
    file.unlink()
    with pytest.raises(QuacklakeError):
        lake.table("t").to_arrow()


# -- many files, the command line --------------------------------------------------------------------------------------


def test_the_number_of_statements_does_not_depend_on_the_files(lake: quacklake.Lake, outside: Path) -> None:
    first = put(outside / "a" / "0.parquet", rows(0, 1))
    for number in range(1, 40):
        (outside / "b").mkdir(exist_ok=True)
        shutil.copy(first, outside / "b" / f"{number}.parquet")
    counts = []
    for folder in ("a", "b"):
        before = telemetry.snapshot().counters.get("catalog.statements", 0)
        lake.table("t").add_files(outside / folder / "*.parquet")
        counts.append(telemetry.snapshot().counters["catalog.statements"] - before)
    assert counts[1] <= counts[0]
    assert lake.table("t").count("id = 0") == 40


def test_a_duckdb_catalog_takes_many_files_at_once(tmp_path: Path, outside: Path) -> None:
    for number in range(120):
        put(outside / f"{number:03d}.parquet", rows(number * 10, 10))
    options = {"data_path": tmp_path / "data", "foreign_paths": [outside], "duckdb_threads": 1}
    with quacklake.connect(f"duckdb:///{tmp_path}/many.db", **options) as lake:
        table = lake.create_table("t", SCHEMA)
        assert table.add_files(outside / "*.parquet") == 1200
    with quacklake.connect(f"duckdb:///{tmp_path}/many.db", **options) as lake:
        assert ids(lake.table("t"), "id BETWEEN 555 AND 564") == list(range(555, 565))
        assert lake.table("t").plan("id BETWEEN 555 AND 564").files.num_rows == 2
        assert lake.table("t").scan(["id"], row_ids=True).to_arrow().column("rowid").to_pylist() == list(range(1200))


def test_the_command_adds_files(
    lake: quacklake.Lake,
    tmp_path: Path,
    outside: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(outside / "a.parquet", rows(0))
    put(outside / "b.parquet", rows(100).select(["id", "name"]))
    monkeypatch.setenv("QUACKLAKE_FOREIGN_PATHS", str(outside))
    url = ["--lake", f"sqlite:///{tmp_path}/lake.db"]
    assert (
        main(["add-files", "t", str(outside / "a.parquet"), str(outside / "b.parquet"), "--allow-missing", *url]) == 0
    )
    assert "added 40 rows of 2 files to t in snapshot 2" in capsys.readouterr().out
    assert main(["add-files", "t", str(outside / "a.parquet"), *url]) == 1
    assert "already" in capsys.readouterr().err


def test_the_changes_of_added_rows_are_told(lake: quacklake.Lake, outside: Path) -> None:
    table = lake.table("t")
    first = lake.current_snapshot() + 1
    table.add_files(put(outside / "f.parquet", rows(0)))
    table.delete("id < 5")
    found = table.changes(first).to_arrow()
    kinds = found.column("change_type").to_pylist()
    assert (kinds.count("insert"), kinds.count("delete")) == (20, 5)
    assert sorted(set(found.column("name").to_pylist())) == sorted(f"n{i}" for i in range(20))


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_servers_hold_added_files_too(request: pytest.FixtureRequest, tmp_path: Path, outside: Path, kind: str) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    for number in range(3):
        put(outside / f"{number}.parquet", rows(number * 100))
    options = {"data_path": tmp_path / "data", "foreign_paths": [outside], "duckdb_threads": 1}
    with quacklake.connect(url, **options) as lake:
        table = lake.create_table("t", SCHEMA)
        table.add_files(outside / "*.parquet")
        table.delete("id BETWEEN 100 AND 115")
    with quacklake.connect(url, **options) as lake:
        assert lake.table("t").count("id >= 0") == 44
        with pytest.raises(AlreadyExistsError):
            lake.table("t").add_files(outside / "0.parquet")
