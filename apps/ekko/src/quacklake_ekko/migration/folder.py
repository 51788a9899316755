"""The folder of Arrow files: list them, read them with every check, write and remove batches."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.config import Config
from quacklake.errors import CorruptFileError, InputError, NotFoundError, QuacklakeError
from quacklake.extend import reporting
from quacklake.extend.stores import Store, open_store
from quacklake_ekko.migration.layout import FOLDER, METADATA_SUFFIX, ArrowPath, BatchMetadata, check_path
from quacklake_ekko.migration.rows import from_arrow, to_arrow

_IN_MEMORY = 64 << 20
"""Files of up to so many bytes are read at once, larger ones in pieces."""
_METADATA_BYTES = 1 << 20
_RETIRED = f"{FOLDER}_retired.json"
"""Says that files were removed: readers must not take the rest for all there is."""
_KEPT_ROWS = 100_000
_NODE = ["network", "subnet", "vm_type"]
_PARTITION = [*_NODE, "year", "month", "day", "hour"]
_Bound = TypeVar("_Bound", int, datetime)


@dataclass(frozen=True)
class ArrowFile:
    """A file as the listing shows it."""

    path: str
    size: int
    place: ArrowPath


@dataclass(frozen=True)
class SkippedFile:
    """A file that cannot be taken over, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class CheckedFile:
    """A file whose rows, path and metadata agree. ``kept`` are its rows, unless they are too many."""

    path: str
    size: int
    sha256: str
    metadata: BatchMetadata
    kept: pa.Table | None = field(default=None, compare=False, repr=False)

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.metadata.tx_count


class ArrowFolder:
    """The Arrow files below one folder, local or in an object store. It is never left by links or paths."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def open(cls, location: str | Path, config: Config) -> ArrowFolder:
        """Return the folder at a path or URL, with the keys of a lake's settings. Raise ``ConfigError``."""
        return cls(open_store(str(location), config))

    @property
    def url(self) -> str:
        """The address of the folder."""
        return self._store.root

    def files(self) -> tuple[list[ArrowFile], list[SkippedFile]]:
        """Return the batches in the order of their names, and what looks like a batch and is none.

        Raise ``NotFoundError`` when there is neither, as in a wrong folder, unless all have been retired.
        """
        files, skipped = [], self._links()
        for entry in self._store.list(FOLDER):
            if not entry.path.endswith(".arrow") or entry.is_temporary:
                continue
            try:
                files.append(ArrowFile(entry.path, entry.size, ArrowPath.parse(entry.path)))
            except InputError as error:
                skipped.append(SkippedFile(entry.path, error.message))
        if not files and not skipped and not self.retired():
            raise NotFoundError(
                f"there are no Arrow files in {self.url}", hint="name the folder that has transactions/"
            )
        return sorted(files, key=lambda file: (file.place.stamp, file.path)), skipped

    def check(self, file: ArrowFile) -> CheckedFile:
        """Read a whole file. Raise ``InputError`` or ``CorruptFileError`` that says why it cannot be taken over."""
        with self._opened(file) as (reader, sha256):
            said = self._metadata(file)
            created = file.place.stamp if said is None else said.created_at
            found = _Extent(file)
            for batch in _batches(reader):
                found.add(from_arrow(batch, created))
        actual = found.metadata(created)
        wrong = None if said is None else said.disagreement(actual)
        if wrong is not None:
            raise InputError(wrong)
        check_path(file.place, actual)
        kept = pa.concat_tables(found.tables) if found.count <= _KEPT_ROWS else None
        return CheckedFile(file.path, file.size, sha256, actual, kept)

    def rows(self, file: ArrowFile, checked: CheckedFile) -> Iterator[pa.Table]:
        """Yield the rows of a checked file as the lake has them. Raise ``CorruptFileError`` if it has changed."""
        if checked.kept is not None:
            yield checked.kept
            return
        with self._opened(file) as (reader, sha256):
            if sha256 != checked.sha256:
                raise CorruptFileError(f"{file.path} has changed while it was read")
            for batch in _batches(reader):
                yield from_arrow(batch, checked.metadata.created_at)

    def write(self, rows: pa.Table, created: datetime) -> list[CheckedFile]:
        """Write rows as batches, one for each node and hour, and return them.

        The metadata is written first, so that a batch that is there has it. Readers see a batch whole or not at all.
        """
        return [self._write(part, created) for part in _parts(rows)]

    def unchanged(self, path: str, sha256: str) -> bool:
        """Return whether a file is there with these contents."""
        if not self._store.exists(path):
            return False
        with self._store.open_input(path) as source:
            return _digest(source) == sha256

    def retired(self) -> bool:
        """Return whether files have been removed because the lake has taken their place."""
        return self._store.exists(_RETIRED)

    def retire(self) -> None:
        """Note, before the first file is removed, that the files are no longer complete."""
        self._store.write(_RETIRED, b"{}")

    def remove(self, path: str) -> None:
        """Remove a batch and its metadata. The batch goes first: metadata alone is not a batch."""
        ArrowPath.parse(path)
        reporting.reach("migration.remove.before")
        self._store.delete([path])
        reporting.reach("migration.remove.batch")
        self._store.delete([path + METADATA_SUFFIX])

    def prune(self) -> None:
        """Remove folders in which nothing is left."""
        self._store.prune(FOLDER)

    def _write(self, rows: pa.Table, created: datetime) -> CheckedFile:
        first = rows.slice(0, 1).to_pylist()[0]
        blocks, times = pc.min_max(rows["block_number"]).as_py(), pc.min_max(rows["block_time"]).as_py()
        node = (first["network"], first["subnet"], first["vm_type"])
        hour = times["min"].replace(minute=0, second=0, microsecond=0)
        place = ArrowPath(*node, hour, blocks["min"], blocks["max"], created, secrets.token_hex(4))
        path = str(place)
        ArrowPath.parse(path)  # a name with a slash would end up elsewhere
        sink = pa.BufferOutputStream()
        table = to_arrow(rows)
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        metadata = BatchMetadata(
            *node, blocks["min"], blocks["max"], times["min"], times["max"], len(rows), path, data.size, created
        )
        reporting.reach("migration.write.before")
        self._store.write(path + METADATA_SUFFIX, metadata.to_json())
        reporting.reach("migration.write.metadata")
        self._store.write(path, data)
        reporting.reach("migration.write.after")
        return CheckedFile(path, data.size, hashlib.sha256(data).hexdigest(), metadata)

    @contextmanager
    def _opened(self, file: ArrowFile) -> Iterator[tuple[pa.RecordBatchFileReader, str]]:
        with self._store.open_input(file.path) as source:
            if source.size() != file.size:
                raise CorruptFileError("it has changed while it was read")
            held: pa.NativeFile = source
            if file.size <= _IN_MEMORY:
                data = source.read_buffer()
                digest, held = hashlib.sha256(data).hexdigest(), pa.BufferReader(data)
            else:
                digest = _digest(source)
                source.seek(0)
            try:
                yield pa.ipc.open_file(held), digest
            except (pa.ArrowException, MemoryError, OSError, OverflowError, ValueError) as error:
                first = (str(error) or type(error).__name__).splitlines()[0]
                raise CorruptFileError(f"it cannot be read: {first[:200]}") from None

    def _metadata(self, file: ArrowFile) -> BatchMetadata | None:
        """Return what the metadata says; None if there is none, as after a crash of the old writer."""
        path = file.path + METADATA_SUFFIX
        if not self._store.exists(path):
            return None
        try:
            return BatchMetadata.from_json(self._store.read(path, limit=_METADATA_BYTES))
        except QuacklakeError as error:
            raise InputError(error.message) from None

    def _links(self) -> list[SkippedFile]:
        """Return the symbolic links, which are never followed."""
        if not self._store.is_local:
            return []
        root = Path(self._store.root)
        found = []
        for folder, folders, names in os.walk(root / FOLDER):
            for name in (*folders, *names):
                if Path(folder, name).is_symlink():
                    path = str(Path(folder, name).relative_to(root))
                    found.append(SkippedFile(path, "it is a symbolic link, which is not followed"))
        return found


