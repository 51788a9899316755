"""Migrating a lake from one format version to another, step by step up to 1.0, and between 1.0 and 1.1.

Every step can be run again where it stopped: databases whose DDL commits by itself (MySQL) may stop inside one, all
others do everything or nothing. A step first adds what is missing, which older readers ignore, then changes rows and
the version together. A catalog of a shared lake has the columns of 1.1 in any case; only its rows change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn, CreateTable, DropTable

from quacklake import telemetry
from quacklake.core.catalog import scoped
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.core.catalog.tables import (
    ADDED_BY,
    ADDED_COLUMNS,
    ADDED_TABLES,
    DEVELOPMENT,
    NEXT,
    VERSION,
    Part,
    Tables,
    has_next,
    partial_max,
)
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.format.inline import LIFE, PREFIX, data_table_name
from quacklake.core.format.names import quote
from quacklake.core.format.types import NEW_TYPES
from quacklake.errors import UnsupportedFeatureError

Versions = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: the versions it starts from, its target, and what it does besides adding tables and columns."""

    origins: tuple[str, ...]
    target: str
    late: Callable[[_Migration], None]
    renamed: Mapping[str, str] = field(default_factory=dict)


class _Migration:
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
    work = _Migration(writer, Tables.of(VERSION, schema, shared=writer.meta.shared))
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
        (to_next if has_next(target) else back)(writer)
        work.set_version(target)
        telemetry.count("migrate.steps")
        passed.append(target)
    return tuple(passed)


def _take(work: _Migration, step: _Step) -> None:
    writer = work.writer
    for old, new in step.renamed.items():
        if writer.has_table(old):
            alter(writer, "rename_table", old, f"RENAME TO {quote_with(writer, new)}")
    added = ADDED_BY.get(step.target, {})
    for name, columns in added.items():
        if columns is None and not writer.has_table(work.tables[name].name):
            work.run("add_table", CreateTable(work.tables[name]))
    for name, columns in added.items():
        if columns is not None:
            add_columns(writer, work.tables[name], columns)
    step.late(work)
    work.set_version(step.target)


# -- 0.1 -> 0.2 --------------------------------------------------------------------------------------------------------


def _place_objects(work: _Migration) -> None:
    """Give schemas and tables a folder, for files were named from the data path on, and partition keys column ids."""
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


def _note_versions(work: _Migration) -> None:
    """Note that each schema version begins with the first snapshot that has it."""
    work.fill("name_mapping", "is_partition", False)
    versions, snapshots = work.tables["schema_versions"], work.tables["snapshot"]
    if work.run("any_version", sa.select(versions.c.schema_version).limit(1)).first() is None:
        first = sa.select(sa.func.min(snapshots.c.snapshot_id), snapshots.c.schema_version)
        grouped = first.group_by(snapshots.c.schema_version).order_by(snapshots.c.schema_version)
        work.run("note_versions", sa.insert(versions).from_select(["begin_snapshot", "schema_version"], grouped))


# -- 0.3 -> 0.4 --------------------------------------------------------------------------------------------------------

_PARTIAL = "partial_file_info"


def _refine(work: _Migration) -> None:
    """Move the newest snapshot of a file of several into its own column, and give each table its versions."""
    work.fill("column", "default_value_type", "literal")
    _assign_versions(work)
    files = work.tables["data_file"]
    if _PARTIAL in columns_of(work.writer, files.name):
        info: sa.ColumnElement[str] = sa.literal_column(_PARTIAL, sa.String())
        newest = partial_max(info)
        if work.writer.backend.name == "duckdb":
            # DuckDB alters no table whose rows the transaction has changed, and after ALTER … USING with a function a
            # process that is killed leaves a log that cannot be read again
            listed = sa.select(files.c.data_file_id, newest).where(newest.is_not(None))
            work.partial = [(row[0], row[1]) for row in work.run("partial_max", listed)]
            return
        work.run("partial_max", sa.update(files).where(newest.is_not(None)).values(partial_max=newest))


def _assign_versions(work: _Migration) -> None:
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


def _table_changes(work: _Migration) -> dict[int, set[int]]:
    """Return the snapshots at which each table was created or renamed, or gained or lost a column."""
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
        # the columns of a dropped table end with it, which is not a change of its shape
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


def _drop_partial_info(work: _Migration) -> None:
    """Drop what 0.4 has no more. Only now: a lake on its way there from 0.3 still reads it."""
    files = work.tables["data_file"]
    if _PARTIAL in columns_of(work.writer, files.name):
        drop_column(work.writer, files.name, _PARTIAL)
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


# -- 1.0 <-> 1.1 -------------------------------------------------------------------------------------------------------

LAST = "ducklake_view_column_tag"
"""The part that ``widen`` adds last: a lake that has it has everything."""


