"""Relations of DuckDB and Arrow datasets: they read what a query needs, and give what the table has."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core.duckdb_versions import IS_2
from quacklake.errors import InputError, QuacklakeError, UnsupportedFeatureError
from quacklake.lake.arrow_dataset import TableDataset
from tests.lake.predicates import VALUES, predicate, rows
from tests.seeds import LONG, chance

DAY = dt.datetime(2025, 1, 1)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as made:
        yield made


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as made:
        yield made


@pytest.fixture
def parted(lake: quacklake.Lake) -> quacklake.Table:
    """Five files of 100 rows, and then three rows in the catalog; the rows with odd ids from 400 on are deleted."""
    table = lake.create_table("t", {"id": "BIGINT", "name": "VARCHAR", "x": "DOUBLE", "ts": "TIMESTAMP", "day": "DATE"})
    for part in range(5):
        ids = range(part * 100, part * 100 + 100)
        times = [DAY + dt.timedelta(hours=id_) for id_ in ids]
        columns = {"id": ids, "name": [f"n{id_:03}" for id_ in ids], "x": [id_ / 2 for id_ in ids], "ts": times}
        table.append(pa.table(columns | {"day": [time.date() for time in times]}))
    table.append([{"id": 1000 + n, "name": "new", "x": 0.5, "ts": DAY, "day": DAY.date()} for n in range(3)])
    table.delete("id >= 400 AND id < 500 AND id % 2 = 1")
    return table


def leave_only(table: quacklake.Table, *first_ids: int) -> None:
    """Remove the data files of all rows but those that begin at some ids: whoever opens one of the others fails."""
    for name in table.files().column("path").to_pylist():
        path = Path(table.handle.context.store.root) / name
        if pq.read_table(path).column("id")[0].as_py() not in first_ids:
            path.unlink()


# -- relations of DuckDB -----------------------------------------------------------------------------------------------


def test_filters_on_a_relation_skip_files(parted: quacklake.Table, connection: duckdb.DuckDBPyConnection) -> None:
    relation = parted.to_duckdb(connection=connection)
    leave_only(parted, 200)
    assert relation.filter("id BETWEEN 210 AND 219").aggregate("count(*)").fetchall() == [(10,)]
    assert relation.filter("name = 'n250'").project("id").fetchall() == [(250,)]
    assert (
        len(relation.filter("ts >= TIMESTAMP '2025-01-09 08:00' AND ts < TIMESTAMP '2025-01-09 18:00'").fetchall())
        == 10
    )
    assert len(relation.filter("day = DATE '2025-01-10'").fetchall()) == 24
    if not IS_2:  # which hands over what a query says, but not what its joins find
        assert connection.sql("SELECT count(*) FROM relation JOIN (SELECT 240 AS id) USING (id)").fetchall() == [(1,)]
    with pytest.raises(Exception, match="parquet"):
        relation.filter("id = 5").fetchall()


def test_a_relation_reads_the_columns_that_a_query_needs(
    parted: quacklake.Table, connection: duckdb.DuckDBPyConnection
) -> None:
    relation = parted.to_duckdb(connection=connection)
    for name in parted.files().column("path").to_pylist():
        path = Path(parted.handle.context.store.root) / name
        column = pq.ParquetFile(path).metadata.row_group(0).column(1)
        with path.open("r+b") as file:
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            file.write(b"\xff" * column.total_compressed_size)
    assert relation.aggregate("max(id), count(*)").fetchall() == [(1002, 453)]
    with pytest.raises(Exception, match=r"name|snappy|page|data"):
        relation.project("name").fetchall()


def test_a_relation_leaves_nothing_in_the_connection_of_its_user(parted: quacklake.Table) -> None:
    connection = duckdb.connect(config={"threads": 1})
    names = "SELECT (SELECT count(*) FROM duckdb_tables()), (SELECT count(*) FROM duckdb_views() WHERE NOT internal),"
    names += "(SELECT count(*) FROM duckdb_secrets()), (SELECT count(*) FROM duckdb_databases() WHERE NOT internal),"
    names += "(SELECT count(*) FROM duckdb_functions() WHERE NOT internal)"
    before = connection.execute(names).fetchall()
    relation = parted.to_duckdb(connection=connection)
    assert relation.filter("id < 3").aggregate("count(*)").fetchall() == [(3,)]
    assert connection.execute(names).fetchall() == before
    connection.close()
    assert parted.count() == 453
    with pytest.raises(duckdb.Error):
        relation.fetchall()


@pytest.mark.parametrize("seed", range(2 if not LONG else 10))
def test_random_filters_keep_the_rows_that_plain_duckdb_keeps(
    seed: int, lake: quacklake.Lake, connection: duckdb.DuckDBPyConnection
) -> None:
    random_ = chance("relations", seed)
    table = lake.create_table("t", {"id": "INTEGER", **{name: type_ for name, (type_, _, _) in VALUES.items()}})
    model = None
    for number in range(3):
        part = rows(random_, random_.choice([3, 40]))
        part = part.add_column(0, "id", pa.array(range(number * 100, number * 100 + part.num_rows), pa.int32()))
        table.append(part)
        model = part if model is None else pa.concat_tables([model, part])
    connection.register("given", model)
    connection.execute("CREATE TABLE plain AS FROM given")
    relation = table.to_duckdb(connection=connection)
    for _ in range(25 if not LONG else 100):
        _, text = predicate(random_)
        if text is None or "DISTINCT" in text:
            continue
        found = relation.filter(text).project("id").fetchall()
        assert sorted(found) == sorted(connection.execute(f"SELECT id FROM plain WHERE {text}").fetchall()), text


def test_what_duckdb_cannot_hand_over_runs_without_push_down(
    parted: quacklake.Table, connection: duckdb.DuckDBPyConnection
) -> None:
    text = "name = 'n001' OR name IS DISTINCT FROM 'new'"
    assert len(parted.to_duckdb(connection=connection, push_filters=False).filter(text).fetchall()) == 450
    if not IS_2:
        with pytest.raises(duckdb.NotImplementedException, match="DISTINCT"):
            parted.to_duckdb(connection=connection).filter(text).fetchall()


# -- datasets of Arrow -------------------------------------------------------------------------------------------------


def test_a_dataset_gives_the_rows_of_the_table(parted: quacklake.Table) -> None:
    dataset = parted.to_arrow_dataset()
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema == parted.schema
    wanted = parted.to_arrow()
    assert dataset.to_table().sort_by("id") == wanted.sort_by("id")
    assert dataset.count_rows() == 453
    assert dataset.count_rows(filter=pc.field("id") < 10) == 10
    assert dataset.head(7).num_rows == 7
    assert dataset.to_table(columns=["x", "id"], filter=pc.field("name") == "n003").to_pylist() == [{"x": 1.5, "id": 3}]
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["id"], batch_size=10)) == 453
    assert dataset.filter(pc.field("id") >= 1000).filter(pc.field("x") > 0.1).count_rows() == 3
    assert dataset.take([0, 2], columns=["id"]).num_rows == 2
    assert dataset.sort_by([("id", "descending")]).head(1).column("id").to_pylist() == [1002]
    assert dataset.scanner(columns=["id"]).projected_schema.names == ["id"]
    assert "TableDataset" in repr(dataset)


def test_filters_on_a_dataset_skip_files(parted: quacklake.Table) -> None:
    dataset = parted.to_arrow_dataset()
    leave_only(parted, 300)
    some = (pc.field("ts") >= DAY + dt.timedelta(hours=310)) & (pc.field("ts") < DAY + dt.timedelta(hours=312))
    assert dataset.to_table(filter=some, columns=["id"]).column("id").to_pylist() == [310, 311]
    assert dataset.to_table(filter=pc.field("day") == dt.date(2025, 1, 15)).num_rows == 24
    assert dataset.count_rows(filter=pc.field("name").isin(["n301", "n399"])) == 2
    with pytest.raises(QuacklakeError):
        dataset.to_table()


def test_fragments_are_the_table_at_one_snapshot(parted: quacklake.Table) -> None:
    dataset = parted.to_arrow_dataset()
    fragments = list(dataset.get_fragments())
    assert len(fragments) == 6
    before = parted.to_arrow().sort_by("id")
    parted.append([{"id": 5000}], evolve=True)
    parted.delete("id < 50")
    together = pa.concat_tables([fragment.to_table() for fragment in fragments])
    assert together.sort_by("id") == before
    assert sum(fragment.count_rows() for fragment in fragments) == 453
    assert len(list(dataset.get_fragments(filter=pc.field("id") >= 1000))) < 6
    fragment, _ = dataset.get_fragments(filter=pc.field("name") == "n250")
    assert fragment.count_rows() == 100
    assert fragment.physical_schema == parted.schema


def test_a_scan_with_limit_or_text_keeps_both(parted: quacklake.Table) -> None:
    limited = parted.scan(["id"], "id < 100", limit=5).to_arrow_dataset()
    assert limited.count_rows() == 5
    assert limited.count_rows(filter=pc.field("id") >= 0) == 5
    assert limited.count_rows(filter=pc.field("id") >= 99) == 0
    assert len(list(limited.get_fragments())) == 1
    texts = parted.scan(["id"], "x < 5").to_arrow_dataset()
    assert texts.to_table(filter=pc.field("id") > 7).num_rows == 5
    numbered = parted.scan(["id"], row_ids=True).to_arrow_dataset()
    assert numbered.schema.names == ["id", "rowid"]
    assert numbered.to_table(filter=pc.field("rowid") == 7).to_pylist() == [{"id": 7, "rowid": 7}]


def test_nan_and_null_are_what_arrow_takes_them_for(lake: quacklake.Lake) -> None:
    given = pa.table({"x": [float("nan"), None, 1.0, -0.0], "u": ["00000000-0000-0000-0000-00000000000A"] * 4})
    lake.sql("CREATE TABLE t (x DOUBLE, u UUID)")
    table = lake.table("t")
    table.append(given)
    dataset, plain = table.to_arrow_dataset(), ds.dataset(table.to_arrow())
    x, u = pc.field("x"), pc.field("u")
    for filter in (x > 0, x < 5, x == 0.0, x.is_null(), x.is_null(nan_is_null=True), x.is_nan(), ~(x > 0), x != 1.0,
                   u == "00000000-0000-0000-0000-00000000000a", u == "00000000-0000-0000-0000-00000000000A", u > "z"):  # fmt: skip
        assert dataset.count_rows(filter=filter) == plain.count_rows(filter=filter), str(filter)


def test_what_a_dataset_cannot_do_is_said(parted: quacklake.Table) -> None:
    dataset = parted.to_arrow_dataset()
    for call in (
        lambda: dataset.to_table(columns={"twice": pc.field("id") * 2}),
        lambda: dataset.join(dataset, "id"),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: pickle.dumps(dataset),
    ):
        with pytest.raises(UnsupportedFeatureError) as caught:
            call()
        assert caught.value.hint
    with pytest.raises(QuacklakeError):
        dataset.to_table(filter=pc.field("nope") > 3)
    parted.drop_column("name")
    with pytest.raises(InputError, match='no column "name"'):
        dataset.to_table()
    assert isinstance(dataset, TableDataset)


def test_dask_reads_fragments_in_threads(parted: quacklake.Table) -> None:
    frames = pytest.importorskip("dask.dataframe")
    fragments = list(parted.to_arrow_dataset(["id", "x"]).get_fragments())
    frame = frames.from_map(lambda fragment: fragment.to_table().to_pandas(), fragments)
    assert frame["id"].sum().compute(scheduler="threads") == sum(parted.to_arrow()["id"].to_pylist())
