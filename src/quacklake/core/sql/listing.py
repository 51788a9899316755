"""DuckDB's listings, such as ``duckdb_tables()``, with the lakes included, and definitions of existing objects.

Listings run on a database in which every lake is a database of its name, with tables that have no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import arrow_table, connect, first_row
from quacklake.core.engines.duckdb.expressions import parser, plain_expression
from quacklake.core.engines.duckdb.stored_texts import LAKE, parse_query
from quacklake.core.format.layout import key_texts
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.objects import MacroInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import Column
from quacklake.core.operations.reference import DEFAULT_SCHEMA
from quacklake.core.operations.views import COMMENT, forms_of
from quacklake.core.sql import metadata, tree
from quacklake.core.sql.attached import PREFIX, SYSTEM, Attached
from quacklake.core.sql.result import Result
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


_LISTINGS = frozenset(
    """
    duckdb_tables duckdb_columns duckdb_views duckdb_schemas duckdb_databases duckdb_constraints duckdb_functions
    duckdb_indexes pragma_database_size sqlite_master pragma_table_info
    """.split()  # noqa: SIM905
)
#: The column that holds the database, which differs between listings.
_DATABASE = ("database_name", "table_catalog", "catalog_name", "constraint_catalog", "database")
#: The columns that hold definitions of objects.
_TEXTS = ("sql", "view_definition", "expression", "column_default", "comment", "table_comment", "column_comment")
_NAMED = ("table_name", "view_name", "function_name", "name")


_NAMED_TAGS = (("ducklake_view_column_tag", "view_id"),)
"""Tags of columns that have no id, which version 1.1 of the format has."""
_SHOWN = {'"tables"': "SHOW TABLES", "__show_tables_expanded": "SHOW ALL TABLES"}
"""The statements for a SHOW inside of a query, by the name that DuckDB gives it."""


def relation(session: Session, names: Sequence[str]) -> pa.Table | None:
    """Return the rows of a listing that is named like a table, or None."""
    last = fold(names[-1])
    schema = next((fold(name) for name in names[:-1] if fold(name) in SYSTEM), None)
    if schema is not None:
        return _rows(session, f"SELECT * FROM {schema}.{quote(last)}")
    if last in _LISTINGS and len(names) == 1 and session.attachments.lakes:
        return _rows(session, f"SELECT * FROM {last}" + ("" if last == "sqlite_master" else "()"))
    return None


def function(session: Session, names: Sequence[str], arguments: list[Node]) -> pa.Table | None:
    """Return the rows of a listing that is called like a function, or None."""
    last = fold(names[-1])
    if len(names) != 1 or last not in _LISTINGS or not session.attachments.lakes:
        return None
    connection = session.connection
    given = ", ".join(
        tree.render(connection, tree.query_of(connection, argument)).removeprefix("SELECT ") for argument in arguments
    )
    if last == "pragma_table_info":
        with listing(session) as planner:
            return arrow_table(planner, f"SELECT * FROM {last}({given})")
    return _rows(session, f"SELECT * FROM {last}({given})")


def _rows(session: Session, sql: str) -> pa.Table:
    """Return the rows of a listing, for lakes from their copies and for other databases directly."""
    own = {fold(attached.alias) for attached in session.attachments.lakes.values()}
    with listing(session) as planner:
        mine = arrow_table(planner, sql)
    column = next((name for name in _DATABASE if name in mine.column_names), None)
    if column is None:
        return mine
    others = arrow_table(session.connection, sql)
    found = pa.concat_tables(
        [
            _where(mine, column, lambda name: fold(name) in own),
            _where(others, column, lambda name: fold(name) not in own),
        ]
    )
    hidden = next((name for name in _NAMED if name in others.column_names), None)
    if hidden is not None:
        found = _where(found, hidden, lambda name: not name.startswith(PREFIX))
    if any(attached.handle.restricted for attached in session.attachments.lakes.values()):
        found = _without_texts(found)
    if "estimated_size" in found.column_names and "table_name" in found.column_names:
        found = _with_sizes(session, found)
    if "database_size" in found.column_names or "readonly" in found.column_names:
        found = _with_facts(session, found)
    return found


def _without_texts(rows: pa.Table) -> pa.Table:
    """Return a listing without definitions, defaults and comments, which may tell of what is hidden."""
    for place, name in enumerate(rows.column_names):
        if name.lower() in _TEXTS:
            rows = rows.set_column(place, name, pa.nulls(rows.num_rows, rows.schema.field(place).type))
    return rows


def _where(rows: pa.Table, column: str, keeps: Callable[[str], bool]) -> pa.Table:
    return rows.filter(pa.array([keeps(str(value)) for value in rows.column(column).to_pylist()], pa.bool_()))


def _with_sizes(session: Session, rows: pa.Table) -> pa.Table:
    """Replace the row counts of the lakes' tables."""
    sizes: dict[tuple[str, str, str], int] = {}
    for attached in session.attachments.lakes.values():
        if attached.handle.restricted:
            continue  # how many rows there are may be hidden
        stats = metadata.rows(attached, "ducklake_table_stats").select(["table_id", "record_count"]).to_pylist()
        counts = {row["table_id"]: row["record_count"] for row in stats}
        for table in session.view(attached).tables():
            sizes[(attached.alias, table.schema_name, table.name)] = counts.get(table.id) or 0
    keys = zip(*(rows.column(n).to_pylist() for n in ("database_name", "schema_name", "table_name")), strict=True)
    known = rows.column("estimated_size").to_pylist()
    values = [sizes.get(key, size) for key, size in zip(keys, known, strict=True)]
    place = rows.column_names.index("estimated_size")
    return rows.set_column(place, "estimated_size", pa.array(values, rows.schema.field(place).type))


