"""Random statements over random tables, for ``statements``: what stands in them and the values of their parameters."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

__all__ = ["KEYED", "LITERALS", "Column", "Sentence", "Sentences", "Table", "literal_of", "tables_of"]

_NAMES = ("a", "b", "c", "d", "e")
_TEXTS = ("''", "'a'", "'9'", "'A'", "'ä€'", "'it''s'", "' x '", "'null'", "'%a_'", "E'\\n'", "$$d$$")
#: Literals of each type (but HUGEINT, of which a Parquet file keeps 53 bits, and -0.0, whose sign DuckDB's writer of
#: Parquet loses beside 0.0): every form in which DuckDB takes one, and the ends of its range.
LITERALS: dict[str, tuple[str, ...]] = {
    "TINYINT": ("0", "1", "-128", "127", "'7'::TINYINT"),
    "INTEGER": ("0", "1", "-1", "7", "1_000", "2147483647", "-2147483648", "CAST(5 AS INTEGER)"),
    "BIGINT": ("0", "1", "-9223372036854775808", "9223372036854775807", "4294967296"),
    "UBIGINT": ("0", "1", "18446744073709551615"),
    "DOUBLE": (
        "0.0",
        "-1e-3",
        "1e3",
        ".5e0",
        "0.1e0",
        "5.",
        "1.5",
        "'NaN'",
        "'inf'",
        "'-inf'",
        "1.7976931348623157e308",
    ),
    "FLOAT": ("0", "-1", "0.1", "'NaN'", "'-inf'", "16777217", "1e38"),
    "DECIMAL(9,2)": ("0", "1.5", "-9999999.99", "0.01", "5."),
    "DECIMAL(30,5)": ("0", "1.00001", "-1234567890123456789012345.12345"),
    "VARCHAR": _TEXTS,
    "BOOLEAN": ("true", "false"),
    "DATE": ("DATE '1970-01-01'", "'2024-02-29'", "DATE '0001-01-01'", "'9999-12-31'", "'1969-12-31'"),
    "TIMESTAMP": ("TIMESTAMP '1970-01-01'", "'2024-02-29 12:34:56.789012'", "'1582-10-04 00:00:00'"),
    "TIMESTAMPTZ": ("'2020-01-01 00:00:00+00'", "'2020-06-01 12:00:00+02'", "'1900-01-01 00:00:00.000001+00'"),
    "TIME": ("TIME '00:00:00'", "'23:59:59.999999'"),
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "BLOB": ("''::BLOB", "'\\x00\\xFF'::BLOB", "'abc'"),
    "INTERVAL": ("INTERVAL 1 DAY", "INTERVAL '2' MONTH", "INTERVAL (0) SECOND"),
    "INTEGER[]": ("[]", "[1, NULL, 3]", "[2147483647]"),
    "STRUCT(x INTEGER, y VARCHAR)": ("{'x': 1, 'y': 'a'}", "{'x': NULL, 'y': ''}", "{'x': -1, 'y': NULL}"),
}
_ODD = ("INTERVAL", "INTEGER[]", "STRUCT(x INTEGER, y VARCHAR)", "BLOB")
_VALUES: dict[str, tuple[Any, ...]] = {
    "INTEGER": (0, 1, -1, 7, 2147483647),
    "BIGINT": (1, 2**62),
    "DOUBLE": (0.5, -2.5, float("inf"), float("nan"), 1e300),
    "DECIMAL(9,2)": (Decimal("1.50"), Decimal("-0.01")),
    "VARCHAR": ("", "a", "9", "it's", "ä€"),
    "BOOLEAN": (True, False),
    "DATE": (dt.date(2024, 2, 29),),
    "TIMESTAMP": (dt.datetime(2024, 2, 29, 12, 34, 56, 789012),),
}


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class Table:
    """A table: its schema, its name and its columns, the first of which is ``id``."""

    schema: str
    name: str
    columns: tuple[Column, ...]

    @property
    def path(self) -> str:
        return f"{self.schema}.{self.name}"


KEYED = Table("main", "k", (Column("id", "INTEGER"), Column("a", "INTEGER"), Column("b", "VARCHAR")))
"""A table with a primary key."""


@dataclass(frozen=True)
class Sentence:
    """A statement with its parameters, and whether it changes rows."""

    sql: str
    params: list[Any] | dict[str, Any] | None = None
    changes: bool = False
    prepare: str = ""


def literal_of(value: Any) -> str:
    """A value of Python as SQL, for EXECUTE."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"'{value}'::DOUBLE" if value != value or abs(value) == float("inf") else f"{value!r}::DOUBLE"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    return "'" + str(value).replace("'", "''") + "'"


