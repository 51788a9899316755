"""After stock DuckLake expires snapshots and removes files, the rest reads as before, and what is gone is an error."""

from __future__ import annotations

import pytest

from quacklake.errors import NotFoundError, SnapshotExpiredError

from .conftest import MakeSite, kinds
from .feeds import our_feed
from .history import History, compare_ours
from .scenarios import THINGS, numbers
from .steps import Append, Delete, Stock, Update

STEPS = [
    THINGS,
    Append("things", numbers(0, 60)),
    Append("things", numbers(100, 4)),
    Append("things", numbers(200, 40)),
    Delete("things", "id BETWEEN 10 AND 30"),
    Delete("things", "id IN (1, 101)"),
    Update("things", {"name": "'new'"}, "id BETWEEN 200 AND 220"),
    Delete("things", "id >= 221"),
    Stock("CALL ducklake_flush_inlined_data('l')"),
    Stock("CALL ducklake_merge_adjacent_files('l')"),
    Append("things", numbers(300, 3)),
    Delete("things", "id BETWEEN 31 AND 45"),
]
OLDEST = 8


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
def test_what_expiry_leaves_reads_as_before_and_what_it_took_is_an_error(make_site: MakeSite, kind: str) -> None:
    site = make_site(kind)
    history = History(site)
    history.play(STEPS, ("ours", "stock"))
    last = history.newest()
    table = site.lake().table("things")
    before = {(since, last): our_feed(table, since, last) for since in range(OLDEST + 1, last + 1)}
    files = len(list(site.data_path.rglob("*.parquet")))
    gone = [*range(OLDEST)]
    site.stock().execute(f"CALL ducklake_expire_snapshots('l', versions => {gone})")
    site.stock().execute("CALL ducklake_cleanup_old_files('l', cleanup_all => true)")
    assert len(list(site.data_path.rglob("*.parquet"))) < files, "nothing was removed"
    for version in gone:
        del history.expected[version], history.schemas[version]
    compare_ours(history)
    lake = site.lake()
    for version in gone:
        with pytest.raises(NotFoundError):
            lake.at(version=version).table("things").to_arrow()
    table = lake.table("things")
    for (since, until), feed in before.items():
        assert our_feed(table, since, until) == feed, since
    for since in (0, 1, OLDEST - 1, OLDEST):
        for until in (OLDEST, last):
            with pytest.raises(SnapshotExpiredError):
                table.changes(since, until).to_arrow()
    assert lake.snapshots().num_rows == last + 1 - OLDEST
