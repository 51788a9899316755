"""The options of ``format("quacklake")``, and commits of rows that came through Spark's interface for Python sinks.

Tasks have written files, or returned a few rows. Here they become one snapshot, with a mark for those of a stream.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from quacklake.core.format.objects import BatchContent, check_stream
from quacklake.core.operations import dml
from quacklake.core.operations.conform import match_given
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.options import StreamPositions
from quacklake.errors import CommitUnknown, InputError, SchemaMismatchError, StreamBatchDoneError
from quacklake.extend.inputs import to_source
from quacklake.extend.names import TableRef
from quacklake.extend.partitions import overwrite_partitions
from quacklake.extend.writes import Operation, Transaction
from quacklake.spark.runtime.local import inner_types
from quacklake.spark.runtime.settings import DYNAMIC, OVERWRITE_MODES
from quacklake.spark.streams.checkpoint import SparkCheckpoint, read_from_spark
from quacklake.spark.streams.source import EARLIEST, Bound, choice, positive, refuse_unknown
from quacklake.spark.write.rows import Prepared, carries, given_columns
from quacklake.spark.write.tasks import TaskRows, write_task

_TABLE = ("lake", "catalog", "table")
_STARTS = ("readChangeFeed", "startingVersion", "startingTimestamp")
READ = (*_TABLE, "version", "timestamp", "followLatest", "where", *_STARTS, "endingVersion", "endingTimestamp")
READ_STREAM = (*_TABLE, *_STARTS, "maxFilesPerTrigger", "maxBytesPerTrigger")
UUID = "uuid"
READ_CARRIED = (*READ_STREAM, "version", UUID)
"""Options that ``SparkLake.read_stream`` adds on Spark Connect: the version of the columns, and the table's UUID."""
READ_ANY = tuple(dict.fromkeys((*READ, *READ_CARRIED)))
"""Options that are allowed before it is known whether a read is a stream."""
WRITE = (*_TABLE, "replaceWhere", "partitionOverwriteMode")
WRITE_STREAM = (*_TABLE, "streamName", "restart", "restartFrom")

_ALIAS = "path"  # the option in which ``load("sales")`` and ``save("sales")`` pass a name
_SPARKS = ("checkpointLocation", "queryName")
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_ONLY_CHANGES = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
_NOT_CHANGES = ("version", "timestamp", "followLatest", "where")


@dataclass(frozen=True)
class FormatOptions:
    """Valid options, by name in lower case."""

    values: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], known: Sequence[str]) -> FormatOptions:
        """Parse options. Raise ``InputError`` for an option that does not exist, with the most similar one."""
        values = {name.lower(): value for name, value in given.items()}
        own = {name.lower() for name in (*known, _ALIAS, *(_SPARKS if known is WRITE_STREAM else ()))}
        refuse_unknown([name for name in values if name not in own], known)
        path = values.pop(_ALIAS, None)
        if path is not None and values.setdefault("table", path) != path:
            raise InputError(f"two tables are named: {values['table']!r} and {path!r}", hint="name one of them")
        return cls(values)

    def get(self, name: str) -> str | None:
        return self.values.get(name.lower())

    def flag(self, name: str) -> bool:
        text = self.get(name)
        return text is not None and choice(name, text.lower(), ("true", "false")) == "true"

    def batch(self, name: str) -> int | None:
        """Return the number of a batch, which counts from 0. Raise ``InputError`` for anything else."""
        text = self.get(name)
        if text is not None and not text.isdecimal():
            raise InputError(f"{name} must be the number of a batch, not {text!r}")
        return None if text is None else int(text)

    def number(self, name: str) -> int | None:
        text = self.get(name)
        return None if text is None else positive(name, int(text) if text.isdecimal() else text)

    @property
    def table(self) -> TableRef:
        """The table. Raise ``InputError`` when none is named."""
        name = self.get("table")
        if not name:
            raise InputError("no table is named", hint='use .option("table", "sales"), or load("sales")')
        return TableRef.parse(name)

    def bound(self, version: str, timestamp: str) -> Bound | None:
        """Return an end of a range, which may be given as a version or as a time."""
        number, time = self.get(version), self.get(timestamp)
        if number is not None and time is not None:
            raise InputError(f"{version} and {timestamp} are both given", hint="leave one of them out")
        return int(number) if number is not None and number.isdecimal() else number if time is None else time

    @property
    def starting(self) -> Bound:
        found = self.bound("startingVersion", "startingTimestamp")
        return EARLIEST if found is None else found

    def check_changes(self) -> None:
        """Refuse meaningless options of a batch: a range without changes, or a snapshot or a filter with them."""
        if self.flag("followLatest") and self.bound("version", "timestamp") is not None:
            raise InputError("followLatest reads the newest snapshot, but another one is named", hint="leave one out")
        changes = self.flag("readChangeFeed")
        for name in _NOT_CHANGES if changes else _ONLY_CHANGES:
            if self.get(name) is not None:
                hint = 'use startingVersion and endingVersion, and filter with where("…")' if changes else None
                raise InputError(
                    f'the option "{name}" is for a read {"without" if changes else "with"} readChangeFeed',
                    hint=hint or 'use .option("readChangeFeed", "true"), or .option("version", …) for one snapshot',
                )


