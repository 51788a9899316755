"""The history of a lake: names for snapshots, and how long tables keep theirs."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from quacklake.catalog import snapshot_tags
from quacklake.catalog.expiring import names_of
from quacklake.errors import ConfigError
from quacklake.format.options import format_option
from quacklake.format.snapshots import SnapshotTag, check_tag
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import LakeHandle
from quacklake.operations.reference import TableRef
from quacklake.operations.times import check_version, span

__all__ = ["LakeHistory"]


class LakeHistory:
    """Tags of snapshots, and tables that keep their history longer than the lake."""

    def __init__(self, handle: LakeHandle) -> None:
        self.handle = handle

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def set_retention(self, table: str, keep: dt.timedelta | str | None) -> None:
        """Let a table keep its history longer than the lake: snapshots of that span that changed it do not expire.

        None takes it back. A span shorter than the lake's ``expire_older_than`` is refused: rows of the table would be
        missing in snapshots that other clients can still read. Stock clients do not know of this.
        """
        text = None
        if keep is not None:
            wanted = span(keep)
            self._context.forget_options()
            whole = self._context.effective("expire_older_than", None, None)
            if whole is not None and wanted < whole:
                raise ConfigError(
                    f"a table cannot keep its history for less time than the lake, which keeps {whole}",
                    hint="rows of it would be missing in snapshots that can still be read: set expire_older_than",
                )
            text = format_option("expire_older_than", keep)
        ref = TableRef.parse(table)
        found = self.handle.view().find_table(ref.schema, ref.name)
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            snapshot_tags.put_retention(writer, found.id, text)

    def retentions(self) -> dict[str, str]:
        """The tables that keep their history longer than the lake, and for how long."""
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
            spans = snapshot_tags.retention(reader)
            names = names_of(reader, sorted(spans))
        return {names[id_]: keep for id_, keep in spans.items() if id_ in names}

    def tag(self, name: str, version: int | None = None, *, replace: bool = False) -> int:
        """Give a snapshot (default: the newest) a name; returns its number.

        A snapshot with a tag does not expire, unless a client that knows no tags expires it, and ``lake.at(tag=…)``
        reads it. With ``replace`` a tag may move. Raises ``InvalidNameError``, ``AlreadyExistsError``.
        """
        check_tag(name)
        with self._context.catalog.commit() as writer:
            snapshot = (
                writer.snapshots.latest() if version is None else writer.snapshots.at_version(check_version(version))
            )
            tag = SnapshotTag(name, snapshot.id, dt.datetime.now(dt.UTC))
            snapshot_tags.add_tag(writer, tag, replace=replace)
        return snapshot.id

    def untag(self, name: str) -> None:
        """Take a tag away; its snapshot may expire then. Raises ``NotFoundError``."""
        check_tag(name)
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            snapshot_tags.remove_tag(writer, name)

    def tags(self) -> pa.Table:
        """Every tag: its name, its snapshot and when it was given."""
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
            found = snapshot_tags.tags(reader)
        columns = {
            "tag": pa.array([tag.name for tag in found], pa.string()),
            "snapshot_id": pa.array([tag.snapshot_id for tag in found], pa.int64()),
            "created": pa.array([tag.created for tag in found], pa.timestamp("us", tz="UTC")),
        }
        return pa.table(columns)
