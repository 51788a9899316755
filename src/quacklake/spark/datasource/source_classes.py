"""The classes of ``format("quacklake")`` that Spark copies to its planning processes and to the executors.

They are copied by value, so that a process which only asks questions does not load Quacklake: each method imports what
it needs. Executors get no option of a read or a write.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client
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

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "quacklake"
_CALLED = f'format("{FORMAT}")'
_BEGAN, _BEGAN_WITH = "began", "began_with"
_Batched = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class DriverClient:
    """Passes questions to the driver, or opens the lake itself at ``url``: Spark Connect logs options."""

    def __init__(self, address: str | None, url: str | None = None) -> None:
        self.address = address
        self.url = url

    def __call__(self, what: str, **question: Any) -> Any:
        if self.address is None:
            if self.url is not None and "options" in question:
                question["options"] = {"lake": self.url, **question["options"]}
            failure, answer = self._own(what, question)
        else:
            with Client(self.address, family="AF_UNIX") as connection:
                connection.send_bytes(pickle.dumps((what, question)))
                failure, answer = pickle.loads(connection.recv_bytes())
        if failure is not None:
            raise RuntimeError(failure)
        return answer

    @staticmethod
    def _own(what: str, question: dict[str, Any]) -> tuple[str | None, Any]:
        try:
            from quacklake.spark.datasource.driver_service import own_desk
        except ImportError as error:
            return (
                f"[config.missing_extra] the Python of the Spark Connect server needs the package quacklake: {error}",
                None,
            )
        return own_desk().answer(what, question)

    def require_driver(self) -> None:
        """Raise an error for a write when the driver's Python cannot be reached."""
        if self.address is None:
            raise RuntimeError(
                f"[unsupported_feature] {_CALLED} writes only from a session of the driver's own process:"
                " use quacklake.spark(lake).append"
            )


class Part(InputPartition):
    """The part that one task reads. It may hold keys, so its text form shows nothing."""

    def __repr__(self) -> str:
        return "<a part of a table>"


def read_part(partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    if partition is None or partition.value is None:
        return iter(())
    from quacklake.spark.read.scan import read_slice

    return read_slice(pickle.loads(partition.value))


class TableReader(DataSourceReader):
    """Plans the parts of a table, and reads them on executors."""

    def __init__(self, ask: DriverClient, options: dict[str, str], pin: int | None, schema: str) -> None:
        self._ask = ask
        self._asked: dict[str, Any] = {"options": options, "pin": pin, "schema": schema}
        self._filters: list[tuple[Any, ...]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def partitions(self) -> list[InputPartition]:
        return [Part(part) for part in self._ask("parts", **self._asked, filters=self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition)


class FilteredReader(TableReader):
    """A reader that accepts filters. It leaves all of them to Spark too, since the lake may apply fewer."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        plain = [each for each in filters if hasattr(each, "attribute")]
        self._filters = [(type(e).__name__, tuple(e.attribute), getattr(e, "value", None)) for e in plain]
        return filters


class TableStream(DataSourceStreamReader):
    """Plans the batches of a stream, and reads them on executors.

    Spark stores the end of each batch, but not the start of the first one, and asks for that again when it replays the
    batch. So every offset holds the start too: by then "latest" is later, and older snapshots may have expired.
    """

    def __init__(self, ask: DriverClient, options: dict[str, str], pin: int | None, schema: str) -> None:
        self._ask = ask
        self._asked: dict[str, Any] = {"options": options, "pin": pin}
        self._schema = schema
        self._first: dict[str, int] | None = None
        self._position: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def initialOffset(self) -> dict[str, int]:
        # Spark asks for it after the first latestOffset, and it must be the start of that call
        if self._first is None:
            self._first = self._ask("start", **self._asked)
        return self._mark_position(self._first)

    def latestOffset(self) -> dict[str, int]:
        start = self.initialOffset() if self._position is None else self._position
        return self._mark_position(self._ask("latest", **self._asked, start=start))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._position = end
        if self._first is None and _BEGAN in end:
            self._first = {"table": end["table"], "after": end[_BEGAN]}
            if _BEGAN_WITH in end:
                self._first["state"] = end[_BEGAN_WITH]
        if start == end:
            return []
        found = self._ask("between", **self._asked, start=start, end=end, schema=self._schema)
        # a sink must see a batch without rows too, which takes one task
        return [Part(part) for part in found or [None]]

    def _mark_position(self, position: dict[str, int]) -> dict[str, int]:
        """Return a position with the start of the stream, if it is known: offsets of older versions do not hold it."""
        first = self._first
        if first is None:
            return position
        state = {_BEGAN_WITH: first["state"]} if "state" in first else {}
        return {**position, _BEGAN: first["after"], **state}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition)


class Message(WriterCommitMessage):
    """The packed result of a task; for a stream also its query and the run of the query."""

    def __init__(self, rows: bytes, run: tuple[str, str] | None = None) -> None:
        self.rows = rows
        self.run = run

    def __repr__(self) -> str:
        return "<what a task has written>"


def packed_rows(messages: Sequence[Any]) -> list[bytes]:
    return [message.rows for message in messages if message is not None]


class TableWriter(DataSourceArrowWriter):
    """Lets tasks write files, and asks the driver to commit. Its options are not sent to executors."""

    def __init__(self, ask: DriverClient, options: dict[str, str], schema: str, overwrite: bool) -> None:
        self._ask = ask
        self._write, self._task = ask("begin", options=options, schema=schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Message(pickle.dumps(pickle.loads(self._task)(iterator)))

    def commit(self, messages: list[Any]) -> None:
        self._ask("commit", write=self._write, written=packed_rows(messages))

    def abort(self, messages: list[Any]) -> None:
        self._ask("abort", write=self._write, written=packed_rows(messages))


class StreamWriter(_Batched):  # type: ignore[misc, valid-type]
    """A writer for the batches of a stream, each with its number. Tasks know the query that they belong to."""

    def __init__(self, ask: DriverClient, options: dict[str, str], schema: str, overwrite: bool) -> None:
        self._ask = ask
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
        self._ask(what, **self._asked, written=packed_rows(messages), run=run, epoch=number)


class PlannedSource(DataSource):
    """The part of a source that executors get: neither its options nor the driver's address."""

    @classmethod
    def name(cls) -> str:
        return FORMAT


class TableSource(DataSource):
    """A table of a lake. A subclass sets the driver client and the name."""

    ask: DriverClient
    called = FORMAT
    _pin: int | None = None
    _planned = False

    @classmethod
    def name(cls) -> str:
        return cls.called

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (PlannedSource, ({},)) if self._planned else super().__reduce_ex__(protocol)

    def schema(self) -> str:
        found, self._pin = self.ask("schema", options=dict(self.options))
        return str(found)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._planned = True
        kind = FilteredReader if self.ask("pushes") else TableReader
        return kind(self.ask, dict(self.options), self._pin, schema.json())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._planned = True
        return TableStream(self.ask, dict(self.options), self._pin, schema.json())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        self.ask.require_driver()
        return TableWriter(self.ask, dict(self.options), schema.json(), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        self.ask.require_driver()
        if _Batched is DataSourceStreamWriter:
            raise RuntimeError(f"[unsupported_feature] {_CALLED} takes streams from Spark 4.1 on: use write_stream")
        return StreamWriter(self.ask, dict(self.options), schema.json(), overwrite)
