"""Snapshot tags, and tables that keep their history longer than the lake."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from quacklake.catalog import own_tables
from quacklake.catalog.expiring import names_of
from quacklake.errors import ConfigError
from quacklake.format.options import format_option
from quacklake.format.snapshots import SnapshotTag, check_tag
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import LakeHandle
from quacklake.operations.reference import TableRef
from quacklake.operations.times import check_version, span


class LakeHistory:
    """Manages snapshot tags, and tables that keep their history longer than the lake."""

    def __init__(self, handle: LakeHandle) -> None:
        self.handle = handle

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def set_retention(self, table: str, keep: dt.timedelta | str | None) -> None:
        """Keep the history of a table longer than that of the lake.

        Snapshots within this span that changed the table do not expire; None removes the setting. Raises
        ``ConfigError`` when the span is shorter than the lake's ``expire_older_than``, because rows of the table would
        then be missing from snapshots that other clients can still read. Stock DuckLake clients ignore this setting.
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
            own_tables.put_retention(writer, found.id, text)

    def retentions(self) -> dict[str, str]:
        """Return the tables that keep their history longer than the lake, and for how long."""
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
            spans = own_tables.retention(reader)
            names = names_of(reader, sorted(spans))
        return {names[id_]: keep for id_, keep in spans.items() if id_ in names}

    def tag(self, name: str, version: int | None = None, *, replace: bool = False) -> int:
        """Tag a snapshot (default: the newest) and return its id.

        A tagged snapshot does not expire, unless a client that ignores tags expires it. Read it with
        ``lake.at(tag=…)``. ``replace`` moves an existing tag. Raises ``InvalidNameError`` or ``AlreadyExistsError``.
        """
        check_tag(name)
        with self._context.catalog.commit() as writer:
            snapshot = (
                writer.snapshots.latest() if version is None else writer.snapshots.at_version(check_version(version))
            )
            tag = SnapshotTag(name, snapshot.id, dt.datetime.now(dt.UTC))
            own_tables.add_tag(writer, tag, replace=replace)
        return snapshot.id

    def untag(self, name: str) -> None:
        """Remove a tag; its snapshot can then expire. Raises ``NotFoundError``."""
        check_tag(name)
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            own_tables.remove_tag(writer, name)

    def tags(self) -> pa.Table:
        """Return every tag with its name, its snapshot and the time it was set."""
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
            found = own_tables.tags(reader)
        columns = {
            "tag": pa.array([tag.name for tag in found], pa.string()),
            "snapshot_id": pa.array([tag.snapshot_id for tag in found], pa.int64()),
            "created": pa.array([tag.created for tag in found], pa.timestamp("us", tz="UTC")),
        }
        return pa.table(columns)
