"""The operations on rows: what append, delete, update, merge and overwrite do inside a transaction."""

from __future__ import annotations

import uuid as uuid_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.catalog import DatedDeletes
from quacklake.engines.duckdb.engine import places_to_target
from quacklake.engines.duckdb.failures import writing
from quacklake.engines.duckdb.sql import ROW_COLUMNS
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError
from quacklake.format.bounds import decode
from quacklake.format.measure import of_array
from quacklake.format.names import quote
from quacklake.format.objects import NAME_ROW_ID, TableInfo
from quacklake.format.predicate import ANYTHING, Predicate, compare, every
from quacklake.lake import conform, evolution
from quacklake.lake.expression import Expression
from quacklake.lake.frames import Source
from quacklake.lake.inlining import encoded_insert
from quacklake.lake.settings import Shared
from quacklake.scan import ScanPlan, to_predicate
from quacklake.scan.plan import LOCAL_VERSION
from quacklake.transaction import NewDeleteFile, PastDeleteFile, PendingTable, TouchedFile, Transaction

__all__ = [
    "DUPLICATES_SHOWN",
    "DeleteFiles",
    "MergeResult",
    "append",
    "append_new",
    "check_not_null",
    "delete",
    "delete_keys",
    "duplicate_keys",
    "insert_kept",
    "insert_query",
    "merge",
    "overwrite",
    "replace_rows",
    "seal",
    "update",
]

