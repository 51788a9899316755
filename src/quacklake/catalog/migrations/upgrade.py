"""Migrating from format version 1.0 to 1.1, and back where a lake holds nothing that 1.0 cannot store.

Every statement can be run again after a failure, for databases whose DDL commits by itself. A catalog of a shared lake
has the columns of 1.1 in any case; only its rows change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn, CreateTable, DropTable

from quacklake.catalog import scoped
from quacklake.catalog.shared_tables import SharedTables
from quacklake.catalog.tables import ADDED_COLUMNS, ADDED_TABLES, NEXT, VERSION, Part, Tables
from quacklake.catalog.writing.writer import Writer
from quacklake.errors import UnsupportedFeatureError
from quacklake.format.inline import PREFIX, data_table_name
from quacklake.format.names import quote
from quacklake.format.packed import LIFE

LAST = "ducklake_view_column_tag"
"""The part that ``widen`` adds last: a lake that has it has everything."""

_NEW_TYPES = ("null", "timestamptz_ns")
"""Types that a client of 1.0 does not know."""


def to_next(writer: Writer) -> None:
    """Make a lake of 1.0, or of 1.1 in development, one of 1.1, all but its version."""
    if writer.meta.shared:
        widen(writer, SharedTables.of(writer.meta.metadata.schema).definitions)
        return
    tables = _registered(writer)
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
    """Make a lake of 1.1 one of 1.0, all but its version. Raise ``UnsupportedFeatureError`` with what is against it.

    Comments on the columns of views, and what else 1.0 has no column for, are gone then.
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
    for name in _registered(writer):
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
    """Return the columns that a table has now; none when there is no such table."""
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


def _registered(writer: Writer) -> list[str]:
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
    """Give the first columns of a table of inlined rows their other names, as far as they have not got them."""
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
        yield from _named(writer, "nested schemas", sa.select(s.c.schema_name).where(s.c.parent_schema_id.is_not(None)))
    columns = sa.select(u.c.table_name, c.c.column_name).join_from(c, u, u.c.table_id == c.c.table_id)
    for type_ in _NEW_TYPES:
        yield from _named(writer, f"columns of the type {type_}", columns.where(c.c.column_type == type_))
    keys = sa.select(u.c.table_name, p.c.transform).join_from(p, u, u.c.table_id == p.c.table_id)
    yield from _named(writer, "partitions by epochs", keys.where(p.c.transform.like("epoch%")))
    several = (d.c.format == "puffin", sa.or_(d.c.footer_size > 0, d.c.partial_max.is_not(None)))
    yield from _named(writer, "deletion vectors of several snapshots", sa.select(d.c.path).where(*several))
    parameters = sa.select(m.c.macro_name, q.c.parameter_name).join_from(q, m, m.c.macro_id == q.c.macro_id)
    expressions = parameters.where(q.c.default_value_type == "expression")
    yield from _named(writer, "macros with an expression as default", expressions)
    yield from _inlined_variants(writer)


_SHOWN = 5


def _named(writer: Writer, what: str, names: sa.Select[Any]) -> Iterator[str]:
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
