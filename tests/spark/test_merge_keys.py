"""Keys that are spelled otherwise than the table has them are the same keys: in merges, and in batches of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import quacklake
from quacklake.errors import ConstraintError, SchemaMismatchError, UnsupportedFeatureError

from .test_small_batches import sink_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.needs_spark("4.0")

ONE, TWO = "aaaaaaaa-0000-4000-8000-00000000000a", "bbbbbbbb-0000-4000-8000-00000000000b"
#: The type of a key, a value that the table has, the same in another spelling as Spark may give it, and a new one twice.
KEYS = {
    "uuid": ("UUID", f"'{ONE}'", f"'{ONE.upper()}'", f"'{TWO}'", f"'{TWO.upper().replace('-', '')}'"),
    "time": ("TIME", "'10:00:00'", "'10:00'", "'11:30:00.500'", "'11:30:00.5'"),
    "seconds": (
        "TIMESTAMP_S",
        "'2024-01-01 00:00:01'",
        "TIMESTAMP_NTZ '2024-01-01 00:00:01.2'",
        "TIMESTAMP_NTZ '2024-01-01 00:00:05'",
        "TIMESTAMP_NTZ '2024-01-01 00:00:05.1'",
    ),
    "decimal": ("DECIMAL(9,1)", "1.5", "CAST('1.46' AS DECIMAL(9,2))", "CAST('2.51' AS DECIMAL(9,2))", "CAST('2.49' AS DECIMAL(9,2))"),
}  # fmt: skip


def lake_with_key(folder: Path, kind: str) -> quacklake.Lake:
    lake = quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=str(folder / "data"), data_inlining_row_limit=0)
    lake.sql(f"CREATE TABLE t(k {KEYS[kind][0]}, n INT)")
    lake.sql(f"INSERT INTO t VALUES ({KEYS[kind][1]}, 1)")
    return lake


def rows_of(session: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return session.sql(" UNION ALL ".join(f"SELECT {key} AS k, {number} AS n" for key, number in rows))


def numbers(lake: quacklake.Lake) -> list[Any]:
    return [row[0] for row in lake.sql("SELECT n FROM t ORDER BY n").fetchall()]


def test_a_merge_finds_keys_in_another_spelling(tmp_path: Path, session: SparkSession) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"))
    kinds = KEYS.values()
    lake.sql(f"CREATE TABLE t({', '.join(f'k{i} {kind[0]}' for i, kind in enumerate(kinds))}, n INT)")
    lake.sql(f"INSERT INTO t VALUES ({', '.join(kind[1] for kind in kinds)}, 1)")
    other, new = (
        f"SELECT {', '.join(f'{kind[at]} AS k{i}' for i, kind in enumerate(kinds))}, {at} AS n" for at in (2, 3)
    )
    names = [f"k{i}" for i in range(len(KEYS))]
    merge = quacklake.spark(lake, session).merge("t", session.sql(f"{other} UNION ALL {new}"), on=names)
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert numbers(lake) == [2, 3]


@pytest.mark.parametrize("here", [True, False], ids=["driver", "executors"])
@pytest.mark.parametrize("kind", ["uuid", "time"])
def test_so_does_a_batch_of_a_stream(kind: str, here: bool, tmp_path: Path, session: SparkSession) -> None:
    """Of two spellings of one key in a batch, the later row counts."""
    lake = lake_with_key(tmp_path, kind)
    _, _, other, new, again = KEYS[kind]
    rows = [(other, 2), (new, 3), (again, 4)]
    sink = sink_of(lake, session, "t", here=here, order_by="n", mode="upsert", on=["k"])
    sink.write(rows_of(session, *rows), 0)
    assert numbers(lake) == [2, 4]
    unordered = sink_of(lake, session, "t", here=here, mode="upsert", on=["k"])
    with pytest.raises(ConstraintError, match="k"):
        unordered.write(rows_of(session, *rows), 1)
    assert numbers(lake) == [2, 4]


@pytest.mark.parametrize("here", [True, False], ids=["driver", "executors"])
def test_changes_of_a_key_in_two_spellings_are_of_one_key(here: bool, tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_key(tmp_path, "uuid")
    _, _, other, new, again = KEYS["uuid"]
    sink = sink_of(lake, session, "t", here=here, mode="changes", on=["k"])
    texts = [("delete", other, 1, 1), ("insert", new, 5, 1), ("delete", again, 5, 2), ("insert", again, 6, 3)]
    changes = " UNION ALL ".join(
        f"SELECT '{kind}' AS _change_type, {key} AS k, {number} AS n, {version}L AS _commit_version"
        for kind, key, number, version in texts
    )
    sink.write(session.sql(changes), 0)
    assert numbers(lake) == [6]


def test_a_key_that_is_none_is_an_error(tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_key(tmp_path, "uuid")
    spark = quacklake.spark(lake, session)
    for rows, error in (
        (rows_of(session, ("'no uuid'", 2)), ConstraintError),
        (rows_of(session, ("5", 2)), SchemaMismatchError),
    ):
        with pytest.raises(error, match="k"):
            spark.merge("t", rows, on="k").when_matched_delete().execute()
    lake.sql("CREATE TABLE spans(k INTERVAL, n INT)")
    with pytest.raises(UnsupportedFeatureError, match="interval"):
        spark.merge("spans", rows_of(session, ("'1 day'", 2)), on="k").when_matched_delete().execute()
    assert numbers(lake) == [1]


#: Conditions of a MERGE with a source whose key has another name; True where Spark can say them.
CONDITIONS = {
    "t.k = s.other": True,
    "(s.other == t.k) AND s.n > 0": True,
    "t.k <=> lower(s.other) AND (t.n BETWEEN 0 AND 9 AND true)": True,
    "k = other": True,
    "t.k = s.other OR t.n = s.n": False,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_statement_finds_keys_under_another_name_too(condition: str, tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_key(tmp_path, "uuid")
    merge = (
        f"MERGE INTO t USING (SELECT '{ONE.upper()}' AS other, 2 AS n UNION ALL SELECT '{TWO.upper()}', 3) AS s ON {{}}"
        " WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.other, s.n)"
    )
    spark = quacklake.spark(lake, session)
    if not CONDITIONS[condition]:
        with pytest.raises(UnsupportedFeatureError, match="compares texts") as caught:
            spark.sql(merge.format(condition).replace("INTO t", "INTO t AS t"))
        assert "in the source" in str(caught.value.hint)
        assert numbers(lake) == [1]
        return
    spark.sql(merge.format(condition))
    assert numbers(lake) == [2, 3]


def test_a_condition_in_the_sql_of_the_lake_compares_texts_with_keys(tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_key(tmp_path, "time")
    rows = session.sql("SELECT '10:00' AS other, 2 AS n UNION ALL SELECT '11:30', 3")
    merge = quacklake.spark(lake, session).merge("t", rows, "target.k = source.other AND target.n < source.n")
    done = merge.when_matched_update({"n": quacklake.expr("source.n")}).execute()
    assert (done.rows_updated, numbers(lake)) == (1, [2])
    wrong = quacklake.spark(lake, session).merge("t", session.sql("SELECT 'noon' AS other"), "target.k = source.other")
    with pytest.raises(ConstraintError, match="it is not a valid time"):
        wrong.when_matched_delete().execute()


def test_so_does_a_statement_for_each_batch(tmp_path: Path, session: SparkSession) -> None:
    lake = lake_with_key(tmp_path, "uuid")
    rows_of(session, (f"'{ONE.upper()}'", 2), (f"'{TWO}'", 3)).write.parquet(str(tmp_path / "source"))

    def write(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("batch_of_keys")
        quacklake.spark(lake, batch.sparkSession).sql(
            "MERGE INTO t USING (SELECT k AS other, n FROM batch_of_keys) AS s ON t.k = s.other WHEN MATCHED THEN"
            " UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.other, s.n)"
        )

    stream = session.readStream.schema("k STRING, n INT").parquet(str(tmp_path / "source")).writeStream
    stream = stream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert numbers(lake) == [2, 3]
