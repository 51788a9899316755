"""Our own tables, which stock clients do not see: tags, retention, streams, checkpoints, definitions and leases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from quacklake.core.catalog.databases.database import PreparedSelect
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import Step
from quacklake.core.catalog.tables import readable_time
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.format.objects import Checkpoint, Definition, StreamMark
from quacklake.core.format.snapshots import Snapshot, SnapshotTag, check_tag
from quacklake.errors import AlreadyExistsError, NotFoundError, ReadOnlyError, SnapshotExpiredError, nearest


def _table(reader: Reader, name: str) -> sa.Table | None:
    """Return one of our tables, or None in a lake that another client made and we never wrote."""
    # one that is there stays there
    return reader.meta.own[name] if reader.cached(("own", name), lambda: _there(reader, name)) else None


def _there(reader: Reader, name: str) -> bool | None:
    return reader.has_table(reader.meta.own[name].name) or None


def rows_of(reader: Reader, own: str, columns: Iterable[str], **where: object) -> list[Any]:
    """Return rows of one of our tables by its key, those with the values that are given; none where it is missing."""
    table = _table(reader, own)
    if table is None:
        return []
    given = {key: value for key, value in where.items() if value is not None}
    listed = tuple(columns)

    def build() -> sa.Select[Any]:
        chosen = [
            readable_time(table.c[column], reader.backend.name, column) if column == "created" else table.c[column]
            for column in listed
        ]
        mine = [table.c[key] == sa.bindparam(key) for key in given]
        return sa.select(*chosen).where(*mine).order_by(*table.primary_key.columns)

    return list(reader.run(own, reader.cached(("own_rows", own, listed, *given), build), given))


def needed(writer: Writer, name: str) -> sa.Table:
    table = _table(writer, name)
    if table is None:
        hint = (
            "the operator adds it by opening the shared lake: `quacklake tenant list`" if writer.meta.shared else None
        )
        raise ReadOnlyError(f"no right to create the table quacklake_{name} in this catalog", hint=hint)
    return table


def _save(writer: Writer, what: str, table: sa.Table, key: dict[str, Any], known: bool, **values: Any) -> None:
    """Write a row, over the one with its key when that is ``known``."""
    if known:
        statement = writer.cached(
            ("own_update", table.name, *key, *values),
            lambda: (
                sa.update(table)
                .where(*(table.c[name] == sa.bindparam(f"of_{name}") for name in key))
                .values(**{name: sa.bindparam(name) for name in values})
            ),
        )
        writer.run(f"update_{what}", statement, {**{f"of_{name}": value for name, value in key.items()}, **values})
    else:
        writer.run(f"insert_{what}", sa.insert(table), [{**key, **values}])


# -- tags and retention ------------------------------------------------------------------------------------------------


def tags(reader: Reader) -> list[SnapshotTag]:
    """Return every tag, by name."""
    rows = rows_of(reader, "snapshot_tags", SnapshotTag.__slots__)
    return sorted((SnapshotTag(*row) for row in rows), key=lambda tag: tag.name)


def _tag(reader: Reader, name: str) -> SnapshotTag:
    known = {tag.name: tag for tag in tags(reader)}
    if name not in known:
        hint = nearest(name, known) or "lake.history.tags() lists them"
        raise NotFoundError(f'no snapshot has the tag "{name}"', hint=hint)
    return known[name]


def tagged(reader: Reader, name: str) -> Snapshot:
    """Return the snapshot that has a tag; raise ``SnapshotExpiredError`` when only the tag is left."""
    check_tag(name)
    tag = _tag(reader, name)
    try:
        return reader.snapshots.at_version(tag.snapshot_id)
    except NotFoundError:
        raise SnapshotExpiredError(
            f'the tag "{name}" names snapshot {tag.snapshot_id}, which another client has expired',
            hint="lake.history.untag() removes the tag",
        ) from None


def add_tag(writer: Writer, tag: SnapshotTag, *, replace: bool) -> None:
    """Give a snapshot a name. Raise ``AlreadyExistsError`` unless the tag may move."""
    table = needed(writer, "snapshot_tags")
    taken = next((known for known in tags(writer) if known.name == tag.name), None)
    if taken is not None and not replace:
        raise AlreadyExistsError(
            f'the tag "{tag.name}" names snapshot {taken.snapshot_id}', hint="pass replace=True to move it"
        )
    row = {"snapshot_id": tag.snapshot_id, "created": tag.created}
    _save(writer, "tag", table, {"name": tag.name}, taken is not None, **row)


def remove_tag(writer: Writer, name: str) -> None:
    """Take a name away. Raise ``NotFoundError``."""
    _tag(writer, name)
    table = needed(writer, "snapshot_tags")
    writer.run("delete_tag", sa.delete(table).where(table.c.name == name))


def retention(reader: Reader) -> dict[int, str]:
    """Return the tables that keep their history longer than the lake: table id -> for how long, as it was written."""
    return {row[0]: row[1] for row in rows_of(reader, "retention", ("table_id", "keep"))}


def put_retention(writer: Writer, table_id: int, keep: str | None) -> None:
    """Say how long a table keeps its history; None: as long as the lake does."""
    table = needed(writer, "retention")
    if keep is None:
        writer.run("delete_retention", sa.delete(table).where(table.c.table_id == table_id))
    else:
        _save(writer, "retention", table, {"table_id": table_id}, table_id in retention(writer), keep=keep)


# -- streams -----------------------------------------------------------------------------------------------------------


def streams(reader: Reader, name: str | None = None) -> list[StreamMark]:
    """Return the marks of every stream, or of one, by name."""
    return [StreamMark(*row) for row in rows_of(reader, "streams", StreamMark.__slots__, name=name)]


def find_stream(reader: Reader, name: str) -> StreamMark | None:
    """Return the mark of a stream."""
    return next(iter(streams(reader, name)), None)


def known_streams(reader: Reader, names: Sequence[str]) -> dict[str, StreamMark]:
    """Return the marks of those streams that have one, by name."""
    table = _table(reader, "streams")
    if table is None or not names:
        return {}

    def build() -> sa.Select[Any]:
        columns = [table.c[column] for column in StreamMark.__slots__]
        return sa.select(*columns).where(reader.backend.among(table.c.name, "names"))

    question = PreparedSelect(reader.cached("streams_of", build), {"names": list(names)}, fresh=True)
    with Step("streams_of"):
        rows = reader.backend.ask(reader.connection, question)
    return {row[0]: StreamMark(*row) for row in rows}


def count_streams(reader: Reader, prefix: str) -> int:
    """Return how many streams have names that begin so."""
    table = _table(reader, "streams")
    if table is None:
        return 0
    mine = sa.select(sa.func.count()).select_from(table).where(table.c.name.startswith(prefix, autoescape=True))
    return int(reader.run("count_streams", mine).scalar_one())


def streams_named(reader: Reader, prefix: str) -> list[StreamMark]:
    """Return the marks whose names begin so, by name."""
    table = _table(reader, "streams")
    if table is None:
        return []
    columns = [table.c[column] for column in StreamMark.__slots__]
    mine = table.c.name.startswith(prefix, autoescape=True)
    return [
        StreamMark(*row) for row in reader.run("streams_named", sa.select(*columns).where(mine).order_by(table.c.name))
    ]


def add_streams(writer: Writer, marks: Sequence[StreamMark]) -> None:
    """Write marks of names that have none."""
    table, few = needed(writer, "streams"), writer.backend.batch_rows
    rows = [[getattr(mark, column) for column in StreamMark.__slots__] for mark in marks]
    for start in range(0, len(rows), few):  # as many as may travel with other statements
        writer.insert_many("insert_streams", table, StreamMark.__slots__, rows[start : start + few])


def expire_streams(writer: Writer, prefix: str, before: int) -> int:
    """Remove the marks whose names begin so and whose epoch is lower; return how many."""
    table = needed(writer, "streams")
    old = (table.c.name.startswith(prefix, autoescape=True), table.c.epoch < before)
    return int(writer.run("expire_streams", sa.delete(table).where(*old)).rowcount)


def put_stream(writer: Writer, mark: StreamMark, *, new: bool) -> None:
    """Write a mark; ``new`` tells that the stream has none."""
    values = {column: getattr(mark, column) for column in StreamMark.__slots__ if column != "name"}
    table = needed(writer, "streams") if new else writer.meta.own["streams"]
    _save(writer, "stream", table, {"name": mark.name}, not new, **values)


def remove_stream(writer: Writer, name: str) -> None:
    """Forget a stream."""
    table = writer.meta.own["streams"]
    writer.run("delete_stream", sa.delete(table).where(table.c.name == name))


def checkpoints(reader: Reader, stream: str | None = None) -> list[Checkpoint]:
    """Return the checkpoints that are kept of every stream, or of one, oldest first."""
    return [Checkpoint(*row) for row in rows_of(reader, "checkpoints", Checkpoint.__slots__, stream=stream)]


def put_checkpoint(writer: Writer, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint, and forget those before the last ``keep`` that are finished."""
    table = needed(writer, "checkpoints")
    values = {name: getattr(checkpoint, name) for name in Checkpoint.__slots__}
    mine = table.c.stream == checkpoint.stream
    old = table.c.checkpoint_id <= checkpoint.checkpoint_id - keep
    writer.run("expire_checkpoints", sa.delete(table).where(mine, old, table.c.state == Checkpoint.FINISHED))
    writer.run("insert_checkpoint", sa.insert(table), [values])


