"""The state that the routes of a service share. Nothing of it must outlive the process: that is in the catalog."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import Scope

from quacklake.errors import NotFoundError, UnauthenticatedError
from quacklake.service.answers import awaited
from quacklake.service.appends import GroupCommits
from quacklake.service.events import Events
from quacklake.service.identity import Gate, Identity, Role
from quacklake.service.jobs import Jobs
from quacklake.service.metrics import Requests
from quacklake.service.parameters import check_parameters
from quacklake.service.problems import TooBusyError
from quacklake.service.runners import Runners
from quacklake.service.sessions import LentSession, SafeSessions
from quacklake.service.settings import ServiceSettings

__all__ = ["Service", "service_of"]

T = TypeVar("T")
_DOTS = 2
"""The dots of a web token (JWT)."""
_MAX_BUCKETS = 10_000
_MORE_THREADS = 24
"""Threads beside those of statements: for metadata, appends and health."""


class Service:
    """The gate, the settings, the threads and the statements under way."""

    def __init__(
        self, gate: Gate, settings: ServiceSettings, requests: Requests, commits: GroupCommits | None = None
    ) -> None:
        self.gate = gate
        self.settings = settings
        self.requests = requests
        self.sessions = SafeSessions(settings)
        self.statements = Statements()
        self.appends = commits or GroupCommits(settings)
        self.events = Events(self)
        self.jobs = Jobs(settings.max_jobs, self.events.told, settings.job_lease_seconds, settings.poll_seconds)
        tenants = bool(getattr(gate, "serves_tenants", False))
        self.runners = Runners(settings.max_pipelines, self.events.told_batch, tenants=tenants)
        self.executor = ThreadPoolExecutor(settings.max_statements + _MORE_THREADS, thread_name_prefix="quacklake-http")
        self._turns = asyncio.Semaphore(settings.max_statements)
        self._waiting = 0
        self._entrance = _Entrance(self)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.stopping = False

    async def run(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run work in a thread, and return its result."""
        return await awaited(self.executor, work, *args, **options)

    async def enter(self, request: Request, role: Role = Role.READER) -> Identity:
        """Return who makes a request, on the lake that it names; raise unless the role is at least this."""
        given = request.headers.get("authorization"), request.query_params.get("lake")
        return await self.enter_by(request.scope, *given, role)

    async def enter_again(self, request: Request) -> Identity:
        """Return who makes a request that has waited: the token may have been revoked, or allow something else now."""
        token, lake = bearer(request.headers.get("authorization")), request.query_params.get("lake")
        return await self.run(self.gate.enter, token, lake)

    async def enter_by(self, scope: Scope, authorization: str | None, lake: str | None, role: Role) -> Identity:
        """Return who sends an Authorization header. Raise ``UnauthenticatedError`` and ``TooBusyError``."""
        identity = await self._entrance.enter(bearer(authorization), lake)
        scope["principal"] = identity.principal
        self.spend(identity.key)
        identity.require(role)
        check_parameters(scope)
        return identity

    def spend(self, principal: str) -> None:
        """Take one request from a principal's share."""
        rate, burst = self.settings.rate, float(self.settings.burst)
        if not rate:
            return
        now = time.monotonic()
        left, since = self._buckets.pop(principal, (burst, now))
        left = min(burst, left + (now - since) * rate)
        self._buckets[principal] = (left - 1 if left >= 1 else left, now)
        while len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise TooBusyError("there are too many requests with this token", after=(1 - left) / rate)

    async def take_turn(self) -> None:
        """Wait for a turn among the statements; ``end_turn`` gives it back. Raise ``TooBusyError``."""
        if self._turns.locked() and self._waiting >= self.settings.max_waiting:
            raise TooBusyError("too many statements wait for their turn")
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1

    def end_turn(self) -> None:
        """Let the next statement run."""
        self._turns.release()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Take a turn for the length of a block."""
        await self.take_turn()
        try:
            yield
        finally:
            self.end_turn()

    def stop(self) -> None:
        """Say that the service stops: it is not ready any more, and streams of events end."""
        self.stopping = True
        self.events.stop()

    def close(self) -> None:
        """Close everything that was opened for requests."""
        self.stopping = True
        self.appends.close()
        self.runners.close()
        self.jobs.close()
        self.executor.shutdown(wait=True)
        self.sessions.close()
        self.gate.close()


class _Entrance:
    """Asks the gate in a thread, once for all requests with one token that come while it is being asked.

    A request is never let in by an answer that was asked for before it came.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[tuple[str | None, str | None], asyncio.Future[Identity]] = {}
        self._asked: dict[tuple[str | None, str | None], asyncio.Task[None]] = {}

    async def enter(self, token: str | None, lake: str | None) -> Identity:
        """Return the identity behind a token; see ``Gate.enter``."""
        if token is not None and token.count(".") == _DOTS:  # a web token may be good for one request only
            return await self._service.run(self._service.gate.enter, token, lake)
        found = self._waiting.get((token, lake))
        if found is None:
            found = self._waiting[token, lake] = asyncio.get_running_loop().create_future()
            if (token, lake) not in self._asked:
                self._asked[token, lake] = asyncio.create_task(self._ask(token, lake))
        return await asyncio.shield(found)

    async def _ask(self, token: str | None, lake: str | None) -> None:
        while (found := self._waiting.pop((token, lake), None)) is not None:
            try:
                found.set_result(await self._service.run(self._service.gate.enter, token, lake))
            except BaseException as error:
                found.set_exception(error)
                found.exception()  # those who waited may have gone
                if not isinstance(error, Exception):
                    break
        del self._asked[token, lake]


def service_of(request: Request) -> Service:
    """Return the service of an application."""
    found: Service = request.app.state.service
    return found


def bearer(authorization: str | None) -> str | None:
    """Return the token of an Authorization header; None without the header."""
    if authorization is None:
        return None
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError
    return token.strip()


@dataclass(frozen=True)
class Statement:
    """A statement under way."""

    id: str
    principal: str
    lent: LentSession
    began: float


class Statements:
    """The statements under way, by id, so that whoever started one can cancel it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Statement] = {}

    def add(self, statement: Statement) -> None:
        """Remember a statement until ``remove``. An id that is taken stays with the statement that has it."""
        with self._lock:
            self._running.setdefault(statement.id, statement)

    def remove(self, statement: Statement) -> None:
        """Forget a statement that has ended."""
        with self._lock:
            if self._running.get(statement.id) is statement:
                del self._running[statement.id]

    def count(self) -> int:
        """Return how many statements are under way."""
        return len(self._running)

    def of(self, principal: str) -> list[Statement]:
        """Return the statements of a principal."""
        with self._lock:
            return [each for each in self._running.values() if each.principal == principal]

    def cancel(self, id_: str, principal: str) -> bool:
        """Cancel a statement of a principal; False when it had just ended. Raise ``NotFoundError`` for any other."""
        with self._lock:
            found = self._running.get(id_)
        if found is None or found.principal != principal:
            raise NotFoundError("there is no such statement under way")
        return found.lent.interrupt()
