"""Answer questions of Spark's own processes about lakes, in the Python process that uses the catalog.

Questions are options and plain values; answers are schemas, positions and packed work for tasks.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from quacklake.core.catalog import parse_url
from quacklake.core.format.names import tenant_key
from quacklake.core.operations.handles import LakeHandle, SnapshotHandle
from quacklake.core.operations.keyed_changes import FEED_NAMES
from quacklake.core.tenancy.opening import open_lake
from quacklake.errors import (
    ConfigError,
    QuacklakeError,
    SchemaMismatchError,
    StreamMismatchError,
    UnsupportedFeatureError,
)
from quacklake.extend.names import literal
from quacklake.extend.names import quote as lake_quote
from quacklake.extend.predicates import to_predicate
from quacklake.extend.schemas import Column, TableInfo, TableSchema, parse_type
from quacklake.extend.streams import StreamSource
from quacklake.spark.datasource.table_sink import (
    READ,
    READ_ANY,
    READ_CARRIED,
    READ_STREAM,
    UUID,
    FormatOptions,
    TableSink,
    has_times,
)
from quacklake.spark.read.scan import Slice
from quacklake.spark.read.slices import state_slices
from quacklake.spark.runtime.session import has_time, overwrites_dynamically
from quacklake.spark.runtime.types import quote, shown_type
from quacklake.spark.streams.pipeline import FEED_TYPES, raw_schema, slices_of
from quacklake.spark.streams.source import Bound, Position, open_source

_COMPARED: Mapping[str, str] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_MAX_IN = 1000


class PushedFilter(NamedTuple):
    """A filter of Spark as plain data: the name of its class, the path of a column, and a value."""

    kind: str
    path: tuple[str, ...]
    value: Any = None


def pushed_sql(filters: Iterable[PushedFilter], schema: TableSchema) -> str | None:
    """Return the SQL that the requested rows satisfy, to skip files and rows, or None.

    Spark applies every filter again itself. So a filter that both sides might understand differently is left out.
    """
    return _all_of(_sql(each, schema) for each in filters)


def _all_of(conditions: Iterable[str | None]) -> str | None:
    return " AND ".join(f"({text})" for text in conditions if text is not None) or None


def _sql(given: PushedFilter, schema: TableSchema) -> str | None:
    column = schema.get(given.path[0]) if len(given.path) == 1 else None
    if column is None or column.nested:
        return None
    name = lake_quote(column.name)
    if given.kind in ("IsNull", "IsNotNull"):
        return f"{name} IS {'NOT ' if given.kind == 'IsNotNull' else ''}NULL"
    if given.kind == "In":
        values = [_literal(value, column) for value in given.value if value is not None]
        if not values or len(values) > _MAX_IN or None in values:
            return None
        return f"{name} IN ({', '.join(value for value in values if value is not None)})"
    value = _literal(given.value, column)
    if value is None:
        return f"{name} IS NULL" if given.kind == "EqualNullSafe" and given.value is None else None
    if given.kind == "StringStartsWith":
        return f"{name} >= {value} AND starts_with({name}, {value})" if column.type == "varchar" else None
    operator = _COMPARED.get(given.kind)
    return None if operator is None else f"{name} {operator} {value}"


def _literal(value: Any, column: Column) -> str | None:
    """Return a value as SQL, or None when Spark and the lake might interpret it differently."""
    base = parse_type(column.type).base
    if base in _WHOLE:
        whole = isinstance(value, int | Decimal) and not isinstance(value, bool) and value == int(value)
        return f"{int(value):d}" if whole else None
    if base == "decimal" and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return f"{value:f}" if isinstance(value, Decimal) else f"{value:d}"
    if base == "varchar" and isinstance(value, str):
        return literal(value)
    if base == "boolean" and isinstance(value, bool):
        return str(value).lower()
    if base == "date" and type(value) is dt.date:
        return f"DATE {literal(value.isoformat())}"
    if not isinstance(value, dt.datetime):
        return None
    if base in ("timestamp", "timestamp_s", "timestamp_ms") and value.tzinfo is None:
        return f"TIMESTAMP {literal(value.isoformat(' '))}"
    if base == "timestamptz" and value.tzinfo is not None:
        return literal(f"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00")
    return None


_Place = tuple[str, str | None]  # the location of a lake and the name of its catalog, in the form for comparing names

_PUSHING = "spark.sql.python.filterPushdown.enabled"


class _Served(NamedTuple):
    """A stream. ``raw`` says that ``SparkLake.read_stream`` has created it, and converts its rows itself."""

    source: StreamSource
    starting: Bound
    raw: bool


def _place(url: str, catalog: str | None) -> _Place:
    return url, None if catalog is None else tenant_key(catalog)


def _past(lake: LakeHandle, bound: Bound, *, named: bool) -> SnapshotHandle:
    return lake.at(version=bound) if named else lake.at(timestamp=bound)  # type: ignore[arg-type]


@cache
def own_desk() -> DriverService:
    """Return the service of a process that opens lakes itself, for reading. A stream may use it as long as it runs."""
    return DriverService()


class DriverService:
    """Answers questions about the lakes of a session. Safe to share between threads."""

    def __init__(self, session: SparkSession | None = None) -> None:
        self._session = session
        self._default: LakeHandle | None = None
        self._named: dict[str, LakeHandle] = {}
        self._known: weakref.WeakValueDictionary[_Place, LakeHandle] = weakref.WeakValueDictionary()
        self._opened: dict[_Place, LakeHandle] = {}
        self._streams: dict[str, _Served] = {}
        self._sources: dict[tuple[Any, ...], StreamSource] = {}
        self._sink = TableSink(self._lake, lambda: session is not None and overwrites_dynamically(session), session)
        self._answers: Mapping[str, Callable[..., Any]] = {
            **{name: getattr(self, f"_{name}") for name in ("schema", "pushes", "parts", "start", "latest", "between")},
            **{name: getattr(self._sink, name) for name in ("begin", "commit", "abort")},
            **{name: getattr(self._sink, name) for name in ("begin_stream", "commit_batch", "abort_batch")},
        }

    def answer(self, ask: str, question: Mapping[str, Any]) -> tuple[str | None, Any]:
        """Return an error message, or None, and the answer to a question."""
        try:
            return None, self._answers[ask](**question)
        except QuacklakeError as error:
            return f"[{error.code}] {error}", None
        except Exception as error:
            return f"the lake could not be asked: {error!r}", None

    def add(self, lake: LakeHandle, name: str | None = None) -> None:
        self._default = self._known[_place(str(lake.context.catalog.url), lake.context.catalog.tenant)] = lake
        if name is not None:
            self._named[name] = lake

    def serve(self, source: StreamSource, starting: Bound) -> str:
        """Register a stream, and return the name under which Spark's processes ask for it."""
        id_ = secrets.token_hex(8)
        self._streams[id_] = _Served(source, starting, raw=True)
        return id_

    def _lake(self, options: FormatOptions) -> LakeHandle:
        given, catalog = options.get("lake"), options.get("catalog")
        if catalog is not None and (given is None or given in self._named):
            raise ConfigError(
                "a catalog is named, but not the URL of its lake", hint='use .option("lake", "postgresql://host/db")'
            )
        if given is None:
            if self._default is None:
                raise ConfigError("no lake is named", hint='use .option("lake", "sqlite:///lake.db")')
            return self._default
        if given in self._named:
            return self._named[given]
        url = parse_url(given)
        name = catalog or url.catalog
        place = _place(str(url), name)
        known = self._known.get(place) or self._opened.get(place)
        if known is not None and name is not None and not known.context.catalog.is_called(name):
            known = None
        if known is None:
            known = self._opened[place] = open_lake(
                given, catalog=catalog, create=False, read_only=self._session is None
            )
            self._known.pop(place, None)
        return known

    def _at(self, options: FormatOptions, pin: int | None) -> SnapshotHandle:
        """Return the lake for a read: at the requested snapshot, or at ``pin``, the snapshot of the read's creation."""
        lake, asked = self._lake(options), options.bound("version", "timestamp")
        if pin is None and asked is not None:
            return _past(lake, asked, named=options.get("version") is not None)
        return lake.at(version=lake.context.latest().id if pin is None else pin)

    def _schema(self, options: Mapping[str, str]) -> tuple[str, int]:
        """Return the columns of a table in Spark SQL, and the snapshot at which it has them."""
        found = FormatOptions.parse(options, READ_ANY)
        at = self._at(found, None)
        if found.get(UUID) is not None:
            return raw_schema(self._source(found, at.tx.base.id)), at.tx.base.id
        table = at.view().find_table(found.table.schema, found.table.name)
        time = self._session is not None and has_time(self._session)
        for column in table.schema.columns:
            if any(node.type == "variant" for child in column.children for node in child.walk()):
                raise UnsupportedFeatureError(
                    f'format("quacklake") cannot read the variants inside of "{column.name}"',
                    hint="read the table with quacklake.spark(lake).table(…)",
                )
        fields = [f"{quote(column.name)} {shown_type(column, time=time)}" for column in table.schema.columns]
        if found.flag("readChangeFeed"):
            fields.append(FEED_TYPES)
        return ", ".join(fields), at.tx.base.id

    def _pushes(self) -> bool:
        """Return True when the session pushes filters. Otherwise Spark refuses sources that accept filters."""
        return self._session is not None and self._session.conf.get(_PUSHING, "false") == "true"

    def _parts(
        self, options: Mapping[str, str], pin: int | None, schema: str, filters: Sequence[tuple[Any, ...]]
    ) -> list[bytes]:
        found = FormatOptions.parse(options, READ)
        found.check_changes()
        if found.flag("readChangeFeed"):
            source = self._source(found, pin)
            until = found.bound("endingVersion", "endingTimestamp")
            lake = self._lake(found)
            named = found.get("endingVersion") is not None
            last = lake.context.latest().id if until is None else _past(lake, until, named=named).tx.base.id
            start = source.start(found.starting)
            if last <= start["after"] and "state" not in start:
                return []
            return self._pack_slices(source, start, {**start, "after": last}, schema)
        view = self._at(found, None if found.flag("followLatest") else pin).view()
        table = view.find_table(found.table.schema, found.table.name)
        columns, time = _choose_columns(table, schema, changes=False)
        pushed = pushed_sql((PushedFilter(*each) for each in filters), table.schema)
        where = _all_of([found.get("where"), pushed])
        context = self._lake(found).context
        plan = view.plan(table, to_predicate(where, table.schema), max_files=context.config.plan_max_files)
        names = tuple(column.name for column in columns)
        return [
            pickle.dumps(Slice(context.store, part, columns, names, where=where, shown=True, time=time))
            for part in state_slices(plan)
        ]

    def _source(self, options: FormatOptions, pin: int | None) -> StreamSource:
        """Return a table as a stream, with the columns that it had when the stream was created."""
        lake, changes = self._lake(options), options.flag("readChangeFeed")
        limits = options.number("maxFilesPerTrigger"), options.number("maxBytesPerTrigger")
        key = (lake, options.table, pin, changes, *limits)
        if key not in self._sources:
            table = self._at(options, pin).view().find_table(options.table.schema, options.table.name)
            self._sources[key] = open_source(lake.context, table, *limits, changes=changes)
        found = self._sources[key]
        if options.get(UUID) not in (None, found.table.uuid):
            raise StreamMismatchError(
                f"{found.table.qualified_name} is another table in the lake that the server opened",
                hint="lake_url must lead to the lake that the stream was asked of",
            )
        return found

    def _find_served(self, options: Mapping[str, str], pin: int | None) -> _Served:
        if "stream" in options:
            return self._streams[options["stream"]]
        raw = UUID in options
        found = FormatOptions.parse(options, READ_CARRIED if raw else READ_STREAM)
        return _Served(self._source(found, pin), found.starting, raw)

    def _start(self, options: Mapping[str, str], pin: int | None) -> dict[str, int]:
        served = self._find_served(options, pin)
        return dict(served.source.start(served.starting))

    def _latest(self, options: Mapping[str, str], pin: int | None, start: Position) -> dict[str, int]:
        return dict(self._find_served(options, pin).source.latest(start))

    def _between(
        self, options: Mapping[str, str], pin: int | None, start: Position, end: Position, schema: str
    ) -> list[bytes]:
        served = self._find_served(options, pin)
        if served.raw:
            return [pickle.dumps(part) for part in slices_of(served.source, served.source.plan(start, end))]
        return self._pack_slices(served.source, start, end, schema)

    def _pack_slices(self, source: StreamSource, start: Position, end: Position, schema: str) -> list[bytes]:
        columns, time = _choose_columns(source.table, schema, changes=source.changes)
        found = []
        for part in slices_of(source, source.plan(start, end)):
            called = {column.id: name for column, name in zip(part.columns, part.names, strict=True)}
            names = tuple(called[column.id] for column in columns)
            found.append(pickle.dumps(replace(part, columns=columns, names=names, shown=True, time=time)))
        return found


