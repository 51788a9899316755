"""Statistics are true, and those of files are the same as the reference implementation writes for the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .clients import LakeSite
from .conftest import MakeSite
from .history import DIRECTIONS, History
from .scenarios import SCENARIOS, VALUES
from .statistics import check_file_statistics, check_table_statistics, file_statistics
from .steps import Append, Create, Step, Stock

OURS = [name for name, steps in SCENARIOS.items() if not any(isinstance(step, Stock) for step in steps)]


def played(site: LakeSite, steps: Sequence[Step], writer: str) -> History:
    history = History(site)
    history.play(steps, (writer,))
    return history


@pytest.mark.parametrize("scenario", [*OURS, "evolution"])
@pytest.mark.parametrize("inlining", [10, 0])
def test_statistics_that_we_write_bound_all_rows(scenario: str, inlining: int, make_site: MakeSite) -> None:
    history = played(make_site("sqlite", inlining), SCENARIOS[scenario], "ours")
    if scenario != "evolution":
        check_table_statistics(history)
    assert check_file_statistics(history.site)


@pytest.mark.parametrize("scenario", ["inserts", "updates", "merges", *VALUES])
def test_the_statistics_of_our_files_are_those_the_reference_implementation_writes(
    scenario: str, make_site: MakeSite
) -> None:
    ours, theirs = (played(make_site("sqlite", 0), SCENARIOS[scenario], writer) for writer in ("ours", "stock"))
    expected = file_statistics(theirs.site)
    assert expected
    assert file_statistics(ours.site) == expected


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


@pytest.mark.parametrize("scenario", ["inserts", "deletes", "updates", "replacements", "names", *VALUES])
def test_without_inlining_the_metadata_are_those_the_reference_implementation_writes(
    scenario: str, make_site: MakeSite
) -> None:
    ours, theirs = (played(make_site("sqlite", 0), SCENARIOS[scenario], writer) for writer in ("ours", "stock"))
    for what, columns in _SAME.items():
        mine, expected = (history.site.metadata(f"SELECT {columns} ORDER BY ALL") for history in (ours, theirs))
        assert mine == expected, what


@pytest.mark.parametrize("inlining", [10, 0])
def test_bounds_of_long_texts_are_short_and_still_bounds(inlining: int, make_site: MakeSite) -> None:
    long = "SELECT repeat('ü', n::INTEGER) AS s, repeat('\\xFF', n::INTEGER)::BLOB AS b FROM (VALUES (1000), (2000)) r(n)"
    history = played(make_site("sqlite", inlining), [Create("t", "s VARCHAR, b BLOB"), Append("t", long)], "ours")
    check_table_statistics(history)
    check_file_statistics(history.site)
    sizes = history.site.metadata("SELECT length(min_value), length(max_value) FROM {m}.ducklake_table_column_stats")
    assert all(size is None or size <= 1024 for row in sizes for size in row)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("condition", ["amount > 20", "name = 'name 15'", "id BETWEEN 5 AND 7", "amount IS NULL", "id < 0"])
def test_files_are_never_pruned_wrongly(direction: str, condition: str, make_site: MakeSite) -> None:
    history = History(make_site("sqlite", 0))
    history.play(SCENARIOS["inserts"][:6], DIRECTIONS[direction])
    expected = history.model.execute(f"SELECT count(*) FROM things WHERE {condition}").fetchone()
    assert (history.site.lake().table("things").count(condition),) == expected
    assert history.site.stock().execute(f"SELECT count(*) FROM things WHERE {condition}").fetchone() == expected
