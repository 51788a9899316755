"""Tables of inlined rows that newer ones have superseded go when they are empty, and nobody is in their way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.core.format.inline import parse_table_name
from quacklake.errors import CommitConflict
from tests.layout import LAYOUT


@pytest.fixture(params=["sqlite", "duckdb"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    """A table whose inlined rows are in tables of two schema versions."""
    url = f"{request.param}:///{tmp_path}/lake.db"
    # a write-ahead log lets one thread write while it reads
    with quacklake.connect(url, data_path=tmp_path / "data", sqlite_journal="wal") as found:
        table = found.create_table("t", [{"i": 1}, {"i": 2}])
        table.add_column("j", "INTEGER")
        table.append([{"i": 3, "j": 30}])
        yield found


def listed(lake: quacklake.Lake) -> tuple[list[int], list[int]]:
    """The versions that the catalog names, and those that the database has tables of."""
    with lake._context.catalog.read() as reader:
        named = [parse_table_name(name) for name in reader.stored_tables()]
        known = sorted(reader.inlined.tables(lake.handle.view().find_table("main", "t").id))
    return known, sorted(found[1] for found in named if found is not None and found[1] is not None)


def rows(lake: quacklake.Lake) -> list[tuple[int, int | None]]:
    return sorted((row["i"], row["j"]) for row in lake.table("t").to_pylist())


ROWS = [(1, None), (2, None), (3, 30)]
pytestmark = pytest.mark.skipif(LAYOUT == "shared", reason="a shared lake has one table for the inlined rows of all")


def test_a_flush_drops_the_older_table(lake: quacklake.Lake) -> None:
    before = lake.current_snapshot()
    assert len(listed(lake)[0]) == 2
    lake.table("t").flush_inlined_data()
    known, there = listed(lake)
    assert len(known) == 1
    assert there == known
    assert rows(lake) == ROWS
    assert lake.at(version=before).table("t").count() == 3
    lake.table("t").append([{"i": 4, "j": 40}])
    assert listed(lake) == (known, known)
    assert lake.table("t").count() == 4


def test_an_expiry_drops_older_tables_without_rows(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.delete("i < 3")
    assert len(listed(lake)[0]) == 2
    lake.expire_snapshots(keep_last=1)
    known, there = listed(lake)
    assert len(known) == 1
    assert there == known
    assert rows(lake) == ROWS[2:]


def test_a_reader_that_knows_of_a_table_still_finds_it(lake: quacklake.Lake) -> None:
    catalog = lake._context.catalog
    base, info = lake.handle.view().base, lake.handle.view().find_table("main", "t")
    with catalog.read() as reader:
        versions = reader.inlined.tables(info.id)
        lake.table("t").flush_inlined_data()
        assert reader.inlined.tables(info.id) == versions
        found = reader.inlined.rows(base, info)
    assert sum(each.rows.num_rows for each in found) == 3
    assert len(listed(lake)[0]) == 1


def test_a_delete_of_rows_that_went_with_their_table_is_a_conflict(lake: quacklake.Lake) -> None:
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").delete("i = 1")
        lake.table("t").flush_inlined_data()
    assert rows(lake) == ROWS
    lake.table("t").delete("i = 1")
    assert rows(lake) == ROWS[1:]


def test_a_flush_of_rows_that_went_with_their_table_moves_nothing(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    compactor, info, base = table._compactor(lambda *_: None)
    table.flush_inlined_data()
    report = compactor.flush(info, base)
    assert report.rows == 0
    assert rows(lake) == ROWS


def test_a_default_that_changes_leaves_the_table_in_use(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.set_default("j", 7)
    table.append([{"i": 4}])
    table.flush_inlined_data()
    table.append([{"i": 5}])
    assert rows(lake) == [*ROWS, (4, 7), (5, 7)]
    assert len(listed(lake)[0]) == 1
