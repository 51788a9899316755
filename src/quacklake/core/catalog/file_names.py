"""The files that the catalog names, and where each of them is, in pages: memory does not depend on their number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.database import Database, Failure
from quacklake.core.catalog.expiring import dead_data_file, dead_delete
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.shared_lake import other_lakes
from quacklake.core.catalog.statements import SOME, parts
from quacklake.core.catalog.tables import readable_time
from quacklake.core.catalog.writing.files import SCHEDULED
from quacklake.core.catalog.writing.writer import Writer

PAGE = 10_000
"""Files that are looked at together."""

_TRUE = ("1", "true", "t")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as a row of the catalog names it: ``path`` is below ``folder``, that below the data root, if relative."""

    id: int
    table_id: int
    is_delete: bool
    path: str
    is_relative: bool
    folder: str
    folder_is_relative: bool
    size: int


@dataclass(frozen=True, slots=True)
class DeadFiles:
    """The number of files of one kind of a table that no snapshot sees, and their bytes."""

    table_id: int
    is_delete: bool
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ScheduledFile:
    """A file that is in no snapshot any more; ``path`` is below the data root unless ``is_relative`` is false."""

    id: int
    path: str
    is_relative: bool
    since: dt.datetime | None


# -- rows of files -----------------------------------------------------------------------------------------------------


def _dead(writer: Writer, name: str, tables: Sequence[int] | None) -> sa.ColumnElement[bool]:
    """Return the condition that holds for the files that no snapshot sees; with ``tables`` for all of these tables."""
    t = writer.meta[name]
    if tables is not None:
        return t.c.table_id.in_(tables)
    return dead_data_file(t.c.data_file_id) if name == "data_file" else dead_delete(writer)


def dead_files(writer: Writer, tables: Sequence[int] | None = None) -> Iterator[list[NamedFile]]:
    """Yield the files that no snapshot sees, data files first; with ``tables`` all of these tables."""
    for name in ("data_file", "delete_file"):
        yield from _pages(writer, name, [_dead(writer, name, tables)])


def sum_dead_files(writer: Writer, tables: Sequence[int] | None = None) -> list[DeadFiles]:
    """Return how many files ``dead_files`` gives, by table and kind, and their bytes."""
    sums = []
    for name in ("data_file", "delete_file"):
        t = writer.meta[name]
        total = sa.select(t.c.table_id, sa.func.count(), sa.func.sum(t.c.file_size_bytes))
        rows = writer.run(f"dead_{name}s", total.where(_dead(writer, name, tables)).group_by(t.c.table_id))
        sums += [DeadFiles(row[0], name == "delete_file", row[1], int(row[2] or 0)) for row in rows]
    return sums


def all_files(reader: Reader, since: int = 0) -> Iterator[list[NamedFile]]:
    """Yield all files whose ids are ``since`` or later ones."""
    for name in ("data_file", "delete_file"):
        yield from _pages(reader, name, [], since)


def absolute_files(reader: Reader) -> Iterator[list[NamedFile]]:
    """Yield the files that are not named by a path below the data root, wherever they are."""
    outside = [id_ for id_, (_, relative) in folders(reader).items() if not relative]
    for name in ("data_file", "delete_file"):
        t = reader.meta[name]
        # sqlite_scanner also stores booleans as text
        absolute = sa.cast(t.c.path_is_relative, sa.String).not_in(_TRUE)
        yield from _pages(reader, name, [absolute])
        for some in parts(outside):
            yield from _pages(reader, name, [~absolute, t.c.table_id.in_(some)])


def named_among(reader: Reader, tails: Sequence[str]) -> Iterator[NamedFile]:
    """Yield the files whose path in the catalog is one of these."""
    known = folders(reader)
    for some in parts(tails, 4 * SOME):
        for name in ("data_file", "delete_file"):
            t = reader.meta[name]
            for row in reader.run(f"named_{name}", _select(t, _key(t, name)).where(t.c.path.in_(some))):
                yield _name_file(row, known, name)


