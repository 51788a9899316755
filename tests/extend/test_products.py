"""The parts of the extension API that products stand on: input of people, queries, stores, backups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.config import resolve
from quacklake.errors import InputError, NotPermittedError, PathError, SchemaMismatchError, SqlError
from quacklake.extend import backups, inputs, schemas, sql, stores, writes


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    options = {"data_inlining_row_limit": 3, "duckdb_threads": 1}
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **options) as opened:
        opened.sql("CREATE TABLE t (id INTEGER, name VARCHAR)")
        opened.sql("INSERT INTO t SELECT i, 'n' || i FROM range(10) r(i)")
        yield opened


@pytest.mark.parametrize(
    "rows",
    [[{"a": 1}, {"a": 2}], {"a": [1, 2]}, pa.table({"a": [1, 2]}), pa.table({"a": [1, 2]}).to_reader()],
    ids=["dictionaries", "columns", "table", "reader"],
)
def test_rows_of_any_kind_are_a_stream(rows: object) -> None:
    assert inputs.open_rows(rows).read_all().to_pydict() == {"a": [1, 2]}


def test_texts_of_files_get_the_wanted_types(tmp_path: Path) -> None:
    Path(tmp_path, "a.csv").write_text("a\n1\n2\n")
    wanted = schemas.to_schema({"a": "VARCHAR"})
    assert inputs.open_rows(tmp_path / "a.csv", wanted).read_all().to_pydict() == {"a": ["1", "2"]}


def test_what_is_no_rows_is_refused() -> None:
    with pytest.raises(SchemaMismatchError):
        inputs.open_rows(7)


@pytest.mark.parametrize("text", ["7d", "2024-01-01", "2024-01-01T00:00:00Z"])
def test_an_age_is_a_span_or_a_time(text: str) -> None:
    assert inputs.before(text).tzinfo is not None


def test_columns_of_a_new_table_come_from_types_alone() -> None:
    assert [column.id for column in schemas.to_schema(pa.schema([("a", pa.int8()), ("b", pa.string())])).columns] == [
        1,
        2,
    ]
    with pytest.raises(InputError, match="rows has no types"):
        schemas.to_schema([{"a": 1}])


@pytest.mark.parametrize("query", ["SELECT * FROM read_csv('/etc/passwd')", "SELECT getenv('HOME')"])
def test_a_query_that_reads_more_than_tables_is_refused(query: str) -> None:
    with pytest.raises(NotPermittedError):
        sql.check_query(query)


def test_a_query_is_one_statement() -> None:
    with pytest.raises(SqlError):
        sql.check_query("SELECT 1; SELECT 2")
    with pytest.raises(InputError):
        sql.find_tables("DELETE FROM t")


def test_common_tables_are_no_tables_of_a_query() -> None:
    assert sql.find_tables("WITH few AS (SELECT 1 AS a) SELECT * FROM few JOIN s.t USING (a)") == [("s", "t")]


def test_places_of_a_lake_are_not_outside(lake: quacklake.Lake, tmp_path: Path) -> None:
    Path(tmp_path, "link").symlink_to(tmp_path / "data")
    for place in (tmp_path, tmp_path / "data" / "x", tmp_path / "link", tmp_path / "lake.db"):
        with pytest.raises(PathError, match="where a lake has its files"):
            stores.check_outside(lake, place)
    with pytest.raises(PathError, match="where a lake has its files"):
        stores.check_outside(lake, stores.find_store(lake, str(tmp_path / "data")))
    stores.check_outside(lake, tmp_path / "elsewhere")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    with stores.replace_file(target, parents=True) as part:
        part.write_text("first")
    with pytest.raises(ValueError, match="midway"), stores.replace_file(target) as part:
        part.write_text("half of the sec")
        raise ValueError("midway")
    assert target.read_text() == "first"
    assert [each.name for each in target.parent.iterdir()] == ["a.txt"]


def test_a_place_of_backups_makes_lists_reads_and_removes_them(lake: quacklake.Lake, tmp_path: Path) -> None:
    place = backups.Backups.open(str(tmp_path / "there"), resolve(env={}))
    first = place.add(lake)
    lake.table("t").delete("id = 1")
    second = place.add(lake)
    assert [info.id for info in place.list()] == [first.id, second.id]
    made = [batch.num_rows for batch in place.read_table(second.id, "ducklake_snapshot")]
    assert sum(made) == lake.current_snapshot() + 1
    place.check_not_pruned()
    assert place.prune(inputs.before("0s"), dry_run=True).files >= 0
    assert len(place.list()) == 2
    place.prune(inputs.before("0s"))
    assert [info.id for info in place.list()] == [second.id]


def test_a_written_query_that_is_not_kept_leaves_nothing(lake: quacklake.Lake, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64())])
    before = set(Path(tmp_path, "data").rglob("*.parquet"))

    def look(change: writes.Change) -> int:
        with change.write_query("t", "SELECT i AS id FROM range(5) r(i)", columns, 100) as staged:
            assert staged is not None
            return staged.rows

    assert writes.run(lake, look).value == 5
    assert (lake.table("t").count(), set(Path(tmp_path, "data").rglob("*.parquet"))) == (10, before)


def test_a_query_for_several_files_is_not_written(lake: quacklake.Lake) -> None:
    def look(change: writes.Change) -> bool:
        columns = pa.schema([("id", pa.int64())])
        with change.write_query("t", "SELECT 1 AS id", columns, 1 << 40) as staged:
            return staged is None

    assert writes.run(lake, look).value


def test_a_rewritten_table_keeps_ids_and_comments(lake: quacklake.Lake) -> None:
    lake.table("t").set_column_comment("id", "the number")

    def widen(change: writes.Change) -> None:
        id_, name = change.transaction.table("t").info.schema.columns
        rows = change.transaction.sql("SELECT id::VARCHAR AS id, name FROM t WHERE id < 2 ORDER BY id").to_reader()
        change.overwrite("t", rows, schemas.TableSchema((replace(id_, type="varchar"), name)))

    ids = [column.id for column in lake.table("t").info.schema.columns]
    writes.run(lake, widen)
    assert lake.table("t").to_pylist() == [{"id": "0", "name": "n0"}, {"id": "1", "name": "n1"}]
    assert [column.id for column in lake.table("t").info.schema.columns] == ids
    assert lake.table("t").column_comments == {"id": "the number"}


def test_a_state_is_named_by_number_tag_or_time(lake: quacklake.Lake) -> None:
    lake.tag("full", 2)
    lake.table("t").delete()
    time = lake.snapshots().to_pylist()[2]["snapshot_time"]
    for to in (2, "full", time, time.isoformat()):
        assert lake.at(to=to).table("t").count() == 10
    with pytest.raises(InputError, match="pass one of"):
        lake.at(1, to=2)


def test_a_view_is_current_until_its_tables_change(lake: quacklake.Lake) -> None:
    lake.create_materialized_view("v", "SELECT count(*) AS n FROM t")
    assert lake.table("v").is_current()
    lake.table("t").delete("id = 1")
    assert not lake.table("v").is_current()
    assert lake.at(lake.current_snapshot() - 1).table("v").is_current()
    lake.refresh("v")
    assert lake.table("v").is_current()
    assert not lake.table("t").is_current()
    assert "v" in lake.materialized_views
    assert "t" not in lake.materialized_views