def to_next(writer: Writer) -> None:
    """Make a lake of 1.0, or of 1.1 in development, one of 1.1, all but its version."""
    if writer.meta.shared:
        widen(writer, SharedTables.of(writer.meta.metadata.schema).definitions)
        return
    tables = _find_inlined_tables(writer)
    _check_names(writer, tables)
    wide = Tables.of(NEXT, writer.meta.metadata.schema)
    widen(writer, {f"ducklake_{name}": wide[name] for name in (*ADDED_COLUMNS, *ADDED_TABLES)})
    for name in tables:
        _rename(writer, name, "", PREFIX)


def widen(writer: Writer, tables: Any) -> None:
    """Add the columns and tables of 1.1 that are missing; ``tables`` has them as they shall be, by their names."""
    for name, column in _added_columns():
        add_columns(writer, tables[f"ducklake_{name}"], [column])
    for name in ADDED_TABLES:
        table = tables[f"ducklake_{name}"]
        if not columns_of(writer, table.name):
            writer.run("migrate_add_table", CreateTable(table))


def back(writer: Writer) -> None:
    """Make a lake of 1.1 one of 1.0, all but its version, without what 1.0 has no column for.

    Raise ``UnsupportedFeatureError`` with what is against it.
    """
    obstacles = list(_obstacles(writer))
    if obstacles:
        raise UnsupportedFeatureError(
            f"the lake cannot go back to the format version {VERSION}: {'; '.join(obstacles)}",
            hint="drop these, let the snapshots that show them expire, and flush inlined rows",
        )
    _count_unknown(writer)
    # 1.1 keeps what expired snapshots changed
    snapshots, changes = writer.meta["snapshot"], writer.meta["snapshot_changes"]
    expired = changes.c.snapshot_id.not_in(sa.select(snapshots.c.snapshot_id))
    writer.run("migrate_changes", sa.delete(changes).where(expired))
    if writer.meta.shared:
        _clear(writer)
        return
    schema = writer.meta.metadata.schema
    for name in _find_inlined_tables(writer):
        _rename(writer, name, PREFIX, "")
    for name, column in _added_columns():
        if column in columns_of(writer, f"ducklake_{name}"):
            drop_column(writer, f"ducklake_{name}", column)
    for name in ADDED_TABLES:
        if columns_of(writer, f"ducklake_{name}"):
            writer.run("migrate_drop_table", DropTable(sa.Table(f"ducklake_{name}", sa.MetaData(), schema=schema)))


def _added_columns() -> list[tuple[str, str]]:
    """Return the columns that 1.1 adds, in the order of the format: stock DuckLake inserts by position."""
    return [(table, part.split(":")[0]) for table, columns in ADDED_COLUMNS.items() for part in columns.split()]


def columns_of(writer: Writer, name: str) -> list[str]:
    """Return the present columns of a table; none if it does not exist."""
    return writer.backend.column_names(writer.connection, name, writer.meta.metadata.schema)


def quote_with(writer: Writer, name: str) -> str:
    """Return a name in the database's own quotes."""
    return writer.connection.dialect.identifier_preparer.quote(name)


def add_columns(writer: Writer, table: sa.Table, columns: Iterable[str]) -> None:
    """Add those of some columns that a table lacks."""
    present = columns_of(writer, table.name)
    for column in columns:
        if column not in present:
            declared = CreateColumn(table.c[column]).compile(dialect=writer.connection.dialect)
            alter(writer, "add_column", table.name, f"ADD COLUMN {declared}")


def drop_column(writer: Writer, table: str, column: str) -> None:
    """Drop a column."""
    alter(writer, "drop_column", table, f"DROP COLUMN {quote_with(writer, column)}")


def alter(writer: Writer, name: str, table: str, what: str) -> None:
    """Alter a table as it is in the database; fault points bear the name."""
    full = writer.connection.dialect.identifier_preparer.format_table(
        scoped.registry(sa.Table(table, sa.MetaData(), schema=writer.meta.metadata.schema))
    )
    writer.run(f"migrate_{name}", sa.text(f"ALTER TABLE {full} {what}".replace(":", "\\:")))


# -- tables of inlined rows --------------------------------------------------------------------------------------------


def _find_inlined_tables(writer: Writer) -> list[str]:
    """Return the tables of inlined rows that the catalog names and that exist."""
    t = writer.meta["inlined_data_tables"]
    rows = writer.run("migrate_inlined_tables", sa.select(t.c.table_id, t.c.schema_version, t.c.table_name)).all()
    names = sorted({row[2] for row in rows if row[2] == data_table_name(row[0], row[1])})
    return [name for name in names if columns_of(writer, name)]


def _check_names(writer: Writer, tables: Iterable[str]) -> None:
    """Raise ``UnsupportedFeatureError`` when a column of a user has a name that 1.1 keeps for itself."""
    reserved = {PREFIX + name for name in LIFE}
    taken = [
        f"{name}: {column}"
        for name in tables
        for column in columns_of(writer, name)[len(LIFE) :]
        if column.lower() in reserved
    ]
    if taken:
        raise UnsupportedFeatureError(
            f"the format version {NEXT} reserves the names of these columns: {', '.join(taken)}",
            hint="rename the columns, and write their inlined rows into files with flush_inlined_data()",
        )


