"""Make rows fit a table and insert them, as files or inlined; never guess or drop anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb import DuckDBEngine
from quacklake.core.engines.duckdb.connections import writing
from quacklake.core.engines.duckdb.engine import places_to_target
from quacklake.core.engines.duckdb.expressions import plain_expression
from quacklake.core.engines.duckdb.rows import reads_back
from quacklake.core.format import inline, small_batches
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.objects import NAME_ROW_ID, TableInfo
from quacklake.core.format.schema import Column, TableSchema, from_arrow
from quacklake.core.format.stats import ColumnStats, of_array
from quacklake.core.format.types import can_store, duckdb_type, scalar
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import LOCAL_VERSION
from quacklake.core.transaction import InlinedInsert, Transaction
from quacklake.errors import ConstraintError, InputError, NotPermittedError, SchemaMismatchError, nearest

if TYPE_CHECKING:
    from quacklake.core.operations.context import LakeContext

_NUMBERS = ("int", "uint", "float", "decimal")
_ZONED = '{frame}.dt.tz_localize("UTC") says in which zone they are'
_HINTS = {
    ("text", "timestamp"): "parse the text first: pd.to_datetime({frame}), or {cast} in SQL",
    ("text", "timestamptz"): "parse the text first: pd.to_datetime({frame}, utc=True), or {cast} in SQL",
    ("text", "date"): "parse the text first: pd.to_datetime({frame}).dt.date, or {cast} in SQL",
    ("text", "time"): "parse the text first: datetime.time.fromisoformat(…), or {cast} in SQL",
    ("text", "number"): "parse the text first: pd.to_numeric({frame}), or {cast} in SQL",
    ("text", "boolean"): "make True and False of the text first, such as {frame} == 'yes', or {cast} in SQL",
    ("float", "whole"): 'round the numbers first: {frame}.round().astype("Int64"), in which NaN is NULL',
    ("float", "decimal"): "pass decimal.Decimal, or round the numbers with {cast} in SQL",
    ("timestamp", "timestamptz"): f"the times have no zone: {_ZONED}",
    ("timestamptz", "timestamp"): "the times have a zone: {frame}.dt.tz_localize(None) drops it",
    ("timestamp", "date"): "drop the time of the day first: {frame}.dt.date, or {cast} in SQL",
    ("any", "text"): "make text of the values first: {frame}.astype(str), or {cast} in SQL",
}


def conversion_hint(given: Column, wanted: Column) -> str | None:
    """Return how to convert values of one type to another, or None if there is no simple way."""
    if wanted.type == "list" and not given.nested:
        return f'the column "{wanted.name}" takes lists: pass [value] where there is one'
    for one in _kinds(given.type):
        for two in _kinds(wanted.type):
            if (one, two) in _HINTS:
                frame = f'df["{given.name}"]'
                cast = f"CAST({given.name} AS {wanted.duckdb_type()})"
                return _HINTS[one, two].format(frame=frame, cast=cast)
    return None


def _kinds(type_: str) -> list[str]:
    """Return the kinds of a type, the closest first."""
    base = type_.partition("(")[0]
    kinds = {"varchar": ["text"], "json": ["text"], "float32": ["float"], "float64": ["float"]}.get(base, [base])
    if base.startswith(("int1", "int3", "int6", "int8", "uint")):
        kinds.append("whole")
    if base.startswith("timestamp_"):
        kinds.append("timestamp")
    if base.startswith(_NUMBERS) and base != "interval":
        kinds.append("number")
    return [*kinds, "any"]


_CHECKED = ("json", "uuid", "variant")


@dataclass(frozen=True, slots=True)
class Match:
    """A column of a table and the input column that fills it; None means the column's default."""

    column: Column
    source: str | None


class Matches(list[Match]):
    """The matches of all columns of a table with those of an Arrow schema."""

    def __init__(self, matches: Iterable[Match], rows: pa.Schema) -> None:
        super().__init__(matches)
        columns = [found.column for found in self]
        self._same = (
            [column.name for column in columns] == rows.names
            and not any(column.children or column.type in _CHECKED for column in columns)
            and [column.arrow_type() for column in columns] == rows.types
        )
        self._required = [place for place, column in enumerate(columns) if not column.nullable]

    def fit(self, rows: pa.Table) -> bool:
        """Return True for rows that are those of the lake's table already."""
        return self._same and not any(rows.column(place).null_count for place in self._required)


