"""Apply staged changes of rows from Spark to a transaction: delete old rows, and write new ones.

Executors write the new data files, and the delete files if there are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from quacklake import MergeResult
from quacklake.core.engines.duckdb import FileWriter, Vectors
from quacklake.core.engines.duckdb.finding import matching
from quacklake.core.format.objects import FIELD_ROW_ID
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.statements import DUPLICATES_SHOWN, ambiguous
from quacklake.core.transaction import DeleteTarget, NewDeleteFile, TouchedFile, touched_files
from quacklake.errors import ConstraintError, InputError
from quacklake.extend.plans import ScanPlan
from quacklake.extend.schemas import TableInfo
from quacklake.extend.stores import Store
from quacklake.spark.changes.task_deletes import DeletedRows, DeleteTask, shared_out
from quacklake.spark.engine import SparkEngine
from quacklake.spark.expressions.translator import Filter
from quacklake.spark.read.scan import FILE_ID, POSITION, ROW_ID, VERSION
from quacklake.spark.runtime.failures import each_group, each_own_group, each_part, writing
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.session import has_time, parallelism, to_arrow
from quacklake.spark.runtime.types import as_stored, quote, read_type, shown
from quacklake.spark.write.rows import SparkRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.extend.writes import Transaction


KIND = "_ql_kind"
SEEN, UPDATED, DELETED = 0, 1, 2
CHANGED = f"{KIND} <> {SEEN}"

_MAX_ROWS = 64_000_000
"""The most rows of a plan for which the driver collects bits: 40 MB if one of each 64 rows is changed."""
_MAX_PLACES = 2_000_000  # the most positions of changed rows that the driver collects
_PLACE = (FILE_ID, VERSION, POSITION)
_WIDTH = 64
_POSITIONS = pa.schema([("file_id", pa.int64()), ("row_id", pa.int64())])
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
        if self.positions is None:
            return None
        return self.positions.filter(pc.is_in(self.positions.column("file_id"), value_set=pa.array(ids, pa.int64())))


def found_rows(rows: DataFrame) -> FoundRows:
    """Find the changed rows if :attr:`Changes.at_once` holds, mostly in one job. Raise the errors of a write."""
    with writing():
        each = to_arrow(rows.select(*_PLACE, KIND).limit(_MAX_PLACES + 1))
        words = _words(rows) if each.num_rows > _MAX_PLACES else None
    changed, unclear = _distinct(each) if words is None else _of_words(words)
    in_files = pc.is_valid(changed.column(FILE_ID))
    stored, inlined = changed.filter(in_files), changed.filter(pc.invert(in_files))
    return FoundRows(
        _counts(stored, FILE_ID),
        _counts(inlined, VERSION),
        unclear,
        inlined.select([VERSION, POSITION]).rename_columns(_GONE.names).cast(_GONE),
        stored.select([FILE_ID, POSITION]).rename_columns(_POSITIONS.names).cast(_POSITIONS),
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


_MAX_FILE = 1 << 30  # Spark divides larger files among tasks
_MARKS = (KIND, FILE_ID, VERSION, POSITION, ROW_ID)
_FILES_HERE = 32  # the most delete files that the driver writes itself; for so few, starting a Spark job takes longer


@dataclass(frozen=True, slots=True)
class ChangeMetrics(MergeResult):
    """The counts of a statement on Spark. Copied rows are unchanged rows that were written again in rewritten files."""

    rows_copied: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files_added: int = 0


def staged_schema(table: TableInfo, *, values: bool, time: bool) -> str:
    """Return the schema of staged changes: their marks, then with ``values`` the columns as files have them."""
    fields = [f"{name} {'INT' if name == KIND else 'BIGINT'}" for name in _MARKS]
    if values:
        columns = table.schema.columns
        fields += [f"c{i} {read_type(as_stored(column), time=time)}" for i, column in enumerate(columns)]
    return ", ".join(fields)


@dataclass(frozen=True, slots=True)
class Changes:
    """Adds staged changes of a table to a transaction that has planned it."""

    engine: SparkEngine
    tx: Transaction
    table: TableInfo
    plan: ScanPlan

    @property
    def context(self) -> LakeContext:
        return self.engine.context

    @property
    def at_once(self) -> bool:
        """True when the driver can collect every changed row, so that one pass finds all deletes, without staging."""
        counts, inlined = self.plan.files.column("record_count"), self.plan.inlined
        rows = (pc.sum(counts).as_py() or 0) + (0 if inlined is None else inlined.num_rows)
        return not counts.null_count and rows <= _MAX_ROWS

    def rows(self) -> DataFrame:
        return self.engine.scan.frame(self.plan, rows=True)

    def delete(self, rows: DataFrame) -> ChangeMetrics:
        """Delete some of the rows, in a plan where :attr:`at_once` holds."""
        return self._apply(rows, found_rows(rows))

    @property
    def in_tasks(self) -> bool:
        """True when tasks that read whole files delete rows faster than Spark itself, and nothing prevents it."""
        counts, sizes, pending = (
            *map(self.plan.files.column, ("record_count", "file_size_bytes")),
            self.tx.pending(self.table),
        )
        return bool(
            not pending.touched
            and not pending.files
            and self.context.option("update_mode", self.table) != "copy_on_write"
            and (counts.null_count or (pc.sum(counts).as_py() or 0) > self.context.config.spark_delete_rows)
            and (pc.max(sizes).as_py() or 0) <= _MAX_FILE
        )

    def delete_in_tasks(self, where: Filter) -> ChangeMetrics | None:
        """Delete the rows that match a filter, where :attr:`in_tasks` holds. Return None if executors lack quacklake.

        Raise the errors of a write, and ``InputError`` for a filter that fails.
        """
        plan, touched = self.plan, touched_files(self.plan, set(self.plan.files.column("data_file_id").to_pylist()))
        facts = (where, self._begins(touched), self.tx.base.id, self.context.writes_vectors(self.table))
        limit, secret = self.context.delete_limit(self.table), self.context.catalog.encrypted
        sizes = zip(*(plan.files.column(name).to_pylist() for name in ("data_file_id", "file_size_bytes")), strict=True)
        parts = shared_out(((id_, size or 0) for id_, size in sizes), parallelism(self.engine.session))
        answers = each_part(
            self.engine.session,
            [
                DeleteTask(self.engine.writer.store, self.table, plan.of_files(ids), *facts, limit, secret)
                for ids in parts
            ],
        )
        if answers is None:
            return None
        done = [each for answer in answers if not isinstance(answer, InputError) for each in answer]
        written = [each.file for each in done if each.file is not None]
        for file in written:
            self.tx.wrote(self.table.location + file.path)
        for answer in answers:
            if isinstance(answer, InputError):
                raise answer
        return self._apply(None, self._collect_found(done, where), written)

    def _collect_found(self, done: Sequence[DeletedRows], where: Filter) -> FoundRows:
        """Return the rows that tasks have found, and the inlined ones, which are here."""
        known = [(each.file_id, each.positions) for each in done if each.positions is not None]
        positions = [pa.table([pa.repeat(id_, len(some)), some], schema=_POSITIONS) for id_, some in known]
        gone = _GONE.empty_table()
        if self.plan.inlined is not None and self.plan.inlined.num_rows:
            rest = replace(self.plan.of_files(()), inlined=self.plan.inlined)
            gone = matching(self.context.engine, rest, where).inlined.cast(_GONE)
        versions = pc.value_counts(gone.column("schema_version").combine_chunks()).to_pylist()
        return FoundRows(
            {each.file_id: Counts(0, each.count) for each in done},
            {each["values"]: Counts(0, each["counts"]) for each in versions},
            unclear=False,
            gone=gone,
            positions=pa.concat_tables([_POSITIONS.empty_table(), *positions]),
        )

    def apply(
        self, rows: DataFrame, keys: Sequence[str] = (), *, once: bool = False
    ) -> tuple[ChangeMetrics, FoundRows]:
        """Delete changed rows, write updated ones under their row ids. Raise ``ConstraintError`` if ambiguous."""
        found = found_rows(rows) if self.at_once else counted_rows(rows, once=once)
        if found.unclear:
            raise self._ambiguous(rows, keys)
        return self._apply(rows, found), found

    def _apply(self, rows: DataFrame | None, found: FoundRows, written: Sequence[NewDeleteFile] = ()) -> ChangeMetrics:
        """Add changed rows to the transaction; the delete files of some data files are ``written`` already."""
        pending = self.tx.pending(self.table)
        touched = touched_files(self.plan, set(found.files))
        dead = {id_ for id_, count in found.files.items() if touched[id_].live == count.all}
        partly = {id_: count for id_, count in found.files.items() if id_ not in dead}
        rewritten = self._rewritten(partly, touched)
        left = set(partly) - rewritten - {file.data_file_id for file in written}
        inlined = sum(partly[id_].all for id_ in left) <= self.context.delete_limit(self.table)
        delete_files = 0 if inlined else len(left)
        if delete_files > _FILES_HERE or (delete_files and found.positions is None):
            pending.delete_by_files(self.plan, self._write_deletes(self._places(rows, found), left, touched))
            left = set()
        pending.delete_by_files(self.plan, written)
        pending.delete(self.plan, DeleteTarget(self._positions(rows, found, left), found.gone))
        pending.end_files(self.plan, dead | rewritten)
        before = len(pending.files)
        kept = self._write_kept(rows, found, rewritten)
        return ChangeMetrics(
            updated=found.updated,
            deleted=found.deleted,
            rows_copied=kept - found.updated,
            files_added=len(pending.files) - before,
            files_removed=len(dead | rewritten),
            delete_files_added=delete_files + len(written),
        )

    def _ambiguous(self, staged: DataFrame, keys: Sequence[str]) -> ConstraintError:
        """Return an error that shows a few of the rows that several rows of the source would change."""
        several = staged.filter(CHANGED).groupBy(ROW_ID).agg(f.expr("count(*) AS n"), f.expr(f"min({KIND}) AS kind"))
        wrong = several.filter(f"n > 1 AND kind = {UPDATED}").orderBy(ROW_ID).limit(DUPLICATES_SHOWN + 1)
        names = list(keys) or [ROW_ID]
        found = self.rows().join(wrong.hint("broadcast"), ROW_ID)
        texts = [f"CAST({quote(name)} AS STRING)" for name in names]
        rows = found.orderBy(ROW_ID).limit(DUPLICATES_SHOWN + 1).selectExpr(f"array({', '.join(texts)}) AS k").collect()
        return ambiguous(self.table.qualified_name, list(keys) or ["row id"], [row["k"] for row in rows])

    def _rewritten(self, partly: Mapping[int, Counts], touched: Mapping[int, TouchedFile]) -> set[int]:
        """Return the files to rewrite without the changed rows, by the option ``update_mode``."""
        mode = self.context.option("update_mode", self.table)
        if mode == "copy_on_write":
            return set(partly)
        if mode == "merge_on_read" or sum(each.all for each in partly.values()) <= self.context.delete_limit(
            self.table
        ):
            return set()
        # most of the file is rewritten in any case
        return {id_ for id_, count in partly.items() if count.updated * 2 > (touched[id_].live or 1 << 62)}

    def _places(self, rows: DataFrame | None, found: FoundRows) -> DataFrame:
        if found.positions is None:
            assert rows is not None
            return rows.filter(f"{CHANGED} AND {FILE_ID} IS NOT NULL").select(FILE_ID, POSITION)
        return to_frame(self.engine.writer.session, found.positions).toDF(FILE_ID, POSITION)

    def _positions(self, rows: DataFrame | None, found: FoundRows, ids: set[int]) -> pa.Table:
        """Return the changed rows of some files, which are always few."""
        known = found.within(ids)
        if known is not None or not ids:
            return _POSITIONS.empty_table() if known is None else known
        chosen = self._places(rows, found).filter(f.col(FILE_ID).isin(*ids)).distinct()
        return to_arrow(chosen).rename_columns(_POSITIONS.names).cast(_POSITIONS)

    def _write_deletes(
        self, places: DataFrame, ids: set[int], touched: Mapping[int, TouchedFile]
    ) -> list[NewDeleteFile]:
        """Let the executors write the delete files of some data files."""
        chosen = {id_: touched[id_] for id_ in ids}
        begins = self._begins(chosen)
        vectors = self.context.writes_vectors(self.table)
        secret = self.context.catalog.encrypted
        task = _DeleteTask(self.engine.writer.store, self.table, chosen, begins, self.tx.base.id, vectors, secret)
        places = places.filter(f.col(FILE_ID).isin(*ids))
        if secret:
            files = each_own_group(places, FILE_ID, {id_: task.only(id_) for id_ in ids})
        else:
            files = each_group(places, FILE_ID, task)
        for file in files:
            self.tx.wrote(self.table.location + file.path)
        return files

    def _begins(self, touched: Mapping[int, TouchedFile]) -> dict[int, int | None]:
        """Return the snapshots at which the delete files of some data files began."""
        before = {id_: file.delete_file_id for id_, file in touched.items() if file.delete_file_id is not None}
        if not before:
            return {}
        with self.context.catalog.read() as reader:
            dated = reader.inlined.dated_deletes(self.tx.base, self.table.id, before)
        return {id_: found.file_begin for id_, found in dated.items()}

    def _write_kept(self, rows: DataFrame | None, found: FoundRows, rewritten: set[int]) -> int:
        """Write updated rows and the remaining rows of rewritten files under their row ids. Return their number."""
        frames = [self._update_rows(rows)] if found.updated and rows is not None else []
        if rewritten:
            frames.append(self._copy_rows(self._places(rows, found), rewritten))
        if not frames:
            return 0
        frame = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
        kept = {FIELD_ROW_ID: ROW_ID}
        written = SparkRows(self.context, self.engine.writer, frame, kept=kept, count=found.updated)
        return add_rows(self.tx, self.table, written)

    def _update_rows(self, staged: DataFrame) -> DataFrame:
        time = has_time(self.engine.writer.session)
        select = [
            f"{shown(f'c{i}', as_stored(column), column, time=time)} AS {quote(column.name)}"
            for i, column in enumerate(self.table.schema.columns)
        ]
        return staged.filter(f"{KIND} = {UPDATED}").selectExpr(*select, ROW_ID)

    def _copy_rows(self, gone: DataFrame, ids: set[int]) -> DataFrame:
        kept = self.engine.scan.frame(self.plan.of_files(ids), rows=True)
        rows = kept.join(gone, [FILE_ID, POSITION], "left_anti")
        return rows.select(*(f.expr(quote(name)) for name in self.table.schema.names), ROW_ID)


def add_rows(tx: Transaction, table: TableInfo, rows: SparkRows) -> int:
    """Add rows to a transaction, which removes their files if it fails. Return their number."""
    pending = tx.pending(table)
    files = len(pending.files)
    count = counted(tx, table, rows)
    for file in pending.files[files:]:
        tx.wrote(table.location + file.path)
    return count


def counted(tx: Transaction, table: TableInfo, rows: SparkRows) -> int:
    """Add rows to a transaction, and return their number. The caller removes their files if the transaction fails."""
    pending = tx.pending(table)
    files, inserts = len(pending.files), len(pending.inserts)
    rows.add_to(tx, table)
    inlined = sum(len(insert.row_ids) for insert in pending.inserts[inserts:])
    return inlined + sum(file.record_count for file in pending.files[files:])


@dataclass(frozen=True, slots=True)
class _DeleteTask:
    store: Store
    table: TableInfo
    touched: Mapping[int, TouchedFile]
    begins: Mapping[int, int | None]
    snapshot: int
    vectors: Vectors
    encrypted: bool = False

    def only(self, id_: int) -> _DeleteTask:
        """Return the task for one file, with the key of its delete file and of no other."""
        return replace(self, touched={id_: self.touched[id_]})

    def __call__(self, rows: pa.Table) -> NewDeleteFile:
        id_ = rows.column(FILE_ID)[0].as_py()
        positions = pc.unique(rows.column(POSITION)).sort()
        return FileWriter(self.store, encrypted=self.encrypted).write_deletes(
            self.table,
            id_,
            self.touched[id_],
            positions,
            lambda _: None,
            self.snapshot,
            self.begins.get(id_),
            vectors=self.vectors,
        )
