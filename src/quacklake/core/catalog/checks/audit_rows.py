"""The queries of ``verify`` that read a page at a time: files, statistics, totals, and the tables of inlined rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from quacklake.core.catalog.checks.audit import FOREVER, Audit, Row
from quacklake.core.catalog.statements import delete_table, parts, visible
from quacklake.core.catalog.writing.files import DATA_FILE, DELETE_FILE
from quacklake.core.format import inline
from quacklake.core.format.inline import LIFE, has_width
from quacklake.core.format.objects import DataFile, DeleteFile
from quacklake.core.format.schema import TableSchema


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """The bounds, NULLs and NaN of a column according to the catalog; ``None`` for what it does not know."""

    low: str | None = None
    high: str | None = None
    nulls: int | None = None
    nan: bool | None = None


class RowAudit(Audit):
    """An audit that also reads tables that may be very large."""

    # -- files -------------------------------------------------------------------------------------------------------

    def locations(self) -> dict[int, tuple[str, bool]]:
        """Return the folder of each table, and whether it is below the data path."""
        t, s = self.meta["table"], self.meta["schema"]
        own, above = (self.meta.columns(name, "path path_is_relative") for name in ("table", "schema"))
        statement = (
            sa.select(t.c.table_id, *own, *(column.label(f"schema_{column.name}") for column in above))
            .select_from(t.outerjoin(s, s.c.schema_id == t.c.schema_id))
            .order_by(t.c.begin_snapshot)
        )
        folders = {}
        for id_, path, relative, schema, schema_relative in self.stream("locations", statement):
            folders[id_] = ((schema or "") + (path or ""), bool(schema_relative)) if relative else (path, False)
        return folders

    def table_lives(self) -> dict[int, int | None]:
        """Return when each table ends, None for one that is still there."""
        t = self.meta["table"]
        end = sa.func.max(sa.func.coalesce(t.c.end_snapshot, FOREVER))
        rows = self.stream("table_lives", sa.select(t.c.table_id, end).group_by(t.c.table_id))
        return {id_: None if end == FOREVER else end for id_, end in rows}

    def data_files(self, after: int, limit: int, table_id: int | None = None) -> list[DataFile]:
        """Return a page of data files in the order of their ids, of one table or all."""
        f = self.meta["data_file"]
        statement = (
            sa.select(*self.meta.columns("data_file", DATA_FILE))
            .where(f.c.data_file_id > after, *([] if table_id is None else [f.c.table_id == table_id]))
            .order_by(f.c.data_file_id)
            .limit(limit)
        )
        return [DataFile(*row) for row in self.run("audit_data_files", statement)]

    def delete_files(self, after: int, limit: int) -> list[tuple[DeleteFile, int | None]]:
        """Return a page of delete files in the order of their ids, each with the rows of its data file."""
        d, f = self.meta["delete_file"], self.meta["data_file"]
        statement = (
            sa.select(*self.meta.columns("delete_file", DELETE_FILE), f.c.record_count)
            .select_from(d.outerjoin(f, f.c.data_file_id == d.c.data_file_id))
            .where(d.c.delete_file_id > after)
            .order_by(d.c.delete_file_id)
            .limit(limit)
        )
        return [(DeleteFile(*row[:-1]), row[-1]) for row in self.run("audit_delete_files", statement)]

    def still_there(self, ids: Sequence[int]) -> set[int]:
        """Return those of some ids of files that the catalog has."""
        known: set[int] = set()
        for name, key in (("data_file", "data_file_id"), ("delete_file", "delete_file_id")):
            t = self.meta[name]
            for part in parts(ids):
                known.update(self.run("audit_still_there", sa.select(t.c[key]).where(t.c[key].in_(part))).scalars())
        return known

    def row_ranges(self) -> Iterator[Row]:
        """Return files with a first row id, by table and that id: table, first, rows, file, begin, end."""
        f = self.meta["data_file"]
        statement = (
            sa.select(
                *f.c["table_id", "row_id_start", "record_count", "data_file_id", "begin_snapshot"],
                sa.func.coalesce(f.c.end_snapshot, FOREVER),
            )
            .where(f.c.row_id_start.is_not(None))
            .order_by(f.c.table_id, f.c.row_id_start, f.c.data_file_id)
        )
        return self.stream("row_ranges", statement)

    # -- totals and statistics ---------------------------------------------------------------------------------------

    def table_totals(self, latest: int) -> Iterator[Row]:
        """Return for each table with files: table, end of its row ids, live rows, their bytes, then its totals or NULL.

        Live rows are those of the newest snapshot less what delete files say; the totals are the number of rows that
        hold them, records, next row id and bytes.
        """
        f, d, s = self.meta["data_file"], self.meta["delete_file"], self.meta["table_stats"]
        live = visible(f, latest)
        rows = (
            sa.select(
                f.c.table_id,
                sa.func.max(sa.func.coalesce(f.c.row_id_start, 0) + _count_with_row_ids(f)).label("top"),
                sa.func.sum(sa.case((live, f.c.record_count), else_=0)).label("rows"),
                sa.func.sum(sa.case((live, f.c.file_size_bytes), else_=0)).label("bytes"),
            )
            .group_by(f.c.table_id)
            .subquery()
        )
        gone = (
            sa.select(d.c.table_id, sa.func.sum(d.c.delete_count).label("n"))
            .select_from(d.join(f, f.c.data_file_id == d.c.data_file_id))
            .where(visible(d, latest), live)
            .group_by(d.c.table_id)
            .subquery()
        )
        totals = (
            sa.select(
                s.c.table_id,
                sa.func.count().label("n"),
                *(sa.func.max(s.c[name]).label(name) for name in ("record_count", "next_row_id", "file_size_bytes")),
            )
            .group_by(s.c.table_id)
            .subquery()
        )
        live_rows = rows.c.rows - sa.func.coalesce(gone.c.n, 0)
        sums = totals.c["n", "record_count", "next_row_id", "file_size_bytes"]
        joined = rows.outerjoin(gone, gone.c.table_id == rows.c.table_id)
        joined = joined.outerjoin(totals, totals.c.table_id == rows.c.table_id)
        statement = sa.select(rows.c.table_id, rows.c.top, live_rows, rows.c.bytes, *sums).select_from(joined)
        return self.stream("totals", statement)

    def next_row_ids(self) -> dict[int, int]:
        """Return the next row id of each table that has totals."""
        s = self.meta["table_stats"]
        rows = self.stream("next_row_ids", sa.select(s.c.table_id, sa.func.max(s.c.next_row_id)).group_by(s.c.table_id))
        return {id_: following for id_, following in rows if following is not None}

    def file_statistics(self) -> Iterator[Row]:
        """Return statistics of files: file, table, column, min, max, nulls, values, and each type of the column."""
        s = self.meta["file_column_stats"]
        own = (s.c.data_file_id, s.c.table_id, s.c.column_id)
        return self._statistics("file_stats", s, own, (s.c.null_count, s.c.value_count))

    def table_statistics(self) -> Iterator[Row]:
        """Return statistics of tables, as ``file_statistics`` has them, without a file and counts."""
        s = self.meta["table_column_stats"]
        nothing = sa.cast(sa.null(), sa.BigInteger)
        own = (nothing.label("data_file_id"), s.c.table_id, s.c.column_id)
        return self._statistics("table_stats", s, own, (nothing.label("nulls"), nothing.label("counted")))

    def _statistics(self, name: str, s: sa.Table, own: Sequence[Any], counts: Sequence[Any]) -> Iterator[Row]:
        c = self.meta["column"]
        types = sa.select(c.c.table_id, c.c.column_id, c.c.column_type).distinct().subquery()
        joined = s.join(types, sa.and_(types.c.table_id == s.c.table_id, types.c.column_id == s.c.column_id))
        bounds = (s.c.min_value, s.c.max_value)
        statement = sa.select(*own, *bounds, *counts, types.c.column_type).select_from(joined).order_by(*own)
        return self.stream(name, statement)

    def statistics_of(self, table_id: int, first: int, last: int) -> dict[int, dict[int, ColumnFacts]]:
        """Return the statistics of a table's files from one id to another: file -> column -> facts."""
        s = self.meta["file_column_stats"]
        statement = sa.select(
            s.c.data_file_id, s.c.column_id, s.c.min_value, s.c.max_value, s.c.null_count, s.c.contains_nan
        ).where(s.c.table_id == table_id, s.c.data_file_id.between(first, last))
        facts: dict[int, dict[int, ColumnFacts]] = {}
        for file_id, column_id, low, high, nulls, nan in self.stream("statistics_of", statement):
            facts.setdefault(file_id, {})[column_id] = ColumnFacts(low, high, nulls, nan)
        return facts

    def table_bounds(self, table_id: int) -> dict[int, ColumnFacts]:
        """Return the statistics of a table's columns; that there are no NULLs is a count of 0."""
        s = self.meta["table_column_stats"]
        columns = (s.c.column_id, s.c.min_value, s.c.max_value, s.c.contains_null, s.c.contains_nan)
        rows = self.stream("table_bounds", sa.select(*columns).where(s.c.table_id == table_id))
        return {id_: ColumnFacts(low, high, 0 if null is False else None, nan) for id_, low, high, null, nan in rows}

    # -- inlined rows and deletes ------------------------------------------------------------------------------------

    def has_columns(self, table_id: int, version: int, schema: TableSchema) -> bool | None:
        """Return whether a table of inlined rows, or each packed row, has the columns of its version, if there."""
        if self.meta.shared:
            statement = sa.select(self.inlined.lives(table_id, version).c.payload)
            # read all, because no other statement may run before the stream ends
            return sum(not has_width(row[0], len(schema.columns)) for row in self.stream("packed", statement)) == 0
        name = inline.data_table_name(table_id, version)
        if not self.has_table(name):
            return None
        table = sa.table(name, schema=self.meta.metadata.schema)
        names = self.run("audit_table_columns", sa.select(sa.text("*")).select_from(table).limit(0)).keys()
        prefix = self.inlined.prefix(table_id, version)
        return list(names) == [*(prefix + name for name in LIFE), *schema.names]

    def listed_inlined(self) -> list[Row]:
        """Return the tables of inlined rows that the catalog knows: table, name, schema version."""
        t = self.meta["inlined_data_tables"]
        order = (t.c.table_id, t.c.schema_version)
        return list(
            self.stream("inlined", sa.select(t.c.table_id, t.c.table_name, t.c.schema_version).order_by(*order))
        )

    def inlined_facts(self, table_id: int, version: int, latest: int) -> Row:
        """Return of a table of inlined rows: rows, live rows, largest row id, impossible lives, ids that live twice."""
        t = self.inlined.lives(table_id, version)
        row_id, begin, end = t.c.row_id, t.c.begin_snapshot, t.c.end_snapshot
        wrong = sa.or_(row_id.is_(None), begin.is_(None), end < begin, begin > latest, end > latest)
        twice = (
            sa.select(row_id.label("id")).where(end.is_(None)).group_by(row_id).having(sa.func.count() > 1).subquery()
        )
        statement = sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(sa.case((end.is_(None), 1), else_=0)), 0),
            sa.func.max(row_id),
            sa.func.coalesce(sa.func.sum(sa.case((wrong, 1), else_=0)), 0),
            sa.select(sa.func.count()).select_from(twice).scalar_subquery(),
        ).select_from(t)
        return tuple(self.run("audit_inlined_facts", statement).one())

    def wrong_inlined_deletes(self, table_id: int, latest: int) -> Iterator[Row]:
        """Return inlined deletes without meaning: file, position, snapshot, the file's rows and its life or NULL."""
        x, f = delete_table(table_id, self.meta), self.meta["data_file"]
        joined = x.outerjoin(f, sa.and_(f.c.data_file_id == x.c.file_id, f.c.table_id == table_id))
        wrong = sa.or_(
            f.c.data_file_id.is_(None),
            x.c.row_id < 0,
            x.c.row_id >= f.c.record_count,
            x.c.begin_snapshot > latest,
            x.c.begin_snapshot < f.c.begin_snapshot,
            x.c.begin_snapshot > sa.func.coalesce(f.c.end_snapshot, FOREVER),
        )
        columns = (x.c.file_id, x.c.row_id, x.c.begin_snapshot, f.c.record_count, f.c.begin_snapshot, f.c.end_snapshot)
        return self.stream("inlined_deletes", sa.select(*columns).select_from(joined).where(wrong))


def _count_with_row_ids(files: sa.Table) -> sa.ColumnElement[Any]:
    """Return the rows that get row ids from their file: none if it names no first id, or stores row ids.

    Stock clients name a first one, too, for a file of rows of several snapshots, in which a row may be several times.
    """
    own = [(files.c.partial_max.is_not(None), 0)] if "partial_max" in files.c else []
    return sa.case((files.c.row_id_start.is_(None), 0), *own, else_=files.c.record_count)
