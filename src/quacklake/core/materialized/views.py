"""The materialized views of a lake: create, refresh, list, describe, verify and drop them."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from quacklake.core.format.objects import MATERIALIZED_VIEW, TableInfo
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.materialized import refresh as refreshing
from quacklake.core.materialized import registry
from quacklake.core.materialized.definition import ON_COMMIT, MaterializedView, RefreshReport, Schedule
from quacklake.core.materialized.past import stood_at
from quacklake.core.materialized.query import Analysis
from quacklake.core.materialized.survey import StaleError, survey
from quacklake.core.materialized.verify import Verification, verify_view
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import Handle, LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, QuacklakeError
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.materialized")
_POLL = 1.0
"""Seconds between looks at what is due."""

_LISTED = pa.schema(
    [
        ("name", pa.string()),
        ("refresh", pa.string()),
        ("bases", pa.list_(pa.string())),
        ("snapshot", pa.int64()),
        ("lag", pa.int64()),
        ("way", pa.string()),
        ("refreshed", pa.timestamp("us", "UTC")),
        ("stale", pa.string()),
    ]
)


def is_current(handle: Handle, table: TableInfo) -> bool:
    """Return whether the rows of a view are the answer of its query at a state; False where it is no view."""
    context, base = handle.context, handle.view().base
    view = registry.find(context, base, TableRef(table.schema_name, table.name))
    if view is None or view.position is None or view.position.stale is not None or view.position.committed > base.id:
        return False
    try:
        return not survey(context, view, base).changed
    except StaleError:
        return False


@boundary
class MaterializedViews:
    """The materialized views of a lake: ``lake.materialized_views``."""

    def __init__(self, handle: LakeHandle) -> None:
        handle.check_whole("materialized views")
        self.handle = handle

    # -- looking -------------------------------------------------------------------------------------------------------

    def list(self) -> pa.Table:
        """Return every view: its tables, when it is refreshed, where it stands, and by how many snapshots it lags."""
        latest = self.handle.context.latest()
        rows = []
        for view in self._views(latest):
            at = view.position
            rows.append(
                {
                    "name": view.name,
                    "refresh": str(view.definition.schedule),
                    "bases": [f"{base.schema}.{base.name}" for base in view.definition.bases],
                    "snapshot": None if at is None else at.snapshot,
                    "lag": self._lag(view, latest),
                    "way": None if at is None else at.way,
                    "refreshed": None if at is None else at.refreshed,
                    "stale": None if at is None else at.stale,
                }
            )
        return pa.Table.from_pylist(rows, _LISTED)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a view of a name: ``"totals" in lake.materialized_views``."""
        context = self.handle.context
        return isinstance(name, str) and registry.find(context, context.latest(), TableRef.parse(name)) is not None

    def names(self) -> Sequence[str]:
        """Return the names of the views."""
        return [view.name for view in self._views(self.handle.context.latest())]

    def describe(self, name: str, version: int | str | None = None) -> dict[str, Any]:
        """Return what is known of a view: query, tables, position, lag, last refresh and way of refreshing.

        ``version`` asks for a past snapshot: at which snapshot of its tables the view stood then.
        """
        if version is not None:
            return self._past(name, version)
        latest = self.handle.context.latest()
        view = self._get(name, latest)
        at = view.position
        analysis = self._analysis(view)
        return {
            "name": view.name,
            "query": view.definition.query,
            "bases": [f"{base.schema}.{base.name}" for base in view.definition.bases],
            "refresh": str(view.definition.schedule),
            "engine": view.definition.engine,
            "way": "full" if analysis is None else analysis.way,
            "reason": None if analysis is None else analysis.reason,
            "snapshot": None if at is None else at.snapshot,
            "lag_snapshots": self._lag(view, latest),
            "lag_rows": self._lag_rows(view, latest),
            "last_refresh": None if at is None else at.refreshed,
            "last_way": None if at is None else at.way,
            "last_reason": None if at is None else at.reason,
            "last_rows": None if at is None else at.rows,
            "last_seconds": None if at is None else at.seconds,
            "stale": None if at is None else at.stale,
        }

    def _past(self, name: str, version: int | str) -> dict[str, Any]:
        past = self.handle.at(version).tx
        view = self._get(name, past.base)
        with self.handle.context.catalog.read() as reader:
            stood = stood_at(reader, view.definition.id, past.base.id)
        return {
            "name": view.name,
            "query": view.definition.query,
            "bases": [f"{base.schema}.{base.name}" for base in view.definition.bases],
            "version": past.base.id,
            "snapshot": None if stood is None else stood[0],
        }

    def _analysis(self, view: MaterializedView) -> Analysis | None:
        try:
            return refreshing.analysis_of(self.handle, view)
        except (StaleError, QuacklakeError):
            return None

    def _lag(self, view: MaterializedView, latest: Snapshot) -> int | None:
        return None if view.position is None else max(latest.id - view.position.snapshot, 0)

    def _lag_rows(self, view: MaterializedView, latest: Snapshot) -> int | None:
        """Return the number of changed rows that the view lacks; None when the changes cannot be read."""
        try:
            found = survey(self.handle.context, view, latest)
        except StaleError:
            return None
        if found.since is None:
            return None
        return sum(refreshing.count_changes(self.handle, base, found.since) for base in found.bases if base.changed)

    # -- changing ------------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        query: str,
        *,
        refresh: str = "manual",
        engine: str = "auto",
        full: bool = False,
        partition_by: str | Sequence[str] = (),
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> RefreshReport | None:
        """Create a view and fill it; see ``Lake.create_materialized_view``."""
        if not isinstance(query, str):
            raise InputError(f"a query must be a string, not {type(query).__name__}")
        ref = TableRef.parse(name)
        request = refreshing.Request(
            ref,
            query.strip().rstrip(";"),
            ref.schema,
            schedule=Schedule.parse(refresh),
            engine=engine,
            full=full,
            partition_by=(partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
            replace=replace,
            if_not_exists=if_not_exists,
        )
        return refreshing.create(self.handle, request)

    def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view with its rows. Raise ``NotFoundError``."""
        ref = TableRef.parse(name)

        def work(tx: Transaction) -> None:
            view = registry.find(self.handle.context, tx.base, ref)
            if view is None and if_exists:
                return
            view = registry.get(self.handle.context, tx.base, ref) if view is None else view
            tx.upkeep = True
            tx.drop_table(view.table)
            tx.forget(view.stream)

        self.handle.run(work)

    def alter(self, name: str, *, refresh: str) -> None:
        """Set when a view is refreshed."""
        ref, schedule = TableRef.parse(name), Schedule.parse(refresh)

        def work(tx: Transaction) -> None:
            view = registry.get(self.handle.context, tx.base, ref)
            tx.upkeep = True
            changed = replace(view.definition, schedule=schedule)
            tx.objects.set_tags(view.table, {MATERIALIZED_VIEW: changed.to_json()})

        self.handle.run(work)

    def refresh(self, name: str, *, full: bool = False) -> RefreshReport:
        """Bring a view to the newest snapshot, after the views that it reads; ``full`` computes it anew."""
        latest = self.handle.context.latest()
        view = self._get(name, latest)
        below = self._below(view, latest)
        for each in below:
            refreshing.refresh(self.handle, _ref(each))
        return refreshing.refresh(self.handle, _ref(view), full=full, known=None if below else (latest, view))

    def explain(self, name: str) -> RefreshReport:
        """Return what a refresh would do, without doing it."""
        return refreshing.explain(self.handle, TableRef.parse(name))

    def verify(self, name: str | None = None) -> Sequence[Verification]:
        """Compare a view, or all, with a full computation at the snapshot at which each stands."""
        latest = self.handle.context.latest()
        chosen = self._views(latest) if name is None else [self._get(name, latest)]
        return [verify_view(self.handle, _ref(view)) for view in chosen]

    def refresh_due(self, *, tables: Iterable[int] | None = None) -> Sequence[RefreshReport]:
        """Refresh what the schedules ask for, in the order in which views read each other.

        With the ids of ``tables``, only ``on commit`` views over these. A view that fails does not hold up the others.
        """
        latest, now = self.handle.context.latest(), dt.datetime.now(dt.UTC)
        views = self._views(latest)
        changed = None if tables is None else set(tables)
        reports = []
        for view in _order_by_use(views):
            if changed is None:
                due = view.due(now)
            else:
                due = view.definition.schedule.kind == ON_COMMIT and self._reads(view, latest, changed)
            if not due:
                continue
            try:
                report = refreshing.refresh(self.handle, _ref(view))
            except QuacklakeError as error:
                _log.warning(
                    "could not refresh %s: %s", view.name, error.message, extra=error_facts(error, view=view.name)
                )
                continue
            if report.way != "none":
                reports.append(report)
                if changed is not None:
                    changed.add(view.table.id)
        return reports

    @contextmanager
    def keep_refreshed(self, done: Callable[[RefreshReport], None], poll: float = _POLL) -> Iterator[None]:
        """Refresh what is due, in a thread of its own, for as long as the block runs. A failure is logged."""
        stop = threading.Event()

        def run() -> None:
            while not stop.is_set():
                try:
                    for report in self.refresh_due():
                        done(report)
                except QuacklakeError as error:
                    _log.warning("could not look for views that are due: %s", error.message, extra=error_facts(error))
                stop.wait(poll)

        thread = threading.Thread(target=run, name="quacklake-views")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _reads(self, view: MaterializedView, latest: Snapshot, tables: set[int]) -> bool:
        context = self.handle.context
        found = (registry.table_of(context, latest, b.uuid, b.schema, b.name) for b in view.definition.bases)
        return any(table is not None and table.id in tables for table in found)

    def _views(self, snapshot: Snapshot) -> Sequence[MaterializedView]:
        return registry.views(self.handle.context, snapshot)

    def _get(self, name: str, snapshot: Snapshot) -> MaterializedView:
        return registry.get(self.handle.context, snapshot, TableRef.parse(name))

    def _below(self, view: MaterializedView, latest: Snapshot) -> Sequence[MaterializedView]:
        """Return the views that a view reads, directly or through others, in the order of refreshing."""
        context, found = self.handle.context, dict[int, MaterializedView]()
        known = context.tables.tagged(latest, MATERIALIZED_VIEW)
        pending = [view]
        while pending:
            for base in pending.pop().definition.bases:
                table = registry.table_of(context, latest, base.uuid, base.schema, base.name)
                if table is not None and table.id in known and table.id not in found:
                    found[table.id] = registry.get(context, latest, TableRef(table.schema_name, table.name))
                    pending.append(found[table.id])
        return _order_by_use(list(found.values()))


def _ref(view: MaterializedView) -> TableRef:
    return TableRef(view.table.schema_name, view.table.name)


def _order_by_use(views: Sequence[MaterializedView]) -> Sequence[MaterializedView]:
    """Return views so that each comes after those that it reads."""
    left = {view.table.uuid: view for view in views}
    found: list[MaterializedView] = []
    while left:
        free = [view for view in left.values() if not any(base.uuid in left for base in view.definition.bases)]
        for view in free or list(left.values()):
            found.append(left.pop(view.table.uuid))
    return found


def after_commit(handle: LakeHandle, tables: Iterable[int]) -> None:
    """Refresh the ``on commit`` views over tables that a commit of this process has changed. Raise nothing."""
    try:
        context = handle.context
        known = registry.definitions(context, context.recent or context.latest())
        if any(definition.schedule.kind == ON_COMMIT for definition in known.values()):
            MaterializedViews(handle).refresh_due(tables=tables)
    except Exception as error:  # the commit is made, whatever happens here
        _log.warning("could not refresh materialized views after a commit: %s", error, extra=error_facts(error))
