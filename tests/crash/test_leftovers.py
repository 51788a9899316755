"""The remains of a crash in memory, in the database and on disk do no harm later."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.faults import Fault, FaultInjected, arm, record
from tests.crash.homes import Workshop, look
from tests.crash.operations import OPERATIONS, rows
from tests.seeds import some

pytestmark = pytest.mark.crash

CATALOGS = [
    "sqlite",
    "duckdb",
    "postgres",
    "mysql",
]
OTHER = pa.table({"name": ["a", "b"], "day": [dt.date(2024, 1, 1), None], "row_id": pa.array([1, 2], pa.int32())})


@pytest.mark.parametrize("workshop", CATALOGS, indirect=True)
def test_a_failed_create_does_not_disturb_another_table_with_the_same_ids(workshop: Workshop) -> None:
    """The next table gets the ids the failed one would have had: nothing may be remembered of that."""
    home = workshop.copy()
    with home.connect() as lake:
        with record() as points:
            OPERATIONS["create"].run(lake)
        lake.drop_table("s.made")
    before = points[: points.index("catalog.commit.after")]
    within = [n for n, point in enumerate(before, 1) if point.startswith("catalog.") and point.endswith(".after")]
    for n in within[-5::2]:
        home = workshop.copy()
        with home.connect() as lake, home.connect() as elsewhere:
            lake.table("t").count()
            with arm(Fault(at=n)), pytest.raises(FaultInjected):
                OPERATIONS["create"].run(lake)
            elsewhere.create_table("s.other", OTHER)
            assert lake.table("s.other").to_arrow().to_pylist() == OTHER.to_pylist()
            lake.table("s.other").append([{"name": "c", "day": None, "row_id": 3}])
            assert elsewhere.table("s.other").count() == 3
            OPERATIONS["create"].run(lake)
            assert look(lake).tables["s.made"] == [tuple(row.values()) for row in rows(0, 3).to_pylist()]


@pytest.mark.parametrize("workshop", ["sqlite"], indirect=True)
def test_an_interrupt_at_any_point_takes_no_file_that_the_lake_needs(workshop: Workshop) -> None:
    with workshop.copy().connect() as lake, record() as all_points:
        OPERATIONS["append_many"].run(lake)
    home = workshop.copy()
    lake = home.connect()
    old = look(lake)
    for n in some(range(1, len(all_points) + 2), 6, "interrupts"):
        with arm(Fault(at=n, error=KeyboardInterrupt)):
            try:
                OPERATIONS["append_many"].run(lake)
            except KeyboardInterrupt:
                pass
        found = look(lake)
        assert home.referenced() <= home.files()
        if found != old:
            assert len(found.tables["main.t"]) == len(old.tables["main.t"]) + 30
            lake.close()
            home = workshop.copy()
            lake = home.connect()
    lake.close()


@pytest.mark.parametrize("database", CATALOGS)
def test_a_lake_can_be_made_after_its_making_has_failed(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    with record() as points:
        quacklake.connect(new_url(database), data_path=tmp_path / "data").close()
    for n in {1, len(points) // 3, len(points) // 2, *range(len(points) - 9, len(points) + 1, 3)}:
        url = new_url(database)
        with arm(Fault(at=n)), pytest.raises(FaultInjected):
            quacklake.connect(url, data_path=tmp_path / "data")
        # of a shared lake the tables may be there, and the catalog not yet
        with quacklake.connect(url, data_path=tmp_path / "data", create=True) as lake:
            lake.create_table("t", rows(0, 3))
        with quacklake.connect(url) as lake:
            assert lake.table("t").count() == 3
            assert lake.snapshots().num_rows == 2