def match(rows: pa.Schema, schema: TableSchema, table: str, *, partial: bool = False) -> Matches:
    """Match a table's columns with the input's; ``partial`` lets any be missing. Raise ``SchemaMismatchError``."""
    return Matches(match_given(given_schema(rows, table), schema, table, partial=partial), rows)


def match_given(given: TableSchema, schema: TableSchema, table: str, *, partial: bool = False) -> list[Match]:
    """Match columns as returned by :func:`given_schema`; see ``match``."""
    pairs = [(column, given.by_name.get(key)) for key, column in schema.by_name.items()]
    extra = [column.name for key, column in given.by_name.items() if key not in schema.by_name]
    missing = [column.name for column, one in pairs if one is None and column.default is None and not partial]
    problems = []
    if extra:
        problems.append(f"unknown column{'s' if len(extra) > 1 else ''} {_list(extra)}")
    if missing:
        problems.append(f"missing column{'s' if len(missing) > 1 else ''} {_list(missing)}")
    for column, one in pairs:
        problem = None if one is None else type_problem(one, column, column.name, partial=partial)
        if problem:
            problems.append(problem)
    if problems:
        hint = _hint(given, schema, extra, missing)
        raise SchemaMismatchError(f"the rows do not fit {table}: {'; '.join(problems)}", hint=hint)
    return [Match(column, None if one is None else one.name) for column, one in pairs]


def check_index(index: Sequence[str], schema: TableSchema, table: str) -> None:
    """Raise ``SchemaMismatchError`` if a column of an index of pandas has no place in a table."""
    extra = [name for name in index if schema.get(name) is None]
    if extra:
        raise SchemaMismatchError(
            f"the rows do not fit {table}: the index of the frame is {_list(extra)}, which the table does not have",
            hint="index=False leaves the index out; evolve=True adds a column for it",
        )


def _hint(given: TableSchema, schema: TableSchema, extra: Sequence[str], missing: Sequence[str]) -> str:
    """Return a hint about the first difference."""
    if extra:
        near = nearest(extra[0], schema.names)
        return near or f"evolve=True adds columns; the table has {_list(schema.names)}"
    if missing:
        return "pass all columns, with None for what is not known; evolve=True lets those that are missing be NULL"
    for column in schema.columns:
        source = given.get(column.name)
        if source is not None and type_problem(source, column, column.name, partial=True):
            hint = conversion_hint(source, column)
            if hint is not None:
                return hint
    return f"the table has {_list(schema.names)}; evolve=True adds columns and widens types"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def given_schema(rows: pa.Schema, table: str) -> TableSchema:
    """Return the columns of rows; a column that is always NULL has type ``unknown``. Raise ``SchemaMismatchError``."""
    try:
        given = from_arrow(rows)
    except InputError as error:
        raise SchemaMismatchError(f"the rows do not fit {table}: {error.message}", hint=error.hint) from None
    return TableSchema(
        tuple(_with_unknown(column, field.type) for column, field in zip(given.columns, rows, strict=True))
    )


def _with_unknown(column: Column, arrow: pa.DataType) -> Column:
    if pa.types.is_null(arrow):
        return replace(column, type="unknown")
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return _with_unknown(column, arrow.value_type)
    match column.type:
        case "struct":
            types = [field.type for field in arrow]
        case "list":
            types = [arrow.value_type]
        case "map":
            types = [arrow.key_type, arrow.item_type]
        case _:
            return column
    children = zip(column.children, types, strict=True)
    return replace(column, children=tuple(_with_unknown(child, type_) for child, type_ in children))


def type_problem(given: Column, wanted: Column, path: str, *, partial: bool) -> str | None:
    """Return why values of one column do not fit another, or None; ``partial`` lets structs lack fields."""
    if wanted.type == "variant":
        return None  # accepts anything

    def below(pairs: Iterable[tuple[Column, Column]]) -> str | None:
        problems = (type_problem(one, two, f"{path}.{two.name}", partial=partial) for one, two in pairs)
        return next((problem for problem in problems if problem), None)

    if given.type == "unknown":
        return None
    if given.children or wanted.children:
        if given.type != wanted.type:
            return f'"{path}" is {given.duckdb_type()}, the table has {wanted.duckdb_type()}'
        if wanted.type != "struct":
            return below(zip(given.children, wanted.children, strict=True))
        inside = {fold(child.name): child for child in given.children}
        known = {fold(child.name): child for child in wanted.children}
        if not (set(inside) <= set(known) if partial else set(inside) == set(known)):
            return f'"{path}" is {given.duckdb_type()}, the table has {wanted.duckdb_type()}'
        return below((inside[name], child) for name, child in known.items() if name in inside)
    if can_store(given.type, wanted.type):
        return None
    return f'"{path}" is {given.type}, the table has {wanted.type}'


