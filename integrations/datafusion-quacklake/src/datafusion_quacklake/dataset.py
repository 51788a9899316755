"""Tables of a lake as datasets, which DataFusion scans: a partition for each data file, and one for the catalog's rows.

DataFusion asks a dataset for its parts with the filter of a query, then each part for a stream of batches with the
columns that the query needs. The filter plans the files, and is applied to the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from quacklake.errors import UnsupportedFeatureError
from quacklake.extend import reads, schemas

#: Plans a table, given a filter.
Planner = Callable[[pc.Expression | None], reads.ReadPlan]
_SPECIAL = re.compile(r"\b(?:nan|inf)\b")


class LakeDataset(ds.Dataset):
    """A table at one snapshot. With ``places``, the places of rows (``reads.PLACES``) are columns after its own."""

    def __init__(self, planner: Planner, schema: schemas.TableSchema, *, places: bool = False) -> None:
        self._planner = planner
        self._columns = schema
        self._places = places
        own = schema.to_arrow()
        # other engines need not know which values may be NULL, and DataFusion rejects batches that know less
        fields = [field.with_nullable(True).remove_metadata() for field in own]
        self._own = pa.schema([*fields, *reads.PLACES] if places else fields)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._own

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[LakeFragment]:
        """Return the parts that may hold rows of a filter."""
        known = filter if filter is not None and not _speaks_of(filter, reads.PLACES.names) else None
        plan = self._planner(known)
        return iter([LakeFragment(plan, part, self._own) for part in plan.pieces])

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> Any:
        """Return what tells DataFusion the columns of an answer; rows come from the fragments."""
        return LakeScanner((), self._own, columns, filter)


class LakeFragment:
    """A data file of a plan, or (``None``) its rows in the catalog."""

    def __init__(self, plan: reads.ReadPlan, part: reads.PlannedFile | None, schema: pa.Schema) -> None:
        self._plan = plan
        self._part = part
        self._schema = schema

    def scanner(
        self,
        _: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int = 8192,
        **__: Any,
    ) -> LakeScanner:
        """Return a stream of some columns of the rows that a filter keeps."""
        needed = [
            name
            for name in self._schema.names
            if columns is None or name in columns or (filter is not None and _speaks_of(filter, [name]))
        ]
        return LakeScanner(self._read(needed, batch_size), self._schema, columns, filter)

    def _read(self, names: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        places = any(name in reads.PLACES.names for name in names)
        own = [self._plan.schema.find(name) for name in names if name not in reads.PLACES.names]
        if self._part is not None and self._part.plain:
            with reads.open_file(self._plan, self._part) as source:
                file = pq.ParquetFile(source)
                if schemas.can_conform(file.schema_arrow, own):
                    yield from self._read_parquet(file, own, batch_size, places=places)
                    return
        chosen = [column.name for column in own]
        # a row without columns still counts, so that one column is read then
        yield from reads.read_part(self._plan, self._part, chosen or [self._plan.schema.names[0]], places=places)

    def _read_parquet(
        self, file: pq.ParquetFile, own: Sequence[schemas.Column], batch_size: int, *, places: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not deleted, in the columns of the table."""
        assert self._part is not None
        ids = {column.id for column in own}
        stored = [field.name for field in file.schema_arrow if int(field.metadata[b"PARQUET:field_id"]) in ids]
        # the number of rows is known even of columns that the file lacks
        stored = stored or [file.schema_arrow.names[0]]
        deleted = reads.find_deleted(self._plan, self._part) if self._part.has_deletes else None
        begin = 0
        for batch in file.iter_batches(batch_size, columns=stored):
            rows = schemas.conform(batch, own)
            if places or deleted is not None:
                positions = pa.array(range(begin, begin + batch.num_rows), pa.int64())
            if places:
                nothing = pa.nulls(len(positions), pa.int64())
                where = [pa.repeat(pa.scalar(self._part.id, pa.int64()), len(positions)), nothing, positions]
                schema = pa.schema([*rows.schema, *reads.PLACES])
                rows = pa.RecordBatch.from_arrays([*rows.columns, *where], schema=schema)
            if deleted is not None:
                rows = rows.filter(pc.invert(pc.is_in(positions, value_set=deleted)))
            begin += batch.num_rows
            if rows.num_rows:
                yield rows


class LakeScanner:
    """A stream of batches with the columns of an answer."""

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        columns: Sequence[str] | None,
        filter: pc.Expression | None,
    ) -> None:
        self._batches = batches
        self._filter = filter
        self.dataset_schema = schema
        names = schema.names if columns is None else columns
        self.projected_schema = pa.schema([schema.field(name) for name in names])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        for batch in self._batches:
            rows = batch if self._filter is None else batch.filter(_mask(batch, self._filter))
            if rows.num_rows:
                chosen = rows.select(self.projected_schema.names)
                yield chosen.cast(self.projected_schema) if chosen.num_columns else chosen


def _speaks_of(filter: pc.Expression, names: Sequence[str]) -> bool:
    """Return whether a filter may name one of these columns: its text has the name."""
    text = str(filter)
    return any(name in text for name in names)


def _mask(batch: pa.RecordBatch, filter: pc.Expression) -> pa.Array:
    """Return which rows a filter keeps, where NaN is above all numbers, as it is for DataFusion and for lakes.

    Arrow compares NaN with nothing: infinity stands for it, unless that would be seen.
    """
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_floating(array.type) and _speaks_of(filter, [name]):
            literals = set(_SPECIAL.findall(str(filter)))
            is_nan = pc.is_nan(array)
            infinite = "inf" in literals or pc.any(pc.equal(array, float("inf"))).as_py()
            if "nan" in literals or (infinite and pc.any(is_nan).as_py()):
                raise UnsupportedFeatureError(
                    f'a filter on "{name}" compares NaN with NaN or infinity, which Arrow cannot do',
                    hint=f'let DataFusion filter by itself, such as isnan("{name}") or nanvl("{name}", 0) > 1',
                )
            array = pc.if_else(is_nan, pa.scalar(float("inf"), array.type), array)
        arrays.append(array)
    table = pa.Table.from_arrays([*arrays, pa.array(range(batch.num_rows), pa.int64())], [*batch.schema.names, "\0row"])
    kept = table.filter(filter).column("\0row").combine_chunks()
    return pc.is_in(pa.array(range(batch.num_rows), pa.int64()), value_set=kept)