def _with_facts(session: Session, rows: pa.Table) -> pa.Table:
    """Replace the sizes of the lakes by those of their files, and their path, type and tags."""
    found = rows.to_pylist()
    for row in found:
        attached = session.attachments.get(row["database_name"])
        if attached is not None and attached.handle.restricted:
            continue
        if attached is not None and "database_size" in row:
            files = metadata.rows(attached, "ducklake_data_file").select(["file_size_bytes", "end_snapshot"])
            size = pc.sum(files.filter(pc.is_null(files.column("end_snapshot"))).column("file_size_bytes")).as_py()
            shown = first_row(session.connection, "SELECT format_bytes(?)", [size or 0])
            row["database_size"] = "0 bytes" if shown is None else shown[0]
        if attached is not None and "readonly" in row:
            url = attached.context.catalog.url
            row["path"] = str(url if url.path is None else url.path)
            row["type"] = "ducklake"
            row["tags"] = [("data_path", attached.context.store.root)]
            row["readonly"] = attached.read_only
    return pa.Table.from_pylist(found, schema=rows.schema)


def shown(session: Session, sql: str) -> Result:
    """Run SHOW TABLES and similar statements."""
    named = Cursor(sql)
    words = [word.upper for word in named.words]
    if words[1:2] == ["DATABASES"]:
        return session.native(sql)
    if words[1:3] == ["ALL", "TABLES"]:
        return Result(_rows(session, "SELECT * FROM (SHOW ALL TABLES)"))
    named.until("FROM")
    names = named.names() if named.accept("FROM") else []
    lake = session.attachments.get(names[0]) if names else session.names.default
    if lake is None and not (names and session.names.default is not None):
        return session.native(sql)
    with listing(session) as planner:
        return Result(arrow_table(planner, sql))


def shown_inside(session: Session, node: Node) -> pa.Table | None:
    """Return the rows of a SHOW inside of a query; None for one that DuckDB answers itself, such as of a table."""
    if not session.attachments.lakes:
        return None
    asked = _SHOWN.get(str(node.get("table_name", "")))
    inside = (node.get("query") or {}).get("from_table") or {}
    if node.get("show_type") == "SHOW_FROM":
        place = [node[key] for key in ("catalog_name", "schema_name") if node.get(key)]
        asked = f"SHOW TABLES FROM {'.'.join(map(quote, place))}"
    elif inside.get("type") == "BASE_TABLE" or node.get("show_type") == "SHOW":  # the latter in 2.x
        named = inside or node
        names = [named[key] for key in ("catalog_name", "schema_name", "table_name") if named.get(key)]
        if session.names.relation(names) is not None:
            asked = None if inside else f"SHOW {'.'.join(map(quote, names))}"
        elif [fold(each) for each in names] == ["grants"]:
            asked = "SHOW GRANTS"
    if asked is None:
        return None
    from quacklake.core.sql import statements

    cursor = session.guard.admit(session, Cursor(asked))
    return statements.handler(cursor)(session, cursor, None).to_arrow()


