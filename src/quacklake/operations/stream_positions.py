"""Stream positions: how far each stream has written, committed together with its rows."""

from __future__ import annotations

import pyarrow as pa

from quacklake.catalog import own_tables
from quacklake.errors import NotFoundError, nearest
from quacklake.format.names import uuid7
from quacklake.format.objects import StreamMark, check_stream, claimed, is_view_stream
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import Handle

_LISTED = pa.schema(
    [
        ("stream", pa.string()),
        ("epoch", pa.int64()),
        ("position", pa.string()),
        ("snapshot_id", pa.int64()),
        ("query", pa.string()),
    ]
)


class StreamPositions:
    """Manages the positions of the streams that write into a lake, in any engine."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def claim(self, name: str, query: str, *, run: str | None = None, restart: bool = False) -> StreamMark:
        """Claim a stream before its first batch; earlier runs of the stream can no longer commit.

        ``query`` identifies the source that counts the batches, such as a checkpoint id; batches count from 0 without
        gaps. The result has the last committed batch (-1: none) and the ``run`` that ``mark`` needs. Raises
        ``StreamMismatchError`` when another query used the name, unless ``restart`` is true.
        """
        check_stream(name)
        run = str(uuid7()) if run is None else run
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            known = own_tables.find_stream(writer, name)
            mark = claimed(known, name, query, run, restart=restart)
            own_tables.put_stream(writer, mark, new=known is None)
        return mark

    def list(self) -> pa.Table:
        """Return every stream: its name, last committed batch, position and query."""
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
            found = [mark for mark in own_tables.streams(reader) if not is_view_stream(mark.name)]
        rows = [(mark.name, mark.epoch, mark.position, mark.snapshot_id, mark.query) for mark in found]
        columns = zip(*rows, strict=True) if rows else ((),) * len(_LISTED)
        return pa.table([pa.array(values, field.type) for values, field in zip(columns, _LISTED, strict=True)], _LISTED)

    def forget(self, name: str) -> None:
        """Remove the position of a stream; a running one can no longer commit. Raises ``NotFoundError``."""
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            known = [mark.name for mark in own_tables.streams(writer)]
            if name not in known:
                raise NotFoundError(
                    f'there is no stream "{name}"', hint=nearest(name, known) or "lake.streams.list() lists them"
                )
            own_tables.remove_stream(writer, name)
