"""WHEN NOT MATCHED BY SOURCE, wherever the rows are: in files, in the catalog, or of the open transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake


@pytest.mark.parametrize("inlined", [False, True], ids=["files", "catalog"])
@pytest.mark.parametrize("opened", [False, True], ids=["alone", "transaction"])
def test_each_row_that_the_source_lacks_is_changed_once(tmp_path: Path, inlined: bool, opened: bool) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        lake.sql("CREATE TABLE t (id INT, v INT); CREATE TABLE s (id INT)")
        lake.sql("INSERT INTO t SELECT i, 0 FROM range(40) r(i)")
        lake.sql("INSERT INTO t SELECT i, 0 FROM range(40, 80) r(i)")
        if inlined:
            lake.sql("INSERT INTO t VALUES (80, 0), (81, 0), (NULL, 0)")
        lake.sql("INSERT INTO s SELECT i FROM range(0, 90, 2) r(i)")
        session = lake._sessions.current()
        if opened:
            session.sql("BEGIN")
            session.sql("INSERT INTO t SELECT i, 0 FROM range(82, 86) r(i)")
        counted = session.sql(
            "MERGE INTO t USING (SELECT id FROM s UNION ALL SELECT 0) AS s ON t.id = s.id"
            " WHEN NOT MATCHED BY SOURCE AND t.id % 3 = 0 THEN DELETE"
            " WHEN NOT MATCHED BY SOURCE AND t.id % 5 = 0 THEN UPDATE SET v = v + 1"
        ).fetchall()
        ids = [*range(80), *([80, 81] if inlined else []), *(range(82, 86) if opened else [])]
        odd = [i for i in ids if i % 2]
        gone, changed = {i for i in odd if i % 3 == 0}, {i for i in odd if i % 3 and i % 5 == 0}
        assert counted == [(len(gone) + len(changed),)]
        rows = [(i, int(i in changed)) for i in ids if i not in gone]
        assert session.sql("SELECT id, v FROM t WHERE id IS NOT NULL ORDER BY id").fetchall() == rows
        if opened:
            session.sql("COMMIT")
        assert lake.sql("SELECT id, v FROM t WHERE id IS NOT NULL ORDER BY id").fetchall() == rows


def test_rows_that_are_deleted_are_returned_whole(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        lake.sql("CREATE TABLE t AS SELECT i AS id, 'v' || i AS v FROM range(3) r(i)")
        merge = "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE"
        assert sorted(lake.sql(f"{merge} RETURNING id, v").fetchall()) == [(0, "v0"), (2, "v2")]


def test_rows_that_the_transaction_has_changed_before_are_changed_again(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        lake.sql("CREATE TABLE t AS SELECT i AS id, 0 AS v FROM range(40) r(i)")
        ids = lake.sql("SELECT rowid, id FROM t ORDER BY id").fetchall()
        lake.sql("BEGIN; UPDATE t SET v = 1 WHERE id < 4")
        merge = "MERGE INTO t USING (SELECT 5 AS id) AS s ON t.id = s.id"
        assert lake.sql(f"{merge} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = v + 10").fetchall() == [(39,)]
        lake.sql("COMMIT")
        found = lake.sql("SELECT id, v FROM t ORDER BY id").fetchall()
        assert found == [(i, (1 if i < 4 else 0) + (10 if i != 5 else 0)) for i in range(40)]
        assert lake.sql("SELECT rowid, id FROM t ORDER BY id").fetchall() == ids