def own_error(session: Session, sql: str, params: Any, error: duckdb.Error) -> duckdb.Error:
    """Return the error that the user's own text causes over empty tables, if it is of the same type."""
    try:
        with listing(session) as copies:
            copies.execute(sql, params)
    except duckdb.Error as found:
        return found if type(found) is type(error) else error
    return error


# -- definitions -------------------------------------------------------------------------------------------------------


def described(table: TableInfo, *, defaults: bool = True) -> Result:
    """Return the columns of a table in the form of DESCRIBE, with their defaults or without."""
    names = ("column_name", "column_type", "null", "key", "default", "extra")
    rows = [
        (
            column.name,
            _shown_type(column),
            "YES" if column.nullable else "NO",
            None,
            _default_of(column) if defaults else None,
            None,
        )
        for column in table.schema.columns
    ]
    schema = pa.schema([(name, pa.string()) for name in names])
    return Result(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema))


def _shown_type(column: Column) -> str:
    """Return the type as DuckDB prints it: names are quoted only where necessary."""
    if not column.nested:
        return column.duckdb_type()
    with connect(":memory:") as connection:
        row = first_row(connection, f"SELECT typeof(NULL::{column.duckdb_type()})")
    return column.duckdb_type() if row is None else str(row[0])


def _default_of(column: Column) -> str | None:
    """Return the default of a column as SQL."""
    if column.default is None or column.default_kind == "expression":
        return column.default
    return literal(column.default)


def _declare_column(column: Column) -> str:
    """Return a column definition for CREATE TABLE."""
    text = f"{quote(column.name)} {column.duckdb_type()}"
    default = _default_of(column)
    if default is not None:
        text += f" DEFAULT {default}" if column.default_kind != "expression" else f" DEFAULT ({default})"
    return text if column.nullable else f"{text} NOT NULL"


def table_definition(tx: Transaction, table: TableInfo) -> str:
    """Return the statement that creates a table, with its columns, primary key, partitioning and sort order."""
    parts = [_declare_column(column) for column in table.schema.columns]
    key = tx.objects.primary_key(table)
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(quote(name) for name in key)})")
    lines = ",\n".join(f"  {part}" for part in parts)
    text = f"CREATE TABLE {_place(table)} (\n{lines}\n)"
    partitioned = key_texts(table.partition, table.schema)
    if partitioned:
        text += f"\nPARTITIONED BY ({', '.join(partitioned)})"
    if table.sort is not None and table.sort.keys:
        text += f"\nSORTED BY ({', '.join(str(key) for key in table.sort.keys)})"
    return f"{text};"


def view_definition(view: ViewInfo, catalog: str = "") -> str:
    """Return the statement that creates a view, in another catalog if one is given."""
    columns = f" ({', '.join(quote(name) for name in view.aliases)})" if view.aliases else ""
    return f"CREATE VIEW {catalog}{_place(view)}{columns} AS {view.sql.replace(LAKE, '')}"


def _place(found: TableInfo | ViewInfo | MacroInfo) -> str:
    return f"{quote(found.schema_name)}.{quote(found.name)}"


# -- copies of lakes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """The objects of a lake that listings show."""

    schemas: tuple[str, ...]
    tables: tuple[TableInfo, ...]
    views: tuple[ViewInfo, ...]
    macros: tuple[MacroInfo, ...]
    comments: tuple[tuple[int, int | str | None, str], ...]


