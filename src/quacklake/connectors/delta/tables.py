"""Open Delta tables, and the types of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from quacklake.errors import ConnectorError, ConnectorUnavailableError


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn the errors of the library into ours."""
    try:
        yield
    except CommitFailedError as error:  # another writer was quicker
        raise ConnectorUnavailableError(f"{what}: {error}") from error
    except DeltaError as error:
        raise ConnectorError(f"{what}: {error}") from error
    except OSError as error:
        raise ConnectorUnavailableError(f"{what}: {error}") from error


def delta_type(field: pa.Field) -> pa.DataType:
    """Return the type as Delta keeps it: microseconds, and no types that Arrow alone has."""
    kind = field.type
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return delta_type(pa.field(field.name, kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(child) for child in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, delta_type(field), field.nullable)


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema with times in microseconds and without the types that only some libraries have."""
    return pa.schema([_plain_field(field) for field in schema])


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the columns of a table as rows have them."""
    return plain(pa.schema(table.schema().to_arrow()))
