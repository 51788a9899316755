"""Find the catalogs of a shared lake that may need maintenance, with one statement per page instead of opening each."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.registry import Registry
from quacklake.catalog.statements import ROWS
from quacklake.catalog.tables import Instant, readable_time


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds for counts: files below ``small`` bytes, and files that lost the share ``worn`` of their rows."""

    small: int
    worn: float


@dataclass(frozen=True, slots=True)
class CatalogNeed:
    """The numbers that show whether a catalog may need maintenance.

    ``small_files`` and ``inlined_rows`` are the highest of any of its tables; times are those of the oldest. ``expire``
    and ``delete`` are options of the catalog; ``looked_ms`` is the time until which no search for orphans is needed.
    """

    id: int
    name: str
    small_files: int = 0
    worn_files: int = 0
    inlined_rows: int = 0
    inlined_since: dt.datetime | None = None
    snapshot_since: dt.datetime | None = None
    removable_since: dt.datetime | None = None
    expire: str | None = None
    delete: str | None = None
    looked_ms: int = 0


def needs(registry: Registry, after: int, limit: int, counted: Thresholds, orphans: int) -> list[CatalogNeed]:
    """Return the next catalogs by id; ``orphans`` is the lease for the search for orphans."""
    statement = _Statement(registry, after, limit, counted, orphans).build()
    return [_need(row) for row in registry.run("needs", statement)]


def _need(row: Any) -> CatalogNeed:
    id_, name, small, worn, inlined, inlined_since, removable, expire, delete, looked, snapshot = row
    numbers = (int(small or 0), int(worn or 0), int(inlined or 0))
    return CatalogNeed(id_, name, *numbers, inlined_since, snapshot, removable, expire, delete, int(looked or 0))


class _Statement:
    """The statement: a page of catalogs, joined with the numbers from each table of the lake."""

    def __init__(self, registry: Registry, after: int, limit: int, counted: Thresholds, orphans: int) -> None:
        self._tables = registry.meta
        self._database = registry.backend.name
        self._counted = counted
        self._orphans = orphans
        t = self._tables.catalog
        chosen = sa.select(t.c.catalog_id, t.c.catalog_name).where(t.c.dropped_ms.is_(None), t.c.catalog_id > after)
        self._page = chosen.order_by(t.c.catalog_id).limit(limit).cte("page")

    def build(self) -> sa.Select[Any]:
        page = self._page
        source: Any = page
        columns: list[Any] = [page.c.catalog_id, page.c.catalog_name]
        options = (self._option("expire_older_than"), self._option("delete_older_than"))
        parts = (self._small(), self._worn(), self._inlined(), self._removable(), *options, self._looked())
        for number, part in enumerate(parts):
            found = part.subquery(f"part_{number}")
            source = source.outerjoin(found, found.c.catalog_id == page.c.catalog_id)
            columns += [column for column in found.c if column.name != "catalog_id"]
        return sa.select(*columns, self._oldest()).select_from(source).order_by(page.c.catalog_id)

    def _of_page(self, table: sa.Table, *others: tuple[Any, Any]) -> Any:
        source = self._page.join(table, table.c.catalog_id == self._page.c.catalog_id)
        for other, condition in others:
            source = source.join(other, sa.and_(other.c.catalog_id == table.c.catalog_id, condition))
        return source

    def _small(self) -> sa.Select[Any]:
        f = self._tables["data_file"]
        small = sa.and_(f.c.end_snapshot.is_(None), f.c.file_size_bytes < self._counted.small)
        return _most(
            sa.select(f.c.catalog_id, sa.func.count().label("n")).select_from(self._of_page(f)).where(small), f
        )

    def _worn(self) -> sa.Select[Any]:
        f, d = self._tables["data_file"], self._tables["delete_file"]
        mine = sa.and_(f.c.data_file_id == d.c.data_file_id, f.c.end_snapshot.is_(None))
        worn = sa.and_(d.c.end_snapshot.is_(None), d.c.delete_count > 0)
        enough = d.c.delete_count >= self._counted.worn * f.c.record_count
        found = sa.select(d.c.catalog_id, sa.func.count().label("worn")).select_from(self._of_page(d, (f, mine)))
        return found.where(worn, enough).group_by(d.c.catalog_id)

    def _inlined(self) -> sa.Select[Any]:
        rows, t, s = self._tables.definitions[ROWS], self._tables["table"], self._tables["snapshot"]
        alive = sa.and_(t.c.table_id == rows.c.table_id, t.c.end_snapshot.is_(None))
        came = sa.and_(s.c.catalog_id == rows.c.catalog_id, s.c.snapshot_id == rows.c.begin_snapshot)
        source = self._of_page(rows, (t, alive)).outerjoin(s, came)
        count, since = sa.func.count().label("n"), self._first(s.c.snapshot_time)
        grouped = sa.select(rows.c.catalog_id, count, since).select_from(source)
        found = grouped.group_by(rows.c.catalog_id, rows.c.table_id).subquery()
        # Compare times in the form that the database stores, which may be text.
        oldest = sa.type_coerce(sa.func.min(found.c.since), Instant()).label("since")
        return sa.select(found.c.catalog_id, sa.func.max(found.c.n).label("n"), oldest).group_by(found.c.catalog_id)

    def _oldest(self) -> sa.ScalarSelect[Any]:
        s = self._tables["snapshot"]
        # One subquery per catalog: an index answers it, however many snapshots there are.
        mine = s.c.catalog_id == self._page.c.catalog_id
        return sa.select(self._first(s.c.snapshot_time)).where(mine).correlate(self._page).scalar_subquery()

    def _removable(self) -> sa.Select[Any]:
        f = self._tables["files_scheduled_for_deletion"]
        found = sa.select(f.c.catalog_id, self._first(f.c.schedule_start)).select_from(self._of_page(f))
        return found.group_by(f.c.catalog_id)

    def _option(self, name: str) -> sa.Select[Any]:
        m = self._tables["metadata"]
        found = sa.select(m.c.catalog_id, sa.func.max(m.c.value).label("value")).select_from(self._of_page(m))
        return found.where(m.c.key == name, m.c.scope.is_(None)).group_by(m.c.catalog_id)

    def _looked(self) -> sa.Select[Any]:
        leases = self._tables.definitions["quacklake_leases"]
        found = sa.select(leases.c.catalog_id, leases.c.expires_ms).select_from(self._of_page(leases))
        return found.where(leases.c.lease_id == self._orphans)

    def _first(self, time: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return the earliest of some times."""
        return readable_time(sa.func.min(time), self._database, "since").label("since")


def _most(counted: sa.Select[Any], table: sa.Table) -> sa.Select[Any]:
    """Return the highest count of any table of each catalog."""
    each = counted.group_by(table.c.catalog_id, table.c.table_id).subquery()
    return sa.select(each.c.catalog_id, sa.func.max(each.c.n).label("n")).group_by(each.c.catalog_id)
