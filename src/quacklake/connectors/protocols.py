"""The protocols of sources and sinks, and the frozen data that checkpoints keep of them.

The life of a batch: a source gives it, each sink takes it (``write_batch``), each sink makes its files durable without
showing them (``prepare_commit``), the checkpoint records the positions of the sources beside the prepared commits, and
only then each sink shows its files (``finalize_commit``). After a crash a new process finalizes what a confirmed
checkpoint holds and aborts the rest; both may be done again without effect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from quacklake.errors import ConfigError, InputError

if TYPE_CHECKING:
    import pyarrow as pa


NO_CHECKPOINT = -1
"""The last checkpoint of a target that has none of a writer."""


class _Stored:
    """Data that a checkpoint keeps as JSON, with a version so that a later release can read it."""

    FORMAT: ClassVar[int] = 1

    def to_json(self) -> str:
        """Return the data as JSON."""
        return json.dumps({"format": self.FORMAT, **asdict(self)}, default=datetime.isoformat)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the data that :meth:`to_json` wrote. Raise ``InputError`` for anything else."""
        try:
            values = json.loads(text)
            if values.pop("format") != cls.FORMAT:
                raise InputError(f"a {cls.__name__} of a later version cannot be read", hint="upgrade quacklake")
            return cls._of(values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not a {cls.__name__}: {text[:80]!r}") from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        return cls(**values)


@dataclass(frozen=True)
class SourceCheckpoint(_Stored):
    """The position of a source. ``timestamp`` is when a source of a table reached it.

    ``table_version`` is the last version that was read whole; ``files_processed`` are those of the next one.
    ``offsets`` is what a source without versions needs, such as the sequence of a NATS stream.
    """

    table_version: int = 0
    files_processed: tuple[str, ...] = ()
    timestamp: datetime | None = None
    offsets: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        time = values.get("timestamp")
        values["files_processed"] = tuple(values["files_processed"])
        return cls(**values | {"timestamp": None if time is None else datetime.fromisoformat(time)})


@dataclass(frozen=True)
class WrittenFile:
    """A file that a sink has written: its path below the table, its size and the values of its partition."""

    path: str
    bytes: int
    records: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    statistics: str | None = None


@dataclass(frozen=True)
class PreparedCommit(_Stored):
    """The files that a sink has made durable for a checkpoint and not shown yet. ``state`` is the sink's own."""

    checkpoint_id: int
    data_files: tuple[WrittenFile, ...] = ()
    bytes_written: int = 0
    records_written: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        return cls(**values | {"data_files": tuple(WrittenFile(**each) for each in values["data_files"])})


@dataclass(frozen=True)
class CommitInfo(_Stored):
    """A commit that a sink has shown: the version of the table that has the rows, and its time."""

    checkpoint_id: int
    version: int
    commit_timestamp: datetime

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        return cls(**values | {"commit_timestamp": datetime.fromisoformat(values["commit_timestamp"])})


@dataclass(frozen=True)
class ReadMode:
    """The rows that a source reads: all once, one version, those since a version, or all and whatever comes.

    >>> ReadMode.snapshot(version=3).bounded
    True
    >>> ReadMode.parse("continuous", poll_interval=timedelta(seconds=10)).bounded
    False
    """

    kind: str
    version: int | None = None
    timestamp: datetime | None = None
    poll_interval: timedelta = timedelta(seconds=1)

    KINDS: ClassVar[tuple[str, ...]] = ("batch", "snapshot", "incremental", "continuous")

    @classmethod
    def batch(cls) -> ReadMode:
        """Read the newest version once."""
        return cls("batch")

    @classmethod
    def snapshot(cls, version: int | None = None, timestamp: datetime | None = None) -> ReadMode:
        """Read one version, by number or by time."""
        if (version is None) == (timestamp is None):
            raise ConfigError('the mode "snapshot" needs a version or a timestamp, and not both')
        return cls("snapshot", version, timestamp)

    @classmethod
    def incremental(cls, since_version: int) -> ReadMode:
        """Read what was added after a version, once."""
        return cls("incremental", since_version)

    @classmethod
    def continuous(cls, poll_interval: timedelta = timedelta(seconds=1)) -> ReadMode:
        """Read everything, then look for more at intervals."""
        if poll_interval <= timedelta(0):
            raise ConfigError("poll_interval must be longer than nothing", hint="poll_interval='10 seconds'")
        return cls("continuous", poll_interval=poll_interval)

    @classmethod
    def parse(
        cls,
        kind: str,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
        poll_interval: timedelta = timedelta(seconds=1),
    ) -> ReadMode:
        """Return the mode that options name. Raise ``ConfigError`` for one that they do not make whole."""
        match kind.lower():
            case "batch":
                return cls.batch()
            case "snapshot":
                return cls.snapshot(version, timestamp)
            case "incremental":
                if version is None:
                    raise ConfigError('the mode "incremental" needs the version to begin after')
                return cls.incremental(version)
            case "continuous":
                return cls.continuous(poll_interval)
        raise ConfigError(f"there is no mode {kind!r}", hint=f"one of: {', '.join(cls.KINDS)}")

    @property
    def bounded(self) -> bool:
        """True when the source comes to an end."""
        return self.kind != "continuous"


@runtime_checkable
class Source(Protocol):
    """Something that gives batches of rows, and can begin again where it was.

    It may have more to offer: see ``MessageSource``, ``CountingSource`` and ``DatedSource``.
    """

    @property
    def mode(self) -> ReadMode:
        """The rows that it reads."""

    @property
    def caught_up(self) -> bool:
        """True when nothing more is here now; False where only ``poll_next`` can tell."""

    def schema(self) -> pa.Schema:
        """Return the columns of every batch."""

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint, without one at the very beginning."""

    def poll_next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end of a bounded source, or when nothing is new."""

    def current_checkpoint(self) -> SourceCheckpoint:
        """Return how far the batches have come that were returned."""

    def commit(self, checkpoint: SourceCheckpoint) -> None:
        """Hear that everything before a checkpoint is safe: it may be forgotten."""

    def close(self) -> None:
        """Let go of everything. Harmless when done twice."""


@runtime_checkable
class MessageSource(Protocol):
    """A source of messages, some of which may be no rows."""

    def take_rejected(self) -> pa.Table:
        """Return the messages since the last call that are not rows, with ``_data`` and ``_reason``."""


@runtime_checkable
class CountingSource(Protocol):
    """A source that knows how much comes after a position: a sequence, or a version."""

    def behind(self, position: int) -> int:
        """Return how many messages or versions come after a position. Works on a source that is not started."""


@runtime_checkable
class DatedSource(CountingSource, Protocol):
    """A source that knows since when something comes after a position."""

    def waiting_since(self, position: int) -> datetime | None:
        """Return when the first message or version after a position was made; None without one."""


@runtime_checkable
class Sink(Protocol):
    """Something that takes batches of rows and shows them in two phases."""

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table, or open it and check that the rows fit."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Take rows; write a file when there are enough for one."""

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Make all rows since the last call durable, and show none of them."""

    def finalize_commit(self, prepared: PreparedCommit) -> CommitInfo:
        """Show the rows. Done again, also by another process, it shows nothing twice and returns the same version."""

    def abort(self, prepared: PreparedCommit | None = None) -> None:
        """Remove what was prepared and not shown, or everything that was only taken. Works on a new sink, too."""

    def close(self) -> None:
        """Let go of everything. Harmless when done twice."""


@runtime_checkable
class CountingSink(Protocol):
    """A sink whose target says which checkpoint of the writer it has."""

    def last_checkpoint(self) -> int | None:
        """Return the last checkpoint that the target shows, or ``NO_CHECKPOINT``; None where that cannot be known.

        Raise ``NotFoundError`` without a table that ``initialize`` would have made.
        """