@contextmanager
def listing(session: Session) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection to a database with empty copies of the current objects of the lakes."""
    with session.attachments.lock, session.attachments.planner.cursor() as cursor:
        for attached in session.attachments.lakes.values():
            _copy(cursor, session.attachments.copies, attached, session.view(attached))
        used = session.names.default
        if used is not None:
            cursor.execute(f"USE {quote(used.alias)}.{quote(session.names.schema)}")
        yield cursor


def _copy(cursor: duckdb.DuckDBPyConnection, copies: dict[str, Any], attached: Attached, tx: Transaction) -> None:
    wanted = Copy(
        tuple(info.name for info in tx.schemas()),
        tuple(tx.tables()),
        tuple(tx.objects.views()),
        tuple(tx.objects.macros()),
        tuple(_comments(attached, tx)),
    )
    if copies.get(attached.alias) == wanted:
        return
    copies.pop(attached.alias, None)
    alias = quote(attached.alias)
    cursor.execute("USE memory")
    cursor.execute(f"DETACH {alias}")
    cursor.execute(f"ATTACH ':memory:' AS {alias}")
    for schema in wanted.schemas:
        if fold(schema) != DEFAULT_SCHEMA:
            cursor.execute(f"CREATE SCHEMA {alias}.{quote(schema)}")
    for table in wanted.tables:
        columns = ", ".join(_declare_column(_parsed_default(column)) for column in table.schema.columns)
        cursor.execute(f"CREATE TABLE {alias}.{_place(table)} ({columns})")
    for macro in wanted.macros:
        with suppress(duckdb.Error, InputError):
            cursor.execute(f"CREATE OR REPLACE MACRO {alias}.{_place(macro)} {forms_of(macro)}")
    relations = {fold(table.name) for table in wanted.tables} | {fold(view.name) for view in wanted.views}
    functions = {fold(macro.name) for macro in wanted.macros}
    waiting = list(wanted.views)
    for _ in range(2):  # views may use views that come later
        waiting = [view for view in waiting if not _make_view(cursor, alias, view, relations, functions)]
    # a view is listed even if a table that it uses is gone, but not to a principal that may not see the table
    for view in () if attached.handle.restricted else wanted.views:
        with suppress(duckdb.Error):
            cursor.execute(f"CREATE VIEW IF NOT EXISTS {alias}.{_place(view)} AS SELECT NULL AS {PREFIX}gone")
    cursor.execute("USE memory")
    for statement in _comment_statements(alias, wanted):
        with suppress(duckdb.Error):
            cursor.execute(statement)
    copies[attached.alias] = wanted


def _make_view(
    cursor: duckdb.DuckDBPyConnection, alias: str, view: ViewInfo, relations: set[str], functions: set[str]
) -> bool:
    """Create a view that names only objects of the lake, so that binding it opens no file. Return False on failure."""
    columns = f"({', '.join(quote(name) for name in view.aliases)})" if view.aliases else ""
    try:
        with parser() as connection:
            query = parse_query(connection, view.sql)
        named, called = ({fold(name) for _, name in names} for names in (query.relations, query.table_functions))
        if not (named <= relations and called <= functions):
            return False
        cursor.execute(f"USE {alias}.{quote(view.schema_name)}")
        cursor.execute(f"CREATE OR REPLACE VIEW {alias}.{_place(view)}{columns} AS {query.sql}")
    except (duckdb.Error, InputError):
        return False
    return True


def _parsed_default(column: Column) -> Column:
    """Return a column whose default fits into a statement. A default that is not an expression is left out."""
    if column.default is None or column.default_kind != "expression":
        return column
    try:
        return replace(column, default=plain_expression(column.default))
    except InputError:
        return replace(column, default=None, default_kind="literal")


def _comments(attached: Attached, tx: Transaction) -> Iterable[tuple[int, int | str | None, str]]:
    found: dict[tuple[int, int | str | None], str | None] = {}
    for name, key in (("ducklake_tag", "object_id"), ("ducklake_column_tag", "table_id"), *_NAMED_TAGS):
        if (name, key) in _NAMED_TAGS and not attached.context.catalog.is_next:
            continue
        for row in metadata.rows(attached, name).to_pylist():
            alive = row["begin_snapshot"] <= tx.base.id and (row["end_snapshot"] or tx.base.id + 1) > tx.base.id
            if row["key"] == COMMENT and alive:
                found[(row[key], row.get("column_id", row.get("column_name")))] = row["value"]
    for tag in tx.objects.noted():
        if tag.key == COMMENT:
            found[(tag.object_id, tag.column_id if tag.column_name is None else tag.column_name)] = tag.value
    return [(*place, text) for place, text in found.items() if text is not None]


def _comment_statements(alias: str, copy: Copy) -> Iterable[str]:
    """Yield the statements that make the comments."""
    tables = {table.id: table for table in copy.tables}
    views = {view.id: view for view in copy.views}
    for object_id, column_id, text in copy.comments:
        table, view = tables.get(object_id), views.get(object_id)
        if table is not None and column_id is not None:
            column = next((c for c in table.schema.columns if c.id == column_id), None)
            if column is not None:
                yield f"COMMENT ON COLUMN {alias}.{_place(table)}.{quote(column.name)} IS {literal(text)}"
        elif table is not None:
            yield f"COMMENT ON TABLE {alias}.{_place(table)} IS {literal(text)}"
        elif view is not None and isinstance(column_id, str):
            yield f"COMMENT ON COLUMN {alias}.{_place(view)}.{quote(column_id)} IS {literal(text)}"
        elif view is not None:
            yield f"COMMENT ON VIEW {alias}.{_place(view)} IS {literal(text)}"
