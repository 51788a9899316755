"""Migrating a lake from one format version to another, step by step.

Every step can be run again where it stopped: databases whose DDL commits by itself (MySQL) may stop inside one, all
others do everything or nothing. A step first adds what is missing, which older readers ignore, then changes rows and
the version together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from quacklake import telemetry
from quacklake.catalog.migrations import upgrade
from quacklake.catalog.tables import ADDED_BY, DEVELOPMENT, NEXT, VERSION, Tables, has_next, partial_max
from quacklake.catalog.writing.writer import Writer

Versions = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: the versions it starts from, its target, and what it does besides adding tables and columns.

    ``late`` is committed together with the change of the version, unless it alters a table.
    """

    origins: tuple[str, ...]
    target: str
    late: Callable[[_Work], None]
    renamed: Mapping[str, str] = field(default_factory=dict)


class _Work:
    """A migration under way: the tables as they will be, and the commit transaction."""

    def __init__(self, writer: Writer, tables: Tables) -> None:
        self.writer = writer
        self.tables = tables
        self.partial: list[tuple[int, int]] = []
        """Files of several snapshots with their newest, where that can be noted only after a column is gone."""

    def run(self, name: str, statement: Any, parameters: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        return self.writer.run(f"migrate_{name}", statement, parameters)

    def fill(self, name: str, column: str, value: Any) -> None:
        """Give a column a value where it has none."""
        table = self.tables[name]
        self.run("fill", sa.update(table).where(table.c[column].is_(None)).values({column: value}))

    def set_version(self, version: str) -> None:
        table = self.tables["metadata"]
        self.run("set_version", sa.update(table).where(table.c.key == "version").values(value=version))


def migrate(writer: Writer, target: str) -> tuple[str, ...]:
    """Bring the lake to a version; return the versions it has had, the first one being the old one."""
    schema = writer.meta.metadata.schema
    work = _Work(writer, Tables.of(VERSION, schema, shared=writer.meta.shared))
    table = work.tables["metadata"]
    version = sa.select(table.c.value).where(table.c.key == "version")
    passed = [str(work.run("version", version).scalar_one())]
    while passed[-1] not in (VERSION, NEXT, DEVELOPMENT, target):
        step = next((step for step in _STEPS if passed[-1] in step.origins), None)
        if step is None:
            break
        _take(work, step)
        telemetry.count("migrate.steps")
        passed.append(step.target)
    if passed[-1] != target and passed[-1] in (VERSION, NEXT, DEVELOPMENT):
        (upgrade.to_next if has_next(target) else upgrade.back)(writer)
        work.set_version(target)
        telemetry.count("migrate.steps")
        passed.append(target)
    return tuple(passed)


def _take(work: _Work, step: _Step) -> None:
    writer = work.writer
    for old, new in step.renamed.items():
        if writer.has_table(old):
            upgrade.alter(writer, "rename_table", old, f"RENAME TO {upgrade.quote_with(writer, new)}")
    added = ADDED_BY.get(step.target, {})
    for name, columns in added.items():
        if columns is None and not writer.has_table(work.tables[name].name):
            work.run("add_table", CreateTable(work.tables[name]))
    for name, columns in added.items():
        if columns is not None:
            upgrade.add_columns(writer, work.tables[name], columns)
    step.late(work)
    work.set_version(step.target)


# -- 0.1 -> 0.2 --------------------------------------------------------------------------------------------------------


def _place_objects(work: _Work) -> None:
    """Give schemas and tables a folder: files were named from the data path on.

    Let partition keys name the id of their column instead of its position in the table.
    """
    for name in ("schema", "table"):
        work.fill(name, "path", "")
        work.fill(name, "path_is_relative", True)
    keys, columns = work.tables["partition_column"], work.tables["column"]
    positions = work.run(
        "partition_keys", sa.select(keys.c.partition_id, keys.c.table_id, keys.c.partition_key_index, keys.c.column_id)
    ).all()
    if not positions:
        return
    owners = sorted({row.table_id for row in positions})
    top = sa.select(columns.c.table_id, columns.c.column_id, columns.c.end_snapshot).where(
        columns.c.table_id.in_(owners), columns.c.parent_column.is_(None)
    )
    live: dict[int, list[int]] = {}
    every: dict[int, list[int]] = {}
    for row in work.run("partitioned_columns", top.order_by(columns.c.column_order)):
        every.setdefault(row.table_id, []).append(row.column_id)
        if row.end_snapshot is None:
            live.setdefault(row.table_id, []).append(row.column_id)
    values = []
    for partition, table, index, position in positions:
        ids = live.get(table) or list(dict.fromkeys(every.get(table, ())))
        if position < len(ids):
            values.append({"partition": partition, "owner": table, "key": index, "id": ids[position]})
    statement = (
        sa.update(keys)
        .where(
            keys.c.partition_id == sa.bindparam("partition"),
            keys.c.table_id == sa.bindparam("owner"),
            keys.c.partition_key_index == sa.bindparam("key"),
        )
        .values(column_id=sa.bindparam("id"))
    )
    if values:
        work.run("name_partition_columns", statement, values)


# -- 0.2 -> 0.3 --------------------------------------------------------------------------------------------------------


def _note_versions(work: _Work) -> None:
    """Note that each schema version begins with the first snapshot that has it."""
    work.fill("name_mapping", "is_partition", False)
    versions, snapshots = work.tables["schema_versions"], work.tables["snapshot"]
    if work.run("any_version", sa.select(versions.c.schema_version).limit(1)).first() is None:
        first = sa.select(sa.func.min(snapshots.c.snapshot_id), snapshots.c.schema_version)
        grouped = first.group_by(snapshots.c.schema_version).order_by(snapshots.c.schema_version)
        work.run("note_versions", sa.insert(versions).from_select(["begin_snapshot", "schema_version"], grouped))


# -- 0.3 -> 0.4 --------------------------------------------------------------------------------------------------------

_PARTIAL = "partial_file_info"


def _refine(work: _Work) -> None:
    """Move the newest snapshot of a file of several into a column of its own, and give each table its versions."""
    work.fill("column", "default_value_type", "literal")
    _assign_versions(work)
    files = work.tables["data_file"]
    if _PARTIAL in upgrade.columns_of(work.writer, files.name):
        info: sa.ColumnElement[str] = sa.literal_column(_PARTIAL, sa.String())
        newest = partial_max(info)
        if work.writer.backend.name == "duckdb":
            # DuckDB alters no table whose rows the transaction has changed, and after ALTER … USING with a function a
            # process that is killed leaves a log that cannot be read again
            listed = sa.select(files.c.data_file_id, newest).where(newest.is_not(None))
            work.partial = [(row[0], row[1]) for row in work.run("partial_max", listed)]
            return
        work.run("partial_max", sa.update(files).where(newest.is_not(None)).values(partial_max=newest))


def _assign_versions(work: _Work) -> None:
    """Give each table its own schema versions, those at which it changed, in place of those of the whole lake."""
    versions, inlined = work.tables["schema_versions"], work.tables["inlined_data_tables"]
    shared = sa.select(versions.c.begin_snapshot, versions.c.schema_version).where(versions.c.table_id.is_(None))
    known = sorted((row[0], row[1]) for row in work.run("versions", shared))
    if not known:
        return
    wanted = {(row[0], row[1]) for row in work.run("inlined", sa.select(inlined.c.table_id, inlined.c.schema_version))}
    assigned = table_versions(_table_changes(work), known, wanted)
    rows = [{"begin_snapshot": b, "schema_version": v, "table_id": t} for t, b, v in assigned]
    if rows:
        work.run("assign_versions", sa.insert(versions), rows)
    work.run("drop_versions", sa.delete(versions).where(versions.c.table_id.is_(None)))


def _table_changes(work: _Work) -> dict[int, set[int]]:
    """Return the snapshots at which each table was made, renamed or got or lost a column."""
    tables, columns = work.tables["table"], work.tables["column"]
    lives: dict[int, list[tuple[int, int | None]]] = {}
    for id_, begin, end in work.run(
        "tables", sa.select(tables.c.table_id, tables.c.begin_snapshot, tables.c.end_snapshot)
    ):
        lives.setdefault(id_, []).append((begin, end))
    changes = {id_: {begin for begin, _ in rows} for id_, rows in lives.items()}
    for id_, begin, end in work.run(
        "table_columns", sa.select(columns.c.table_id, columns.c.begin_snapshot, columns.c.end_snapshot)
    ):
        # the columns of a dropped table end with it: that is no change of its shape
        dates = (date for date in (begin, end) if date is not None)
        alive = {date for date in dates if any(b <= date and (e is None or date < e) for b, e in lives.get(id_, ()))}
        changes.setdefault(id_, set()).update(alive)
    return changes


def table_versions(
    changes: Mapping[int, Iterable[int]], known: Versions, inlined: Iterable[tuple[int, int]] = ()
) -> list[tuple[int, int, int]]:
    """Return the schema versions of each table, as (table, first snapshot, version).

    ``changes`` are the snapshots at which each table changed, ``known`` (first snapshot, version) of the whole lake in
    order, ``inlined`` the tables and versions that inlined rows are kept under, which must be found too.
    """
    begins = [begin for begin, _ in known]
    first = {version: begin for begin, version in reversed(known)}
    versions: dict[tuple[int, int], int] = {}
    for table, dates in changes.items():
        for date in sorted(dates):
            at = bisect_right(begins, date) - 1
            # of the changes in expired snapshots only the last is still visible
            versions[(table, known[max(at, 0)][1])] = date
    for table, version in inlined:
        if version in first and table in changes:
            versions.setdefault((table, version), first[version])
    return sorted((table, begin, version) for (table, version), begin in versions.items())


# -- 0.4 -> 1.0 --------------------------------------------------------------------------------------------------------


def _drop_partial_info(work: _Work) -> None:
    """Drop what 0.4 has no more. Only now: a lake on its way there from 0.3 still reads it."""
    files = work.tables["data_file"]
    if _PARTIAL in upgrade.columns_of(work.writer, files.name):
        upgrade.drop_column(work.writer, files.name, _PARTIAL)
    if work.partial:
        noted = sa.update(files).where(files.c.data_file_id == sa.bindparam("file"))
        rows = [{"file": file, "newest": newest} for file, newest in work.partial]
        work.run("note_partial_max", noted.values(partial_max=sa.bindparam("newest")), rows)


_STEPS = (
    _Step(("0.1",), "0.2", _place_objects),
    _Step(
        ("0.2", "0.3-dev1"),
        "0.3",
        _note_versions,
        renamed={"ducklake_file_column_statistics": "ducklake_file_column_stats"},
    ),
    _Step(("0.3", "0.4-dev1"), "0.4", _refine),
    _Step(("0.4",), "1.0", _drop_partial_info),
)
