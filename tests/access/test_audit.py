"""The audit log: what it records, what it never has, and that it fails no statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake
from quacklake.core.access import audit
from quacklake.errors import QuacklakeError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with quacklake.connect(url, data_path=str(tmp_path / "data"), access_audit=True) as found:
        found.create_table("t", pa.table({"id": [1, 2], "pay": [5, 6]}))
        found.access.create_user("ann", ["writer"])
        found.access.create_user("bob")
        yield found


def records(lake: Lake) -> list[dict[str, object]]:
    lake.access.flush_audit()
    return lake.table("quacklake_audit.log").to_pylist()


def test_statements_and_calls_are_recorded_with_their_tables_snapshots_and_outcomes(lake: Lake) -> None:
    ann, bob = lake.as_principal("ann"), lake.as_principal("bob")
    snapshot = lake.current_snapshot()
    ann.sql("SELECT max(pay) FROM t WHERE id = $1", [1]).fetchall()
    ann.sql("INSERT INTO t VALUES (3, 4711)")
    ann.table("t").to_arrow()
    ann.table("t").append([{"id": 4, "pay": 8}])
    with pytest.raises(QuacklakeError):
        bob.sql("SELECT 'password' FROM t")
    found = records(lake)
    assert [(row["principal"], row["kind"], row["outcome"]) for row in found] == [
        ("ann", "SELECT", "ok"),
        ("ann", "INSERT", "ok"),
        ("ann", "READ", "ok"),
        ("ann", "CHANGE", "ok"),
        ("bob", "SELECT", "not_permitted"),
    ]
    assert found[0]["tables_read"] == ["main.t(id, pay)"] and found[0]["snapshot_id"] == snapshot
    assert found[1]["tables_changed"] == ["main.t"] and found[1]["snapshot_id"] == snapshot + 1
    assert found[2]["tables_read"] == ["main.t(id, pay)"] and found[3]["tables_changed"] == ["main.t"]
    assert all(len(str(row["statement_hash"])) == 64 for row in found if row["kind"] in ("SELECT", "INSERT"))
    assert not any(text in str(found) for text in ("4711", "password", "max("))


def test_nobody_else_sees_or_changes_the_log_without_a_grant_on_it(lake: Lake) -> None:
    ann = lake.as_principal("ann")
    ann.sql("FROM t").fetchall()
    lake.access.flush_audit()
    assert ann.tables() == ["main.t"] and ann.schemas() == ["main"]
    for sql in ("FROM quacklake_audit.log", "DELETE FROM quacklake_audit.log", "TRUNCATE quacklake_audit.log"):
        with pytest.raises(QuacklakeError):
            ann.sql(sql)
    lake.access.grant(["SELECT", "DELETE"], "ann", table="quacklake_audit.log")
    assert len(ann.sql("FROM quacklake_audit.log").fetchall()) == 1
    with pytest.raises(QuacklakeError):
        ann.sql("DELETE FROM quacklake_audit.log")


def test_records_are_written_in_batches_and_when_the_lake_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_BATCH", 5)
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with quacklake.connect(url, data_path=str(tmp_path / "data"), access_audit=True) as lake:
        lake.create_table("t", {"id": "BIGINT"})
        lake.access.create_user("ann", ["reader"])
        ann = lake.as_principal("ann")
        for _ in range(7):
            ann.table("t").count()
        assert lake.table("quacklake_audit.log").count() == 5
    with quacklake.connect(url) as lake:
        assert lake.table("quacklake_audit.log").count() == 7


def test_a_log_that_cannot_be_written_fails_no_statement_and_stays_small(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(audit, "_BATCH", 3)
    monkeypatch.setattr(audit, "_append", fail)
    ann = lake.as_principal("ann")
    for _ in range(8):
        assert ann.table("t").count() == 2
    monkeypatch.undo()
    assert len(records(lake)) == 8
