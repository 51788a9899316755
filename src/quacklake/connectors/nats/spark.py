"""Read a NATS stream with Spark: the driver plans ranges of sequences, and executors read them.

The offset of a stream is ``{"created", "sequence"}``. A range that is read again gives the same messages, so a query
that starts again behind its checkpoint loses none and repeats none. Spark decodes the messages itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from quacklake.connectors.nats.stream import NatsStream, first_sequence
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConfigError, SnapshotExpiredError, StreamMismatchError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "quacklake_nats"
COLUMNS = "_data BINARY, _subject STRING, _sequence BIGINT, _time TIMESTAMP, _headers BINARY"
_METADATA = [name.split()[0] for name in COLUMNS.split(", ")]
_BAD = "_quacklake_bad"


def read_nats(session: SparkSession, options: Mapping[str, Any]) -> DataFrame:
    """Return a streaming DataFrame of messages as they are: ``_data`` and where each is from."""
    session.dataSource.register(NatsDataSource)
    _NatsOptions(options)  # what is wrong is said here, and not by a worker of Spark
    return session.readStream.format(FORMAT).options(**{key: str(value) for key, value in options.items()}).load()


def read_range(session: SparkSession, options: Mapping[str, Any], first: int, last: int) -> DataFrame:
    """Return the messages of a range of sequences, as :func:`read_nats` does."""
    session.dataSource.register(NatsDataSource)
    given = {**options, "range_first": first, "range_last": last}
    return session.read.format(FORMAT).options(**{key: str(value) for key, value in given.items()}).load()


def decode(frame: DataFrame, form: str, columns: str | StructType) -> DataFrame:
    """Return messages with their row in ``_row``, or with ``_reason`` and their ``_data`` if they are none.

    ``columns`` are Spark's own (``id BIGINT, name STRING``).
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    if form not in ("json", "csv"):
        raise ConfigError(f"nats: Spark does not decode {form!r}", hint="json or csv; _data has every message as it is")
    declared = StructType.fromDDL(columns) if isinstance(columns, str) else columns
    assert isinstance(declared, StructType)
    schema = StructType([*declared.fields]).add(_BAD, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD, "timeZone": "UTC"}
    text = f.col("_data").cast("string")
    read = (
        f.from_json(text, schema, options) if form == "json" else f.from_csv(text, schema.simpleString()[7:-1], options)
    )
    bad = f.col("_row").isNull() | f.col(f"_row.{_BAD}").isNotNull()
    reason = f.when(bad, f.lit(f"not {form} of these columns"))
    parsed = frame.withColumn("_row", read).withColumn("_reason", reason)
    return parsed.withColumn("_data", f.when(f.col("_reason").isNotNull(), f.col("_data")))


def rows_of(decoded: DataFrame) -> DataFrame:
    """Return the rows among messages of :func:`decode`."""
    from pyspark.sql import functions as f

    names = [name for name in decoded.select("_row.*").columns if name != _BAD]
    fields = [f.col(f"_row.`{name}`").alias(name) for name in names]
    return decoded.where(f.col("_reason").isNull()).select(*fields, *_METADATA[1:])


def rejected_of(decoded: DataFrame) -> DataFrame:
    """Return the messages that are not rows among those of :func:`decode`, with the reason."""
    from pyspark.sql import functions as f

    return decoded.where(f.col("_reason").isNotNull()).select(*_METADATA, "_reason")


class _NatsOptions:
    """The options of a stream for Spark."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("nats", options)
        self.stream = NatsStream.of(read)
        self.start = read.text("start", "earliest")
        self.cap = read.number("max_messages", least=1)
        self.parts = read.number("partitions", 2, least=1) or 1
        self.skips = read.choice("on_expired", ("error", "skip"), "error") == "skip"
        self.range = read.number("range_first"), read.number("range_last")
        read.finish()


class NatsDataSource(DataSource):
    """``format("quacklake_nats")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a message."""
        return COLUMNS

    def reader(self, schema: Any) -> NatsRangeReader:
        """Return the reader of a range of sequences."""
        return NatsRangeReader(_NatsOptions(dict(self.options)))

    def streamReader(self, schema: Any) -> NatsStreamReader:
        """Return the reader of a query."""
        return NatsStreamReader(_NatsOptions(dict(self.options)))


class _Range(InputPartition):
    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end


class NatsRangeReader(DataSourceReader):
    """Reads the sequences from ``range_first`` to ``range_last`` on executors."""

    def __init__(self, options: _NatsOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the range."""
        first, last = self._options.range
        return [] if first is None or last is None else _parts(first, last, self._options.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part."""
        return _read(self._options.stream, partition)


def _parts(first: int, last: int, count: int) -> list[InputPartition]:
    if first > last:
        return []
    size = -(-(last - first + 1) // count)
    return [_Range(low, min(low + size, last + 1)) for low in range(first, last + 1, size)]


def _read(stream: NatsStream, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from quacklake.connectors.nats.decoding import raw_batch

    if not isinstance(partition, _Range):  # Spark asks for one partition where there is none
        return
    with stream.connect() as connection:
        for messages in connection.read_range(stream.name, partition.first, partition.end, stream.subjects):
            yield raw_batch(messages)


class NatsStreamReader(DataSourceStreamReader):
    """Plans ranges of sequences in the driver's worker, and reads one on an executor."""

    def __init__(self, options: _NatsOptions) -> None:
        self._options = options
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        options = self._options
        with options.stream.connect() as connection:
            there = options.stream.look(connection)
            first = first_sequence(options.stream, connection, there, options.start)
        self._last = first - 1
        return {"created": there.created, "sequence": first - 1}

    def latestOffset(self) -> dict[str, Any]:
        """Return where the next batch ends: at the newest message, or after ``max_messages`` sequences."""
        if self._last is None:  # a query that starts again has asked for partitions before
            self.initialOffset()
        assert self._last is not None
        with self._options.stream.connect() as connection:
            there = self._options.stream.look(connection)
        end = there.last
        if self._options.cap is not None:
            end = min(end, self._last + self._options.cap)
        return {"created": there.created, "sequence": max(end, self._last)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch. Raise for a stream that was recreated, or messages that were removed."""
        name = self._options.stream.name
        if start["created"] != end["created"]:
            raise StreamMismatchError(f"the NATS stream {name!r} was recreated while it was read")
        first, last = int(start["sequence"]) + 1, int(end["sequence"])
        self._last = last
        if first > last:
            return []
        with self._options.stream.connect() as connection:
            there = self._options.stream.look(connection)
        if there.created != start["created"]:
            raise StreamMismatchError(f"the NATS stream {name!r} is not the one that was read before: it was recreated")
        if there.first > first and not self._options.skips:
            raise SnapshotExpiredError(
                f"messages {first} to {min(there.first - 1, last)} of the NATS stream {name!r} have been removed"
                " before they were read",
                hint="set on_expired='skip' to continue without them",
            )
        return _parts(first, last, self._options.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range."""
        return _read(self._options.stream, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a stream keeps its messages as long as its own limits say."""

    def stop(self) -> None:
        """Do nothing: no connection is kept between calls."""
