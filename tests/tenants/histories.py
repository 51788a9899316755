"""A history that touches every part of a lake, and what it leaves to be seen."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa

import quacklake
from quacklake.errors import QuacklakeError


def rows(first: int, count: int, word: str) -> pa.Table:
    """Rows of the table ``t``."""
    ids = list(range(first, first + count))
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": [f"{word} {i}" for i in ids], "day": [i % 3 for i in ids]}
    )


def write(lake: quacklake.Lake, word: str) -> None:
    """Make tables, change them in every way, and keep the lake in shape, without losing a snapshot."""
    t = lake.create_table("t", rows(0, 3, word))
    t.append(rows(10, 200, word))
    t.append(rows(3, 2, word))
    t.update({"name": f"{word} updated"}, "id = 1")
    t.delete("id IN (0, 12, 13)")
    t.merge(rows(2, 4, f"{word} merged"), on="id")
    t.add_column("note", "VARCHAR", default=word)
    t.append(pa.table({"id": [500], "name": [word], "day": [1], "note": ["it's"]}))
    lake.create_schema("s")
    p = lake.create_table("s.p", rows(0, 30, word), partition_by=["day"], sort_by=["id"])
    p.append(rows(100, 30, word))
    p.delete("day = 2")
    lake.create_view("v", "SELECT id, name FROM t WHERE id < 5")
    lake.create_macro("twice", ["x"], "x * 2")
    t.set_comment(f"of {word}")
    lake.options.set("target_file_size", "64MB", table="t")
    stream = lake.streams.claim(f"stream of {word}", "query")
    with lake.transaction() as tx:
        tx.table("t").append(rows(590, 2, word))
        tx.mark(stream.name, 0, stream.run)
    with lake.transaction(message=word, author=word) as tx:
        tx.table("t").append(rows(600, 2, word))
        tx.table("s.p").append(rows(700, 40, word))
    lake.create_table("gone", rows(0, 2, word))
    lake.drop_table("gone")
    lake.undrop("gone")
    t.restore(to=5)
    lake.tag("first", 1)
    lake.maintenance.flush_inlined_data()
    lake.maintenance.merge_adjacent_files()
    lake.maintenance.rewrite_data_files(delete_threshold=0.0)
    lake.table("t").append(rows(900, 2, word))


def write_little(lake: quacklake.Lake, word: str) -> None:
    """Files and inlined rows, deletes in both, a column more and a tag; 100 rows at the end."""
    t = lake.create_table("t", {"id": list(range(50)), "name": [word] * 50})
    t.append([{"id": 100, "name": "it's"}, {"id": 101, "name": None}])
    t.delete("id IN (3, 101)")
    t.append({"id": list(range(200, 250)), "name": [word] * 50})
    t.delete("id BETWEEN 200 AND 229")
    t.add_column("note", "VARCHAR", default="none")
    t.append({"id": list(range(300, 330)), "name": [word] * 30, "note": ["n"] * 30})
    lake.tag("first", 1)


def tidy(lake: quacklake.Lake, home: Path) -> None:
    """Remove history, and do the work that reads everything."""
    assert not lake.verify(deep=True).errors
    lake.backup(home / "backup")
    lake.history.untag("first")
    lake.history.set_retention("s.p", "60 days")
    lake.history.set_retention("s.p", None)
    lake.drop_table("gone")
    lake.expire_snapshots(versions=[1, 2, 3])
    lake.expire_snapshots(older_than=dt.datetime.now(dt.UTC))
    lake.cleanup_old_files(older_than=dt.timedelta(0))
    lake.delete_orphaned_files(older_than=dt.timedelta(days=1))
    lake.maintain()
    assert not lake.verify().errors


def look(lake: quacklake.Lake) -> dict[str, Any]:
    """Everything that a reader can see, at every snapshot."""
    found: dict[str, Any] = {"tables": lake.tables(), "views": lake.views(), "schemas": lake.schemas()}
    for snapshot in lake.snapshots().column("snapshot_id").to_pylist():
        past = lake.at(version=snapshot)
        found[f"at {snapshot}"] = {name: _sorted(past.table(name).to_arrow()) for name in past.tables()}
    for name in lake.tables():
        found[f"changes {name}"] = _changes(lake, name)
    found["sql"] = lake.sql("SELECT count(*), min(name), max(id) FROM t").fetchall()
    found["authors"] = lake.snapshots().column("author").to_pylist()
    return found


def _changes(lake: quacklake.Lake, name: str) -> Any:
    try:
        return sorted(map(repr, lake.table(name).changes(since=1).to_arrow().to_pylist()))
    except QuacklakeError as error:
        return error.code


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def with_word(found: Any, word: str, other: str) -> Any:
    """Return the content of a lake as the history of another word would leave it."""
    if isinstance(found, dict):
        return {key: with_word(value, word, other) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found)(with_word(value, word, other) for value in found)
    return found.replace(word, other) if isinstance(found, str) else found
