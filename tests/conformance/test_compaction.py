"""Compaction by either client, read by both: every snapshot, row id and virtual column stays as it was."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from .clients import LONG
from .conftest import MakeSite
from .history import History, compare, compare_ours
from .steps import AddColumn, Append, Create, Delete, DropColumn, Maintain, Step, Stock, Update

pytestmark = pytest.mark.daily(0.35)

ROWS = "SELECT i::INTEGER AS id, 'name ' || i AS name FROM range({}, {}) r(i)"
MORE = "SELECT i::INTEGER AS id, 'name ' || i AS name, i % 3 AS more FROM range({}, {}) r(i)"


def steps(*, layout: bool) -> list[Step]:
    """Changes with every compaction in between, so that each works on what others have made."""
    found: list[Step] = [
        Create("t", "id INTEGER, name VARCHAR"),
        Append("t", ROWS.format(0, 30)),
        Append("t", ROWS.format(30, 60)),
        Append("t", ROWS.format(60, 63)),
        Update("t", {"name": "'new'"}, "id IN (5, 61)"),
        Delete("t", "id = 62"),
        Delete("t", "id BETWEEN 35 AND 55"),
        Delete("t", "id = 57"),
        Maintain("flush"),
        AddColumn("t", "more", "BIGINT", 7),
        Append("t", MORE.format(100, 130)),
        Append("t", MORE.format(130, 132)),
        Append("t", MORE.format(140, 170)),
        Maintain("merge"),
        Delete("t", "id BETWEEN 101 AND 120"),
        Delete("t", "id IN (5, 131, 141)"),
        Maintain("rewrite"),
        Maintain("flush"),
        Append("t", MORE.format(200, 230)),
        Maintain("merge"),
        DropColumn("t", "name"),
        Delete("t", "id = 142"),
        Maintain("optimize"),
        Update("t", {"more": "more + 1"}, "id < 20"),
        Maintain("merge"),
        Maintain("rewrite"),
    ]
    if layout:
        found[1:1] = [
            Stock("ALTER TABLE t SET PARTITIONED BY (bucket(2, id))"),
            Stock("ALTER TABLE t SET SORTED BY (id DESC)"),
        ]
    return found


#: A catalog, and who writes in turn.
PLAYS = [("sqlite", ("ours",)), ("duckdb", ("stock", "ours")), ("postgres", ("ours",))]
if LONG:
    turns = (("ours",), ("ours", "stock"), ("stock", "ours"))
    PLAYS = [(kind, writers) for kind in ("sqlite", "duckdb", "postgres") for writers in turns]


@pytest.mark.parametrize(
    ("kind", "writers"),
    [
        pytest.param(kind, writers, marks=[pytest.mark.postgres] if kind == "postgres" else [])
        for kind, writers in PLAYS
    ],
)
def test_compaction_by_either_client_is_read_alike_by_both(
    kind: str, writers: tuple[str, ...], make_site: MakeSite
) -> None:
    history = History(make_site(kind))
    history.play(steps(layout=writers == ("stock", "ours")), writers)
    compare(history)


@pytest.mark.parametrize("encrypted", [False, True] if LONG else [True])
def test_compaction_of_an_encrypted_lake_is_read_alike_by_both(encrypted: bool, make_site: MakeSite) -> None:
    history = History(make_site("sqlite", encrypted=encrypted))
    history.play(steps(layout=False), ("ours",))
    compare(history)


@pytest.mark.mysql
def test_compaction_on_mysql_changes_nothing(make_site: MakeSite) -> None:
    history = History(make_site("mysql"))
    history.play(steps(layout=False), ("ours",))
    compare_ours(history)


def test_the_reference_implementation_goes_on_with_what_we_compacted(make_site: MakeSite) -> None:
    """Our files and rows of the catalog are such that its own compaction of them loses nothing."""
    history = History(make_site("sqlite"))
    ours, theirs = steps(layout=False), [Maintain("flush"), Maintain("merge"), Maintain("optimize"), Maintain("merge")]
    history.play(ours, ("ours",))
    for step in [*theirs, Append("t", "SELECT 500, 1"), Delete("t", "id = 0"), *theirs]:
        history.take(step, "stock")
    compare(history)


def test_files_are_rewritten_beside_inlined_rows_that_are_older_than_a_column(make_site: MakeSite) -> None:
    """Stock DuckLake looks for the column among the inlined rows and gives up."""
    site = make_site("sqlite")
    table = site.lake().create_table("t", {"id": pa.int64()})
    table.append(pa.table({"id": range(100)}))
    table.append(pa.table({"id": [100, 101]}))
    table.add_column("extra", pa.int32(), default=7)
    table.delete("id BETWEEN 40 AND 60")
    with pytest.raises(duckdb.Error, match="Failed to read inlined-data aggregates"):
        site.stock().execute("CALL ducklake_rewrite_data_files('l', delete_threshold => 0)")
    [report] = site.lake().maintenance.rewrite_data_files(delete_threshold=0)
    assert report.files_before == 1
    expected = [(id_, 7) for id_ in range(102) if not 40 <= id_ <= 60]
    assert site.stock().execute("SELECT * FROM t ORDER BY id").fetchall() == expected
