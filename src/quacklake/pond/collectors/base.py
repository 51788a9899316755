"""The common parts of collectors: a run, its report, and the one transaction in which it writes."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from quacklake.errors import CancelledError, CommitError, QuacklakeError
from quacklake.extend.reporting import Progress, silent
from quacklake.pond.factories.registry import Factory
from quacklake.pond.fs import FS
from quacklake.pond.nodes import STATE, EntryType
from quacklake.pond.pond import Pond
from quacklake.pond.series import Imported

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that a run could not take, such as a device or a file, and why."""

    item: str
    error: QuacklakeError


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run. ``more`` says that the source has more, which the next run takes."""

    imported: tuple[Imported, ...] = ()
    failures: tuple[Failure, ...] = ()
    more: bool = False
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The rows that were added."""
        return sum(each.rows for each in self.imported)


@dataclass(frozen=True)
class Run:
    """One run of a collector: the pond, the path of the collector's node, and what ends the run early."""

    pond: Pond
    path: str
    args: Sequence[str] = ("pond", "run")
    words: tuple[str, ...] = ()
    """Further words of the command, such as ``archive``."""
    stop: threading.Event = field(default_factory=threading.Event)
    progress: Progress = silent
    say: Callable[[str], None] = lambda text: None
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held for a transaction, so that the collectors of one process do not get into each other's way."""

    def transact(self, work: Callable[[FS], T]) -> T:
        """Run work in a transaction of the pond, and return its result."""
        with self.turn:
            return self.pond.run(self.args, work)

    def wait(self, seconds: float) -> None:
        """Sleep. Raise ``CancelledError`` as soon as the run is told to stop."""
        if self.stop.wait(seconds):
            raise CancelledError("the collector was told to stop", hint="the next run continues where it was")

    def state(self) -> Mapping[str, Any]:
        """Return what the last run kept."""
        found = self.pond.fs().find(self.path, follow=False)
        kept = None if found is None else found.node.attribute(STATE)
        return dict(kept or {})


class Runnable(Factory):
    """A factory that does something when ``pond run`` names its node."""

    kind = EntryType.DYNAMIC
    serves: ClassVar[bool] = False
    """True for one that listens until it is told to stop."""
    every: ClassVar[str] = "*/15 * * * *"
    """The schedule of a node that has none."""

    @abstractmethod
    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        """Run once, and return what was done. Raise when nothing could be."""


@dataclass(frozen=True, slots=True)
class Item:
    """Rows to write: a name for errors, and what writes them. It may be called again after a conflict."""

    name: str
    write: Callable[[FS], Sequence[Imported]]


def commit(run: Run, items: Sequence[Item], *, also: Callable[[FS], None] | None = None) -> Report:
    """Write items in one transaction. An item that is refused is left out and reported; the others are written.

    ``also`` changes the pond in the same transaction.
    """
    left, failures = list(items), list[Failure]()
    while left or (also is not None and not failures):
        refused: list[Item] = []

        def work(fs: FS, refused: list[Item] = refused) -> list[Imported]:
            done: list[Imported] = []
            for number, item in enumerate(left):
                run.progress(f"writing {item.name}", number, len(left))
                try:
                    done += item.write(fs)
                except CommitError:
                    raise
                except QuacklakeError:
                    refused.append(item)
                    raise
            if also is not None:
                also(fs)
            return done

        try:
            return Report(tuple(run.transact(work)), tuple(failures))
        except QuacklakeError as error:
            if not refused:
                raise
            failures.append(Failure(refused[-1].name, error))
            left.remove(refused[-1])
    return Report((), tuple(failures))


def keep_state(run: Run, state: Mapping[str, Any]) -> Callable[[FS], None]:
    """Return what keeps the state of a collector in its node, within a transaction."""

    def keep(fs: FS) -> None:
        found = fs.find(run.path, follow=False)
        if found is not None and found.node.node_id in fs.tree:
            fs.set_attribute(found, STATE, dict(state))

    return keep
