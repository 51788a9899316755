"""Read rows without the deleted ones.

A condition of the user must not be computed for deleted rows: it may fail for them, as a cast does, and rows are often
deleted for that very reason. Spark moves conditions below joins, but keeps the order of those that it combines with
AND. So the driver builds one array of bits for the deleted rows of a branch, and a row must pass the test of its bit
before any other condition is computed. Conditions that reach the Parquet reader are comparisons, which cannot fail. If
there are too many bits, the rows go through an anti-join on one number, made of the file and the position in it. Above
the join is a condition that Spark takes for volatile, below which it moves nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from quacklake.errors import CorruptFileError
from quacklake.format.objects import NAME_POS, NAME_SNAPSHOT_ID
from quacklake.scan import ScanPlan
from quacklake.spark.read.file_index import FileRows, free_name, read_deletes
from quacklake.spark.runtime.compat import has_scalars
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.types import quote
from quacklake.storage import Store
from quacklake.storage.vectors import deleted_positions

BARRIER = "spark_partition_id() >= 0"
"""A condition that always holds, but that Spark takes for volatile, so it moves no other condition below it."""

_SHIFT = 40
_WORD = 6
"""A word of bits covers ``1 << _WORD`` rows."""
_BROADCAST = 2_000_000
"""The most deleted rows that are broadcast to every executor."""
_MOST_ROWS = 64_000_000
"""The most rows of files with deletes for which the driver builds bits: 8 MB."""
_MOST_FILES = 256
"""The most delete files that the driver reads."""
_READERS = 16


def _key_sql(number: str, position: str) -> str:
    """Return the SQL of the number of a row, from the number of its file in a branch and its position."""
    return f"shiftleft({number}, {_SHIFT}) + {position}"


@dataclass(frozen=True)
class Deletes:
    """The deleted rows of some files of a plan, which form one branch."""

    session: SparkSession
    store: Store
    plan: ScanPlan
    files: pa.Table

    @property
    def numbers(self) -> pa.Array:
        """A fact for each file that tells its rows apart: the first of its words, or its number."""
        return pa.array(self._words[:-1] if self._in_bits else range(self.files.num_rows), pa.int64())

    def without(self, read: FileRows, number: str, position: str) -> DataFrame:
        """Return the rows of the files without the deleted ones. They have the fact ``number`` and a ``position``."""
        rows = self._live(read.rows, number, position) if self._in_bits else self._left(read.rows, number, position)
        # Spark moves conditions below the join with facts too
        return rows if self._in_bits and not read.joined else rows.filter(BARRIER)

    @cached_property
    def _in_bits(self) -> bool:
        rows, files = self.files.column("record_count"), self.files.column("delete_path")
        return (
            has_scalars(self.session)
            and not rows.null_count
            and pc.sum(rows).as_py() <= _MOST_ROWS
            and self._count() <= _BROADCAST
            and len(files) - files.null_count <= _MOST_FILES
        )

    # -- bits ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> list[int]:
        """The first word of each file, then the number of words."""
        found = [0]
        for count in self.files.column("record_count").to_pylist():
            found.append(found[-1] + (count >> _WORD) + 1)
        return found

    def _live(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        bits = self._bits()
        word = f.expr(f"CAST({number} + shiftright({position}, {_WORD}) AS INT)")
        bit = f.expr(f"CAST({position} & {(1 << _WORD) - 1} AS INT)")
        words = to_frame(self.session, pa.table({"words": pa.ListArray.from_arrays([0, len(bits)], bits)})).scalar()
        return rows.filter(f.call_function("bit_get", f.get(words, word), bit) == 0)

    def _bits(self) -> pa.Array:
        """Return the words as integers that Spark can hold."""
        counts = self.files.column("record_count")
        places = [
            pc.add(positions.filter(pc.less(positions, counts[index])), self._words[index] << _WORD)
            for index, positions in self._positions()
        ]
        rows = pc.unique(pa.chunked_array(places, pa.int64()))
        bits = pc.shift_left(pa.scalar(1, pa.uint64()), pc.bit_wise_and(rows, (1 << _WORD) - 1).cast(pa.uint64()))
        # each row has a bit of its own, so their sum has all bits
        some = pa.table({"word": pc.shift_right(rows, _WORD), "bit": bits}).group_by("word").aggregate([("bit", "sum")])
        at = pc.index_in(pa.array(range(self._words[-1]), pa.int64()), value_set=some.column("word").combine_chunks())
        return pc.fill_null(some.column("bit_sum").combine_chunks().take(at), 0).view(pa.int64())

    def _positions(self) -> list[tuple[int, pa.Array]]:
        """Return the deleted positions with the number of their file. A file may occur several times."""
        paths = self.files.column("delete_path").to_pylist()
        indexes = [index for index, path in enumerate(paths) if path is not None]
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(zip(indexes, pool.map(self._of_file, indexes), strict=True))
        listed, rows = self._in_catalog()
        return [*found, *((index, rows.filter(pc.equal(listed, index))) for index in pc.unique(listed).to_pylist())]

    def _of_file(self, index: int) -> pa.Array:
        path, format_, count = (
            self.files.column(name)[index].as_py() for name in ("delete_path", "delete_format", "record_count")
        )
        if format_ == "puffin":
            return deleted_positions(self.store, path, count, self.plan.snapshot_id)
        try:
            rows = pq.read_table(pa.BufferReader(self.store.read(path)))
            if NAME_SNAPSHOT_ID in rows.column_names:
                later = pc.greater(rows.column(NAME_SNAPSHOT_ID), self.plan.snapshot_id)
                rows = rows.filter(pc.invert(pc.fill_null(later, False)))
            return rows.column(NAME_POS).cast(pa.int64()).combine_chunks()
        except (pa.ArrowException, KeyError) as error:
            raise CorruptFileError(f"the delete file {self.store.url(path)} cannot be read: {error}") from error

    def _in_catalog(self) -> tuple[pa.Array, pa.Array]:
        """Return the file numbers and positions of rows that are deleted in the catalog."""
        ids, deletes = self.files.column("data_file_id").combine_chunks(), self.plan.deletes
        index = pc.index_in(deletes.column("file_id"), value_set=ids)
        known = pc.is_valid(index)
        return index.filter(known).combine_chunks(), deletes.column("row_id").filter(known).combine_chunks()

    # -- anti-join -----------------------------------------------------------------------------------------------------

    def _left(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        name = free_name("_ql_key", rows.columns)
        parts = [part for part in (self._stored(), self._listed()) if part is not None]
        keys = reduce(DataFrame.union, parts).toDF(name)
        keys = keys.hint("broadcast" if self._count() <= _BROADCAST else "merge")
        return rows.selectExpr("*", f"{_key_sql(number, position)} AS {name}").join(keys, name, "left_anti").drop(name)

    def _count(self) -> int:
        with_file = self.files.filter(pc.is_valid(self.files.column("delete_path")))
        most = pc.coalesce(with_file.column("delete_count"), with_file.column("record_count"), pa.scalar(1 << 40))
        return int((pc.sum(most).as_py() or 0) + self.plan.deletes.num_rows)

    def _stored(self) -> DataFrame | None:
        """Return the row numbers in Parquet delete files."""
        paths, formats = (self.files.column(name).to_pylist() for name in ("delete_path", "delete_format"))
        indexes = [i for i, path in enumerate(paths) if path is not None and formats[i] != "puffin"]
        if not indexes:
            return None
        urls = self.store.readable_urls([paths[i] for i in indexes])
        schema = f"{quote(NAME_POS)} BIGINT, {quote(NAME_SNAPSHOT_ID)} BIGINT"
        facts = {"_ql_number": pa.array(indexes, pa.int64())}
        found = read_deletes(self.session, self.store, urls, schema, facts)
        date = quote(NAME_SNAPSHOT_ID)
        found = found.filter(f"{date} IS NULL OR {date} <= {self.plan.snapshot_id:d}")
        return found.selectExpr(f"{_key_sql('_ql_number', quote(NAME_POS))} AS key")

    def _listed(self) -> DataFrame | None:
        """Return the row numbers in the catalog and in deletion vectors."""
        paths, formats, counts = (
            self.files.column(name).to_pylist() for name in ("delete_path", "delete_format", "record_count")
        )
        parts = [
            pc.add(deleted_positions(self.store, paths[i], counts[i], self.plan.snapshot_id), pa.scalar(i << _SHIFT))
            for i, format_ in enumerate(formats)
            if format_ == "puffin" and paths[i] is not None
        ]
        index, positions = self._in_catalog()
        if len(index):
            parts.append(pc.add(pc.shift_left(index.cast(pa.int64()), _SHIFT), positions))
        if not parts:
            return None
        return to_frame(self.session, pa.table({"key": pa.chunked_array(parts, pa.int64())}))