def _key(table: sa.Table, name: str) -> sa.Column[Any]:
    return table.c[f"{name}_id"]


def _select(t: sa.Table, key: sa.Column[Any]) -> sa.Select[Any]:
    return sa.select(key, t.c.table_id, t.c.path, t.c.path_is_relative, t.c.file_size_bytes)


def _name_file(row: Any, known: dict[int, tuple[str, bool]], name: str) -> NamedFile:
    id_, table_id, path, relative, size = row
    folder, inside = known.get(table_id, ("", True))
    return NamedFile(id_, table_id, name == "delete_file", path or "", relative is not False, folder, inside, size or 0)


def _pages(
    reader: Reader, name: str, where: Sequence[sa.ColumnElement[bool]], since: int = 0
) -> Iterator[list[NamedFile]]:
    table = reader.meta[name]
    key = _key(table, name)
    known = folders(reader)
    last = since - 1
    while True:
        statement = _select(table, key).where(key > last, *where).order_by(key).limit(PAGE)
        rows = reader.run(f"{name}_page", statement).all()
        if rows:
            last = rows[-1][0]
            yield [_name_file(row, known, name) for row in rows]
        if len(rows) < PAGE:
            return


def folders(reader: Reader) -> dict[int, tuple[str, bool]]:
    """Return the folder of every table, and whether it is below the data root."""
    t, s = reader.meta["table"], reader.meta["schema"]
    statement = (
        sa.select(t.c.table_id, t.c.path, t.c.path_is_relative, s.c.path, s.c.path_is_relative)
        .join_from(t, s, s.c.schema_id == t.c.schema_id)
        .order_by(t.c.begin_snapshot)
    )
    folders: dict[int, tuple[str, bool]] = {}
    for id_, path, relative, schema_path, schema_relative in reader.run("table_folders", statement):
        if relative is False:
            folders[id_] = (path or "", False)
        else:
            folders[id_] = ((schema_path or "") + (path or ""), schema_relative is not False)
    return folders


def shared_paths(reader: Reader) -> set[str]:
    """Return the paths that more than one row has."""
    paths: set[str] = set()
    for name in ("data_file", "delete_file"):
        t = reader.meta[name]
        twice = sa.select(t.c.path).group_by(t.c.path).having(sa.func.count() > 1)
        paths.update(row[0] for row in reader.run("shared_paths", twice) if row[0] is not None)
    return paths


# -- files that wait to be removed -------------------------------------------------------------------------------------


def schedule(writer: Writer, files: Iterable[tuple[int, str]], time: dt.datetime) -> None:
    """Leave files, by id and path below the data root, to the cleanup of old files."""
    rows = [(id_, path, True, time) for id_, path in files]
    writer.insert("files_scheduled_for_deletion", SCHEDULED, rows)


def schedule_dead(writer: Writer, tables: Sequence[int] | None, time: dt.datetime) -> None:
    """Schedule the files of ``dead_files``, all of them below the data root, without looking at each."""
    target, folder = writer.meta["files_scheduled_for_deletion"], writer.meta["table"]
    schema = writer.meta["schema"]
    # a table that was renamed has several rows
    last = (
        sa.select(folder.c.table_id, sa.func.max(folder.c.begin_snapshot).label("begin_snapshot"))
        .group_by(folder.c.table_id)
        .subquery()
    )
    for name in ("data_file", "delete_file"):
        t = writer.meta[name]
        mine = sa.and_(folder.c.table_id == last.c.table_id, folder.c.begin_snapshot == last.c.begin_snapshot)
        source = (
            t.join(last, last.c.table_id == t.c.table_id)
            .join(folder, mine)
            .join(schema, schema.c.schema_id == folder.c.schema_id)
        )
        path = schema.c.path + folder.c.path + t.c.path
        constants = (sa.literal(True, target.c.path_is_relative.type), sa.literal(time, target.c.schedule_start.type))
        select = sa.select(_key(t, name), path, *constants).select_from(source).where(_dead(writer, name, tables))
        columns = (target.c.data_file_id, target.c.path, target.c.path_is_relative, target.c.schedule_start)
        writer.run("insert_files_scheduled_for_deletion", sa.insert(target).from_select(columns, select))


