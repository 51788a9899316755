"""Materialized views as data: their definition, kept as a tag of the table, and their position, kept as a stream's."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from quacklake.config import parse_duration
from quacklake.core.format.objects import TableInfo, view_stream
from quacklake.core.progress import Report
from quacklake.errors import InputError

ON_COMMIT, EVERY, MANUAL = "on commit", "every", "manual"
ENGINES = ("auto", "duckdb", "spark")
_DURATION = "a duration, such as every 1 minute"


@dataclass(frozen=True)
class Schedule:
    """The schedule of a view: ``on commit``, ``every`` so many seconds, or ``manual``."""

    kind: str = MANUAL
    every: float | None = None

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule of a text: ``manual``, ``on commit`` or ``every 1 minute``. Raise ``InputError``."""
        words = " ".join(text.lower().split())
        if words in (MANUAL, ON_COMMIT):
            return cls(words)
        if words.startswith("every "):
            try:
                seconds = parse_duration(words.removeprefix("every ").strip("' ")).total_seconds()
            except ValueError as error:
                raise InputError(f"{text!r} is not a schedule: {error}", hint=_DURATION) from None
            if seconds <= 0:
                raise InputError(f"{text!r} is not a schedule", hint=_DURATION)
            return cls(EVERY, seconds)
        raise InputError(f"{text!r} is not a schedule", hint=f"manual, on commit, or {_DURATION}")

    def __str__(self) -> str:
        return self.kind if self.every is None else f"every {self.every:g} seconds"


@dataclass(frozen=True)
class Base:
    """A table that a view reads, as it was called when the view was created."""

    schema: str
    name: str
    uuid: str


@dataclass(frozen=True)
class Definition:
    """The definition of a materialized view. ``full`` allows a query that can only be computed in full."""

    id: str
    query: str
    bases: tuple[Base, ...]
    schedule: Schedule = field(default_factory=Schedule)
    engine: str = "auto"
    full: bool = False

    def to_json(self) -> str:
        """Return the definition as JSON."""
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Definition:
        """Return the definition that ``to_json`` wrote. Raise ``InputError`` for anything else."""
        try:
            given: dict[str, Any] = json.loads(text)
            if given.pop("version") != 1:
                raise InputError("this materialized view was created by a later version", hint="upgrade quacklake")
            bases = tuple(Base(**base) for base in given.pop("bases"))
            return cls(bases=bases, schedule=Schedule(**given.pop("schedule")), **given)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not the definition of a materialized view: {text[:80]!r}") from error


@dataclass(frozen=True)
class Position:
    """The position of a view: its rows are the answer of its query at ``snapshot``.

    ``epoch`` counts its refreshes, ``committed`` is the newest snapshot when its rows were last changed.
    """

    snapshot: int
    epoch: int
    committed: int
    way: str
    refreshed: dt.datetime
    reason: str | None = None
    stale: str | None = None
    rows: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return what is kept beside the epoch and the snapshot of the commit."""
        kept = replace(self, epoch=0, committed=0)
        given = {key: value for key, value in asdict(kept).items() if key not in ("epoch", "committed")}
        return json.dumps({**given, "refreshed": self.refreshed.isoformat()})

    @classmethod
    def from_json(cls, text: str, epoch: int, committed: int) -> Position:
        """Return the position that ``to_json`` wrote. Raise ``InputError`` for anything else."""
        try:
            given: dict[str, Any] = json.loads(text)
            refreshed = dt.datetime.fromisoformat(given.pop("refreshed"))
            return cls(epoch=epoch, committed=committed, refreshed=refreshed, **given)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not the position of a materialized view: {text[:80]!r}") from error


@dataclass(frozen=True)
class MaterializedView:
    """A materialized view of a lake at one snapshot: its table, its definition and its position."""

    table: TableInfo
    definition: Definition
    position: Position | None

    @property
    def name(self) -> str:
        """The name as ``schema.view``."""
        return self.table.qualified_name

    @property
    def stream(self) -> str:
        """The name under which the position is kept."""
        return view_stream(self.definition.id)

    def due(self, now: dt.datetime) -> bool:
        """Return whether the schedule asks for a refresh."""
        every = self.definition.schedule.every
        if self.definition.schedule.kind == ON_COMMIT:
            return True
        if every is None:
            return False
        return self.position is None or (now - self.position.refreshed).total_seconds() >= every


@dataclass(frozen=True)
class RefreshReport(Report):
    """The report of a refresh. ``way`` is ``none``, ``append``, ``rows``, ``merge``, ``groups`` or ``full``."""

    view: str
    way: str
    snapshot: int
    reason: str | None = None
    keys: int = 0
    deleted: int = 0
    inserted: int = 0
    changes: int = 0
    files: int = 0
    files_total: int = 0
    bytes: int = 0
    seconds: float = 0.0
    engine: str = "duckdb"
    """The engine that computed the rows: ``duckdb`` or ``spark``."""
