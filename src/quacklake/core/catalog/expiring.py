"""Removing snapshots from the catalog, and with them everything that only they could see.

A row lives from one snapshot to another, and there are far fewer such spans than rows. So the spans are read and
compared here with the snapshots that are left, and those without any snapshot go into a temporary table. Every later
query is then a join of equal values, which is quick on all databases, unlike a range of snapshots for each row.

Some rows stay on purpose: the columns and name mappings of live tables, since the id of a column must never come back
and an open transaction may use a mapping again; their schema versions, because old files and inlined rows are read by
them; the rows of tables that were renamed, or dropped meanwhile, since stock clients read and compact files by the
table as it was when its schema version began.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

import sqlalchemy as sa

from quacklake.core.catalog import access_tables
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import DELETES, ROWS, SOME, delete_table, of_all_tables, parts
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.format.inline import data_table_name, parse_table_name
from quacklake.core.format.objects import MATERIALIZED_VIEW, stream_of_view

#: The tables whose rows end, and that expiry takes rows from.
LIVES = (
    *("data_file", "delete_file", "schema", "table", "view", "tag", "column_tag", "view_column_tag", "macro"),
    *("sort_info", "partition_info"),
)
_TOGETHER = 50
"""Tables of inlined rows that one statement asks."""
MANY = 1_000
"""The files that go from which on an expiry on SQLite looks whether it is quicker to empty tables."""
_KEPT = "quacklake_kept_rows"


def _temporary(name: str, *columns: str) -> sa.Table:
    keys = (sa.Column(column, sa.BigInteger(), primary_key=True, autoincrement=False) for column in columns)
    return sa.Table(name, sa.MetaData(), *keys, prefixes=["TEMPORARY"])


_SPANS = _temporary("quacklake_unseen_spans", "begin_snapshot", "end_snapshot")
_FILES = _temporary("quacklake_unseen_files", "data_file_id")


@contextmanager
def spans_of_nobody(writer: Writer, left: Sequence[int]) -> Iterator[set[str]]:
    """Prepare the conditions of this module for a block; ``left`` are the snapshots left, in order.

    Yield the names of the tables that have rows to remove. A row that ends after the newest of ``left`` stays: a client
    that does not queue may have committed since.
    """
    spans: set[tuple[int, int]] = set()
    names: set[str] = set()
    for name, begin, end in _spans(writer):
        following = bisect_left(left, begin)
        if following < len(left) and left[following] >= end:
            spans.add((begin, end))
            names.add(name)
    for table in (_SPANS, _FILES):
        if writer.backend.name == "mysql":
            # a rollback leaves the temporary table there
            writer.run("forget_unseen", sa.text(f"DROP TEMPORARY TABLE IF EXISTS {table.name}"))
        writer.run("make_unseen", sa.schema.CreateTable(table))
    if spans:
        writer.insert_many("insert_unseen_spans", _SPANS, ["begin_snapshot", "end_snapshot"], sorted(spans))
        f = writer.meta["data_file"]
        dead = sa.select(f.c.data_file_id).where(unseen(f))
        writer.run("insert_unseen_files", sa.insert(_FILES).from_select(["data_file_id"], dead))
    yield names
    for table in (_SPANS, _FILES):
        kind = "TEMPORARY TABLE" if writer.backend.name == "mysql" else "TABLE"
        writer.run("forget_unseen", sa.text(f"DROP {kind} {table.name}"))


def _spans(writer: Writer) -> Iterator[tuple[str, int, int]]:
    """Yield the spans of all rows that have ended: name of the table, begin, end."""
    tables = [(name, writer.meta[name]) for name in LIVES if name in writer.meta]
    tables += inlined_tables(writer).items()
    for start in range(0, len(tables), _TOGETHER):
        parts = [
            sa.select(sa.literal(name, sa.String).label("name"), t.c.begin_snapshot, t.c.end_snapshot)
            .where(t.c.begin_snapshot.is_not(None), t.c.end_snapshot.is_not(None))
            .distinct()
            for name, t in tables[start : start + _TOGETHER]
        ]
        for row in writer.run("spans", sa.union_all(*parts)):
            yield row[0], row[1], row[2]


def inlined_tables(writer: Writer) -> dict[str, sa.Table]:
    """Return the tables of inlined rows by their names, as far as every one has the same columns."""
    t = writer.meta["inlined_data_tables"]
    listed = writer.run("inlined_data_tables", sa.select(t.c.table_id, t.c.schema_version, t.c.table_name)).all()
    # a name of another form belongs to another table
    versions = {row[2]: (row[0], row[1]) for row in listed if row[2] == data_table_name(row[0], row[1])}
    return {name: writer.inlined.lives(*versions[name]) for name in sorted(versions)}


# -- conditions --------------------------------------------------------------------------------------------------------
# MySQL refuses a statement that names one temporary table twice.


def unseen(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that holds for rows that have ended and that no snapshot sees."""
    same = sa.and_(_SPANS.c.begin_snapshot == table.c.begin_snapshot, _SPANS.c.end_snapshot == table.c.end_snapshot)
    return sa.exists(sa.select(sa.literal(1)).where(same).correlate(table))