def _choose_columns(table: TableInfo, schema: str, *, changes: bool) -> tuple[tuple[Column, ...], bool]:
    """Return the columns that Spark requests, and True if it shows times as such. Raise ``SchemaMismatchError``."""
    wanted = StructType.fromJson(json.loads(schema))
    time = has_times(wanted)
    fields = wanted.fields
    if changes:
        fields, feed = fields[: -len(FEED_NAMES)], fields[-len(FEED_NAMES) :]
        if tuple(field.name for field in feed) != FEED_NAMES:
            raise SchemaMismatchError(
                f"a schema of changes must end with {', '.join(FEED_NAMES)}", hint="leave the schema out"
            )
    columns = [table.schema.find(field.name) for field in fields]
    for column, field in zip(columns, fields, strict=True):
        own, given = _plain(shown_type(column, time=time)), _plain(field.dataType.simpleString())
        if own != given:
            raise SchemaMismatchError(
                f'the column "{column.name}" of {table.qualified_name} is {own} in Spark, not {given}',
                hint="leave the schema out, or cast the column",
            )
    return tuple(columns), time


def _plain(type_: str) -> str:
    """Return the text of a type as Spark itself writes it: an instant is its plain ``timestamp``."""
    return type_.replace("`", "").replace(" ", "").lower().replace("timestamp_ltz", "timestamp")
