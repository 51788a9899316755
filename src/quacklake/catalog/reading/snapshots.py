"""Reading snapshots and what each changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quacklake import telemetry
from quacklake.catalog import scoped
from quacklake.catalog.columns import readable_time
from quacklake.catalog.shared_tables import SharedTables
from quacklake.catalog.statements import CatalogStatements
from quacklake.errors import NotFoundError, UnsupportedVersionError
from quacklake.format.objects import Limits
from quacklake.format.snapshots import Change, Operation, Snapshot, SnapshotInfo, operations_of, parse_changes

_LATEST = "latest_snapshot"
LATEST = ("snapshot", _LATEST)
"""Where the cache of a catalog has the statement that finds the newest snapshot."""
LIMITS = "limits"
"""Where the cache of a catalog has the limits that were read last."""
_FACTS = 5
"""How many columns a snapshot has."""


class SnapshotQueries:
    """Reads the snapshots of a lake."""

    def __init__(self, sql: CatalogStatements) -> None:
        self._sql = sql
        self._t = sql._t
        self._database = sql._database

    def columns(self) -> list[sa.ColumnElement[Any]]:
        table = self._t["snapshot"]
        time = readable_time(table.c.snapshot_time, self._database.name, "snapshot_time")
        return [table.c.snapshot_id, time, table.c.schema_version, table.c.next_catalog_id, table.c.next_file_id]

    def _select_snapshot(self, name: str, build: Any, parameters: Mapping[str, Any]) -> Snapshot | None:
        statement = self._sql.cached(
            ("snapshot", name), lambda: build().add_columns(self._version(), *self._limit_columns())
        )
        return self._snapshot(self._sql.run(name, statement, parameters).first())

    def _snapshot(self, row: Sequence[Any] | None) -> Snapshot | None:
        if row is None:
            return None
        facts, version, texts = row[:_FACTS], row[_FACTS], row[_FACTS + 1 :]
        if version is not None and version != self._t.version:
            raise UnsupportedVersionError(
                f"the lake was migrated to the format version {version} by another connection",
                hint="open it again",
            )
        if texts:
            self._sql.limits = self._sql._cache[LIMITS] = Limits.of(*texts)
        return Snapshot(*facts)

    def _version(self) -> sa.ColumnElement[Any]:
        """Return the version of the lake as a column, which is read with every snapshot.

        A client that opened the lake at another version must not go on with it.
        """
        table = self._t["metadata"]
        own = [table.c.scope.is_(None)] if "scope" in table.c else []
        version = sa.select(table.c.value).where(table.c.key == "version", *own)
        # a plain lake that became a shared one has several versions; the longest is the one that no client knows
        return version.order_by(sa.func.length(table.c.value).desc()).limit(1).scalar_subquery()

    def _limit_columns(self) -> list[sa.ColumnElement[Any]]:
        """Return the limits of a catalog of a shared lake as columns, which are read with every snapshot."""
        if not self._t.shared:
            return []
        tables = SharedTables.of(self._t.metadata.schema)
        own = sa.select(tables.catalog.c.limits).where(tables.catalog.c.catalog_id == scoped.bind)
        return [own.scalar_subquery(), sa.select(tables.shared.c.limits).scalar_subquery()]

    def latest(self) -> Snapshot:
        """Return the newest snapshot."""
        table = self._t["snapshot"]
        ahead, self._sql.ahead = self._sql.ahead, None
        if ahead is not None:
            telemetry.count("catalog.statements")
            newest = self._snapshot(next(iter(ahead), None))
        else:
            newest = self._select_snapshot(
                _LATEST,
                lambda: sa.select(*self.columns()).order_by(table.c.snapshot_id.desc()).limit(1),
                {},
            )
        if newest is None and self._t.shared:
            raise self._sql.catalog_dropped()
        if newest is None:
            raise NotFoundError("the lake has no snapshot", hint="its metadata may be only half copied")
        return newest

    def check_there(self) -> None:
        """Raise an error when the lake is no longer the one that was opened. Reading a snapshot checks this, too.

        That is ``NotFoundError`` for a catalog of a shared lake that was dropped, and ``UnsupportedVersionError`` for a
        plain lake that was migrated or has become a shared one, whose tables hold the rows of other catalogs too.
        """
        self.latest()

    def oldest(self) -> Snapshot | None:
        """Return the oldest snapshot that is kept."""
        table = self._t["snapshot"]
        return self._select_snapshot(
            "oldest_snapshot",
            lambda: sa.select(*self.columns()).order_by(table.c.snapshot_id).limit(1),
            {},
        )

    def oldest_unbroken(self) -> Snapshot:
        """Return the oldest snapshot after which none has expired: a tag may keep one that is older."""
        table = self._t["snapshot"]
        before = table.alias("before")
        gap = ~sa.exists().where(before.c.snapshot_id == table.c.snapshot_id - 1)
        statement = sa.select(*self.columns()).where(gap).order_by(table.c.snapshot_id.desc()).limit(1)
        return Snapshot(*self._sql.run("oldest_unbroken", statement).one())

    def times(self, versions: Collection[int]) -> dict[int, dt.datetime]:
        """Return when snapshots were made; those that are gone are missing."""
        if not versions:
            return {}
        wanted = sa.select(*self.columns()).where(self._t["snapshot"].c.snapshot_id.in_(sorted(versions)))
        return {row[0]: row[1] for row in self._sql.run("snapshot_times", wanted) if row[1] is not None}

    def at_version(self, version: int) -> Snapshot:
        """Return the snapshot with that id. Raise ``NotFoundError``, or ``SnapshotExpiredError`` when it is gone."""
        table = self._t["snapshot"]
        snapshot = self._select_snapshot(
            "snapshot_by_id",
            lambda: sa.select(*self.columns()).where(table.c.snapshot_id == sa.bindparam("version")),
            {"version": version},
        )
        if snapshot is None:
            if 0 <= version < self.latest().id:
                raise self._sql.expired(f"No snapshot found at version {version}: snapshot {version} has expired")
            raise NotFoundError(
                f"No snapshot found at version {version}", hint="lake.snapshots() lists those that exist"
            )
        return snapshot

    def at_time(self, time: dt.datetime, *, until: bool = False) -> Snapshot:
        """Return the newest snapshot made at or before a time.

        In 1.1 a time in the future is valid only for ranges that go ``until`` it. Raise ``SnapshotExpiredError`` when
        the snapshots of that time have expired, even though an older one is left.
        """
        table = self._t["snapshot"]
        snapshot = self._select_snapshot(
            "snapshot_by_time",
            lambda: (
                sa.select(*self.columns())
                .where(table.c.snapshot_time <= sa.bindparam("time", type_=table.c.snapshot_time.type))
                .order_by(table.c.snapshot_time.desc(), table.c.snapshot_id.desc())
                .limit(1)
            ),
            {"time": time},
        )
        if snapshot is None:
            if self._sql.run("first_snapshot", sa.select(table.c.snapshot_id).where(table.c.snapshot_id == 0)).first():
                raise NotFoundError(
                    f"No snapshot found at timestamp {time}: the first snapshot is newer",
                    hint="lake.snapshots() lists those that exist",
                )
            raise self._sql.expired(f"No snapshot found at timestamp {time}: those of that time have expired")
        if self._t.is_next and not until and time > max(snapshot.time or time, dt.datetime.now(dt.UTC)):
            raise NotFoundError(
                f"No snapshot found at timestamp {time}: it is in the future",
                hint="leave the time out for the newest snapshot",
            )
        if snapshot.time != time:
            later = sa.select(sa.func.min(table.c.snapshot_id)).where(table.c.snapshot_id > snapshot.id)
            if (self._sql.run("next_snapshot", later).scalar() or snapshot.id + 1) != snapshot.id + 1:
                why = f"the newest one then, after snapshot {snapshot.id}, has expired"
                raise self._sql.expired(f"No snapshot found at timestamp {time}: {why}")
        return snapshot

    def first_since(self, time: dt.datetime) -> int | None:
        """Return the id of the oldest snapshot made at or after a time, or None."""
        table = self._t["snapshot"]
        statement = sa.select(sa.func.min(table.c.snapshot_id)).where(
            table.c.snapshot_time >= sa.bindparam("time", type_=table.c.snapshot_time.type)
        )
        first: int | None = self._sql.run("first_snapshot_since", statement, {"time": time}).scalar()
        return first

    def all(self) -> list[SnapshotInfo]:
        """Return every snapshot with what it changed, oldest first."""
        snapshot, column = self._t["snapshot"], self._t.column
        statement = (
            sa.select(
                *self.columns()[:3],
                column("snapshot_changes", "changes_made"),
                column("snapshot_changes", "author"),
                column("snapshot_changes", "commit_message"),
                column("snapshot_changes", "commit_extra_info"),
            )
            .select_from(
                snapshot.outerjoin(
                    self._t["snapshot_changes"],
                    self._t["snapshot_changes"].c.snapshot_id == snapshot.c.snapshot_id,
                )
            )
            .order_by(snapshot.c.snapshot_id)
        )
        snapshots = [
            SnapshotInfo(row[0], row[1], row[2], parse_changes(row[3]), row[4], row[5], row[6])
            for row in self._sql.run("snapshots", statement)
        ]
        if not snapshots and self._t.shared:
            raise self._sql.catalog_dropped()
        return snapshots

    def changes_since(self, version: int) -> list[tuple[int, tuple[Change, ...]]]:
        """Return what every snapshot after ``version`` changed, in order."""
        table = self._t["snapshot_changes"]

        def build() -> Any:
            return (
                sa.select(table.c.snapshot_id, table.c.changes_made)
                .where(table.c.snapshot_id > sa.bindparam("version"))
                .order_by(table.c.snapshot_id)
            )

        rows = self._sql.run("changes_since", self._sql.cached("changes_since", build), {"version": version})
        return [(row[0], parse_changes(row[1])) for row in rows]

    def changes_between(self, first: int, last: int) -> dict[int, str | None]:
        """Return what the snapshots from ``first`` to ``last`` changed, as the catalog has it, in order.

        Expired ones are missing.
        """
        s, c = self._t["snapshot"], self._t["snapshot_changes"]
        statement = (
            sa.select(s.c.snapshot_id, c.c.changes_made)
            .select_from(s.outerjoin(c, c.c.snapshot_id == s.c.snapshot_id))
            .where(s.c.snapshot_id.between(first, last))
            .order_by(s.c.snapshot_id)
        )
        return {row[0]: row[1] for row in self._sql.run("changes_between", statement)}

    def operations(self) -> dict[int, Operation]:
        """Return the operations that made snapshots, by snapshot, where the tokens of their commits tell."""
        tokens = self._t.own["commits"]
        if not (self._t.shared or self._sql.has_table(tokens.name)):
            return {}
        operations: dict[int, Operation] = {}
        for snapshot, token in self._sql.run("tokens", sa.select(tokens.c.snapshot_id, tokens.c.token)):
            operations[snapshot] = operations.get(snapshot, Operation.NONE) | operations_of(str(token))
        return operations
