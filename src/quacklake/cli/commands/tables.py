"""``quacklake tables``: the tables of a lake with their sizes."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from quacklake.cli.context import Context
from quacklake.cli.options import At
from quacklake.cli.progress import track
from quacklake.errors import CorruptFileError, PathError, UnsupportedFeatureError

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table and its size, with None for values that this version cannot tell. ``bytes`` counts the data files."""

    table: str
    columns: int
    rows: int | None = None
    inlined_rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def measure(view: Lake | LakeAt) -> list[TableSize]:
    """Return the sizes of all tables at one snapshot. Rows are counted from metadata where possible."""
    names = view.tables()
    return [size_of(view, name) for name in track(names, "measuring tables", len(names))]


def size_of(view: Lake | LakeAt, name: str) -> TableSize:
    """Return the size of a table."""
    import pyarrow.compute as pc

    table = view.table(name)
    columns = len(table.columns)
    try:
        plan = table.plan()
    except (CorruptFileError, PathError, UnsupportedFeatureError) as error:
        sys.stderr.write(f"note: {error.message}\n")
        return TableSize(name, columns)
    rows = plan.count()
    return TableSize(
        table=name,
        columns=columns,
        rows=table.count() if rows is None else rows,
        inlined_rows=0 if plan.inlined is None else plan.inlined.num_rows,
        files=plan.files.num_rows,
        bytes=pc.sum(plan.files.column("file_size_bytes")).as_py() or 0,
    )


def tables(context: Context, at: At = None) -> None:
    """Rows are counted from the metadata where that can tell. Inlined rows are in the catalog, the others in files."""
    import pyarrow as pa

    with context.open() as lake:
        sizes = measure(context.view(lake, at or str(lake.current_snapshot())))
        schema = pa.schema(
            [(field.name, pa.string() if field.name == "table" else pa.int64()) for field in fields(TableSize)]
        )
        context.output.rows(pa.Table.from_pylist([asdict(size) for size in sizes], schema=schema))
