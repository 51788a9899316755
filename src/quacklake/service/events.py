"""Events as they happen: commits of any client, and the jobs of this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from quacklake.errors import QuacklakeError
from quacklake.format.snapshots import render_changes
from quacklake.service.identity import Identity, Role
from quacklake.service.jobs import Job
from quacklake.service.problems import TooBusyError

if TYPE_CHECKING:
    from quacklake.lake import Lake
    from quacklake.service.state import Service

__all__ = ["Events"]

_HEARTBEAT = 15.0
_AT_ONCE = 1_000
"""The most commits that a listener hears of at once; one that is further behind hears of the newest."""


class Events:
    """Watches the lakes that somebody listens to: one question to a catalog answers all its listeners."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._watches: dict[int, _Watch] = {}
        self._jobs: set[asyncio.Queue[Job]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self.listeners = 0

    def stop(self) -> None:
        """End all streams: the service stops."""
        self._stopping.set()
        for watch in self._watches.values():
            watch.changed.set()

    def told(self, job: Job) -> None:
        """Tell listeners of a job, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, job)

    def _tell(self, job: Job) -> None:
        for listener in self._jobs:
            if not listener.full():
                listener.put_nowait(job)
        for watch in self._watches.values():
            watch.wake()

    async def after(self, lake: Lake, snapshot: int, seconds: float) -> int:
        """Return the newest snapshot as soon as it is later than the given one, or after so many seconds."""
        self._check_room()
        self.listeners += 1
        watch = self._watch(lake)
        try:
            async with asyncio.timeout(seconds):
                while watch.newest <= snapshot and not self._stopping.is_set():
                    await watch.next()
        except TimeoutError:
            pass
        finally:
            self._leave(watch)
            self.listeners -= 1
        return watch.newest

    def _check_room(self) -> None:
        if self.listeners >= self._service.settings.max_listeners:
            raise TooBusyError("too many listen already", after=10)

    async def stream(
        self, identity: Identity, since: int, again: Callable[[], Awaitable[Identity]]
    ) -> AsyncIterator[str]:
        """Yield commits after a snapshot, and the jobs of a principal, as server-sent events.

        ``again`` returns the identity as it is now, before anything is told. The stream ends when that fails.
        """
        self._check_room()
        self.listeners += 1
        watch = self._watch(identity.lake)
        jobs: asyncio.Queue[Job] = asyncio.Queue(_AT_ONCE)
        heard: list[Job] = []
        self._jobs.add(jobs)
        try:
            yield ": listening\n\n"
            while not self._stopping.is_set():
                # what came before the question may be told, and what comes after it only after the next
                newest = watch.newest
                heard += [jobs.get_nowait() for _ in range(jobs.qsize())]
                try:
                    identity = await again()
                except QuacklakeError as error:
                    if not error.transient:
                        return
                    await asyncio.sleep(self._service.settings.poll_seconds)
                    continue  # the catalog is away; it may come back
                for job in heard:
                    if job.principal == identity.principal and identity.role >= Role.ADMIN:
                        yield _event("job", job.shown())
                heard.clear()
                if newest > since:
                    commits = await self._service.run(_commits, identity.lake, max(since, newest - _AT_ONCE), newest)
                    for commit in commits:
                        yield _event("commit", commit, commit["snapshot"])
                    since = newest
                if watch.newest > since or not jobs.empty():
                    continue  # there was news meanwhile
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        await watch.next()
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._jobs.discard(jobs)
            self._leave(watch)
            self.listeners -= 1

    def _watch(self, lake: Lake) -> _Watch:
        self._loop = asyncio.get_running_loop()
        watch = self._watches.get(id(lake.handle))
        if watch is None:
            watch = self._watches[id(lake.handle)] = _Watch(self._service, lake)
        watch.users += 1
        return watch

    def _leave(self, watch: _Watch) -> None:
        watch.users -= 1
        if not watch.users:
            watch.task.cancel()
            self._watches.pop(id(watch.lake.handle), None)


class _Watch:
    """Looks for new snapshots of a lake."""

    def __init__(self, service: Service, lake: Lake) -> None:
        self.lake = lake
        self.users = 0
        self.newest = -1
        self.changed = asyncio.Event()
        self._service = service
        self.task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            try:
                newest = await self._service.run(self.lake.current_snapshot)
            except QuacklakeError:
                newest = self.newest  # the catalog is away; it may come back
            if newest > self.newest:
                self.newest = newest
                self.wake()
            await asyncio.sleep(self._service.settings.poll_seconds)

    def wake(self) -> None:
        """Wake those who wait."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()

    async def next(self) -> None:
        """Wait for something new."""
        await self.changed.wait()


def _commits(lake: Lake, since: int, until: int) -> list[dict[str, Any]]:
    """Return the commits after a snapshot, up to another. What they changed may be hidden from a principal."""
    hidden = lake.handle.restricted
    with lake.handle.context.catalog.read() as reader:
        return [
            {"snapshot": id_} if hidden else {"snapshot": id_, "changes": render_changes(changes)}
            for id_, changes in reader.snapshots.changes_since(since)
            if id_ <= until
        ]


def _event(kind: str, data: dict[str, Any], id_: int | None = None) -> str:
    head = "" if id_ is None else f"id: {id_}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(data, default=str)}\n\n"
