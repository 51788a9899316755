"""Histories of a lake with materialized views: random queries, random changes, refreshes at random moments.

After every refresh the view must equal the answer that plain DuckDB gives to its query over Arrow copies of the tables
at the snapshot at which the view stands. Refreshes come from two handles, from two threads at once, and from other
processes, some of which are killed; on Spark or on DuckDB (``tests.prove.spark_views``). Changes are inserts, late inserts, updates, deletes, merges, alters, compactions,
rollbacks, restores and expiry. A history comes from its seed.
"""

from __future__ import annotations

import random
import re
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

import quacklake
from quacklake import Lake
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.core.materialized import registry
from quacklake.core.operations.reference import TableRef
from quacklake.errors import NotFoundError, QuacklakeError, StaleViewError
from tests.crash.forks import Child, Forks
from tests.prove.places import Places
from tests.prove.view_queries import Queries

__all__ = ["HISTORIES", "Tally", "refresh_alone", "round_of_views", "view_history"]

STEPS = 14
"""The most steps of a history."""
HISTORIES = 10
"""Histories of a round."""
_TABLES = {
    "a": "id INTEGER, k VARCHAR, g INTEGER, ts TIMESTAMP, x INTEGER, f DOUBLE, d DECIMAL(10, 2), i INTERVAL",
    "b": "id INTEGER, name VARCHAR, w INTEGER",
    "c": "id INTEGER, k VARCHAR, x BIGINT",
}
_KEYS = ("NULL", "'p'", "'q'", "'r'", "'ä''\"'", "''", "'P'", "'Ä''\"'", "'a\u0308''\"'", "'Q'")
_INTERVALS = ("NULL", "INTERVAL 1 MONTH", "INTERVAL 30 DAYS", "INTERVAL 720 HOURS", "INTERVAL 1 DAY")


class Reading(Protocol):
    """Stock DuckDB."""

    def run(self, url: str, *statements: str) -> list[tuple[Any, ...]]: ...


@dataclass
class Tally:
    """The counts of a round; ``ways`` and ``engines`` count the refreshes by the way that they took, and by engine."""

    histories: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    engines: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0
    failures: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, given: dict[str, Any]) -> Tally:
        """Return the tally that was written as JSON."""
        return cls(**{name: Counter(each) if isinstance(each, dict) else each for name, each in given.items()})

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.steps += other.steps
        self.ways += other.ways
        self.engines += other.engines
        self.comparisons += other.comparisons
        self.failures += other.failures


# -- a history ---------------------------------------------------------------------------------------------------------


