"""Partitions of Iceberg: how options name them, and which rows of a batch go into which file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from quacklake.connectors.protocols import WrittenFile
from quacklake.connectors.staging import Split, Values, groups, hive_folder
from quacklake.errors import ConfigError, nearest

_PLAIN: dict[str, Callable[[], Transform[Any, Any]]] = {
    "identity": IdentityTransform,
    "void": VoidTransform,
    "year": YearTransform,
    "years": YearTransform,
    "month": MonthTransform,
    "months": MonthTransform,
    "day": DayTransform,
    "days": DayTransform,
    "hour": HourTransform,
    "hours": HourTransform,
}
_COUNTED: dict[str, Callable[[int], Transform[Any, Any]]] = {"bucket": BucketTransform, "truncate": TruncateTransform}
_CALL = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*(?:,\s*(\d+)\s*)?\)")


def partition_spec(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the partitions that texts such as ``days(ts)``, ``bucket(16, id)`` or ``region`` name.

    Raise ``ConfigError`` for a column or a transform that is not there, or does not fit the type of its column.
    """
    return PartitionSpec(*(_field(text, 1000 + place, schema) for place, text in enumerate(texts)))


def _field(text: str, field_id: int, schema: Schema) -> PartitionField:
    match = _CALL.fullmatch(text)
    word, column = (match[1].lower(), match[3].strip('"`')) if match else ("identity", text.strip('"`'))
    count = (match[2] or match[4]) if match else None
    known = [field.name for field in schema.fields]
    found = next((field for field in schema.fields if field.name == column), None)
    if found is None:
        raise ConfigError(f"partition_by: the rows have no column {column!r}", hint=nearest(column, known))
    transform: Transform[Any, Any]
    if word in _COUNTED:
        if not count or not int(count):
            raise ConfigError(f"partition_by: {word} needs a number", hint=f"{word}(16, {column})")
        transform = _COUNTED[word](int(count))
    elif word in _PLAIN and count is None:
        transform = _PLAIN[word]()
    else:
        raise ConfigError(
            f"partition_by: there is no transform {text!r}", hint=nearest(word, [*_PLAIN, *_COUNTED]) or "days(ts)"
        )
    if not transform.can_transform(found.field_type):
        raise ConfigError(f"partition_by: {word} does not fit the type {found.field_type} of {column}")
    suffix = {"identity": "", "bucket": "_bucket", "truncate": "_trunc", "void": "_null"}
    return PartitionField(found.field_id, field_id, transform, column + suffix.get(word, f"_{word.rstrip('s')}"))


def iceberg_split(spec: PartitionSpec, schema: Schema) -> Split | None:
    """Return what separates rows by the partitions of a table, None for a table without partitions.

    The values are kept in the single-value form of Iceberg, as hexadecimal digits.
    """
    if not spec.fields:
        return None
    types = result_types(spec, schema)

    def split(table: pa.Table) -> Iterable[tuple[str, Values, pa.Table]]:
        keys = pa.table(
            {
                field.name: field.transform.pyarrow_transform(schema.find_type(field.source_id))(
                    table.column(schema.find_column_name(field.source_id))
                )
                for field in spec.fields
            }
        )
        for values, rows in groups(table, keys):
            raw = {name: raw_value(value) for name, value in values.items()}
            shown = {
                field.name: None if (value := raw[field.name]) is None else _show_value(field, types[field.name], value)
                for field in spec.fields
            }
            yield (
                hive_folder(shown),
                {name: None if v is None else to_bytes(types[name], v).hex() for name, v in raw.items()},
                rows,
            )

    return split


def partition_record(file: WrittenFile, spec: PartitionSpec, schema: Schema) -> Record:
    """Return the values of a file's partition as Iceberg's own record."""
    types = result_types(spec, schema)
    texts = [file.partition.get(field.name) for field in spec.fields]
    names = [field.name for field in spec.fields]
    return Record(
        *(None if t is None else from_bytes(types[n], bytes.fromhex(t)) for n, t in zip(names, texts, strict=True))
    )


def result_types(spec: PartitionSpec, schema: Schema) -> dict[str, PrimitiveType]:
    """Return the types of the values of partitions."""
    return {field.name: field.field_type for field in spec.partition_type(schema).fields}  # type: ignore[misc]


def raw_value(value: pa.Scalar) -> Any:
    """Return a value as Iceberg counts it: days, microseconds, or the thing itself."""
    if not value.is_valid:
        return None
    if pa.types.is_date32(value.type):
        return value.cast(pa.int32()).as_py()
    if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type):
        return value.cast(pa.int64()).as_py()
    return value.as_py()


def _show_value(field: PartitionField, kind: PrimitiveType, value: object) -> str:
    return field.transform.to_human_string(kind, value)