class _Extent:
    """The range of a file's rows: one node, and the first and last of blocks and times."""

    def __init__(self, file: ArrowFile) -> None:
        self.file = file
        self.count = 0
        self.tables: list[pa.Table] = []
        self._node: tuple[str, str, str] | None = None
        self._blocks: tuple[int, int] | None = None
        self._times: tuple[datetime, datetime] | None = None

    def add(self, rows: pa.Table) -> None:
        if not len(rows):
            return
        nodes = rows.select(_NODE).group_by(_NODE).aggregate([]).to_pylist()
        node = self._node or (nodes[0]["network"], nodes[0]["subnet"], nodes[0]["vm_type"])
        if len(nodes) > 1 or tuple(nodes[0].values()) != node:
            raise InputError("it has rows of more than one node")
        self._node = node
        self._blocks = _bounds(self._blocks, rows["block_number"])
        self._times = _bounds(self._times, rows["block_time"])
        self.count += len(rows)
        if self.count <= _KEPT_ROWS:
            self.tables.append(rows)

    def metadata(self, created: datetime) -> BatchMetadata:
        if self._node is None or self._blocks is None or self._times is None:
            raise InputError("it has no rows")
        file = self.file
        return BatchMetadata(*self._node, *self._blocks, *self._times, self.count, file.path, file.size, created)


def _bounds(known: tuple[_Bound, _Bound] | None, column: pa.ChunkedArray) -> tuple[_Bound, _Bound]:
    found: dict[str, Any] = pc.min_max(column).as_py()
    least, most = known or (found["min"], found["max"])
    return min(least, found["min"]), max(most, found["max"])


def _batches(reader: pa.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    for place in range(reader.num_record_batches):
        batch = reader.get_batch(place)
        batch.validate(full=True)
        yield batch


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each node and hour."""
    for group in rows.select(_PARTITION).group_by(_PARTITION).aggregate([]).to_pylist():
        matches: Sequence[pa.Expression] = [pc.field(name) == value for name, value in group.items()]
        wanted = matches[0]
        for match in matches[1:]:
            wanted &= match
        yield rows.filter(wanted)


def _digest(source: pa.NativeFile) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
