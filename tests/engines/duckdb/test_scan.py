"""Running scan plans on DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quacklake
from quacklake.errors import CancelledError, CorruptFileError, PredicateError
from tests.layout import folder


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=5
    ) as lake:
        yield lake


@pytest.mark.parametrize(
    "name",
    [
        "file_index",
        "file_row_number",
        "filename",
        'quo"te',
        "semi;colon",
        "d",
        "p",
        "key",
        "_ql_row_id2",
        "ünï",
        "a b",
        "'",
    ],
)
def test_a_column_may_have_any_name(lake: quacklake.Lake, name: str) -> None:
    table = lake.create_table("t", pa.table({name: range(20), "other": ["x"] * 20}))
    table.append(pa.table({name: [100], "other": ["inlined"]}))
    quoted = '"' + name.replace('"', '""') + '"'
    assert table.delete(f"{quoted} < 5") == 5
    assert table.update({"other": "y"}, f"{quoted} IN (7, 100)") == 2
    assert sorted(row[name] for row in table.to_pylist(where="other = 'y'")) == [7, 100]
    assert table.scan([name]).to_arrow().column_names == [name]


def test_row_ids_stay_with_their_rows_through_updates_and_merges(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100), "v": [0] * 100}))
    table.append([{"id": 100, "v": 0}, {"id": 101, "v": 0}])

    def ids() -> dict[int, int]:
        return {row["id"]: row["rowid"] for row in table.scan(row_ids=True).to_pylist()}

    before = ids()
    table.update({"v": 1}, "id % 2 = 0")
    table.update({"v": 2}, "id IN (3, 101)")
    table.merge([{"id": 4, "v": 9}, {"id": 500, "v": 9}], on="id")
    table.merge(pa.table({"id": range(50, 80), "v": [7] * 30}), on="id")
    after = ids()
    assert {key: value for key, value in after.items() if key in before} == before
    assert len(set(after.values())) == len(after) == 103


def test_a_filter_as_arrow_expression_equals_the_same_filter_as_text(lake: quacklake.Lake) -> None:
    table = lake.create_table(
        "t", pa.table({"id": range(50), "name": [None if i % 7 == 0 else f"n{i}" for i in range(50)]})
    )
    table.append(pa.table({"id": range(50, 90), "name": ["z"] * 40}))
    for expression, text in (
        (pc.field("id") > 60, "id > 60"),
        ((pc.field("id") >= 10) & (pc.field("name") == "n11"), "id >= 10 AND name = 'n11'"),
        (pc.field("name").is_null(), "name IS NULL"),
        (pc.field("id").isin([3, 70]), "id IN (3, 70)"),
        (~(pc.field("id") == 3) & (pc.field("id") < 6), "NOT id = 3 AND id < 6"),
        (pc.multiply(pc.field("id"), 2) == 20, "id * 2 = 20"),
    ):
        by_expression = sorted(row["id"] for row in table.to_pylist(["id"], where=expression))
        assert by_expression == sorted(row["id"] for row in table.to_pylist(["id"], where=text))
        assert table.count(expression) == table.count(text) == len(by_expression)
    assert table.plan(pc.field("id") > 60).files.num_rows == 1


def test_a_limit_holds_with_and_without_a_filter(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(1000)}))
    assert table.scan(limit=7).to_arrow().num_rows == 7
    assert table.scan(where="id > 10", limit=7).count() == 7
    assert table.scan(where=pc.field("id") > 10, limit=7).to_arrow().num_rows == 7


def test_the_first_batch_comes_before_everything_is_read(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    for part in range(4):
        table.append(pa.table({"id": range(part * 300_000, (part + 1) * 300_000)}))
    scan = table.scan().scan(batch_rows=1000)
    first = scan.reader.read_next_batch()
    assert 0 < first.num_rows <= 122_880
    scan.cancel()
    scan.reader.close()


def test_a_scan_can_be_cancelled_from_another_thread(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(300_000)}))
    # a thousand hashes for every row: far longer than any test may take
    slow = "list_sum(list_transform(range(1000), x -> length(md5((x * id)::VARCHAR)))) < 0"
    scan = table.scan(where=slow).scan()
    timer = threading.Timer(0.3, scan.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        scan.reader.read_all()
    timer.join()


@pytest.mark.parametrize(
    "where", ["id >", "nme = 1", "id = 1; DROP TABLE t", "id = 1) OR (1 = 1", "1 = 1 UNION SELECT 1", ""]
)
def test_a_filter_that_is_no_expression_is_refused(lake: quacklake.Lake, where: str) -> None:
    table = lake.create_table("t", pa.table({"id": range(20), "name": ["x"] * 20}))
    with pytest.raises(PredicateError):
        table.to_arrow(where=where)
    with pytest.raises(PredicateError):
        table.delete(where)
    assert table.count() == 20


def test_an_unknown_column_in_a_filter_comes_with_the_nearest_name(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(20), "name": ["x"] * 20}))
    with pytest.raises(PredicateError) as caught:
        table.to_arrow(where="nmae = 'x'")
    assert caught.value.hint is not None
    assert '"name"' in caught.value.hint


@pytest.mark.parametrize("damage", ["truncate", "garbage", "remove"])
def test_a_damaged_file_is_a_typed_error(lake: quacklake.Lake, tmp_path: Path, damage: str) -> None:
    table = lake.create_table("t", pa.table({"id": range(1000)}))
    path = folder(tmp_path / "data") / table.files().column("path")[0].as_py()
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        path.write_bytes(b"not a parquet file at all" * 20)
    else:
        path.unlink()
    with pytest.raises(CorruptFileError):
        table.to_arrow()


def test_every_table_can_be_queried_in_a_duckdb_connection(lake: quacklake.Lake) -> None:
    lake.create_schema("shop")
    lake.create_table("shop.orders", pa.table({"id": range(100), "product": [i % 3 for i in range(100)]}))
    lake.create_table("products", [{"id": 0, "name": "tea"}, {"id": 1, "name": "cocoa"}])
    lake.table("shop.orders").delete("id >= 90")
    with duckdb.connect() as connection:
        lake.register(connection)
        found = connection.execute(
            "SELECT p.name, count(*) FROM shop.orders o JOIN products p ON p.id = o.product GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert found == [("cocoa", 30), ("tea", 30)]


def test_memory_stays_within_the_limit_while_a_table_is_streamed(tmp_path: Path) -> None:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_memory_limit="64MB"
    ) as lake:
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        batch = pa.record_batch({"id": list(range(50_000)), "text": ["some text of a row"] * 50_000}, schema=schema)
        table = lake.create_table("t", schema)
        assert table.append(pa.RecordBatchReader.from_batches(schema, (batch for _ in range(60)))) == 3_000_000
        assert sum(found.num_rows for found in table.to_batches()) == 3_000_000
