"""Turns in the commit queue: for a commit, for an operation that plans in one, and for open transactions.

What a transaction does before its commit is its caller's code, so only the caller can run it again. A caller that has
lost two commits in a row gets its next transaction in a turn: it begins at the head of the queue, and nothing is
committed before it. A limit of time and one rule keep it from holding up everybody for long: a thread that waits in a
queue keeps no turn.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quacklake.core import forks
from quacklake.errors import CatalogUnavailableError, QuacklakeError

if TYPE_CHECKING:
    from quacklake.core.catalog.catalog import Catalog

_MAX_COUNT = 1_000
"""The most callers whose lost transactions are remembered."""
_LOSSES = 2
"""The transactions that a caller must lose in a row: while one is in its turn, stock clients of SQLite cannot write."""
_REMEMBERED = 60.0
"""Seconds after which the caller of a lost transaction has given up."""

_caller: ContextVar[object] = ContextVar("quacklake_caller", default=None)
_lost: OrderedDict[object, _Loss] = OrderedDict()
_kept: set[TransactionTurn] = set()


class CommitTurn(ExitStack):
    """A commit transaction whose turn in the queue has come. Leaving the block commits, an exception undoes it.

    Taken before an operation plans, it keeps other clients of ours from committing meanwhile; taken after, it may bring
    the newest snapshot along. Closing it lets the next one in, if that has not been done: nothing was written.
    """

    def __init__(self, catalog: Catalog, *, planned: bool = False) -> None:
        super().__init__()
        self.writer = self.enter_context(catalog.commit(latest=planned))

    def limit_idle(self, catalog: Catalog, milliseconds: int) -> None:
        """Have the database end the turn of a client that is silent for so long, where it can."""
        with suppress(QuacklakeError), catalog.translate_errors("commit"):
            catalog.backend.limit_idle(self.writer.connection, milliseconds)

    def give_back(self) -> None:
        """Undo the transaction, which has written nothing, and let the next one in."""
        with suppress(_GivenBack, QuacklakeError), self:
            raise _GivenBack


class _GivenBack(Exception):
    """Undoes a commit transaction."""


def early_turn(catalog: Catalog) -> CommitTurn | None:
    """Wait for the head of the commit queue; return None if there is no queue or it is unavailable."""
    try:
        return CommitTurn(catalog) if catalog.reads_beside_commits else None
    except CatalogUnavailableError:
        return None


@dataclass(frozen=True, slots=True)
class _Loss:
    """A transaction that lost its commit."""

    seconds: float
    """The time from its first statement to its commit."""
    count: int
    """The number of lost transactions of the caller in a row."""
    at: float = field(default_factory=time.monotonic)

    def earns_turn(self, limit_ms: float) -> bool:
        """Return whether the next transaction may hold the queue: not if it would take too long, or comes too late."""
        return self.count >= _LOSSES and self.seconds * 1000 < limit_ms and self.is_recent

    @property
    def is_recent(self) -> bool:
        """True as long as the caller may try again."""
        return time.monotonic() < self.at + _REMEMBERED


class TransactionTurn:
    """The turn of an open transaction, if its caller has lost the last two on this catalog; otherwise it has none.

    The commit takes it. It is given back before that after a limit of time, at the end of the transaction, and when its
    thread waits in a queue. The transaction then goes on without it, and its commit may conflict.
    """

    def __init__(self, catalog: Catalog, limit_ms: int) -> None:
        """Wait for the turn, unless the lost transaction took longer than the limit."""
        caller, thread = _caller.get(), threading.get_ident()
        self._key = (catalog.url, catalog.metadata_schema, catalog.tenant, thread if caller is None else caller)
        # between two calls of a caller, others may use the thread
        self._thread = thread if caller is None else None
        self._lock = threading.Lock()
        self._turn: CommitTurn | None = None
        self._timer: threading.Timer | None = None
        self._seconds: float | None = None
        loss = _lost.pop(self._key, None)
        self._losses = loss.count if loss is not None and loss.is_recent else 0
        if loss is not None and loss.earns_turn(limit_ms) and not catalog.read_only:
            self._wait(catalog, limit_ms)
        self._began = time.monotonic()

    def _wait(self, catalog: Catalog, limit_ms: int) -> None:
        try:
            self._turn = early_turn(catalog)
            if self._turn is not None:
                self._turn.limit_idle(catalog, 2 * limit_ms)  # for a client that is stopped, and its timer with it
                forks.watch(self, TransactionTurn._renew)
                _kept.add(self)
                self._timer = threading.Timer(limit_ms / 1000, self.give_back)
                self._timer.daemon = True
                self._timer.start()
        except BaseException:
            self.give_back()
            raise

    def _renew(self) -> None:
        """Leave the turn to the parent in a forked child."""
        forks.new_lock(self)
        forks.abandon(self._turn)
        self._turn = self._timer = None
        _kept.discard(self)

    def take(self) -> CommitTurn | None:
        """Return the turn, which belongs to the commit from now on; None for a transaction without one."""
        self._seconds = time.monotonic() - self._began
        return self._let_go()

    def give_back(self) -> None:
        """Let the next one in; to do it twice does no harm."""
        turn = self._let_go()
        if turn is not None:
            turn.give_back()

    def _let_go(self) -> CommitTurn | None:
        with self._lock:
            turn, self._turn = self._turn, None
        _kept.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        return turn

    def remember_loss(self) -> None:
        """Remember that another commit was in the way, for the next transaction of the caller."""
        seconds = time.monotonic() - self._began if self._seconds is None else self._seconds
        _lost[self._key] = _Loss(seconds, self._losses + 1)
        while len(_lost) > _MAX_COUNT:
            _lost.popitem(last=False)


def give_back_own() -> None:
    """Give back the turns that this thread keeps, before it waits for another one: it may be waiting for itself."""
    for kept in tuple(_kept):
        if kept._thread == threading.get_ident():
            kept.give_back()


@contextmanager
def acting_for(caller: object) -> Iterator[None]:
    """Let transactions be those of a caller, in whichever threads its calls run."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)
