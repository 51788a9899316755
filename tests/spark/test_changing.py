"""DELETE, UPDATE and MERGE on Spark: everybody sees the same rows under the same row ids afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import quacklake
from quacklake import expr
from quacklake.errors import (
    ConstraintError,
    InputError,
    PredicateError,
    SchemaMismatchError,
)
from quacklake.spark.changes import staged_changes
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

from .agreement import Rows, all_agree, rows_of
from .test_writing import ALL, FEWER, FEWER_VALUES, ONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.needs_spark("4.0")


def furnished(site: LakeSite) -> quacklake.Lake:
    """A table with files of several kinds: with deletes of each kind, of older columns, and inlined rows."""
    stock = site.stock()
    stock.execute("CREATE TABLE t(id BIGINT, k INTEGER, v VARCHAR)")
    stock.execute("ALTER TABLE t SET PARTITIONED BY (k)")
    stock.execute("INSERT INTO t SELECT i, i % 2, 'v' || i FROM range(100) r(i)")
    stock.execute("ALTER TABLE t ADD COLUMN d DOUBLE DEFAULT 0.5")
    stock.execute("INSERT INTO t SELECT i, i % 2, 'v' || i, i / 4 FROM range(100, 200) r(i)")
    stock.execute("DELETE FROM t WHERE id % 10 = 0")
    stock.execute("DELETE FROM t WHERE id IN (3, 103)")
    stock.execute("INSERT INTO t SELECT i, i % 2, 'v' || i, i / 4 FROM range(200, 205) r(i)")
    stock.execute("ALTER TABLE t RENAME COLUMN v TO w")
    stock.execute("UPDATE t SET w = 'moved' WHERE id IN (7, 201)")
    stock.execute("INSERT INTO t VALUES (300, NULL, NULL, NULL)")
    return site.lake()


def everything(site: LakeSite) -> set[str]:
    return {f"{folder}/{name}" for folder, _, names in os.walk(site.data_path) for name in names}


def row_ids(rows: Rows) -> dict[int, str | None]:
    """The row id of each id."""
    return {int(str(row[1])): row[0] for row in rows}


def values(rows: Rows, column: int) -> dict[int, str | None]:
    return {int(str(row[1])): row[column] for row in rows}


def keyed(session: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str = "id BIGINT, w STRING") -> DataFrame:
    return session.createDataFrame(list(rows), schema)


@pytest.mark.daily(0.35)
@pytest.mark.parametrize(
    ("few", "rows", "each", "files"),
    [(1000, 1000, 1000, 32), (0, 1000, 1000, 32), (1000, 1000, 3, 0), (1000, 0, 0, 32)],
)
def test_everybody_sees_what_spark_deletes_updates_and_merges(
    few: int,
    rows: int,
    each: int,
    files: int,
    make_site: MakeSite,
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUACKLAKE_SPARK_DELETE_ROWS", str(few))  # deleted by Spark, or in tasks
    monkeypatch.setattr(staged_changes, "_MAX_ROWS", rows)  # found by the driver, or by executors
    monkeypatch.setattr(staged_changes, "_MAX_PLACES", each)  # one by one, or by bits
    monkeypatch.setattr(staged_changes, "_FILES_HERE", files)  # and their delete files written there
    site = make_site("sqlite", 10)
    first = furnished(site)._context.latest().id
    before = all_agree(site, session, versions=[first])
    spark = quacklake.spark(site.lake(), session)
    known = everything(site)

    done = spark.delete("t", "id % 3 = 0 AND id <> 300")
    wanted = [row for row in before if int(str(row[1])) % 3 or row[1] == "300"]
    assert (done.rows_deleted, done.rows_updated, done.rows_inserted) == (len(before) - len(wanted), 0, 0)
    assert done.delete_files_added == 4
    assert done.files_added == 0

    done = spark.update("t", {"w": expr("w || '!'"), "d": None}, "id >= 150")
    assert done.rows_updated == sum(int(str(row[1])) >= 150 for row in wanted)

    source = keyed(session, [(i, f"m{i}") for i in range(190, 320)])
    done = (
        spark.merge("t", source, on="id")
        .when_matched_delete("source.id = 199")
        .when_matched_update({"w": expr("source.w || coalesce(target.w, '')")})
        .when_not_matched_insert_all("source.id % 2 = 0")
        .execute()
    )
    matched = [row for row in wanted if 190 <= int(str(row[1])) < 320]
    fresh = [i for i in range(190, 320, 2) if i not in values(wanted, 1)]
    assert (done.rows_deleted, done.rows_updated, done.rows_inserted) == (1, len(matched) - 1, len(fresh))

    latest = site.lake()._context.latest().id
    assert latest == first + 3
    after = all_agree(site, session, versions=range(first, latest + 1))
    kept, now = row_ids(wanted), row_ids(after)
    assert {id_: now[id_] for id_ in kept if id_ != 199} == {id_: row for id_, row in kept.items() if id_ != 199}
    assert set(now) == set(kept) - {199} | set(fresh)
    texts = values(after, 3)
    assert [texts[id_] for id_ in (151, 194, 204, 300, 7)] == ["v151!", "m194v194!", "m204", "m300", "moved"]
    assert not [name for name in everything(site) - known if "staged-" in name]
    lake = site.lake()
    assert lake.verify(deep=True).findings == ()


def test_a_merge_has_every_clause(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 10)
    lake = site.lake()
    lake.create_table("t", pa.table({"id": pa.array(range(40), pa.int64()), "w": [f"w{i}" for i in range(40)]}))
    lake.table("t").append(pa.table({"id": pa.array([40, 41], pa.int64()), "w": ["w40", None]}))
    spark = quacklake.spark(lake, session)
    source = keyed(
        session, [(i, f"s{i}", i / 2) for i in (*range(0, 40, 4), 40, 50, 51, 52)], "id BIGINT, w STRING, n DOUBLE"
    )
    done = (
        spark.merge("t", source, on="target.id = source.id AND source.id <> 52")
        .with_schema_evolution()
        .when_matched_update_all("source.id < 20")
        .when_matched_update({"w": f.col("source.w"), "id": expr("target.id + 1000")}, "source.id < 40")
        .when_not_matched_insert({"id": expr("source.id"), "w": f.lit("new")}, "source.id = 50")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete(f.expr("target.id % 4 = 1"))
        .when_not_matched_by_source_update({"w": f.lit("alone")}, "target.id % 4 = 2")
        .execute()
    )
    assert (done.rows_updated, done.rows_deleted, done.rows_inserted) == (10 + 10, 10 + 1, 3)
    rows = all_agree(site, session)
    expected = {
        **{i: (f"s{i}", str(i / 2)) for i in range(0, 20, 4)},
        **{i + 1000: (f"s{i}", None) for i in range(20, 40, 4)},
        **dict.fromkeys(range(2, 40, 4), ("alone", None)),
        **{i: (f"w{i}", None) for i in range(3, 40, 4)},
        **{40: ("w40", None), 50: ("new", None), 51: ("s51", "25.5"), 52: ("s52", "26.0")},
    }
    assert {int(str(row[1])): row[2:] for row in rows} == expected
    assert {id_: row for id_, row in row_ids(rows).items() if id_ < 40} == {
        id_: str(id_) for id_ in expected if id_ < 40
    }
    assert row_ids(rows)[1020] == "20"
    spark = quacklake.spark(site.lake(), session)
    done = spark.merge("t", session.range(50, 70), on=["id"]).when_not_matched_insert_all().execute()
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (17, 0, 0)


@pytest.mark.daily(0.22)
def test_what_a_merge_refuses_changes_nothing(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 10)
    lake = site.lake()
    lake.create_table("t", {"id": pa.int64(), "w": pa.string(), "n": pa.int8()})
    lake.table("t").append(
        pa.table({"id": range(40), "w": [f"w{i}" for i in range(40)], "n": [1] * 40}, schema=lake.table("t").schema)
    )
    lake.table("t").set_not_null("id")
    spark = quacklake.spark(lake, session)
    version, files = lake._context.latest().id, everything(site)
    twice = keyed(session, [(i % 9, "x") for i in range(30)])
    with pytest.raises(ConstraintError, match=r"several rows.*main\.t \(id\): 0, 1, 2, 3, 4 and more"):
        spark.merge("t", twice, on="id").when_matched_update_all().execute()
    with pytest.raises(SchemaMismatchError, match='unknown column "extra"'):
        spark.merge("t", twice.withColumn("extra", f.lit(1)), on="id").when_matched_update_all().execute()
    with pytest.raises(SchemaMismatchError, match='"id" is varchar'):
        spark.merge("t", twice, on="id").when_matched_update({"id": expr("source.w")}).execute()
    with pytest.raises(SchemaMismatchError, match="lack the key column"):
        spark.merge("t", twice.drop("id"), on=["id"]).when_matched_delete().execute()
    with pytest.raises(InputError, match="SQL or as a value"):
        spark.merge("t", twice, on="id").when_matched_update({"w": "source.w"})
    with pytest.raises(InputError, match="at least one clause"):
        spark.merge("t", twice, on="id").execute()
    with pytest.raises(PredicateError, match="nothing"):
        spark.merge("t", twice, on="target.nothing = source.id").when_matched_delete().execute()
    with pytest.raises(ConstraintError, match='does not fit the column "n"'):
        spark.update("t", {"n": expr("id * 1000")})
    with pytest.raises(ConstraintError, match='NULL in the NOT NULL column "id"'):
        spark.update("t", {"id": None}, "id = 3")
    with pytest.raises(InputError, match="no column"):
        spark.update("t", {"nothing": 1})
    assert (lake._context.latest().id, everything(site)) == (version, files)
    done = spark.merge("t", twice, on="id").when_matched_delete().execute()
    assert (done.rows_deleted, lake.table("t").count()) == (9, 31), "to delete a row twice is clear enough"


@pytest.mark.daily(0.15)
@pytest.mark.parametrize("mode", ["copy_on_write", "merge_on_read", "auto"])
def test_the_update_mode_says_what_becomes_of_files(mode: str, make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    rows = pa.table(
        {
            "id": pa.array(range(40), pa.int64()),
            "k": pa.array([i % 2 for i in range(40)], pa.int32()),
            "l": pa.array([[i, None] for i in range(40)], pa.list_(pa.int64())),
            "m": pa.array([[("a", {"x": i})] for i in range(40)], pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        }
    )
    lake.create_table("t", rows, partition_by="k")
    lake.options.set("update_mode", mode, table="t")
    spark = quacklake.spark(lake, session)
    before = lake.table("t").to_arrow(["id", "rowid"]).to_pydict()
    few = spark.update("t", {"l": [7]}, "id IN (2, 3)")
    most = spark.update("t", {"k": expr("k + 2")}, "k = 1 AND id > 4")
    copied = {"copy_on_write": (38, 1), "merge_on_read": (0, 0), "auto": (0, 1)}[mode]
    assert (few.rows_copied, most.rows_copied) == copied
    assert (few.delete_files_added, most.delete_files_added) == {
        "copy_on_write": (0, 0),
        "merge_on_read": (2, 1),
        "auto": (2, 0),
    }[mode]
    found = all_agree(site, session)
    assert row_ids(found) == dict(zip(before["id"], map(str, before["rowid"]), strict=True))
    assert values(found, 2) == {i: str(3 if i % 2 and i > 4 else i % 2) for i in range(40)}
    assert values(found, 3)[2] == values(found, 3)[3] == "[7]"
    assert values(found, 3)[39] == "[39, NULL]"
    keys = {path.split("k=")[1][0] for path in site.lake().table("t").plan().files.column("path").to_pylist()}
    assert keys == {"0", "1", "3"}


@pytest.mark.daily(0.35)
def test_a_lost_race_is_planned_again(
    make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", pa.table({"id": pa.array(range(100), pa.int64()), "w": ["a"] * 100}))
    lake.table("t").delete("id = 99")
    apply, others = staged_changes.Changes.apply, iter([0, 1, 2])

    def overtaken(self: staged_changes.Changes, *given: Any, **options: Any) -> staged_changes.ChangeMetrics:
        done = apply(self, *given, **options)
        turn = next(others, None)
        if turn == 0:
            lake.table("t").update({"w": "b"}, "id < 30")  # the same file
        elif turn == 1:
            lake.table("t").append(pa.table({"id": pa.array([5], pa.int64()), "w": ["c"]}))  # what was not read
        elif turn == 2:
            lake.table("t").append(pa.table({"id": pa.array([500], pa.int64()), "w": ["c"]}))  # not asked for
        return done

    monkeypatch.setattr(staged_changes.Changes, "apply", overtaken)
    done = quacklake.spark(lake, session).update("t", {"w": expr("w || '!'")}, "id < 20")
    assert done.rows_updated == 21
    found = all_agree(site, session)
    texts = sorted(str(row[2]) for row in found if int(str(row[1])) < 40)
    assert texts == ["a"] * 10 + ["b"] * 10 + ["b!"] * 20 + ["c!"]
    lake = site.lake()
    used = {*lake.table("t").plan().files.column("path").to_pylist()}
    assert used <= {os.path.relpath(path, site.data_path) for path in everything(site)}
    assert lake.verify(deep=True).ok


def test_a_task_that_fails_leaves_the_lake_as_it_was(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", pa.table({"id": pa.array(range(100), pa.int64()), "w": ["a"] * 100}))
    spark = quacklake.spark(lake, session)
    files = everything(site)
    fails = f.when(f.col("id") == 77, f.raise_error(f.lit("no"))).otherwise(f.lit("b"))
    with pytest.raises(InputError, match="Spark cannot compute the rows"):
        spark.update("t", {"w": fails}, "id > 50")
    assert lake._context.latest().id == 1
    assert everything(site) == files
    assert lake.verify().ok


HARD = (
    "id BIGINT, iv INTERVAL, tz TIMETZ, ns TIMESTAMP_NS, l TIMESTAMP[], m MAP(VARCHAR, UUID), s STRUCT(x TIMESTAMPTZ[], y TIME),"
    " d DATE, ts TIMESTAMP, tt TIMESTAMPTZ, j JSON, b BLOB, de DECIMAL(30,5), u UBIGINT"
)
HARD_ONE = (
    "i, to_days(i::INTEGER) + to_hours(i), ('12:00:' || lpad((i % 60)::VARCHAR, 2, '0') || '+00')::TIMETZ,"
    " make_timestamp_ns(i * 1000), [TIMESTAMP '1969-12-31 12:00:00' + to_seconds(i), NULL],"
    " MAP {'k' || i: ('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID},"
    " {'x': [TIMESTAMPTZ '2024-07-01 12:00:00+00' + to_hours(i)], 'y': TIME '01:02:03.5'}, DATE '1900-01-01' + i::INTEGER,"
    " TIMESTAMP '1600-01-01 00:00:00.000001' + to_days(i::INTEGER), TIMESTAMPTZ '1969-06-01 00:00:00+00' + to_hours(i),"
    " '{\"i\": ' || i || '}', ('b' || i)::BLOB, i / 8, i::UBIGINT * 5000000000"
)


@pytest.mark.daily(0.22)
@pytest.mark.parametrize(
    "columns",
    [
        pytest.param("of files", marks=pytest.mark.needs_spark("4.1")),
        pytest.param("of fewer", marks=pytest.mark.needs_spark(before="4.1")),
        pytest.param("of lists and maps", marks=pytest.mark.needs_spark("4.1")),
    ],
)
def test_values_of_every_type_stay_what_they_are(columns: str, make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    stock = site.stock()
    plain = columns != "of lists and maps"
    fewer = (FEWER, FEWER_VALUES, "i32", 1000) if columns == "of fewer" else (ALL, ONE, "i32", 1000)
    definition, one, key, step = fewer if plain else (HARD, HARD_ONE, "id", 1)
    stock.execute(f"CREATE TABLE t({definition})")
    stock.execute(f"INSERT INTO t SELECT {one} FROM range(30) r(i)")
    stock.execute(f"UPDATE t SET {key} = {key} WHERE {key} < 5")
    lake = site.lake()
    lake.options.set("update_mode", "copy_on_write", table="t")

    def seen() -> Rows:
        # intervals and times inside of lists come out of Arrow in another form
        return all_agree(site, session) if plain else rows_of(site, "t", site.lake()._context.latest().id)

    before = seen()
    done = quacklake.spark(site.lake(), session).update("t", {key: expr(f"{key} + 1")}, f"{key} % {2 * step} = 0")
    assert (done.rows_updated, done.rows_copied) == (15, 15)
    after = seen()
    place = [column.split()[0] for column in definition.split(", ")].index(key) + 1
    assert [(*row[:place], *row[place + 1 :]) for row in after] == [(*row[:place], *row[place + 1 :]) for row in before]
    assert site.lake().verify(deep=True).ok
