"""Histories of one lake with two kinds of clients: ours and stock DuckDB, one step after the other.

A model of plain rows knows what every snapshot shows. Both clients read the newest snapshot again and again, and at the
end every table at every snapshot that is left; maintenance of either comes at any time. Names, numbers and kinds of
steps come from a seed, so that a history can be had again.

What stock DuckDB does wrong by itself is left out, with the reason beside it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow.parquet as pq

import quacklake
from quacklake import Lake
from quacklake.core.format.objects import NAME_ROW_ID, NAME_SNAPSHOT_ID
from tests.catalog.stock import attached, connect
from tests.prove.places import Places
from tests.removal_oracle import watching

__all__ = ["HISTORIES", "Here", "Reading", "Tally", "history", "round_of_histories"]

STEPS = 14
HISTORIES = 10
"""Histories of a round."""
_LOOK, _DEEP = 0.2, 0.3
"""The share of steps after which both read the newest snapshot, and of those that also verify the rows of files."""
_TYPES = {"INTEGER": (0, 1, -7, 2**31 - 1), "VARCHAR": ("", "a", "ä'\"\n", "NULL"), "DOUBLE": (0.5, -1e300, 3.0)}
_NAMES = ("a", "b", "c d", "select")
_FEW, _MANY = (1, 6), (15, 40)

#: Errors of stock DuckDB that are its own fault; nothing has changed then.
_OF_STOCK = (
    # it rewrites no table with inlined rows of doubles in SQLite, or of columns that came or were renamed later
    "Failed to read inlined-data aggregates",
)

Row = tuple[Any, ...]


class Reading(Protocol):
    """Stock DuckDB, in a separate process or in this one."""

    def run(self, url: str, *statements: str) -> list[Row]: ...

    def answers(self, url: str, *statements: str) -> list[list[Row]]: ...


@dataclass(frozen=True)
class Shown:
    """A table as a snapshot shows it: its columns with their types, and its rows by their keys."""

    id: int
    columns: tuple[tuple[str, str], ...]
    rows: dict[int, Row]
    partitioned: bool = False
    shared: bool = False
    """True when the table shares files with another table."""

    def with_rows(self, rows: dict[int, Row]) -> Shown:
        return Shown(self.id, self.columns, rows, self.partitioned, self.shared)

    def changed(self, **values: Any) -> Shown:
        return Shown(**{**self.__dict__, **values})


State = dict[str, Shown]


@dataclass
class Tally:
    """Counts of a proof."""

    histories: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    reads: int = 0

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.steps += other.steps
        self.reads += other.reads


def history(url: str, folder: Path, stock: Reading, seed: str, steps: int = STEPS) -> Tally:
    """Make a lake and a history in it; an ``AssertionError`` lists the steps if a client reads other rows."""
    run = _History(url, folder, stock, seed)
    with watching():
        try:
            run.go(steps)
        except Exception as error:
            told = "\n".join(run.told)
            raise AssertionError(f"history {seed} on {url}: {type(error).__name__}: {error}\n{told}") from error
        finally:
            run.lake.close()
    return run.tally


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value) if isinstance(value, int) else f"{value!r}::DOUBLE"


class _History:
    def __init__(self, url: str, folder: Path, stock: Reading, seed: str) -> None:
        self.url, self.folder, self.stock = url, folder, stock
        self.chance = random.Random(seed)
        self.outside = folder / "outside"
        self.outside.mkdir(parents=True)
        self.lake: Lake = quacklake.connect(
            url, data_path=folder / "data", foreign_paths=(str(self.outside),), duckdb_threads=1
        )
        self.now: State = {}
        self.dropped: State = {}
        self.past: dict[int, State] = {0: {}}
        self.told: list[str] = []
        self.tally = Tally(histories=1)
        self._next_key = self._next_name = 0
        self._doubled = False

    # -- the run -----------------------------------------------------------------------------------------------------

    def go(self, steps: int) -> None:
        kinds = list(_STEPS)
        weights = [weight for _, weight in _STEPS.values()]
        self._do("create")
        for _ in range(steps):
            self._do(self.chance.choices(kinds, weights)[0])
        self.check_past()

    def _do(self, kind: str) -> None:
        ours = self.chance.random() < 0.5
        try:
            done = _STEPS[kind][0](self, ours)
        except Exception as error:
            if any(known in str(error) for known in _OF_STOCK):
                self.tally.steps["refused by stock"] += 1
                return
            self.told.append(f"{'ours ' if ours else 'stock'} {kind} failed")
            raise
        if done is None:
            return
        self.told.append(f"{'ours ' if ours else 'stock'} {done}")
        self.tally.steps[f"{'ours' if ours else 'stock'} {kind}"] += 1
        self._note()
        if self.chance.random() < _LOOK:
            self.check_now()

    def _note(self) -> None:
        """Remember the state of the snapshots that came with a step, and forget those that are gone."""
        left = self._snapshots()
        for id_ in left:
            if id_ not in self.past:
                self.past[id_] = dict(self.now)
        for id_ in set(self.past).difference(left):
            del self.past[id_]
        assert max(left) == max(self.past)

    def _snapshots(self) -> list[int]:
        return [int(id_) for id_ in self.lake.snapshots().column("snapshot_id").to_pylist()]

    # -- who reads ---------------------------------------------------------------------------------------------------

    def check_now(self) -> None:
        """Both read every table of the newest snapshot."""
        self._compare({None: self.now})
        tables = {name.partition(".")[2] for name in self.lake.tables()}
        assert tables == set(self.now), f"tables {tables}"

    def check_past(self) -> None:
        """Both read every table of every snapshot."""
        self._compare(self.past)
        faults = self.lake.verify(deep=self.chance.random() < _DEEP).errors
        assert not faults, f"verify: {faults}"

    def _compare(self, states: dict[Any, State]) -> None:
        wanted = [(id_, name) for id_, state in states.items() for name in state]
        if not wanted:
            return
        queries = [self._query(id_, states[id_][name], name) for id_, name in wanted]
        theirs = self.stock.answers(self.url, *queries)
        for (id_, name), query, rows in zip(wanted, queries, theirs, strict=True):
            right = sorted(states[id_][name].rows.values(), key=repr)
            self.tally.reads += 2
            assert sorted(rows, key=repr) == right, _differ("stock DuckDB", query, rows, right)
            mine = self.lake.sql(query).fetchall()
            assert sorted(mine, key=repr) == right, _differ("quacklake", query, mine, right)

    def _query(self, id_: int | None, table: Shown, name: str) -> str:
        columns = ", ".join(_quote(column) for column, _ in table.columns)
        at = "" if id_ is None else f" AT (VERSION => {id_})"
        return f"SELECT {columns} FROM {_quote(name)}{at}"

    # -- helpers of steps ----------------------------------------------------------------------------------------------

    def sql(self, ours: bool, *statements: str) -> None:
        if ours:
            for statement in statements:
                self.lake.sql(statement)
        else:
            self.stock.run(self.url, *statements)

    def some_table(self) -> str | None:
        return self.chance.choice(sorted(self.now)) if self.now else None

    def new_name(self) -> str:
        self._next_name += 1
        return self.chance.choice((f"t{self._next_name}", f"T {self._next_name}"))

    def rows(self, columns: tuple[tuple[str, str], ...], count: int) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for _ in range(count):
            self._next_key += 1
            rest = [None if self.chance.random() < 0.2 else self.chance.choice(_TYPES[kind]) for _, kind in columns[1:]]
            found[self._next_key] = (self._next_key, *rest)
        return found

    def count(self) -> int:
        return self.chance.randint(*self.chance.choice((_FEW, _MANY)))

    def values(self, rows: dict[int, Row]) -> str:
        return ", ".join("(" + ", ".join(map(_literal, row)) + ")" for row in rows.values())

    def source(self, columns: tuple[tuple[str, str], ...], rows: dict[int, Row]) -> str:
        names = ", ".join(_quote(column) for column, _ in columns)
        typed = ", ".join(f"{_quote(column)}::{kind} AS {_quote(column)}" for column, kind in columns)
        return f"SELECT {typed} FROM (VALUES {self.values(rows)}) v({names})"

    def hit(self) -> tuple[str, Callable[[int], bool]]:
        modulo = self.chance.choice((1, 2, 3, 5))
        rest = self.chance.randrange(modulo)
        return f"k % {modulo} = {rest}", lambda key: key % modulo == rest

    # -- steps: each tells what it did, or None when there was nothing to do --------------------------------------------

    def create(self, ours: bool) -> str | None:
        if len(self.now) >= 3:
            return None
        name = self.new_name()
        kinds = [self.chance.choice(list(_TYPES)) for _ in range(self.chance.randint(0, 2))]
        columns = (("k", "BIGINT"), *zip(_NAMES, kinds, strict=False))
        rows = self.rows(columns, self.count()) if self.chance.random() < 0.7 else {}
        text = ", ".join(f"{_quote(column)} {kind}" for column, kind in columns)
        self.sql(ours, f"CREATE TABLE {_quote(name)} " + (f"AS {self.source(columns, rows)}" if rows else f"({text})"))
        self.now[name] = Shown(self._next_name, columns, rows)
        return f"create {name} with {len(rows)} rows"

    def insert(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None:
            return None
        table = self.now[name]
        rows = self.rows(table.columns, self.count())
        self.sql(ours, f"INSERT INTO {_quote(name)} VALUES {self.values(rows)}")
        self.now[name] = table.with_rows(table.rows | rows)
        return f"insert {len(rows)} rows into {name}"

    def delete(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None:
            return None
        table, (where, hits) = self.now[name], self.hit()
        self.sql(ours, f"DELETE FROM {_quote(name)} WHERE {where}")
        self.now[name] = table.with_rows({key: row for key, row in table.rows.items() if not hits(key)})
        return f"delete from {name} where {where}"

    def update(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None or len(self.now[name].columns) < 2:
            return None
        table, (where, hits) = self.now[name], self.hit()
        place = self.chance.randrange(1, len(table.columns))
        column, kind = table.columns[place]
        value = self.chance.choice((None, *_TYPES[kind]))
        self.sql(ours, f"UPDATE {_quote(name)} SET {_quote(column)} = {_literal(value)} WHERE {where}")
        rows = {key: (*row[:place], value, *row[place + 1 :]) if hits(key) else row for key, row in table.rows.items()}
        self.now[name] = table.with_rows(rows)
        return f"update {column} of {name} where {where}"

    def add_column(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None:
            return None
        table = self.now[name]
        free = [each for each in _NAMES if each not in dict(table.columns)]
        if not free:
            return None
        kind, column = self.chance.choice(list(_TYPES)), self.chance.choice(free)
        value = self.chance.choice((None, *_TYPES[kind]))
        default = "" if value is None else f" DEFAULT {_literal(str(value))}"
        self.sql(ours, f"ALTER TABLE {_quote(name)} ADD COLUMN {_quote(column)} {kind}{default}")
        rows = {key: (*row, value) for key, row in table.rows.items()}
        self.now[name] = table.changed(columns=(*table.columns, (column, kind)), rows=rows)
        return f"add column {column} {kind}{default} to {name}"

    def drop_column(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None or len(self.now[name].columns) < 2 or self.now[name].partitioned:
            return None
        table = self.now[name]
        place = self.chance.randrange(1, len(table.columns))
        self.sql(ours, f"ALTER TABLE {_quote(name)} DROP COLUMN {_quote(table.columns[place][0])}")
        rows = {key: (*row[:place], *row[place + 1 :]) for key, row in table.rows.items()}
        columns = (*table.columns[:place], *table.columns[place + 1 :])
        self.now[name] = table.changed(columns=columns, rows=rows)
        return f"drop column {table.columns[place][0]} of {name}"

    def rename_column(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None or len(self.now[name].columns) < 2:
            return None
        table = self.now[name]
        free = [each for each in _NAMES if each not in dict(table.columns)]
        if not free:
            return None
        place = self.chance.randrange(1, len(table.columns))
        old, kind = table.columns[place]
        new = self.chance.choice(free)
        self.sql(ours, f"ALTER TABLE {_quote(name)} RENAME COLUMN {_quote(old)} TO {_quote(new)}")
        columns = (*table.columns[:place], (new, kind), *table.columns[place + 1 :])
        self.now[name] = table.changed(columns=columns)
        return f"rename column {old} of {name} to {new}"

    def rename(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None:
            return None
        new = self.new_name()
        self.sql(ours, f"ALTER TABLE {_quote(name)} RENAME TO {_quote(new)}")
        self.now[new] = self.now.pop(name)
        return f"rename {name} to {new}"

    def drop(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None or len(self.now) < 2:
            return None
        self.sql(ours, f"DROP TABLE {_quote(name)}")
        self.dropped[name] = self.now.pop(name)
        return f"drop {name}"

    def undrop(self, ours: bool) -> str | None:
        seen = {name for state in self.past.values() for name in state}
        names = sorted(name for name in self.dropped if name in seen and name not in self.now)
        if not names:
            return None
        name = self.chance.choice(names)
        last = max(id_ for id_, state in self.past.items() if name in state)
        if self.past[last][name] != self.dropped[name]:
            return None  # the state before the drop has expired
        self.lake.undrop(_quote(name))
        self.now[name] = self.dropped.pop(name)
        return f"undrop {name} (ours)"

    def partition(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None:
            return None
        how = self.chance.choice(
            ("SET PARTITIONED BY (k)", "SET PARTITIONED BY (bucket(3, k))", "RESET PARTITIONED BY")
        )
        self.sql(ours, f"ALTER TABLE {_quote(name)} {how}")
        self.now[name] = self.now[name].changed(partitioned=not how.startswith("RESET"))
        return f"{name} {how}"

    def sort(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None:
            return None
        how = self.chance.choice(("SET SORTED BY (k DESC)", "RESET SORTED BY"))
        self.sql(ours, f"ALTER TABLE {_quote(name)} {how}")
        return f"{name} {how}"

    def add_files(self, ours: bool) -> str | None:
        if (name := self.some_table()) is None or self.now[name].partitioned:
            return None
        table = self.now[name]
        rows = self.rows(table.columns, self.count())
        path = self.outside / f"{self._next_key}.parquet"
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({self.source(table.columns, rows)}) TO '{path}' (FORMAT parquet)")
        if ours:
            self.lake.table(_quote(name)).add_files(str(path))
        else:
            self.stock.run(self.url, f"CALL ducklake_add_data_files('l', {_literal(name)}, '{path}')")
        self.now[name] = table.with_rows(table.rows | rows)
        return f"add a file of {len(rows)} rows to {name}"

    def share_files(self, ours: bool) -> str | None:
        """A new table has the files of another. Stock DuckDB would remove what it does not know to be shared."""
        if (name := self.some_table()) is None or len(self.now) >= 3:
            return None
        table = self.now[name]
        files = self._own_files(name)
        if not files or table.partitioned:
            return None
        new = self.new_name()
        made = self.lake.create_table(_quote(new), {"k": "BIGINT"})
        self.now[new] = Shown(self._next_name, (("k", "BIGINT"),), {}, shared=True)
        self._note()
        made.add_files([str(path) for path in files], ignore_extra_columns=True)
        rows = made.to_arrow().column("k").to_pylist()
        self.now[new] = Shown(self._next_name, (("k", "BIGINT"),), {key: (key,) for key in rows}, shared=True)
        self._doubled = True
        return f"share {len(files)} files of {name} with {new} (ours)"

    def _own_files(self, name: str) -> list[Path]:
        found = self.lake.table(_quote(name)).files().column("path").to_pylist()
        paths = [self.folder / "data" / text for text in found if not text.startswith("/")]
        internal = {NAME_ROW_ID, NAME_SNAPSHOT_ID}
        return [path for path in paths if internal.isdisjoint(pq.read_schema(path).names)]  # others are not taken

    # -- maintenance, which changes no row -----------------------------------------------------------------------------

    def flush(self, ours: bool) -> str | None:
        return self._care(ours, self.lake.maintenance.flush_inlined_data, "CALL ducklake_flush_inlined_data('l')")

    def merge(self, ours: bool) -> str | None:
        if not ours and self._doubled:
            return None  # stock DuckDB schedules files without asking who else has them
        return self._care(ours, self.lake.maintenance.merge_adjacent_files, "CALL ducklake_merge_adjacent_files('l')")

    def rewrite(self, ours: bool) -> str | None:
        threshold = self.chance.choice((0.0, 0.3))
        return self._care(
            ours,
            lambda: self.lake.maintenance.rewrite_data_files(delete_threshold=threshold),
            f"CALL ducklake_rewrite_data_files('l', delete_threshold => {threshold})",
        )

    def cleanup(self, ours: bool) -> str | None:
        return self._care(
            ours,
            lambda: self.lake.cleanup_old_files(cleanup_all=True),
            "CALL ducklake_cleanup_old_files('l', cleanup_all => true)",
        )

    def orphans(self, ours: bool) -> str | None:
        return self._care(
            ours,
            lambda: self.lake.delete_orphaned_files(cleanup_all=True),
            "CALL ducklake_delete_orphaned_files('l', cleanup_all => true)",
        )

    def expire(self, ours: bool) -> str | None:
        if not ours and self._doubled:
            return None
        snapshots = sorted(self.past)[:-1]
        if not snapshots:
            return None
        self.check_past()  # the last time that these can be looked at
        chosen = self.chance.sample(snapshots, self.chance.randint(1, len(snapshots)))
        if self.chance.random() < 0.4:
            chosen = snapshots
        self._care(
            ours,
            lambda: self.lake.expire_snapshots(versions=chosen),
            f"SELECT snapshot_id FROM ducklake_expire_snapshots('l', versions => {sorted(chosen)})",
        )
        return f"expire {sorted(chosen)}"

    def _care(self, ours: bool, mine: Callable[[], object], theirs: str) -> str:
        if ours:
            mine()
        else:
            self.stock.run(self.url, theirs)
        return theirs if not ours else theirs.partition("ducklake_")[2]


_Step = Callable[[_History, bool], str | None]
_STEPS: dict[str, tuple[_Step, float]] = {
    "create": (_History.create, 3),
    "insert": (_History.insert, 5),
    "update": (_History.update, 4),
    "delete": (_History.delete, 4),
    "add_column": (_History.add_column, 1.5),
    "drop_column": (_History.drop_column, 1),
    "rename_column": (_History.rename_column, 1),
    "rename": (_History.rename, 1.5),
    "drop": (_History.drop, 2),
    "undrop": (_History.undrop, 4),
    "partition": (_History.partition, 1),
    "sort": (_History.sort, 0.7),
    "add_files": (_History.add_files, 1.5),
    "share_files": (_History.share_files, 1),
    "flush": (_History.flush, 2.5),
    "merge": (_History.merge, 2.5),
    "rewrite": (_History.rewrite, 2),
    "expire": (_History.expire, 2.5),
    "cleanup": (_History.cleanup, 2),
    "orphans": (_History.orphans, 1),
}


def _differ(who: str, query: str, rows: list[Row], right: list[Row]) -> str:
    missing = list((Counter(map(repr, right)) - Counter(map(repr, rows))).elements())[:5]
    more = list((Counter(map(repr, rows)) - Counter(map(repr, right))).elements())[:5]
    return f"{who} reads {len(rows)} rows, not {len(right)}: {query}; missing {missing}, more {more}"


class Here:
    """Stock DuckDB in this process, beside ours. Not for SQLite, because each would bring its own copy of it."""

    def __init__(self) -> None:
        self.connection = connect()

    def run(self, url: str, *statements: str) -> list[Row]:
        return self.answers(url, *statements)[-1]

    def answers(self, url: str, *statements: str) -> list[list[Row]]:
        try:
            with attached(self.connection, url):
                return [self.connection.execute(statement).fetchall() for statement in statements]
        except duckdb.Error as error:
            raise AssertionError(f"stock DuckDB: {error}") from None

    def close(self) -> None:
        self.connection.close()


def round_of_histories(places: Places, stock: Reading, database: str, count: int, seed: str) -> Tally:
    """Run so many histories, each in its own lake, which is kept if something went wrong."""
    total = Tally()
    for number in range(count):
        home = places.new(database)
        total.add(history(home.url, home.data.parent, stock, seed if number == 0 else f"{seed}.{number}"))
        places.remove(home)
    return total
