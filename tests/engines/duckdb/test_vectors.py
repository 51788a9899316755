"""Deletes in deletion vectors: read, deleted further, written, and refused when they are not what they should be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.format.vectors import encode, encode_file
from quacklake.errors import CorruptFileError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def lake(folder: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data", data_inlining_row_limit=0) as lake:
        lake.options.set("write_deletion_vectors", True)
        lake.create_table("t", pa.table({"i": range(1000)}))
        yield lake


def delete_files(folder: Path) -> list[tuple[object, ...]]:
    """Format, count, begin, end and newest snapshot of every delete file in the catalog."""
    engine = sa.create_engine(f"sqlite:///{folder}/lake.db")
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text(
                "SELECT format, delete_count, begin_snapshot, end_snapshot, partial_max"
                " FROM ducklake_delete_file ORDER BY delete_file_id"
            )
        ).all()
    engine.dispose()
    return [tuple(row) for row in rows]


def vector_file(folder: Path) -> Path:
    (found,) = folder.glob("data/**/*-delete.puffin")
    return found


def test_a_first_delete_is_one_bare_vector(lake: quacklake.Lake, folder: Path) -> None:
    lake.table("t").delete("i < 10 OR i = 500")
    assert vector_file(folder).read_bytes() == encode([*range(10), 500])
    assert delete_files(folder) == [("puffin", 11, 2, None, None)]
    assert lake.table("t").count() == 989
    assert lake.table("t").count("i < 20") == 10


def test_a_second_delete_keeps_what_every_snapshot_has(lake: quacklake.Lake, folder: Path) -> None:
    table = lake.table("t")
    table.delete("i < 10")
    table.delete("i BETWEEN 5 AND 19")
    table.delete("i = 999")
    assert delete_files(folder) == [("parquet", 21, 2, None, 4)]
    assert [lake.at(version=v).table("t").count() for v in (1, 2, 3, 4)] == [1000, 990, 980, 979]


def test_an_update_of_a_file_with_a_vector_keeps_row_ids(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.delete("i < 10")
    table.update({"i": quacklake.expr("i + 5000")}, "i BETWEEN 100 AND 199")
    ids = table.scan(where="i >= 5000", row_ids=True).to_arrow()
    assert sorted(ids.column("rowid").to_pylist()) == list(range(100, 200))
    assert table.count() == 990


def test_a_file_with_a_vector_can_be_emptied(lake: quacklake.Lake, folder: Path) -> None:
    table = lake.table("t")
    table.delete("i < 10")
    table.delete("i >= 0")
    assert table.count() == 0
    assert delete_files(folder) == [("puffin", 10, 2, 3, None)]
    assert lake.at(version=2).table("t").count() == 990


def test_deletes_in_the_catalog_become_a_vector_when_their_file_ends(lake: quacklake.Lake, folder: Path) -> None:
    lake.options.set("data_inlining_row_limit", 5)
    table = lake.table("t")
    table.delete("i < 4")
    assert delete_files(folder) == []
    table.delete()
    assert delete_files(folder) == [("puffin", 4, 2, 3, None)]
    assert [lake.at(version=v).table("t").count("i >= 0") for v in (1, 2, 3)] == [1000, 996, 0]


def test_the_option_holds_for_the_table_it_is_set_for(lake: quacklake.Lake, folder: Path) -> None:
    lake.create_table("other", pa.table({"i": range(100)}))
    lake.options.set("write_deletion_vectors", False, table="other")
    lake.table("other").delete("i < 50")
    assert delete_files(folder) == [("parquet", 50, 3, None, None)]


def test_a_puffin_file_has_the_deletes_of_each_snapshot(lake: quacklake.Lake, folder: Path) -> None:
    """As newer writers make it: a vector for each snapshot, each with all that was deleted until then."""
    table = lake.table("t")
    table.delete("i < 10")
    lake.create_table("u", {"i": pa.int64()})
    lake.create_table("v", {"i": pa.int64()})
    several = encode_file([(4, [*range(10), 20, 21]), (2, range(10))], data_file="x")
    vector_file(folder).write_bytes(several)
    assert [lake.at(version=v).table("t").count("i >= 0") for v in (1, 2, 3, 4)] == [1000, 990, 990, 988]
    assert lake.table("t").count("i BETWEEN 18 AND 23") == 4
    table.delete("i = 23")
    assert [lake.at(version=v).table("t").count("i >= 0") for v in (1, 2, 3, 4, 5)] == [1000, 990, 990, 988, 987]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
        lambda data: b"",
        lambda data: b"PFA1" + data,
        lambda data: encode([0, 1, 1000]),
        lambda data: encode_file([(1, [0]), (2, [0, 1000])]),
    ],
    ids=["short", "checksum", "empty", "half a puffin", "beyond the file", "a vector beyond the file"],
)
def test_a_damaged_vector_is_a_corrupt_file(
    damage: Callable[[bytes], bytes], lake: quacklake.Lake, folder: Path
) -> None:
    table = lake.table("t")
    table.delete("i < 10")
    path = vector_file(folder)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptFileError):
        table.to_arrow()
    with pytest.raises(CorruptFileError):
        table.delete("i = 50")
    assert lake.current_snapshot() == 2


def test_a_missing_vector_is_a_corrupt_file(lake: quacklake.Lake, folder: Path) -> None:
    lake.table("t").delete("i < 10")
    vector_file(folder).unlink()
    with pytest.raises(CorruptFileError):
        lake.table("t").to_arrow()


def test_vectors_of_two_writers_do_not_lose_a_delete(lake: quacklake.Lake) -> None:
    lake.create_table("u", pa.table({"i": range(1000)}))
    barrier = threading.Barrier(2)

    def work(first: int) -> None:
        barrier.wait()
        lake.table("u").delete(f"i BETWEEN {first} AND {first + 49}")

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.table("u").count() == 900