DUPLICATES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did."""

    updated: int
    inserted: int


# -- append ------------------------------------------------------------------------------------------------------------


def append(shared: Shared, tx: Transaction, table: TableInfo, source: Source, *, evolve: bool = False) -> int | None:
    """Add rows; returns how many, or None when a stream did not say. With ``evolve`` the table gets their columns."""
    if source.empty:
        return 0
    if evolve:
        table = evolution.evolve(shared, tx, table, source.schema)
    matches = shared.match(source.schema, table, partial=evolve)
    small = source.first(shared.inline_limit(table))
    if small is not None:
        if small.num_rows:
            rows = conform.to_table(shared.engine, small, matches)
            tx.pending(table).add_insert(encoded_insert(shared, table, rows, [None] * rows.num_rows))
        return int(small.num_rows)
    select = ", ".join(conform.expressions(matches))
    with source.lend() as rows, shared.engine.connection() as connection:
        with writing():
            connection.register("ql_source", rows)
        return _write(shared, tx, connection, f"SELECT {select} FROM ql_source", table, size=source.size)


def _write(
    shared: Shared,
    tx: Transaction,
    connection: duckdb.DuckDBPyConnection,
    query: str,
    table: TableInfo,
    *,
    row_ids: bool = False,
    size: int | None = None,
) -> int:
    files = shared.writer.write(
        connection, query, table, shared.write_options(table), tx.wrote, tx.local_id, row_ids=row_ids, size_hint=size
    )
    tx.pending(table).files.extend(files)
    return sum(file.record_count for file in files)


# -- delete ------------------------------------------------------------------------------------------------------------


def delete(shared: Shared, tx: Transaction, table: TableInfo, where: str | None) -> int | None:
    """Delete the rows that satisfy a filter; returns how many, or None for all rows of a table that must be counted."""
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    pending = tx.pending(table)
    pending.add_read(predicate)
    if where is None:
        count = plan.count()
        pending.delete_all(plan)
        return count
    with shared.engine.connection() as connection:
        query = shared.engine.bind(connection, plan, rows=True, where=where)
        target = shared.engine.find(connection, query, where, table.schema)
    pending.delete(plan, target)
    return target.count


def delete_keys(shared: Shared, tx: Transaction, table: TableInfo, rows: pa.Table, on: Sequence[str]) -> int:
    """Delete the rows whose keys some rows have; returns how many."""
    keys = [table.schema.find(name) for name in on]
    if not rows.num_rows:
        return 0
    with shared.engine.connection() as connection:
        incoming = _temporary()
        select = ", ".join(f"CAST({quote(key.name)} AS {key.duckdb_type()}) AS {quote(key.name)}" for key in keys)
        try:
            with writing():
                connection.register("ql_source", rows)
                connection.execute(f"CREATE TABLE {incoming} AS SELECT DISTINCT {select} FROM ql_source")
            predicate = _key_range(connection, incoming, keys)
            plan = tx.plan(table, predicate)
            pending = tx.pending(table)
            pending.add_read(predicate)
            query = shared.engine.bind(connection, plan, rows=True)
            same = " AND ".join(f"t.{quote(key.name)} = s.{quote(key.name)}" for key in keys)
            found = shared.engine.find(
                connection, f"SELECT t.* FROM ({query}) t SEMI JOIN {incoming} s ON {same}", None, table.schema
            )
            pending.delete(plan, found)
            return found.count
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {incoming}")


def overwrite(
    shared: Shared, tx: Transaction, table: TableInfo, source: Source, where: str | None, *, evolve: bool = False
) -> int | None:
    """Replace the rows that satisfy a filter (all without one) by others, in one snapshot."""
    delete(shared, tx, table, where)
    return append(shared, tx, table, source, evolve=evolve)


# -- update ------------------------------------------------------------------------------------------------------------


def update(shared: Shared, tx: Transaction, table: TableInfo, values: Mapping[str, Any], where: str | None) -> int:
    """Set columns of the rows that satisfy a filter; returns how many. Row ids stay."""
    if not values:
        raise InputError("nothing to update", hint='pass {"column": value}')
    assigned = {table.schema.find(name).id: _assignment(value) for name, value in values.items()}
    if len(assigned) != len(values):
        raise InputError("a column is set twice")
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    pending = tx.pending(table)
    pending.add_read(predicate)
    with shared.engine.connection() as connection:
        query = shared.engine.bind(connection, plan, rows=True, where=where)
        with writing():
            relation = connection.sql(query)
            relation = relation if where is None else relation.filter(where)
            select = [
                assigned.get(column.id, duckdb.SQLExpression(quote(column.name)))
                .cast(duckdb.sqltype(column.duckdb_type()))
                .alias(column.name)
                for column in table.schema.columns
            ]
            places = [duckdb.ColumnExpression(name) for name in ROW_COLUMNS]
            relation.select(*select, *places).create(changed := _temporary())
        try:
            check_not_null(connection, changed, [column for column in table.schema.columns if column.id in assigned])
            return replace_rows(shared, tx, connection, table, plan, changed)
        finally:
            connection.execute(f"DROP TABLE {changed}")


def _assignment(value: Any) -> duckdb.Expression:
    return duckdb.SQLExpression(value.sql) if isinstance(value, Expression) else duckdb.ConstantExpression(value)


def _temporary() -> str:
    return f"ql_changed_{uuid_module.uuid4().hex}"


def check_not_null(connection: duckdb.DuckDBPyConnection, rows: str, columns: Sequence[Any]) -> None:
    """Raise ``ConstraintError`` when rows of a table have NULL in one of these columns and must not."""
    for column in columns:
        if not column.nullable:
            found = connection.execute(f"SELECT 1 FROM {rows} WHERE {quote(column.name)} IS NULL LIMIT 1").fetchone()
            if found is not None:
                raise ConstraintError(f'NULL in the NOT NULL column "{column.name}"')


def replace_rows(
    shared: Shared,
    tx: Transaction,
    connection: duckdb.DuckDBPyConnection,
    table: TableInfo,
    plan: ScanPlan,
    changed: str,
) -> int:
    """Delete the rows a table of changed rows was made from and insert the changed ones under the same row ids."""
    pending = tx.pending(table)
    places = connection.execute(f"SELECT _ql_file_id, _ql_version, _ql_position FROM {changed}").to_arrow_table()
    if not places.num_rows:
        return 0
    kept = pending.known_row_ids()
    pending.delete(plan, places_to_target(places))
    select = ", ".join(quote(column.name) for column in table.schema.columns)
    if places.num_rows <= shared.inline_limit(table):
        fetched = _fetched(table)
        rows = connection.execute(f"SELECT {fetched}, _ql_row_id, _ql_version FROM {changed}").to_arrow_table()
        versions, ids = rows.column("_ql_version").to_pylist(), rows.column("_ql_row_id").to_pylist()
        row_ids = [
            kept.get(id_) if version == LOCAL_VERSION else id_ for id_, version in zip(ids, versions, strict=True)
        ]
        pending.add_insert(encoded_insert(shared, table, rows.select(range(len(table.schema.columns))), row_ids))
        return int(places.num_rows)
    _map_local_ids(connection, changed, kept)
    with_id = f"SELECT {select}, _ql_row_id AS {quote(NAME_ROW_ID)} FROM {changed} WHERE _ql_row_id IS NOT NULL"
    without = f"SELECT {select} FROM {changed} WHERE _ql_row_id IS NULL"
    if connection.execute(f"SELECT 1 FROM {changed} WHERE _ql_row_id IS NOT NULL LIMIT 1").fetchone():
        _write(shared, tx, connection, with_id, table, row_ids=True)
    if connection.execute(f"SELECT 1 FROM {changed} WHERE _ql_row_id IS NULL LIMIT 1").fetchone():
        _write(shared, tx, connection, without, table)
    return int(places.num_rows)


def _fetched(table: TableInfo) -> str:
    """The select list of a table's columns that go through Arrow; what it cannot carry goes as text."""
    names = [(quote(column.name), column.travels_as_text) for column in table.schema.columns]
    return ", ".join(f"{name}::VARCHAR AS {name}" if text else name for name, text in names)


