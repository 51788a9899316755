"""The visible part of a table as a query, and a barrier between it and the expressions of a user.

DuckDB reorders conditions, and moves them below subqueries, common tables and views. A condition of a user that fails,
or that prints what it is given, would then meet hidden rows. So visible rows are copied into a temporary table first,
whenever an expression of a user follows: no optimizer moves a condition into a statement that has already run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from quacklake.core.format.names import quote
from quacklake.core.format.schema import Column
from quacklake.core.scan.feed import FEED_COLUMNS, FeedPlan
from quacklake.core.scan.plan import Restriction, ScanPlan
from quacklake.core.scan.visibility import Visible, value_name
from quacklake.errors import CancelledError, MemoryLimitError, NotPermittedError, QuacklakeError

#: The virtual columns that say nothing about hidden rows.
_HARMLESS = frozenset({"rowid", "snapshot_id"})
_WHOLE = "_ql_whole"


def barrier_name(prefix: str) -> str:
    """Return the name of the temporary table for the visible rows of a scan."""
    return f"{prefix}_visible"


def check_virtual(plan: ScanPlan, virtual: Mapping[str, str]) -> None:
    """Raise ``NotPermittedError`` for a virtual column that tells of hidden rows, or is called like a hidden column."""
    for name in virtual:
        if name not in _HARMLESS or plan.whole.schema.get(name) is not None:
            raise NotPermittedError(f'the column "{name}" is not there where rows or columns are hidden')


def visible_sql(inner: str, shown: Restriction, columns: Sequence[Column], beside: Sequence[str]) -> str:
    """Return the query of the visible rows of ``inner``, with the names of its other columns ``beside`` them."""
    return _select_visible(inner, shown, {column.name: column for column in columns}, {name: name for name in beside})


def new_rows_sql(inner: str, visible: Visible, columns: Sequence[Column], beside: Sequence[str]) -> str:
    """Return the query of rows that a table does not have yet, as far as they would be visible in it."""
    shown = _Shown(visible.condition, visible.values())
    return _select_visible(inner, shown, {column.name: column for column in columns}, {name: name for name in beside})


def visible_feed_sql(inner: str, plan: FeedPlan, whole: FeedPlan) -> str:
    """Return the query of the visible changes among those of the whole table."""
    shown, first = plan.rows.restriction, len(FEED_COLUMNS)
    assert shown is not None
    named = dict(
        zip(
            (column.name for column in whole.schema.columns[first:]),
            whole.rows.schema.columns,
            strict=True,
        )
    )
    titles = dict(
        zip(
            (column.name for column in plan.rows.schema.columns),
            (column.name for column in plan.schema.columns[first:]),
            strict=True,
        )
    )
    return _select_visible(
        inner, shown, named, {column.name: column.name for column in FEED_COLUMNS}, titles, first=True
    )


@dataclass(frozen=True)
class _Shown:
    """A condition and values, as a ``Restriction`` has them."""

    condition: str | None
    values: Mapping[str, str]


def _select_visible(
    inner: str,
    shown: Restriction | _Shown,
    columns: Mapping[str, Column],
    beside: Mapping[str, str],
    titles: Mapping[str, str] | None = None,
    *,
    first: bool = False,
) -> str:
    """Return a query in two steps, so that no name of the user's columns is mistaken for one of the whole table's."""
    renamed = [f"{quote(name)} AS {value_name(column)}" for name, column in columns.items()]
    kept = [f"_ql_b{at}" for at in range(len(beside))]
    renamed += [f"{quote(name)} AS {as_}" for name, as_ in zip(beside, kept, strict=True)]
    values = [f"{sql} AS {quote((titles or {}).get(name, name))}" for name, sql in shown.values.items()]
    others = [f"{as_} AS {quote(name)}" for name, as_ in zip(beside.values(), kept, strict=True)]
    select = ", ".join([*others, *values] if first else [*values, *others]) or "1"
    where = "" if shown.condition is None else f" WHERE {shown.condition}"
    return f"SELECT {select} FROM (SELECT {', '.join(renamed)} FROM ({inner})) AS {_WHOLE}{where}"


def behind_barrier(connection: duckdb.DuckDBPyConnection, prefix: str, query: str) -> str:
    """Copy visible rows into a temporary table; return the query that reads them."""
    name = barrier_name(prefix)
    with hiding():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
    return f"SELECT * FROM temp.main.{name}"


@contextmanager
def hiding() -> Iterator[None]:
    """Raise an error without values for whatever fails while hidden rows are read."""
    try:
        yield
    except (CancelledError, MemoryLimitError):
        raise
    except duckdb.InterruptException:
        raise CancelledError("the read was cancelled") from None
    except duckdb.OutOfMemoryException:
        raise MemoryLimitError("there is not enough memory for the visible rows of a table") from None
    except (duckdb.Error, QuacklakeError, OSError):
        raise NotPermittedError(
            "a row filter or mask of a table cannot be computed, so that nothing of the table can be shown",
            hint="an administrator finds the cause by reading the table",
        ) from None