_OVERWRITING = ("replaceWhere", "partitionOverwriteMode")


@dataclass(frozen=True, slots=True)
class _Write:
    """A write that has begun, or one batch of a stream: its options, and the place of its files."""

    lake: LakeHandle
    options: FormatOptions
    overwrite: bool = False
    dynamic: bool = False


_Run: TypeAlias = tuple[str, str] | None


class _Batch(NamedTuple):
    """A batch of a stream: the query that counts batches, its run, and the number."""

    query: str
    run: str
    epoch: int


class TableSink:
    """Commits writes with ``format("quacklake")``. Safe to share between threads."""

    def __init__(
        self,
        find_lake: Callable[[FormatOptions], LakeHandle],
        usually_dynamic: Callable[[], bool],
        session: SparkSession | None = None,
    ) -> None:
        self._find_lake = find_lake
        self._session = session
        self._checkpoints: dict[tuple[str, str], SparkCheckpoint] = {}
        self._usually_dynamic = usually_dynamic
        self._writes: dict[str, _Write] = {}
        self._runs: dict[str, tuple[str, str]] = {}
        self._claimed: set[tuple[str, str]] = set()
        self._tried: set[_Batch] = set()

    def begin(self, options: Mapping[str, str], schema: str, overwrite: bool) -> tuple[str, bytes]:
        """Return a name for a write, and the packed task for rows of a schema. Raise the errors of ``append``."""
        found = FormatOptions.parse(options, WRITE)
        wrong = next((name for name in _OVERWRITING if found.get(name) is not None and not overwrite), None)
        if wrong is not None:
            raise InputError(f'the option "{wrong}" is for mode("overwrite")')
        write = _Write(self._find_lake(found), found, overwrite, overwrite and self._is_dynamic(found))
        task, id_ = _task(write, schema), secrets.token_hex(8)
        self._writes[id_] = write
        return id_, task

    def commit(self, write: str, written: Sequence[bytes]) -> None:
        """Commit the results of tasks, in one snapshot. Raise ``SchemaMismatchError`` if the table was altered."""
        self._end(self._writes.pop(write), written)

    def abort(self, write: str, written: Sequence[bytes]) -> None:
        """Remove the files of a write that was abandoned before its commit was tried."""
        known = self._writes.pop(write, None)
        if known is not None:
            _remove(known, _unpack_rows(written))

    def _is_dynamic(self, options: FormatOptions) -> bool:
        """Return True when only partitions with new rows are replaced, by the option or else by the session."""
        said = options.get("partitionOverwriteMode")
        if said is None:
            return options.get("replaceWhere") is None and self._usually_dynamic()
        dynamic = choice("partitionOverwriteMode", said.lower(), OVERWRITE_MODES) == DYNAMIC
        if dynamic and options.get("replaceWhere") is not None:
            raise InputError(
                "replaceWhere and dynamic overwriting both say which rows go", hint="leave one of them out"
            )
        return dynamic

    def begin_stream(self, options: Mapping[str, str], schema: str) -> bytes:
        found = FormatOptions.parse(options, WRITE_STREAM)
        _stream_name(found)
        return _task(_Write(self._find_lake(found), found), schema)

    def commit_batch(
        self, options: Mapping[str, str], overwrite: bool, written: Sequence[bytes], run: _Run, epoch: int
    ) -> None:
        """Commit a batch with its mark, unless it is in the lake. ``run`` is the query and its run."""
        found = FormatOptions.parse(options, WRITE_STREAM)
        name = _stream_name(found)
        run = run or self._runs.get(name)  # a batch without tasks does not know its run
        if run is None:
            return
        self._runs[name] = run
        batch = _Batch(*run, epoch)
        self._tried.add(batch)
        self._end(_Write(self._find_lake(found), found, overwrite), written, batch)
        self._tried.discard(batch)

    def abort_batch(
        self, options: Mapping[str, str], overwrite: bool, written: Sequence[bytes], run: _Run, epoch: int
    ) -> None:
        """Remove the files of a batch that was abandoned before its commit was tried."""
        if run is not None and (batch := _Batch(*run, epoch)) in self._tried:
            self._tried.discard(batch)
            return
        found = FormatOptions.parse(options, WRITE_STREAM)
        _remove(_Write(self._find_lake(found), found, overwrite), _unpack_rows(written))

    def _content(self, options: FormatOptions, batch: _Batch) -> BatchContent | None:
        """Return what a batch holds; None where the place of the checkpoint is unknown, so that only numbers count."""
        location = options.get("checkpointLocation")
        if location is None and self._session is not None:
            root, query = self._session.conf.get(_CHECKPOINTS, None), options.get("queryName")
            location = None if root is None or query is None else f"{root}/{query}"
        if location is None or self._session is None:
            return None
        key = (location, batch.run)
        if key not in self._checkpoints:
            self._checkpoints[key] = SparkCheckpoint(read_from_spark(self._session, location))
        content = self._checkpoints[key].content(batch.epoch)
        return replace(content, accepted=options.batch("restartFrom") == batch.epoch)

    def _end(self, write: _Write, written: Sequence[bytes], batch: _Batch | None = None) -> None:
        rows = _unpack_rows(written)
        try:
            self._commit(write, rows, batch)
        except CommitUnknown:
            raise  # the files may belong to the lake
        except StreamBatchDoneError:
            _remove(write, rows)
        except BaseException:
            _remove(write, rows)
            raise

    def _commit(self, write: _Write, rows: Sequence[TaskRows], batch: _Batch | None) -> None:
        context, options = write.lake.context, write.options
        files = [file for each in rows for file in each.files]
        few = [each.few for each in rows if each.few is not None]
        rest = to_source(pa.concat_tables(few)) if few else None
        restart = batch is not None and options.flag("restart")
        stream = "" if batch is None else _stream_name(options)
        if batch is not None and (stream, batch.run) not in self._claimed:
            StreamPositions(write.lake).claim(stream, batch.query, run=batch.run, restart=restart)
            self._claimed.add((stream, batch.run))
        content = None if batch is None else self._content(options, batch)

        def work(tx: Transaction) -> None:
            table = tx.find_table(options.table.schema, options.table.name)
            if not all(Prepared(each.table, ()).fits(table) for each in rows):
                raise SchemaMismatchError(
                    f"{table.qualified_name} was altered while rows were written to it", hint="write them again"
                )

            def add() -> None:
                Prepared.of(table, files).add_to(tx, table)
                if rest is not None:
                    dml.append(context, tx, table, rest)

            if write.dynamic:
                overwrite_partitions(context, tx, table, add)
            else:
                if write.overwrite:
                    dml.delete(context, tx, table, options.get("replaceWhere"), asked=Operation.OVERWRITE)
                add()
            if batch is not None:
                tx.mark(stream, batch.epoch, batch.run, None, gaps=restart, content=content)

        try:
            write.lake.run(work)
        except StreamBatchDoneError:
            if batch is not None and content is not None:
                StreamPositions(write.lake).note_content(stream, batch.run, batch.epoch, content)
            raise


def _task(write: _Write, schema: str) -> bytes:
    lake, ref = write.lake, write.options.table
    rows = StructType.fromJson(json.loads(schema))
    table = lake.view().find_table(ref.schema, ref.name)
    given = given_columns(rows, table, time=has_times(rows))
    matches = match_given(given, table.schema, table.qualified_name)
    task = write_task(lake.context, table, matches, given, {})
    few = lake.context.inline_limit(table) if all(carries(each, given) for each in matches) else 0
    return pickle.dumps(replace(task, limit=few))


def has_times(type_: DataType) -> bool:
    return type_.simpleString().startswith("time(") or any(map(has_times, inner_types(type_)))


def _unpack_rows(written: Sequence[bytes]) -> list[TaskRows]:
    return [pickle.loads(each) for each in written]


def _remove(write: _Write, rows: Sequence[TaskRows]) -> None:
    write.lake.context.store.delete([each.table.location + file.path for each in rows for file in each.files])


def _stream_name(options: FormatOptions) -> str:
    name = options.get("streamName") or options.get("queryName")
    if name is None:
        raise InputError("a stream into a lake needs a name", hint='use .queryName("…") or .option("streamName", "…")')
    return check_stream(name)
