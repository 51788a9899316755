"""The names of snapshots and the retention of tables, in tables of our own that stock clients do not see."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.tables import readable_time
from quacklake.catalog.writing.writer import Writer
from quacklake.errors import AlreadyExistsError, NotFoundError, ReadOnlyError, SnapshotExpiredError, nearest
from quacklake.format.snapshots import Snapshot, SnapshotTag, check_tag


def _table(reader: Reader, name: str) -> sa.Table | None:
    """Return one of our tables, or None in a lake that another client made and we never wrote."""
    table = reader.meta.own[name]
    return table if reader.has_table(table.name) else None


def _needed(writer: Writer, name: str) -> sa.Table:
    table = _table(writer, name)
    if table is None:
        raise ReadOnlyError(f"no right to create the table quacklake_{name} in this catalog")
    return table


def tags(reader: Reader) -> list[SnapshotTag]:
    """Return every tag, by name."""
    table = _table(reader, "snapshot_tags")
    if table is None:
        return []
    created = readable_time(table.c.created, reader.backend.name, "created")
    statement = sa.select(table.c.name, table.c.snapshot_id, created).order_by(table.c.name)
    return sorted((SnapshotTag(*row) for row in reader.run("snapshot_tags", statement)), key=lambda tag: tag.name)


def tagged(reader: Reader, name: str) -> Snapshot:
    """Return the snapshot that has a tag.

    Raise ``NotFoundError``; ``SnapshotExpiredError`` when only the tag is left.
    """
    check_tag(name)
    known = {tag.name: tag for tag in tags(reader)}
    if name not in known:
        raise NotFoundError(
            f'no snapshot has the tag "{name}"', hint=nearest(name, known) or "lake.history.tags() lists them"
        )
    try:
        return reader.snapshots.at_version(known[name].snapshot_id)
    except NotFoundError:
        raise SnapshotExpiredError(
            f'the tag "{name}" names snapshot {known[name].snapshot_id}, which another client has expired',
            hint="lake.history.untag() removes the tag",
        ) from None


def add_tag(writer: Writer, tag: SnapshotTag, *, replace: bool) -> None:
    """Give a snapshot a name. Raise ``AlreadyExistsError`` unless the tag may move."""
    table = _needed(writer, "snapshot_tags")
    taken = next((known for known in tags(writer) if known.name == tag.name), None)
    if taken is not None and not replace:
        raise AlreadyExistsError(
            f'the tag "{tag.name}" names snapshot {taken.snapshot_id}', hint="pass replace=True to move it"
        )
    row = {"snapshot_id": tag.snapshot_id, "created": tag.created}
    if taken is None:
        writer.run("insert_tag", sa.insert(table), [{"name": tag.name, **row}])
    else:
        writer.run("update_tag", sa.update(table).where(table.c.name == tag.name).values(**row))


def remove_tag(writer: Writer, name: str) -> None:
    """Take a name away. Raise ``NotFoundError``."""
    known = [tag.name for tag in tags(writer)]
    if name not in known:
        raise NotFoundError(
            f'no snapshot has the tag "{name}"', hint=nearest(name, known) or "lake.history.tags() lists them"
        )
    table = _needed(writer, "snapshot_tags")
    writer.run("delete_tag", sa.delete(table).where(table.c.name == name))


def retention(reader: Reader) -> dict[int, str]:
    """Return the tables that keep their history longer than the lake: table id -> for how long, as it was written."""
    table = _table(reader, "retention")
    if table is None:
        return {}
    return {row[0]: row[1] for row in reader.run("retention", sa.select(table.c.table_id, table.c.keep))}


def put_retention(writer: Writer, table_id: int, keep: str | None) -> None:
    """Say how long a table keeps its history; None: as long as the lake does."""
    table = _needed(writer, "retention")
    mine = table.c.table_id == table_id
    if keep is None:
        writer.run("delete_retention", sa.delete(table).where(mine))
    elif table_id in retention(writer):
        writer.run("update_retention", sa.update(table).where(mine).values(keep=keep))
    else:
        writer.run("insert_retention", sa.insert(table), [{"table_id": table_id, "keep": keep}])


def _unknown(name: str, known: Collection[str]) -> NotFoundError:
    hint = nearest(name, known) or "lake.history.tags() lists them"
    return NotFoundError(f'no snapshot has the tag "{name}"', hint=hint)
