"""Results on their way to clients: how many there may be, who watches over them, and how they end."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
from pyarrow import flight

from quacklake.errors import CancelledError, TenantBusyError
from quacklake.service.flight.failures import to_status
from quacklake.service.identity import Identity

_log = logging.getLogger("quacklake.service.flight")
_TICK = 0.05
"""Seconds between two looks at the calls that run."""


class Slots:
    """Counts the results of each principal."""

    def __init__(self, most: int, most_of_all: int) -> None:
        self._most = most
        self._most_of_all = most_of_all
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, principal: str) -> Callable[[], None]:
        """Count one more; return the function that gives it back. Raise ``TenantBusyError``."""
        with self._lock:
            mine = self._taken[principal] >= self._most
            if mine or self._taken.total() >= self._most_of_all:
                who = "this principal reads" if mine else "the server sends"
                raise TenantBusyError(
                    f"{who} too many results at the moment", limit="max_streams", after=1.0, hint="try again later"
                )
            self._taken[principal] += 1
        return _Once(lambda: self._give_back(principal))

    def _give_back(self, principal: str) -> None:
        with self._lock:
            self._taken[principal] -= 1
            if not self._taken[principal]:
                del self._taken[principal]

    @property
    def taken(self) -> int:
        """The number of results of all principals."""
        with self._lock:
            return self._taken.total()


class _Once:
    """A function that does its work the first time only."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            work, self._work = self._work, None
        if work is not None:
            work()


@dataclass(eq=False)
class Stream:
    """The batches of a result. ``interrupt`` stops the work on them, ``close`` gives back what they hold, once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    interrupt: Callable[[], object]
    close: Callable[[], None]
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.close = _Once(self.close)

    def cancel(self) -> None:
        """End the stream before its next batch."""
        self.is_cancelled = True
        self.interrupt()


@dataclass(eq=False)
class _Watched:
    context: Any
    interrupt: Callable[[], object]
    is_cancelled: Callable[[], bool]


@dataclass
class Watch:
    """One thread that ends the work of clients which have gone, and calls ``tidy`` from time to time."""

    tidy: Callable[[], None]
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _watched: set[_Watched] = field(default_factory=set)
    _thread: threading.Thread | None = None
    _closed: bool = False
    stopping: bool = False
    """Set when results are to end before their last batch."""

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="quacklake-flight-watch", daemon=True)
        self._thread.start()

    def add(
        self, context: Any, interrupt: Callable[[], object], is_cancelled: Callable[[], bool] = lambda: False
    ) -> Callable[[], None]:
        """Watch a call until the function that this returns is called, which must be before the call ends."""
        watched = _Watched(context, interrupt, is_cancelled)
        with self._changed:
            self._watched.add(watched)
            self._changed.notify()

        def remove() -> None:
            with self._changed:
                self._watched.discard(watched)

        return remove

    @contextmanager
    def watching(
        self, context: Any, interrupt: Callable[[], object], is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Interrupt a block, again and again until it ends, when its client has gone or it was cancelled."""
        remove = self.add(context, interrupt, is_cancelled)
        try:
            yield
        finally:
            remove()

    @property
    def running(self) -> int:
        """The number of calls that are watched."""
        with self._changed:
            return len(self._watched)

    def interrupt_all(self) -> None:
        """Stop the work of every call, and send no more batches."""
        self.stopping = True
        with self._changed:
            found = list(self._watched)
        for watched in found:
            watched.interrupt()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        tidied = time.monotonic()
        while True:
            with self._changed:
                self._changed.wait(_TICK if self._watched else 1.0)
                if self._closed:
                    return
                # a context may only be asked while its call is there, and removing a call takes this lock
                gone = [each for each in self._watched if each.context.is_cancelled() or each.is_cancelled()]
            try:
                for watched in gone:
                    with self._changed:  # what has ended meanwhile may have lent its session to another call
                        if watched in self._watched:
                            watched.interrupt()
                if time.monotonic() - tidied >= 1.0:
                    tidied = time.monotonic()
                    self.tidy()
            except Exception as error:  # the watch goes on
                _log.error("the watch over calls failed: %s", error, exc_info=error)


