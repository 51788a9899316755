"""Schemas that change while rows come: which types hold others, and rows in the columns of a later schema."""

from __future__ import annotations

import pyarrow as pa

from quacklake.connectors.staging import StagedSink
from quacklake.errors import SchemaMismatchError

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Return True when a type has every value of another, in the way that both formats widen columns.

    >>> holds(pa.int64(), pa.int16()), holds(pa.int32(), pa.int64())
    (True, False)
    """
    if wide == narrow:
        return True
    if wide in _WHOLE and narrow in _WHOLE:
        return _WHOLE.index(wide) > _WHOLE.index(narrow)
    if pa.types.is_decimal128(wide) and pa.types.is_decimal128(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return bool(pa.types.is_float64(wide) and pa.types.is_float32(narrow))


def united(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Return the columns of both schemas, each with the wider type. Raise ``SchemaMismatchError``."""
    fields = {field.name: field for field in first}
    for field in second:
        known = fields.setdefault(field.name, field.with_nullable(True))
        if holds(field.type, known.type):
            fields[field.name] = known.with_type(field.type)
        elif not holds(known.type, field.type):
            raise SchemaMismatchError(
                f'the rows have a column "{field.name}" of the type {field.type}, and had the type {known.type} before'
            )
    missing = set(fields) - set(second.names)
    return pa.schema([f.with_nullable(True) if f.name in missing else f for f in fields.values()])


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the columns of a schema; a column that they lack is NULL."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def check_same(schema: pa.Schema, given: pa.Schema) -> None:
    """Raise ``SchemaMismatchError`` unless rows have the columns that the sink was initialized with."""
    for field in schema:
        place = given.get_field_index(field.name)
        if place < 0 or given.field(place).type != field.type:
            raise SchemaMismatchError(
                f'the rows have a column "{field.name}" of the type {field.type}, the sink was initialized without it',
                hint="set schema_evolution=true",
            )
    lacking = [name for name in given.names if name not in schema.names]
    if lacking:
        raise SchemaMismatchError(f'the rows lack the column "{lacking[0]}"', hint="set schema_evolution=true")


class EvolvingSink(StagedSink):
    """A staged sink whose rows may get other columns between two batches, if that is asked for."""

    _evolution: bool
    _given: pa.Schema

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table, or open it and check that the rows fit."""
        raise NotImplementedError

    def _follow(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of another schema in the columns of the sink, which get those that are new."""
        stage = self.stage
        if not self._evolution:
            check_same(batch.schema, self._given)
        elif (schema := united(self._given, batch.schema)) != self._given:
            stage.flush()
            self.initialize(schema)
            self.stage.files[:0] = stage.files
        return conformed(batch, self._given)