def finish_checkpoint(writer: Writer, stream: str, checkpoint_id: int) -> None:
    """Note that every sink has shown the rows of a checkpoint."""
    table = needed(writer, "checkpoints")
    this = (table.c.stream == stream, table.c.checkpoint_id == checkpoint_id)
    writer.run("finish_checkpoint", sa.update(table).where(*this).values(state=Checkpoint.FINISHED))


def remove_checkpoints(writer: Writer, stream: str) -> None:
    """Forget the checkpoints of a stream."""
    table = _table(writer, "checkpoints")
    if table is not None:
        writer.run("delete_checkpoints", sa.delete(table).where(table.c.stream == stream))


# -- definitions -------------------------------------------------------------------------------------------------------
# Sources, sinks and pipelines, as their users wrote them.


def definitions(reader: Reader, kind: str | None = None) -> list[Definition]:
    """Return the definitions of a kind, or all, by name."""
    return [Definition(*row) for row in rows_of(reader, "definitions", Definition.__slots__, kind=kind)]


def put_definition(writer: Writer, definition: Definition) -> None:
    """Write a definition in place of one of the same kind and name."""
    remove_definition(writer, definition.kind, definition.name)
    values = {name: getattr(definition, name) for name in Definition.__slots__}
    writer.run("insert_definition", sa.insert(needed(writer, "definitions")), [values])