def expressions(
    matches: Sequence[Match], values: Mapping[int, str | None] = MappingProxyType({}), *, checked: bool = True
) -> list[str]:
    """Return the select list that converts the input; ``values`` is SQL by column id where a cast would misread."""
    select = []
    for found in matches:
        column, value = found.column, values.get(found.column.id)
        if value is None:
            value = default_value(column) if found.source is None else given_value(column, found.source)
        if checked and not column.nullable:
            message = literal(f'NOT NULL constraint failed: NULL in the NOT NULL column "{column.name}"')
            value = f"CASE WHEN {value} IS NULL THEN error({message}) ELSE {value} END"
        select.append(f"{value} AS {quote(column.name)}")
    return select


def given_value(column: Column, source: str, qualifier: str = "") -> str:
    """Return the SQL that converts a column of the input to a column of the table."""
    value = f"{qualifier}{quote(source)}"
    if any(node.type == "json" for node in column.walk()):
        # Text that Arrow calls JSON may be any text.
        value = f"CAST({value} AS {_as_text(column).duckdb_type()})"
    return f"CAST({value} AS {column.duckdb_type()})"


def _as_text(column: Column) -> Column:
    """Replace JSON by text in the type of a column."""
    children = tuple(map(_as_text, column.children))
    return replace(column, type="varchar" if column.type == "json" else column.type, children=children)


def default_value(column: Column) -> str:
    """Return the SQL of a column's value in a new row that does not give it. Raise ``InputError``."""
    if column.default is None:
        return f"NULL::{column.duckdb_type()}"
    if column.default_kind != "expression":
        return f"CAST({literal(column.default)} AS {column.duckdb_type()})"
    try:
        return f"CAST(({plain_expression(column.default)}) AS {column.duckdb_type()})"
    except InputError as error:
        raise InputError(f'the default of the column "{column.name}" cannot be used: {error.message}') from None


def to_table(engine: DuckDBEngine, rows: pa.Table, matches: Sequence[Match]) -> pa.Table:
    """Return a small table with exactly the columns and types of the lake's table."""
    quick = _quick(rows, matches)
    if quick is not None:
        return quick
    with engine.connection() as connection, writing():
        connection.register("ql_source", rows)
        return arrow_table(connection, f"SELECT {', '.join(expressions(matches))} FROM ql_source")


def _quick(rows: pa.Table, matches: Sequence[Match]) -> pa.Table | None:
    """Like ``to_table``, but without an engine, for rows that need only Arrow casts; else None."""
    arrays: list[pa.ChunkedArray] = []
    names: list[str] = []
    same = True
    for found in matches:
        column = found.column
        if found.source is None or column.nested or column.type in _CHECKED:
            return None
        array = given = rows.column(found.source)
        wanted = column.arrow_type()
        if array.type != wanted:
            try:
                array = array.cast(wanted)
            except pa.ArrowNotImplementedError:
                return None
            except pa.ArrowInvalid as error:
                wider = scalar(column.type).widens_to
                hint = f'table.alter_column("{column.name}", "{duckdb_type(wider[-1])}") widens it' if wider else None
                raise ConstraintError(f'a value does not fit the column "{column.name}": {error}', hint=hint) from None
        if not column.nullable and array.null_count:
            raise ConstraintError(f'NOT NULL constraint failed: NULL in the NOT NULL column "{column.name}"')
        arrays.append(array)
        names.append(column.name)
        same = same and array is given
    return rows if same and names == rows.schema.names else pa.Table.from_arrays(arrays, names=names)


