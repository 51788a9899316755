"""The layout of a table's files: partition keys, their values and folders, and the order of rows in a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote as percent_encode

from quacklake.core.format.bounds import Comparable, decode
from quacklake.core.format.names import checked_relative, fold, parse_path, quote
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.types import parse_type
from quacklake.errors import InputError, InvalidNameError, PathError, UnsupportedFeatureError, nearest

if TYPE_CHECKING:
    from sqlglot import exp


CALENDAR = ("year", "month", "day", "hour")
"""The transforms that give a part of the calendar, coarse to fine."""

EPOCH = ("epoch_year", "epoch_month", "epoch_day", "epoch_hour")
"""The transforms that count from 1970, coarse to fine, of version 1.1 of the format."""

_MAX_BUCKETS = (1 << 31) - 1
_MAX_SEGMENT = 255  # bytes in a file name, on every common file system
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_BUCKET = re.compile(r"bucket\(\s*(\d{1,10})\s*\)", re.ASCII)
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.ASCII | re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ALIASES = {f"{name}s": name for name in CALENDAR}
_DATES = ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "timestamptz_ns")
_UNFIT = {"identity": ("blob", "geometry", "variant"), "bucket": ("timetz", "geometry", "variant")}


@dataclass(frozen=True, slots=True)
class Transform:
    """The part of a column's value that makes the partition: ``name``, and for ``bucket`` the number of them.

    ``year`` and its like are parts of the calendar: the month of every year is 1 to 12. ``epoch_year`` and its like, of
    version 1.1 of the format, count from 1970 instead.
    """

    name: str
    buckets: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.buckets})" if self.name == "bucket" else self.name


IDENTITY = Transform("identity")


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One key of a partitioning: the place of its value, the id of a top-level column and the transform's text."""

    index: int
    column_id: int
    transform: str

    @property
    def parsed(self) -> Transform:
        """The transform. Raise :class:`UnsupportedFeatureError` for one that is not known."""
        return parse_transform(self.transform)


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """The partitioning of a table from one snapshot on; files keep the id of the one they were written under."""

    id: int
    keys: tuple[PartitionKey, ...]


def parse_transform(text: str) -> Transform:
    """Return the transform of a catalog's ``transform`` text. Raise :class:`UnsupportedFeatureError` for another one.

    >>> parse_transform("bucket(16)")
    Transform(name='bucket', buckets=16)
    """
    name = text.strip().lower()
    if match := _BUCKET.fullmatch(name):
        return Transform("bucket", _bucket_count(match[1]))
    if name == "identity" or name in CALENDAR or name in EPOCH:
        return Transform(name)
    raise UnsupportedFeatureError(f"the partition transform {text!r} is unknown")


def parse_partition(text: str, schema: TableSchema) -> tuple[Column, Transform]:
    """Return the column and transform of ``country``, ``day(ts)``, ``days(ts)``, ``bucket(16, id)`` and the like.

    Raise ``InputError`` for what is unknown, for fields of structs, and for a type that the transform does not fit.
    """
    column = schema.get(text)
    if column is not None:
        return _check_transform(column, IDENTITY)
    call = _CALL.fullmatch(text.strip())
    if call is None:
        return _check_transform(_column(text, schema), IDENTITY)
    name, arguments = call[1].lower(), call[2]
    name = _ALIASES.get(name, name)
    if name == "bucket":
        count, comma, rest = arguments.partition(",")
        more = "," in re.sub(r'"(?:[^"]|"")*"', "", rest)  # a comma outside quoted names
        if not comma or rest.lstrip().startswith("'") or (schema.get(rest.strip()) is None and more):
            raise InputError(f"Expected bucket(bucket_count, column), but got {text}")
        return _check_transform(_column(rest, schema), Transform("bucket", _bucket_count(count.strip())))
    if name == "identity":
        return _check_transform(_column(arguments, schema), IDENTITY)
    if name not in (*CALENDAR, *EPOCH):
        raise InputError(
            f"Unsupported partition function {name} - only year, month, day, hour, and bucket are supported",
            hint=nearest(name, (*CALENDAR, "bucket", "identity")),
        )
    return _check_transform(_column(arguments, schema), Transform(name))


def make_spec(id: int, keys: Iterable[str], schema: TableSchema) -> PartitionSpec:
    """Return the partitioning that texts for :func:`parse_partition` describe; an ``InputError`` for a key twice."""
    found: list[PartitionKey] = []
    for index, text in enumerate(keys):
        column, transform = parse_partition(text, schema)
        if any((key.column_id, key.transform) == (column.id, str(transform)) for key in found):
            raise InputError(f"the partition key {text} is given twice")
        found.append(PartitionKey(index, column.id, str(transform)))
    return PartitionSpec(id, tuple(found))


