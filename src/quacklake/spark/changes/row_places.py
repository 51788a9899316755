"""Collect the positions of changed rows on the driver.

In tables of ordinary size, Spark reports each changed row: by its position, or, if there are too many positions, by one
bit, so that 64 consecutive rows of a file are one number. One job finds all of them, and the driver can write the
delete files. For larger tables the driver gets only the number of changed rows of each file, and the executors write
the delete files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from quacklake.scan import ScanPlan
from quacklake.scan.plan import POSITIONS
from quacklake.spark.read.scan import FILE_ID, POSITION, VERSION
from quacklake.spark.runtime.failures import writing
from quacklake.spark.runtime.session import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KIND = "_ql_kind"
SEEN, UPDATED, DELETED = 0, 1, 2
CHANGED = f"{KIND} <> {SEEN}"

_MOST_ROWS = 64_000_000
"""The most rows of a plan for which the driver collects bits: 40 MB if one of each 64 rows is changed."""
_MOST_PLACES = 2_000_000
"""The most positions of changed rows that the driver collects."""
_PLACE = (FILE_ID, VERSION, POSITION)
_WIDTH = 64
_GONE = pa.schema([("schema_version", pa.int64()), ("row_id", pa.int64())])


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of changed rows of a file, or of the inlined rows of a version."""

    updated: int
    deleted: int

    @property
    def all(self) -> int:
        return self.updated + self.deleted


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Changed rows: their number in each file, and by version for inlined rows. Each row counts once.

    ``rows`` is the number of rows that were read, if it is known. ``positions`` are positions in files, or None when
    they are too many for the driver; ``gone`` are the inlined rows. ``unclear`` says that a row is changed in several
    ways.
    """

    files: Mapping[int, Counts]
    inlined: Mapping[int, Counts]
    unclear: bool
    gone: pa.Table = field(default_factory=_GONE.empty_table)
    positions: pa.Table | None = None
    rows: int | None = None

    @property
    def updated(self) -> int:
        return sum(each.updated for each in (*self.files.values(), *self.inlined.values()))

    @property
    def deleted(self) -> int:
        return sum(each.deleted for each in (*self.files.values(), *self.inlined.values()))

    def within(self, ids: set[int]) -> pa.Table | None:
        """Return the positions in some files, if they are known."""
        if self.positions is None:
            return None
        return self.positions.filter(pc.is_in(self.positions.column("file_id"), value_set=pa.array(ids, pa.int64())))


def few_rows(plan: ScanPlan) -> bool:
    """Return True when a plan has so few rows that the driver can collect every changed one."""
    counts = plan.files.column("record_count")
    inlined = 0 if plan.inlined is None else plan.inlined.num_rows
    return not counts.null_count and (pc.sum(counts).as_py() or 0) + inlined <= _MOST_ROWS


def found_rows(rows: DataFrame) -> FoundRows:
    """Find the changed rows of a plan with :func:`few_rows`, mostly in one job. Raises the errors of a Spark write."""
    with writing():
        each = to_arrow(rows.select(*_PLACE, KIND).limit(_MOST_PLACES + 1))
        words = _words(rows) if each.num_rows > _MOST_PLACES else None
    changed, unclear = _distinct(each) if words is None else _of_words(words)
    in_files = pc.is_valid(changed.column(FILE_ID))
    stored, inlined = changed.filter(in_files), changed.filter(pc.invert(in_files))
    return FoundRows(
        _counts(stored, FILE_ID),
        _counts(inlined, VERSION),
        unclear,
        inlined.select([VERSION, POSITION]).rename_columns(_GONE.names).cast(_GONE),
        stored.select([FILE_ID, POSITION]).rename_columns(POSITIONS.names).cast(POSITIONS),
        each.num_rows if words is None else pc.sum(words.column("rows")).as_py(),
    )


def _distinct(rows: pa.Table) -> tuple[pa.Table, bool]:
    """Return each changed row once, and True if one of them is changed in several ways."""
    rows = rows.filter(pc.not_equal(rows.column(KIND), SEEN))
    found = rows.group_by(list(_PLACE)).aggregate([(KIND, "min"), (KIND, "count")])
    # a row that is deleted twice is simply deleted
    several = pc.and_(pc.equal(found.column(f"{KIND}_min"), UPDATED), pc.greater(found.column(f"{KIND}_count"), 1))
    changed = found.select([*_PLACE, f"{KIND}_min"]).rename_columns([*_PLACE, KIND])
    return changed, bool(pc.any(several).as_py())


def _words(rows: DataFrame) -> pa.Table:
    """Return the bits of changed rows, 64 consecutive rows of a file in each number."""
    word = f.expr(f"shiftright({POSITION}, {_WIDTH.bit_length() - 1}) AS word")
    bit = f"shiftleft(1L, CAST({POSITION} & {_WIDTH - 1} AS INT))"
    found = rows.groupBy(FILE_ID, VERSION, word).agg(
        f.expr("count(*) AS rows"),
        f.expr(f"count_if({KIND} = {UPDATED}) AS updates"),
        f.expr(f"bit_or(IF({KIND} = {UPDATED}, {bit}, 0L)) AS updated"),
        f.expr(f"bit_or(IF({KIND} = {DELETED}, {bit}, 0L)) AS deleted"),
    )
    return to_arrow(found)


def _of_words(words: pa.Table) -> tuple[pa.Table, bool]:
    """Do the work of :func:`_distinct` on bits."""
    updated, deleted = (_bits(words, name) for name in ("updated", "deleted"))
    both = pc.bit_wise_and(words.column("updated"), words.column("deleted"))
    unclear = updated.num_rows < pc.sum(words.column("updates")).as_py() or pc.any(pc.not_equal(both, 0)).as_py()
    return pa.concat_tables([_kind(updated, UPDATED), _kind(deleted, DELETED)]), bool(unclear)


def counted_rows(staged: DataFrame, *, once: bool) -> FoundRows:
    """Count staged changes of any plan, without their positions. ``once`` says that no row can occur twice."""
    rows, times = staged.filter(CHANGED), "1"
    if not once:
        each = rows.groupBy(FILE_ID, VERSION, POSITION)
        rows, times = each.agg(f.expr("count(*) AS n"), f.expr(f"min({KIND}) AS {KIND}")), "n"
    found = rows.groupBy(FILE_ID, VERSION).agg(
        f.expr(f"count_if({KIND} = {UPDATED}) AS updated"),
        f.expr(f"count_if({KIND} = {DELETED}) AS deleted"),
        f.expr(f"count_if({KIND} = {UPDATED} AND {times} > 1) AS unclear"),
    )
    files: dict[int, Counts] = {}
    inlined: dict[int, Counts] = {}
    unclear = False
    for row in found.collect():
        place, key = (inlined, VERSION) if row[FILE_ID] is None else (files, FILE_ID)
        place[row[key]] = Counts(row["updated"], row["deleted"])
        unclear = unclear or row["unclear"] > 0
    gone = _GONE.empty_table()
    if inlined:
        rows = staged.filter(f"{CHANGED} AND {VERSION} IS NOT NULL").select(VERSION, POSITION).distinct()
        gone = rows.toArrow().rename_columns(_GONE.names)
    return FoundRows(files, inlined, unclear, gone)


def _bits(words: pa.Table, name: str) -> pa.Table:
    """Return the positions whose bits are set."""
    bits = words.column(name).combine_chunks().view(pa.uint64())
    words = words.append_column("bits", bits).filter(pc.not_equal(bits, pa.scalar(0, pa.uint64())))
    parts = []
    for bit in range(_WIDTH):
        one = pc.bit_wise_and(words.column("bits"), pa.scalar(1 << bit, pa.uint64()))
        some = words.filter(pc.not_equal(one, pa.scalar(0, pa.uint64())))
        position = pc.add(pc.multiply(some.column("word"), _WIDTH), bit)
        parts.append(some.select([FILE_ID, VERSION]).append_column(POSITION, position))
    return pa.concat_tables(parts).combine_chunks()


def _kind(places: pa.Table, kind: int) -> pa.Table:
    return places.append_column(KIND, pa.repeat(pa.scalar(kind, pa.int32()), places.num_rows))


def _counts(places: pa.Table, key: str) -> dict[int, Counts]:
    updated = pc.cast(pc.equal(places.column(KIND), UPDATED), pa.int64())
    grouped = (
        places.append_column("updated", updated).group_by(key).aggregate([("updated", "sum"), ("updated", "count")])
    )
    rows = zip(*(grouped.column(name).to_pylist() for name in (key, "updated_sum", "updated_count")), strict=True)
    return {id_: Counts(some, every - some) for id_, some, every in rows}
