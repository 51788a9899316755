"""Writing snapshots."""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.catalog.reading.snapshots import SnapshotQueries
from quacklake.catalog.statements import WriteStatements
from quacklake.format.snapshots import Change, Snapshot, render_changes


class SnapshotUpdates(SnapshotQueries):
    """Writes the snapshot of a commit."""

    _sql: WriteStatements

    def __init__(self, sql: WriteStatements) -> None:
        super().__init__(sql)

    def add(
        self, snapshot: Snapshot, changes: Sequence[Change], author: str | None, message: str | None, extra: str | None
    ) -> None:
        """Insert a snapshot and what it changed."""
        self._sql.insert(
            "snapshot",
            [
                {
                    "snapshot_id": snapshot.id,
                    "snapshot_time": snapshot.time,
                    "schema_version": snapshot.schema_version,
                    "next_catalog_id": snapshot.next_catalog_id,
                    "next_file_id": snapshot.next_file_id,
                }
            ],
        )
        self._sql.insert(
            "snapshot_changes",
            [
                {
                    "snapshot_id": snapshot.id,
                    "changes_made": render_changes(changes),
                    "author": author,
                    "commit_message": message,
                    "commit_extra_info": extra,
                }
            ],
        )

    def add_token(self, token: str, snapshot_id: int) -> None:
        """Remember a commit by its token, so that a lost answer can be found again."""
        self._sql.insert_many("add_token", self._t.own["commits"], ("token", "snapshot_id"), [(token, snapshot_id)])
