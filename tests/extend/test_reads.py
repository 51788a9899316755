"""Plans of the extension API: what an engine reads by itself is what the lake reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import InputError, NotFoundError, NotPermittedError, PredicateError, UnsupportedFeatureError
from quacklake.extend import reads, schemas


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    options = {"data_inlining_row_limit": 3, "duckdb_threads": 1}
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **options) as opened:
        opened.sql("CREATE TABLE t (id INTEGER, name VARCHAR, x DOUBLE)")
        opened.sql("INSERT INTO t SELECT i, 'n' || i, i / 4 FROM range(50) r(i)")
        yield opened


def read_by_arrow(plan: reads.ReadPlan) -> pa.Table:
    """Read a plan as an engine does that knows Parquet and nothing of lakes."""
    columns = plan.schema.columns
    parts = []
    for part in plan.pieces:
        if part is None:
            parts.append(reads.read_part(plan, None).read_all())
            continue
        assert part.plain
        with reads.open_file(plan, part) as source:
            rows = pq.read_table(source)
        positions = pa.array(range(rows.num_rows), pa.int64())
        kept = pc.invert(pc.is_in(positions, value_set=reads.find_deleted(plan, part)))
        parts.append(schemas.conform(rows, columns).filter(kept))
    return pa.concat_tables(parts) if parts else plan.schema.to_arrow().empty_table()


def check(lake: quacklake.Lake | quacklake.LakeAt, table: str = "t") -> None:
    found, wanted = read_by_arrow(reads.plan_read(lake, table)), lake.table(table).to_arrow()
    order = [(name, "ascending") for name in wanted.schema.names]
    assert found.schema.names == wanted.schema.names
    assert found.sort_by(order).to_pylist() == wanted.sort_by(order).to_pylist()


@pytest.mark.parametrize("vectors", [False, True], ids=["delete files", "deletion vectors"])
def test_deletes_of_every_kind_are_left_out(lake: quacklake.Lake, vectors: bool) -> None:
    lake.options.set("write_deletion_vectors", vectors)
    lake.table("t").append({"id": [100, 101], "name": ["few", None], "x": [None, 1.0]})
    for where in ("id = 7", "id BETWEEN 10 AND 30", "id = 31", "id BETWEEN 25 AND 40 OR id = 100"):
        lake.table("t").delete(where)
        check(lake)
    plan = reads.plan_read(lake, "t")
    assert reads.find_deleted(plan, plan.files[0]).to_pylist() == [7, *range(10, 41)]
    for version in range(1, lake.current_snapshot() + 1):
        check(lake.at(version=version))


def test_columns_are_found_by_their_ids_whatever_their_names_were(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.add_column("added", "INTEGER", default=7)
    table.rename_column("name", "title")
    table.alter_column("id", "BIGINT")
    table.append({"id": [2**40 + i for i in range(9)], "title": ["new"] * 9, "x": [0.0] * 9, "added": [None] * 9})
    table.drop_column("x")
    table.add_column("x", "VARCHAR", default="again")
    table.add_column("name", "DATE", default="2026-11-19")
    check(lake)
    assert {row["added"] for row in read_by_arrow(reads.plan_read(lake, "t")).to_pylist()} == {7, None}


def test_what_arrow_cannot_conform_is_refused_and_read_by_the_core(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE odd (id INTEGER, s STRUCT(a INTEGER, b VARCHAR), u UUID)")
    lake.sql("INSERT INTO odd SELECT i, {'a': i, 'b': 'b'}, uuid() FROM range(9) r(i)")
    plan = reads.plan_read(lake, "odd")
    (file,) = plan.files
    with reads.open_file(plan, file) as source:
        stored = pq.read_schema(source)
    id_, struct, uuid = plan.schema.columns
    assert [schemas.can_conform(stored, [each]) for each in (id_, struct, uuid)] == [True, True, False]
    lake.table("odd").rename_column("s.a", "renamed")
    plan = reads.plan_read(lake, "odd")
    changed = plan.schema.find("s")
    assert not schemas.can_conform(stored, [changed])
    with pytest.raises(UnsupportedFeatureError):
        schemas.conform(stored.empty_table(), [changed])
    found = reads.read_part(plan, plan.files[0], ["s", "id"], places=True).read_all()
    assert found.schema.names == ["s", "id", *reads.PLACES.names]
    assert found.column("s").to_pylist() == [{"renamed": i, "b": "b"} for i in range(9)]
    assert found.column("_ql_position").to_pylist() == list(range(9))


def test_a_filter_leaves_out_files_and_not_rows(lake: quacklake.Lake) -> None:
    lake.sql("INSERT INTO t SELECT i, 'n' || i, i FROM range(1000, 1050) r(i)")
    for where in ("id >= 1049", pc.field("id") >= 1049):
        plan = reads.plan_read(lake, "t", where)
        assert [file.rows for file in plan.files] == [50]
    assert len(reads.plan_read(lake, "t").files) == 2
    with pytest.raises(PredicateError):
        reads.plan_read(lake, "t", "id >= 1; DROP TABLE t")
    with pytest.raises(NotFoundError):
        reads.plan_read(lake, "missing")


def test_an_open_transaction_is_read_with_its_own_changes(lake: quacklake.Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").append({"id": [100], "name": ["mine"], "x": [None]})
        tx.table("t").delete("id < 49")
        found = read_by_arrow(reads.plan_read(tx, "t"))
        assert found.column("id").to_pylist() == [49, 100]
    assert reads.plan_read(lake, "t").catalog_rows == 1


def test_a_principal_gets_no_files(lake: quacklake.Lake) -> None:
    lake.access.create_user("ann")
    lake.access.grant("select", "ann", table="t")
    with pytest.raises(NotPermittedError):
        reads.plan_read(lake.as_principal("ann"), "t")


def test_files_of_an_encrypted_lake_are_left_to_the_core(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data", encrypted=True) as lake:
        lake.sql("CREATE TABLE t AS SELECT i AS id FROM range(50) r(i)")
        plan = reads.plan_read(lake, "t")
        (file,) = plan.files
        assert not file.plain
        assert reads.read_part(plan, file).read_all().num_rows == 50
        assert "key" not in repr(plan)


def test_a_place_beyond_the_plan_is_refused(lake: quacklake.Lake) -> None:
    from quacklake.extend import writes

    lake.table("t").append({"id": [100], "name": ["few"], "x": [None]})
    lake.table("t").delete("id = 3")
    (file,) = reads.plan_read(lake, "t").files
    wrong = [(file.id, None, 50), (file.id, None, -1), (file.id, None, 3), (99, None, 0), (None, 1, 77)]
    for place in wrong:
        with pytest.raises(InputError, match="no row"):
            writes.run(lake, lambda c, place=place: c.delete(c.plan("t"), pa.table([[v] for v in place], reads.PLACES)))
    assert lake.table("t").count() == 50
