"""Stage rows that are computed once: write them into temporary files, from which every later step reads them.

All steps then see the same rows, whatever their source is and whichever task has to run again. In an encrypted lake the
executors keep the rows instead, because the files would not be encrypted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from quacklake.format.names import uuid7
from quacklake.spark.read.file_index import READ_OPTIONS
from quacklake.spark.runtime.failures import writing
from quacklake.spark.runtime.paths import spark_path, spark_uri
from quacklake.spark.runtime.session import WRITING, settings
from quacklake.storage import Store

_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", "compression": "snappy"}


@dataclass
class Staging:
    """Folders of rows below ``location``, which no snapshot refers to. ``discard`` removes them.

    With ``sealed``, rows are never in a file of the store; if an executor that holds some is lost, the operation fails.
    """

    session: SparkSession
    store: Store
    location: str
    sealed: bool = False
    _folders: list[str] = field(default_factory=list)

    def put(self, frame: DataFrame, select: Sequence[str], schema: StructType | str) -> DataFrame:
        """Stage the values of SQL expressions over a DataFrame, and return them. They are read back with ``schema``."""
        if self.sealed:
            with settings(self.session, WRITING), writing():
                return frame.selectExpr(*select).localCheckpoint()
        folder = f"{self.location}staged-{uuid7()}"
        self._folders.append(folder)
        self.store.make_parent(f"{folder}/rows")
        with settings(self.session, WRITING), writing():
            rows = frame.selectExpr(*select)
            rows.write.mode("append").options(**_OPTIONS).parquet(spark_uri(self.store.url(folder)))
        reader = self.session.read.options(**READ_OPTIONS).schema(schema)
        return reader.parquet(spark_path(self.store.url(folder)))

    def discard(self) -> None:
        """Remove the files. A file that cannot be removed is left to maintenance as an orphan."""
        folders, self._folders = self._folders, []
        for folder in folders:
            self.store.delete([entry.path for entry in self.store.list(folder)])
            self.store.prune(f"{folder}/")