def scheduled(reader: Reader, after: int, limit: int) -> list[ScheduledFile]:
    """Return the next files that wait for the cleanup, by id: about ``limit``, and all files of each id."""
    t = reader.meta["files_scheduled_for_deletion"]
    time = readable_time(t.c.schedule_start, reader.backend.name, "schedule_start")
    ids = sa.select(t.c.data_file_id).where(t.c.data_file_id > after).order_by(t.c.data_file_id).limit(limit)
    next_ids = [row[0] for row in reader.run("scheduled_ids", ids)]
    if not next_ids:
        return []
    statement = sa.select(t.c.data_file_id, t.c.path, t.c.path_is_relative, time).where(
        t.c.data_file_id > after, t.c.data_file_id <= next_ids[-1]
    )
    rows = reader.run("scheduled_files", statement.order_by(t.c.data_file_id, t.c.path))
    return [ScheduledFile(row[0], row[1] or "", row[2] is not False, row[3]) for row in rows]


def unschedule(writer: Writer, files: Sequence[ScheduledFile]) -> None:
    """Forget that files wait for the cleanup."""
    t = writer.meta["files_scheduled_for_deletion"]
    paths: dict[int, list[str]] = {}
    for file in files:
        paths.setdefault(file.id, []).append(file.path)
    once = [id_ for id_, names in paths.items() if len(names) == 1]
    several = [(id_, path) for id_, names in paths.items() if len(names) > 1 for path in names]
    for some in parts(once):
        named = [paths[id_][0] for id_ in some]
        writer.run("unschedule", sa.delete(t).where(t.c.data_file_id.in_(some), t.c.path.in_(named)))
    for id_, path in several:
        writer.run("unschedule", sa.delete(t).where(t.c.data_file_id == id_, t.c.path == path))


def other_data_paths(reader: Reader, root: str) -> list[str]:
    """Return the data paths of the other lakes in the same database that are ``root`` (with its slash) or below it."""
    paths = lake_data_paths(reader.connection, reader.backend, reader.meta.metadata.schema)
    return [path for path in paths if f"{path}/".startswith(root)]


def lake_data_paths(connection: Connection, database: Database, metadata_schema: str | None) -> list[str]:
    """Return the data paths of the lakes in the other schemas of a database, without this lake's exposed catalogs."""
    if database.name == "sqlite":
        return []
    mine = str(metadata_schema or sa.inspect(connection).default_schema_name)
    data_paths: list[str] = []
    for schema in _schemas_of_lakes(connection, database, mine):
        if schema == mine:
            continue
        columns = (sa.Column(name, sa.String) for name in ("key", "value"))
        t = scoped.registry(sa.Table("ducklake_metadata", sa.MetaData(), *columns, schema=schema))
        try:
            paths = connection.execute(sa.select(t.c.value).where(t.c.key == "data_path")).all()
        except sa.exc.DBAPIError as error:
            # another lake was dropped since; on PostgreSQL the transaction cannot go on
            if database.name != "mysql" or database.classify(error.orig or error) is not Failure.ABSENT:
                raise
            continue
        data_paths += [row[0] for row in paths if row[0]]
    return data_paths


def _schemas_of_lakes(connection: Connection, database: Database, mine: str) -> list[str]:
    """Return the schemas that hold the metadata of a lake."""
    if database.name == "postgres":
        return other_lakes(connection, mine)
    names = ("table_schema", "table_name", "table_catalog", "table_type")
    tables = sa.table("tables", *(sa.column(name) for name in names), schema="information_schema")
    named = (tables.c.table_name == "ducklake_metadata", tables.c.table_type == "BASE TABLE")
    statement = sa.select(tables.c.table_schema).where(*named)
    if database.name == "duckdb":
        statement = statement.where(tables.c.table_catalog == sa.func.current_database())
    return [str(schema) for (schema,) in connection.execute(statement)]
