"""Streams: batches that are in a lake once, the checkpoints that say how far they have come, and their definitions.

A run claims a stream first; from then on no other run can confirm or finish a checkpoint of it. A checkpoint is
confirmed in one commit, together with the rows of its batch. What its manifest says is done after that, outside of the
lake, and the checkpoint is finished. Whoever claims the stream next finds the one that is not.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

from quacklake.core.catalog import own_tables
from quacklake.core.format.names import uuid7
from quacklake.core.format.objects import (
    NOTHING_YET,
    Checkpoint,
    Definition,
    StreamMark,
    check_stream,
    letters_stream,
)
from quacklake.core.maintenance.holders import has_ended
from quacklake.core.maintenance.scheduler import hold
from quacklake.errors import AlreadyExistsError, LeaseHeldError, StreamFencedError, StreamMismatchError
from quacklake.extend.writes import Change
from quacklake.lake.lake import Lake

__all__ = ["Checkpoint", "Checkpoints", "Claim", "Definition", "DefinitionStore", "check_stream"]

_QUERY = "pipeline"
_LOOK = 0.1
"""Seconds between two tries to take a lease that another holds."""


@dataclass(frozen=True)
class Claim:
    """A stream in the hands of one run. ``incarnation`` changes only when the stream starts over.

    ``checkpoints`` are those that the lake keeps, oldest first. ``accepted`` says that the stream goes on whatever has
    changed.

    >>> Claim("orders", "a run", "an incarnation", last=-1, position=None).confirmed
    ()
    """

    name: str
    run: str
    incarnation: str
    last: int
    position: str | None
    checkpoints: tuple[Checkpoint, ...] = ()
    accepted: bool = False

    @property
    def confirmed(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that are confirmed and not finished."""
        return tuple(each for each in self.checkpoints if each.state == Checkpoint.CONFIRMED)

    @property
    def newest(self) -> Checkpoint | None:
        """The last checkpoint; None before the first."""
        return next((each for each in self.checkpoints if each.checkpoint_id == self.last), None)


@dataclass(frozen=True)
class StreamLease:
    """The lease of a stream, as the catalog counts leases: by a number."""

    stream: str

    @property
    def name(self) -> str:
        """The work that the lease is for."""
        return f'pipeline "{self.stream}"'

    def __int__(self) -> int:
        return (1 << 62) | int.from_bytes(hashlib.sha256(self.stream.encode()).digest()[:7])