class _History:
    def __init__(
        self, url: str, folder: Path, seed: str, forks: Forks | None, options: dict[str, Any], *, spark: bool
    ) -> None:
        self.url, self.folder, self.options = url, folder, options
        self.forks = None if url.startswith("duckdb") else forks  # one process has a DuckDB file open
        self.chance = random.Random(seed)
        self.queries = Queries(self.chance)
        more: dict[str, Any] = {"data_inlining_row_limit": 0} if spark and random.Random(seed).random() < 0.6 else {}
        self.lakes = [self._open(**more), self._open(**more, **({"view_spark_bytes": 0} if spark else {}))]
        self.turns = [*self.lakes, *self.lakes[1:] * 2] if spark else self.lakes
        self.views: dict[str, str] = {}
        self.columns: dict[str, list[str]] = {}
        self.told: list[str] = []
        self.tally = Tally(histories=1)
        self.kept: list[int] = []
        self.spare = 0
        self.read: dict[tuple[int, str], pa.Table] = {}

    def _open(self, **more: Any) -> Lake:
        return quacklake.connect(self.url, data_path=self.folder / "data", duckdb_threads=1, **self.options, **more)

    @property
    def lake(self) -> Lake:
        return self.chance.choice(self.turns)

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def sql(self, text: str, lake: Lake | None = None) -> None:
        self.told.append(text)
        (lake or self.lake).sql(text)

    def go(self, steps: int) -> None:
        with self.lakes[0].transaction() as tx:
            for name, columns in _TABLES.items():
                for text in (f"CREATE TABLE {name} ({columns})", self._insert(name)):
                    self.told.append(text)
                    tx.sql(text)
        for _ in range(self.chance.choice((1, 2, 3))):
            self.create()
        kinds = list(_STEPS)
        for _ in range(steps):
            kind = self.chance.choices(kinds, [_STEPS[each] for each in kinds])[0]
            self.tally.steps[kind] += 1
            getattr(self, kind)()
        for name in sorted(self.views):
            self.refresh(name)
        if self.chance.random() < _VERIFIED:
            for found in self.lakes[0].materialized_views.verify():
                assert found.ok, (found, found.rows.to_pylist()[:5])

    # -- changes -------------------------------------------------------------------------------------------------------

    def _number(self, most: int = 12) -> str:
        return "NULL" if self.chance.random() < 0.1 else str(self.chance.randrange(-2, most))

    def _time(self) -> str:
        if self.chance.random() < 0.08:
            return self.chance.choice(("NULL", "TIMESTAMP 'infinity'"))
        return f"TIMESTAMP '2024-01-0{self.chance.randint(1, 5)} {self.chance.randrange(24):02}:{self.chance.randrange(60):02}:00'"

    def _row(self, table: str) -> str:
        key, id_, x = self.chance.choice(_KEYS), self._number(8), self._number()
        if table == "b":
            return f"({id_}, {key}, {x})"
        if table == "c":
            return f"({id_}, {key}, {x})"
        f = (
            self.chance.choice(("NULL", "'nan'::DOUBLE", "0.0::DOUBLE", "'-0.0'::DOUBLE"))
            if self.chance.random() < 0.2
            else f"{self.chance.randrange(40) / 4}::DOUBLE"
        )
        return f"({id_}, {key}, {self._number(4)}, {self._time()}, {x}, {f}, {self.chance.randrange(500) / 100}, {self.chance.choice(_INTERVALS)})"

    def insert(self) -> None:
        self.sql(self._insert(self.chance.choice("aaabc")))

    def _insert(self, table: str) -> str:
        count = self.chance.choice((1, 2, 5, 25, 60))
        rows = ", ".join(self._row(table) for _ in range(count))
        columns = {"a": "id, k, g, ts, x, f, d, i", "b": "id, name, w", "c": "id, k, x"}[table]
        return f"INSERT INTO {table} ({columns}) VALUES {rows}"

    def _some(self, table: str) -> str:
        number = "w" if table == "b" else "x"
        key = "name" if table == "b" else "k"
        return self.chance.choice(
            (
                f"{number} = {self.chance.randrange(10)}",
                f"{key} = 'p'",
                f"{key} IS NULL",
                f"id < {self.chance.randrange(6)}",
            )
        )

    def update(self) -> None:
        table = self.chance.choice("aaabc")
        number = "w" if table == "b" else "x"
        key = "name" if table == "b" else "k"
        changed = self.chance.choice(
            (f"{number} = {number} + 1", f"{key} = {self.chance.choice(_KEYS)}", "id = id + 1")
        )
        if table == "a" and self.chance.random() < 0.4:
            changed = self.chance.choice((f"ts = {self._time()}", "f = -f", f"i = {self.chance.choice(_INTERVALS)}"))
        self.sql(f"UPDATE {table} SET {changed} WHERE {self._some(table)}")

    def delete(self) -> None:
        table = self.chance.choice("aabc")
        self.sql(
            f"DELETE FROM {table} WHERE {self._some(table)}" if self.chance.random() < 0.95 else f"DELETE FROM {table}"
        )

    def merge(self) -> None:
        rows = ", ".join(
            f"({n}, {self.chance.choice(_KEYS)}, {self._number()})" for n in self.chance.sample(range(8), 4)
        )
        self.sql(
            f"MERGE INTO b USING (VALUES {rows}) AS s(id, name, w) ON b.id = s.id"
            " WHEN MATCHED AND s.w > 4 THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name"
            " WHEN NOT MATCHED THEN INSERT (id, name, w) VALUES (s.id, s.name, s.w)"
        )

    def several(self) -> None:
        with self.lake.transaction() as tx:
            for _ in range(3):
                table = self.chance.choice("abc")
                statement = self.chance.choice(
                    (
                        f"DELETE FROM {table} WHERE {self._some(table)}",
                        f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 2",
                    )
                )
                self.told.append(f"  in one: {statement}")
                tx.sql(statement)

    def alter(self) -> None:
        table, kind = self.chance.choice("abc"), self.chance.randrange(4)
        if kind == 0:
            self.spare += 1
            lake = self.lake
            # a name that queries give to their columns, or one that nobody has
            new = [f"extra{self.spare}", *{"c0", "c1", "key"}.difference(lake.table(table).schema.names)]
            self.sql(f"ALTER TABLE {table} ADD COLUMN {self.chance.choice(sorted(new))} INTEGER DEFAULT 7", lake)
        elif kind == 1 and self.spare:
            lake = self.lake
            known = [name for name in lake.table(table).schema.names if name.startswith("extra")]
            if known:
                self.sql(f"ALTER TABLE {table} DROP COLUMN {known[0]}", lake)
        elif kind == 2:
            self.sql(f"ALTER TABLE {table} RENAME TO {table}_away")
            self.sql(f"INSERT INTO {table}_away SELECT * FROM {table}_away WHERE id = 1")
            if self.chance.random() < 0.5:
                for name in sorted(self.views):
                    self._attempt(name, self.lake)
            self.sql(f"ALTER TABLE {table}_away RENAME TO {table}")
        else:
            number = "w" if table == "b" else "x"
            self.sql(f"ALTER TABLE {table} RENAME COLUMN {number} TO away")
            self.sql(f"DELETE FROM {table} WHERE away = 3")
            for name in sorted(self.views):
                if self.chance.random() < 0.5:
                    self._attempt(name, self.lake)
            self.sql(f"ALTER TABLE {table} RENAME COLUMN away TO {number}")

    def repartition(self) -> None:
        by = self.chance.choice(("SET PARTITIONED BY (k)", "SET PARTITIONED BY (g, k)", "RESET PARTITIONED BY"))
        self.sql(f"ALTER TABLE a {by}")

    def recreate(self) -> None:
        """Drop a table, and create another one under its name."""
        table = self.chance.choice("bc")
        self.sql(f"DROP TABLE {table}")
        if self.chance.random() < 0.3:
            for name in sorted(self.views):
                self._attempt(name, self.lake)
        self.sql(f"CREATE TABLE {table} ({_TABLES[table]})")
        self.sql(self._insert(table))

    def retype(self) -> None:
        self.sql("ALTER TABLE b ALTER COLUMN w SET DATA TYPE BIGINT")
        for name in [name for name, query in self.views.items() if self._reads(name, "b")]:
            if name in self.views:
                self._drop(name)

    def _reads(self, name: str, table: str) -> bool:
        query = self.views[name]
        return f" {table} " in f"{query} " or any(
            f" {other} " in f"{query} " and self._reads(other, table) for other in self.views if other != name
        )

    def _drop(self, name: str) -> None:
        for other in list(self.views):
            if other != name and other in self.views and f"FROM {name}" in self.views[other]:
                self._drop(other)
        self.sql(f"DROP MATERIALIZED VIEW {name}")
        del self.views[name], self.columns[name]

    def compact(self) -> None:
        lake, table = self.lake, self.chance.choice(["a", "b", "c", *sorted(self.views)])
        kind = self.chance.randrange(4)
        self.told.append(f"compact {table} {kind}")
        if kind == 0:
            lake.maintenance.flush_inlined_data()
        elif kind == 1:
            lake.table(table).merge_adjacent_files()
        elif kind == 2:
            lake.table(table).rewrite_data_files(delete_threshold=0.0)
        else:
            lake.sql("CHECKPOINT")

    def remember(self) -> None:
        self.kept.append(self.lakes[0].current_snapshot())

    def restore(self) -> None:
        lake, table = self.lake, self.chance.choice("abc")
        if not self.kept:
            return
        to = self.chance.choice(self.kept)
        self.told.append(f"restore {table} to {to}")
        self._tolerant(lambda: lake.table(table).restore(to))

    def rollback(self) -> None:
        lake = self.lake
        if not self.kept:
            return
        to = self.chance.choice(self.kept)
        before = set(self.views)
        self.told.append(f"rollback to {to}")
        self._tolerant(lambda: lake.rollback(to))
        there = {name.removeprefix("main.") for name in lake.materialized_views.names()}
        for name in before - there:
            del self.views[name], self.columns[name]

    def _tolerant(self, work: Any) -> None:
        try:
            work()
        except QuacklakeError as error:
            self.told.append(f"  refused: {error.message}")

    def expire(self) -> None:
        keep = self.chance.choice((1, 3, 8))
        self.told.append(f"expire all but {keep}")
        self.lake.expire_snapshots(keep_last=keep)
        self.kept.clear()
        if self.chance.random() < 0.5:
            self.lake.cleanup_old_files(cleanup_all=True)

    # -- views ---------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        if len(self.views) >= 4:
            return self.drop()
        query, columns = self.queries.make(self.columns)
        name = f"v{self.tally.steps['made']}"
        self.tally.steps["made"] += 1
        when = self.chance.choice(("", "", "REFRESH ON COMMIT"))
        keys = " PARTITIONED BY (c0)" if self.chance.random() < 0.15 and not re.search(r"ts|[\[{]", query) else ""
        self.sql(f"CREATE MATERIALIZED VIEW {name}{keys} {when} AS {query}")
        self.views[name], self.columns[name] = query, columns
        self.check(name)

    def drop(self) -> None:
        if self.views:
            self._drop(self.chance.choice(sorted(self.views)))

    def refresh(self, name: str | None = None) -> None:
        if not self.views:
            return
        for each in [name] if name is not None else sorted(self.views):
            if name is not None or self.chance.random() < 0.6:
                self._attempt(each, self.lake, full=self.chance.random() < 0.03)

    def _attempt(self, name: str, lake: Lake, *, full: bool = False) -> None:
        self.told.append(f"refresh {name}{' full' if full else ''}")
        try:
            report = lake.refresh(name, full=full)
        except StaleViewError as error:
            self.told.append(f"  stale: {error.message}")
            lake.table(name).count()
            return
        told = f"{report.way} on {report.engine}: {report.reason}, keys {report.keys}"
        self.told.append(f"  {told}, -{report.deleted} +{report.inserted}")
        self.tally.ways[report.way] += 1
        self.tally.engines[report.engine] += 1
        self.check(name)

    def together(self) -> None:
        """Refresh a view from two handles at once."""
        if not self.views:
            return
        name = self.chance.choice(sorted(self.views))
        self.told.append(f"refresh {name} twice at once")
        errors: list[BaseException] = []

        def run(lake: Lake) -> None:
            try:
                lake.refresh(name)
            except StaleViewError:
                pass
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(lake,)) for lake in self.lakes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        self.check(name)

    def elsewhere(self) -> None:
        """Refresh a view in another process, while this one refreshes it, changes its tables, or waits."""
        if not self.views or self.forks is None:
            return
        name, kind = self.chance.choice(sorted(self.views)), self.chance.choice(("refresh", "insert", "update", "wait"))
        self.told.append(f"refresh {name} in another process, and here {kind}")
        child = self._start(name)
        if kind == "refresh":
            self._attempt(name, self.lake)
        elif kind != "wait":
            getattr(self, kind)()
        ended = child.wait()
        assert ended.code == 0, ended.errors
        self.check(name)

    def _start(self, name: str, fault: str | None = None) -> Child:
        assert self.forks is not None
        given = {"url": self.url, "data": str(self.folder / "data"), "options": self.options}
        return self.forks.start("tests.prove.views:refresh_alone", **given, name=name, fault=fault)

    def interrupted(self) -> None:
        """End a refresh at a random point, by an error or by the death of its process."""
        if not self.views:
            return
        name, at = self.chance.choice(sorted(self.views)), self.chance.randint(1, 60)
        if self.forks is not None and self.chance.random() < 0.5:
            self.told.append(f"refresh {name} in a process killed at point {at}")
            ended = self._start(name, f"{at}:kill").wait()
            assert ended.code in (0, -signal.SIGKILL), ended.errors
        else:
            self.told.append(f"refresh {name}, failing at point {at}")
            try:
                with arm(Fault(at=at)):
                    self.lake.refresh(name)
            except (FaultInjected, StaleViewError):
                pass
        self.check(name)

    # -- the judge -----------------------------------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """Compare a view with what plain DuckDB answers at the snapshot at which the view stands."""
        lake, query = self.lake, self.views[name]
        context = lake._context
        position = registry.get(context, context.latest(), TableRef("main", name)).position
        assert position is not None
        try:
            tables = {
                table: self._rows(lake, position.snapshot, table)
                for table in [*_TABLES, *self.views]
                if f" {table} " in f"{query} ".replace(",", " ")
            }
        except NotFoundError:
            return  # expired: the next refresh is full
        expected = _answer(tables, self.queries.plain.get(query, query))
        actual = lake.sql(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {name}").fetchall()
        self.tally.comparisons += 1
        loose = self._is_loose(name)
        assert _sorted(actual, loose) == _sorted(expected, loose), (
            f"{name} at {position.snapshot}: {query}\n  missing {_less(expected, actual, loose)}"
            f"\n  unexpected {_less(actual, expected, loose)}"
        )

    def _rows(self, lake: Lake, snapshot: int, name: str) -> pa.Table:
        """Return a table as it was, with the names of then that it was created with."""
        if (snapshot, name) not in self.read:
            past = lake.at(version=snapshot)
            if name in _TABLES and f"main.{name}" not in past.tables():
                found = past.table(f"{name}_away").to_arrow()
            else:
                found = past.table(name).to_arrow()
            self.read[snapshot, name] = found
        return self.read[snapshot, name]

    def _is_loose(self, name: str) -> bool:
        """True for a view with a variance: its last digits depend on the order of the rows."""
        query = self.views[name]
        return "var_pop" in query or any(
            self._is_loose(other) for other in self.views if other != name and f"FROM {other}" in query
        )


_oracle: list[duckdb.DuckDBPyConnection] = []


def _answer(tables: dict[str, pa.Table], query: str) -> list[tuple[Any, ...]]:
    """Return what plain DuckDB answers; of the tables of a history, it knows the columns that they had at first."""
    if not _oracle:
        _oracle.append(duckdb.connect(config={"threads": 1}))
    for name, rows in tables.items():
        first = [part.split()[0] for part in re.split(r", (?=[a-z])", _TABLES.get(name, "")) if part]
        listed = ", ".join(each if each in rows.column_names else f"away AS {each}" for each in first) or "*"
        _oracle[0].register("ql_rows", rows)
        _oracle[0].execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {listed} FROM ql_rows")
        _oracle[0].unregister("ql_rows")
    return _oracle[0].execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})").fetchall()