def encode_insert(
    context: LakeContext, table: TableInfo, rows: pa.Table, row_ids: Sequence[int | None]
) -> tuple[InlinedInsert, list[int]]:
    """Encode rows for the catalog, and return the places of those that it does not hold.

    The rows must have the exact types of the table. The catalog does not hold a row whose text DuckDB reads otherwise.
    """
    database = context.catalog.encoding
    columns: list[list[Any] | None] = []
    stats: list[ColumnStats] = []
    for index, small in enumerate(small_batches.encode(rows, table.schema, database)):
        if small is not None:
            columns.append(small[0])
            stats.append(small[1])
            continue
        column = table.schema.columns[index]
        array, wanted = rows.column(index), column.arrow_type()
        if array.type != wanted and not column.travels_as_text and "tz=" in str(array.type):
            # inlined times are in UTC, and DuckDB returns them in the time zone of the session
            rows = rows.set_column(index, rows.schema.field(index).with_type(wanted), array.cast(wanted))
            array = rows.column(index)
        columns.append(inline.encode(array, column, database))
        if column.nested and column.travels_as_text:
            stats.extend(ColumnStats(leaf.id) for leaf in column.leaves())
        else:
            stats.extend(of_array(array, column))
    unreadable: list[int] = []
    if None in columns:
        named = list(zip(table.schema.columns, columns, strict=True))
        as_text = [column for column, values in named if values is None]
        texts, unreadable = context.engine.inlined_texts(rows, as_text, check=True)
        columns = [texts[column.id] if values is None else values for column, values in named]
        if database == "postgres":
            places = {i for values in texts.values() for i, text in enumerate(values) if text and "\0" in text}
            unreadable = sorted(places.union(unreadable))
    encoded = cast("list[list[Any]]", columns)
    insert = InlinedInsert(rows, tuple(zip(*encoded, strict=True)), tuple(row_ids), tuple(stats))
    return insert, unreadable


def insert_few(
    context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Table, row_ids: Sequence[int | None]
) -> None:
    """Insert few rows, which must have the exact types of the table, into the catalog; into a file what it cannot hold.

    Raise ``ConstraintError`` for a row that neither can hold.
    """
    insert, unreadable = encode_insert(context, table, rows, row_ids)
    if unreadable:
        write_rows(context, tx, table, insert.rows.take(unreadable), [row_ids[place] for place in unreadable])
        insert = without_rows(insert, unreadable)
    if insert.rows.num_rows:
        tx.pending(table).add_insert(insert)


def without_rows(insert: InlinedInsert, places: Sequence[int]) -> InlinedInsert:
    """Return an insert less some rows; its statistics stay: they are bounds."""
    gone = set(places)
    kept = [place for place in range(insert.rows.num_rows) if place not in gone]
    return replace(
        insert,
        rows=insert.rows.take(pa.array(kept, pa.int64())),
        encoded=tuple(insert.encoded[place] for place in kept),
        row_ids=tuple(insert.row_ids[place] for place in kept),
    )


def write_rows(
    context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Table, row_ids: Sequence[int | None]
) -> None:
    """Write rows of a table to files; those with a row id keep it."""
    ids = pa.array(row_ids, pa.int64())
    rows = rows.rename_columns(list(table.schema.names))
    select = ", ".join(f"CAST({quote(c.name)} AS {c.duckdb_type()}) AS {quote(c.name)}" for c in table.schema.columns)
    for kept in (True, False):
        part = rows.filter(pc.is_valid(ids) if kept else pc.is_null(ids))
        if part.num_rows:
            if kept:
                part = part.append_column(NAME_ROW_ID, ids.drop_null())
            query = f"SELECT {select}{f', {quote(NAME_ROW_ID)}' if kept else ''} FROM ql_source"
            with context.engine.connection() as connection:
                connection.register("ql_source", part)
                RowWriter(context, tx, table, connection).write_query(query, row_ids=kept, size=part.nbytes)


def check_not_null(connection: duckdb.DuckDBPyConnection, rows: str, columns: Sequence[Column]) -> None:
    """Raise ``ConstraintError`` when rows have NULL in a required one of these columns."""
    for column in columns:
        if not column.nullable:
            found = first_row(connection, f"SELECT 1 FROM {rows} WHERE {quote(column.name)} IS NULL LIMIT 1")
            if found is not None:
                raise ConstraintError(f'NOT NULL constraint failed: NULL in the NOT NULL column "{column.name}"')


