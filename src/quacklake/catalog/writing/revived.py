"""Writing that dropped tables live again."""

from __future__ import annotations

import sqlalchemy as sa

from quacklake.catalog.writing.inserts import Inserts
from quacklake.errors import CommitConflict

__all__ = ["RevivalWriter"]


class RevivalWriter(Inserts):
    """What ended when a table was dropped, and lives again."""

    def check_dropped(self, table_id: int, dropped_at: int) -> None:
        """Raise ``CommitConflict`` unless a table was dropped by that snapshot and is still known."""
        if self.drop_of(table_id) != dropped_at:
            raise CommitConflict("a table to be brought back was brought back or forgotten by another commit")

    def revive_files(self, table_id: int, dropped_at: int, data_files: int, delete_files: int) -> None:
        """Let the files of a dropped table live again; fewer than were expected are a conflict.

        Their end is taken back: between the drop and now no snapshot has the table, so none reads them. A second row
        for the same path would be worse, for the cleanup of one would remove the file of the other.
        """
        for name, expected in (("data_file", data_files), ("delete_file", delete_files)):
            t = self._t[name]
            mine = (t.c.table_id == table_id, t.c.end_snapshot == dropped_at)
            if self._update(f"revive_{name}s", sa.update(t).where(*mine).values(end_snapshot=None)) != expected:
                raise CommitConflict("files of a table to be brought back were removed by another commit")
