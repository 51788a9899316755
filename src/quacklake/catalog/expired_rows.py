"""Finding the rows that no snapshot sees any more.

A row lives from one snapshot to another, and there are far fewer such spans than rows. So the spans are read and
compared here with the snapshots that are left, and the spans without any snapshot go into a temporary table. Every
later query is then a join of equal values, which is quick on all databases. A range of snapshots for each row is slow,
most of all on MySQL, where every lookup would pass over all the snapshots that were just removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from quacklake.catalog.writing.writer import Writer
from quacklake.format.inline import data_table_name

#: The tables whose rows end, and that expiry takes rows from.
LIVES = (
    "data_file",
    "delete_file",
    "schema",
    "table",
    "view",
    "tag",
    "column_tag",
    "view_column_tag",
    "macro",
    "sort_info",
    "partition_info",
)
_TOGETHER = 50
"""Tables of inlined rows that one statement asks."""


def _temporary(name: str, *columns: str) -> sa.Table:
    keys = (sa.Column(column, sa.BigInteger(), primary_key=True, autoincrement=False) for column in columns)
    return sa.Table(name, sa.MetaData(), *keys, prefixes=["TEMPORARY"])


_SPANS = _temporary("quacklake_unseen_spans", "begin_snapshot", "end_snapshot")
_FILES = _temporary("quacklake_unseen_files", "data_file_id")


@contextmanager
def spans_of_nobody(writer: Writer, left: Sequence[int]) -> Iterator[set[str]]:
    """Prepare the conditions of this module for a block; ``left`` are the snapshots left, in order.

    Yield the names of the tables that have rows to remove. A row that ends after the newest of ``left`` stays: a client
    that does not queue may have committed since these were read.
    """
    spans: set[tuple[int, int]] = set()
    names: set[str] = set()
    for name, begin, end in _spans(writer):
        following = bisect_left(left, begin)
        if following < len(left) and left[following] >= end:
            spans.add((begin, end))
            names.add(name)
    for table in (_SPANS, _FILES):
        if writer._database.name == "mysql":
            # a rollback leaves the temporary table there
            writer.run("forget_unseen", sa.text(f"DROP TEMPORARY TABLE IF EXISTS {table.name}"))
        writer.run("make_unseen", sa.schema.CreateTable(table))
    if spans:
        writer.insert_many("insert_unseen_spans", _SPANS, ["begin_snapshot", "end_snapshot"], sorted(spans))
        f = writer._t["data_file"]
        dead = sa.select(f.c.data_file_id).where(unseen(f))
        writer.run("insert_unseen_files", sa.insert(_FILES).from_select(["data_file_id"], dead))
    yield names
    for table in (_SPANS, _FILES):
        kind = "TEMPORARY TABLE" if writer._database.name == "mysql" else "TABLE"
        writer.run("forget_unseen", sa.text(f"DROP {kind} {table.name}"))


def _spans(writer: Writer) -> Iterator[tuple[str, int, int]]:
    """Yield the spans of all rows that have ended: name of the table, begin, end."""
    tables = [(name, writer._t[name]) for name in LIVES if name in writer._t]
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
    t = writer._t["inlined_data_tables"]
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
    d = writer._t["delete_file"]
    return sa.or_(unseen(d), dead_data_file(d.c.data_file_id))
