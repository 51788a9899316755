"""``format("quacklake")``: tables through Spark's interface for sources and sinks in Python.

Spark asks processes of its own, beside the driver, what a table looks like, what tasks are to read, and to commit what
they wrote. Those pass each question on to the driver's own Python, which alone speaks to the catalog: so no password
leaves it, and the databases that let only one process in can be used too. They find it by a socket in a folder that
only this user may enter. Executors get no option of a read or a write.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from quacklake.errors import QuacklakeError
from quacklake.lake.feed import Bound
from quacklake.lake.spark_desk import Desk
from quacklake.lake.stream_source import StreamSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from quacklake.lake.lake import Lake

__all__ = ["FORMAT", "SparkFormat", "source_class"]

FORMAT = "quacklake"
_LONGEST = 90
"""How long the path of a socket may be, less a few characters."""

_formats: dict[SparkSession, SparkFormat] = {}


class SparkFormat:
    """The format in one session: answers what Spark asks about it, in threads of the driver's Python."""

    def __init__(self, session: SparkSession) -> None:
        self._desk = Desk(session)
        folder = _folder()
        self._listener = Listener(f"{folder}/ask", family="AF_UNIX")
        atexit.register(_close, self._listener, folder)
        session.dataSource.register(source_class(str(self._listener.address)))
        threading.Thread(target=self._accept, name="quacklake-format", daemon=True).start()

    @classmethod
    def of(cls, session: SparkSession) -> SparkFormat:
        """The format of a session, which knows it afterwards."""
        if session not in _formats:
            _formats[session] = cls(session)
        return _formats[session]

    def add(self, lake: Lake, name: str | None = None) -> None:
        """Let a lake be the one that is meant where none is said, and be called ``name``."""
        self._desk.add(lake, name)

    def stream(self, session: SparkSession, source: StreamSource, starting: Bound, schema: str) -> DataFrame:
        """A streaming DataFrame of a source, whose rows are as they travel."""
        id_ = self._desk.serve(source, starting)
        return session.readStream.format(FORMAT).schema(schema).option("stream", id_).load()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            except Exception:  # somebody who knows nothing of it
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with connection:
            failure, answer = None, None
            try:
                ask, question = pickle.loads(connection.recv_bytes())
                answer = self._desk.answer(ask, **question)
            except QuacklakeError as error:
                failure = f"[{error.code}] {error}"
            except Exception as error:
                failure = f"the lake could not be asked: {error!r}"
            connection.send_bytes(pickle.dumps((failure, answer)))


def _folder() -> str:
    """A folder for a socket, which only this user may enter."""
    found = tempfile.mkdtemp(prefix="quacklake-")
    if len(found) > _LONGEST:
        Path(found).rmdir()
        found = tempfile.mkdtemp(prefix="quacklake-", dir="/tmp")
    return found


def _close(listener: Listener, folder: str) -> None:
    listener.close()
    shutil.rmtree(folder, ignore_errors=True)