class Checkpoints:
    """The checkpoints of one stream, such as a pipeline. ``keep`` finished ones stay in the catalog.

    >>> from quacklake.extend.example import example_lake
    >>> from quacklake.extend.writes import run
    >>> with example_lake() as lake:
    ...     checkpoints = Checkpoints(lake, "orders")
    ...     claim = checkpoints.claim("a hash of what decides the rows")
    ...
    ...     def pass_on(change):
    ...         change.transaction.table("events").append({"id": [12], "name": ["streamed"]})
    ...         checkpoints.confirm(change, claim, 0, position="12", manifest="{}", finished=True)
    ...
    ...     run(lake, pass_on).snapshot
    ...     [(each.checkpoint_id, each.state) for each in checkpoints.list()]
    5
    [(0, 'finished')]
    """

    def __init__(self, lake: Lake, name: str, keep: int = 3) -> None:
        self._catalog = lake.handle.context.catalog
        self._lease = StreamLease(name)
        self.name = name
        self.keep = keep

    @classmethod
    def of_letters(cls, lake: Lake, pipeline: str) -> Checkpoints:
        """Return the checkpoints of the dead letters of a pipeline that are published again."""
        return cls(lake, letters_stream(pipeline), keep=1)

    # -- one run at a time ---------------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, length: timedelta, stopped: Event) -> Iterator[Event]:
        """Hold the lease of the stream for a block, and yield an event that is set when it is lost.

        Wait for the lease of a process that died, no longer than that lasts, and not when ``stopped`` is set. Raise
        ``LeaseHeldError`` when another process goes on. Correctness depends on claims, and not on leases.
        """
        until = time.monotonic() + length.total_seconds() * 1.1
        with ExitStack() as held:
            while True:
                try:
                    lost = held.enter_context(hold(self._catalog, self._lease, length))
                    break
                except LeaseHeldError as error:
                    if time.monotonic() >= until or stopped.wait(_LOOK):
                        message = f"another process runs the {self._lease.name}"
                        raise LeaseHeldError(message, hint=error.hint) from None
            yield lost

    def find_lease(self) -> tuple[timedelta, bool] | None:
        """Return the time until the lease ends, and whether its holder is known to have died; None if nobody has it."""
        with self._catalog.read() as reader:
            lease = own_tables.held_lease(reader, int(self._lease))
        return None if lease is None else (timedelta(milliseconds=lease.left), has_ended(lease.holder))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def claim(self, hash_: str, *, restart: bool = False, accept: bool = False) -> Claim:
        """Make the stream this run's own; every other run of it can no longer commit.

        ``hash_`` stands for what decides the rows. Raise ``StreamMismatchError`` when it is another than that of the
        last checkpoint: ``restart`` begins anew then, ``accept`` goes on from the position.
        """
        run = str(uuid7())
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            known = own_tables.find_stream(writer, self.name)
            begun = known is not None and known.epoch != NOTHING_YET
            old_hash, incarnation = _parts(known)
            if known is None or restart or not begun or not incarnation:
                if known is not None and begun and not incarnation and not restart:
                    raise StreamMismatchError(
                        f'"{self.name}" is the name of a stream that is not a pipeline', hint="choose another name"
                    )
                incarnation = str(uuid7())
                own_tables.remove_checkpoints(writer, self.name)
                mark = StreamMark(self.name, f"{_QUERY}:{hash_}:{incarnation}", run)
            else:
                if old_hash != hash_ and not accept:
                    raise StreamMismatchError(
                        f'the pipeline "{self.name}" has changed since its checkpoint {known.epoch}: rows could be'
                        " missing, or be written twice",
                        hint="use restart to start over, or accept to continue with the new one from the position",
                    )
                query = f"{_QUERY}:{hash_}:{incarnation}"
                mark = StreamMark(self.name, query, run, known.epoch, known.position, known.snapshot_id)
            own_tables.put_stream(writer, mark, new=known is None)
            kept = own_tables.checkpoints(writer, self.name)
        return Claim(self.name, run, incarnation, mark.epoch, mark.position, tuple(kept), accept)

    def confirm(
        self, change: Change, claim: Claim, checkpoint_id: int, *, position: str, manifest: str, finished: bool
    ) -> None:
        """Let a change confirm a checkpoint. Its commit raises ``StreamFencedError`` in a run that was replaced.

        ``finished`` says that nothing is left to do after the commit.
        """
        change.mark(
            self.name,
            checkpoint_id,
            claim.run,
            position,
            manifest=manifest,
            keep=self.keep,
            finished=finished,
        )

    def finish(self, claim: Claim, checkpoint_id: int) -> None:
        """Note that all is done that a checkpoint says. Raise ``StreamFencedError``."""
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            self._check(own_tables.find_stream(writer, self.name), claim)
            own_tables.finish_checkpoint(writer, self.name, checkpoint_id)

    def check(self, claim: Claim) -> None:
        """Raise ``StreamFencedError`` when another run has claimed the stream."""
        with self._catalog.read() as reader:
            self._check(own_tables.find_stream(reader, self.name), claim)

    def list(self) -> list[Checkpoint]:
        """Return the checkpoints that are kept, oldest first."""
        with self._catalog.read() as reader:
            reader.snapshots.check_there()
            return own_tables.checkpoints(reader, self.name)

    def forget(self) -> None:
        """Remove the position and the checkpoints. A run in progress can no longer commit."""
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            own_tables.remove_stream(writer, self.name)
            own_tables.remove_checkpoints(writer, self.name)

    def _check(self, known: StreamMark | None, claim: Claim) -> None:
        if known is None or known.run != claim.run:
            raise StreamFencedError(
                f'another run has taken over the pipeline "{self.name}"', hint="run it in one place at a time"
            )


def _parts(known: StreamMark | None) -> tuple[str, str]:
    """Return the hash and the incarnation of a pipeline, empty for what is none."""
    parts = [""] if known is None else known.query.split(":")
    return (parts[1], parts[2]) if parts[0] == _QUERY and len(parts) == 3 else ("", "")


class DefinitionStore:
    """The texts by which users define the streams of a lake, by kind and name. Names are found whatever their case.

    >>> from datetime import UTC, datetime
    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     store = DefinitionStore(lake)
    ...     store.put(Definition("source", "orders", "{}", "created", datetime(2026, 1, 1, tzinfo=UTC)))
    ...     [each.name for each in store.list("source")]
    ['orders']
    """

    def __init__(self, lake: Lake) -> None:
        lake.handle.check_whole("pipelines")
        self._catalog = lake.handle.context.catalog

    def list(self, kind: str | None = None) -> list[Definition]:
        """Return the definitions of a kind, or all, by name."""
        with self._catalog.read() as reader:
            reader.snapshots.check_there()
            return own_tables.definitions(reader, kind)

    def put(self, definition: Definition, *, replace: bool = False) -> None:
        """Keep a definition. Raise ``AlreadyExistsError`` unless it may replace the one of its name."""
        kind, name = definition.kind, definition.name
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            for known in own_tables.definitions(writer, kind):
                if known.name.lower() == name.lower():
                    if not replace:
                        hint = f"use OR REPLACE, or DROP {kind.upper()} {name}"
                        raise AlreadyExistsError(f'there is a {kind} "{known.name}" already', hint=hint)
                    own_tables.remove_definition(writer, kind, known.name)
            own_tables.put_definition(writer, definition)

    def remove(self, definition: Definition, *, stream: bool = False) -> None:
        """Remove a definition; with ``stream`` also the position and the checkpoints of the stream of its name."""
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            own_tables.remove_definition(writer, definition.kind, definition.name)
            if stream and own_tables.find_stream(writer, definition.name) is not None:
                own_tables.remove_stream(writer, definition.name)
                own_tables.remove_checkpoints(writer, definition.name)
