"""Arrow batches into Parquet files below a table, before any log knows of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from typing import TypeAlias
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quacklake.connectors.protocols import PreparedCommit, WrittenFile
from quacklake.errors import ConnectorError, PathError, StorageError
from quacklake.extend.stores import Store

_STAGED = re.compile(r"(?:.*/)?part-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.parquet|/.*)")
_WEIGHED = 16
"""Batches after which a stage looks how large all of them are; that takes longer than to keep one."""
_DICTIONARY = 256 << 10
"""The bytes of a dictionary beyond which a column has too many different values for one."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
ARROW_FIELD_ID = b"PARQUET:field_id"
"""The key in the metadata of an Arrow field under which Parquet keeps the id of a column."""

Values: TypeAlias = Mapping[str, str | None]
"""The values of a partition as texts."""
Split: TypeAlias = Callable[[pa.Table], Iterable[tuple[str, Values, pa.Table]]]
"""A function that separates the rows of partitions: the folder, the values and the rows of each file."""
Statistics: TypeAlias = Callable[[pa.Schema, pq.FileMetaData, "pa.Table | None"], str]
"""A function that describes a file by its schema and footer, and by its rows where this process has them."""


class FileStage:
    """Collects batches, and writes a file for each partition when there are enough for one.

    ``files`` are those that are written and not taken yet. Memory is bounded by ``target_bytes`` and one batch.
    ``count`` says how many records the rows of a file are, where ``split`` has made something else of them. ``aside``
    is a folder for files that another engine writes for the stage, and that nobody takes for files of the table.
    """

    def __init__(
        self,
        store: Store,
        *,
        folder: str = "",
        split: Split | None = None,
        target_bytes: int = 128 << 20,
        compression: str = "zstd",
        statistics: Statistics | None = None,
        schema: pa.Schema | None = None,
        ending: str = ".parquet",
        count: Callable[[pa.Table], int] | None = None,
        aside: str | None = None,
    ) -> None:
        self.store = store
        self.schema = schema
        self.compression = compression
        self.target_bytes = target_bytes
        self.aside = aside if split is None and count is None and store.is_local else None
        self._folder = folder
        self._ending = ending
        self._statistics = statistics
        self._count = count or (lambda rows: rows.num_rows)
        self._split = split or _whole
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._enough = 0
        self.files: list[WrittenFile] = []
        self.row_bytes: float | None = None
        """The size of a row in the last file, if there was one."""

    def empty(self) -> FileStage:
        """Return the same stage without rows or files, for a separate task."""
        made = copy(self)
        made._batches, made._rows, made._enough, made.files = [], 0, 0, []
        return made

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch, and write files when there is enough. A batch that raises is not kept."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows < self._enough and len(self._batches) % _WEIGHED:
            return
        size = sum(kept.nbytes for kept in self._batches)
        if size < self.target_bytes:
            self._enough = self._rows * self.target_bytes // max(size, 1)
            return
        try:
            self.flush()
        except BaseException:
            self._batches.pop()
            self._rows -= batch.num_rows
            raise

    def flush(self) -> None:
        """Write what is kept. When that fails everything is kept, so that no later call goes on without it."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self.schema is not None:
            table = table.select(self.schema.names).cast(self.schema)
        written: list[WrittenFile] = []
        try:
            for folder, values, rows in self._split(table) if table.num_rows else ():
                written.append(self._write(folder, values, rows))
        except BaseException:
            with suppress(StorageError):
                self.store.delete(file.path for file in written)
            raise
        self.files += written
        self._batches, self._rows, self._enough = [], 0, 0

    def take(self) -> tuple[WrittenFile, ...]:
        """Write what is kept, and return all files since the last call."""
        self.flush()
        files, self.files = tuple(self.files), []
        return files

    def adopt(self, folder: str) -> list[WrittenFile]:
        """Give the Parquet files of a folder the names and places of the stage, and return those that have rows.

        The folder goes. It is one below ``aside`` that another engine has filled with rows of the stage's schema.
        """
        assert self.schema is not None
        adopted: list[WrittenFile] = []
        for entry in list(self.store.list(folder)):
            name = entry.path.rsplit("/", 1)[-1]
            if name.startswith((".", "_")) or not name.endswith(".parquet"):
                continue
            with self.store.open_input(entry.path) as source:
                footer = pq.read_metadata(source)
            if not footer.num_rows:
                continue
            path = f"{self._folder}part-{uuid4()}{self._ending}"
            statistics = self._statistics(self.schema, footer, None) if self._statistics else None
            self.store.rename(entry.path, path)
            self.weigh(entry.size, footer.num_rows)
            adopted.append(WrittenFile(path, entry.size, footer.num_rows, {}, statistics))
        self.store.sync([file.path for file in adopted])
        self.remove_aside(folder)
        return adopted

    def remove_aside(self, folder: str) -> None:
        """Remove a folder below ``aside`` with all that is in it."""
        self.store.delete(entry.path for entry in list(self.store.list(folder)))
        self.store.prune(folder)

    def discard(self) -> None:
        """Forget what is kept, and remove the files that were not taken."""
        self._batches, self._rows, self._enough = [], 0, 0
        files, self.files = self.files, []
        self.store.delete(file.path for file in files)

    def _write(self, folder: str, values: Values, rows: pa.Table) -> WrittenFile:
        path = f"{self._folder}{folder}part-{uuid4()}{self._ending}"
        footers: list[pq.FileMetaData] = []
        with self.store.open_output(path) as sink:
            pq.write_table(
                rows,
                sink,
                compression=self.compression,
                dictionary_pagesize_limit=_DICTIONARY,
                metadata_collector=footers,
            )
            size = sink.tell()
        statistics = self._statistics(rows.schema, footers[0], rows) if self._statistics else None
        self.weigh(size, rows.num_rows)
        return WrittenFile(path, size, self._count(rows), values, statistics)

    def weigh(self, size: int, rows: int) -> None:
        """Hear how large the rows of written files are."""
        self.row_bytes = size / rows if rows else self.row_bytes


class StagedSink:
    """Holds the stage of a sink, which ``initialize`` makes."""

    _stage: FileStage | None = None

    @property
    def stage(self) -> FileStage:
        """The files of the next commit. Raise ``ConnectorError`` before ``initialize``."""
        if self._stage is None:
            raise ConnectorError("the sink is not initialized", hint="call initialize(schema) first")
        return self._stage


def check_staged(store: Store, folder: str, prepared: PreparedCommit) -> None:
    """Raise ``PathError`` for a file outside of the folder of a stage.

    Whoever writes a checkpoint may name any file.
    """
    for file in prepared.data_files:
        if not store.own(file.path).startswith(folder):
            raise PathError(f"{file.path!r} is no file that this sink has written")


def is_staged(path: str) -> bool:
    """Return True for the name of a file that a stage has written."""
    return _STAGED.fullmatch(path) is not None


def staged_before(store: Store, folder: str, before: datetime) -> Iterator[str]:
    """Yield the files of stages in a folder that are older than a time."""
    for entry in store.list(folder):
        if is_staged(entry.path) and entry.mtime is not None and entry.mtime < before:
            yield entry.path


def _whole(table: pa.Table) -> Iterable[tuple[str, Values, pa.Table]]:
    return [("", {}, table)]


def groups(table: pa.Table, keys: pa.Table) -> Iterable[tuple[dict[str, pa.Scalar], pa.Table]]:
    """Separate the rows of a table by the rows of ``keys`` beside it."""
    names = keys.column_names
    numbered = keys.append_column("_row", pa.array(range(table.num_rows), pa.int64()))
    for group in numbered.group_by(names, use_threads=False).aggregate([("_row", "list")]).to_batches():
        for place, rows in enumerate(group.column("_row_list")):
            yield {name: group.column(name)[place] for name in names}, table.take(rows.values)


def hive_split(columns: Sequence[str]) -> Split:
    """Separate rows by the values of columns, which the names of folders keep instead of the files."""

    def split(table: pa.Table) -> Iterable[tuple[str, Values, pa.Table]]:
        for values, rows in groups(table.drop_columns(list(columns)), table.select(columns)):
            texts = {name: partition_text(value) for name, value in values.items()}
            yield hive_folder(texts), texts, rows

    return split


def hive_folder(values: Values) -> str:
    """Return the folder of a partition, such as ``day=2024-01-01/``."""
    parts = (f"{quote(name)}={HIVE_NULL if text is None else quote(text, safe='')}/" for name, text in values.items())
    return "".join(parts)


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
