"""Statistics are true, and for the same rows those of files equal the reference implementation's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .clients import LakeSite
from .conftest import LONG, MakeSite
from .history import DIRECTIONS, History
from .scenarios import SCENARIOS, VALUES
from .statistics import check_file_statistics, check_table_statistics, file_statistics
from .steps import Append, Create, Step, Stock

pytestmark = pytest.mark.daily(0.35)

BOUNDED = [*SCENARIOS] if LONG else ["updates", "merges", "transactions", "evolution", "evolving", *VALUES]
TWINS = (
    ["inserts", "deletes", "updates", "replacements", "names", "evolution", *VALUES]
    if LONG
    else ["updates", "replacements", "evolution", *VALUES]
)


def played(site: LakeSite, steps: Sequence[Step], writer: str) -> History:
    history = History(site)
    history.play(steps, (writer,))
    return history


@pytest.mark.parametrize("scenario", BOUNDED)
@pytest.mark.parametrize("inlining", [10, 0] if LONG else [10])
def test_statistics_that_we_write_bound_all_rows(scenario: str, inlining: int, make_site: MakeSite) -> None:
    history = played(make_site("sqlite", inlining), SCENARIOS[scenario], "ours")
    if not any(isinstance(step, Stock) for step in SCENARIOS[scenario]):
        check_table_statistics(history)
    assert check_file_statistics(history.site)


_SAME = {
    "schemas": "schema_id, begin_snapshot, end_snapshot, schema_name, path_is_relative FROM {m}.ducklake_schema",
    "tables": "table_id, begin_snapshot, end_snapshot, schema_id, table_name, path_is_relative FROM {m}.ducklake_table",
    "columns": "* FROM {m}.ducklake_column",
    "snapshots": "snapshot_id, schema_version, next_catalog_id, next_file_id FROM {m}.ducklake_snapshot",
    "changes": "* FROM {m}.ducklake_snapshot_changes",
    "files": "* EXCLUDE (path, file_size_bytes, footer_size) FROM {m}.ducklake_data_file",
    "totals": "* EXCLUDE (file_size_bytes) FROM {m}.ducklake_table_stats",
    "schema versions": "* FROM {m}.ducklake_schema_versions",
    "settings": "key, scope, scope_id FROM {m}.ducklake_metadata",
}


@pytest.mark.parametrize("scenario", TWINS)
def test_without_inlining_we_write_the_metadata_that_the_reference_implementation_writes(
    scenario: str, make_site: MakeSite
) -> None:
    ours, theirs = (played(make_site("sqlite", 0), SCENARIOS[scenario], writer) for writer in ("ours", "stock"))
    mine = {what: ours.site.metadata(f"SELECT {columns} ORDER BY ALL") for what, columns in _SAME.items()}
    mine["statistics"] = file_statistics(ours.site)
    assert mine["statistics"]
    assert mine.pop("statistics") == file_statistics(theirs.site)
    for what, columns in _SAME.items():
        assert mine[what] == theirs.site.metadata(f"SELECT {columns} ORDER BY ALL"), what


def test_the_files_of_a_merge_have_the_statistics_that_the_reference_implementation_writes(make_site: MakeSite) -> None:
    ours, theirs = (played(make_site("sqlite", 0), SCENARIOS["merges"], writer) for writer in ("ours", "stock"))
    assert file_statistics(ours.site) == file_statistics(theirs.site)


@pytest.mark.parametrize("inlining", [10, 0])
def test_bounds_of_long_texts_are_short_and_still_bounds(inlining: int, make_site: MakeSite) -> None:
    long = (
        "SELECT repeat('ü', n::INTEGER) AS s, repeat('\\xFF', n::INTEGER)::BLOB AS b FROM (VALUES (1000), (2000)) r(n)"
    )
    history = played(make_site("sqlite", inlining), [Create("t", "s VARCHAR, b BLOB"), Append("t", long)], "ours")
    check_table_statistics(history)
    check_file_statistics(history.site)
    sizes = history.site.metadata("SELECT length(min_value), length(max_value) FROM {m}.ducklake_table_column_stats")
    assert all(size is None or size <= 1024 for row in sizes for size in row)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_files_are_never_pruned_wrongly(direction: str, make_site: MakeSite) -> None:
    history = History(make_site("sqlite", 0))
    history.play(SCENARIOS["inserts"][:6], DIRECTIONS[direction])
    conditions = [
        "amount > 20",
        "name = 'name 15'",
        "id BETWEEN 5 AND 7",
        "amount IS NULL",
        "id < 0",
        "name >= 'name 9'",
    ]
    expected = [history.model.execute(f"SELECT count(*) FROM things WHERE {where}").fetchone() for where in conditions]
    stock = history.site.stock()
    assert [stock.execute(f"SELECT count(*) FROM things WHERE {where}").fetchone() for where in conditions] == expected
    table = history.site.lake().table("things")
    assert [(table.count(where),) for where in conditions] == expected