def _rename(writer: Writer, table: str, old: str, new: str) -> None:
    """Rename the first columns of a table of inlined rows, unless they have their new names already."""
    for column, name in zip(columns_of(writer, table), LIFE, strict=False):
        if column == old + name:
            pair = (quote_with(writer, old + name), quote_with(writer, new + name))
            alter(writer, "rename_column", table, f"RENAME COLUMN {pair[0]} TO {pair[1]}")


# -- the way back ------------------------------------------------------------------------------------------------------


def _obstacles(writer: Writer) -> Iterator[str]:
    """Yield what a lake holds that 1.0 has no place for."""
    t = writer.meta
    s, c, u, p = t["schema"], t["column"], t["table"], t["partition_column"]
    d, m, q = t["delete_file"], t["macro"], t["macro_parameters"]
    if ("schema", "parent_schema_id") in t.parts:
        yield from _name_obstacles(
            writer, "nested schemas", sa.select(s.c.schema_name).where(s.c.parent_schema_id.is_not(None))
        )
    columns = sa.select(u.c.table_name, c.c.column_name).join_from(c, u, u.c.table_id == c.c.table_id)
    for type_ in NEW_TYPES:
        yield from _name_obstacles(writer, f"columns of the type {type_}", columns.where(c.c.column_type == type_))
    keys = sa.select(u.c.table_name, p.c.transform).join_from(p, u, u.c.table_id == p.c.table_id)
    yield from _name_obstacles(writer, "partitions by epochs", keys.where(p.c.transform.like("epoch%")))
    several = (d.c.format == "puffin", sa.or_(d.c.footer_size > 0, d.c.partial_max.is_not(None)))
    yield from _name_obstacles(writer, "deletion vectors of several snapshots", sa.select(d.c.path).where(*several))
    parameters = sa.select(m.c.macro_name, q.c.parameter_name).join_from(q, m, m.c.macro_id == q.c.macro_id)
    expressions = parameters.where(q.c.default_value_type == "expression")
    yield from _name_obstacles(writer, "macros with an expression as default", expressions)
    yield from _inlined_variants(writer)


_SHOWN = 5


def _name_obstacles(writer: Writer, what: str, names: sa.Select[Any]) -> Iterator[str]:
    rows = writer.run("migrate_obstacles", names.distinct().limit(_SHOWN + 1)).all()
    if rows:
        shown = [".".join(quote(str(part)) for part in row) for row in rows[:_SHOWN]]
        yield f"{what} ({', '.join(shown)}{', …' if len(rows) > _SHOWN else ''})"


def _inlined_variants(writer: Writer) -> Iterator[str]:
    """Yield tables that hold variants among their inlined rows; 1.0 inlines none outside of DuckDB."""
    if writer.backend.name == "duckdb" and not writer.meta.shared:
        return
    t, c, u = writer.meta["inlined_data_tables"], writer.meta["column"], writer.meta["table"]
    listed = (
        sa.select(t.c.table_id, t.c.schema_version, u.c.table_name)
        .join_from(t, u, u.c.table_id == t.c.table_id)
        .where(t.c.table_id.in_(sa.select(c.c.table_id).where(c.c.column_type == "variant")))
        .distinct()
    )
    for table_id, version, name in writer.run("migrate_variants", listed).all():
        rows = writer.inlined.lives(table_id, version)
        if writer.run("migrate_variant_rows", sa.select(rows.c.row_id).limit(1)).first() is not None:
            yield f"inlined rows with variants ({quote(name)})"


def _count_unknown(writer: Writer) -> None:
    """Give tables whose totals are not known those of their files: in 1.0 they always are."""
    t, f = writer.meta["table_stats"], writer.meta["data_file"]
    for name in ("record_count", "file_size_bytes"):
        total = (
            sa.select(sa.func.coalesce(sa.func.sum(f.c[name]), 0)).where(f.c.table_id == t.c.table_id).scalar_subquery()
        )
        unknown = sa.select(t.c.table_id).where(t.c[name].is_(None)).limit(1)
        if writer.run("migrate_unknown_totals", unknown).first() is not None:
            writer.run("migrate_totals", sa.update(t).where(t.c[name].is_(None)).values({name: total}))


def _clear(writer: Writer) -> None:
    """Take the values of 1.1 out of the rows of a catalog of a shared lake, whose tables keep their columns."""
    for name, column in _added_columns():
        if (name, column) in writer.meta.parts:
            t = writer.meta[name]
            writer.run("migrate_clear", sa.update(t).where(t.c[column].is_not(None)).values({column: None}))
    for name in ADDED_TABLES:
        part: Part = (name, None)
        if part in writer.meta.parts:
            writer.run("migrate_clear", sa.delete(writer.meta[name]))
