"""Histories of a lake with materialized views: random queries, random changes, refreshes at random moments.

After every refresh the view must equal the answer that plain DuckDB gives to its query over Arrow copies of the tables
at the snapshot at which the view stands. Refreshes come from two handles, from two threads at once, and from processes
that are killed; changes are inserts, late inserts, updates, deletes, merges, alters, compactions, rollbacks, restores
and expiry. A history comes from its seed.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb

import quacklake
from quacklake import Lake
from quacklake.errors import QuacklakeError, StaleViewError
from quacklake.faults import Fault, FaultInjected, arm
from tests.prove.places import Places

__all__ = ["HISTORIES", "Tally", "round_of_views", "view_history"]

STEPS = 14
HISTORIES = 10
"""Histories of a round."""
_TABLES = {
    "a": "id INTEGER, k VARCHAR, g INTEGER, ts TIMESTAMP, x INTEGER, f DOUBLE, d DECIMAL(10, 2)",
    "b": "id INTEGER, name VARCHAR, w INTEGER",
    "c": "id INTEGER, k VARCHAR, x BIGINT",
}
_KEYS = ("NULL", "'p'", "'q'", "'r'", "'ä''\"'", "''")
_AGGREGATES = (
    "count(*)",
    "count({p}x)",
    "sum({p}x)",
    "min({p}x)",
    "max({p}x)",
    "count(DISTINCT {p}x)",
    "sum({p}x) FILTER ({p}x > 3)",
    "bool_or({p}x > 5)",
    "bit_xor({p}x)",
    "max({p}k)",
    "sum({p}x) + count(*)",
    "median({p}x)",
)
_OF_A = ("avg(a.x)", "sum(a.f)", "sum(a.d)", "max(a.ts)", "avg(a.d)", "min(a.f)", "var_pop(a.x)", "histogram(a.g)")


class Reading(Protocol):
    """Stock DuckDB."""

    def run(self, url: str, *statements: str) -> list[tuple[Any, ...]]: ...


@dataclass
class Tally:
    """The counts of a round; ``ways`` counts the refreshes by the way that they took."""

    histories: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.steps += other.steps
        self.ways += other.ways
        self.comparisons += other.comparisons


# -- queries -----------------------------------------------------------------------------------------------------------


class Queries:
    """Random queries of the grammar that views follow."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def make(self, views: dict[str, list[str]]) -> tuple[str, list[str]]:
        """Return a query and the names of its columns; ``views`` are those that it may read."""
        kinds = [self._rows, self._groups, self._groups, self._join, self._union, self._distinct, self._total]
        kinds += [self._self_join, self._window, self._join, self._nested]
        if views and self.chance.random() < 0.25:
            return self._over(views)
        return self.chance.choice(kinds)()

    def _where(self, p: str = "") -> str:
        found = self.chance.choice(
            ("", "", f"{p}x > 4", f"{p}k IS NOT NULL", f"{p}k IN ('p', 'q')", f"{p}id % 3 <> 0 OR {p}x IS NULL")
        )
        return f" WHERE {found}" if found else ""

    def _rows(self) -> tuple[str, list[str]]:
        items = self.chance.sample(["id", "k", "g", "ts", "x", "f", "d", "x * 2", "coalesce(k, 'none')", "f / 4"], 3)
        names = [f"c{n}" for n in range(3)]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        return f"SELECT {listed} FROM a{self._where()}", names

    def _keys(self, p: str) -> list[str]:
        buckets = [f"date_trunc('hour', {p}ts)", f"time_bucket(INTERVAL '6 hours', {p}ts)", f"CAST({p}ts AS DATE)"]
        return self.chance.sample([f"{p}k", f"{p}g", f"{p}x % 3", *buckets], self.chance.choice((1, 1, 2, 3)))

    def _groups(self) -> tuple[str, list[str]]:
        p = "a."
        keys = self._keys(p)
        merging = self.chance.random() < 0.4
        known = _AGGREGATES[:5] if merging else (*_AGGREGATES, *_OF_A)
        made = [each.format(p=p) for each in self.chance.sample(known, self.chance.choice((1, 2, 3)))]
        if merging and self.chance.random() < 0.4:
            made = ["sum(a.x)", "count(a.x)", "avg(a.x)"]
        items = [*keys, *made]
        names = [f"c{n}" for n in range(len(items))]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        grouped = self.chance.choice(("ALL", ", ".join(keys), ", ".join(str(n + 1) for n in range(len(keys)))))
        having = " HAVING count(*) > 2" if self.chance.random() < 0.2 else ""
        return f"SELECT {listed} FROM a{self._where(p)} GROUP BY {grouped}{having}", names

    def _joined(self) -> tuple[str, list[str]]:
        """Return FROM with a join, and the columns for keys."""
        kind = self.chance.choice(("JOIN", "LEFT JOIN"))
        first = f"a {kind} b ON a.id = b.id" if self.chance.random() < 0.6 else f"a {kind} b USING (id)"
        if self.chance.random() < 0.3:
            return f"{first} {self.chance.choice(('JOIN', 'LEFT JOIN'))} c ON c.k = a.k", [
                "a.k",
                "a.g",
                "b.name",
                "c.x",
            ]
        return first, ["a.k", "a.g", "b.name", "b.w"]

    def _join(self) -> tuple[str, list[str]]:
        source, columns = self._joined()
        where = self.chance.choice(("", "", " WHERE b.id IS NULL", " WHERE b.w > 2", " WHERE a.x > 3"))
        if self.chance.random() < 0.3:
            items = ["a.k", "a.x", *self.chance.sample(columns[2:], 1)]
            listed = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
            return f"SELECT {listed} FROM {source}{where}", ["c0", "c1", "c2"]
        keys = ["a.k", *self.chance.sample(columns[1:], self.chance.choice((0, 1, 2)))]
        made = self.chance.choice((["count(*)"], ["sum(a.x)", "count(b.w)"], ["max(b.w)", "min(b.name)"]))
        items = [*keys, *made]
        listed = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
        return f"SELECT {listed} FROM {source}{where} GROUP BY ALL", [f"c{n}" for n in range(len(items))]

    def _self_join(self) -> tuple[str, list[str]]:
        query = "SELECT l.k AS c0, count(*) AS c1 FROM c AS l JOIN c AS r ON l.id = r.id GROUP BY l.k"
        return query, ["c0", "c1"]

    def _nested(self) -> tuple[str, list[str]]:
        where = self._where()
        query = self.chance.choice(
            (
                f"WITH t AS (SELECT k AS key, x * 2 AS y FROM a{where} ) SELECT key AS c0, sum(y) AS c1 FROM t GROUP BY key",
                f"SELECT s.k AS c0, max(b.w) AS c1 FROM (SELECT id, k FROM a{where} ) AS s JOIN b ON s.id = b.id GROUP BY s.k",
                f"SELECT c0, c1 FROM (SELECT g AS c0, f / 2 AS c1, x FROM a{where} ) WHERE x < 9",
            )
        )
        return query, ["c0", "c1"]

    def _window(self) -> tuple[str, list[str]]:
        query = "SELECT k AS c0, id AS c1, sum(x) OVER (PARTITION BY k ORDER BY id, x) AS c2 FROM c"
        return query, ["c0", "c1", "c2"]

    def _union(self) -> tuple[str, list[str]]:
        if self.chance.random() < 0.5:
            query = "SELECT k AS c0, x AS c1 FROM a WHERE x > 2 UNION ALL SELECT k, x FROM c"
        else:
            query = (
                "SELECT k AS c0, sum(x) AS c1 FROM a GROUP BY k UNION ALL SELECT name, count(*) FROM b GROUP BY name"
            )
        return query, ["c0", "c1"]

    def _distinct(self) -> tuple[str, list[str]]:
        return f"SELECT DISTINCT k AS c0, g AS c1 FROM a{self._where()}", ["c0", "c1"]

    def _total(self) -> tuple[str, list[str]]:
        query = f"SELECT count(*) AS c0, sum(x) AS c1, max(k) AS c2 FROM {self.chance.choice('ac')}{self._where()}"
        return query, ["c0", "c1", "c2"]

    def _over(self, views: dict[str, list[str]]) -> tuple[str, list[str]]:
        name = self.chance.choice(sorted(views))
        first, last = views[name][0], views[name][-1]
        if self.chance.random() < 0.4:
            return f"SELECT {first} AS c0, {last} AS c1 FROM {name}", ["c0", "c1"]
        return f"SELECT {first} AS c0, count(*) AS c1, max({last}) AS c2 FROM {name} GROUP BY {first}", [
            "c0",
            "c1",
            "c2",
        ]