def source_class(address: str | None) -> type[DataSource]:
    """The class that Spark copies to the processes that ask, by value: so they need not load all of Quacklake.

    Without an ``address`` these open the lake themselves, which is for reading where the session is on another machine.
    """
    batched = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
    called = f'format("{FORMAT}")'

    def ask(what: str, **question: Any) -> Any:
        if address is None:
            from quacklake.lake.spark_desk import Desk

            return Desk().answer(what, **question)
        with Client(address, family="AF_UNIX") as connection:
            connection.send_bytes(pickle.dumps((what, question)))
            failure, answer = pickle.loads(connection.recv_bytes())
        if failure is not None:
            raise RuntimeError(failure)
        return answer

    class Part(InputPartition):
        """What one task reads. It may hold keys, so that it tells nothing."""

        def __repr__(self) -> str:
            return "<a part of a table>"

    def read_part(partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            return iter(())
        from quacklake.lake.spark_slices import read_slice

        return read_slice(pickle.loads(partition.value))

    class TableReader(DataSourceReader):
        """Asks for the parts of a table, and reads them on executors."""

        def __init__(self, options: dict[str, str], pin: int | None, schema: str) -> None:
            self._asked: dict[str, Any] = {"options": options, "pin": pin, "schema": schema}
            self._filters: list[tuple[Any, ...]] = []

        def __getstate__(self) -> dict[str, Any]:
            return {}

        def partitions(self) -> list[InputPartition]:
            return [Part(part) for part in ask("parts", **self._asked, filters=self._filters)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return read_part(partition)

    class FilteredReader(TableReader):
        """The same where Spark pushes filters; it keeps them all, for what the lake makes of them is only less."""

        def pushFilters(self, filters: list[Any]) -> list[Any]:
            plain = [each for each in filters if hasattr(each, "attribute")]
            self._filters = [(type(e).__name__, tuple(e.attribute), getattr(e, "value", None)) for e in plain]
            return filters

    class TableStream(DataSourceStreamReader):
        """Asks how far a stream can go, and reads what came."""

        def __init__(self, options: dict[str, str], pin: int | None, schema: str) -> None:
            self._asked: dict[str, Any] = {"options": options, "pin": pin}
            self._schema = schema
            self._position: dict[str, int] | None = None

        def __getstate__(self) -> dict[str, Any]:
            return {}

        def initialOffset(self) -> dict[str, int]:
            # asked for after the first latestOffset, and must be what that went from
            if self._position is None:
                self._position = ask("start", **self._asked)
            return self._position

        def latestOffset(self) -> dict[str, int]:
            found: dict[str, int] = ask("latest", **self._asked, start=self.initialOffset())
            return found

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            self._position = end
            if start == end:
                return []
            found = ask("between", **self._asked, start=start, end=end, schema=self._schema)
            # a sink must be told of a batch without rows, too, which takes a task
            return [Part(part) for part in found or [None]]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return read_part(partition)

    class Message(WriterCommitMessage):
        """What a task has written, packed, and of a stream which query it was, and which run of it."""

        def __init__(self, rows: bytes, run: tuple[str, str] | None = None) -> None:
            self.rows = rows
            self.run = run

        def __repr__(self) -> str:
            return "<what a task has written>"

    def written(messages: list[Any]) -> list[bytes]:
        return [message.rows for message in messages if message is not None]

    class TableWriter(DataSourceArrowWriter):
        """Lets tasks write files, and asks for the commit. Its options stay where it was asked for."""

        def __init__(self, options: dict[str, str], schema: str, overwrite: bool) -> None:
            self._write, self._task = ask("begin", options=options, schema=schema, overwrite=overwrite)

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return Message(pickle.dumps(pickle.loads(self._task)(iterator)))

        def commit(self, messages: list[Any]) -> None:
            ask("commit", write=self._write, written=written(messages))

        def abort(self, messages: list[Any]) -> None:
            ask("abort", write=self._write, written=written(messages))

    class StreamWriter(batched):  # type: ignore[misc, valid-type]
        """The same for the batches of a stream, each with its number; tasks know which query they are of."""

        def __init__(self, options: dict[str, str], schema: str, overwrite: bool) -> None:
            self._asked: dict[str, Any] = {"options": options, "overwrite": overwrite}
            self._task: bytes = ask("begin_stream", options=options, schema=schema)

        def __getstate__(self) -> dict[str, Any]:
            return {"_task": self._task}

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            run = tuple(str(context.getLocalProperty(name)) for name in ("sql.streaming.queryId", "spark.jobGroup.id"))
            return Message(pickle.dumps(pickle.loads(self._task)(iterator)), run)  # type: ignore[arg-type]

        def commit(self, messages: list[Any], batchId: int) -> None:
            self._end("commit_batch", messages, batchId)

        def abort(self, messages: list[Any], batchId: int) -> None:
            self._end("abort_batch", messages, batchId)

        def _end(self, what: str, messages: list[Any], number: int) -> None:
            run = next((message.run for message in messages if message is not None), None)
            ask(what, **self._asked, written=written(messages), run=run, epoch=number)

    class TableSource(DataSource):
        """A table of a lake. What goes to executors has no option of it."""

        _pin: int | None = None
        _planned = False

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def __getstate__(self) -> dict[str, Any]:
            return {"options": {}} if self._planned else self.__dict__

        def schema(self) -> str:
            found, self._pin = ask("schema", options=dict(self.options))
            return str(found)

        def reader(self, schema: StructType) -> DataSourceReader:
            self._planned = True
            kind = FilteredReader if ask("pushes") else TableReader
            return kind(dict(self.options), self._pin, schema.json())

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            self._planned = True
            return TableStream(dict(self.options), self._pin, schema.json())

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            refuse_elsewhere()
            return TableWriter(dict(self.options), schema.json(), overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            refuse_elsewhere()
            if batched is DataSourceStreamWriter:
                raise RuntimeError(f"[unsupported_feature] {called} takes streams from Spark 4.1 on: use write_stream")
            return StreamWriter(dict(self.options), schema.json(), overwrite)

    def refuse_elsewhere() -> None:
        if address is None:
            raise RuntimeError(
                f"[unsupported_feature] {called} writes only from a session of the driver's own process:"
                " use quacklake.spark(lake).append"
            )

    return TableSource
