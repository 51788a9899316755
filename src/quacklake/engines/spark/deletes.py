"""Deleted rows as an anti-join on one number: the file and the position in it.

The file's part of the number is a checksum of its name, which Spark knows for every row; files of one branch have
different ones, so that no two rows of a branch have the same number.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from quacklake.engines.spark.compat import place_of
from quacklake.engines.spark.file_index import read_paths
from quacklake.engines.spark.local import to_frame
from quacklake.engines.spark.paths import PLAIN_NAME, file_name
from quacklake.format.objects import NAME_POS, NAME_SNAPSHOT_ID
from quacklake.format.spark import literal, quote
from quacklake.scan import ScanPlan
from quacklake.storage import Store
from quacklake.storage.vectors import deleted_positions

__all__ = ["Deletes", "key_sql", "separate"]

_SHIFT = 31
_MOST_ROWS = 1 << _SHIFT
_BROADCAST = 2_000_000
"""Up to how many deleted rows every executor gets all of them."""


def separate(urls: Sequence[str], rows: Sequence[int | None], delete_urls: Sequence[str | None]) -> list[int]:
    """The number of a group for each file, so that within a group names of files do not clash."""
    groups: list[tuple[set[int], set[str]]] = []
    found: list[int] = []
    for url, count, delete_url in zip(urls, rows, delete_urls, strict=True):
        key, name = _checksum(url), "" if delete_url is None else file_name(delete_url)
        number = next((i for i, (keys, names) in enumerate(groups) if key not in keys and name not in names), -1)
        if number < 0 or count is None or count >= _MOST_ROWS:
            number = len(groups)
            groups.append((set(), set()))
        keys, names = groups[number]
        keys.add(key)
        names |= {name} - {""}
        if count is None or count >= _MOST_ROWS:
            keys |= {_checksum(other) for other in urls}  # alone: positions are not bounded
        found.append(number)
    return found


def _checksum(url: str) -> int:
    return zlib.crc32(file_name(url).encode())


def key_sql(urls: Sequence[str], name: str, position: str) -> str:
    """The number of a row, from the SQL of its file's name and of its position."""
    if len(urls) == 1:
        return position
    checksum = f"crc32(CAST({name} AS BINARY))"
    number = f"shiftleft({checksum}, {_SHIFT}) + {position}"
    if all(PLAIN_NAME.fullmatch(url.rsplit("/", 1)[-1]) for url in urls):
        return number
    # where names are encoded, deletes must not be lost when Spark does that in another way than we do
    known = ", ".join(f"{_checksum(url)}L" for url in urls)
    return f"CASE WHEN {checksum} IN ({known}) THEN {number} ELSE raise_error('quacklake: an unknown file name') END"


@dataclass(frozen=True, slots=True)
class Deletes:
    """The deleted rows of some files of a plan, which are all in one group."""

    session: SparkSession
    store: Store
    plan: ScanPlan
    files: pa.Table
    urls: Sequence[str]

    def frame(self, name: str) -> DataFrame:
        """Their numbers as a column ``name``."""
        parts = [part for part in (self._stored(), self._listed()) if part is not None]
        keys = reduce(DataFrame.union, parts).toDF(name)
        return keys.hint("broadcast" if self._count() <= _BROADCAST else "merge")

    def _base(self, index: int) -> int:
        return 0 if len(self.urls) == 1 else _checksum(self.urls[index]) << _SHIFT

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
        urls = self.store.urls([paths[i] for i in indexes])
        schema = f"{quote(NAME_POS)} BIGINT, {quote(NAME_SNAPSHOT_ID)} BIGINT"
        found = read_paths(self.session, self.store, urls, schema)
        date = quote(NAME_SNAPSHOT_ID)
        found = found.filter(f"{date} IS NULL OR {date} <= {self.plan.snapshot_id:d}")
        if len(self.urls) == 1:
            return found.select(NAME_POS)
        names = pa.table({"_ql_name": [file_name(url) for url in urls], "_ql_base": [self._base(i) for i in indexes]})
        named = found.select(NAME_POS, place_of(found, "file_name").alias("_ql_name"))
        # a file that is not found here would bring its rows back to life
        joined = named.join(to_frame(self.session, names).hint("broadcast"), "_ql_name", "left")
        missing = literal("quacklake: an unknown delete file")
        return joined.selectExpr(
            f"coalesce(_ql_base, CAST(raise_error({missing}) AS BIGINT)) + {quote(NAME_POS)} AS key"
        )

    def _listed(self) -> DataFrame | None:
        """The numbers that are in the catalog, or in deletion vectors."""
        paths, formats, counts = (
            self.files.column(name).to_pylist() for name in ("delete_path", "delete_format", "record_count")
        )
        parts = [
            pc.add(deleted_positions(self.store, paths[i], counts[i], self.plan.snapshot_id), pa.scalar(self._base(i)))
            for i, format_ in enumerate(formats)
            if format_ == "puffin" and paths[i] is not None
        ]
        index = pc.index_in(
            self.plan.deletes.column("file_id"), value_set=self.files.column("data_file_id").combine_chunks()
        )
        known = pc.is_valid(index)
        if pc.any(known).as_py():
            bases = pa.array([self._base(i) for i in range(len(self.urls))], pa.int64())
            positions = self.plan.deletes.column("row_id").filter(known)
            parts.append(pc.add(bases.take(index.filter(known).combine_chunks()), positions.combine_chunks()))
        if not parts:
            return None
        return to_frame(self.session, pa.table({"key": pa.chunked_array(parts, pa.int64())}))
