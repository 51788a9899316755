"""The history of a table by the extension API: what its snapshots saw, without opening a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import LimitError, NotFoundError, NotPermittedError
from quacklake.extend.history import TableHistory

OPTIONS = {"data_inlining_row_limit": 3, "duckdb_threads": 1}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **OPTIONS) as opened:
        opened.sql("CREATE TABLE t (id INTEGER)")  # 1
        opened.sql("INSERT INTO t SELECT i FROM range(10) r(i)")  # 2
        opened.sql("DELETE FROM t WHERE id = 4")  # 3
        opened.sql("INSERT INTO t VALUES (20), (21)")  # 4
        opened.sql("ALTER TABLE t ADD COLUMN name VARCHAR")  # 5
        opened.sql("INSERT INTO t VALUES (22, 'late')")  # 6
        yield opened


def test_a_history_has_files_deletes_columns_and_rows_of_the_catalog(lake: quacklake.Lake) -> None:
    history = TableHistory.read(lake, "t", snapshots=100)
    assert [id_ for id_, _ in history.snapshots] == [1, 2, 3, 4, 5, 6] and history.newest == 6
    assert [(since, schema.names) for since, schema in history.schemas] == [(1, ("id",)), (5, ("id", "name"))]
    (file,) = history.files.to_pylist()
    assert (file["record_count"], file["begin_snapshot"], file["end_snapshot"]) == (10, 2, None)
    assert history.deleted.num_rows + history.delete_files.num_rows == 1
    assert history.catalog_points == [4, 6]
    earlier, now = history.read_catalog_rows(1), history.read_catalog_rows(5)
    assert earlier is not None and now is not None
    assert earlier.column("c1").to_pylist() == [20, 21]
    assert sorted(now.column("c1").to_pylist()) == [20, 21, 22]


def test_all_rows_of_a_file_are_read_in_the_columns_of_any_time(lake: quacklake.Lake) -> None:
    history = TableHistory.read(lake, "t", snapshots=100)
    (file,) = history.files.column("data_file_id").to_pylist()
    schema = history.schemas[-1][1]
    with history.open_rows(schema, file=file) as (connection, query):
        rows = connection.execute(f"SELECT id, name, _ql_position FROM ({query}) ORDER BY _ql_position").fetchall()
    assert rows == [(number, None, number) for number in range(10)]
    with history.open_rows(schema, rows=history.read_catalog_rows(5)) as (connection, query):
        assert connection.execute(f"SELECT max(name) FROM ({query})").fetchone() == ("late",)


def test_a_key_changes_with_the_history_alone(lake: quacklake.Lake) -> None:
    before = TableHistory.find_key(lake, "t")
    assert TableHistory.find_key(lake, '"MAIN"."T"') == before
    lake.table("t").append({"id": [1], "name": ["one"]})
    assert TableHistory.find_key(lake, "t") != before
    with pytest.raises(NotFoundError):
        TableHistory.find_key(lake, "gone")


def test_limits_and_rights_hold(lake: quacklake.Lake) -> None:
    for limit in ({"max_files": 0}, {"max_catalog_rows": 2}):
        with pytest.raises(LimitError):
            TableHistory.read(lake, "t", snapshots=100, **limit)
    assert [id_ for id_, _ in TableHistory.read(lake, "t", snapshots=2).snapshots] == [5, 6]
    lake.create_table("other", {"id": "INTEGER"})
    lake.access.create_user("ann")
    for table in ("t", "other"):
        lake.access.grant("SELECT", "ann", table=table)
    lake.access.create_policy("some", "t", "id > 3")
    ann = lake.as_principal("ann")
    assert TableHistory.read(ann, "other", snapshots=1).name == "main.other"
    with pytest.raises(NotPermittedError):
        TableHistory.read(ann, "t", snapshots=1)
