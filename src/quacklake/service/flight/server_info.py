"""The answers of Flight SQL about the server: its facts by the numbers of the protocol, and its types."""

from __future__ import annotations

import importlib.metadata
from functools import cache
from typing import Any

import pyarrow as pa

from quacklake.extend import duckdbs
from quacklake.service.flight.settings import FlightSettings

__all__ = ["SQL_INFO", "TYPE_INFO", "server_facts", "type_info"]

_text = pa.utf8()


def _required_field(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


_VALUES = {
    "string_value": _text,
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": pa.int32(),
    "string_list": pa.list_(_text),
    "int32_to_int32_list_map": pa.map_(pa.int32(), pa.list_(pa.int32())),
}
"""The types of facts, in the order of the protocol."""
_VALUE = pa.dense_union([pa.field(name, type_) for name, type_ in _VALUES.items()])
SQL_INFO = pa.schema([_required_field("info_name", pa.uint32()), _required_field("value", _VALUE)])
TYPE_INFO = pa.schema(
    [
        _required_field("type_name", _text),
        _required_field("data_type", pa.int32()),
        ("column_size", pa.int32()),
        ("literal_prefix", _text),
        ("literal_suffix", _text),
        ("create_params", pa.list_(pa.field("item", _text, nullable=False))),
        _required_field("nullable", pa.int32()),
        _required_field("case_sensitive", pa.bool_()),
        _required_field("searchable", pa.int32()),
        ("unsigned_attribute", pa.bool_()),
        _required_field("fixed_prec_scale", pa.bool_()),
        ("auto_increment", pa.bool_()),
        ("local_type_name", _text),
        ("minimum_scale", pa.int32()),
        ("maximum_scale", pa.int32()),
        _required_field("sql_data_type", pa.int32()),
        ("datetime_subcode", pa.int32()),
        ("num_prec_radix", pa.int32()),
        ("interval_precision", pa.int32()),
    ]
)

# -- facts -------------------------------------------------------------------------------------------------------------

_TRANSACTIONS = 1
"""The word of the protocol for transactions without savepoints."""
_CASE_INSENSITIVE, _NULLS_AT_END, _REPEATABLE_READ = 1, 3, 3

_NUMERIC = "ABS ACOS ASIN ATAN ATAN2 CEILING COS COT DEGREES EXP FLOOR LN LOG LOG10 MOD PI POWER RADIANS ROUND SIGN \
SIN SQRT TAN TRUNC"
_STRING = "ASCII CHAR_LENGTH CHARACTER_LENGTH CHR CONCAT INSTR LCASE LEFT LENGTH LOWER LPAD LTRIM OCTET_LENGTH \
POSITION REPEAT REPLACE REVERSE RIGHT RPAD RTRIM STARTS_WITH SUBSTRING TRANSLATE TRIM UCASE UPPER"
_DATETIME = "AGE CURRENT_DATE DATE_DIFF DATE_PART DATE_TRUNC DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR EPOCH HOUR \
LAST_DAY MAKE_DATE MINUTE MONTH MONTHNAME NOW QUARTER SECOND STRFTIME STRPTIME WEEK YEAR"

_TYPES_OF = {
    "number": (0, 2, 5, 6, 7, 12, 13, 14, 17),
    "text": (3, 11, 19),
    "binary": (1, 10, 18),
    "date": (4,),
    "interval": (8, 9),
    "time": (15,),
    "timestamp": (16,),
}
"""The numbers of the types in conversions, by kind."""
_CONVERSIONS = {
    "number": ("number", "text"),
    "text": tuple(_TYPES_OF),
    "binary": ("binary", "text"),
    "date": ("date", "timestamp", "text"),
    "interval": ("interval", "text"),
    "time": ("time", "text"),
    "timestamp": ("timestamp", "date", "time", "text"),
}
"""The kinds of types that a kind can be cast to."""


_FLAGS = {
    **dict.fromkeys((4, 9, 10, 11), True),  # SQL, cancelling, bulk ingestion, also in transactions
    5: False,  # Substrait
    **dict.fromkeys((500, 501, 502), False),  # statements that create or drop
    506: True,  # every table can be read
    515: True,  # aliases of columns
    516: True,  # NULL || 'a' is NULL
    518: True,  # aliases of tables,
    519: False,  # which may be names of other tables
    520: True,  # ORDER BY with expressions,
    521: True,  # and with columns that are not selected
    523: True,  # LIKE … ESCAPE
    524: True,  # NOT NULL
    527: False,  # foreign keys that are enforced
    532: True,  # catalog.schema.table
    536: False,  # FOR UPDATE
    537: False,  # procedures
    539: True,  # correlated subqueries
    556: True,  # a row includes its BLOBs
    563: True,  # transactions
    565: False,
    566: False,
    572: True,  # batches
    573: False,  # savepoints
    574: False,  # parameters of procedures
    575: True,
    576: False,
}
"""The facts that are true or false for every client."""


def server_facts(settings: FlightSettings, *, read_only: bool, wanted: list[int]) -> pa.Table:
    """Return the facts with these numbers of the protocol, or all of them for none. Unknown numbers are left out."""
    known = {
        number: (place, value)
        for place, values in enumerate(_facts(settings, read_only=read_only))
        for number, value in values.items()
    }
    chosen = sorted(set(wanted) & set(known)) if wanted else sorted(known)
    places = [known[number][0] for number in chosen]
    arrays = [
        pa.array([known[number][1] for number in chosen if known[number][0] == place], type_)
        for place, type_ in enumerate(_VALUES.values())
    ]
    offsets = [places[:at].count(place) for at, place in enumerate(places)]
    value = pa.UnionArray.from_dense(
        pa.array(places, pa.int8()), pa.array(offsets, pa.int32()), arrays, list(_VALUES), list(range(len(_VALUES)))
    )
    return pa.table([pa.array(chosen, pa.uint32()), value], SQL_INFO)


def _facts(settings: FlightSettings, *, read_only: bool) -> tuple[dict[int, Any], ...]:
    """Return the facts by their numbers, for each type of the protocol."""
    safety = settings.safety(read_only=read_only)
    texts = {
        0: "Quacklake",
        1: importlib.metadata.version("quacklake"),
        2: pa.__version__,
        6: None,  # the versions of Substrait
        7: None,
        504: '"',
        513: "\\",
        514: "",  # other characters of names
        529: "schema",
        530: "procedure",
        531: "catalog",
    }
    flags = {3: read_only, **_FLAGS}
    largest = dict.fromkeys(range(541, 562), 0) | {  # 0 where there is no limit
        547: safety.max_columns or 0,
        557: safety.max_text,
        560: safety.max_tables or 0,
        562: _REPEATABLE_READ,
    }
    del largest[556]
    words = {
        8: _TRANSACTIONS,
        100: settings.ticket_seconds * 1000,
        101: int(settings.transaction_seconds * 1000),
        503: _CASE_INSENSITIVE,  # names keep their case, and are found in any
        505: _CASE_INSENSITIVE,
        507: _NULLS_AT_END,
        522: _bits(0, 1),  # GROUP BY columns that are not selected, and more of them
        525: _bits(0, 1),  # the minimum and the core grammar of ODBC
        526: _bits(0),  # the entry level of SQL-92
        528: _bits(1, 2),  # all outer joins
        533: 0,
        534: 0,
        535: 0,
        538: _bits(0, 1, 2, 3),  # subqueries in comparisons, EXISTS, IN and with ANY
        540: _bits(0, 1),  # UNION and UNION ALL
        564: _bits(_REPEATABLE_READ),
        567: _bits(1),  # results are read forward only,
        568: 0,
        569: _bits(1),  # and cannot be changed
        570: 0,
        571: 0,
    }
    lists = {508: _keywords(), 509: _NUMERIC.split(), 510: _STRING.split(), 511: ["VERSION"], 512: _DATETIME.split()}
    return texts, flags, largest, words, lists, {517: _conversions()}


def _bits(*places: int) -> int:
    return sum(1 << place for place in places)


@cache
def _keywords() -> list[str]:
    """Return the words that are no names without quotes."""
    with duckdbs.connect() as connection:
        query = "SELECT upper(keyword_name) FROM duckdb_keywords() WHERE keyword_category = 'reserved' ORDER BY 1"
        return [str(row[0]) for row in connection.execute(query).fetchall()]


def _conversions() -> list[tuple[int, list[int]]]:
    """Return the types that each type can be cast to."""
    return sorted(
        (number, sorted(other for target in targets for other in _TYPES_OF[target]))
        for kind, targets in _CONVERSIONS.items()
        for number in _TYPES_OF[kind]
    )


# -- types -------------------------------------------------------------------------------------------------------------

#: The types of a lake: name, number of XDBC, size, quotes of literals, parameters, whether unsigned, radix.
_TYPES: tuple[tuple[str, int, int | None, str | None, tuple[str, ...] | None, bool | None, int | None], ...] = (
    ("BIGINT", -5, 19, None, None, False, 10),
    ("BLOB", -3, None, "'", None, None, None),
    ("BOOLEAN", -7, 1, None, None, None, None),
    ("DATE", 91, 10, "'", None, None, None),
    ("DECIMAL", 3, 38, None, ("precision", "scale"), False, 10),
    ("DOUBLE", 8, 53, None, None, False, 2),
    ("FLOAT", 7, 24, None, None, False, 2),
    ("GEOMETRY", -3, None, "'", None, None, None),
    ("HUGEINT", 2, 39, None, None, False, 10),
    ("INTEGER", 4, 10, None, None, False, 10),
    ("INTERVAL", 10, None, "'", None, None, None),
    ("JSON", 12, None, "'", None, None, None),
    ("SMALLINT", 5, 5, None, None, False, 10),
    ("TIME", 92, 15, "'", None, None, None),
    ("TIME WITH TIME ZONE", 92, 21, "'", None, None, None),
    ("TIMESTAMP", 93, 26, "'", None, None, None),
    ("TIMESTAMP WITH TIME ZONE", 93, 32, "'", None, None, None),
    ("TIMESTAMP_MS", 93, 23, "'", None, None, None),
    ("TIMESTAMP_NS", 93, 29, "'", None, None, None),
    ("TIMESTAMP_S", 93, 19, "'", None, None, None),
    ("TIME_NS", 92, 18, "'", None, None, None),
    ("TINYINT", -6, 3, None, None, False, 10),
    ("UBIGINT", -5, 20, None, None, True, 10),
    ("UHUGEINT", 2, 39, None, None, True, 10),
    ("UINTEGER", 4, 10, None, None, True, 10),
    ("USMALLINT", 5, 5, None, None, True, 10),
    ("UTINYINT", -6, 3, None, None, True, 10),
    ("UUID", 1, 36, "'", None, None, None),
    ("VARCHAR", 12, None, "'", None, None, None),
    ("VARIANT", 0, None, None, None, None, None),
)
_DATETIME_TYPE = 9
_SUBCODES = {91: 1, 92: 2, 93: 3}
_ZONED = {"TIME WITH TIME ZONE": 4, "TIMESTAMP WITH TIME ZONE": 5}


def type_info(data_type: int | None) -> pa.Table:
    """Return the simple types of a lake, or those with one number of the protocol."""
    rows = []
    for name, number, size, mark, parameters, unsigned, radix in sorted(_TYPES, key=lambda each: (each[1], each[0])):
        if data_type not in (None, number):
            continue
        subcode = _ZONED.get(name, _SUBCODES.get(number))
        rows.append(
            {
                "type_name": name,
                "data_type": number,
                "column_size": size,
                "literal_prefix": mark,
                "literal_suffix": mark,
                "create_params": parameters,
                "nullable": 1,
                "case_sensitive": name in ("JSON", "VARCHAR"),
                "searchable": 3,
                "unsigned_attribute": unsigned,
                "fixed_prec_scale": False,
                "auto_increment": None if unsigned is None else False,
                "local_type_name": name,
                "minimum_scale": 0 if name == "DECIMAL" else None,
                "maximum_scale": 38 if name == "DECIMAL" else None,
                "sql_data_type": _DATETIME_TYPE if subcode is not None else number,
                "datetime_subcode": subcode,
                "num_prec_radix": radix,
                "interval_precision": None,
            }
        )
    return pa.Table.from_pylist(rows, TYPE_INFO)
