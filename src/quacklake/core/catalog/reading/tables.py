"""Reading snapshots, schemas and tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from quacklake import telemetry
from quacklake.core.catalog import scoped
from quacklake.core.catalog.name_keys import is_called
from quacklake.core.catalog.reading.history import Reshaped, TableHistory, last_reshape
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.core.catalog.statements import AT, CatalogStatements, Queries, visible
from quacklake.core.catalog.tables import readable_time
from quacklake.core.format.layout import PartitionKey, PartitionSpec, SortKey, SortSpec
from quacklake.core.format.names import fold, full_names, parts_of
from quacklake.core.format.objects import Limits, SchemaInfo, TableInfo
from quacklake.core.format.schema import ColumnRow, unflatten
from quacklake.core.format.snapshots import Change, Operation, Snapshot, SnapshotInfo, operations_of, parse_changes
from quacklake.errors import NotFoundError, UnsupportedVersionError

_MAX_ID = (1 << 63) - 1


class TableQueries(TableHistory):
    """Reads the schemas and tables of a lake, dropped ones too."""

    def schemas(self, snapshot: Snapshot) -> list[SchemaInfo]:
        """Return the schemas of a snapshot by name."""
        table = self.meta["schema"]
        columns = "schema_id schema_uuid schema_name path path_is_relative parent_schema_id"
        statement = sa.select(*self.meta.columns("schema", columns)).where(visible(table, snapshot.id))
        statement = statement.order_by(table.c.schema_name)
        rows = [SchemaInfo(*row) for row in self._sql.run("schemas", statement)]
        names = full_names((info.id, info.name, info.parent_id) for info in rows)
        return [replace(info, name=names[info.id]) for info in rows if info.id in names]

    def nested_schemas(self, snapshot: Snapshot) -> Mapping[int, str | None]:
        """Return the full names of the schemas inside others, None for one whose parent is not there.

        Empty where there are none, which is so everywhere before 1.1.
        """
        if ("schema", "parent_schema_id") not in self.meta.parts:
            return {}

        def load() -> Mapping[int, str | None]:
            s = self.meta["schema"]
            statement = sa.select(s.c.schema_id, s.c.schema_name, s.c.parent_schema_id)
            rows = [tuple(row) for row in self._sql.run("nested_schemas", statement.where(visible(s, snapshot.id)))]
            names = full_names(rows)
            return {row[0]: names.get(row[0]) for row in rows if row[2] is not None}

        nested: Mapping[int, str | None] = self._sql.cached(("nested_schemas", snapshot.schema_version), load)
        return nested

    def all(self, snapshot: Snapshot) -> list[TableInfo]:
        """Return every table of a snapshot with its columns and layout, by schema and name."""
        return self._load_tables(snapshot, "tables", tuple, {})

    def names(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Return the schema and name of every table of a snapshot, in that order."""
        t, s = self.meta["table"], self.meta["schema"]
        joined = t.join(s, sa.and_(s.c.schema_id == t.c.schema_id, visible(s, snapshot.id)))
        statement = sa.select(t.c.schema_id, s.c.schema_name, t.c.table_name).select_from(joined)
        rows = self._sql.run("table_names", statement.where(visible(t, snapshot.id))).all()
        nested = self.nested_schemas(snapshot) if rows else {}
        named = ((nested.get(schema_id, schema), name) for schema_id, schema, name in rows)
        return sorted((schema, name) for schema, name in named if schema is not None)

    def find(self, snapshot: Snapshot, schema: str, name: str) -> TableInfo | None:
        """Return a table by its name, ignoring case, or None."""
        t, s = self.meta["table"], self.meta["schema"]

        def where() -> tuple[sa.ColumnElement[bool], ...]:
            named, inside = (sa.bindparam(key, type_=sa.String()) for key in ("named", "inside"))
            database = self.backend.name
            return is_called(t.c.table_name, [named], database), is_called(s.c.schema_name, [inside], database)

        names = {"named": name, "inside": parts_of(schema)[-1]}
        tables = self._load_tables(snapshot, "table", where, names)
        return next(
            (info for info in tables if (fold(info.name), fold(info.schema_name)) == (fold(name), fold(schema))), None
        )

    def by_id(self, snapshot: Snapshot, table_id: int) -> TableInfo | None:
        """Return a table by its id, whatever its name was at the snapshot, or None."""
        wanted = sa.bindparam("wanted", type_=sa.BigInteger())
        tables = self._load_tables(
            snapshot, "table_by_id", lambda: (self.meta["table"].c.table_id == wanted,), {"wanted": table_id}
        )
        return tables[0] if tables else None

    def _select_tables(self, where: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
        """Return the statement that reads tables at a snapshot, a row for each column."""
        t, s, c = self.meta["table"], self.meta["schema"], self.meta["column"]
        path, relative = self.meta.columns("schema", "path path_is_relative")
        joined = t.join(s, sa.and_(s.c.schema_id == t.c.schema_id, visible(s, AT)))
        joined = joined.outerjoin(c, sa.and_(c.c.table_id == t.c.table_id, visible(c, AT)))
        return (
            sa.select(
                *(t.c.table_id, t.c.table_uuid, t.c.schema_id, s.c.schema_name, t.c.table_name),
                *self.meta.columns("table", "path path_is_relative"),
                *(path.label("schema_path"), relative.label("schema_path_is_relative")),
                self._schema_version(t).label("table_schema_version"),
                c.c.begin_snapshot.label("column_begin"),
                *self.column_rows(),
            )
            .select_from(joined)
            .where(visible(t, AT), *where)
            .order_by(s.c.schema_name, t.c.table_name, t.c.table_id)
        )

    def _load_tables(
        self,
        snapshot: Snapshot,
        name: str,
        where: Callable[[], Sequence[sa.ColumnElement[bool]]],
        parameters: Mapping[str, Any],
    ) -> list[TableInfo]:
        """Return the tables that fulfil a condition, which is made once for each ``name``."""
        statement = self._sql.built(name, lambda: self._select_tables(where()))
        grouped: dict[tuple[Any, ...], list[ColumnRow]] = {}
        since: dict[int, int] = {}
        result = self._sql.run(name, statement, {"at_snapshot": snapshot.id, **parameters}).all()
        nested = self.nested_schemas(snapshot) if result else {}
        rows: list[ColumnRow] = []
        last: tuple[Any, ...] = ()
        for row in result:
            if row[:10] != last:  # the columns of a table follow each other
                last = row[:10]
                schema = nested.get(row[2], row[3])
                # no schema: it counts as dropped
                rows = [] if schema is None else grouped.setdefault((*row[:3], schema, *row[4:10]), [])
            if row[11] is not None:
                rows.append(ColumnRow(*row[11:]))
                since[row[0]] = max(since.get(row[0], 0), row[10])
        if not grouped:
            return []
        ids = [head[0] for head in grouped] if parameters else None
        partitioned = partitionings(self._sql, snapshot.id, ids)
        sorted_by = sorts(self._sql, snapshot.id, ids)
        tables = []
        for head, rows in grouped.items():
            id_, uuid, schema_id, schema, its_name, path, relative, schema_path, schema_relative, version = head
            info = TableInfo(
                *(id_, uuid, schema_id, schema, its_name, path, relative, unflatten(rows)),
                *(snapshot.schema_version if version is None else version, schema_path, schema_relative),
                *(partitioned.get(id_), sorted_by.get(id_), since.get(id_)),
            )
            tables.append(info)
        return tables

    def _schema_version(self, table: sa.Table) -> sa.ColumnElement[Any]:
        if "schema_versions" not in self.meta:
            return sa.literal(None, sa.BigInteger())
        v = self.meta["schema_versions"]
        own = v.c.get("table_id")
        mine = [own == table.c.table_id] if own is not None else []
        return sa.select(sa.func.max(v.c.schema_version)).where(v.c.begin_snapshot <= AT, *mine).scalar_subquery()

    def reshaped(self, snapshot: Snapshot, table: TableInfo) -> Reshaped:
        """Return when the fields inside a table's nested columns last became what they are."""
        if not any(column.nested for column in table.schema.columns):
            return Reshaped()

        def load() -> Reshaped:
            c = self.meta["column"]
            statement = sa.select(
                c.c.column_id, c.c.parent_column, c.c.column_name, c.c.begin_snapshot, c.c.end_snapshot
            ).where(c.c.table_id == table.id, c.c.begin_snapshot <= snapshot.id)
            return last_reshape([tuple(row) for row in self._sql.run("column_history", statement)], snapshot.id)

        last: Reshaped = self._sql.cached(("reshaped", table.id, snapshot.schema_version), load)
        return last

    def endless(self, table: TableInfo, columns: Collection[int]) -> bool:
        """Return whether some columns of a table may hold infinite times: their bounds say so, or are not known."""
        s = self.meta["table_column_stats"]
        statement = sa.select(s.c.column_id, s.c.min_value, s.c.max_value).where(
            s.c.table_id == table.id, s.c.column_id.in_(columns)
        )
        known = {row[0]: row[1:] for row in self._sql.run("bounds_of_times", statement)}
        bounds = [bound for id_ in columns for bound in known.get(id_, (None,))]
        return any(bound is None or "infinity" in bound for bound in bounds)


def partitionings(sql: CatalogStatements, snapshot: int, table_ids: Sequence[int] | None) -> dict[int, PartitionSpec]:
    """Return the partitioning of tables at a snapshot, by table."""

    def build() -> sa.Select[Any]:
        info, columns = sql.meta["partition_info"], sql.meta["partition_column"]
        mine = sa.and_(columns.c.partition_id == info.c.partition_id, columns.c.table_id == info.c.table_id)
        keys = columns.c["partition_key_index", "column_id", "transform"]
        select = sa.select(info.c.table_id, info.c.partition_id, *keys).select_from(info.outerjoin(columns, mine))
        return _at(select, info, table_ids).order_by(info.c.partition_id, columns.c.partition_key_index)

    return dict(grouped_specs(_run_at(sql, "partitions", build, snapshot, table_ids)))


def sorts(sql: CatalogStatements, snapshot: int, table_ids: Sequence[int] | None) -> dict[int, SortSpec]:
    """Return the order of tables at a snapshot, by table."""
    if "sort_info" not in sql.meta:
        return {}

    def build() -> sa.Select[Any]:
        info, keys = sql.meta["sort_info"], sql.meta["sort_expression"]
        mine = sa.and_(keys.c.sort_id == info.c.sort_id, keys.c.table_id == info.c.table_id)
        columns = keys.c["expression", "sort_direction", "null_order", "dialect"]
        select = sa.select(info.c.table_id, info.c.sort_id, *columns).select_from(info.join(keys, mine))
        return _at(select, info, table_ids).order_by(info.c.sort_id, keys.c.sort_key_index)

    by_table: dict[int, tuple[int, list[SortKey]]] = {}
    for table_id, id_, *key in _run_at(sql, "sorts", build, snapshot, table_ids):
        if by_table.get(table_id, (id_,))[0] != id_:
            del by_table[table_id]
        by_table.setdefault(table_id, (id_, []))[1].append(SortKey(*key))
    return {table_id: SortSpec(id_, tuple(spec_keys)) for table_id, (id_, spec_keys) in by_table.items()}


def _at(select: sa.Select[Any], info: sa.Table, table_ids: Sequence[int] | None) -> sa.Select[Any]:
    chosen = select.where(visible(info, AT))
    return chosen if table_ids is None else chosen.where(info.c.table_id.in_(sa.bindparam("ids", expanding=True)))


def _run_at(
    sql: CatalogStatements, name: str, build: Callable[[], Any], snapshot: int, table_ids: Sequence[int] | None
) -> Iterable[Any]:
    chosen = {} if table_ids is None else {"ids": list(table_ids)}
    statement = sql.built((name, table_ids is None), build)
    return sql.run(name, statement, {"at_snapshot": snapshot, **chosen})


def grouped_specs(rows: Iterable[Any]) -> Iterator[tuple[int, PartitionSpec]]:
    """Yield the partitionings of rows of keys, each with its table."""
    keys: dict[tuple[int, int], list[PartitionKey]] = {}
    for table_id, id_, index, column_id, transform in rows:
        spec_keys = keys.setdefault((table_id, id_), [])
        if index is not None:
            spec_keys.append(PartitionKey(index, column_id, transform))
    for (table_id, id_), spec_keys in keys.items():
        yield table_id, PartitionSpec(id_, tuple(spec_keys))


_LATEST = "latest_snapshot"
_PAGE = 1_000
LATEST = ("snapshot", _LATEST)
"""The key of the statement that finds the newest snapshot, in the cache of a catalog."""
LIMITS = "limits"
"""The key of the limits that were read last, in the cache of a catalog."""
_FACTS = 5
"""The number of columns of a snapshot."""


class SnapshotQueries(Queries):
    """Reads the snapshots of a lake."""

    def columns(self) -> list[sa.ColumnElement[Any]]:
        table = self.meta["snapshot"]
        time = readable_time(table.c.snapshot_time, self.backend.name, "snapshot_time")
        return [table.c.snapshot_id, time, table.c.schema_version, table.c.next_catalog_id, table.c.next_file_id]

    def _select_snapshot(self, name: str, build: Any, parameters: Mapping[str, Any]) -> Snapshot | None:
        def all_of() -> Any:
            return self._sql.built(name, lambda: build().add_columns(self._version(), *self._limit_columns()))

        statement = self._sql.cached(("snapshot", name), all_of)
        return self._snapshot(next(iter(self._sql.ask(name, statement, parameters)), None))

    def _snapshot(self, row: Sequence[Any] | None) -> Snapshot | None:
        if row is None:
            return None
        facts, version, texts = row[:_FACTS], row[_FACTS], row[_FACTS + 1 :]
        if version is not None and version != self.meta.version:
            raise UnsupportedVersionError(
                f"the lake was migrated to the format version {version} by another connection", hint="open it again"
            )
        if texts:
            self._sql.limits = self._sql._cache[LIMITS] = Limits.of(*texts)
        return Snapshot(*facts)

    def _version(self) -> sa.ColumnElement[Any]:
        """Return the version of the lake as a column of every snapshot: no client may go on at another version."""
        table = self.meta["metadata"]
        own = [table.c.scope.is_(None)] if "scope" in table.c else []
        version = sa.select(table.c.value).where(table.c.key == "version", *own)
        # a plain lake that became a shared one has several versions; the longest is the one that no client knows
        return version.order_by(sa.func.length(table.c.value).desc()).limit(1).scalar_subquery()

    def _limit_columns(self) -> list[sa.ColumnElement[Any]]:
        """Return the limits of a catalog of a shared lake as columns, which are read with every snapshot."""
        if not self.meta.shared:
            return []
        tables = SharedTables.of(self.meta.metadata.schema)
        own = sa.select(tables.catalog.c.limits).where(tables.catalog.c.catalog_id == scoped.bind)
        return [own.scalar_subquery(), sa.select(tables.shared.c.limits).scalar_subquery()]

    def latest(self) -> Snapshot:
        """Return the newest snapshot."""
        table = self.meta["snapshot"]
        ahead, self._sql.ahead = self._sql.ahead, None
        if ahead is not None:
            telemetry.count("catalog.statements")
            newest = self._snapshot(next(iter(ahead), None))
        else:
            newest = self._select_snapshot(
                _LATEST, lambda: sa.select(*self.columns()).order_by(table.c.snapshot_id.desc()).limit(1), {}
            )
        if newest is None and self.meta.shared:
            raise self._sql.catalog_dropped()
        if newest is None:
            raise NotFoundError("the lake has no snapshot", hint="its metadata may be only half copied")
        return newest

    def check_there(self) -> None:
        """Raise an error when the lake is no longer the one that was opened. Reading a snapshot checks this too.

        A catalog of a shared lake may have been dropped (``NotFoundError``), a plain lake migrated or become a shared
        one, whose tables hold the rows of other catalogs too (``UnsupportedVersionError``).
        """
        self.latest()

    def oldest(self) -> Snapshot | None:
        """Return the oldest snapshot that is kept."""
        table = self.meta["snapshot"]
        return self._select_snapshot(
            "oldest_snapshot", lambda: sa.select(*self.columns()).order_by(table.c.snapshot_id).limit(1), {}
        )

    def oldest_unbroken(self) -> Snapshot:
        """Return the oldest snapshot after which none has expired: a tag may keep one that is older."""
        table = self.meta["snapshot"]
        before = table.alias("before")
        gap = ~sa.exists().where(before.c.snapshot_id == table.c.snapshot_id - 1)
        statement = sa.select(*self.columns()).where(gap).order_by(table.c.snapshot_id.desc()).limit(1)
        return Snapshot(*self._sql.run("oldest_unbroken", statement).one())

    def times(self, versions: Collection[int]) -> dict[int, dt.datetime]:
        """Return when snapshots were made; those that are gone are missing."""
        if not versions:
            return {}
        wanted = sa.select(*self.columns()).where(self.meta["snapshot"].c.snapshot_id.in_(sorted(versions)))
        return {row[0]: row[1] for row in self._sql.run("snapshot_times", wanted) if row[1] is not None}

    def find(self, version: int) -> Snapshot | None:
        """Return the snapshot with that id, if there is one."""
        if abs(version) > _MAX_ID:
            return None
        table = self.meta["snapshot"]
        return self._select_snapshot(
            "snapshot_by_id",
            lambda: sa.select(*self.columns()).where(table.c.snapshot_id == sa.bindparam("version")),
            {"version": version},
        )

    def at_version(self, version: int) -> Snapshot:
        """Return the snapshot with that id. Raise ``NotFoundError``, or ``SnapshotExpiredError`` when it is gone."""
        snapshot = self.find(version)
        if snapshot is None:
            if 0 <= version < self.latest().id:
                raise self._sql.expired(f"No snapshot found at version {version}: snapshot {version} has expired")
            raise NotFoundError(
                f"No snapshot found at version {version}", hint="lake.snapshots() lists those that exist"
            )
        return snapshot

    def at_time(self, time: dt.datetime, *, until: bool = False) -> Snapshot:
        """Return the newest snapshot made at or before a time.

        In 1.1 a time in the future is valid only for ranges that go ``until`` it. Raise ``SnapshotExpiredError`` when
        the snapshots of that time have expired, even though an older one is left.
        """
        table = self.meta["snapshot"]
        snapshot = self._select_snapshot(
            "snapshot_by_time",
            lambda: (
                sa.select(*self.columns())
                .where(table.c.snapshot_time <= sa.bindparam("time", type_=table.c.snapshot_time.type))
                .order_by(table.c.snapshot_time.desc(), table.c.snapshot_id.desc())
                .limit(1)
            ),
            {"time": time},
        )
        if snapshot is None:
            if self._sql.run("first_snapshot", sa.select(table.c.snapshot_id).where(table.c.snapshot_id == 0)).first():
                raise NotFoundError(
                    f"No snapshot found at timestamp {time}: the first snapshot is newer",
                    hint="lake.snapshots() lists those that exist",
                )
            raise self._sql.expired(f"No snapshot found at timestamp {time}: those of that time have expired")
        if self.meta.is_next and not until and time > max(snapshot.time or time, dt.datetime.now(dt.UTC)):
            raise NotFoundError(
                f"No snapshot found at timestamp {time}: it is in the future",
                hint="leave the time out for the newest snapshot",
            )
        if snapshot.time != time:
            later = sa.select(sa.func.min(table.c.snapshot_id)).where(table.c.snapshot_id > snapshot.id)
            if (self._sql.run("next_snapshot", later).scalar() or snapshot.id + 1) != snapshot.id + 1:
                why = f"the newest one then, after snapshot {snapshot.id}, has expired"
                raise self._sql.expired(f"No snapshot found at timestamp {time}: {why}")
        return snapshot

    def first_since(self, time: dt.datetime) -> int | None:
        """Return the id of the oldest snapshot made at or after a time, or None."""
        table = self.meta["snapshot"]
        statement = sa.select(sa.func.min(table.c.snapshot_id)).where(
            table.c.snapshot_time >= sa.bindparam("time", type_=table.c.snapshot_time.type)
        )
        first: int | None = self._sql.run("first_snapshot_since", statement, {"time": time}).scalar()
        return first

    def count(self) -> int:
        """Return the number of snapshots that have not expired."""
        table = self.meta["snapshot"]
        counted: int = self._sql.run("count_snapshots", sa.select(sa.func.count(table.c.snapshot_id))).scalar_one()
        return counted

    def before(self, version: int) -> int | None:
        """Return the id of the newest snapshot before one, or None."""
        table = self.meta["snapshot"]
        statement = sa.select(sa.func.max(table.c.snapshot_id)).where(table.c.snapshot_id < version)
        last: int | None = self._sql.run("snapshot_before", statement).scalar()
        return last

    def all(self) -> list[SnapshotInfo]:
        """Return every snapshot with what it changed, oldest first."""
        return self.last(None)

    def last(self, limit: int | None, before: int | None = None) -> list[SnapshotInfo]:
        """Return the newest ``limit`` snapshots, of those before one, with what they changed, oldest first."""
        snapshot, changes = self.meta["snapshot"], self.meta["snapshot_changes"]
        told = self.meta.columns("snapshot_changes", "changes_made author commit_message commit_extra_info")
        statement = (
            sa.select(*self.columns()[:3], *told)
            .select_from(snapshot.outerjoin(changes, changes.c.snapshot_id == snapshot.c.snapshot_id))
            .order_by(snapshot.c.snapshot_id.desc())
            .limit(limit)
        )
        if before is not None:
            statement = statement.where(snapshot.c.snapshot_id < before)
        rows = self._sql.run("snapshots", statement)
        snapshots = [
            SnapshotInfo(id_, time, version, parse_changes(made), *told) for id_, time, version, made, *told in rows
        ]
        if not snapshots and before is None and limit != 0 and self.meta.shared:
            raise self._sql.catalog_dropped()
        return snapshots[::-1]

    def newest_first(self, before: int | None = None) -> Iterator[SnapshotInfo]:
        """Yield the snapshots, of those before one, from the newest to the oldest; they are read page by page."""
        while page := self.last(_PAGE, before):
            yield from reversed(page)
            before = page[0].id

    def changes_since(self, version: int) -> list[tuple[int, tuple[Change, ...]]]:
        """Return what every snapshot after ``version`` changed, in order."""
        table = self.meta["snapshot_changes"]
        statement = self._sql.cached(
            "changes_since",
            lambda: (
                sa.select(table.c.snapshot_id, table.c.changes_made)
                .where(table.c.snapshot_id > sa.bindparam("version"))
                .order_by(table.c.snapshot_id)
            ),
        )
        rows = self._sql.run("changes_since", statement, {"version": version})
        return [(row[0], parse_changes(row[1])) for row in rows]

    def changes_between(self, first: int, last: int) -> dict[int, str | None]:
        """Return what the snapshots from ``first`` to ``last`` changed, as the catalog has it, without expired ones."""
        s, c = self.meta["snapshot"], self.meta["snapshot_changes"]
        since, until = (sa.bindparam(name, type_=sa.BigInteger()) for name in ("first", "last"))
        statement = self._sql.cached(
            "changes_between",
            lambda: (
                sa.select(s.c.snapshot_id, c.c.changes_made)
                .select_from(s.outerjoin(c, c.c.snapshot_id == s.c.snapshot_id))
                .where(s.c.snapshot_id.between(since, until))
                .order_by(s.c.snapshot_id)
            ),
        )
        rows = self._sql.run("changes_between", statement, {"first": first, "last": last})
        return {row[0]: row[1] for row in rows}

    def operations(self, first: int = 0) -> dict[int, Operation]:
        """Return the operations that made snapshots from ``first`` on, where the tokens of their commits tell."""
        tokens = self.meta.own["commits"]
        if not (self.meta.shared or self._sql.has_table(tokens.name)):
            return {}
        operations: dict[int, Operation] = {}
        statement = sa.select(tokens.c.snapshot_id, tokens.c.token).where(tokens.c.snapshot_id >= first)
        for snapshot, token in self._sql.run("tokens", statement):
            operations[snapshot] = operations.get(snapshot, Operation.NONE) | operations_of(str(token))
        return operations
