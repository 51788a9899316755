"""Rows of data files at known positions, read with as little else as possible.

DuckDB passes over what a filter on ``file_row_number`` rules out: row groups are not read, and vectors not decoded. It
has one filter for all files of a call, so that a large file of which little is wanted gets a call of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.engines.duckdb.mapped import Field, mapped_columns
from quacklake.engines.duckdb.shapes import Shape
from quacklake.engines.duckdb.sql import (
    SHIFT,
    Branch,
    Reads,
    ScanSql,
    branches,
    own_columns,
    refuse_names,
    small_table,
)
from quacklake.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID
from quacklake.format.schema import Column
from quacklake.scan.plan import ScanPlan

BLOCK_SHIFT = 11
"""A block is 2,048 rows, which DuckDB decodes at once."""
POSITION_MASK = (1 << SHIFT) - 1

#: Of each data file that has wanted rows: the numbers of the blocks they are in, ascending.
Blocks = Mapping[int, Sequence[int]]

_GROUP = 60
"""Blocks in a row group as DuckDB writes them, which is unpacked whole: files of which the same ones are wanted share a
call."""
_CALLS = 32


@dataclass(frozen=True, slots=True)
class _Call:
    """Files of one shape that are read by one call; ``blocks`` are those of any of them, None for all."""

    branch: Branch
    indexes: list[int]
    blocks: set[int] | None = None


def picked_sql(
    plan: ScanPlan,
    prefix: str,
    columns: Sequence[Column],
    picks: str,
    blocks: Blocks,
    *,
    shapes: Mapping[int, Shape],
    reads: Reads,
) -> ScanSql:
    """Return the SQL that yields ``columns`` of the rows that a query picks, with ``_ql_row_id`` and ``_ql_snapshot``.

    ``picks`` yields ``key`` (data file << 40 | position) and ``snapshot_id``, which becomes ``_ql_snapshot``; a row
    that did not exist before that snapshot is left out. ``blocks`` are where the picked rows are.
    """
    refuse_names(plan, columns, {"_ql_row_id", "_ql_snapshot"})
    tables: list[tuple[str, pa.Table]] = []
    parts = []
    for number, call in enumerate(_calls(plan, blocks, branches(plan, shapes))):
        files = plan.files.take(pa.array(call.indexes, pa.int64()))
        name, facts = f"{prefix}_files{number}", files.select(["data_file_id", "row_id_start", "begin_snapshot"])
        # keys of the files' places in the call: the id of a data file would have to be looked up for every row
        facts = facts.append_column("place", pa.array(range(files.num_rows), pa.int64()))
        parts.append(_call_query(plan, call, files, columns, _placed(picks, facts, name, tables), reads))
    return ScanSql(" UNION ALL ".join(parts), tuple(tables), ())


def _placed(picks: str, facts: pa.Table, name: str, tables: list[tuple[str, pa.Table]]) -> str:
    """Return those of the picked rows that are in some files, with the facts of the files."""
    position = f"(k.key & {POSITION_MASK})"
    bounds = pc.min_max(facts.column("data_file_id"))
    return (
        f"(SELECT (f.place << {SHIFT}) | {position} AS key, f.row_id_start + {position} AS row_id,"
        f" f.begin_snapshot AS born, k.snapshot_id FROM ({picks}) k"
        f" JOIN {small_table(name, facts, tables)} f ON f.data_file_id = k.key >> {SHIFT}"
        f" WHERE k.key >= {bounds['min'].as_py() << SHIFT:d} AND k.key < {(bounds['max'].as_py() + 1) << SHIFT:d})"
    )


def _calls(plan: ScanPlan, blocks: Blocks, branches: Sequence[Branch]) -> Iterator[_Call]:
    ids, counts = (plan.files.column(name).to_pylist() for name in ("data_file_id", "record_count"))
    for branch in branches:
        whole: list[int] = []
        sparse: dict[tuple[int, ...], list[int]] = {}
        for index in branch.indexes:
            wanted, total = blocks[ids[index]], (counts[index] >> BLOCK_SHIFT) + 1
            # only reading shows that a position is behind the end of a file
            if total > _GROUP and 2 * len(wanted) <= total and wanted[-1] < total:
                sparse.setdefault(tuple(sorted({block // _GROUP for block in wanted})), []).append(index)
            else:
                whole.append(index)
        if whole:
            yield _Call(branch, whole)
        alike = [sparse[groups] for groups in sorted(sparse)]
        size = max(-(-len(alike) // _CALLS), 1)
        for start in range(0, len(alike), size):
            some = [index for indexes in alike[start : start + size] for index in indexes]
            yield _Call(branch, some, {block for index in some for block in blocks[ids[index]]})


def _call_query(
    plan: ScanPlan, call: _Call, files: pa.Table, columns: Sequence[Column], picks: str, reads: Reads
) -> str:
    paths = files.column("path").to_pylist()
    row_id, born = "k.row_id", "k.born"
    if call.branch.mapping is None:
        fields, select = own_columns(call.branch, columns)
        fields.append(Field(FIELD_ROW_ID, "_ql_stored_row_id", "BIGINT"))
        fields.append(Field(FIELD_SNAPSHOT_ID, "_ql_snapshot_id", "BIGINT"))
        row_id, born = f"coalesce(p._ql_stored_row_id, {row_id})", f"coalesce(p._ql_snapshot_id, {born})"
    else:
        fields, select = mapped_columns(plan.mapping(call.branch.mapping), columns, reads.store.urls(paths))
    select += [f"{row_id} AS _ql_row_id", "k.snapshot_id AS _ql_snapshot"]
    keys = files.column("encryption_key").to_pylist()
    source = reads.source(paths, keys, fields, pc.sum(files.column("record_count")).as_py())
    query = (
        f"SELECT {', '.join(select)} FROM {source} p JOIN {picks} k"
        f" ON k.key = (p.file_index::BIGINT << {SHIFT}) | p.file_row_number WHERE k.snapshot_id > {born}"
    )
    return f"({query}{'' if call.blocks is None else _within(call.blocks)})"


def _within(blocks: set[int]) -> str:
    """Return a condition on the number of a row that DuckDB applies while it reads."""
    size = 1 << max(blocks).bit_length()
    bits = "".join("1" if block in blocks else "0" for block in range(size))
    # stays within the bits even for a file with too many rows, which the join leaves out
    bit = f"get_bit('{bits}'::BIT, ((p.file_row_number >> {BLOCK_SHIFT}) & {size - 1:d})::INTEGER)"
    low, high = min(blocks) << BLOCK_SHIFT, (max(blocks) + 1) << BLOCK_SHIFT
    return f" AND p.file_row_number >= {low:d} AND p.file_row_number < {high:d} AND {bit} = 1"
