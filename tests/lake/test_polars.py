"""Lazy frames of polars: what reaches the files, and that polars gets the same rows as from a frame in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import ClosedError, InputError
from quacklake.lake.polars_filters import to_sql
from tests.lake.predicates import NAN, VALUES, predicate, rows
from tests.seeds import LONG, chance

UTC = dt.UTC
C = pl.col


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as made:
        yield made


@pytest.fixture
def parted(lake: quacklake.Lake) -> quacklake.Table:
    """Ten files of 1,000 rows each: file ``n`` has the ids from ``n * 1000``."""
    table = lake.create_table("t", {"id": "BIGINT", "name": "VARCHAR", "x": "DOUBLE"})
    for part in range(10):
        ids = range(part * 1000, part * 1000 + 1000)
        table.append(pa.table({"id": ids, "name": [f"n{id_:05}" for id_ in ids], "x": [id_ / 2 for id_ in ids]}))
    return table


def paths(table: quacklake.Table) -> list[Path]:
    root = Path(table.handle.context.store.root)
    return [root / path for path in table.files().column("path").to_pylist()]


def leave_only(table: quacklake.Table, *first_ids: int) -> None:
    """Remove the data files of all rows but those that begin at some ids: whoever opens one of the others fails."""
    for path in paths(table):
        if pq.read_table(path).column("id")[0].as_py() not in first_ids:
            path.unlink()


# -- what reaches the files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_files_that_a_predicate_rules_out_are_not_opened(engine: Any, parted: quacklake.Table) -> None:
    frame = parted.scan_polars()
    leave_only(parted, 3000, 4000)
    assert frame.filter(C("id").is_between(3500, 4499)).select(pl.len()).collect(engine=engine).item() == 1000
    assert frame.filter((C("id") >= 3990) & (C("id") < 4010)).collect(engine=engine).height == 20
    assert frame.filter(C("name").str.starts_with("n042")).collect(engine=engine).height == 100
    assert frame.filter(C("id").is_in([3001, 4001, None])).collect(engine=engine)["x"].to_list() == [1500.5, 2000.5]
    assert frame.filter((C("x") > 1999.0) & (C("x") < 2001) & (C("x") * 2 == 4000)).collect(engine=engine).height == 1
    assert frame.filter((C("id") == 3000) | (C("id") == 4000)).collect(engine=engine).height == 2
    assert frame.filter(C("id") < 3010, C("id") >= 3000).collect(engine=engine).height == 10
    with pytest.raises(quacklake.errors.QuacklakeError):
        frame.filter(C("id") == 5000).collect(engine=engine)


def test_as_many_bytes_are_read_as_the_columns_have(parted: quacklake.Table) -> None:
    frame = parted.scan_polars()
    for path in paths(parted):
        column = pq.ParquetFile(path).metadata.row_group(0).column(1)
        assert column.path_in_schema == "name"
        start = column.dictionary_page_offset or column.data_page_offset
        with path.open("r+b") as file:  # its rows are no longer there to be read
            file.seek(start)
            file.write(b"\xff" * column.total_compressed_size)
    assert frame.select("id", "x").filter(C("id") < 5).collect().height == 5
    assert frame.select(C("x").sum()).collect().item() == sum(range(10_000)) / 2
    with pytest.raises(quacklake.errors.QuacklakeError):
        frame.select("name").collect()


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_limit_comes_before_a_filter_that_follows_it(engine: Any, parted: quacklake.Table) -> None:
    frame = parted.scan_polars()
    assert frame.head(5).filter(C("id") >= 9000).collect(engine=engine).height == 0
    assert frame.filter(C("id") >= 9000).head(5).collect(engine=engine).height == 5
    assert frame.head(5).collect(engine=engine).height == 5
    assert frame.slice(9_995, 10).collect(engine=engine).height == 5
    limited = parted.scan().where("id >= 100").limit(50).scan_polars()
    assert limited.filter(C("id") >= 9000).collect(engine=engine).height == 0
    assert limited.head(70).collect(engine=engine).height == limited.collect(engine=engine).height == 50


def test_a_scan_with_its_own_condition_gets_the_one_of_polars_too(parted: quacklake.Table) -> None:
    for scan in (parted.scan(["id"], "id >= 10"), parted.scan(["id"], pc.field("id") >= 10)):
        assert scan.scan_polars().filter(C("id") < 12).collect()["id"].to_list() == [10, 11]
    assert parted.scan_polars(["x", "id"], "id = 7").collect().rows() == [(3.5, 7)]
    numbered = parted.scan(["x"], "id = 7", row_ids=True)
    assert numbered.schema.names == ["x", "rowid"]
    assert numbered.scan_polars().filter(C("rowid") == 7).collect().rows() == [(3.5, 7)]
    assert numbered.scan_polars().select("rowid").collect().rows() == [(7,)]
    assert numbered.to_duckdb().fetchall() == [(3.5, 7)]


def test_batches_come_one_at_a_time_and_no_larger_than_the_setting(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", fetch_batch_rows=2048, duckdb_threads=1) as lake:
        table = lake.create_table("t", pa.table({"id": range(50_000)}))
        seen: list[int] = []

        def note(frame: pl.DataFrame) -> pl.DataFrame:
            seen.append(frame.height)
            return frame

        frame = table.scan_polars().map_batches(note, streamable=True)
        first = next(iter(frame.collect_batches(chunk_size=500, maintain_order=True)))
        assert first.height == 500
        assert len(seen) < 20, "all was read for the first rows"
        assert max(seen) <= 2048


def test_a_frame_that_is_left_early_keeps_nothing_open(parted: quacklake.Table, lake: quacklake.Lake) -> None:
    assert parted.scan_polars().filter(C("id") >= 0).head(1).collect(engine="streaming").height == 1
    frame = parted.scan_polars()
    lake.close()
    with pytest.raises(ClosedError):
        frame.collect()


# -- which rows --------------------------------------------------------------------------------------------------------


def test_a_frame_follows_the_lake_or_stays_at_a_snapshot(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1, "s": "a"}])
    following, pinned = table.scan_polars(), lake.at(version=1).table("t").scan_polars()
    table.append(pa.table({"id": range(2, 100), "s": ["b"] * 98}))
    table.delete("id % 2 = 0")
    table.add_column("more", "INTEGER", 5)
    assert following.select(pl.len()).collect().item() == 50
    assert following.collect().columns == ["id", "s"]
    assert table.scan_polars().filter(C("more") == 5, C("id") < 4).sort("id").collect().rows() == [
        (1, "a", 5),
        (3, "b", 5),
    ]
    assert pinned.collect().rows() == [(1, "a")]
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 1000, "s": "c", "more": 1}])
        assert tx.table("t").scan_polars().filter(C("id") == 1000).collect().height == 1
        assert following.filter(C("id") == 1000).collect().height == 0
        raise_nothing = tx.table("t").scan_polars().select("more").sum().collect().item()
    assert raise_nothing == 251


def test_a_frame_keeps_its_columns_or_fails(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": "INTEGER", "s": "VARCHAR"})
    frame = table.scan_polars()
    table.alter_column("id", "BIGINT")
    assert frame.select("s").collect().height == 0
    with pytest.raises(InputError, match="other types than when the lazy frame was created"):
        frame.collect()
    table.drop_column("s")
    with pytest.raises(InputError, match='no column "s"'):
        frame.select("s").collect()


def test_old_columns_and_old_files_are_read_by_their_present_names(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"a": pa.array(range(100), pa.int32()), "b": ["x"] * 100}))
    table.rename_column("a", "b2")
    table.rename_column("b", "a")
    table.alter_column("b2", "BIGINT")
    table.append(pa.table({"b2": pa.array([2**40], pa.int64()), "a": ["y"]}))
    frame = table.scan_polars()
    assert frame.filter(C("b2") > 2**31).collect().rows() == [(2**40, "y")]
    assert frame.filter(C("a") == "x", C("b2") < 2).collect().rows() == [(0, "x"), (1, "x")]


TYPES: dict[str, tuple[str, pl.DataType]] = {
    "BOOLEAN": ("true", pl.Boolean()),
    "TINYINT": ("-1", pl.Int8()),
    "UBIGINT": ("18446744073709551615", pl.UInt64()),
    "HUGEINT": ("1048576", pl.Decimal(38, 0)),
    "UHUGEINT": ("1", pl.Decimal(38, 0)),
    "FLOAT": ("0.1", pl.Float32()),
    "DOUBLE": ("'-inf'", pl.Float64()),
    "DECIMAL(38, 10)": ("1.5", pl.Decimal(38, 10)),
    "DATE": ("'2024-02-29'", pl.Date()),
    "TIME": ("'03:04:05.000006'", pl.Time()),
    "TIMESTAMP": ("'2024-02-29 01:02:03.000004'", pl.Datetime("us")),
    "TIMESTAMP_MS": ("'2024-02-29 01:02:03.004'", pl.Datetime("ms")),
    "TIMESTAMP_NS": ("'2024-02-29 01:02:03.000000004'", pl.Datetime("ns")),
    "TIMESTAMPTZ": ("'2024-02-29 01:02:03+02'", pl.Datetime("us", "UTC")),
    "VARCHAR": ("'häß'", pl.String()),
    "BLOB": ("'\\xFF'", pl.Binary()),
    "JSON": ("'{\"a\": 1}'", pl.String()),
    "UUID": ("'550e8400-e29b-41d4-a716-446655440000'", pl.String()),
    "INTEGER[]": ("[1, NULL]", pl.List(pl.Int32())),
    "STRUCT(a INTEGER, b VARCHAR[])": ("{'a': 1, 'b': ['x']}", pl.Struct({"a": pl.Int32(), "b": pl.List(pl.String())})),
}


def test_values_keep_their_types_there_and_back(lake: quacklake.Lake) -> None:
    columns = {f"c{number}": name for number, name in enumerate(TYPES)}
    table = lake.create_table("t", {"id": "INTEGER", **columns})
    values = ", ".join(f"CAST({text} AS {name})" for name, (text, _) in TYPES.items())
    lake.sql(f"INSERT INTO t VALUES (1, {values}), (2, {', '.join(['NULL'] * len(TYPES))})")
    lake.sql(f"INSERT INTO t SELECT i, {values} FROM range(3, 40) AS r(i)")
    frame = table.scan_polars()
    assert frame.collect_schema() == pl.Schema(
        {"id": pl.Int32(), **dict(zip(columns, (t for _, t in TYPES.values()), strict=True))}
    )
    copied = lake.create_table("copied", {"id": "INTEGER", **columns})
    assert copied.append(frame.filter(C("id") <= 30)) == 30
    assert copied.append(frame.filter(C("id") > 30).collect()) == 9
    assert copied.to_arrow().sort_by("id").to_pylist() == table.to_arrow().sort_by("id").to_pylist()
    # the values of types that polars has by another name are not pushed down as something else
    uuid = TYPES["UUID"][0].strip("'")
    name = next(name for name, type_ in columns.items() if type_ == "UUID")
    assert frame.filter(C(name) == uuid).collect().height == 38
    assert frame.filter(C(name) > "not an id").collect().height == 0
    huge = next(name for name, type_ in columns.items() if type_ == "HUGEINT")
    assert frame.filter(C(huge) > 10).collect().height == 38


def test_a_type_that_polars_lacks_is_named(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": "INTEGER", "span": "INTERVAL[]"})
    with pytest.raises(InputError, match='no type for the column "span"') as caught:
        table.scan_polars()
    assert "columns=" in str(caught.value.hint)
    assert table.scan_polars(["id"]).collect().height == 0


def test_a_table_takes_what_is_made_of_its_own_rows(parted: quacklake.Table) -> None:
    more = parted.scan_polars().filter(C("id") < 10).with_columns(C("id") + 100_000)
    assert parted.append(more) == 10
    assert parted.count() == 10_010
    assert parted.overwrite(parted.scan_polars().filter(C("id") >= 100_000), "id < 9000") == 10
    assert parted.count() == 1020


# -- predicates --------------------------------------------------------------------------------------------------------


def shown(frame: pl.DataFrame) -> list[str]:
    # in the dictionaries of its Parquet files, DuckDB takes 0.0 and -0.0 for one value
    return sorted(str(row).replace("-0.0,", "0.0,") for row in frame.rows())


@pytest.mark.parametrize("seed", range(2 if not LONG else 10))
def test_random_predicates_keep_the_rows_that_polars_and_duckdb_keep(seed: int, lake: quacklake.Lake) -> None:
    random_ = chance("polars predicates", seed)
    table = lake.create_table("t", {"id": "INTEGER", **{name: type_ for name, (type_, _, _) in VALUES.items()}})
    parts: list[pa.Table] = []
    for number in range(4):
        part = rows(random_, random_.choice([3, 40]))
        part = part.add_column(0, "id", pa.array(range(number * 100, number * 100 + part.num_rows), pa.int32()))
        table.append(part)
        parts.append(part)
    gone = random_.sample(range(400), 100)
    table.delete(f"id IN ({', '.join(map(str, gone))})")
    model = pa.concat_tables(parts)
    model = model.filter(pc.invert(pc.is_in(model["id"], pa.array(gone, pa.int32()))))
    frame, memory = table.scan_polars(), pl.DataFrame(model)
    assert shown(frame.collect()) == shown(memory)
    pushed = 0
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("given", model)
        connection.execute("CREATE TABLE t AS FROM given")
        for _ in range(20 if not LONG else 100):
            condition, text = predicate(random_)
            found = frame.filter(condition).collect(engine=random_.choice(["in-memory", "streaming"]))
            assert shown(found) == shown(memory.filter(condition)), (str(condition), text)
            if text is not None:
                ids = connection.execute(f"SELECT id FROM t WHERE {text}").fetchall()
                assert sorted(found["id"].to_list()) == sorted(id_ for (id_,) in ids), (str(condition), text)
            sql = to_sql(condition, table.info.schema, frame.collect_schema())
            pushed += sql is not None
    assert pushed


@pytest.mark.parametrize(
    ("condition", "sql"),
    [
        (C("i") > 3, '"i" > 3'),
        ((C("i") > 3) & (C("i") % 2 == 1), '("i" > 3)'),
        ((C("i") > 3) | (C("i") % 2 == 1), None),
        (C("d") == NAN, None),
        (C("d") == 0.0, '"d" BETWEEN -0.0e0 AND 0.0e0'),
        (C("d") < 0.1, '"d" < 0.1e0'),
        (C("d") >= -0.0, '"d" >= -0.0e0'),
        (C("s") == "it's", "\"s\" = 'it''s'"),
        (C("s") == "a\0b", None),
        (C("s").str.contains("a"), None),
        (C("n") > 1, '"n" > 1'),
        (C("m") > dt.datetime(2024, 1, 1), "\"m\" > TIMESTAMP '2024-01-01 00:00:00'"),
        (C("i") == C("u"), None),
        (C("i").eq_missing(1), '"i" = 1'),
        (C("i").ne_missing(1), None),
    ],
    ids=str,
)
def test_only_what_means_the_same_is_said_in_sql(condition: pl.Expr, sql: str | None, lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {name: type_ for name, (type_, _, _) in VALUES.items()})
    seen: list[str | None] = []
    types = table.scan_polars().collect_schema()

    def source(columns: Any, given: pl.Expr | None, *_: Any) -> Iterator[pl.DataFrame]:
        seen.append(None if given is None else to_sql(given, table.info.schema, types))
        yield pl.DataFrame(schema=types)

    from polars.io.plugins import register_io_source

    register_io_source(source, schema=dict(types)).filter(condition).collect()
    assert seen == [sql]


def test_a_hostile_predicate_is_left_to_polars(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {'a"b; DROP TABLE t --': "VARCHAR", "i": "INTEGER"})
    table.append([{'a"b; DROP TABLE t --': "'; DROP TABLE t; --", "i": 1}])
    frame = table.scan_polars()
    assert frame.filter(C('a"b; DROP TABLE t --') == "'; DROP TABLE t; --").collect().height == 1
    assert frame.filter(C('a"b; DROP TABLE t --') != "'; DROP TABLE t; --").collect().height == 0
    deep = C("i") == 0
    for number in range(1, 300):
        deep = deep | (C("i") == number)
    assert frame.filter(deep).collect().height == 1
    assert frame.filter(C("i").is_in(range(5_000))).collect().height == 1
    assert frame.filter(C("i").is_in(range(2, 5_000))).collect().height == 0
    assert frame.filter(pl.lit(False)).collect().height == 0