#: The weight of each step.
_STEPS = {
    "insert": 8, "update": 6, "delete": 5, "merge": 2, "several": 2, "alter": 1, "retype": 0.2, "compact": 2,
    "remember": 1, "restore": 1, "rollback": 0.6, "expire": 0.6, "create": 1.2, "refresh": 4, "together": 1,
    "interrupted": 1.2, "elsewhere": 0.8, "repartition": 0.5, "recreate": 0.3,
}  # fmt: skip
_VERIFIED = 0.25
"""The share of histories at whose end all views are verified, too."""


def _sorted(rows: list[tuple[Any, ...]], loose: bool) -> list[str]:
    # equal values, and DuckDB's files keep one of them
    texts = (_EQUAL.sub(lambda found: "0.0" if found[0] == "-0.0" else "thirty days", str(row)) for row in rows)
    if loose:
        texts = (_LONG.sub(lambda number: f"{float(number[0]):.9g}", text) for text in texts)
    return sorted(texts)


_EQUAL = re.compile(r"(?<!\d)-0\.0(?!\d)|'?(?<!\d)(?:1 month|30 days|720:00:00)(?!\w)'?")
_LONG = re.compile(r"-?\d+\.\d{10,}(e[+-]?\d+)?")


def _less(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]], loose: bool) -> list[str]:
    return list((Counter(_sorted(one, loose)) - Counter(_sorted(other, loose))).elements())[:5]


