"""Events as they happen: commits of any client, jobs of every process, and the pipelines of this one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quacklake.core.format.snapshots import render_changes
from quacklake.errors import QuacklakeError
from quacklake.service.identity import Identity, Role
from quacklake.service.jobs import Job
from quacklake.service.problems import TooBusyError

if TYPE_CHECKING:
    from quacklake.core.operations.handles import LakeHandle
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
        self._listening: set[_Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self.listeners = 0

    def stop(self) -> None:
        """End all streams: the service stops."""
        self._stopping.set()
        for watch in self._watches.values():
            watch.changed.set()

    def told(self, job: Job) -> None:
        """Tell the principal of a job of it, from any thread."""
        self._soon(lambda listener: listener.principal == job.principal, _event("job", job.shown()))

    def told_batch(self, lake: Lake, pipeline: str, batch: dict[str, Any]) -> None:
        """Tell of a batch of a pipeline those who may see all of its lake, from any thread."""
        context = lake.handle.context
        self._soon(
            lambda listener: listener.handle.context is context and not listener.handle.restricted,
            _event("pipeline", {"pipeline": pipeline, **batch}),
        )

    def _soon(self, concerns: Callable[[_Listener], bool], event: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, concerns, event)

    def _tell(self, concerns: Callable[[_Listener], bool], event: str) -> None:
        for listener in self._listening:
            if concerns(listener):
                listener.hear(event)
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
        """Yield commits after a snapshot, jobs of a principal, and batches of pipelines, as server-sent events.

        ``again`` returns the identity as it is now, before anything is told. The stream ends when that fails.
        """
        self._check_room()
        self.listeners += 1
        watch = self._watch(identity.lake)
        listener = _Listener(identity.lake.handle, identity.key)
        self._listening.add(listener)
        if identity.role >= Role.ADMIN:
            watch.admins.add(listener)
        heard: list[str] = []
        try:
            if listener in watch.admins:
                await watch.learn_jobs(listener.principal)  # whatever happens to these from now on is news
            yield ": listening\n\n"
            while not self._stopping.is_set():
                # what came before the question may be told, and what comes after it only after the next
                newest = watch.newest
                heard += [listener.events.get_nowait() for _ in range(listener.events.qsize())]
                try:
                    identity = await again()
                except QuacklakeError as error:
                    if not error.transient:
                        return
                    await asyncio.sleep(self._service.settings.poll_seconds)
                    continue  # the catalog is away; it may come back
                listener.handle = identity.lake.handle
                for event in [] if listener.handle.restricted else heard:
                    yield event
                heard.clear()
                if newest > since:
                    commits = await self._service.run(_commits, identity.lake, max(since, newest - _AT_ONCE), newest)
                    for commit in commits:
                        yield _event("commit", commit, commit["snapshot"])
                    since = newest
                if watch.newest > since or not listener.events.empty():
                    continue  # there was news meanwhile
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        await watch.next()
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._listening.discard(listener)
            watch.admins.discard(listener)
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


@dataclass(eq=False)
class _Listener:
    """A principal that listens, and what it has not heard yet. One that reads slowly misses events."""

    handle: LakeHandle
    principal: str
    events: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(_AT_ONCE))

    def hear(self, event: str) -> None:
        """Keep an event until it is told, if there is room."""
        if not self.events.full():
            self.events.put_nowait(event)


class _Watch:
    """Looks for new snapshots of a lake, and for the jobs that other processes run for those who listen."""

    def __init__(self, service: Service, lake: Lake) -> None:
        self.lake = lake
        self.admins: set[_Listener] = set()
        """Those who hear of their jobs in other processes; in this one, they are told at once."""
        self._states: dict[str, dict[str, str]] = {}
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
            await self._look_at_jobs()
            await asyncio.sleep(self._service.settings.poll_seconds)

    async def learn_jobs(self, principal: str) -> None:
        """Learn the states of a principal's jobs in other processes, if they are not known yet."""
        if principal not in self._states:
            with suppress(QuacklakeError):  # the catalog is away: the next look learns them
                jobs = await self._service.run(self._service.jobs.elsewhere, self.lake, principal)
                self._states.setdefault(principal, {job["id"]: job["state"] for job in jobs})

    async def _look_at_jobs(self) -> None:
        """Tell of the jobs of other processes whose state is another one than at the last look."""
        listening = {listener.principal for listener in self.admins}
        self._states = {principal: known for principal, known in self._states.items() if principal in listening}
        for principal in listening:
            try:
                jobs = await self._service.run(self._service.jobs.elsewhere, self.lake, principal)
            except QuacklakeError:
                return  # the catalog is away; it may come back
            known = self._states.get(principal)
            self._states[principal] = {job["id"]: job["state"] for job in jobs}
            if known is None:
                continue  # what was before the first look is no news
            news = [_event("job", job) for job in reversed(jobs) if known.get(job["id"]) != job["state"]]
            for listener in self.admins:
                for event in news if listener.principal == principal else ():
                    listener.hear(event)
            if news:
                self.wake()

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
