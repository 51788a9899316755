"""Name mappings: which column of a file from elsewhere is which column of the table.

Files that a lake did not write have no field ids. Their mapping gives the field id of each column by its name, at every
depth; a column that is in the names of the folders instead (``year=2024/``) is a partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from quacklake.core.format.types import parse_type
from quacklake.errors import CatalogError

MAP_BY_NAME = "map_by_name"
"""The one type of mapping there is."""

_HIVE_NULLS = ("__hive_default_partition__", "null")
_SEGMENT = re.compile(r"(?:^|[/\\])([^/\\?=]+)=([^/\\?=]*)(?=[/\\])")


_INTEGERS = ("int8", "int16", "int32", "int64")
_TIMESTAMPS = ("timestamp", "timestamp_us", "timestamp_ms", "timestamp_s")


def fits(file: str | None, column: str) -> bool:
    """Return True when a file's type is a column's or a narrower one, or of times a finer one that stock clients take.

    >>> fits("int32", "int64"), fits("int64", "int32"), fits("decimal(9,2)", "decimal(12,3)")
    (True, False, True)
    """
    if file is None:
        return False
    if column.startswith("decimal"):
        one, two = parse_type(file), parse_type(column)
        if one.base != "decimal" or one.precision is None or two.precision is None:
            return False
        whole = one.precision - (one.scale or 0) <= two.precision - (two.scale or 0)
        return whole and (one.scale or 0) <= (two.scale or 0)
    if column in _INTEGERS:
        narrower = _INTEGERS[: _INTEGERS.index(column) + 1]
        return file in narrower or file in [f"u{name}" for name in narrower[:-1]]
    if column.startswith("uint") and column[1:] in _INTEGERS:
        return file in [f"u{name}" for name in _INTEGERS[: _INTEGERS.index(column[1:]) + 1]]
    if column in (*_TIMESTAMPS, "timestamp_ns"):
        return file in _TIMESTAMPS or (file == "timestamp_ns" and column in ("timestamp", "timestamp_us", file))
    return file == column or (file, column) in (("float32", "float64"), ("json", "varchar"))


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One column of a file, or one node inside: its name there and the field id of the table's column."""

    source_name: str
    target_id: int
    is_partition: bool = False
    children: tuple[MappedColumn, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for two with the same children, in whatever order."""
        return (self.source_name, self.target_id, self.is_partition, frozenset(child.key for child in self.children))


@dataclass(frozen=True)
class NameMapping:
    """The columns of files that look alike. A mapping that is not committed has a negative ``id``."""

    id: int
    columns: tuple[MappedColumn, ...]

    @cached_property
    def by_target(self) -> Mapping[int, MappedColumn]:
        """Return the top-level columns by field id."""
        return {column.target_id: column for column in self.columns}

    @property
    def key(self) -> frozenset[tuple[object, ...]]:
        """Equal for two mappings with the same columns, in whatever order."""
        return frozenset(column.key for column in self.columns)


@dataclass(frozen=True, slots=True)
class MappingRow:
    """One row of ``ducklake_name_mapping``. ``column_id`` counts from 0 within the mapping."""

    mapping_id: int
    column_id: int
    source_name: str
    target_field_id: int
    parent_column: int | None
    is_partition: bool


def flatten_mapping(mapping: NameMapping) -> tuple[MappingRow, ...]:
    """Return the catalog rows of a mapping, parents before children."""
    rows: list[MappingRow] = []

    def add(column: MappedColumn, parent: int | None) -> None:
        number = len(rows)
        rows.append(MappingRow(mapping.id, number, column.source_name, column.target_id, parent, column.is_partition))
        for child in column.children:
            add(child, number)

    for column in mapping.columns:
        add(column, None)
    return tuple(rows)


def unflatten_mappings(rows: Iterable[MappingRow]) -> tuple[NameMapping, ...]:
    """Return the mappings that catalog rows describe. Raise ``CatalogError`` for rows that fit no tree."""
    by_mapping: dict[int, list[MappingRow]] = {}
    for row in rows:
        by_mapping.setdefault(row.mapping_id, []).append(row)
    return tuple(NameMapping(id_, _tree(id_, found)) for id_, found in sorted(by_mapping.items()))


def _tree(id_: int, rows: list[MappingRow]) -> tuple[MappedColumn, ...]:
    children: dict[int | None, list[MappingRow]] = {}
    for row in sorted(rows, key=lambda row: row.column_id):
        children.setdefault(row.parent_column, []).append(row)
    built = 0

    def build(parent: int | None) -> Iterator[MappedColumn]:
        nonlocal built
        for row in children.get(parent, ()):
            built += 1
            yield MappedColumn(
                row.source_name, row.target_field_id, bool(row.is_partition), tuple(build(row.column_id))
            )

    columns = tuple(build(None))
    if built != len(rows) or len({column.target_id for column in columns}) != len(columns):
        raise CatalogError(f"the name mapping {id_} of the catalog is not a tree of columns")
    return columns


def hive_values(path: str) -> dict[str, str | None]:
    """Return the values in the folders ``name=value`` of a path. ``None`` is NULL; the first of one name counts.

    >>> hive_values("s3://b/year=2024/city=a%20b/f.parquet")
    {'year': '2024', 'city': 'a b'}
    """
    values: dict[str, str | None] = {}
    for name, value in _SEGMENT.findall(path):
        values.setdefault(name, None if value.lower() in _HIVE_NULLS else unquote(value))
    return values