def _map_local_ids(connection: duckdb.DuckDBPyConnection, changed: str, kept: Mapping[int, int | None]) -> None:
    """Replace row ids that are local to the transaction by the committed ones their rows keep."""
    if not kept:
        return
    mapping = pa.table({"local": pa.array(list(kept), pa.int64()), "kept": pa.array(list(kept.values()), pa.int64())})
    connection.register("ql_kept", mapping)
    connection.execute(
        f"UPDATE {changed} SET _ql_row_id = (SELECT kept FROM ql_kept WHERE local = _ql_row_id)"
        f" WHERE _ql_version = {LOCAL_VERSION:d}"
    )
    connection.unregister("ql_kept")


# -- merge -------------------------------------------------------------------------------------------------------------


def merge(
    shared: Shared, tx: Transaction, table: TableInfo, source: Source, on: Sequence[str], *, evolve: bool = False
) -> MergeResult:
    """Update the rows whose keys the source has, insert the others. Row ids of updated rows stay.

    Raises ``ConstraintError`` that names the keys when the source has one twice.
    """
    if evolve:
        table = evolution.evolve(shared, tx, table, source.schema)
    keys = [table.schema.find(name) for name in on]
    if not keys:
        raise InputError("merge needs at least one key column", hint='pass on="id"')
    matches = conform.match(source.schema, table.schema, table.qualified_name, partial=True)
    given = {found.column.id for found in matches if found.source is not None}
    lacking = [key.name for key in keys if key.id not in given]
    if lacking:
        raise SchemaMismatchError(
            f"the rows lack the key column {lacking[0]!r}", hint=f"they have {', '.join(source.schema.names)}"
        )
    with shared.engine.connection() as connection:
        incoming, changed = _temporary(), _temporary()
        select = ", ".join(conform.expressions(matches))
        with source.lend() as rows, writing():
            connection.register("ql_source", rows)
            connection.execute(f"CREATE TABLE {incoming} AS SELECT {select} FROM ql_source")
        try:
            _check_keys(connection, incoming, keys)
            predicate = _key_range(connection, incoming, keys)
            plan = tx.plan(table, predicate)
            tx.pending(table).add_read(predicate)
            query = shared.engine.bind(connection, plan, rows=True)
            columns = ", ".join(
                f"{'s' if column.id in given else 't'}.{quote(column.name)} AS {quote(column.name)}"
                for column in table.schema.columns
            )
            condition = " AND ".join(f"t.{quote(key.name)} = s.{quote(key.name)}" for key in keys)
            with writing():
                connection.execute(
                    f"CREATE TABLE {changed} AS SELECT {columns}, {', '.join(f't.{name}' for name in ROW_COLUMNS)}"
                    f" FROM ({query}) t JOIN {incoming} s ON {condition}"
                )
            same = " AND ".join(f"c.{quote(key.name)} = s.{quote(key.name)}" for key in keys)
            fresh = f"SELECT s.* FROM {incoming} s ANTI JOIN {changed} c ON {same}"
            inserted = insert_query(shared, tx, connection, fresh, table)
            updated = replace_rows(shared, tx, connection, table, plan, changed)
            return MergeResult(updated, inserted)
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {incoming}; DROP TABLE IF EXISTS {changed}")


