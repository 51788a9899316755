"""The contents of the footer of a Parquet file, and the DuckLake statistics that follow from it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.core.format.bounds import Comparable, encode_comparable, shorten
from quacklake.core.format.extras import DIMENSIONS, EVERYTHING, GEOMETRY_KINDS, merge_extra, rendered
from quacklake.core.format.schema import FIELD_ID, Column, TableSchema
from quacklake.core.format.stats import ColumnStats, is_always_exact
from quacklake.core.format.types import INFINITY, NANOS, StatsKind, from_physical, parse_type, scalar
from quacklake.core.storage.roots import Links
from quacklake.core.storage.store import Store
from quacklake.errors import CorruptFileError, UnsupportedFeatureError

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_UNIT_OF = {"timestamp_s": "s", "timestamp_ms": "ms", "timestamp_ns": "ns"}
_BITS = {"INT32": 32, "INT64": 64}
_TEXT = frozenset({"Enum", "JSON", "String"})

_Reading = Callable[[Any], Comparable | None]


@dataclass(frozen=True, slots=True)
class FileType:
    """The type of a Parquet leaf: how its values compare (``None``: not at all) and what it takes to read them.

    ``lake_type`` is the type of a lake that holds just such values, if there is one.
    """

    physical: str
    kind: StatsKind | None = None
    signed: bool = True
    scale: int = 0
    unit: str = "us"
    utc: bool = False
    lake_type: str | None = None

    @property
    def comparable(self) -> _Reading:
        """A function from raw bounds to what ``format.bounds`` compares, ``None`` for one that says nothing certain."""
        match self.kind:
            case StatsKind.BOOLEAN:
                return bool
            case StatsKind.INTEGER if self.signed:
                return int
            case StatsKind.INTEGER:
                # Arrow hands out unsigned bounds as the signed integer of the same bits.
                values = 1 << _BITS[self.physical]
                return lambda raw: int(raw) % values
            case StatsKind.FLOAT:
                return lambda raw: None if math.isnan(raw) else float(raw)
            case StatsKind.DECIMAL:
                return lambda raw: Decimal(
                    int.from_bytes(raw, signed=True) if isinstance(raw, bytes) else int(raw)
                ).scaleb(-self.scale)
            case StatsKind.TIME | StatsKind.DATE | StatsKind.TIMESTAMP:
                bits = _BITS[self.physical]
                return lambda raw: from_physical(int(raw), self.unit, bits=bits)
            case StatsKind.TEXT:
                return _text
            case StatsKind.BLOB:
                return bytes
            case StatsKind.UUID:
                return int.from_bytes
            case _:
                return _nothing


def _text(raw: Any) -> str | None:
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return None


def _nothing(_: Any) -> None:
    return None


def _same(bound: Comparable) -> Comparable:
    return bound


@lru_cache(maxsize=1024)
def _file_type(physical: str, annotation: str) -> FileType:
    logical: dict[str, Any] = json.loads(annotation)
    match (logical["Type"], physical):
        case ("Int", _):
            signed = bool(logical["isSigned"])
            name = f"{'' if signed else 'u'}int{logical['bitWidth']}"
            return FileType(physical, StatsKind.INTEGER, signed=signed, lake_type=name)
        case ("Decimal", _):
            precision, scale = int(logical["precision"]), int(logical["scale"])
            return FileType(physical, StatsKind.DECIMAL, scale=scale, lake_type=f"decimal({precision},{scale})")
        case ("Date", _):
            return FileType(physical, StatsKind.DATE, unit="D", lake_type="date")
        case ("Time", _):
            unit = _UNITS[logical["timeUnit"]]
            return FileType(physical, StatsKind.TIME, unit=unit, lake_type="time_ns" if unit == "ns" else "time")
        case ("Timestamp", _):
            unit, utc = _UNITS[logical["timeUnit"]], bool(logical["isAdjustedToUTC"])
            name = "timestamptz" if utc else "timestamp" if unit == "us" else f"timestamp_{unit}"
            return FileType(physical, StatsKind.TIMESTAMP, unit=unit, utc=utc, lake_type=name)
        case ("UUID", _):
            return FileType(physical, StatsKind.UUID, lake_type="uuid")
        case ("Geometry", _):
            return FileType(physical, StatsKind.GEOMETRY, lake_type="geometry")
        case ("Interval", _):
            return FileType(physical, lake_type="interval")
        case (name, "BYTE_ARRAY") if name in _TEXT:
            return FileType(physical, StatsKind.TEXT, lake_type="json" if name == "JSON" else "varchar")
        case ("None", "BOOLEAN"):
            return FileType(physical, StatsKind.BOOLEAN, lake_type="boolean")
        case ("None", "INT32" | "INT64"):
            return FileType(physical, StatsKind.INTEGER, lake_type=physical.lower())
        case ("None", "INT96"):
            return FileType(physical, lake_type="timestamp")
        case ("None", "FLOAT" | "DOUBLE"):
            return FileType(physical, StatsKind.FLOAT, lake_type="float32" if physical == "FLOAT" else "float64")
        case ("None", "BYTE_ARRAY" | "FIXED_LEN_BYTE_ARRAY"):
            return FileType(physical, StatsKind.BLOB, lake_type="blob")
        case _:
            return FileType(physical)


@lru_cache(maxsize=1024)
def fitting(file: FileType, column: str) -> _Reading:
    """Return a function from a file's bounds to those of a column of a type; ``None`` where reading changes the order.

    Many files have the same types, and each has many bounds.
    """
    name, kind = parse_type(column), scalar(column).stats
    match (file.kind, kind):
        case (StatsKind.TIMESTAMP, StatsKind.TIMESTAMP) if file.utc == (name.base == "timestamptz"):
            # a finer time is rounded when it is read, and then may lie beyond a bound that is not round itself
            unit = NANOS[_UNIT_OF.get(name.base, "us")]
            return lambda bound: bound if abs(bound) == INFINITY or bound % unit == 0 else None
        case (StatsKind.TIMESTAMP, StatsKind.TIMESTAMP):
            return _nothing
        case (StatsKind.DATE, StatsKind.TIMESTAMP):
            return _same if name.base != "timestamptz" else _nothing
        case (StatsKind.FLOAT, StatsKind.FLOAT):
            return _same if name.base == "float64" or file.physical == "FLOAT" else _nothing
        case (StatsKind.DECIMAL, StatsKind.DECIMAL):
            return _same if file.scale <= (name.scale or 0) else _nothing
        case (StatsKind.DECIMAL, StatsKind.INTEGER):
            return int if file.scale == 0 else _nothing
        case (StatsKind.INTEGER, StatsKind.DECIMAL):
            return Decimal
        case (StatsKind.BLOB, StatsKind.TEXT):
            # Older writers leave out that their binary is text; both are ordered by bytes.
            return _text
        case (StatsKind.BLOB, StatsKind.UUID):
            # sixteen bytes without a logical type
            return lambda bound: int.from_bytes(bound) if len(bound) == 16 else None
        case (one, two) if one is two:
            return _same
        case _:
            return _nothing


def geometry_extent(statistics: Any) -> str:
    """Return the extra statistics of a geometry leaf from its ``pyarrow.parquet.GeoStatistics``, if it has any."""
    if statistics is None:
        return EVERYTHING
    box = {f"{axis}{end}": getattr(statistics, f"{axis}{end}") for axis in "xyzm" for end in ("min", "max")}
    codes = statistics.geospatial_types
    known = codes and all(1 <= code % 1000 <= len(GEOMETRY_KINDS) and code // 1000 < len(DIMENSIONS) for code in codes)
    # A box may wrap around the date line; DuckLake's cannot.
    if not known or box["xmin"] is None or box["ymin"] is None or box["xmin"] > box["xmax"]:
        return EVERYTHING
    types = [GEOMETRY_KINDS[code % 1000 - 1] + DIMENSIONS[code // 1000] for code in codes]
    numbers = {key: None if value is None else float(value) for key, value in box.items()}
    return rendered(numbers, types)


# One read fetches nearly every footer whole.
_TAIL = 64 * 1024
_MAX_FOOTER = 256 * 1024 * 1024
_ENDING = 8
_PLAIN, _ENCRYPTED = b"PAR1", b"PARE"
_REMOTE_THREADS = 16
_LOCAL_THREADS = 2
_LOCAL_TASK = 64
"""Files that a thread reads at a time: handing them over one by one takes as long as reading them."""


class FooterColumn(NamedTuple):
    """One leaf column of a file, over all its row groups; ``None`` where the file does not tell.

    ``field_id`` is the leaf's own, or when ``inherited`` that of the nearest node above it that has one.
    ``value_count`` counts the values that are not NULL, ``lake_type`` is the type that holds just such values.
    """

    field_id: int | None
    inherited: bool
    path: str
    type: FileType
    size_bytes: int
    value_count: int | None
    null_count: int | None
    min: Comparable | None = None
    max: Comparable | None = None
    extra: str | None = None
    lake_type: str | None = None


@dataclass(frozen=True, slots=True)
class Footer:
    """A Parquet file as its footer describes it."""

    rows: int
    size_bytes: int
    footer_size: int
    row_groups: int
    columns: tuple[FooterColumn, ...]
    schema: pa.Schema = dataclasses.field(default_factory=lambda: pa.schema([]), compare=False)


@dataclass(frozen=True, slots=True)
class Glance:
    """The facts at the end of a Parquet file, without taking columns apart; an encrypted one tells its size only."""

    size_bytes: int
    footer_size: int
    encrypted: bool
    rows: int | None = None
    field_ids: frozenset[int] | None = None
    row_groups: int | None = None


def glance(store: Store, path: str) -> Glance:
    """Return the least one must know of a Parquet file. Raise as :func:`read_footer`, but not for encrypted files."""
    what = store.url(path)
    with store.open_input(path) as source:
        size, footer = store.attempts.run("footer", what, lambda: _tail(source, what, encrypted=True))
    length = len(footer) - _ENDING
    if footer[-4:] == _ENCRYPTED:
        return Glance(size, length, encrypted=True)
    try:
        file = pq.ParquetFile(pa.BufferReader(footer))
        rows, groups = int(file.metadata.num_rows), int(file.metadata.num_row_groups)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"the footer of {what} cannot be read: {error}") from error
    try:
        ids = frozenset(id_ for id_, _ in _field_ids(file.schema_arrow) if id_ is not None)
    except (pa.ArrowException, ValueError, NotImplementedError):
        return Glance(size, length, encrypted=False, rows=rows, row_groups=groups)  # a type that Arrow does not know
    return Glance(size, length, encrypted=False, rows=rows, field_ids=ids, row_groups=groups)


def read_footer(store: Store, path: str, links: Links | None = None) -> Footer:
    """Return the footer of a Parquet file; ``links`` is one of many calls in a row.

    Raise ``CorruptFileError`` when the file is missing, truncated or not Parquet, ``UnsupportedFeatureError`` when it
    is encrypted.
    """
    what = store.url(path)
    with store.open_input(path, links) as source:
        size, footer = store.attempts.run("footer", what, lambda: _tail(source, what))
    try:
        # The footer alone stands for the file: no offset in it is followed.
        file = pq.ParquetFile(pa.BufferReader(footer))
        metadata, known = file.metadata, _leaves(file)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        columns = [_column(leaf, [group.column(at) for group in groups]) for at, leaf in enumerate(known.leaves)]
        rows = int(metadata.num_rows)
        return Footer(rows, size, len(footer) - _ENDING, len(groups), tuple(columns), known.arrow)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptFileError(f"the footer of {what} cannot be read: {error}") from error


def read_footers(store: Store, paths: Sequence[str]) -> list[Footer]:
    """Return ``read_footer`` of each, several at a time."""
    if not paths:
        return []
    threads, some = (_LOCAL_THREADS, _LOCAL_TASK) if store.is_local else (_REMOTE_THREADS, 1)
    links = Links()

    def read(start: int) -> list[Footer]:
        return [read_footer(store, path, links) for path in paths[start : start + some]]

    with ThreadPoolExecutor(min(threads, len(paths)), "quacklake-footer") as pool:
        return [footer for part in pool.map(read, range(0, len(paths), some)) for footer in part]


#: The leaves of a table that a file has: of each, its places among the columns of the file.
Places = tuple[tuple[Column, tuple[int, ...]], ...]


def leaf_places(footer: Footer, schema: TableSchema, columns: Mapping[str, int] | None = None) -> Places:
    """Return where the leaves of ``schema`` are in a file, by field id, or by ``columns``, from path to column id."""
    by_id: dict[int, list[int]] = {}
    for place, column in enumerate(footer.columns):
        id = column.field_id if columns is None else columns.get(column.path)
        if id is not None:
            by_id.setdefault(id, []).append(place)
    return tuple((leaf, tuple(by_id[leaf.id])) for leaf in schema.leaves() if leaf.id in by_id)


def column_stats(
    footer: Footer, schema: TableSchema, *, columns: Mapping[str, int] | None = None
) -> tuple[ColumnStats, ...]:
    """Return the statistics of the file for every leaf of ``schema`` that it holds, as Parquet tells them."""
    return placed_stats(footer, leaf_places(footer, schema, columns), by_name=columns is not None)


def placed_stats(footer: Footer, places: Places, *, by_name: bool) -> tuple[ColumnStats, ...]:
    """Return ``column_stats`` of a file whose ``places`` are known; ``by_name`` when they come from paths."""
    return tuple([_stats(leaf, [footer.columns[place] for place in own], by_name) for leaf, own in places])


def _stats(leaf: Column, parts: Sequence[FooterColumn], by_name: bool) -> ColumnStats:
    size = parts[0].size_bytes if len(parts) == 1 else sum(part.size_bytes for part in parts)
    if leaf.type == "variant":
        # A group of several leaves; the first, its metadata, is there exactly when the value is.
        return ColumnStats(leaf.id, size, parts[0].value_count, parts[0].null_count)
    if len(parts) != 1 or (parts[0].inherited and not by_name):
        return ColumnStats(leaf.id, size)
    (part,) = parts
    # some writers count the NULLs inside of nested columns more than once
    known = part.value_count is not None and part.value_count >= 0
    return ColumnStats(
        leaf.id,
        size,
        part.value_count if known else None,
        part.null_count if known else None,
        None if part.min is None else _fit_bound(part.min, part.type, leaf.type, upper=False),
        None if part.max is None else _fit_bound(part.max, part.type, leaf.type, upper=True),
        extra=part.extra if leaf.type == "geometry" else None,
        # the reader of footers does not say whether a text was cut
        min_exact=None if part.min is None else is_always_exact(leaf.type),
        max_exact=None if part.max is None else is_always_exact(leaf.type),
    )


def _fit_bound(bound: Comparable, file: FileType, type: str, *, upper: bool) -> str | None:
    value = fitting(file, type)(bound)
    short = None if value is None else shorten(value, upper=upper)
    return None if short is None else encode_comparable(short, type)


def _tail(source: pa.NativeFile, what: str, *, encrypted: bool = False) -> tuple[int, bytes]:
    """Return the size of the file, and its footer with the length and the magic number that follow."""
    size = int(source.size())
    first = min(size, _TAIL)
    tail = bytes(source.read_at(first, size - first))
    magic = tail[-4:]
    if magic == _ENCRYPTED and not encrypted:
        raise UnsupportedFeatureError(f"{what} is encrypted", hint="its statistics cannot be read without its key")
    if size < 4 + _ENDING or magic not in (_PLAIN, _ENCRYPTED):
        raise CorruptFileError(f"{what} is not a Parquet file, or its end is missing")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > min(size - 4 - _ENDING, _MAX_FOOTER):
        raise CorruptFileError(f"{what} is truncated: it has {size} bytes and claims a footer of {length}")
    needed = length + _ENDING
    return size, tail[-needed:] if needed <= len(tail) else bytes(source.read_at(needed, size - needed))


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf column as the schema of a file describes it."""

    id: int | None
    inherited: bool
    path: str
    type: FileType
    comparable: _Reading
    required: bool


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The schema of a file, taken apart. Many files have the same, and taking apart is most of the work."""

    parquet: Any
    arrow: pa.Schema
    leaves: tuple[_Leaf, ...]


_last: _Leaves | None = None


def _leaves(file: Any) -> _Leaves:
    """Return the leaves of a file; what the last file had is taken from there."""
    global _last
    last, schema = _last, file.schema
    if last is not None and schema.equals(last.parquet):
        return last
    ids = list(_field_ids(file.schema_arrow))
    if len(ids) != file.metadata.num_columns:
        raise ValueError(f"{len(ids)} leaves in the schema, {file.metadata.num_columns} columns in the file")
    leaves = []
    for index, (id, inherited) in enumerate(ids):
        leaf = schema.column(index)
        type = _file_type(str(leaf.physical_type), leaf.logical_type.to_json())
        leaves.append(_Leaf(id, inherited, str(leaf.path), type, type.comparable, leaf.max_definition_level == 0))
    _last = _Leaves(schema, file.schema_arrow, tuple(leaves))
    return _last


def _field_ids(fields: Any, above: int | None = None) -> Iterator[tuple[int | None, bool]]:
    """Yield for each leaf in the order of the file: its field id, and whether it only inherits it."""
    for field in fields:
        text = (field.metadata or {}).get(FIELD_ID)
        own = None if text is None else int(text)
        id = above if own is None else own
        children = child_fields(field.type)
        if children:
            yield from _field_ids(children, id)
        else:
            yield id, own is None and above is not None


def child_fields(type: pa.DataType) -> list[pa.Field]:
    """Return the fields inside a nested Arrow type; none for a leaf."""
    if isinstance(type, pa.BaseExtensionType):
        return child_fields(type.storage_type)
    if isinstance(type, pa.MapType):
        return [type.key_field, type.item_field]
    return [type.field(index) for index in range(type.num_fields)]


def _column(leaf: _Leaf, chunks: Sequence[Any]) -> FooterColumn:
    size = total = 0
    null_count: int | None = 0
    lows: list[Any] | None = []
    highs: list[Any] = []
    for chunk in chunks:
        values, statistics = chunk.num_values, chunk.statistics
        size += chunk.total_compressed_size
        total += values
        if leaf.required or values == 0:
            nulls: int | None = 0
        else:
            nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
        null_count = None if null_count is None or nulls is None else null_count + nulls
        if nulls == values or lows is None:
            continue
        if statistics is None or not statistics.has_min_max:
            lows = None  # what one row group does not tell is not known of the file
            continue
        lows.append(leaf.comparable(statistics.min_raw))
        highs.append(leaf.comparable(statistics.max_raw))
    type = leaf.type
    extra = None
    if type.kind is StatsKind.GEOMETRY and chunks:
        extra = reduce(merge_extra, [geometry_extent(getattr(chunk, "geo_statistics", None)) for chunk in chunks])
    return FooterColumn(
        leaf.id,
        leaf.inherited,
        leaf.path,
        type,
        size,
        None if null_count is None else total - null_count,
        null_count,
        min(lows) if lows and None not in lows else None,
        max(highs) if lows and None not in highs else None,
        extra,
        type.lake_type,
    )