def remove_definition(writer: Writer, kind: str, name: str) -> None:
    """Remove a definition, if it is there."""
    table = needed(writer, "definitions")
    writer.run("delete_definition", sa.delete(table).where(table.c.kind == kind, table.c.name == name))


# -- leases ------------------------------------------------------------------------------------------------------------
# A lease says which process does a piece of work that only one at a time should do: a row with a holder and an end, by
# the clock of the database.


def take_lease(writer: Writer, lease_id: int, holder: str, milliseconds: int) -> int:
    """Make a lease one's own, or keep it longer; return how many milliseconds another still has it, or 0."""
    t = writer.meta.own["leases"]
    mine = t.c.lease_id == lease_id
    now = int(writer.run("clock", sa.select(writer.backend.now_ms())).scalar_one())
    row = writer.run("lease", sa.select(t.c.holder, t.c.expires_ms).where(mine)).first()
    if row is not None and row[0] != holder and row[1] > now:
        return int(row[1]) - now
    values = {"holder": holder, "expires_ms": now + milliseconds}
    _save(writer, "lease", t, {"lease_id": lease_id}, row is not None, **values)
    return 0


def end_lease(writer: Writer, lease_id: int, holder: str) -> None:
    """Give a lease back, if it is still this holder's."""
    t = writer.meta.own["leases"]
    writer.run("end_lease", sa.update(t).where(t.c.lease_id == lease_id, t.c.holder == holder).values(expires_ms=0))


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that somebody holds, and the milliseconds until it ends unless it is renewed."""

    holder: str
    left: int


def held_lease(reader: Reader, lease_id: int) -> HeldLease | None:
    """Return a lease; None when nobody holds it."""
    t = _table(reader, "leases")
    if t is None:
        return None  # another client created the lake
    found = sa.select(t.c.holder, t.c.expires_ms - reader.backend.now_ms()).where(t.c.lease_id == lease_id)
    row = reader.run("held_lease", found).first()
    return None if row is None or row[1] <= 0 else HeldLease(str(row[0]), int(row[1]))