def append_new(
    shared: Shared, tx: Transaction, table: TableInfo, source: Source, on: Sequence[str], *, evolve: bool = False
) -> int:
    """Add the rows whose keys the table does not have, of several with one key the first; returns how many."""
    if source.empty:
        return 0
    if evolve:
        table = evolution.evolve(shared, tx, table, source.schema)
    keys = [table.schema.find(name) for name in on]
    names = ", ".join(quote(key.name) for key in keys)
    matches = shared.match(source.schema, table, partial=evolve)
    with shared.engine.connection() as connection:
        incoming = _temporary()
        with source.lend() as rows, writing():
            connection.register("ql_source", rows)
            connection.execute(
                f"CREATE TABLE {incoming} AS SELECT {', '.join(conform.expressions(matches))} FROM ql_source"
            )
        try:
            predicate = _key_range(connection, incoming, keys)
            plan = tx.plan(table, predicate)
            tx.pending(table).add_read(predicate)
            query = shared.engine.bind(connection, plan)
            same = " AND ".join(f"s.{quote(key.name)} = t.{quote(key.name)}" for key in keys)
            first = f"SELECT DISTINCT ON ({names}) * FROM {incoming} ORDER BY rowid"
            with writing():
                return insert_query(
                    shared, tx, connection, f"SELECT s.* FROM ({first}) s ANTI JOIN ({query}) t ON {same}", table
                )
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {incoming}")


def insert_query(
    shared: Shared, tx: Transaction, connection: duckdb.DuckDBPyConnection, query: str, table: TableInfo
) -> int:
    """Insert the rows of a query, inlined when they are few."""
    counted = connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
    count = int(counted[0]) if counted else 0
    if count and count <= shared.inline_limit(table):
        rows = connection.execute(f"SELECT {_fetched(table)} FROM ({query})").to_arrow_table()
        tx.pending(table).add_insert(encoded_insert(shared, table, rows, [None] * count))
    elif count:
        _write(shared, tx, connection, query, table)
    return count


def insert_kept(
    shared: Shared, tx: Transaction, connection: duckdb.DuckDBPyConnection, query: str, table: TableInfo
) -> int:
    """Insert the rows of a query under the row ids that it has as ``NAME_ROW_ID``, inlined when they are few."""
    counted = connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
    count = int(counted[0]) if counted else 0
    if count and count <= shared.inline_limit(table):
        row_id = quote(NAME_ROW_ID)
        rows = connection.execute(f"SELECT {_fetched(table)}, {row_id} FROM ({query})").to_arrow_table()
        row_ids = rows.column(NAME_ROW_ID).to_pylist()
        rows = rows.select(range(len(table.schema.columns)))
        tx.pending(table).add_insert(encoded_insert(shared, table, rows, row_ids))
    elif count:
        _write(shared, tx, connection, query, table, row_ids=True)
    return count


def _check_keys(connection: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[Any]) -> None:
    names = ", ".join(quote(key.name) for key in keys)
    complete = " AND ".join(f"{quote(key.name)} IS NOT NULL" for key in keys)
    found = connection.execute(
        f"SELECT {names}, count(*) FROM {rows} WHERE {complete} GROUP BY {names} HAVING count(*) > 1"
        f" ORDER BY {names} LIMIT {DUPLICATES_SHOWN + 1:d}"
    ).fetchall()
    if found:
        raise duplicate_keys([key.name for key in keys], [row[:-1] for row in found])


