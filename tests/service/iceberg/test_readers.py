"""What readers of Iceberg see is what the lake holds, at every snapshot, after random histories."""

from __future__ import annotations

import pytest

from quacklake import Lake
from tests.seeds import chance

from .histories import History
from .serving import Service, duckdb_reader, pyiceberg_reader, rows_of

FILTERS = ("a > 0", "a IS NULL", "k >= 40", "a <= -5 AND k < 100")


@pytest.mark.parametrize("number", range(6))
def test_every_snapshot_of_a_random_history_is_the_same_in_other_readers(
    service: Service, lake: Lake, number: int
) -> None:
    history = History(lake, chance("iceberg histories", number))
    history.run(14)
    name = service.add(lake)
    table = pyiceberg_reader(service, name).load_table("main.h")
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    assert snapshots == [id_ for id_ in lake.snapshots().column("snapshot_id").to_pylist() if id_ > 0]
    with duckdb_reader(service, name) as reader:
        for snapshot in snapshots:
            expected = lake.at(version=snapshot).table("h").to_arrow()
            found = table.scan(snapshot_id=snapshot).to_arrow()
            assert found.column_names == expected.column_names, history.done
            assert rows_of(found) == rows_of(expected), (history.done, snapshot)
            others = reader.execute(f"FROM ice.main.h AT (VERSION => {snapshot})").to_arrow_table()
            assert others.column_names == expected.column_names, history.done
            assert rows_of(others) == rows_of(expected), (history.done, snapshot)
        counted = reader.execute("SELECT count(*) FROM ice.main.h").fetchall()
        assert counted == [(lake.table("h").count(),)], history.done
        for where in FILTERS:
            expected = lake.table("h").to_arrow(where=where)
            assert rows_of(table.scan(row_filter=where).to_arrow()) == rows_of(expected), (where, history.done)
            others = reader.execute(f"FROM ice.main.h WHERE {where}").to_arrow_table()
            assert rows_of(others) == rows_of(expected), (where, history.done)