class Sending:
    """Iterates over the batches of a stream for Flight, and closes it at the end, early or not.

    Flight drops this object when the call ends, for whatever reason, even before the first batch.
    """

    def __init__(self, stream: Stream, watch: Watch, context: Any) -> None:
        self._stream = stream
        self._watch = watch
        self._remove = watch.add(context, stream.interrupt)

    def __iter__(self) -> Sending:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            if self._watch.stopping:
                # a client of Arrow takes "cancelled" for Ctrl-C
                raise flight.FlightUnavailableError("[cancelled] the server shuts down\n  hint: call another one")
            if self._stream.is_cancelled:
                raise CancelledError("the query was cancelled")
            return next(self._stream.batches)
        except StopIteration:
            self._end()
            raise
        except Exception as error:
            self._end()
            raise to_status(error) from None

    def _end(self) -> None:
        self._remove()
        self._stream.close()

    def __del__(self) -> None:
        self._end()


def sent(stream: Stream, watch: Watch, context: Any) -> flight.GeneratorStream:
    """Return a stream as Flight sends it: batch by batch, each when the client has room for it."""
    return flight.GeneratorStream(stream.schema, Sending(stream, watch, context))


def of_table(table: pa.Table) -> Stream:
    """Return the stream of a small table in memory."""
    return Stream(table.schema, iter(table.to_batches()), lambda: None, lambda: None)


@dataclass(frozen=True)
class _Waiting:
    until: float
    identity: Identity
    stream: Stream


@dataclass
class Held:
    """Results that wait for their readers, by a number that only their tickets have."""

    seconds: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[str, _Waiting] = field(default_factory=dict)
    _read: WeakValueDictionary[str, Stream] = field(default_factory=WeakValueDictionary)

    def put(self, number: str, identity: Identity, stream: Stream) -> None:
        """Keep a result for a while."""
        with self._lock:
            self._kept[number] = _Waiting(time.monotonic() + self.seconds, identity, stream)

    def take(self, number: str, identity: Identity) -> Stream | None:
        """Return a result, to its first reader only, and not if its principal has other rights by now."""
        with self._lock:
            found = self._kept.pop(number, None)
        if found is not None and found.identity.rights != identity.rights:
            found.stream.close()
            return None
        return None if found is None else self.reading(number, found.stream)

    def reading(self, number: str, stream: Stream) -> Stream:
        """Note that a result is being read, so that it can be cancelled."""
        with self._lock:
            self._read[number] = stream
        return stream

    @contextmanager
    def starting(self, number: str | None, interrupt: Callable[[], object]) -> Iterator[Callable[[], bool]]:
        """Let the work on the first rows of a result be cancelled by its number; yield what says that it was.

        An interrupt finds nothing to stop before the work has begun, so it must be repeated.
        """
        started = Stream(pa.schema([]), iter(()), interrupt, lambda: None)
        if number is not None:
            self.reading(number, started)
        try:
            yield lambda: started.is_cancelled
        finally:
            with self._lock:  # who cancels after this is told that nothing runs
                if number is not None and self._read.get(number) is started:
                    del self._read[number]
        if started.is_cancelled:
            raise CancelledError("the query was cancelled")

    def cancel(self, number: str) -> bool:
        """Close a result that waits, or stop one that is read; return False if there is neither."""
        with self._lock:
            waits, read = self._kept.pop(number, None), self._read.get(number)
            if read is not None:
                read.is_cancelled = True
        if waits is not None:
            waits.stream.close()
        elif read is not None:
            read.cancel()
        return waits is not None or read is not None

    def make_room(self, principal: str) -> bool:
        """Close the oldest result of a principal that nobody reads; return False if there is none."""
        with self._lock:
            mine = [number for number, each in self._kept.items() if each.identity.key == principal]
        return bool(mine) and self.cancel(mine[0])

    def tidy(self, *, everything: bool = False) -> None:
        """Close the results that nobody has fetched in time."""
        now = time.monotonic()
        with self._lock:
            late = [number for number, each in self._kept.items() if everything or each.until <= now]
        for number in late:
            self.cancel(number)
