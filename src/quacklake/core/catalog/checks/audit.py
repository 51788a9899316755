"""The queries that ``verify`` runs on a catalog: one statement each, whatever the size of the lake.

Long results are streamed. What a result means is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import visible

FOREVER = (1 << 62) - 1
"""Stands for the end of what has none."""

_PAGE = 10_000

#: Tables whose rows live from one snapshot to another, and the column that names what lives.
LIVING = {
    "schema": "schema_id",
    "table": "table_id",
    "view": "view_id",
    "macro": "macro_id",
    "tag": "object_id",
    "column_tag": "column_id",
    "view_column_tag": "view_id",
    "column": "column_id",
    "partition_info": "partition_id",
    "sort_info": "sort_id",
    "data_file": "data_file_id",
    "delete_file": "delete_file_id",
}
_CATALOG_IDS = {name: LIVING[name] for name in ("schema", "table", "view", "macro", "partition_info", "sort_info")}
#: Stock clients count name mappings with the files.
_FILE_IDS = {"data_file": "data_file_id", "delete_file": "delete_file_id", "column_mapping": "mapping_id"}

Row = tuple[Any, ...]


class Audit(Reader):
    """A reader that looks for inconsistent rows."""

    def stream(self, name: str, statement: Any) -> Iterator[Row]:
        """Yield the rows of a statement, a page at a time. No other statement may run meanwhile."""
        result = self.run(f"audit_{name}", statement.execution_options(yield_per=_PAGE))
        for row in result:
            yield tuple(row)

    def has(self, name: str) -> bool:
        """Return whether this format version has such a table."""
        return name in self.meta

    # -- snapshots and counters --------------------------------------------------------------------------------------

    def snapshot_rows(self) -> Iterator[Row]:
        """Return every snapshot in order: id, schema version, the two counters, its changes row's id, the changes."""
        s, c = self.meta["snapshot"], self.meta["snapshot_changes"]
        statement = (
            sa.select(
                *s.c["snapshot_id", "schema_version", "next_catalog_id", "next_file_id"],
                c.c.snapshot_id.label("changes_id"),
                c.c.changes_made,
            )
            .select_from(s.outerjoin(c, c.c.snapshot_id == s.c.snapshot_id))
            .order_by(s.c.snapshot_id)
        )
        return self.stream("snapshots", statement)

    def changes_of_nothing(self) -> Iterator[Row]:
        """Return changes of snapshots that are not there."""
        s, c = self.meta["snapshot"], self.meta["snapshot_changes"]
        stray = _find_unmatched(c, s, {"snapshot_id": "snapshot_id"}, ("snapshot_id",))
        if self.meta.is_next:  # 1.1 keeps the changes of expired snapshots
            newest = sa.select(sa.func.max(s.c.snapshot_id)).scalar_subquery()
            stray = stray.where(c.c.snapshot_id > newest)
        return self.stream("changes", stray)

    def highest_ids(self) -> tuple[int, int]:
        """Return the largest id of anything but a file, and of a file; -1 when there is none."""
        highest: list[int] = []
        for kinds in (_CATALOG_IDS, _FILE_IDS):
            parts = [
                sa.select(sa.func.max(self.meta[name].c[key]).label("id"))
                for name, key in kinds.items()
                if self.has(name)
            ]
            every = sa.union_all(*parts).subquery()
            top = self.run("audit_highest_ids", sa.select(sa.func.max(every.c.id))).scalar()
            highest.append(-1 if top is None else int(top))
        return highest[0], highest[1]

    def table_names(self) -> dict[int, str]:
        """Return what each table is, or was last, called."""
        t, s = self.meta["table"], self.meta["schema"]
        statement = (
            sa.select(t.c.table_id, s.c.schema_name, t.c.table_name)
            .select_from(t.outerjoin(s, s.c.schema_id == t.c.schema_id))
            .order_by(t.c.begin_snapshot)
        )
        return {row[0]: f"{row[1]}.{row[2]}" for row in self.stream("table_names", statement)}

    # -- lives -------------------------------------------------------------------------------------------------------

    def impossible_lives(self, name: str, latest: int) -> Iterator[Row]:
        """Return rows of a table of ``LIVING`` that end before they begin, or live in the future: id, begin, end."""
        t = self.meta[name]
        begin, end = t.c.begin_snapshot, t.c.end_snapshot
        wrong = sa.or_(begin.is_(None), end < begin, begin > latest, end > latest)
        return self.stream(f"lives_{name}", sa.select(t.c[LIVING[name]], begin, end).where(wrong))

    def overlaps(self, name: str, keys: Sequence[str], shown: str) -> Iterator[Row]:
        """Return rows that live while another row with the same keys does: the keys, ``shown`` of both, begins, end."""
        t = self.meta[name]
        labelled = [t.c[key].label(f"k_{key}") for key in keys]
        rows = sa.select(t.c.begin_snapshot, t.c.end_snapshot, *labelled, t.c[shown].label("shown"))
        return self._overlaps(name, rows, keys)

    def _overlaps(self, name: str, rows: sa.Select[Any], keys: Sequence[str]) -> Iterator[Row]:
        inner = rows.subquery()
        window: dict[str, Any] = {
            "partition_by": [inner.c[f"k_{key}"] for key in keys],
            "order_by": [inner.c.begin_snapshot, inner.c.shown],
        }
        following = sa.select(
            *(inner.c[f"k_{key}"] for key in keys),
            inner.c.shown,
            sa.func.lead(inner.c.shown).over(**window).label("other"),
            inner.c.begin_snapshot,
            inner.c.end_snapshot,
            sa.func.lead(inner.c.begin_snapshot).over(**window).label("next_begin"),
        ).where(sa.or_(inner.c.end_snapshot.is_(None), inner.c.end_snapshot > inner.c.begin_snapshot))
        pairs = following.subquery()
        clash = sa.or_(pairs.c.end_snapshot.is_(None), pairs.c.next_begin < pairs.c.end_snapshot)
        statement = sa.select(pairs).where(pairs.c.next_begin.is_not(None), clash)
        return self.stream(f"overlaps_{name}", statement)

    def same_names(self, name: str) -> Iterator[Row]:
        """Return objects that may have one name at one time: schema or table, parent, folded name, names, begins, end.

        ``name`` is ``schema``, ``relation`` (tables and views), ``macro`` or ``column``. Case is folded as the database
        does it.
        """
        t = self.meta
        nothing = sa.cast(sa.null(), sa.BigInteger)

        def part(table: sa.Table, owner: Any, parent: Any, text: Any) -> sa.Select[Any]:
            return sa.select(
                table.c.begin_snapshot,
                table.c.end_snapshot,
                owner.label("k_owner"),
                parent.label("k_parent"),
                sa.func.lower(text).label("k_name"),
                text.label("shown"),
            )

        if name == "schema":
            rows: Any = part(t["schema"], nothing, t.column("schema", "parent_schema_id"), t["schema"].c.schema_name)
        elif name == "macro":
            i = t["macro_impl"]
            of_table = sa.select(i.c.macro_id).where(i.c.type == "table")
            kind = sa.case((t["macro"].c.macro_id.in_(of_table), 1), else_=0)
            rows = part(t["macro"], t["macro"].c.schema_id, kind, t["macro"].c.macro_name)
        elif name == "column":
            c = t["column"]
            rows = part(c, c.c.table_id, c.c.parent_column, c.c.column_name)
        else:
            one = part(t["table"], t["table"].c.schema_id, nothing, t["table"].c.table_name)
            rows = sa.union_all(one, part(t["view"], t["view"].c.schema_id, nothing, t["view"].c.view_name))
        return self._overlaps(f"names_{name}", rows, ("owner", "parent", "name"))

    def orphans(self, child: str, parent: str, key: str) -> Iterator[Row]:
        """Return what lives at some time without its parent: its id and table or schema, its life, that of its parents.

        Lives of the parent are taken from its first row to its last; snapshots in which nobody can look are not told
        apart here.
        """
        c, p = self.meta[child], self.meta[parent]
        born = sa.func.min(p.c.begin_snapshot).label("born")
        died = sa.func.max(sa.func.coalesce(p.c.end_snapshot, FOREVER)).label("died")
        lives = sa.select(p.c[key].label("id"), born, died).group_by(p.c[key]).subquery()
        end = sa.func.coalesce(c.c.end_snapshot, FOREVER)
        statement = (
            sa.select(c.c[LIVING[child]], c.c[key], c.c.begin_snapshot, end, lives.c.born, lives.c.died)
            .select_from(c.outerjoin(lives, lives.c.id == c.c[key]))
            .where(sa.or_(lives.c.id.is_(None), c.c.begin_snapshot < lives.c.born, end > lives.c.died))
        )
        return self.stream(f"orphans_{child}", statement)

    # -- columns -----------------------------------------------------------------------------------------------------

    def living_columns(self, latest: int) -> Iterator[Row]:
        """Return the columns of the newest snapshot by table: table, then the fields of ``ColumnRow``."""
        c = self.meta["column"]
        statement = (
            sa.select(c.c.table_id, *self.tables.column_rows())
            .where(visible(c, latest))
            .order_by(c.c.table_id, c.c.column_id)
        )
        return self.stream("columns", statement)

    def unknown_columns(self, name: str, key: str, of: str) -> Iterator[Row]:
        """Return rows that speak of a column which their table never had: ``of``, table, column."""
        known, t = sa.select(*self.meta["column"].c["table_id", "column_id"]).distinct().subquery(), self.meta[name]
        keys = {key: "column_id", "table_id": "table_id"}
        return self.stream(f"unknown_{name}", _find_unmatched(t, known, keys, (of, "table_id", key)))

    def column_ids(self) -> Iterator[Row]:
        """Return every column that a table ever had: table, column."""
        c = self.meta["column"]
        return self.stream("column_ids", sa.select(c.c.table_id, c.c.column_id).distinct())

    def version_rows(self) -> Iterator[Row]:
        """Return the schema versions of each table in order: table, version, first snapshot."""
        v = self.meta["schema_versions"]
        table = v.c.get("table_id", sa.literal(0, sa.BigInteger()).label("table_id"))
        order = (table, v.c.schema_version, v.c.begin_snapshot)
        return self.stream("versions", sa.select(table, v.c.schema_version, v.c.begin_snapshot).order_by(*order))

    # -- what belongs to files ---------------------------------------------------------------------------------------

    def foreign_delete_files(self) -> Iterator[Row]:
        """Delete files of another table than their data file: id, its table."""
        d, f = self.meta["delete_file"], self.meta["data_file"]
        joined = d.join(f, f.c.data_file_id == d.c.data_file_id)
        statement = sa.select(d.c.delete_file_id, d.c.table_id).select_from(joined)
        return self.stream("foreign_deletes", statement.where(d.c.table_id != f.c.table_id))

    def rows_of_no_file(self, name: str) -> Iterator[Row]:
        """Return rows about data files that are not there, or are another table's: file, table."""
        keys = {"data_file_id": "data_file_id", "table_id": "table_id"}
        statement = _find_unmatched(self.meta[name], self.meta["data_file"], keys, tuple(keys))
        return self.stream(f"no_file_{name}", statement.distinct())

    def files_without(self, parent: str, key: str) -> Iterator[Row]:
        """Return files with a partitioning or name mapping that their table has not: file, table, ``key``."""
        f, keys = self.meta["data_file"], {key: key, "table_id": "table_id"}
        statement = _find_unmatched(f, self.meta[parent], keys, ("data_file_id", "table_id", key))
        return self.stream(f"without_{parent}", statement.where(f.c[key].is_not(None)))

    def stray_partition_values(self) -> Iterator[Row]:
        """Return partition values without a key in their file's partitioning: file, table, index."""
        v, f, c = self.meta["file_partition_value"], self.meta["data_file"], self.meta["partition_column"]
        joined = v.join(f, f.c.data_file_id == v.c.data_file_id).outerjoin(
            c,
            sa.and_(
                c.c.partition_id == f.c.partition_id,
                c.c.table_id == f.c.table_id,
                c.c.partition_key_index == v.c.partition_key_index,
            ),
        )
        statement = sa.select(v.c.data_file_id, v.c.table_id, v.c.partition_key_index).select_from(joined)
        return self.stream("partition_values", statement.where(c.c.partition_id.is_(None)))

    def stray_mapped_columns(self) -> Iterator[Row]:
        """Return columns of name mappings that their table never had: mapping, table, column."""
        m, n, c = self.meta["column_mapping"], self.meta["name_mapping"], self.meta["column"]
        known = sa.select(c.c.table_id, c.c.column_id).distinct().subquery()
        joined = n.join(m, m.c.mapping_id == n.c.mapping_id).outerjoin(
            known, sa.and_(known.c.table_id == m.c.table_id, known.c.column_id == n.c.target_field_id)
        )
        statement = sa.select(n.c.mapping_id, m.c.table_id, n.c.target_field_id).select_from(joined)
        return self.stream("mapped_columns", statement.where(known.c.column_id.is_(None)))

    def shared_paths(self) -> Iterator[Row]:
        """Return paths in a table's folder that several rows have: table, path, kind of file, begin, end."""
        kinds = []
        for name in ("data_file", "delete_file"):
            t = self.meta[name]
            end = sa.func.coalesce(t.c.end_snapshot, FOREVER).label("ends")
            kind = sa.literal(name, sa.String).label("kind")
            inside = t.c.path_is_relative == sa.true()
            kinds.append(sa.select(t.c.table_id, t.c.path, kind, t.c.begin_snapshot, end).where(inside))
        every, counted = sa.union_all(*kinds).subquery(), sa.union_all(*kinds).subquery()
        keys = (counted.c.table_id, counted.c.path)
        several = sa.select(*keys).group_by(*keys).having(sa.func.count() > 1).subquery()
        same = sa.and_(every.c.table_id == several.c.table_id, every.c.path == several.c.path)
        order = (every.c.table_id, every.c.path, every.c.begin_snapshot)
        return self.stream("shared_paths", sa.select(every).join(several, same).order_by(*order))

    def scheduled_in_use(self) -> Iterator[Row]:
        """Return files that wait for their deletion though the lake has them: id, table."""
        s, f, d = self.meta["files_scheduled_for_deletion"], self.meta["data_file"], self.meta["delete_file"]
        data = sa.select(s.c.data_file_id, f.c.table_id).join(f, f.c.data_file_id == s.c.data_file_id)
        deletes = sa.select(s.c.data_file_id, d.c.table_id).join(d, d.c.delete_file_id == s.c.data_file_id)
        return self.stream("scheduled", sa.union_all(data, deletes))


def _find_unmatched(rows: sa.Table, parents: Any, keys: Mapping[str, str], shown: Sequence[str]) -> sa.Select[Any]:
    """Return the rows that have no parent; ``keys`` are their columns, each with that of the parent."""
    joined = rows.outerjoin(parents, sa.and_(*(parents.c[other] == rows.c[own] for own, other in keys.items())))
    missing = parents.c[next(iter(keys.values()))].is_(None)
    return sa.select(*(rows.c[column] for column in shown)).select_from(joined).where(missing)