def duplicate_keys(names: Sequence[str], found: Sequence[tuple[Any, ...]]) -> ConstraintError:
    """The error about keys that come twice; of those that are found it shows ``DUPLICATES_SHOWN``."""
    shown = ", ".join(str(row[0] if len(names) == 1 else row) for row in found[:DUPLICATES_SHOWN])
    more = " and more" if len(found) > DUPLICATES_SHOWN else ""
    return ConstraintError(
        f"the rows have duplicate keys ({', '.join(names)}): {shown}{more}", hint="keep one row for each key"
    )


def _key_range(connection: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[Any]) -> Predicate:
    """What the keys of the source allow: between the smallest and the largest."""
    parts: list[Predicate] = []
    for key in keys:
        if key.nested:
            continue
        name = quote(key.name)
        bounds = connection.execute(f"SELECT min({name}) AS low, max({name}) AS high FROM {rows}").to_arrow_table()
        for column, operator in (("low", ">="), ("high", "<=")):
            found = of_array(bounds.column(column), key)[0]
            parts.append(compare(key, operator, decode(found.min if operator == ">=" else found.max, key.type)))
    return every(parts) if parts else ANYTHING


# -- the end of a transaction ------------------------------------------------------------------------------------------


def seal(shared: Shared, tx: Transaction) -> None:
    """Before the commit: many small inserts of one table together become a file.

    So does every insert into a table that has got a column which cannot be inlined.
    """
    for pending in tx.pendings():
        limit = shared.inline_limit(pending.table)
        if sum(insert.rows.num_rows for insert in pending.inserts) > limit:
            spill(shared, tx, pending, updated=not limit)


def spill(shared: Shared, tx: Transaction, pending: PendingTable, *, updated: bool = True) -> None:
    """Write the small inserts of a table into files; ``updated`` rows, which keep their ids, too."""
    table = pending.table
    new = [insert for insert in pending.inserts if insert.rows.num_rows]
    chosen = [insert for insert in new if updated or all(row_id is None for row_id in insert.row_ids)]
    if not chosen:
        return
    rows = pa.concat_tables([insert.rows for insert in chosen], promote_options="permissive")
    rows = rows.rename_columns(list(table.schema.names))
    row_ids = pa.array([row_id for insert in chosen for row_id in insert.row_ids], pa.int64())
    pending.keep_inserts([insert for insert in new if insert not in chosen])
    select = ", ".join(f"CAST({quote(c.name)} AS {c.duckdb_type()}) AS {quote(c.name)}" for c in table.schema.columns)
    for kept in (True, False):
        part = rows.filter(pc.is_valid(row_ids) if kept else pc.is_null(row_ids))
        if part.num_rows:
            _write_sealed(shared, tx, table, select, part, row_ids.drop_null() if kept else None)


def _write_sealed(
    shared: Shared, tx: Transaction, table: TableInfo, select: str, rows: pa.Table, row_ids: pa.Array | None
) -> None:
    if row_ids is not None:
        rows = rows.append_column(NAME_ROW_ID, row_ids)
        select += f", {quote(NAME_ROW_ID)}"
    with shared.engine.connection() as connection:
        connection.register("ql_source", rows)
        query = f"SELECT {select} FROM ql_source"
        _write(shared, tx, connection, query, table, row_ids=row_ids is not None, size=rows.nbytes)


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """The writer of delete files for the change set of a transaction."""

    shared: Shared

    def write(
        self,
        tx: Transaction,
        table: TableInfo,
        file_id: int,
        file: TouchedFile,
        positions: pa.Array,
        begin_snapshot: int | None,
    ) -> NewDeleteFile:
        """All deletes of a data file, the given positions among them."""
        writer = self.shared.writer
        vectors = self.shared.writes_vectors(table)
        return writer.write_deletes(
            table, file_id, file, positions, tx.wrote, tx.base.id, begin_snapshot, vectors=vectors
        )

    def write_past(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """The deletes that a data file had before it ended."""
        vectors = self.shared.writes_vectors(table)
        return self.shared.writer.write_past_deletes(table, file_id, file, tx.wrote, tx.base.id, dated, vectors=vectors)

    def redate(self, tx: Transaction, table: TableInfo, file: NewDeleteFile, snapshot: int) -> NewDeleteFile:
        """The same delete file with another snapshot for its new deletes."""
        return self.shared.writer.redate_deletes(table, file, tx.wrote, snapshot)
