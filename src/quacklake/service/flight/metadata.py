"""The answers of Flight SQL about the lake: its catalogs, schemas, tables, columns and keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from quacklake import Session
from quacklake.errors import NotPermittedError, QuacklakeError
from quacklake.extend.names import TableRef, quote
from quacklake.extend.schemas import TableSchema
from quacklake.service.flight import scans
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.queries import CATALOG, described
from quacklake.service.flight.settings import FlightSettings

TABLE, VIEW = "TABLE", "VIEW"
_TYPE_NAME = "ARROW:FLIGHT:SQL:TYPE_NAME"
_text = pa.utf8()


def _required_field(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


CATALOGS = pa.schema([_required_field("catalog_name", _text)])
DB_SCHEMAS = pa.schema([("catalog_name", _text), _required_field("db_schema_name", _text)])
TABLE_TYPES = pa.schema([_required_field("table_type", _text)])
TABLES = pa.schema(
    [
        ("catalog_name", _text),
        ("db_schema_name", _text),
        _required_field("table_name", _text),
        _required_field("table_type", _text),
    ]
)
TABLES_WITH_SCHEMA = TABLES.append(_required_field("table_schema", pa.binary()))
PRIMARY_KEYS = pa.schema(
    [
        ("catalog_name", _text),
        ("db_schema_name", _text),
        _required_field("table_name", _text),
        _required_field("column_name", _text),
        ("key_name", _text),
        _required_field("key_sequence", pa.int32()),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        ("pk_catalog_name", _text),
        ("pk_db_schema_name", _text),
        _required_field("pk_table_name", _text),
        _required_field("pk_column_name", _text),
        ("fk_catalog_name", _text),
        ("fk_db_schema_name", _text),
        _required_field("fk_table_name", _text),
        _required_field("fk_column_name", _text),
        _required_field("key_sequence", pa.int32()),
        ("fk_key_name", _text),
        ("pk_key_name", _text),
        _required_field("update_rule", pa.uint8()),
        _required_field("delete_rule", pa.uint8()),
    ]
)


def catalogs(caller: Caller) -> pa.Table:
    """Return the only catalog: that of the lake."""
    return pa.table({"catalog_name": [CATALOG]}, CATALOGS)


def db_schemas(caller: Caller, catalog: str | None, pattern: str | None) -> pa.Table:
    """Return the schemas whose names match a pattern."""
    wanted = like(pattern)
    found = sorted(name for name in caller.identity.lake.schemas() if catalog in (None, CATALOG) and wanted(name))
    return pa.table({"catalog_name": [CATALOG] * len(found), "db_schema_name": found}, DB_SCHEMAS)


def tables(caller: Caller, settings: FlightSettings, command: Any, session: Session | None) -> pa.Table:
    """Return the tables and views that a command asks for; their columns where there is a session to bind views in."""
    schema_wanted = like(_optional(command, "db_schema_filter_pattern"))
    name_wanted = like(_optional(command, "table_name_filter_pattern"))
    types = set(command.table_types) or {TABLE, VIEW}
    view = caller.identity.lake.handle.view()
    found: list[tuple[str, str, str, pa.Schema | None]] = []
    if _optional(command, "catalog") in (None, CATALOG):
        if TABLE in types:
            found += [(each.schema_name, each.name, TABLE, _with_types(each.schema)) for each in view.tables()]
        if VIEW in types:
            found += [(each.schema_name, each.name, VIEW, None) for each in view.objects.views()]
    chosen = sorted((each for each in found if schema_wanted(each[0]) and name_wanted(each[1])), key=lambda e: e[:3])
    scans.check_listed(len(chosen), settings.max_listed)
    columns: dict[str, Any] = {
        "catalog_name": [CATALOG] * len(chosen),
        "db_schema_name": [each[0] for each in chosen],
        "table_name": [each[1] for each in chosen],
        "table_type": [each[2] for each in chosen],
    }
    if session is None:
        return pa.table(columns, TABLES)
    schemas = [_columns(session, *each) for each in chosen]
    return pa.table(columns | {"table_schema": schemas}, TABLES_WITH_SCHEMA)


def _with_types(schema: TableSchema) -> pa.Schema:
    """Return the columns of a table with the names of their types, as SQL writes them."""
    fields = []
    for column in schema.columns:
        field = column.arrow_field()
        fields.append(field.with_metadata({**(field.metadata or {}), _TYPE_NAME: column.duckdb_type()}))
    return pa.schema(fields)


def _columns(session: Session, schema: str, name: str, type_: str, known: pa.Schema | None) -> bytes:
    """Return the columns of a table or view as an IPC message; none for a view whose query does not run."""
    if known is None:
        try:
            known = described(session, f"FROM {quote(CATALOG)}.{quote(schema)}.{quote(name)}")
        except QuacklakeError:
            known = None
    fields = pa.schema([]) if known is None else known
    return bytes(fields.remove_metadata().serialize())


def table_types(caller: Caller) -> pa.Table:
    """Return the kinds of tables."""
    return pa.table({"table_type": [TABLE, VIEW]}, TABLE_TYPES)


def primary_keys(caller: Caller, command: Any) -> pa.Table:
    """Return the primary key of a table, which a lake keeps and does not enforce; none for a table that is missing."""
    ref = TableRef(_optional(command, "db_schema") or caller.schema or "main", command.table)
    lake = caller.identity.lake
    keys: tuple[str, ...] = ()
    if _optional(command, "catalog") in (None, CATALOG) and lake.handle.view().get_table(ref.schema, ref.name):
        with suppress(NotPermittedError):  # not every principal may know it
            keys = lake.table(scans.table_name(ref)).primary_key
    rows = [(CATALOG, ref.schema, ref.name, column, None, number) for number, column in enumerate(keys, 1)]
    return pa.Table.from_pylist([dict(zip(PRIMARY_KEYS.names, row, strict=True)) for row in rows], PRIMARY_KEYS)


def foreign_keys() -> pa.Table:
    """Return no foreign keys: a lake has none."""
    return FOREIGN_KEYS.empty_table()


def _optional(command: Any, name: str) -> str | None:
    return getattr(command, name) if command.HasField(name) else None


def like(pattern: str | None) -> Callable[[str], bool]:
    r"""Return the test of a pattern in which ``%`` stands for any text and ``_`` for one character; ``\`` escapes.

    >>> [like("a%_")(text) for text in ("a", "ab", "abc", "b")]
    [False, True, True, False]
    """
    if pattern is None:
        return lambda _: True
    parts = re.findall(r"\\[%_\\]|.", pattern, re.DOTALL)
    return lambda name: _matches(name, parts)


def _matches(name: str, parts: list[str]) -> bool:
    """Match a name in a time that does not explode with the number of wildcards: only the last one is tried again."""
    at = part = back = 0
    wild = -1
    while at < len(name):
        here = parts[part] if part < len(parts) else None
        if here == "%":
            wild, back, part = part, at, part + 1
        elif here is not None and (here == "_" or here[-1] == name[at]):
            at, part = at + 1, part + 1
        elif wild >= 0:
            back += 1
            at, part = back, wild + 1
        else:
            return False
    return all(rest == "%" for rest in parts[part:])
