"""Materialized views of reductions: make them, bring them up to date, and drop those that nobody needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.errors import AlreadyExistsError, QuacklakeError, StaleViewError
from quacklake.extend.names import quote
from quacklake.extend.schemas import TableSchema
from quacklake.pond.factories.column_rename import selected, steps_of, transformed
from quacklake.pond.factories.temporal_reduce import ON_COMMIT, ReducedOptions, ReducedSeries
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.nodes import CONFIG, FACTORY, TIMESTAMP_COLUMN, EntryType
from quacklake.pond.paths import table_of
from quacklake.pond.reductions import view_name
from quacklake.pond.series import bounds_of
from quacklake.pond.times import require_column, time_filter
from quacklake.telemetry import error_facts

if TYPE_CHECKING:
    from quacklake.lake.writing import LakeReader
    from quacklake.pond.pond import Pond
    from quacklake.pond.queries import Relations

SCHEMA = "pond_reduced"
"""The schema of the lake that holds the materialized views of reductions."""
_log = logging.getLogger("quacklake.pond")


@dataclass(frozen=True, slots=True)
class Kept:
    """A reduction of a stored series: its query, and the materialized view that keeps its rows."""

    view: str
    time: str
    query: str
    refresh: str
    engine: str = "auto"

    @property
    def table(self) -> str:
        """The SQL name of the view."""
        return f"{SCHEMA}.{quote(self.view)}"


def numbers_of(schema: pa.Schema, time: str) -> list[str]:
    """Return the columns of numbers but for the time."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [each.name for each in schema if each.name != time and any(kind(each.type) for kind in kinds)]


def options_of(found: NodePath) -> ReducedOptions | None:
    """Return the options of a series that is a reduction of another; None for any other node."""
    if found.node.file_type is not EntryType.DYNAMIC or found.node.attribute(FACTORY) != ReducedSeries.name:
        return None
    return ReducedOptions.of(found.node.attribute(CONFIG) or {})


def kept(fs: FS, options: ReducedOptions) -> Kept | None:
    """Return how the reduction of a stored series is kept; None for a computed one, whose changes nobody knows."""
    found = fs.get(options.source)
    if found.node.file_type is not EntryType.SERIES:
        return None
    schema: TableSchema = fs.backend.lake.table(table_of(found.path)).info.schema
    time = options.time_column or str(found.node.attribute(TIMESTAMP_COLUMN))
    where = time_filter(time, *bounds_of(found.node))
    arrow = schema.to_arrow()
    shown = transformed([name for name in arrow.names if name != time], steps_of(fs, options.transforms))
    plain = numbers_of(arrow, time)
    values = {each.name: each.value for column, each in shown.items() if column in plain or each.is_number}
    query = options.reduction.query(table_of(found.path), time, list(values), where, values)
    mark = query if options.engine == "auto" else f"{query} on {options.engine}"
    name = view_name(found.path, options.reduction.resolution, mark)
    return Kept(name, time, query, options.refresh, options.engine)


def rows_of(relations: Relations, options: ReducedOptions) -> str:
    """Return the rows of a reduction as SQL: those of its view when that is up to date, else computed."""
    known = kept(relations.fs, options)
    if known is not None:
        current = is_current(relations.tx, known)
        return f"SELECT * FROM {known.table} ORDER BY {quote(known.time)}" if current else known.query
    found = relations.fs.get(options.source)
    name = relations.name(found)
    if options.transforms:
        columns = selected(relations.columns(name), steps_of(relations.fs, options.transforms))
        name = f"(SELECT {columns} FROM {name})"
    schema = relations.tx.sql(f"SELECT * FROM {name} LIMIT 0").to_arrow().schema
    time = require_column(schema.names, options.time_column, found.path)
    return options.reduction.query(name, time, numbers_of(schema, time))


def is_current(state: LakeReader, known: Kept) -> bool:
    """Return whether the rows of a view are the answer of its query at a state or in a transaction."""
    return known.table in state and state.table(known.table).is_current()


# -- keeping them up to date -------------------------------------------------------------------------------------------


def refresh(pond: Pond, fs: FS, found: NodePath) -> str | None:
    """Bring the view of a reduction up to date, making it first. Return the way it took; None when it is not kept.

    ``fs`` is the state in which the node was found. A failure is logged, and the rows are then computed for each
    reader; so they are when the pond is open for reading only.
    """
    if pond.read_only:
        return None
    try:
        known = _find_kept(fs, found)
        return None if known is None else _bring(pond, known)
    except QuacklakeError as error:
        _log.warning("could not refresh %s: %s", found.path, error.message, extra=error_facts(error, path=found.path))
        return None


def _bring(pond: Pond, known: Kept) -> str:
    lake = pond.lake
    if known.table in lake.materialized_views:
        with suppress(StaleViewError):
            return lake.refresh(known.table).way
        lake.materialized_views.drop(known.table)  # a column of the series has another type
    if SCHEMA not in lake.schemas():
        with suppress(AlreadyExistsError):
            lake.create_schema(SCHEMA)
    when = "on commit" if known.refresh == ON_COMMIT else "manual"
    lake.create_materialized_view(known.table, known.query, refresh=when, engine=known.engine, if_not_exists=True)
    return "created"


def reduced_nodes(fs: FS) -> Iterator[NodePath]:
    """Yield every series that is a reduction of another."""
    for found in fs.glob("**/*"):
        if options_of(found) is not None:
            yield found


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The report of the upkeep of reductions: how many are up to date, changed now, and dropped."""

    current: int
    refreshed: int
    dropped: int


def maintain(pond: Pond) -> Upkeep:
    """Bring every reduction up to date, and drop the views that no node needs."""
    fs = pond.fs()
    ways = [way for found in reduced_nodes(fs) if (way := refresh(pond, fs, found)) is not None]
    dropped = 0
    if SCHEMA in pond.lake.schemas():
        wanted = {known.view for found in reduced_nodes(fs) if (known := _find_wanted(fs, found)) is not None}
        for table in pond.lake.tables(SCHEMA):
            name = table.removeprefix(f"{SCHEMA}.")
            if name not in wanted:
                pond.lake.materialized_views.drop(f"{SCHEMA}.{quote(name)}", if_exists=True)
                dropped += 1
    return Upkeep(ways.count("none"), len(ways) - ways.count("none"), dropped)


def _find_kept(fs: FS, found: NodePath) -> Kept | None:
    options = options_of(found)
    return None if options is None else kept(fs, options)


def _find_wanted(fs: FS, found: NodePath) -> Kept | None:
    try:
        return _find_kept(fs, found)
    except QuacklakeError:  # the series is gone, or has other columns
        return None