@dataclass
class RowWriter:
    """Writes rows of queries on a connection into a table, as changes of a transaction."""

    context: LakeContext
    tx: Transaction
    table: TableInfo
    connection: duckdb.DuckDBPyConnection

    def write_query(
        self, query: str, *, row_ids: bool = False, size: int | None = None, negative_zeros: bool | None = None
    ) -> int:
        """Write the rows of a query to files; return how many.

        One whose rows cannot be read twice comes with ``negative_zeros``, as for ``FileWriter.write``.
        """
        options, tx = self.context.write_options(self.table), self.tx
        files = self.context.writer.write(
            self.connection,
            query,
            self.table,
            options,
            tx.wrote,
            tx.local_id,
            row_ids=row_ids,
            size_hint=size,
            negative_zeros=negative_zeros,
        )
        tx.pending(self.table).files.extend(files)
        return sum(file.record_count for file in files)

    def insert_query(self, query: str, *, row_ids: bool = False, count: int | None = None) -> int:
        """Insert the rows of a query, inlined if they are few; return how many, which ``count`` says if it is known.

        With ``row_ids``, they have those of ``NAME_ROW_ID``.
        """
        if count is None:
            counted = first_row(self.connection, f"SELECT count(*) FROM ({query})")
            count = int(counted[0]) if counted else 0
        if count > self.context.inline_limit(self.table):
            self.write_query(query, row_ids=row_ids)
        elif count:
            self._inline(f"({query})", quote(NAME_ROW_ID) if row_ids else "NULL")
        return count

    def _inline(self, relation: str, row_id: str) -> None:
        """Insert rows into the catalog; types that Arrow lacks are fetched as text.

        Rows that such a text does not bring back go into a file.
        """
        columns = self.table.schema.columns
        select = [
            f"{quote(c.name)}::VARCHAR AS {quote(c.name)}" if c.travels_as_text else quote(c.name) for c in columns
        ]
        checks = [reads_back(quote(column.name), column) for column in columns if column.travels_as_text]
        select += [row_id, " AND ".join(checks) or "true"]
        rows = arrow_table(self.connection, f"SELECT {', '.join(select)} FROM {relation}")
        readable = rows.columns[-1]
        if pc.all(readable).as_py() is False:
            self._write_unreadable(relation, row_id, " AND ".join(checks))
            rows = rows.filter(readable)
        row_ids = rows.columns[-2].to_pylist()
        insert_few(self.context, self.tx, self.table, rows.select(range(len(columns))), row_ids)

    def _write_unreadable(self, relation: str, row_id: str, condition: str) -> None:
        """Write the rows that do not satisfy a condition to files."""
        names = ", ".join(quote(column.name) for column in self.table.schema.columns)
        rows = f"SELECT {names}, {row_id} AS {quote(NAME_ROW_ID)} FROM {relation} WHERE NOT ({condition})"
        for known in (True, False):
            query = f"FROM ({rows}) WHERE {quote(NAME_ROW_ID)} IS {'NOT ' if known else ''}NULL"
            if first_row(self.connection, f"SELECT 1 {query} LIMIT 1"):
                self.write_query(
                    f"SELECT {f'{names}, {quote(NAME_ROW_ID)}' if known else names} {query}", row_ids=known
                )

    def check_updates(self) -> None:
        """Raise ``NotPermittedError`` where columns are masked, before an expression meets what it would write."""
        visible = self.tx.visible(self.table)
        if visible is not None and visible.masks:
            raise NotPermittedError(
                f"rows of {self.table.qualified_name} cannot be changed: the true values of masked columns are hidden",
                hint="an administrator can change them",
            )

    def replace_rows(self, plan: ScanPlan, changed: str) -> int:
        """Delete the rows that changed rows were made from, and insert the changed rows with the same row ids."""
        self.check_updates()
        pending = self.tx.pending(self.table)
        places = arrow_table(self.connection, f"SELECT _ql_file_id, _ql_version, _ql_position FROM {changed}")
        count = int(places.num_rows)
        if not count:
            return 0
        kept = pending.known_row_ids()
        pending.delete(plan, places_to_target(places))
        with self._mapped_ids(changed, kept) as rows:
            if count <= self.context.inline_limit(self.table):
                self._inline(rows, "_ql_row_id")
                return count
            select = ", ".join(quote(column.name) for column in self.table.schema.columns)
            for known in (True, False):
                relation = f"{rows} WHERE _ql_row_id IS {'NOT ' if known else ''}NULL"
                row_id = f", _ql_row_id AS {quote(NAME_ROW_ID)}" if known else ""
                if first_row(self.connection, f"SELECT 1 FROM {relation} LIMIT 1"):
                    self.write_query(f"SELECT {select}{row_id} FROM {relation}", row_ids=known)
        return count

    @contextmanager
    def _mapped_ids(self, changed: str, kept: Mapping[int, int | None]) -> Iterator[str]:
        """Yield a relation of changed rows with committed row ids instead of ids local to the transaction."""
        if not kept:
            yield changed
            return
        ids = pa.table({"local": pa.array(list(kept), pa.int64()), "kept": pa.array(list(kept.values()), pa.int64())})
        self.connection.register("ql_kept", ids)
        try:
            own = "(SELECT kept FROM ql_kept WHERE local = _ql_row_id)"
            row_id = f"CASE WHEN _ql_version = {LOCAL_VERSION:d} THEN {own} ELSE _ql_row_id END"
            yield f"(SELECT * REPLACE ({row_id} AS _ql_row_id) FROM {changed})"
        finally:
            self.connection.unregister("ql_kept")
