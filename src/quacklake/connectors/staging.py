"""Arrow batches into Parquet files below a table, before any log knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quacklake.connectors.protocols import WrittenFile
from quacklake.storage import Store

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class FileStage:
    """Collects batches, and writes a file for each partition when there are enough for one.

    ``files`` are those that are written and not taken yet. Memory is bounded by ``target_bytes`` and one batch.
    """

    def __init__(
        self,
        store: Store,
        *,
        folder: str = "",
        partition_by: Sequence[str] = (),
        target_bytes: int = 128 << 20,
        compression: str = "zstd",
        statistics: Callable[[pa.Table], str] | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._statistics = statistics
        self._partition_by = tuple(partition_by)
        self._target = target_bytes
        self._compression = compression
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self.files: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch, and write files when there is enough."""
        self._batches.append(batch)
        self._buffered += batch.nbytes
        if self._buffered >= self._target:
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        batches, self._batches, self._buffered = self._batches, [], 0
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        if table.num_rows:
            for values, rows in self._partitions(table):
                self.files.append(self._write(values, rows))

    def take(self) -> tuple[WrittenFile, ...]:
        """Write what is kept, and return all files since the last call."""
        self.flush()
        files, self.files = tuple(self.files), []
        return files

    def discard(self) -> None:
        """Forget what is kept, and remove the files that were not taken."""
        self._batches, self._buffered = [], 0
        files, self.files = self.files, []
        self._store.delete(file.path for file in files)

    def _partitions(self, table: pa.Table) -> Iterable[tuple[dict[str, str | None], pa.Table]]:
        if not self._partition_by:
            yield {}, table
            return
        keys = table.select(self._partition_by)
        numbered = keys.append_column("_row", pa.array(range(table.num_rows), pa.int64()))
        groups = numbered.group_by(list(self._partition_by), use_threads=False).aggregate([("_row", "list")])
        rest = table.drop_columns(list(self._partition_by))
        for group in groups.to_batches():
            for place, rows in enumerate(group.column("_row_list")):
                values = {name: partition_text(group.column(name)[place]) for name in self._partition_by}
                yield values, rest.take(rows.values)

    def _write(self, values: dict[str, str | None], rows: pa.Table) -> WrittenFile:
        folders = "".join(f"{quote(k)}={HIVE_NULL if v is None else quote(v, safe='')}/" for k, v in values.items())
        path = f"{self._folder}{folders}part-{uuid4()}.parquet"
        with self._store.open_output(path) as sink:
            pq.write_table(rows, sink, compression=self._compression)
            size = sink.tell()
        return WrittenFile(path, size, rows.num_rows, values, self._statistics(rows) if self._statistics else None)


def partition_text(value: pa.Scalar) -> str | None:
    """Return the text of a value in the name of a folder, None for NULL."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type):
        naive = value.cast(pa.timestamp("us"))
        return str(pc.strftime(naive, "%Y-%m-%d %H:%M:%S").as_py())
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    return str(value.as_py())
