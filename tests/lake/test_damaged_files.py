"""Damaged or missing files: a typed error that names the trouble, and everything else still works."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry
from quacklake.core import faults
from quacklake.errors import ConstraintError, CorruptFileError, QuacklakeError, ReadOnlyError, StorageError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        table = lake.create_table("t", pa.table({"id": range(1000), "name": [f"name {i}" for i in range(1000)]}))
        table.append(pa.table({"id": range(2000, 2100), "name": ["x"] * 100}))
        table.delete("id BETWEEN 100 AND 150")
        lake.create_table("whole", [{"id": 1}])
        yield lake


def files(lake: quacklake.Lake, kind: str) -> list[Path]:
    found = sorted(Path(lake.data_path).rglob("*.parquet"))
    return [path for path in found if path.stem.endswith("-delete") == (kind == "delete")]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4 : len(data) - 8] = os.urandom(len(data) - 12)
    path.write_bytes(bytes(data))


def other_kind(path: Path) -> None:
    path.write_text("id,name\n1,x\n")


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [truncate, empty, scramble, other_kind, remove]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["data", "delete"])
def test_a_damaged_file_is_a_typed_error_and_nothing_else_suffers(
    lake: quacklake.Lake, kind: str, damage: Callable[[Path], None]
) -> None:
    before = lake.current_snapshot()
    damage(files(lake, kind)[0])
    table = lake.table("t")
    for work in (
        table.to_arrow,
        lambda: table.delete("name = 'name 7'"),
        lambda: table.update({"name": "y"}, "id >= 0"),
    ):
        with pytest.raises(StorageError) as caught:
            work()
        assert isinstance(caught.value, CorruptFileError)
        assert caught.value.hint or "parquet" in str(caught.value)
    assert lake.current_snapshot() == before
    assert lake.table("whole").to_pylist() == [{"id": 1}]
    assert table.append([{"id": 5000, "name": "still works"}]) == 1
    assert table.to_pylist(where="id = 5000") == [{"id": 5000, "name": "still works"}]


def test_a_flipped_byte_in_a_page_never_passes_silently_for_another_row_count(lake: quacklake.Lake) -> None:
    path = files(lake, "data")[0]
    data = bytearray(path.read_bytes())
    for at in range(40, 400, 40):
        data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    try:
        assert lake.table("t").to_arrow().num_rows == 1049
    except QuacklakeError:
        pass  # noticed


def test_a_file_that_is_gone_is_named(lake: quacklake.Lake) -> None:
    path = files(lake, "data")[0]
    path.unlink()
    with pytest.raises(CorruptFileError) as caught:
        lake.table("t").to_arrow()
    assert path.name in str(caught.value)


def test_a_lake_whose_files_were_moved_opens_at_their_new_place(lake: quacklake.Lake, tmp_path: Path) -> None:
    count, url = lake.table("t").count(), lake.url
    lake.close()
    (tmp_path / "data").rename(tmp_path / "moved")
    with quacklake.connect(url, data_path=tmp_path / "moved", override_data_path=True) as moved:
        assert moved.table("t").to_arrow().num_rows == count
        moved.table("t").append([{"id": 1, "name": "x"}])
        assert moved.table("t").count() == count + 1


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_catalog_file_without_the_right_to_write_can_be_read(lake: quacklake.Lake, tmp_path: Path) -> None:
    url = lake.url
    lake.close()
    (tmp_path / "lake.db").chmod(0o444)
    with quacklake.connect(url) as reader:
        assert reader.table("whole").count() == 1
        with pytest.raises(ReadOnlyError):
            reader.table("whole").append([{"id": 2}])


def test_a_catalog_that_is_no_database_is_refused(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb"):
        path = tmp_path / f"text.{kind}"
        path.write_text("this is no database, but long enough to have a header" * 100)
        with pytest.raises(QuacklakeError):
            quacklake.connect(f"{kind}:///{path}", data_path=tmp_path / "data")
        assert path.read_text().startswith("this is no database")


def test_a_half_copied_catalog_is_an_error_and_not_an_empty_lake(lake: quacklake.Lake, tmp_path: Path) -> None:
    import sqlite3

    url = lake.url
    lake.close()
    database = sqlite3.connect(tmp_path / "lake.db")
    database.execute("DELETE FROM ducklake_snapshot")
    database.commit()
    database.close()
    with pytest.raises(QuacklakeError), quacklake.connect(url) as broken:
        broken.tables()


def test_a_value_that_no_file_can_hold_is_the_fault_of_the_value(lake: quacklake.Lake) -> None:
    month = pa.scalar((-1, 0, 0), pa.month_day_nano_interval())
    before = lake.current_snapshot()
    table = lake.create_table("spans", {"span": pa.month_day_nano_interval()})
    with pytest.raises(ConstraintError, match="an interval that a file cannot hold"):
        table.append(pa.table({"span": pa.array([month.as_py()] * 20, pa.month_day_nano_interval())}))
    assert lake.current_snapshot() == before + 1
    assert table.count() == 0


@pytest.mark.parametrize("type_", ["TIMETZ", "TIMETZ[]", "STRUCT(a TIMETZ)", "MAP(TIMETZ, INTEGER)"])
def test_times_keep_their_offset_or_stay_in_the_catalog(lake: quacklake.Lake, type_: str) -> None:
    shapes = {"TIMETZ": "{0}", "TIMETZ[]": "[{0}, NULL]", "STRUCT(a TIMETZ)": "{{'a': {0}}}"}
    shape = shapes.get(type_, "MAP {{{0}: 1}}")
    times = ["12:00:00+00", "12:00:00+02", "00:00:00-15:59:59", "24:00:00+00"]
    values = [shape.format(f"'{time}'::TIMETZ") for time in times]
    lake.sql(f"CREATE TABLE z (i INTEGER, t {type_})")
    for number, value in enumerate([*values, "NULL"]):
        lake.sql(f"INSERT INTO z VALUES ({number}, {value})")
    before = lake.sql("SELECT i, t::VARCHAR FROM z ORDER BY i").fetchall()
    lake.table("z").flush_inlined_data()
    assert lake.sql("SELECT i, t::VARCHAR FROM z ORDER BY i").fetchall() == before
    assert len(lake.table("z").files()) == 1
    for value in values[1:]:
        with pytest.raises(ConstraintError, match="a time with an offset, which a file does not hold"):
            lake.sql(f"INSERT INTO z SELECT i, {value} FROM range(20) r(i)")
    lake.sql(f"INSERT INTO z SELECT i + 10, {values[0]} FROM range(20) r(i)")
    assert lake.sql(f"SELECT count(*) FROM z WHERE t = {values[0]}").fetchall() == [(21,)]


@pytest.mark.parametrize("point", ["storage.footer.before", "storage.read.before"])
def test_a_delete_file_is_read_again_when_the_store_fails_on_the_way(lake: quacklake.Lake, point: str) -> None:
    telemetry.reset()
    with faults.arm(faults.Fault(1, pattern=point, error=ConnectionResetError)):
        lake.table("t").delete("id BETWEEN 200 AND 250")
    assert telemetry.snapshot().counters["storage.retries"] == 1
    assert lake.table("t").count() == 998
