"""Break parts of a demo on purpose, through routes that a service has only when it includes ``chaos_router``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Path, Request

from quacklake.errors import NotFoundError
from quacklake.service.app import API
from quacklake.service.facts import whole_lake
from quacklake.service.identity import Role
from quacklake.service.state import service_of
from quacklake.service.values import LakeName

__all__ = ["FACTS", "Blow", "Chaos", "Counts", "SinkCount", "Step", "chaos_router"]

FACTS = {"demo": True}
"""Facts that a service with these routes states, so that the dashboard shows the page of them."""


@dataclass(frozen=True)
class Blow:
    """Something that can be broken: ``about`` says what happens then."""

    id: str
    title: str
    about: str
    struck: int = 0
    """The number of times that it was broken."""


@dataclass(frozen=True)
class SinkCount:
    """The rows of a sink: how many different ones, how many too many, and how many of the finished ones are missing."""

    sink: str
    committed: int
    doubled: int
    lost: int


@dataclass(frozen=True)
class Counts:
    """The messages that were published, and what became of them."""

    published: int
    sinks: Sequence[SinkCount] = ()
    running: bool = False
    """True while the driver runs."""


@dataclass(frozen=True)
class Step:
    """Something that a newcomer may try: ``page`` is the address of a page of the dashboard, ``lake`` its lake."""

    title: str
    about: str
    page: str
    lake: str | None = None


class Chaos(Protocol):
    """A demo that can be broken. Its methods are called from any thread."""

    def steps(self) -> Sequence[Step]:
        """Return what to try first, in this order."""
        ...

    def blows(self) -> Sequence[Blow]:
        """Return what can be broken."""
        ...

    def strike(self, id_: str) -> None:
        """Break something, without waiting for it to come back. Called with the id of one of the blows only."""
        ...

    def counts(self) -> Counts:
        """Return the counts as they are now."""
        ...


def chaos_router(chaos: Chaos) -> APIRouter:
    """Return the routes that break a demo, for the application that ``create_app(…, more=[…], facts=FACTS)`` makes."""
    router = APIRouter(prefix=API, tags=["chaos"])

    def describe() -> dict[str, Any]:
        parts = {"steps": [asdict(step) for step in chaos.steps()], "blows": [asdict(blow) for blow in chaos.blows()]}
        return {**parts, **asdict(chaos.counts())}

    @router.get("/chaos", summary="Count what was published and committed", operation_id="count_chaos")
    async def count_chaos(request: Request, lake: LakeName = None) -> dict[str, Any]:
        """Return what to try, what can be broken, and how many messages were published, committed, doubled and lost."""
        service = service_of(request)
        whole_lake(await service.enter(request))
        async with service.turn():
            return await service.run(describe)

    @router.post("/chaos/{blow}", summary="Break something", operation_id="strike", status_code=202)
    async def strike(
        request: Request, blow: Annotated[str, Path(max_length=64)], lake: LakeName = None
    ) -> dict[str, Any]:
        """Break a part of the demo, which then comes back by itself. This needs the role admin."""
        service = service_of(request)
        whole_lake(await service.enter(request, Role.ADMIN))
        if blow not in {each.id for each in chaos.blows()}:
            raise NotFoundError("there is nothing of that name to break")
        await service.run(chaos.strike, blow)
        return await service.run(describe)

    return router
