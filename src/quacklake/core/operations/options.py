"""The groups of less common operations of a lake: its options, streams, tags, retentions and history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from quacklake.core.catalog import Reader, Writer, own_tables
from quacklake.core.catalog.expiring import names_of
from quacklake.core.format.names import fold, uuid7
from quacklake.core.format.objects import (
    REQUEST_STREAM,
    BatchContent,
    StreamMark,
    TableInfo,
    check_stream,
    claimed,
    is_own_stream,
)
from quacklake.core.format.options import OptionRow, OptionType, Scope, format_option, option
from quacklake.core.format.snapshots import (
    Names,
    Naming,
    Operation,
    SnapshotInfo,
    SnapshotTag,
    check_tag,
    describe,
    operation_of,
    renames,
    render_changes,
)
from quacklake.core.operations.context import LakeContext, boundary
from quacklake.core.operations.handles import Handle
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.times import check_version, span
from quacklake.core.transaction import objects
from quacklake.errors import ConfigError, InputError, NotFoundError, nearest


class _Group:
    """A group of operations of one lake."""

    def __init__(self, handle: Handle) -> None:
        handle.check_whole("options, history and streams")
        self.handle = handle
        self._context = handle.context

    @contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
            yield reader

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            yield writer


@boundary
class LakeOptions(_Group):
    """The options of a lake, of its schemas and of its tables."""

    def list(self) -> pa.Table:
        """Return the options that are set: name, value, and the schema or table (neither: the whole lake)."""
        with self._reading() as reader:
            rows = reader.options()
        names = ("key", "value", "scope", "scope_id")
        types = (pa.string(), pa.string(), pa.string(), pa.int64())
        columns = zip(*((row.key, row.value, row.scope, row.scope_id) for row in rows), strict=True)
        return pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})

    def get(self, name: str, *, schema: str | None = None, table: str | None = None) -> Any:
        """Return the value of an option for the lake, a schema or a table.

        A table's setting overrides its schema's, which overrides the lake's, which overrides that of ``connect``.
        """
        _, schema_id, table_id = self._scope(schema, table)
        self._context.forget_options()
        return self._context.effective(name, schema_id, table_id)

    def set(self, name: str, value: Any, *, schema: str | None = None, table: str | None = None) -> None:
        """Set an option of the format, such as ``data_inlining_row_limit``, for the lake, a schema or a table.

        Options apply to every client from now on; they are not part of any snapshot. Raise ``ConfigError``.
        """
        if option(name).type is OptionType.COLUMNS:
            objects.require_next(self._context.catalog, f"the option {name}")
            value = self._column_ids(value, table)
        text = format_option(name, value)
        row = self._option_row(name, text, schema, table)
        with self._writing() as writer:
            writer.put_option(row)
        self._context.forget_options()

    def unset(self, name: str, *, schema: str | None = None, table: str | None = None) -> None:
        """Remove a setting of the lake, a schema or a table; the next wider setting applies again."""
        row = self._option_row(name, "", schema, table)
        with self._writing() as writer:
            writer.drop_option(row)
        self._context.forget_options()

    def _column_ids(self, value: Any, table: str | None) -> str:
        """Return column names or ids in the form that an option stores."""
        if isinstance(value, str) or table is None:
            return str(value)
        ref = TableRef.parse(table)
        found = self.handle.view().find_table(ref.schema, ref.name)
        return ",".join(str(leaf.id) for name in value for leaf in found.schema.find(name).leaves())

    def _option_row(self, name: str, text: str, schema: str | None, table: str | None) -> OptionRow:
        entry = option(name)
        scope, schema_id, table_id = self._scope(schema, table)
        if scope not in entry.scopes:
            hint = "lake.history.set_retention lets a table keep its history longer" if scope is Scope.TABLE else None
            what = "a table" if entry.scopes == (Scope.TABLE,) else "the whole lake"
            raise InputError(f'the option "{entry.name}" can only be set for {what}', hint=hint)
        id_ = {Scope.GLOBAL: None, Scope.SCHEMA: schema_id, Scope.TABLE: table_id}[scope]
        return OptionRow(entry.name, text, None if scope is Scope.GLOBAL else scope.value, id_)

    def _scope(self, schema: str | None, table: str | None) -> tuple[Scope, int | None, int | None]:
        """Return the scope of a setting, with the ids of the schema and the table."""
        if schema is not None and table is not None:
            raise InputError("pass schema= or table=, not both")
        if table is not None:
            ref = TableRef.parse(table)
            found = self.handle.view().find_table(ref.schema, ref.name)
            return Scope.TABLE, found.schema_id, found.id
        if schema is not None:
            return Scope.SCHEMA, self.handle.view().find_schema(schema).id, None
        return Scope.GLOBAL, None, None


_LISTED = pa.schema(
    [
        ("stream", pa.string()),
        ("epoch", pa.int64()),
        ("position", pa.string()),
        ("snapshot_id", pa.int64()),
        ("query", pa.string()),
    ]
)


@boundary
class StreamPositions(_Group):
    """Manages the positions of the streams that write into a lake, in any engine."""

    def claim(self, name: str, query: str, *, run: str | None = None, restart: bool = False) -> StreamMark:
        """Claim a stream before its first batch; earlier runs of the stream can no longer commit.

        ``query`` identifies the source that counts the batches, such as a checkpoint id; batches count from 0 without
        gaps. The result has the last committed batch (-1: none) and the ``run`` that ``mark`` needs. Raise
        ``StreamMismatchError`` when another query used the name, unless ``restart`` is true.
        """
        check_stream(name)
        run = str(uuid7()) if run is None else run
        with self._writing() as writer:
            known = own_tables.find_stream(writer, name)
            mark = claimed(known, name, query, run, restart=restart)
            own_tables.put_stream(writer, mark, new=known is None)
        return mark

    def note_content(self, name: str, run: str, epoch: int, content: BatchContent) -> None:
        """Write what the last batch holds into a mark of an older version, which lacks it."""
        with self._writing() as writer:
            known = own_tables.find_stream(writer, name)
            if known is not None and (known.run, known.epoch, known.position) == (run, epoch, None):
                own_tables.put_stream(writer, replace(known, position=content.digest), new=False)

    def find(self, name: str) -> StreamMark | None:
        """Return the mark of a stream; None for one that was never claimed."""
        with self._reading() as reader:
            return own_tables.find_stream(reader, name)

    def list(self) -> pa.Table:
        """Return every stream: its name, last committed batch, position and query."""
        with self._reading() as reader:
            found = [mark for mark in own_tables.streams(reader) if not is_own_stream(mark.name)]
        rows = [(mark.name, mark.epoch, mark.position, mark.snapshot_id, mark.query) for mark in found]
        columns = zip(*rows, strict=True) if rows else ((),) * len(_LISTED)
        return pa.table([pa.array(values, field.type) for values, field in zip(columns, _LISTED, strict=True)], _LISTED)

    def done(self, names: Sequence[str]) -> dict[str, StreamMark]:
        """Return the marks of requests that were done, by name; see ``Transaction.mark_once``."""
        with self._reading() as reader:
            return own_tables.known_streams(reader, names)

    def forget_done(self, before: int) -> int:
        """Remove the marks of requests that were done before a time, in seconds since 1970; return how many."""
        with self._writing() as writer:
            return own_tables.expire_streams(writer, REQUEST_STREAM, before)

    def forget(self, name: str) -> None:
        """Remove the position of a stream; a running one can no longer commit. Raise ``NotFoundError``."""
        with self._writing() as writer:
            known = [mark.name for mark in own_tables.streams(writer)]
            if name not in known:
                raise NotFoundError(
                    f'there is no stream "{name}"', hint=nearest(name, known) or "lake.streams.list() lists them"
                )
            own_tables.remove_stream(writer, name)


@boundary
class LakeHistory(_Group):
    """Manages snapshot tags, and tables that keep their history longer than the lake."""

    def set_retention(self, table: str, keep: dt.timedelta | str | None) -> None:
        """Keep the history of a table longer than that of the lake.

        Snapshots within this span that changed the table do not expire; None removes the setting. Raise
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
        with self._writing() as writer:
            own_tables.put_retention(writer, found.id, text)

    def retentions(self) -> dict[str, str]:
        """Return the tables that keep their history longer than the lake, and for how long."""
        with self._reading() as reader:
            spans = own_tables.retention(reader)
            names = names_of(reader, sorted(spans))
        return {names[id_]: keep for id_, keep in spans.items() if id_ in names}

    def tag(self, name: str, version: int | None = None, *, replace: bool = False) -> int:
        """Tag a snapshot (default: the newest) and return its id.

        A tagged snapshot does not expire, unless a client that ignores tags expires it. Read it with
        ``lake.at(tag=…)``. ``replace`` moves an existing tag. Raise ``InvalidNameError`` or ``AlreadyExistsError``.
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
        """Remove a tag; its snapshot can then expire. Raise ``NotFoundError``."""
        check_tag(name)
        with self._writing() as writer:
            own_tables.remove_tag(writer, name)

    def tags(self) -> pa.Table:
        """Return every tag with its name, its snapshot and the time it was set."""
        with self._reading() as reader:
            found = own_tables.tags(reader)
        columns = {
            "tag": pa.array([tag.name for tag in found], pa.string()),
            "snapshot_id": pa.array([tag.snapshot_id for tag in found], pa.int64()),
            "created": pa.array([tag.created for tag in found], pa.timestamp("us", tz="UTC")),
        }
        return pa.table(columns)


_TEXTS = ("changes", "author", "commit_message", "commit_extra_info", "operation", "description")
_SCHEMA = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("snapshot_time", pa.timestamp("us", tz="UTC")),
        ("schema_version", pa.int64()),
        *((name, pa.string()) for name in _TEXTS),
    ]
)


def lake_history(context: LakeContext, limit: int | None = None, before: int | None = None) -> pa.Table:
    """Return the newest ``limit`` snapshots, of those before one, oldest first."""
    with context.catalog.read() as reader:
        found = reader.snapshots.last(checked_limit(limit), before)
        operations = reader.snapshots.operations(found[0].id) if found else {}
        return _table(found, operations, reader.tables.all_names())


def checked_limit(limit: Any) -> int | None:
    """Return a number of snapshots. Raise ``InputError`` when it cannot be one."""
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit > 0):
        return limit
    raise InputError(f"limit must be a whole number of at least 1, not {limit!r}")


def _table(snapshots: Sequence[SnapshotInfo], asked: Mapping[int, Operation], names: Names) -> pa.Table:
    renamed = renames(names)

    def row(info: SnapshotInfo) -> tuple[object, ...]:
        operations, naming = asked.get(info.id, Operation.NONE), Naming(info.id, names, renamed)
        own = (info.id, info.time, info.schema_version, render_changes(info.changes))
        signed = (info.author, info.message, info.extra)
        told = (function(info.changes, operations, naming) for function in (operation_of, describe))
        return (*own, *signed, *told)

    rows = [dict(zip(_SCHEMA.names, row(info), strict=True)) for info in snapshots]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def table_history(context: LakeContext, table: TableInfo, limit: int | None = None) -> pa.Table:
    """Return the newest ``limit`` snapshots that changed a table, newest first."""
    name = (fold(table.schema_name), fold(table.name))

    def is_of_table(info: SnapshotInfo) -> bool:
        return any(
            change.id == table.id
            if (change.name is None and "table" in change.kind.value)
            or change.kind.value.startswith(("inline", "merge", "rewrite"))
            else change.name is not None and (fold(change.schema or ""), fold(change.name)) == name
            for change in info.changes
        )

    with context.catalog.read() as reader:
        mine = list(islice(filter(is_of_table, reader.snapshots.newest_first()), checked_limit(limit)))
        operations = reader.snapshots.operations(mine[-1].id) if mine else {}
        return _table(mine, operations, reader.tables.all_names())
