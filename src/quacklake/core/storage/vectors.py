"""Deletion vectors in the lake's store: the deleted positions of one data file, and the snapshots that deleted them.

They are decoded one at a time and no position is kept twice, so that the rows of the data file bound the memory.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.format.vectors import blobs_of, decode
from quacklake.core.storage.store import Store

#: A position, and the snapshot that deleted it; NULL when the file does not say.
DATED_POSITIONS = pa.schema([("pos", pa.int64()), ("snapshot_id", pa.int64())])


def deleted_positions(store: Store, path: str, rows: int | None, snapshot: int) -> pa.Array:
    """Return the positions that a file of deletion vectors has at a snapshot; ``rows`` is the size of its data file.

    Raise ``CorruptFileError`` for a file that is not whole or holds positions that the data file has not.
    """
    blobs = blobs_of(store.read(path))
    visible = [blob for date, blob in blobs if date is None or date <= snapshot]
    # the last vector contains the others
    return decode(visible[-1], rows=rows) if visible else pa.array([], pa.int64())


def dated_positions(store: Store, path: str, rows: int | None) -> pa.Table:
    """Return all positions in a file of deletion vectors, each once and with the first snapshot that has it."""
    parts = [DATED_POSITIONS.empty_table()]
    seen = pa.array([], pa.int64())
    for date, blob in blobs_of(store.read(path)):
        positions = decode(blob, rows=rows)
        new = positions.filter(pc.invert(pc.is_in(positions, value_set=seen)))
        parts.append(pa.table([new, pa.repeat(pa.scalar(date, pa.int64()), len(new))], schema=DATED_POSITIONS))
        seen = pa.concat_arrays([seen, new])
    return pa.concat_tables(parts)
