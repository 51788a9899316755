"""Tables as streaming DataFrames, through Spark's interface for sources in Python.

Spark asks a process of its own, beside the driver, how far a stream can go and what its tasks are to read. That process
passes each question on to the driver's own Python, which alone speaks to the catalog: so no password leaves it, and
the databases that let only one process in can be used too.
"""

from __future__ import annotations

import json
import pickle
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from quacklake.errors import QuacklakeError
from quacklake.lake.feed import Bound
from quacklake.lake.spark_feed import slices_of
from quacklake.lake.stream_source import Position, StreamSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["PlanServer"]

_STREAM = "stream"
"""The option that tells which of a server's streams is meant."""


@dataclass(frozen=True)
class _Served:
    source: StreamSource
    starting: Bound

    def answer(self, start: Position | None, end: Position | None) -> Any:
        """What a process of Spark wants to know: where it begins, how far it can go, or what to read."""
        if start is None:
            return dict(self.source.start(self.starting))
        if end is None:
            return dict(self.source.latest(start))
        found = self.source.plan(start, end)
        return [pickle.dumps(part) for part in slices_of(self.source, found)]


class PlanServer:
    """Answers what Spark asks about streams out of a lake, in threads of the driver's Python, if it has the key."""

    def __init__(self, session: SparkSession) -> None:
        key = secrets.token_bytes(32)
        self._streams: dict[str, _Served] = {}
        self._listener = Listener(("127.0.0.1", 0), authkey=key)
        self._format = f"quacklake_{secrets.token_hex(4)}"
        session.dataSource.register(_source_class(self._listener.address, key, self._format))
        self._session = session
        threading.Thread(target=self._accept, name="quacklake-streams", daemon=True).start()

    def frame(self, source: StreamSource, starting: Bound, schema: str) -> DataFrame:
        """A streaming DataFrame of a source."""
        id_ = secrets.token_hex(8)
        self._streams[id_] = _Served(source, starting)
        return self._session.readStream.format(self._format).schema(schema).option(_STREAM, id_).load()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            except Exception:  # somebody without the key
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with connection:
            failure, answer = None, None
            try:
                question = json.loads(connection.recv_bytes())
                answer = self._streams[question[_STREAM]].answer(question["start"], question["end"])
            except QuacklakeError as error:
                failure = f"[{error.code}] {error}"
            except Exception as error:
                failure = f"a stream could not be planned: {error!r}"
            connection.send_bytes(pickle.dumps((failure, answer)))


def _source_class(address: Any, key: bytes, label: str) -> type[DataSource]:
    """The class that Spark copies to the processes that ask, by value: so they need not load all of Quacklake."""

    class TableReader(DataSourceStreamReader):
        """Asks the driver's Python, and reads on executors, which get neither its address nor its key."""

        def __init__(self, stream: str) -> None:
            self._asked = (address, key, stream)
            self._position: dict[str, int] | None = None

        def __getstate__(self) -> dict[str, Any]:
            return {}

        def _ask(self, start: dict[str, int] | None = None, end: dict[str, int] | None = None) -> Any:
            where, secret, stream = self._asked
            with Client(where, authkey=secret) as connection:
                connection.send_bytes(json.dumps({_STREAM: stream, "start": start, "end": end}).encode())
                failure, answer = pickle.loads(connection.recv_bytes())
            if failure is not None:
                raise RuntimeError(failure)
            return answer

        def initialOffset(self) -> dict[str, int]:
            # asked for after the first latestOffset, and must be what that went from
            if self._position is None:
                self._position = self._ask()
            return self._position

        def latestOffset(self) -> dict[str, int]:
            found: dict[str, int] = self._ask(self.initialOffset())
            return found

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            self._position = end
            return [] if start == end else [InputPartition(part) for part in self._ask(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            from quacklake.lake.spark_feed import read_slice

            return read_slice(pickle.loads(partition.value))

    class TableSource(DataSource):
        """What Spark knows of the tables of a server."""

        @classmethod
        def name(cls) -> str:
            return label

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return TableReader(self.options[_STREAM])

    return TableSource
