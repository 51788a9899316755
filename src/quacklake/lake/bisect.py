"""Find the commit after which a check fails, by a binary search over the snapshots of a lake.

>>> from quacklake.extend.example import example_lake
>>> with example_lake() as lake:
...     found = bisect(lake, "SELECT * FROM events WHERE id > 4")
...     found.good, found.bad, found.rows.column("id").to_pylist()
(2, 3, [10, 11])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import pyarrow as pa

from quacklake.core import duckdb_versions
from quacklake.core.engines.duckdb.rendering import render
from quacklake.core.engines.duckdb.trees import Node, constant_of, serialize
from quacklake.core.operations.versions import Version
from quacklake.core.progress import Progress, silent
from quacklake.errors import InputError, NotFoundError, SnapshotExpiredError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.result import Result
    from quacklake.lake.lake import Lake, LakeAt

Check: TypeAlias = "str | Callable[[LakeAt], bool]"
"""A query that returns the bad rows, or one boolean that is true while all is well; or a function of a past lake."""

MAX_ROWS = 10
"""The bad rows that are read, unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """The commit that broke a check.

    ``bad`` is the first snapshot at which the check fails, and ``good`` the one before it. ``commit`` has the columns
    of ``Lake.snapshots`` for ``bad``: its time, author, message, operation and description. ``rows`` are the first bad
    rows there, if the check says which rows are bad. At the snapshots ``skipped`` the check could not run, as its table
    did not exist; they count as good.
    """

    good: int
    bad: int
    commit: Mapping[str, Any]
    checks: int
    skipped: tuple[int, ...] = ()
    rows: pa.Table | None = None


def bisect(
    lake: Lake,
    check: Check,
    good: Version | None = None,
    bad: Version | None = None,
    *,
    rows: int = MAX_ROWS,
    progress: Progress = silent,
) -> Bisection:
    """Return the first snapshot after ``good`` at which a check fails; see ``Lake.bisect``."""
    history = lake.snapshots()
    ids: list[int] = history.column("snapshot_id").to_pylist()
    low = 0 if good is None else _find_index(lake, ids, good)
    high = len(ids) - 1 if bad is None else _find_index(lake, ids, bad)
    if low >= high:
        raise InputError(
            f"the good snapshot {ids[low]} is not older than the bad snapshot {ids[high]}",
            hint="pass good= with a snapshot before the fault, and bad= with one after it",
        )
    search = _Search(lake, check, progress, total=2 + (high - low - 1).bit_length())
    if search.check(ids[high]):
        raise InputError(f"the check does not fail at snapshot {ids[high]}", hint="pass bad= with one where it fails")
    if not search.check_if_possible(ids[low]):
        raise InputError(f"the check fails at snapshot {ids[low]}, too", hint="pass good= with an older one")
    while high - low > 1:
        middle = (low + high) // 2
        if search.check_if_possible(ids[middle]):
            low = middle
        else:
            high = middle
    commit = history.slice(high, 1).to_pylist()[0]
    bad_rows = search.find_bad_rows(ids[high], rows)
    return Bisection(ids[low], ids[high], commit, search.count, tuple(sorted(search.skipped)), bad_rows)


def _find_index(lake: Lake, ids: list[int], version: Version) -> int:
    return ids.index(lake.handle.at_version(version).tx.base.id)


@dataclass
class _Search:
    """Runs a check at snapshots, and counts how often."""

    lake: Lake
    condition: Check
    progress: Progress
    total: int
    count: int = 0
    skipped: list[int] = field(default_factory=list)

    def check(self, version: int) -> bool:
        """Return True if all is well at a snapshot."""
        self.progress("checked snapshots", self.count, self.total)
        self.count += 1
        past = self.lake.at(version=version)
        good = _run_query(past, self.condition) if isinstance(self.condition, str) else self.condition(past)
        self.progress("checked snapshots", self.count, self.total)
        return bool(good)

    def check_if_possible(self, version: int) -> bool:
        """Return True as well if the check cannot run at a snapshot, as a table or column does not exist there."""
        try:
            return self.check(version)
        except SnapshotExpiredError:
            raise
        except NotFoundError:
            pass
        except SqlError as error:
            if not isinstance(error.__cause__, duckdb.CatalogException | duckdb.BinderException):
                raise
        self.skipped.append(version)
        return True

    def find_bad_rows(self, version: int, limit: int) -> pa.Table | None:
        """Return the first bad rows at a snapshot; None if the check does not say which rows are bad."""
        if not isinstance(self.condition, str):
            return None
        past = self.lake.at(version=version)
        with closing(duckdb_versions.connect()) as connection:
            text = find_counted_rows(connection, self.condition)
        result = past.sql(text or self.condition)
        return None if text is None and _is_verdict(result) else _read_first(result, limit)


def _run_query(past: LakeAt, query: str) -> bool:
    """Return True if the one boolean that a query returns is true, or if it returns no rows, which would be bad."""
    result = past.sql(query)
    rows = result.fetchmany(2)
    if not _is_verdict(result):
        return not rows
    if len(rows) != 1:
        raise InputError(
            "a check returns one boolean, or the rows that are bad",
            hint="write SELECT count(*) = 0 FROM t WHERE …, or SELECT * FROM t WHERE …",
        )
    return rows[0][0] is not False  # NULL says nothing


def _is_verdict(result: Result) -> bool:
    return [field.type for field in result.schema] == [pa.bool_()]


def _read_first(result: Result, limit: int) -> pa.Table:
    batches, count = [], 0
    for batch in result.to_batches():
        batches.append(batch.slice(0, limit - count))
        count += batches[-1].num_rows
        if count == limit:
            break
    return pa.Table.from_batches(batches, result.schema)


def find_counted_rows(connection: duckdb.DuckDBPyConnection, query: str) -> str | None:
    """Return the query of the rows that a check counts, if it compares their number with zero.

    >>> find_counted_rows(duckdb_versions.connect(), "SELECT count(*) = 0 FROM t WHERE price < 0")
    'SELECT * FROM t WHERE (price < 0)'
    """
    document = serialize(connection, query)
    if document["error"] or len(document["statements"]) != 1:
        return None
    tree: Node = document["statements"][0]
    node = tree["node"]
    if node["type"] != "SELECT_NODE" or node["group_expressions"] or node["having"] or len(node["select_list"]) != 1:
        return None
    comparison = node["select_list"][0]
    if comparison["type"] != "COMPARE_EQUAL" or not _counts_all(comparison["left"]):
        return None
    zero = constant_of(comparison["right"])
    if zero is None or zero.value != 0:
        return None
    node["select_list"] = serialize(connection, "SELECT *")["statements"][0]["node"]["select_list"]
    return render(connection, tree)


def _counts_all(node: Node) -> bool:
    return node.get("function_name") in ("count", "count_star") and not node["children"] and not node.get("filter")