def key_texts(spec: PartitionSpec | None, schema: TableSchema) -> list[str]:
    """Return the keys as :func:`parse_partition` reads them."""
    texts = []
    for key in spec.keys if spec else ():
        name = schema.by_id(key.column_id).name
        column = name if _WORD.fullmatch(name) else quote(name)
        function, bracket, count = key.transform.partition("(")
        call = f"{function}({count.removesuffix(')')}, {column})" if bracket else f"{function}({column})"
        texts.append(column if key.transform == str(IDENTITY) else call)
    return texts


def decode_value(text: str | None, type: str, transform: Transform) -> Comparable | None:
    """Return the comparable form of a stored value, ``None`` when it is NULL or nothing certain can be said."""
    if text is None:
        return None
    if transform != IDENTITY:
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
    # The text of a blob is not told from hexadecimal.
    return None if parse_type(type).base == "blob" else decode(text, type)


def key_names(spec: PartitionSpec, schema: TableSchema) -> tuple[str, ...]:
    """Return the names of the keys in folder names: the column's or the transform's, and both for one in use."""
    names: list[str] = []
    for key in spec.keys:
        transform, column = key.parsed, schema.by_id(key.column_id).name
        name = column if transform == IDENTITY else transform.name
        used = {fold(each) for each in names}
        if fold(name) in used:
            base = name = f"{name}_{column}"
            count = 2
            while fold(name) in used:
                name, count = f"{base}_{count}", count + 1
        names.append(name)
    return tuple(names)


def directory(spec: PartitionSpec, schema: TableSchema, values: Mapping[int, str | None], *, hive: bool = True) -> str:
    """Return the folder of files with these values by key index, ``year=2026/bucket=2/``; readers never look at it.

    It is empty without ``hive``, and where a value makes no safe name or one too long for a folder.
    """
    if not hive:
        return ""
    segments = []
    for key, name in zip(spec.keys, key_names(spec, schema), strict=True):
        text = values[key.index]
        value = _NULL_FOLDER if text is None else percent_encode(text, safe="")
        segments.append(f"{percent_encode(name, safe='')}={value}/")
    if any(len(segment) > _MAX_SEGMENT for segment in segments):
        return ""
    try:
        return checked_relative("".join(segments)) if segments else ""
    except PathError:
        return ""


def _bucket_count(text: str) -> int:
    if text.startswith("'"):
        raise InputError(f"Bucket count must be an integer, got {text}")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise InputError(f"Bucket count must be a constant integer, got {text}")
    count = int(text)
    if count <= 0:
        raise InputError("Bucket count must be positive")
    if count > _MAX_BUCKETS:
        raise InputError(f"Bucket count cannot exceed {_MAX_BUCKETS}")
    return count


def _column(text: str, schema: TableSchema) -> Column:
    try:
        path = parse_path(text)
    except InvalidNameError:
        raise InputError(
            f"Unsupported partition key {text.strip()} - only identity columns and year/month/day/hour/bucket are "
            "supported"
        ) from None
    if len(path) > 1:
        raise InputError("Unexpected qualified column reference - only unqualified columns are supported")
    column = schema.get(path[0])
    if column is None:
        raise InputError(
            f'Unexpected partition key - column "{path[0]}" does not exist', hint=nearest(path[0], schema.names)
        )
    return column


def _check_transform(column: Column, transform: Transform) -> tuple[Column, Transform]:
    base = parse_type(column.type).base
    if transform.name in CALENDAR or transform.name in EPOCH:
        fits = base in _DATES or (transform.name == "hour" and base == "time")
    else:  # the bucket of a nested value is that of its text
        fits = base not in _UNFIT[transform.name] and (not column.nested or transform.name == "bucket")
    if not fits:
        raise InputError(f'the {column.type} column "{column.name}" cannot be partitioned by {transform}')
    return column, transform


