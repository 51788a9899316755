"""The change feed of both clients as multisets of text, and what it has to be."""

from __future__ import annotations

from collections import Counter

import duckdb

import quacklake
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.lake.lake import LakeAt
from quacklake.lake.table import Table

from .clients import LakeSite, plain_duckdb

__all__ = ["Feed", "check_single_snapshots", "our_feed", "stock_feed"]

Row = tuple[str | None, ...]
#: (snapshot, row id, kind of change, columns …) -> how often.
Feed = Counter[Row]
#: (row id, columns …) -> how often.
Rows = Counter[Row]


def _texts(connection: duckdb.DuckDBPyConnection, source: str) -> Counter[Row]:
    names = [name for name, *_ in connection.execute(f"DESCRIBE FROM {source}").fetchall()]
    texts = ", ".join(f"CAST({quote(name)} AS VARCHAR)" for name in names)
    return Counter(connection.execute(f"SELECT {texts} FROM {source}").fetchall())


def stock_feed(site: LakeSite, table: str, since: int, until: int) -> Feed:
    """Return the feed of the reference implementation."""
    return _texts(site.stock(), f"ducklake_table_changes('l', 'main', '{table}', {since:d}, {until:d})")


def our_feed(table: Table, since: int, until: int) -> Feed:
    """Return our feed."""
    with plain_duckdb() as scratch:
        scratch.register("everything", table.changes(since, until).to_arrow())
        return _texts(scratch, "everything")


def our_rows(view: LakeAt, table: int) -> Rows:
    """Return the rows of the table with this id, row ids first; none while the table does not exist."""
    info = next((info for info in view._tables() if info.id == table), None)
    if info is None:
        return Counter()
    with plain_duckdb() as scratch:
        handle = view.table(_name(info))
        scratch.register("rows", handle.to_arrow(["rowid", *handle.columns]))
        return _texts(scratch, "rows")


def check_single_snapshots(lake: quacklake.Lake, last: int) -> None:
    """The feed of every snapshot is the difference to the one before, and all together they lead to the last."""
    for version in range(1, last + 1):
        view, before = lake.at(version=version), lake.at(version=version - 1)
        for info in view._tables():
            if not _alike(before, info):
                continue
            table = view.table(_name(info))
            found = without_idle_updates(our_feed(table, version, version))
            expected = difference(our_rows(before, info.id), our_rows(view, info.id), version)
            assert found == expected, f"{info.qualified_name} at {version}"
    for info in lake._tables():
        table = lake.table(_name(info))
        whole = our_feed(table, 0, last)
        for first in (1, last // 2):
            changes = Counter({row: n for row, n in whole.items() if int(row[0] or 0) >= first})
            assert our_feed(table, first, last) == changes
            before = lake.at(version=max(first - 1, 0))
            if _alike(before, info):
                assert applied(our_rows(before, info.id), changes) == our_rows(lake.at(version=last), info.id)


def _alike(view: LakeAt, table: TableInfo) -> bool:
    """Return whether a table has the same columns in a view, or is not there: others cannot be compared."""
    return all(info.schema == table.schema for info in view._tables() if info.id == table.id)


def _name(info: TableInfo) -> str:
    return f"{quote(info.schema_name)}.{quote(info.name)}"


def difference(before: Rows, after: Rows, version: int) -> Feed:
    """Compute the feed of one snapshot from the rows before and after it: a row id on both sides is an update."""
    came, went = after - before, before - after
    kept = {row[0] for row in came} & {row[0] for row in went}
    feed: Feed = Counter()
    for rows, plain, updated in ((came, "insert", "update_postimage"), (went, "delete", "update_preimage")):
        for (id_, *values), count in rows.items():
            feed[(str(version), id_, updated if id_ in kept else plain, *values)] += count
    return feed


def without_idle_updates(feed: Feed) -> Feed:
    """The feed less updates that changed nothing, which no difference of snapshots can show."""
    before = Counter({(row[0], row[1], *row[3:]): n for row, n in feed.items() if row[2] == "update_preimage"})
    after = Counter({(row[0], row[1], *row[3:]): n for row, n in feed.items() if row[2] == "update_postimage"})
    idle = before & after
    found = Counter(feed)
    for (snapshot, id_, *values), count in idle.items():
        for kind in ("update_preimage", "update_postimage"):
            found[(snapshot, id_, kind, *values)] -= count
    return +found


def applied(rows: Rows, feed: Feed) -> Rows:
    """Rows with changes applied, each of which must be possible."""
    found = Counter(rows)
    for snapshot in sorted({int(row[0] or 0) for row in feed}):
        mine = {row: n for row, n in feed.items() if row[0] == str(snapshot)}
        for removing in (True, False):
            for (_, id_, kind, *values), count in mine.items():
                if (kind in ("delete", "update_preimage")) == removing:
                    found[(id_, *values)] += -count if removing else count
        assert all(count >= 0 for count in found.values()), f"snapshot {snapshot} removes rows that are not there"
    return +found
