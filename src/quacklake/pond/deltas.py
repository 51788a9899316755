"""The changes of each transaction: the change feed of the tree, grouped by transaction and by partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from quacklake.errors import SnapshotExpiredError
from quacklake.pond.control import Transaction
from quacklake.pond.nodes import FACTORY, NODES, ROWS, TARGET, WITHOUT_CONTENT, EntryType, Node, from_arrow
from quacklake.pond.pond import Pond

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_KINDS = {"insert": ADDED, "delete": REMOVED, "update_postimage": CHANGED}
_NAMES = {
    EntryType.DIRECTORY: "Directory",
    EntryType.DATA: "FileData",
    EntryType.TABLE: "FileTable",
    EntryType.SERIES: "FileSeries",
    EntryType.SYMLINK: "Symlink",
    EntryType.DYNAMIC: "Dynamic",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the tree that a transaction added, removed or changed."""

    change: str
    node: Node


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes of one transaction, by the directory they are in."""

    commit: Transaction
    partitions: dict[str, list[Entry]]

    def entries(self) -> Iterator[Entry]:
        """Yield the changes of all partitions."""
        for entries in self.partitions.values():
            yield from entries


def deltas(pond: Pond, limit: int | None = None) -> list[Delta]:
    """Return the changes of the newest transactions, oldest first. Expired snapshots are left out."""
    kept = set(pond.lake.snapshots().column("snapshot_id").to_pylist())
    commits = [each for each in pond.commits() if each.snapshot_id in kept][-(limit or 0) :]
    by_snapshot: dict[int | None, dict[str, list[Entry]]] = {}
    while True:
        if not commits:
            return []
        try:
            assert commits[0].snapshot_id is not None
            scan = pond.lake.table(NODES).changes(commits[0].snapshot_id)
            rows = scan.select("snapshot_id", "change_type", *WITHOUT_CONTENT).to_arrow()
            break
        except SnapshotExpiredError:  # a snapshot may expire right after it was read
            commits = commits[1:]
    kinds, ids = rows.column("change_type").to_pylist(), rows.column("snapshot_id").to_pylist()
    for snapshot_id, kind, node in zip(ids, kinds, from_arrow(rows), strict=True):
        if kind in _KINDS:
            found = by_snapshot.setdefault(snapshot_id, {})
            # a directory is the first of its own partition
            part = node.node_id if node.file_type is EntryType.DIRECTORY else node.part_id
            found.setdefault(part, []).append(Entry(_KINDS[kind], node))
    return [Delta(commit, _sort_entries(by_snapshot.get(commit.snapshot_id, {}))) for commit in commits]


def _sort_entries(partitions: dict[str, list[Entry]]) -> dict[str, list[Entry]]:
    return {
        part: sorted(entries, key=lambda each: (each.node.node_id != part, each.node.name, each.node.version))
        for part, entries in sorted(partitions.items())
    }


def lines(delta: Delta, children: dict[str, int]) -> Iterator[str]:
    """Yield a transaction as text for people. ``children`` counts the entries of directories."""
    yield f"=== Transaction #{delta.commit.txn_seq:03d} (Command: {delta.commit.command}) ==="
    for part, entries in delta.partitions.items():
        yield f"▌ Partition {part[-8:]} ({len(entries)} entries):"
        for number, entry in enumerate(entries, 1):
            corner = "└─" if number == len(entries) else "├─"
            sign = {ADDED: "", REMOVED: "removed ", CHANGED: "changed "}[entry.change]
            yield f"  {corner} {sign}{describe(entry.node, children.get(entry.node.node_id, 0))}"


def describe(node: Node, children: int = 0) -> str:
    """Return one node as text: its type, id, name, version, time and what it holds."""
    label = f"{_NAMES[node.file_type]} [{node.short_id}]"
    facts = f"{node.name or '/'} v{node.version} {node.timestamp:%Y-%m-%d %H:%M:%S}"
    if node.file_type is EntryType.DIRECTORY:
        return f"{label} with {children} entries: {facts}"
    if node.file_type is EntryType.SYMLINK:
        return f"{label}: {facts} -> {node.attribute(TARGET)}"
    if node.file_type is EntryType.DYNAMIC:
        return f"{label}: {facts} factory {node.attribute(FACTORY)}"
    size = f"{label}: Binary data ({node.size or 0} bytes)"
    if node.min_event_time is not None and node.max_event_time is not None:
        size += f" (temporal: {_time(node.min_event_time)} to {_time(node.max_event_time)})"
    rows = node.attribute(ROWS)
    return f"{size} {facts}" + (f", {rows} row{'' if rows == 1 else 's'}" if rows is not None else "")


def _time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
