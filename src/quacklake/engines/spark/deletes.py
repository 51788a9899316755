"""Deleted rows as an anti-join on one number: that of the file and the position in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from quacklake.engines.spark.file_index import read_deletes
from quacklake.engines.spark.local import to_frame
from quacklake.format.objects import NAME_POS, NAME_SNAPSHOT_ID
from quacklake.format.spark import quote
from quacklake.scan import ScanPlan
from quacklake.storage import Store
from quacklake.storage.vectors import deleted_positions

__all__ = ["Deletes", "key_sql"]

_SHIFT = 40
_BROADCAST = 2_000_000
"""Up to how many deleted rows every executor gets all of them."""


def key_sql(number: str, position: str) -> str:
    """The number of a row, from the SQL of the number of its file in a branch and of its position."""
    return f"shiftleft({number}, {_SHIFT}) + {position}"


@dataclass(frozen=True, slots=True)
class Deletes:
    """The deleted rows of some files of a plan, which are one branch."""

    session: SparkSession
    store: Store
    plan: ScanPlan
    files: pa.Table

    def frame(self, name: str) -> DataFrame:
        """Their numbers as a column ``name``."""
        parts = [part for part in (self._stored(), self._listed()) if part is not None]
        keys = reduce(DataFrame.union, parts).toDF(name)
        return keys.hint("broadcast" if self._count() <= _BROADCAST else "merge")

    def _count(self) -> int:
        with_file = self.files.filter(pc.is_valid(self.files.column("delete_path")))
        most = pc.coalesce(with_file.column("delete_count"), with_file.column("record_count"), pa.scalar(1 << 40))
        return int((pc.sum(most).as_py() or 0) + self.plan.deletes.num_rows)

    def _stored(self) -> DataFrame | None:
        """The numbers that are in Parquet files."""
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
        return found.selectExpr(f"{key_sql('_ql_number', quote(NAME_POS))} AS key")

    def _listed(self) -> DataFrame | None:
        """The numbers that are in the catalog, or in deletion vectors."""
        paths, formats, counts = (
            self.files.column(name).to_pylist() for name in ("delete_path", "delete_format", "record_count")
        )
        parts = [
            pc.add(deleted_positions(self.store, paths[i], counts[i], self.plan.snapshot_id), pa.scalar(i << _SHIFT))
            for i, format_ in enumerate(formats)
            if format_ == "puffin" and paths[i] is not None
        ]
        index = pc.index_in(
            self.plan.deletes.column("file_id"), value_set=self.files.column("data_file_id").combine_chunks()
        )
        known = pc.is_valid(index)
        if pc.any(known).as_py():
            numbers = pc.shift_left(index.filter(known).cast(pa.int64()), _SHIFT)
            parts.append(pc.add(numbers, self.plan.deletes.column("row_id").filter(known)).combine_chunks())
        if not parts:
            return None
        return to_frame(self.session, pa.table({"key": pa.chunked_array(parts, pa.int64())}))
