"""A whole catalog: every row of every table, out of one database and into another.

Rows of the metadata tables are the same in every database. Inlined rows are not: they are read as the database stores
them and must be decoded, and are written encoded for the target database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from quacklake.core.catalog.reading.inlined import InlinedRows
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import delete_table
from quacklake.core.catalog.tables import OWN_TABLES, WIDE_SPEC, ColumnSpec, Instant, readable_time
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.format.schema import TableSchema

_PAGE = 20_000
_KINDS = {
    "id": pa.int64(),
    "text": pa.string(),
    "name": pa.string(),
    "flag": pa.bool_(),
    "uid": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
}
_OWN = {
    f"quacklake_{name}": tuple(map(ColumnSpec.parse, text.split()))
    for name, text in OWN_TABLES.items()
    if name != "leases"  # a lease says who works on the lake at this moment
}
#: The tables of an image with their columns. What makes a lake of them, its metadata, comes last.
IMAGED: Mapping[str, tuple[ColumnSpec, ...]] = {
    **{f"ducklake_{name}": columns for name, columns in WIDE_SPEC.items() if name != "metadata"},
    **_OWN,
    "ducklake_metadata": WIDE_SPEC["metadata"],
}
#: The columns of a table of inlined deletes.
DELETE_COLUMNS = pa.schema([(name, pa.int64()) for name in ("file_id", "row_id", "begin_snapshot")])


@dataclass(frozen=True, slots=True)
class InlinedId:
    """A table of inlined rows."""

    table_id: int
    schema_version: int


class ImageReader(Reader):
    """Reads everything, a page at a time."""

    def rows(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table of ``IMAGED``; none where a catalog lacks one of our own."""
        prefix, _, rest = name.partition("_")
        table = self.meta.get(rest) if prefix == "ducklake" else self.meta.own[rest]
        if table is None or (prefix != "ducklake" and not self.has_table(name)):
            return
        schema, backend = self.arrow_schema(name), self.backend.name
        columns_read = (readable_time(c, backend, c.name) if isinstance(c.type, Instant) else c for c in table.c)
        statement = sa.select(*columns_read).execution_options(yield_per=_PAGE)
        for rows in self.run(f"image_{name}", statement).partitions(_PAGE):
            columns = zip(*rows, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def arrow_schema(self, name: str) -> pa.Schema:
        """Return the Arrow schema of a table of ``IMAGED``, as far as the version of the lake has its columns."""
        stock = self.meta.get(name.removeprefix("ducklake_"))
        known = IMAGED[name] if stock is None else [column for column in IMAGED[name] if column.name in stock.c]
        return pa.schema([(column.name, _KINDS[column.kind]) for column in known])

    def inlined_ids(self) -> list[InlinedId]:
        """Return the tables of inlined rows."""
        t = self.meta["inlined_data_tables"]
        order = (t.c.table_id, t.c.schema_version)
        rows = self.run("image_inlined_tables", sa.select(*order).distinct().order_by(*order))
        return [InlinedId(*row) for row in rows]

    def inlined_pages(self, id_: InlinedId, schema: TableSchema) -> Iterator[InlinedRows]:
        """Yield all rows of a table of inlined rows as the database stores them, those of the past too."""
        inlined = self.inlined.table(id_.table_id, id_.schema_version, schema)
        sql = inlined.table
        last = -1
        while True:
            beyond = (
                sa.select(sql.c.row_id).where(sql.c.row_id > last).order_by(sql.c.row_id).offset(_PAGE - 1).limit(1)
            )
            bound = self.run("image_inlined_bound", beyond).scalar()
            page = [sql.c.row_id > last, *([] if bound is None else [sql.c.row_id <= bound])]
            rows = self.inlined.fetch(inlined, schema, id_.schema_version, sa.and_(*page))
            if rows.rows.num_rows:
                yield rows
            if bound is None:
                return
            last = int(bound)

    def inlined_delete_pages(self, table_id: int) -> Iterator[pa.RecordBatch]:
        """Yield all inlined deletes of a table."""
        table = delete_table(table_id, self.meta)
        statement = sa.select(table.c.file_id, table.c.row_id, table.c.begin_snapshot)
        result = self.run("image_inlined_deletes", statement.execution_options(yield_per=_PAGE))
        for rows in result.partitions(_PAGE):
            arrays = [pa.array(values, pa.int64()) for values in zip(*rows, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=DELETE_COLUMNS)


class ImageWriter(Writer):
    """Writes everything into an empty database, inside one transaction."""

    def clear(self) -> None:
        """Remove every row of the lake, and the tables of inlined rows and deletes."""
        names = self.meta["inlined_data_tables"]
        for (name,) in self.run("inlined_names", sa.select(names.c.table_name)).fetchall():
            table = sa.Table(str(name), sa.MetaData(schema=self.meta.metadata.schema))
            self.run("drop_inlined", sa.schema.DropTable(table, if_exists=True))
        tables = self.meta["table"]
        for (table_id,) in self.run("table_ids", sa.select(tables.c.table_id).distinct()).fetchall():
            self.run("drop_inlined", sa.schema.DropTable(delete_table(table_id, self.meta), if_exists=True))
        for name in IMAGED:
            prefix, _, rest = name.partition("_")
            found = self.meta.get(rest) if prefix == "ducklake" else self.meta.own[rest]
            if found is not None:
                self.run(f"clear_{name}", sa.delete(found))

    def put_rows(self, name: str, rows: pa.RecordBatch) -> None:
        """Insert rows of a table of ``IMAGED``."""
        prefix, _, rest = name.partition("_")
        if rows.num_rows:
            self._put(f"restore_{name}", self.meta[rest] if prefix == "ducklake" else self.meta.own[rest], rows)

    def _put(self, name: str, table: sa.Table, rows: pa.RecordBatch) -> None:
        values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        if values:
            self.insert_many(name, table, rows.schema.names, values)

    def make_inlined(self, id_: InlinedId, schema: TableSchema) -> None:
        """Make a table of inlined rows."""
        self.inlined.add_table(id_.table_id, id_.schema_version, schema)

    def put_inlined(self, id_: InlinedId, schema: TableSchema, life: Sequence[Sequence[Any]], values: Any) -> None:
        """Insert inlined rows: row id, begin and end of each, and its encoded values in schema order."""
        inlined = self.inlined.table(id_.table_id, id_.schema_version, schema)
        columns, stored = inlined.stored(list(values))
        keys = ("row_id", "begin_snapshot", "end_snapshot", *columns)
        rows = [(*one, *two) for one, two in zip(life, stored, strict=True)]
        if rows:
            self.insert_many("restore_inlined_rows", inlined.table, keys, rows)

    def make_inlined_deletes(self, table_id: int) -> None:
        """Make the table of a table's inlined deletes."""
        if self.meta.shared:
            return
        table = delete_table(table_id, self.meta)
        if self.backend.name == "mysql":
            self.run("drop_inlined_deletes", sa.schema.DropTable(table, if_exists=True))
        self.run("create_inlined_deletes", CreateTable(table))

    def put_inlined_deletes(self, table_id: int, rows: pa.RecordBatch) -> None:
        """Insert inlined deletes."""
        self._put("restore_inlined_deletes", delete_table(table_id, self.meta), rows)