_DIALECT = "duckdb"
_DIRECTION = re.compile(r"(\s+(ASC|DESC))?(\s+NULLS\s+(FIRST|LAST))?\s*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of an order: SQL over a row, ``ASC`` or ``DESC``, and ``NULLS_FIRST`` or ``NULLS_LAST``."""

    expression: str
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"
    dialect: str = _DIALECT

    def __str__(self) -> str:
        return f"{self.expression} {self.direction} {self.null_order.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class SortSpec:
    """The order of new files of a table from one snapshot on."""

    id: int
    keys: tuple[SortKey, ...]


def _sort_key(text: str) -> SortKey:
    """Return the key of a text such as ``ts DESC NULLS LAST`` or ``lower(name)``.

    Raise ``InputError`` unless it is one expression over columns, without a subquery, an aggregate or a window.
    """
    from sqlglot import exp

    ordered = _parse(text)
    found = ordered.this.find(exp.Query, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter, exp.Star)
    if found is not None:
        raise InputError(f"the sort key {text!r} must be computed from one row, without {found.sql(dialect=_DIALECT)}")
    columns = list(ordered.this.find_all(exp.Column))
    if not columns:
        raise InputError(f"the sort key {text!r} names no column")
    if any(len(column.parts) > 1 for column in columns):
        raise InputError(f"the sort key {text!r} has a qualified name - only names of columns are supported")
    return SortKey(
        _expression(text, ordered.this),
        "DESC" if ordered.args.get("desc") else "ASC",
        "NULLS_FIRST" if ordered.args.get("nulls_first") else "NULLS_LAST",
    )


def _expression(text: str, tree: exp.Expr) -> str:
    """Return the text without its direction, or as the parser writes it where that is not plain to see."""
    own = _DIRECTION.sub("", text).strip()
    try:
        same = _parse(own).this == tree and "--" not in own and "/*" not in own
    except InputError:
        same = False
    return own if same else tree.sql(dialect=_DIALECT, comments=False)


def _parse(text: str) -> exp.Ordered:
    import sqlglot
    from sqlglot import exp

    try:
        parsed = sqlglot.parse(f"SELECT 1 ORDER BY {text}", dialect=_DIALECT)
    except (sqlglot.errors.SqlglotError, RecursionError):
        parsed = []
    select = parsed[0] if len(parsed) == 1 else None
    order = select.args.get("order") if isinstance(select, exp.Select) else None
    known = ("expressions", "order", "kind")
    only = select is not None and not any(value for key, value in select.args.items() if key not in known)
    if not only or not isinstance(order, exp.Order) or len(order.expressions) != 1:
        raise InputError(f"the sort key {text!r} is not one expression", hint='write for example "ts DESC"')
    ordered: exp.Ordered = order.expressions[0]
    return ordered


def make_sort(id: int, keys: Iterable[str], schema: TableSchema, canonical: Callable[[str], str]) -> SortSpec:
    """Return the order that texts describe; ``canonical`` gives the text to be stored.

    Raise ``InputError`` that names every column which the table does not have.
    """
    from sqlglot import exp

    texts = list(keys)
    names = [column.name for key in texts for column in _parse(key).this.find_all(exp.Column, bfs=False)]
    unmatched = list(dict.fromkeys(name for name in names if schema.get(name) is None))
    if unmatched:
        raise InputError(
            "Columns in the SET SORTED BY statement were not found in the DuckLake table. Unmatched columns were:"
            f" {', '.join(unmatched)}",
            hint=nearest(unmatched[0], schema.names),
        )
    parsed = (_sort_key(text) for text in texts)
    return SortSpec(id, tuple(replace(key, expression=canonical(key.expression)) for key in parsed))


def readable_keys(spec: SortSpec) -> list[SortKey]:
    """Return the keys that are in DuckDB's dialect; those of another one are passed over."""
    return [key for key in spec.keys if key.dialect == _DIALECT]


def sort_columns(spec: SortSpec | None, schema: TableSchema) -> frozenset[int]:
    """Return the ids of the columns that an order speaks of: they cannot be dropped."""
    if spec is None:
        return frozenset()
    from sqlglot import exp

    named = (schema.get(column.name) for key in _readable(spec) for column in _parse(str(key)).find_all(exp.Column))
    return frozenset(column.id for column in named if column is not None)


def sort_of_stored(
    spec: SortSpec | None, schema: TableSchema, stored: TableSchema
) -> tuple[TableSchema, SortSpec | None]:
    """Return the columns of older files under the present names of a table, and its order; else as they were."""
    if spec is None or stored.names == schema.names:
        return stored, spec
    now = {column.id: column.name for column in schema.columns}
    columns = tuple(replace(column, name=now.get(column.id, column.name)) for column in stored.columns)
    distinct = len({fold(column.name) for column in columns}) == len(columns)
    has_all = sort_columns(spec, schema) <= {column.id for column in columns} and len(_readable(spec)) == len(spec.keys)
    return (TableSchema(columns), spec) if distinct and has_all else (stored, None)


def rename_column(spec: SortSpec, before: str, after: str) -> SortSpec:
    """Return the order with another name for a column."""
    from sqlglot import exp

    readable, keys = _readable(spec), []
    for key in spec.keys:
        tree = _parse(str(key)).this if key in readable else None
        found = [] if tree is None else [each for each in tree.find_all(exp.Column) if fold(each.name) == fold(before)]
        for column in found:
            column.set("this", exp.to_identifier(after, quoted=True))
        keys.append(replace(key, expression=tree.sql(dialect=_DIALECT)) if tree is not None and found else key)
    return replace(spec, keys=tuple(keys))


def _readable(spec: SortSpec) -> list[SortKey]:
    """Return the keys whose expression can be taken apart; others come from another client and are left alone."""
    found = []
    for key in readable_keys(spec):
        with suppress(InputError):
            _parse(str(key))
            found.append(key)
    return found
