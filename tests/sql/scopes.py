"""Random queries in which tables, aliases, columns and fields share a few names, and what they answer in plain DuckDB.

Each name may be that of a schema, a table, an alias, a column, a field of a column, or a parameter of a macro. So a
path such as ``t.x`` has several meanings, and the query block in which it stands decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from tests.prove.twins import Answer, Twins

_WORDS = ("t", "u", "x", "y")
_SCHEMAS = ("main", "s1")


@dataclass(frozen=True)
class _Relation:
    """A relation of a query block: the paths that name it, and its columns with their fields."""

    paths: tuple[str, ...]
    columns: dict[str, tuple[str, ...]]


@dataclass
class Scopes:
    """Makes tables, macros, views and queries of one seed."""

    chance: random.Random
    tables: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    macros: list[str] = field(default_factory=list)
    views: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    def setup(self) -> Iterator[str]:
        """Yield the statements that make everything."""
        yield "CREATE SCHEMA s1"
        for schema in _SCHEMAS:
            for name in ("t", "u"):
                columns = {
                    column: tuple(self.chance.sample(_WORDS, 2)) if self.chance.random() < 0.4 else ()
                    for column in self.chance.sample(_WORDS, 3)
                }
                self.tables[f"{schema}.{name}"] = columns
                typed = (f"{column} {_type(fields)}" for column, fields in columns.items())
                yield f"CREATE TABLE {schema}.{name} ({', '.join(typed)})"
                yield f"INSERT INTO {schema}.{name} VALUES {', '.join(self._row(columns) for _ in range(3))}"
        yield "CREATE MACRO inc(x) AS x + 1"
        self.macros.append("inc")
        for number in range(3):
            schema, parameter = self.chance.choice(_SCHEMAS), self.chance.choice(_WORDS)
            inner = self._block((), parameter)
            yield f"CREATE MACRO {schema}.m{number}({parameter}) AS ({inner})"
            self.macros.append(f"m{number}" if schema == "main" else f"{schema}.m{number}")
        for number in range(2):
            yield f"CREATE VIEW main.v{number} AS {self.query()}"

    def _row(self, columns: dict[str, tuple[str, ...]]) -> str:
        def value(fields: tuple[str, ...]) -> str:
            if fields:
                return "{" + ", ".join(f"'{name}': {self.chance.randint(0, 99)}" for name in fields) + "}"
            return str(self.chance.randint(0, 99))

        return f"({', '.join(map(value, columns.values()))})"

    def query(self) -> str:
        """Return a query with one or two columns."""
        form = self.chance.random()
        if form < 0.15:
            return f"SELECT * FROM ({self._block((), '')})"
        if form < 0.25:
            name = self.chance.choice(_WORDS)
            return f"WITH {name} AS ({self._block((), '')}) SELECT * FROM {name}"
        if form < 0.32:
            return f"SELECT * FROM main.v{self.chance.randint(0, 1)}"
        return self._block((), "", wide=True)

    def _block(self, outer: tuple[_Relation, ...], parameter: str, *, wide: bool = False) -> str:
        relations = [self._relation() for _ in range(self.chance.choice((1, 1, 1, 2)))]
        scope = (*(relation for _, relation in relations), *outer)
        source = " JOIN ".join(text for text, _ in relations) + (" ON true" if len(relations) > 1 else "")
        items = [self._item(scope, parameter) for _ in range(self.chance.choice((1, 2)) if wide else 1)]
        if not wide or self.chance.random() < 0.3:
            items = [f"{self.chance.choice(('max', 'min', 'count', 'sum'))}({item})" for item in items]
        # no macro: in WHERE, DuckDB takes names of its arguments for those of the relations inside of it
        where = f" WHERE {self._path(scope, parameter)} > 3" if self.chance.random() < 0.2 else ""
        return f"SELECT {', '.join(items)} FROM {source}{where}"

    def _relation(self) -> tuple[str, _Relation]:
        path = self.chance.choice(list(self.tables))
        schema, name = path.split(".")
        form = self.chance.choice((name if schema == "main" else path, path, f"lake.{path}"))
        if self.chance.random() < 0.3:
            alias = self.chance.choice(_WORDS)
            return f"{form} AS {alias}", _Relation((alias,), self.tables[path])
        return form, _Relation((name, name, path, f"lake.{path}"), self.tables[path])

    def _item(self, scope: tuple[_Relation, ...], parameter: str) -> str:
        form = self.chance.random()
        if form < 0.15:
            return f"({self._block(scope, parameter)})"
        if form < 0.35:
            return f"{self.chance.choice(self.macros)}({self._path(scope, parameter)})"
        if form < 0.5:
            return f"{self._path(scope, parameter)} + {self._path(scope, parameter)}"
        if form < 0.6:
            return f"CAST({self._path(scope, parameter)} AS {self.chance.choice(('BIGINT', 'DECIMAL(9,2)', 'DOUBLE'))})"
        return self._path(scope, parameter)

    def _path(self, scope: tuple[_Relation, ...], parameter: str) -> str:
        if parameter and self.chance.random() < 0.4:
            return parameter
        if self.chance.random() < 0.1:
            return ".".join(self.chance.choices((*_WORDS, "s1"), k=self.chance.randint(1, 3)))
        relation = self.chance.choice(scope)
        column, fields = self.chance.choice(list(relation.columns.items()))
        parts = [self.chance.choice(("", *relation.paths)), column, self.chance.choice(fields) if fields else ""]
        return ".".join(filter(None, parts))


def _type(fields: tuple[str, ...]) -> str:
    return f"STRUCT({', '.join(f'{name} INTEGER' for name in fields)})" if fields else "INTEGER"


@dataclass
class Tally:
    """The counts of compared and refused queries, and the differences."""

    queries: int = 0
    refused: int = 0
    differences: list[str] = field(default_factory=list)


def round_of_queries(folder: Path, seed: str, count: int) -> Tally:
    """Compare ``count`` queries over tables of one seed: their answers, and the tables and views that they make."""
    scopes, tally = Scopes(random.Random(seed)), Tally()
    twins = Twins(folder)
    try:
        for statement in scopes.setup():
            try:
                head, _, query = statement.partition(" AS ")
                is_view = head.startswith("CREATE VIEW ")
                twins.plain.execute(twins.plain_view(head.split()[-1], query) if is_view else statement)
            except duckdb.Error:
                continue  # a macro or a view that has no meaning
            twins.session.sql(statement)
        for _ in range(count):
            sql = scopes.query()
            tally.queries += 1
            mine, plain = twins.both(sql)
            tally.refused += plain.failed
            found = difference(mine, plain)
            if found is None and not plain.failed:
                found = _stored_difference(twins, sql)
            if found is None and scopes.chance.random() < 0.2:
                found = difference(twins.mine(sql, safe=True), plain)
            if found is not None:
                tally.differences.append(f"{seed}: {sql}\n  {found}")
    finally:
        twins.close()
    return tally


def difference(mine: Answer, plain: Answer) -> str | None:
    """Return how two answers differ, or None. Both may fail with other words."""
    if (mine.failed and plain.failed) or mine == plain:
        return None
    return f"lake   {mine}\n  DuckDB {plain}"


def _stored_difference(twins: Twins, sql: str) -> str | None:
    for kind in ("TABLE", "VIEW"):
        try:
            twins.plain.execute(f"CREATE TABLE made AS {sql}" if kind == "TABLE" else twins.plain_view("made", sql))
        except duckdb.Error:
            continue  # columns of one name in a table
        try:
            twins.session.sql(f"CREATE {kind} made AS {sql}")
            for question in ("FROM made", "SELECT column_name, column_type FROM (DESCRIBE made)"):
                found = difference(*twins.both(question))
                if found is not None:
                    return f"{kind}: {found}"
        finally:
            twins.plain.execute(f"DROP {kind} made")
            twins.session.sql(f"DROP {kind} IF EXISTS made")
    return None