def refresh_alone(url: str, data: str, options: dict[str, Any], name: str, fault: str | None) -> str:
    """Refresh a view in a process of its own; return the way. A stale view is none of its errors."""
    with quacklake.connect(url, data_path=data, duckdb_threads=1, **options) as lake:
        try:
            if fault is None:
                return lake.refresh(name).way
            with arm(Fault.parse(fault)):
                return lake.refresh(name).way
        except StaleViewError:
            return "stale"


def view_history(
    url: str,
    folder: Path,
    seed: str,
    steps: int = STEPS,
    stock: Reading | None = None,
    *,
    forks: Forks | None = None,
    options: dict[str, Any] | None = None,
    spark: bool = False,
) -> Tally:
    """Make a lake and a history of at most so many steps in it; ``AssertionError`` tells them when a view is wrong.

    With ``forks``, some refreshes are those of other processes; with ``spark``, one of the two handles lets the active
    session of Spark compute what it can.
    """
    run = _History(url, folder, seed, forks, options or {}, spark=spark)
    try:
        run.go(run.chance.randint((steps + 1) // 2, steps))
        shown = {
            name: run.lakes[0].sql(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {name}").fetchall()
            for name in (run.views if stock is not None else ())
        }
    except Exception as error:
        told = "\n".join(run.told)
        raise AssertionError(f"history {seed} on {url}: {type(error).__name__}: {error}\n{told}") from error
    finally:
        run.close()
    for name, rows in shown.items() if stock is not None else ():
        found = stock.run(url, f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM l.{name}") if stock is not None else []
        assert _sorted(found, False) == _sorted(rows, False), (
            f"history {seed} on {url}: stock DuckDB reads another {name}"
        )
    return run.tally


def round_of_views(
    places: Places,
    stock: Reading | None,
    forks: Forks | None,
    database: str,
    count: int,
    seed: str,
    *,
    spark: bool = False,
) -> Tally:
    """So many histories: some each in a lake of its own, and some in catalogs of one lake."""
    total = Tally()
    common = places.new(database)
    for number in range(count):
        mine = seed if number == 0 else f"{seed}.{number}"
        shared = random.Random(mine).random() < 0.4
        home = common if shared else places.new(database)
        options: dict[str, Any] = {"catalog": f"acme{number}", "create": True} if shared else {}
        try:
            found = view_history(
                home.url,
                home.data.parent,
                mine,
                stock=None if shared else stock,
                forks=forks,
                options=options,
                spark=spark,
            )
        except AssertionError as error:
            total.add(Tally(histories=1, failures=[str(error)]))
            continue
        total.add(found)
        if not shared:
            places.remove(home)
    if not total.failures:
        places.remove(common)
    return total
