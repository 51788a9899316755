"""Streams of Spark Connect into a table, whose batches arrive at a server that has no access to the catalog.

The server writes each batch into files below the table, and waits. This process, which owns the session, reads those
files through Spark, commits the rows with the number of the batch, and answers in a file beside them; then the server
continues. So neither an address nor a password of the catalog leaves this process. If either side ends in between, the
batch arrives again and is recognised.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from quacklake.errors import StorageError, UnsupportedFeatureError
from quacklake.format.names import uuid7
from quacklake.spark.runtime.paths import spark_path, spark_uri
from quacklake.spark.streams.sink import SparkSink, StreamHandle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("quacklake.stream")
_LOOK = 0.1
"""Seconds between two checks for a new batch."""
_READY = "ready/_SUCCESS"
_DONE = "done"


class ConnectHandle(StreamHandle):
    """A running stream whose batches this process takes from files that the server writes."""

    def __init__(self, sink: SparkSink) -> None:
        super().__init__(sink)
        context, table = sink.engine.context, sink.table
        if context.catalog.encrypted:
            raise UnsupportedFeatureError(
                "a stream of Spark Connect would put rows of an encrypted lake into plain files",
                hint="use a classic session, or a pipeline",
            )
        found = sink.engine.handle.view().find_table(table.schema, table.name)
        self._store = context.store
        self._folder = f"{found.location}staged-{uuid7()}"
        self._thread = threading.Thread(target=self._go_on, name=f"stream {sink.name}", daemon=True)

    def hand_over(self) -> Callable[[DataFrame, int], None]:
        """Return the function that the server calls with each batch."""
        return _handing_over(spark_uri(self._store.url(self._folder)), spark_path(self._store.url(self._folder)))

    def stop(self) -> None:
        """Stop the stream. A batch in progress is either committed as a whole or left out."""
        if self._thread.ident is None:  # the server may be waiting for an answer
            self._thread.start()
        super().stop()
        self._thread.join()

    def awaitTermination(self, timeout: int | None = None) -> bool:
        """Wait until the stream ends. Return True when it has ended. Raises the error that stopped it."""
        ended = super().awaitTermination(timeout)
        if ended:
            self._thread.join()
        return ended

    def _begin(self, query: StreamingQuery, *, restart: bool) -> None:
        super()._begin(query, restart=restart)
        self._thread.start()

    # -- batches -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Commit each batch as it arrives, until the query has ended."""
        last = -1
        while True:
            active = self._is_active()
            try:
                files = self._files()
                epoch = next((epoch for epoch, rest in files.values() if rest == _READY and epoch > last), None)
                if epoch is not None:
                    self._take(epoch)
                    last = epoch
                    self._store.delete([path for path, (before, _) in files.items() if before < epoch])
                elif not active:
                    self._store.delete(files)
                    self._store.prune(f"{self._folder}/")
                    return
            except StorageError:
                _log.warning("stream %s: the files of a batch cannot be reached", self.name, exc_info=True)
            time.sleep(_LOOK)

    def _is_active(self) -> bool:
        try:
            return self.isActive
        except Exception:  # the session is closed
            return False

    def _files(self) -> dict[str, tuple[int, str]]:
        """Return the files of batches by path: the number of the batch, and the kind of the file."""
        paths = [entry.path for entry in self._store.list(self._folder)]
        parts = ((path, path.removeprefix(f"{self._folder}/").partition("/")) for path in paths)
        return {path: (int(number), rest) for path, (number, _, rest) in parts}

    def _take(self, epoch: int) -> None:
        """Commit a batch, and answer the server."""
        place, answer = f"{self._folder}/{epoch}", _DONE
        try:
            frame = self._sink.engine.session.read.parquet(spark_path(self._store.url(f"{place}/rows")))
            self._batch(frame, epoch)
        except Exception as error:
            self._error = self._error or error
            answer = f"{type(error).__name__}: {error}"
        self._store.write(f"{place}/answer", answer.encode())


def _handing_over(folder: str, pattern: str, done: str = _DONE) -> Callable[[DataFrame, int], None]:
    """Return a function that is sent to the server by value. It needs only PySpark there."""

    def hand_over(frame: DataFrame, epoch: int) -> None:
        import time

        from pyspark.errors import AnalysisException

        session = frame.sparkSession
        marked = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
        frame.write.mode("overwrite").parquet(f"{folder}/{epoch}/rows")
        session.range(0).write.mode("overwrite").options(**marked).parquet(f"{folder}/{epoch}/ready")
        while True:
            try:
                answer = session.read.text(f"{pattern}/{epoch}/answer", wholetext=True).first()
            except AnalysisException:  # the answer does not exist yet
                time.sleep(0.1)
                continue
            if answer is None or answer[0] != done:
                raise RuntimeError("the batch was refused" if answer is None else answer[0])
            return

    return hand_over
