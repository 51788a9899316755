"""Modes, positions and polling, which the sources of all table formats share.

A table is read in units: the files of a state, then commit by commit the files that each added. A position is the last
version that was read whole, the units of the next one that were, and how many rows of the unit in progress. So a source
that begins behind a position gives every row that was not returned, and none that was.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import ReadMode, SourceCheckpoint
from quacklake.errors import ConfigError, ConnectorError, StreamMismatchError

NOTHING = -1
"""The version before every other."""


class Unit(NamedTuple):
    """Rows that are read together, such as those of a file. They come in the same order each time."""

    name: str
    read: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class ReadOptions:
    """The options that sources of all table formats have."""

    mode: ReadMode
    feed: bool
    changelog: str
    on_change: str
    batch_rows: int

    @classmethod
    def of(cls, read: ConnectorOptions) -> ReadOptions:
        """Take the options. Raise ``ConfigError``."""
        stamp = read.optional("timestamp")
        try:
            moment = None if stamp is None else datetime.fromisoformat(stamp)
        except ValueError:
            raise ConfigError(
                f"{read.kind}: timestamp={stamp!r} is not a time", hint="2024-01-01T12:00:00+00:00"
            ) from None
        mode = ReadMode.parse(
            read.choice("mode", ReadMode.KINDS, "batch"),
            version=read.number("version"),
            timestamp=moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC),
            poll_interval=read.duration("poll_interval", timedelta(seconds=1)),
        )
        feed = read.boolean("change_data_feed", False)
        if feed and mode.kind in ("batch", "snapshot"):
            hint = "mode='continuous'"
            raise ConfigError(f"{read.kind}: the mode {mode.kind} does not read a change data feed", hint=hint)
        return cls(
            mode,
            feed,
            read.choice("changelog", ("rows", "op"), "rows"),
            read.choice("on_change", ("error", "skip", "rows"), "error"),
            read.number("batch_rows", 100_000, least=1) or 1,
        )


_Step: TypeAlias = tuple[pa.RecordBatch | None, SourceCheckpoint]


class TableSource(ABC):
    """A source over a table with versions."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._identity = ""
        self._position = self._reached = SourceCheckpoint(NOTHING)
        self._steps: Iterator[_Step] = iter(())
        self._looked = 0.0
        self._started = False

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns of every batch."""

    def schema_at(self, version: int) -> pa.Schema:
        """Return the columns of the rows that ``state`` gives of a version."""
        return self.schema()

    @abstractmethod
    def identity(self) -> str:
        """Return what tells this table from another one in its place."""

    @abstractmethod
    def newest(self) -> int:
        """Return the newest version, :data:`NOTHING` for a table that has none."""

    @abstractmethod
    def version_at(self, moment: datetime) -> int:
        """Return the version that was the newest at a time."""

    @abstractmethod
    def state(self, version: int) -> Sequence[Unit]:
        """Return all rows of a version."""

    @abstractmethod
    def commits(self, after: int, until: int) -> Iterator[tuple[int, Sequence[Unit]]]:
        """Yield the commits behind a version in order, each with the rows that it added or changed."""

    def start(self, checkpoint: SourceCheckpoint | None = None) -> None:
        """Begin behind a checkpoint; without one at the beginning, which the mode decides."""
        self._identity = self.identity()
        known = self._identity if checkpoint is None else checkpoint.offsets.get("table", self._identity)
        if known != self._identity:
            raise StreamMismatchError(
                "the table is not the one that was read before", hint="begin without a checkpoint"
            )
        if checkpoint is None:
            self._reach(self._at(NOTHING))
        else:
            self._position = checkpoint
        self._steps = self._read()
        self._started = True

    def poll_next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end, or when the table has nothing new (after the poll interval)."""
        if not self._started:
            raise ConnectorError("the source is not started", hint="call start(checkpoint) first")
        while True:
            for batch, position in self._steps:
                self._reach(position)
                if batch is not None:
                    return batch
            if self.options.mode.bounded:
                return None
            wait = self._looked + self.options.mode.poll_interval.total_seconds() - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            self._looked = time.monotonic()
            newest = self.newest()
            if newest == self._position.table_version:
                return None
            self._steps = self._commits(newest)

    @property
    def mode(self) -> ReadMode:
        """The rows that it reads."""
        return self.options.mode

    @property
    def caught_up(self) -> bool:
        """False: only the next poll looks whether the table has something new."""
        return False

    def behind(self, position: int) -> int:
        """Return how many versions the table has after one."""
        return max(0, self.newest() - position)

    def current_checkpoint(self) -> SourceCheckpoint:
        """Return how far the batches have come that were returned."""
        return self._position

    def commit(self, checkpoint: SourceCheckpoint) -> None:
        """Do nothing: a table forgets by itself, not because it was read."""
        return

    def close(self) -> None:
        """Forget what has not been read."""
        self._steps, self._started = iter(()), False

    def _reach(self, position: SourceCheckpoint) -> None:
        """Move to a position, and note the time; nothing changes at the position that was reached last."""
        if position is not self._reached:
            self._reached = position
            self._position = replace(position, timestamp=datetime.now(UTC))

    def _at(self, version: int, units: tuple[str, ...] = (), **offsets: Any) -> SourceCheckpoint:
        return SourceCheckpoint(version, units, None, {"table": self._identity, **offsets})

    def _read(self) -> Iterator[_Step]:
        """Yield what can be read now, each batch with the position after it."""
        mode, feed = self.options.mode, self.options.feed
        if mode.kind == "incremental" and self._position.table_version == NOTHING:
            self._reach(self._at(NOTHING if mode.version is None else mode.version))
        newest = self.newest()
        whole = mode.kind in ("batch", "snapshot") or (mode.kind == "continuous" and not feed)
        begun = self._position.offsets.get("state")
        if whole and (begun is not None or self._position.table_version == NOTHING):
            version = newest if begun is None else begun
            if begun is None and mode.kind == "snapshot":
                version = (
                    mode.version if mode.version is not None else self.version_at(mode.timestamp or datetime.now(UTC))
                )
            if version != NOTHING:
                yield from self._units(self.state(version), self._at(version), state=version)
        elif mode.kind in ("incremental", "continuous") and newest != self._position.table_version:
            yield from self._commits(newest)

    def _commits(self, until: int) -> Iterator[_Step]:
        for version, units in self.commits(self._position.table_version, until):
            yield from self._units(units, self._at(version))

    def _units(self, units: Sequence[Unit], final: SourceCheckpoint, **offsets: int) -> Iterator[_Step]:
        """Yield the rows of units, without those that the position is behind; ``final`` is the position after all."""
        base, done = self._position.table_version, list(self._position.files_processed)
        skipped = int(self._position.offsets.get("rows", 0))
        for place, unit in enumerate(units):
            if unit.name in done:
                continue
            returned, last = 0, None
            for batch in unit.read():
                rest = batch.slice(max(0, skipped - returned))
                returned += batch.num_rows
                if rest.num_rows:
                    if last is not None:
                        yield last
                    last = rest, self._at(base, tuple(done), rows=returned, **offsets)
            skipped = 0
            done.append(unit.name)
            behind = final if place == len(units) - 1 else self._at(base, tuple(done), **offsets)
            yield None if last is None else last[0], behind
        yield None, final