def tables_of(chance: random.Random) -> list[Table]:
    """Tables in two schemas, of the same names."""
    found = []
    for schema in ("main", "s1"):
        for name in ("t", "u"):
            types = chance.sample(sorted(LITERALS), 4)
            columns = [Column(column, type_) for column, type_ in zip(_NAMES, types, strict=False)]
            found.append(Table(schema, name, (Column("id", "INTEGER"), *columns)))
    return found


@dataclass(frozen=True)
class _Seen:
    """A column that an expression may name: as what, and its type."""

    text: str
    type: str


@dataclass
class Sentences:
    """Makes statements. ``\\0n\\0`` stands for the n-th value until a statement is whole."""

    chance: random.Random
    tables: Sequence[Table]
    _values: list[Any] = field(default_factory=list)
    _with_values: bool = False

    def next(self) -> Sentence:
        """The next statement."""
        self._values = []
        self._with_values = self.chance.random() < 0.35
        kind = self.chance.choices(
            (self._query, self._insert, self._update, self._delete, self._merge, self._upsert), (60, 9, 11, 7, 9, 4)
        )[0]
        text = kind()
        return self._whole(text, changes=kind != self._query)

    def _whole(self, text: str, *, changes: bool) -> Sentence:
        """Put the parameters in, in one of their spellings, counted as they stand in the text."""
        places = [int(found) for found in re.findall(r"\0(\d+)\0", text)]
        if not places:
            return Sentence(text, None, changes)
        values = [self._values[place] for place in places]
        spelling = self.chance.choice(("?", "?", "$", "name"))
        if spelling == "?":
            written, params = re.sub(r"\0\d+\0", "?", text), values
        elif spelling == "$":
            order = {place: number for number, place in enumerate(sorted(set(places)), 1)}
            written = re.sub(r"\0(\d+)\0", lambda found: f"${order[int(found[1])]}", text)
            params = [self._values[place] for place in sorted(order)]
        else:
            written = re.sub(r"\0(\d+)\0", lambda found: f"$p{found[1]}", text)
            named = {f"p{place}": self._values[place] for place in places}
            return Sentence(written, named, changes)
        if self.chance.random() < 0.2 and not text.startswith("MERGE"):  # which DuckDB does not prepare
            call = f"EXECUTE prepared({', '.join(literal_of(value) for value in params)})"
            return Sentence(call, None, changes, f"PREPARE prepared AS {written}")
        return Sentence(written, params, changes)

    # -- values ------------------------------------------------------------------------------------------------------

    def literal(self, type_: str, *, typed: bool = False) -> str:
        """A value of a type, perhaps as a parameter; ``typed`` where nothing else says which type it is."""
        roll = self.chance.random()
        if roll < 0.1:
            return f"CAST(NULL AS {type_})" if typed else "NULL"
        if self._with_values and type_ in _VALUES and roll < 0.7:
            self._values.append(self.chance.choice(_VALUES[type_]))
            return f"\0{len(self._values) - 1}\0" + (f"::{type_}" if typed else "")
        found = self.chance.choice(LITERALS[type_])
        return f"CAST({found} AS {type_})" if typed else found

    def _some(self, seen: Sequence[_Seen], types: Sequence[str] | None = None) -> _Seen:
        fitting = [column for column in seen if types is None or column.type in types]
        return self.chance.choice(fitting or list(seen))

    # -- expressions -------------------------------------------------------------------------------------------------

    def condition(self, seen: Sequence[_Seen], depth: int = 2) -> str:
        roll = self.chance.random()
        if depth and roll < 0.3:
            word = self.chance.choice(("AND", "OR"))
            return f"({self.condition(seen, depth - 1)} {word} {self.condition(seen, depth - 1)})"
        if depth and roll < 0.36:
            return f"NOT ({self.condition(seen, depth - 1)})"
        if depth and roll < 0.46:
            return self._subquery_condition(seen)
        column = self._some(seen)
        if roll < 0.56:
            return f"{column.text} IS {self.chance.choice(('', 'NOT '))}NULL"
        if roll < 0.62:
            return f"coalesce({column.text} = {column.text}, true)"
        operator = self.chance.choice(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
        if roll < 0.7 and column.type not in _ODD:
            values = ", ".join(self.literal(column.type) for _ in range(self.chance.randint(1, 4)))
            return f"{column.text} {self.chance.choice(('IN', 'NOT IN'))} ({values})"
        if roll < 0.76 and column.type not in _ODD:
            return f"{column.text} BETWEEN {self.literal(column.type)} AND {self.literal(column.type)}"
        others = [other for other in seen if other.type == column.type]
        right = self.chance.choice(others).text if self.chance.random() < 0.25 else self.literal(column.type)
        return f"{column.text} {operator} {right}"

    def _subquery_condition(self, seen: Sequence[_Seen]) -> str:
        table = self.chance.choice(self.tables)
        inner = self._columns(table, "q")
        outer = self._some(seen, ["INTEGER"])
        if self.chance.random() < 0.5:
            where = f"q.id = {outer.text} AND {self.condition(inner, 0)}"
            return f"{self.chance.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {table.path} AS q WHERE {where})"
        if outer.type != "INTEGER":
            return "true"
        return f"{outer.text} IN (SELECT q.id FROM {table.path} AS q WHERE {self.condition(inner, 0)})"

    def value(self, seen: Sequence[_Seen], depth: int = 2) -> str:
        """Any expression that does not fail on a row."""
        kinds: tuple[Callable[[Sequence[_Seen], int], str], ...] = (
            lambda s, d: self._some(s).text,
            lambda s, d: self._some(s).text,
            lambda s, d: self.literal(self.chance.choice(sorted(LITERALS)), typed=self.chance.random() < 0.5),
            lambda s, d: self.chance.choice(_BARE),
            lambda s, d: f"({self._some(s, ['INTEGER']).text} IS NULL)",
            lambda s, d: f"typeof({self.value(s, d - 1)})",
            lambda s, d: f"CAST({self._some(s).text} AS VARCHAR)",
            lambda s, d: f"({self.condition(s, 0)})",
            lambda s, d: f"CASE WHEN {self.condition(s, 0)} THEN {self._pair(s)} END",
            lambda s, d: f"coalesce({self._pair(s)})".replace(" ELSE ", ", "),
            lambda s, d: f"TRY_CAST({self._some(s).text} AS {self.chance.choice(('INTEGER', 'DOUBLE', 'VARCHAR'))})",
            lambda s, d: f"[{self._some(s).text}, NULL]",
            lambda s, d: f"{{'k': {self._some(s).text}}}",
            lambda s, d: self._scalar_subquery(s),
            lambda s, d: f"md5(CAST({self._some(s).text} AS VARCHAR))",
        )
        return self.chance.choice(kinds if depth else kinds[:5])(seen, depth)

    def _pair(self, seen: Sequence[_Seen]) -> str:
        column = self._some(seen)
        return f"{column.text} ELSE {self.literal(column.type)}"

    def _scalar_subquery(self, seen: Sequence[_Seen]) -> str:
        table = self.chance.choice(self.tables)
        outer = self._some(seen, ["INTEGER"])
        inner = self._columns(table, self.chance.choice(("q", table.path)))
        named = f"{table.path} AS q" if inner[0].text.startswith("q.") else table.path
        where = f" WHERE {inner[0].text} = {outer.text}" if outer.type == "INTEGER" else ""
        return f"(SELECT {self._aggregate(inner)} FROM {named}{where})"

    def _aggregate(self, seen: Sequence[_Seen]) -> str:
        column = self._some(seen)
        calls = ["count(*)", f"count({column.text})", f"count(DISTINCT {column.text})"]
        if column.type not in _ODD:
            calls += [f"min({column.text})", f"max({column.text})"]
        if column.type in ("INTEGER", "BIGINT", "TINYINT", "DECIMAL(9,2)"):
            calls += [f"sum({column.text})", f"avg({column.text})" if column.type != "DECIMAL(9,2)" else "count(1)"]
        return self.chance.choice(calls)

    def _window(self, seen: Sequence[_Seen]) -> str:
        by = self._some(seen).text
        over = self.chance.choice((f"PARTITION BY {by}", f"ORDER BY {by}", f"PARTITION BY {by} ORDER BY {by} DESC"))
        call = self.chance.choice(("rank()", "dense_rank()", "count(*)", f"max({self._some(seen, ['INTEGER']).text})"))
        return f"{call} OVER ({over})"

    # -- queries -----------------------------------------------------------------------------------------------------

    def _columns(self, table: Table, alias: str) -> list[_Seen]:
        return [_Seen(f"{alias}.{column.name}", column.type) for column in table.columns]

    def _source(self) -> tuple[str, list[_Seen]]:
        """Return a text to follow FROM, and its columns."""
        roll = self.chance.random()
        first, second = self.chance.choice(self.tables), self.chance.choice(self.tables)
        if roll < 0.4:
            alias = self.chance.choice((None, "x"))
            named = first.path if alias is None else f"{first.path} AS {alias}"
            prefix = alias or self.chance.choice((first.name, first.path, f"lake.{first.path}"))
            seen = self._columns(first, prefix)
            bare = [_Seen(column.name, column.type) for column in first.columns]
            return named, seen + bare
        if roll < 0.5:
            values = ", ".join(f"({i}, {self.literal('VARCHAR')})" for i in range(self.chance.randint(1, 3)))
            return f"(VALUES {values}) AS v(n, s)", [_Seen("v.n", "INTEGER"), _Seen("s", "VARCHAR")]
        if roll < 0.6:
            inner, _ = self._block(depth=0, columns=("id", "k"))
            return f"({inner}) AS w", [_Seen("w.id", "INTEGER"), _Seen("id", "INTEGER")]
        same = first.path == second.path
        left, right = ("x", "y") if same or self.chance.random() < 0.4 else (first.path, second.path)
        names = [
            f"{table.path} AS {alias}" if alias in "xy" else alias for table, alias in ((first, left), (second, right))
        ]
        seen = self._columns(first, left) + self._columns(second, right)
        if self.chance.random() < 0.3:
            return f"{names[0]}, {names[1]}", seen
        kind = self.chance.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
        if kind in ("SEMI JOIN", "ANTI JOIN"):
            seen = self._columns(first, left)
        if self.chance.random() < 0.3:
            return f"{names[0]} {kind} {names[1]} USING (id)", seen
        return f"{names[0]} {kind} {names[1]} ON {left}.id = {right}.id", seen

    def _block(self, depth: int = 2, columns: Sequence[str] = ()) -> tuple[str, int]:
        """A query block; with ``columns`` it has those, the first of which is a whole number."""
        source, seen = self._source()
        where = f" WHERE {self.condition(seen, depth)}" if self.chance.random() < 0.6 else ""
        if columns:
            numbers = [column for column in seen if column.type == "INTEGER"]
            number = self.chance.choice(numbers).text if numbers else "1"
            other = self.value(seen, 1) if len(columns) > 1 else "1"
            return f"SELECT {number} AS id, {other} AS k FROM {source}{where}", 2
        roll = self.chance.random()
        if roll < 0.2:
            group = self._some(seen).text
            having = f" HAVING count(*) > {self.chance.randint(0, 2)}" if self.chance.random() < 0.4 else ""
            items = [group, *(self._aggregate(seen) for _ in range(self.chance.randint(1, 3)))]
            return f"SELECT {', '.join(items)} FROM {source}{where} GROUP BY {group}{having}", len(items)
        if roll < 0.3:
            items = [self._aggregate(seen) for _ in range(self.chance.randint(1, 3))]
            return f"SELECT {', '.join(items)} FROM {source}{where}", len(items)
        if roll < 0.4:
            star = self.chance.choice(
                ("SELECT * FROM", "FROM", "SELECT DISTINCT * FROM", "SELECT COLUMNS('^(id|a)$') FROM")
            )
            return f"{star} {source}{where}", 0
        items = [self.value(seen) for _ in range(self.chance.randint(1, 4))]
        if self.chance.random() < 0.2:
            items.append(self._window(seen))
        if self.chance.random() < 0.2:
            items = [f"{item} AS k{number}" for number, item in enumerate(items)]
        return f"SELECT {', '.join(items)} FROM {source}{where}", len(items)

    def _query(self) -> str:
        roll = self.chance.random()
        if roll < 0.12:
            first, second = (self._block(1, ("id",))[0] for _ in range(2))
            word = self.chance.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
            return f"{first} {word} {second}"
        if roll < 0.24:
            inner, _ = self._block(1, ("id", "k"))
            name = self.chance.choice(("c", "t", "update", "merge"))
            return f"WITH {name} AS {self.chance.choice(('', 'MATERIALIZED '))}({inner}) SELECT {name}.id, count(*) FROM {name} GROUP BY {name}.id"
        text, width = self._block()
        if width and self.chance.random() < 0.15:
            text += " ORDER BY 1"
        return text

    # -- changes -----------------------------------------------------------------------------------------------------

    def _returning(self, table: Table) -> str:
        if self.chance.random() > 0.3 or self._with_values:
            return ""
        items = [self.chance.choice((column.name, f"{table.name}.{column.name}")) for column in table.columns]
        return " RETURNING " + self.chance.choice(("*", ", ".join(items[:2]), f"typeof({items[1]}) AS k, id"))

    def _insert(self) -> str:
        table = self.chance.choice(self.tables)
        chosen = [table.columns[0], *self.chance.sample(table.columns[1:], self.chance.randint(1, 4))]
        whole = self.chance.random() < 0.4
        if whole:
            chosen = list(table.columns)
        named = "" if whole else f" ({', '.join(column.name for column in chosen)})"
        roll = self.chance.random()
        if roll < 0.6:
            rows = ", ".join(
                f"({', '.join(self._new(column) for column in chosen)})" for _ in range(self.chance.choice((1, 2, 12)))
            )
            return f"INSERT INTO {table.path}{named} VALUES {rows}{self._returning(table)}"
        items = ", ".join(f"{self.literal(column.type, typed=True)} AS {column.name}" for column in chosen)
        if roll < 0.8:
            return f"INSERT INTO {table.path} BY NAME SELECT {items} FROM range(3){self._returning(table)}"
        return f"INSERT INTO {table.path}{named} SELECT {items} FROM {self.chance.choice(self.tables).path}"

    def _new(self, column: Column) -> str:
        if column.name == "id":
            return str(self.chance.randint(0, 30))
        return "DEFAULT" if self.chance.random() < 0.05 else self.literal(column.type)

    def _assigned(self, table: Table, seen: Sequence[_Seen]) -> str:
        columns = self.chance.sample(table.columns[1:], self.chance.randint(1, 2))
        parts = []
        for column in columns:
            others = [other.text for other in seen if other.type == column.type]
            value = self.chance.choice(others) if others and self.chance.random() < 0.4 else self.literal(column.type)
            if column.type == "BOOLEAN" and self.chance.random() < 0.5:
                value = self.condition(seen, 1)
            parts.append(f"{column.name} = {value}")
        return ", ".join(parts)

    def _update(self) -> str:
        table = self.chance.choice(self.tables)
        alias = self.chance.choice((None, None, "x"))
        named = table.path if alias is None else f"{table.path} AS {alias}"
        seen = self._columns(table, alias or self.chance.choice((table.name, table.path)))
        if self.chance.random() < 0.3:
            other = self.chance.choice([each for each in self.tables if each is not table])
            source = f"(SELECT id, min(id) AS n, count(*) AS k FROM {other.path} GROUP BY id) AS y"
            where = f"y.id = {seen[0].text} AND {self.condition(seen, 1)}"
            return f"UPDATE {named} SET {self._assigned(table, seen)} FROM {source} WHERE {where}"
        bare = [_Seen(column.name, column.type) for column in table.columns]
        where = f" WHERE {self.condition(seen + bare)}" if self.chance.random() < 0.9 else ""
        returning = self._returning(table) if alias is None else ""
        return f"UPDATE {named} SET {self._assigned(table, seen + bare)}{where}{returning}"

    def _delete(self) -> str:
        table = self.chance.choice(self.tables)
        seen = self._columns(table, self.chance.choice((table.name, table.path)))
        if self.chance.random() < 0.3:
            other = self.chance.choice([each for each in self.tables if each is not table])
            return f"DELETE FROM {table.path} USING {other.path} AS y WHERE y.id = {seen[0].text} AND {self.condition(seen, 1)}"
        return f"DELETE FROM {table.path} WHERE {self.condition(seen)}{self._returning(table)}"

    def _upsert(self) -> str:
        """An INSERT into ``KEYED`` that says what happens to keys that are there."""
        columns = KEYED.columns
        ids = self.chance.sample(range(12), self.chance.randint(1, 4))
        rows = ", ".join(f"({id_}, {', '.join(self.literal(column.type) for column in columns[1:])})" for id_ in ids)
        seen = [_Seen(f"k.{column.name}", column.type) for column in columns]
        seen += [_Seen(f"excluded.{column.name}", column.type) for column in columns]
        how = self.chance.choice(("", "", "OR REPLACE ", "OR IGNORE "))
        if how:
            return f"INSERT {how}INTO main.k VALUES {rows}"
        where = f" WHERE {self.condition(seen, 0)}" if self.chance.random() < 0.4 else ""
        action = f"UPDATE SET a = {self.chance.choice(('excluded.a', 'k.a', self.literal('INTEGER')))}, b = excluded.b"
        target = self.chance.choice(("", " (id)"))
        then = self.chance.choice(("NOTHING", f"{action}{where}"))
        returning = "" if self._with_values else self.chance.choice(("", "", " RETURNING *", " RETURNING k.id, b"))
        return f"INSERT INTO main.k VALUES {rows} ON CONFLICT{target} DO {then}{returning}"

    def _merge(self) -> str:
        table = self.chance.choice(self.tables)
        own = self._columns(table, self.chance.choice(("x", "x", table.path)))
        named = f"{table.path} AS x" if own[0].text.startswith("x.") else table.path
        columns = [_Seen("y.id", "INTEGER"), *(_Seen(f"y.{c.name}", c.type) for c in table.columns[1:])]
        items = ", ".join(f"{self.literal(column.type, typed=True)} AS {column.name}" for column in table.columns[1:])
        ids = self.chance.sample(range(30), self.chance.randint(1, 6))
        source = f"(SELECT i AS id, {items} FROM unnest({ids}) r(i)) AS y"
        how = self.chance.choice((f"ON {own[0].text} = y.id", f"ON {own[0].text} = y.id", "USING (id)"))
        clauses = []
        if self.chance.random() < 0.7:
            when = f" AND {self.condition(own + columns, 1)}" if self.chance.random() < 0.4 else ""
            what = self.chance.choice(
                (
                    f"UPDATE SET {self._assigned(table, own + columns)}",
                    "UPDATE",
                    "UPDATE SET *",
                    "UPDATE BY NAME",
                    "DELETE",
                )
            )
            clauses.append(f"WHEN MATCHED{when} THEN {what}")
        if self.chance.random() < 0.4:
            bare = [_Seen(column.name, column.type) for column in table.columns]
            what = self.chance.choice((f"UPDATE SET {self._assigned(table, own + bare)}", "DELETE"))
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {self.condition(own + bare, 1)} THEN {what}")
        if self.chance.random() < 0.7 or not clauses:
            values = ", ".join(
                self.chance.choice((f"y.{column.name}", column.name, "DEFAULT")) for column in table.columns
            )
            what = self.chance.choice(("INSERT", "INSERT *", "INSERT BY NAME", f"INSERT VALUES ({values})"))
            clauses.append(f"WHEN NOT MATCHED THEN {what}")
        # of rows that no row of the source matched DuckDB returns something else than their columns
        silent = self._with_values or "BY SOURCE" in " ".join(clauses)
        returning = "" if silent else self.chance.choice(("", "", " RETURNING merge_action, id"))
        return f"MERGE INTO {named} USING {source} {how} {' '.join(clauses)}{returning}"


_BARE = (
    "1e3",
    "0.1e0 + 0.2e0",
    "-0e0",
    "5.",
    ".5",
    "1e400",
    "1_000",
    "1.10",
    "12345678901234567890",
    "'text'",
    "E'a\\tb'",
    "$$dollars$$",
    "NULL",
    "true",
    "DATE '2020-02-29'",
    "INTERVAL 3 DAYS",
    "[1, 2.5, 3e0]",
    "{'a': 1e0, 'b': 5.}",
    "2.5e0::INTEGER",
    "1e10 * 1e10 * 1e10",
    "7 // 2",
    "7 / 2",
    "'\\x00'::BLOB",
    "MAP {'k': 1e0}",
)