# -- a history ---------------------------------------------------------------------------------------------------------


class _History:
    def __init__(self, url: str, folder: Path, seed: str, *, killing: bool, options: dict[str, Any]) -> None:
        self.url, self.folder, self.options, self.killing = url, folder, options, killing
        self.chance = random.Random(seed)
        self.queries = Queries(self.chance)
        self.lakes = [self._open(), self._open()]
        self.views: dict[str, str] = {}
        self.columns: dict[str, list[str]] = {}
        self.told: list[str] = []
        self.tally = Tally(histories=1)
        self.kept: list[int] = []
        self.spare = 0

    def _open(self) -> Lake:
        return quacklake.connect(self.url, data_path=self.folder / "data", duckdb_threads=1, **self.options)

    @property
    def lake(self) -> Lake:
        return self.chance.choice(self.lakes)

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def sql(self, text: str, lake: Lake | None = None) -> None:
        self.told.append(text)
        (lake or self.lake).sql(text)

    def go(self, steps: int) -> None:
        for name, columns in _TABLES.items():
            self.sql(f"CREATE TABLE {name} ({columns})")
            self.insert(name)
        for _ in range(self.chance.choice((1, 2, 3))):
            self.create()
        kinds = list(_STEPS)
        for _ in range(steps):
            kind = self.chance.choices(kinds, [_STEPS[each] for each in kinds])[0]
            self.tally.steps[kind] += 1
            getattr(self, kind)()
        for name in sorted(self.views):
            self.refresh(name)
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
            if self.chance.random() < 0.1
            else f"{self.chance.randrange(40) / 4}::DOUBLE"
        )
        return f"({id_}, {key}, {self._number(4)}, {self._time()}, {x}, {f}, {self.chance.randrange(500) / 100})"

    def insert(self, table: str | None = None) -> None:
        table = table or self.chance.choice("aaabc")
        count = self.chance.choice((1, 2, 5, 25, 60))
        rows = ", ".join(self._row(table) for _ in range(count))
        columns = {"a": "id, k, g, ts, x, f, d", "b": "id, name, w", "c": "id, k, x"}[table]
        self.sql(f"INSERT INTO {table} ({columns}) VALUES {rows}")

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
        if table == "a" and self.chance.random() < 0.3:
            changed = f"ts = {self._time()}"
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
            self.sql(f"ALTER TABLE {table} ADD COLUMN extra{self.spare} INTEGER DEFAULT 7")
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
        keys = " PARTITIONED BY (c0)" if self.chance.random() < 0.15 and "ts" not in query else ""
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
        self.told.append(f"  {report.way}: {report.reason}, keys {report.keys}, -{report.deleted} +{report.inserted}")
        self.tally.ways[report.way] += 1
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

    def interrupted(self) -> None:
        """End a refresh at a random point, by an error or by the death of its process."""
        if not self.views:
            return
        name = self.chance.choice(sorted(self.views))
        if self.killing and self.chance.random() < 0.3 and not self.url.startswith("duckdb"):
            point = f"{self.chance.randint(1, 60)}:kill"
            self.told.append(f"refresh {name} in a process killed at {point}")
            code = (
                "import sys, quacklake\n"
                f"lake = quacklake.connect({self.url!r}, data_path={str(self.folder / 'data')!r}, **{self.options!r})\n"
                f"lake.refresh({name!r})\n"
            )
            subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | {"QUACKLAKE_FAULT": point},
                check=False,
                capture_output=True,
            )
        else:
            at = self.chance.randint(1, 60)
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
        lake = self.lake
        at = lake.materialized_views.describe(name)["snapshot"]
        try:
            past = lake.at(version=at)
        except QuacklakeError:
            return  # expired: the next refresh is full
        oracle = duckdb.connect(config={"threads": 1})
        try:
            query = self.views[name]
            for table in [*_TABLES, *self.views]:
                if f" {table} " in f"{query} ".replace(",", " "):
                    oracle.register("ql_rows", past.table(table).to_arrow())
                    oracle.execute(f"CREATE TABLE {table} AS FROM ql_rows")
            expected = oracle.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})").fetchall()
        except quacklake.errors.NotFoundError:
            return  # a table had another name then
        finally:
            oracle.close()
        actual = lake.sql(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {name}").fetchall()
        self.tally.comparisons += 1
        assert _sorted(actual) == _sorted(expected), (
            f"{name} at {at}: {query}\n  missing {_less(expected, actual)}\n  unexpected {_less(actual, expected)}"
        )


#: The weight of each step.
_STEPS = {
    "insert": 8, "update": 6, "delete": 5, "merge": 2, "several": 2, "alter": 1, "retype": 0.2, "compact": 2,
    "remember": 1, "restore": 1, "rollback": 0.6, "expire": 0.6, "create": 1.2, "refresh": 4, "together": 1,
    "interrupted": 1.2,
}  # fmt: skip


def _sorted(rows: list[tuple[Any, ...]]) -> list[str]:
    # equal values: DuckDB's files keep one of them; and a variance depends on the order of the rows in its last digits
    texts = (str(row).replace("'-0.0'", "'0.0'") for row in rows)
    return sorted(_LONG.sub(lambda number: f"{float(number[0]):.9g}", text) for text in texts)


_LONG = re.compile(r"-?\d+\.\d{10,}(e[+-]?\d+)?")


def _less(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> list[str]:
    return list((Counter(_sorted(one)) - Counter(_sorted(other))).elements())[:5]


def view_history(
    url: str,
    folder: Path,
    seed: str,
    steps: int = STEPS,
    stock: Reading | None = None,
    *,
    killing: bool = True,
    options: dict[str, Any] | None = None,
) -> Tally:
    """Make a lake and a history in it; ``AssertionError`` tells the steps when a view is wrong."""
    run = _History(url, folder, seed, killing=killing, options=options or {})
    try:
        run.go(steps)
        shown = {
            name: run.lakes[0].sql(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {name}").fetchall() for name in run.views
        }
    except Exception as error:
        told = "\n".join(run.told)
        raise AssertionError(f"history {seed} on {url}: {type(error).__name__}: {error}\n{told}") from error
    finally:
        run.close()
    for name, rows in shown.items() if stock is not None else ():
        found = stock.run(url, f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM l.{name}") if stock is not None else []
        assert _sorted(found) == _sorted(rows), f"history {seed} on {url}: stock DuckDB reads another {name}"
    return run.tally


def round_of_views(places: Places, stock: Reading | None, database: str, count: int, seed: str) -> Tally:
    """So many histories, each in a lake of its own, every other one a catalog of a shared lake."""
    total = Tally()
    for number in range(count):
        home = places.new(database)
        mine = seed if number == 0 else f"{seed}.{number}"
        shared = random.Random(mine).random() < 0.4
        options: dict[str, Any] = {"catalog": "acme", "create": True} if shared else {}
        total.add(view_history(home.url, home.data.parent, mine, stock=None if shared else stock, options=options))
        places.remove(home)
    return total
