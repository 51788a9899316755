"""``quacklake tables``: the tables of a lake with their sizes."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.progress import track
from quacklake.errors import CorruptFileError, PathError, UnsupportedFeatureError
from quacklake.lake import LakeAt

__all__ = ["TABLES", "TableSize", "measure"]

_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("columns", pa.int64()),
        ("rows", pa.int64()),
        ("inlined_rows", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table and how much is in it; None where this version cannot tell. ``bytes`` are those of the data files."""

    table: str
    columns: int
    rows: int | None = None
    inlined_rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def measure(view: LakeAt) -> list[TableSize]:
    """The sizes of all tables, at one snapshot. Rows are counted from the metadata where that can tell."""
    names = view.tables()
    return [_measure(view, name) for name in track(names, "measuring tables", len(names))]


def _measure(view: LakeAt, name: str) -> TableSize:
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


def _run(context: Context) -> None:
    with context.open() as lake:
        sizes = measure(lake.at(version=lake.current_snapshot()))
        context.output.rows(pa.Table.from_pylist([asdict(size) for size in sizes], schema=_SCHEMA))


TABLES = Command("tables", "List the tables with their rows, files and bytes", _run)
