"""The answers of Flight SQL about the server and the lake: what BI tools ask before anything else."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from quacklake.errors import NotPermittedError, QuacklakeError
from quacklake.format.names import quote
from quacklake.operations.reference import TableRef
from quacklake.service.flight import scans
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.queries import CATALOG, described
from quacklake.service.flight.settings import FlightSettings
from quacklake.sql.session import Session

TABLE, VIEW = "TABLE", "VIEW"
_text = pa.utf8()


def _needed(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


CATALOGS = pa.schema([_needed("catalog_name", _text)])
DB_SCHEMAS = pa.schema([("catalog_name", _text), _needed("db_schema_name", _text)])
TABLE_TYPES = pa.schema([_needed("table_type", _text)])
TABLES = pa.schema(
    [("catalog_name", _text), ("db_schema_name", _text), _needed("table_name", _text), _needed("table_type", _text)]
)
TABLES_WITH_SCHEMA = TABLES.append(_needed("table_schema", pa.binary()))
PRIMARY_KEYS = pa.schema(
    [
        ("catalog_name", _text),
        ("db_schema_name", _text),
        _needed("table_name", _text),
        _needed("column_name", _text),
        ("key_name", _text),
        _needed("key_sequence", pa.int32()),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        ("pk_catalog_name", _text),
        ("pk_db_schema_name", _text),
        _needed("pk_table_name", _text),
        _needed("pk_column_name", _text),
        ("fk_catalog_name", _text),
        ("fk_db_schema_name", _text),
        _needed("fk_table_name", _text),
        _needed("fk_column_name", _text),
        _needed("key_sequence", pa.int32()),
        ("fk_key_name", _text),
        ("pk_key_name", _text),
        _needed("update_rule", pa.uint8()),
        _needed("delete_rule", pa.uint8()),
    ]
)
SQL_INFO = pa.schema(
    [
        _needed("info_name", pa.uint32()),
        _needed(
            "value",
            pa.dense_union(
                [
                    pa.field("string_value", _text),
                    pa.field("bool_value", pa.bool_()),
                    pa.field("bigint_value", pa.int64()),
                    pa.field("int32_bitmask", pa.int32()),
                    pa.field("string_list", pa.list_(_text)),
                    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
                ]
            ),
        ),
    ]
)
TYPE_INFO = pa.schema(
    [
        _needed("type_name", _text),
        _needed("data_type", pa.int32()),
        ("column_size", pa.int32()),
        ("literal_prefix", _text),
        ("literal_suffix", _text),
        ("create_params", pa.list_(pa.field("item", _text, nullable=False))),
        _needed("nullable", pa.int32()),
        _needed("case_sensitive", pa.bool_()),
        _needed("searchable", pa.int32()),
        ("unsigned_attribute", pa.bool_()),
        _needed("fixed_prec_scale", pa.bool_()),
        ("auto_increment", pa.bool_()),
        ("local_type_name", _text),
        ("minimum_scale", pa.int32()),
        ("maximum_scale", pa.int32()),
        _needed("sql_data_type", pa.int32()),
        ("datetime_subcode", pa.int32()),
        ("num_prec_radix", pa.int32()),
        ("interval_precision", pa.int32()),
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
            found += [(each.schema_name, each.name, TABLE, each.schema.to_arrow()) for each in view.tables()]
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


# -- the server --------------------------------------------------------------------------------------------------------

_TRANSACTIONS = 1
"""The word of the protocol for transactions without savepoints."""


def sql_info(settings: FlightSettings, *, read_only: bool, wanted: list[int]) -> pa.Table:
    """Return what a client asks of the server by numbers of the protocol; all of it for none."""
    version = importlib.metadata.version("quacklake")
    known: dict[int, tuple[int, Any]] = {
        0: (0, "Quacklake"),
        1: (0, version),
        2: (0, pa.__version__),
        3: (1, read_only),
        4: (1, True),  # SQL
        5: (1, False),  # Substrait
        8: (3, _TRANSACTIONS),
        9: (1, True),  # cancelling
        10: (1, True),  # bulk ingestion
        11: (1, True),  # bulk ingestion in transactions
        100: (3, settings.ticket_seconds * 1000),
        101: (3, int(settings.transaction_seconds * 1000)),
        500: (1, False),
        501: (1, False),
        502: (1, False),
        503: (3, 0),  # names keep their case, and are found in any
        504: (0, '"'),
        505: (3, 0),
        506: (1, True),
        507: (3, 3),  # NULLs come last
        513: (0, "\\"),
        515: (1, True),
        516: (1, True),
        518: (1, True),
        520: (1, True),
        521: (1, True),
        529: (0, "schema"),
        531: (0, "catalog"),
        532: (1, True),
    }
    chosen = sorted(set(wanted) & set(known)) if wanted else sorted(known)
    types = pa.array([known[number][0] for number in chosen], pa.int8())
    children = [[known[number][1] for number in chosen if known[number][0] == place] for place in range(6)]
    offsets = [sum(known[before][0] == known[number][0] for before in chosen[:at]) for at, number in enumerate(chosen)]
    union = SQL_INFO.field("value").type
    arrays = [pa.array(values, union.field(place).type) for place, values in enumerate(children)]
    value = pa.UnionArray.from_dense(types, pa.array(offsets, pa.int32()), arrays, [f.name for f in union])
    return pa.table([pa.array(chosen, pa.uint32()), value], SQL_INFO)


#: The types of a lake: name, number of XDBC, size, quotes of literals, parameters, whether unsigned, radix.
_TYPES: tuple[tuple[str, int, int | None, str | None, tuple[str, ...] | None, bool | None, int | None], ...] = (
    ("BIGINT", -5, 19, None, None, False, 10),
    ("BLOB", -3, None, "'", None, None, None),
    ("BOOLEAN", -7, 1, None, None, None, None),
    ("DATE", 91, 10, "'", None, None, None),
    ("DECIMAL", 3, 38, None, ("precision", "scale"), False, 10),
    ("DOUBLE", 8, 53, None, None, False, 2),
    ("FLOAT", 7, 24, None, None, False, 2),
    ("INTEGER", 4, 10, None, None, False, 10),
    ("SMALLINT", 5, 5, None, None, False, 10),
    ("TIME", 92, 15, "'", None, None, None),
    ("TIMESTAMP", 93, 26, "'", None, None, None),
    ("TIMESTAMP WITH TIME ZONE", 93, 32, "'", None, None, None),
    ("TINYINT", -6, 3, None, None, False, 10),
    ("UBIGINT", -5, 20, None, None, True, 10),
    ("UINTEGER", 4, 10, None, None, True, 10),
    ("USMALLINT", 5, 5, None, None, True, 10),
    ("UTINYINT", -6, 3, None, None, True, 10),
    ("UUID", 1, 36, "'", None, None, None),
    ("VARCHAR", 12, None, "'", None, None, None),
)


def type_info(data_type: int | None) -> pa.Table:
    """Return the simple types of a lake, or those with one number of the protocol."""
    rows = []
    for name, number, size, mark, parameters, unsigned, radix in sorted(_TYPES, key=lambda each: (each[1], each[0])):
        if data_type not in (None, number):
            continue
        subcode = {91: 1, 92: 2, 93: 3}.get(number)
        rows.append(
            {
                "type_name": name,
                "data_type": number,
                "column_size": size,
                "literal_prefix": mark,
                "literal_suffix": mark,
                "create_params": parameters,
                "nullable": 1,
                "case_sensitive": name == "VARCHAR",
                "searchable": 3,
                "unsigned_attribute": unsigned,
                "fixed_prec_scale": False,
                "auto_increment": None if unsigned is None else False,
                "local_type_name": name,
                "minimum_scale": 0 if name == "DECIMAL" else None,
                "maximum_scale": 38 if name == "DECIMAL" else None,
                "sql_data_type": 9 if subcode is not None else number,
                "datetime_subcode": subcode,
                "num_prec_radix": radix,
                "interval_precision": None,
            }
        )
    return pa.Table.from_pylist(rows, TYPE_INFO)