def dead_data_file(id_: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return the condition that holds for the id of a data file that no snapshot sees."""
    return id_.in_(sa.select(_FILES.c.data_file_id))


def dead_delete(writer: Writer) -> sa.ColumnElement[bool]:
    """Return the condition that holds for delete files that no snapshot sees, and those of such data files."""
    d = writer.meta["delete_file"]
    return sa.or_(unseen(d), dead_data_file(d.c.data_file_id))


# -- what there is -----------------------------------------------------------------------------------------------------


def snapshot_times(reader: Reader) -> list[tuple[int, dt.datetime | None]]:
    """Return every snapshot and its time, oldest first."""
    id_, time = reader.snapshots.columns()[:2]
    return [(row[0], row[1]) for row in reader.run("snapshot_times", sa.select(id_, time).order_by(id_))]


def table_lives(reader: Reader, table_ids: Sequence[int]) -> list[tuple[int, int, int | None]]:
    """Return when tables were made, renamed and dropped: id, begin, end."""
    t = reader.meta["table"]
    lives: list[tuple[int, int, int | None]] = []
    for some in parts(table_ids, SOME):
        statement = sa.select(t.c.table_id, t.c.begin_snapshot, t.c.end_snapshot).where(t.c.table_id.in_(some))
        lives += [(row[0], row[1], row[2]) for row in reader.run("table_lives", statement)]
    return lives


def names_of(reader: Reader, table_ids: Sequence[int]) -> dict[int, str]:
    """Return the last name of tables."""
    t, s = reader.meta["table"], reader.meta["schema"]
    names: dict[int, str] = {}
    for some in parts(table_ids, SOME):
        statement = (
            sa.select(t.c.table_id, s.c.schema_name, t.c.table_name)
            .join_from(t, s, s.c.schema_id == t.c.schema_id)
            .where(t.c.table_id.in_(some))
            .order_by(t.c.begin_snapshot)
        )
        names |= {row[0]: f"{row[1]}.{row[2]}" for row in reader.run("table_names", statement)}
    return names


def dead_tables(writer: Writer) -> list[int]:
    """Return the dropped tables that no snapshot sees any more."""
    t = writer.meta["table"]
    seen = sa.func.sum(sa.case((unseen(t), 0), else_=1))
    statement = sa.select(t.c.table_id).group_by(t.c.table_id).having(seen == 0)
    return sorted(row[0] for row in writer.run("dead_tables", statement))


# -- taking away -------------------------------------------------------------------------------------------------------


def remove_snapshots(writer: Writer, ranges: Sequence[tuple[int, int]], old_tokens: int) -> None:
    """Remove snapshots from first to last of each range, and the tokens of commits up to ``old_tokens``.

    In 1.1 what they changed stays: a commit that began before them is held against it.
    """
    names = ("snapshot",) if writer.meta.is_next else ("snapshot", "snapshot_changes")
    for some in parts(ranges, SOME):
        for name in names:
            t = writer.meta[name]
            chosen = sa.or_(*(t.c.snapshot_id.between(first, last) for first, last in some))
            writer.run(f"expire_{name}", sa.delete(t).where(chosen))
    tokens = writer.meta.own["commits"]
    if old_tokens >= 0 and writer.has_table(tokens.name):
        writer.run("expire_tokens", sa.delete(tokens).where(tokens.c.snapshot_id <= old_tokens))


def remove_files(writer: Writer, tables: Sequence[int] | None = None) -> None:
    """Remove the rows of the files that ``dead_files`` gives, and what else is known of these files."""
    f, d = writer.meta["data_file"], writer.meta["delete_file"]
    few_stay = tables is None and _few_stay(writer)
    for name in ("file_column_stats", "file_variant_stats", "file_partition_value"):
        t = writer.meta[name]
        mine = dead_data_file(t.c.data_file_id) if tables is None else t.c.table_id.in_(tables)
        _keep(writer, name) if few_stay else writer.run(f"expire_{name}", sa.delete(t).where(mine))
    gone = dead_delete(writer) if tables is None else d.c.table_id.in_(tables)
    writer.run("expire_delete_file", sa.delete(d).where(gone))
    dead = dead_data_file(f.c.data_file_id) if tables is None else f.c.table_id.in_(tables)
    _keep(writer, "data_file") if few_stay else writer.run("expire_data_file", sa.delete(f).where(dead))


def _few_stay(writer: Writer) -> bool:
    """Return whether nearly all of many files go from tables of SQLite, which have no rows of other catalogs."""
    if writer.backend.name != "sqlite" or writer.meta.shared:
        return False
    dead, files = (
        int(writer.run("files_count", sa.select(sa.func.count()).select_from(table)).scalar_one())
        for table in (_FILES, writer.meta["data_file"])
    )
    return dead >= MANY and (files - dead) * 10 <= files


def _keep(writer: Writer, name: str) -> None:
    """Remove the rows of dead data files from a table of SQLite: all rows, of which those that stay are put back.

    SQLite empties a table in a fraction of the time that it takes to remove row by row from table and indexes. Whole
    rows are copied, with the columns that another client may have added. The line "SQLite, expired snapshots" of
    ``benchmarks/README.md`` measures it.
    """
    table, dead = writer.meta[name].name, f"data_file_id IN (SELECT data_file_id FROM {_FILES.name})"
    for step, text in (
        ("keep", f"CREATE TEMPORARY TABLE {_KEPT} AS SELECT * FROM {table} WHERE ({dead}) IS NOT TRUE"),
        ("expire", f"DELETE FROM {table}"),
        ("put_back", f"INSERT INTO {table} SELECT * FROM {_KEPT}"),
        ("forget", f"DROP TABLE {_KEPT}"),
    ):
        writer.run(f"{step}_{name}", sa.text(text))


_OF_TABLES = (
    *("table", "table_stats", "table_column_stats", "partition_info", "partition_column", "column", "column_tag"),
    *("sort_info", "sort_expression", "schema_versions", "inlined_data_tables", "column_mapping"),
)


def remove_dead_tables(writer: Writer, tables: Sequence[int]) -> None:
    """Remove tables that no snapshot sees, and all that is known of them but the names in their policies."""
    access_tables.keep_names(writer, tables)
    mappings, names = writer.meta["column_mapping"], writer.meta["name_mapping"]
    mine = sa.select(mappings.c.mapping_id).where(mappings.c.table_id.in_(tables))
    writer.run("expire_name_mapping", sa.delete(names).where(names.c.mapping_id.in_(mine)))
    for name in _OF_TABLES:
        t = writer.meta[name]
        writer.run(f"expire_{name}", sa.delete(t).where(t.c.table_id.in_(tables)))
    tag, option = writer.meta["tag"], writer.meta["metadata"]
    _remove_positions(writer, tables)
    writer.run("expire_tag", sa.delete(tag).where(tag.c.object_id.in_(tables)))
    writer.run("expire_option", sa.delete(option).where(option.c.scope == "table", option.c.scope_id.in_(tables)))
    own = writer.meta.own["retention"]
    if writer.has_table(own.name):
        writer.run("expire_retention", sa.delete(own).where(own.c.table_id.in_(tables)))


def _remove_positions(writer: Writer, tables: Sequence[int]) -> None:
    """Remove the positions of materialized views among dead tables, which a client that knows no views has left."""
    tag, streams = writer.meta["tag"], writer.meta.own["streams"]
    rows = writer.run("views", sa.select(tag.c.object_id, tag.c.value).where(tag.c.key == MATERIALIZED_VIEW)).all()
    dead, live = set[str | None](), set[str | None]({None})
    for id_, definition in rows:
        (dead if id_ in tables else live).add(stream_of_view(str(definition)))
    names = [name for name in dead - live if name is not None]
    if names and writer.has_table(streams.name):
        writer.run("expire_positions", sa.delete(streams).where(streams.c.name.in_(names)))


def remove_objects(writer: Writer, names: AbstractSet[str]) -> None:
    """Remove schemas, views, macros, tags, partitionings no file has and orders that no snapshot sees, of ``names``."""
    for name in LIVES:
        if name in names and name not in ("data_file", "delete_file", "partition_info", "table"):
            t = writer.meta[name]
            writer.run(f"expire_{name}", sa.delete(t).where(unseen(t)))
    if "partition_info" in names:
        info, files = writer.meta["partition_info"], writer.meta["data_file"]
        used = sa.select(files.c.partition_id).where(files.c.partition_id.is_not(None))
        writer.run("expire_partition_info", sa.delete(info).where(unseen(info), info.c.partition_id.not_in(used)))
    for name, owner, key in (
        ("macro_impl", "macro", "macro_id"),
        ("macro_parameters", "macro", "macro_id"),
        ("partition_column", "partition_info", "partition_id"),
        ("sort_expression", "sort_info", "sort_id"),
    ):
        t, parent = writer.meta[name], writer.meta[owner]
        there = sa.exists(sa.select(sa.literal(1)).where(parent.c[key] == t.c[key]).correlate(t))
        writer.run(f"expire_{name}", sa.delete(t).where(~there))


def remove_inlined(writer: Writer, names: AbstractSet[str], with_dead_files: Sequence[int]) -> int:
    """Remove the inlined rows of ``names`` that no snapshot sees, and return how many there were.

    Inlined deletes of files that are gone go too, in the tables ``with_dead_files``.
    """
    removed = 0
    for name, rows in inlined_tables(writer).items():
        if name in names:
            count = sa.select(sa.func.count()).select_from(rows).where(unseen(rows))
            removed += writer.run("unseen_rows_count", count).scalar_one()
            writer.run("expire_inlined_rows", sa.delete(rows).where(unseen(rows)))
    files = writer.meta["data_file"]
    for table_id in with_dead_files:
        deletes = delete_table(table_id, writer.meta)
        if writer.has_table(deletes.name):
            left = sa.select(files.c.data_file_id).where(files.c.table_id == table_id)
            writer.run("expire_inlined_deletes", sa.delete(deletes).where(deletes.c.file_id.not_in(left)))
    return removed


def drop_inlined_tables(writer: Writer) -> None:
    """Drop the tables of inlined rows and deletes whose table is gone, and those that newer ones have superseded."""
    t = writer.meta["table"]
    if writer.meta.shared:
        for name in (ROWS, DELETES):
            stored = of_all_tables(name, writer.meta)
            gone = stored.c.table_id.not_in(sa.select(t.c.table_id))
            writer.run("expire_inlined", sa.delete(stored).where(gone))
        return
    schema = writer.meta.metadata.schema
    names = writer.stored_tables()
    # looked up after the names: a table that is being created has its row by then
    living = {row[0] for row in writer.run("table_ids", sa.select(t.c.table_id).distinct())}
    for name in names:
        named = parse_table_name(name)
        if named is not None and named[0] not in living:
            writer.run("drop_inlined_table", sa.schema.DropTable(sa.Table(name, sa.MetaData(), schema=schema)))
    listed = writer.meta["inlined_data_tables"]
    several = sa.select(listed.c.table_id).group_by(listed.c.table_id).having(sa.func.count() > 1)
    for row in writer.run("superseded_inlined_tables", several).all():
        writer.inlined.drop_emptied_tables(row[0])
