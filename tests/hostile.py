"""Statements of every shape with hostile names in every place, made at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quacklake.core.format.names import literal, quote

__all__ = ["NAMES", "Writer", "payloads"]

#: Names that mean something else where one is written without quotes, or with others.
NAMES = (
    "x, y",
    "it's",
    'a"b',
    'o".*',
    "o.*",
    "a.b",
    "(SELECT 1)",
    "(SELECT 1), o",
    "a) FROM t --",
    "a; SELECT 1",
    "a /* b",
    "*/ a",
    "--",
    "",
    " ",
    "select",
    "from",
    "lambda",
    "values",
    "columns",
    "unpack",
    "null",
    "true",
    "default",
    "1",
    "1a",
    "$1",
    "?",
    "a\nb",
    "a\tb",
    "\\",
    "\\x00",
    "\x01",
    "é",
    "名",
    "\u202e",
    "\ufeff",
    "İ",
    "COLUMNS('.*')",
    "a := 1",
    "a -> b",
    "a::INT",
    "a[1]",
    "a COLLATE NOCASE",
    "a AS b",
    "[",
    "{'a': 1}",
    "%",
    "''",
    '""',
    "'); --",
    "e'\\n'",
    "$$",
    "U&",
    "o".ljust(300, "o"),
)


def payloads(place: str) -> list[str]:
    """Return names that read files, settings or hidden rows without their quotes."""
    reads = [
        f"(SELECT content FROM read_text({literal(place)}))",
        f"(SELECT list(r) FROM read_csv({literal(place)}) r)",
        "(SELECT list(v) FROM vault v)",
        "(SELECT list(p) FROM people p)",
        "current_setting('allowed_directories')",
        "getenv('HOME')",
    ]
    forms: list[Callable[[str], str]] = [
        lambda read: f"{read}, o",
        lambda read: f'o".*, {read} --',
        lambda read: f"o.*, {read} AS x, o",
        lambda read: f"id = {read} OR o",
        lambda read: f"1 IN ({read}), o",
        lambda read: f"'] || {read} || ['",
        lambda read: f"x'), {read}, ('",
        lambda read: f"1 := {read}, x",
        lambda read: f") FROM (SELECT {read}) o(x) --",
        lambda read: f" UNION ALL SELECT {read} --",
        lambda read: read,
    ]
    return [form(read) for read in reads for form in forms]


@dataclass
class Writer:
    """Writes random statements over tables, with random names."""

    random: random.Random
    names: Sequence[str] = NAMES
    tables: Sequence[str] = ("t", "u")
    columns: Sequence[str] = ("id", "a")
    deepest: int = 3
    _depth: int = 0
    _window: str = ""
    """The name of a window that the query around defines."""
    _scope: list[str] = field(default_factory=lambda: ["o"])
    """The aliases that are known, hostile or not."""

    def statement(self) -> str:
        """Return a query."""
        self._depth, self._scope = 0, ["o"]
        return self.query()

    def name(self) -> str:
        """Return a name that is hostile in most cases, as SQL has it."""
        if self.random.random() < 0.3:
            return self.random.choice(["o", "a", *self.columns])
        return quote(self.random.choice(self.names) or "_")

    def alias(self) -> str:
        """Return a new name that others may refer to."""
        name = self.name()
        self._scope.append(name)
        return name

    def known(self) -> str:
        """Return a name that is known in most cases."""
        return self.random.choice(self._scope[-3:]) if self.random.random() < 0.6 else self.name()

    def text(self) -> str:
        """Return a text constant."""
        return literal(self.random.choice(self.names))

    def one(self, *makers: Callable[[], str]) -> str:
        self._depth += 1
        try:
            return self.random.choice(makers)()
        finally:
            self._depth -= 1

    def some(self, make: Callable[[], str], most: int = 2) -> str:
        return ", ".join(make() for _ in range(self.random.randint(1, most)))

    def maybe(self, make: Callable[[], str], share: float = 0.3) -> str:
        return make() if self.random.random() < share else ""

    # -- expressions ---------------------------------------------------------------------------------------------------

    def column(self) -> str:
        return self.one(
            lambda: self.random.choice(self.columns),
            self.name,
            lambda: f"{self.known()}.{self.random.choice(self.columns)}",
            lambda: f"{self.known()}.{self.name()}",
            lambda: f"{self.name()}.{self.name()}.{self.name()}",
        )

    def star(self) -> str:
        return self.one(
            lambda: f"{self.known()}.*",
            lambda: f"{self.name()}.*",
            lambda: f"* EXCLUDE ({self.name()})",
            lambda: f"{self.known()}.* EXCLUDE ({self.name()})",
            lambda: f"* REPLACE ({self.expression()} AS {self.name()})",
            lambda: f"{self.known()}.* RENAME ({self.name()} AS {self.name()})",
            lambda: f"COLUMNS({self.known()}.*)",
            lambda: f"COLUMNS({self.text()})",
            lambda: f"COLUMNS(lambda {self.name()}: {self.expression()})",
            lambda: f"{self.known()}.COLUMNS({self.text()})",
            lambda: f"struct_pack(*COLUMNS({self.known()}.*))",
            lambda: f"min(COLUMNS(* EXCLUDE ({self.name()})))",
        )

    def leaf(self) -> str:
        return self.one(
            self.column,
            self.column,
            self.text,
            lambda: self.random.choice(["1", "1e3", "1.5", "NULL", "true", "DATE '2020-01-01'", "INTERVAL 1 DAY"]),
            lambda: f"${self.name()}" if self.random.random() < 0.3 else self.column(),
        )

    def expression(self) -> str:
        if self._depth > 2 * self.deepest:
            return self.leaf()
        expression = self.expression
        return self.one(
            self.leaf,
            self.leaf,
            lambda: f"({expression()}).{self.name()}",
            lambda: f"({expression()}).{self.name()}.{self.name()}",
            lambda: f"({expression()})[{self.text()}]",
            lambda: f"({expression()})[1:{expression()}]",
            lambda: f"{{{self.name()}: {expression()}}}",
            lambda: f"struct_pack({self.name()} := {expression()})",
            lambda: f"{self.name()}({expression()})",
            lambda: f"upper({self.name()} := {expression()})",
            lambda: f"({expression()}).{self.name()}({expression()})",
            lambda: f"({expression()})::{self.name()}",
            lambda: f"CAST({expression()} AS STRUCT({self.name()} VARCHAR, b DECIMAL(5, 2)[]))",
            lambda: f"CAST({expression()} AS UNION({self.name()} INT))",
            lambda: f"TRY_CAST({expression()} AS ENUM({self.text()}, 'b'))",
            lambda: f"({expression()}) COLLATE {self.name()}",
            lambda: f"list_transform([{expression()}], lambda {self.name()}: {expression()})",
            lambda: f"list_filter([{expression()}], lambda {self.name()}, {self.name()}: {expression()})",
            lambda: f"[{expression()} FOR {self.name()} IN [1] IF {expression()}]",
            lambda: f"CASE WHEN {expression()} THEN {expression()} ELSE {expression()} END",
            lambda: f"({expression()} AND NOT {expression()} OR {expression()} IS NOT NULL)",
            lambda: f"({expression()} = {expression()})",
            lambda: f"({expression()} || {self.text()})",
            lambda: f"({expression()} BETWEEN {expression()} AND {expression()})",
            lambda: f"({expression()} IN ({expression()}, {self.text()}))",
            lambda: f"({expression()} LIKE {self.text()} ESCAPE '$')",
            lambda: f"({expression()} ->> {self.text()})",
            lambda: f"MAP {{{self.text()}: {expression()}}}",
            lambda: f"extract(year FROM {expression()})",
            lambda: f"count(DISTINCT {expression()}) FILTER (WHERE {expression()})",
            lambda: f"list({expression()} ORDER BY {expression()} DESC NULLS LAST)",
            lambda: f"string_agg({expression()}, {self.text()})",
            lambda: f"sum({expression()}) OVER {self._window or f'({self.window()})'}",
            lambda: f"lag({expression()}) OVER ({self.window()})",
            lambda: f"coalesce({expression()}, {self.text()})",
            lambda: f"({self.scalar()})",
            lambda: f"EXISTS ({self.query()})",
            lambda: f"({expression()} = ANY ({self.scalar()}))",
            lambda: f"ARRAY({self.scalar()})",
        )

    def window(self) -> str:
        order = f"ORDER BY {self.expression()}"
        frame = self.random.choice(["", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " RANGE UNBOUNDED PRECEDING"])
        return self.maybe(lambda: f"PARTITION BY {self.expression()} ", 0.5) + order + frame

    # -- queries -------------------------------------------------------------------------------------------------------

    def relation(self) -> str:
        if self._depth > self.deepest:
            return f"{self.random.choice(self.tables)} AS {self.alias()}"
        return self.one(
            lambda: f"{self.random.choice(self.tables)} AS {self.alias()}",
            lambda: f"{self.random.choice(self.tables)} o",
            lambda: self.random.choice(self.tables),
            lambda: f"{self.name()} AS {self.alias()}",
            lambda: f"{self.name()}.{self.name()}",
            lambda: f"{self.random.choice(self.tables)} AS {self.alias()}({self.name()}, {self.name()})",
            lambda: f"{self.random.choice(self.tables)} AS {self.alias()} AT (VERSION => {self.expression()})",
            lambda: f"({self.query()}) AS {self.alias()}",
            lambda: f"({self.query()}) AS {self.alias()}({self.name()})",
            lambda: f"(VALUES ({self.expression()}), ({self.text()})) AS {self.alias()}({self.name()})",
            lambda: f"range(3) AS {self.alias()}({self.name()})",
            lambda: f"unnest([{self.expression()}]) AS {self.alias()}({self.name()})",
            lambda: f"{self.name()}({self.name()} := {self.expression()}) AS {self.alias()}",
            lambda: f"{self.relation()} JOIN {self.relation()} ON {self.expression()}",
            lambda: f"{self.relation()} LEFT JOIN {self.relation()} USING ({self.name()})",
            lambda: f"{self.relation()} SEMI JOIN {self.relation()} USING (id)",
            lambda: f"{self.relation()}, LATERAL ({self.query()}) AS {self.alias()}",
            lambda: (
                f"{self.random.choice(self.tables)} PIVOT (count(*) AS {self.name()} FOR id IN (1 AS {self.name()}))"
            ),
            lambda: (
                f"{self.random.choice(self.tables)} UNPIVOT ({self.name()} FOR {self.name()} IN (id AS {self.name()}))"
            ),
        )

    def item(self) -> str:
        return self.one(
            self.star,
            self.expression,
            lambda: f"{self.expression()} AS {self.name()}",
            lambda: f"{self.name()}: {self.expression()}",
        )

    def scalar(self) -> str:
        return self.select(self.expression())

    def select(self, items: str = "") -> str:
        outer, self._window = self._window, ""
        defined = ""
        if self.random.random() < 0.1:
            defined = self.name()
            window = f" WINDOW {defined} AS ({self.window()})"
        self._window = defined
        tables = self.maybe(lambda: f" FROM {self.relation()}", 0.85)
        word = self.random.choice(["", "", "", "DISTINCT ", f"DISTINCT ON ({self.expression()}) "])
        parts = [
            f"SELECT {word}{items or self.some(self.item)}",
            tables,
            self.maybe(lambda: f" WHERE {self.expression()}"),
            self.maybe(
                lambda: self.one(
                    lambda: f" GROUP BY {self.expression()}", lambda: f" GROUP BY ROLLUP ({self.column()})"
                ),
                0.2,
            ),
            self.maybe(lambda: f" HAVING {self.expression()}", 0.1),
            window if defined else "",
            self.maybe(lambda: f" QUALIFY {self.expression()}", 0.1),
            self.maybe(
                lambda: self.one(
                    lambda: f" ORDER BY {self.column()} COLLATE {self.name()}",
                    lambda: f" ORDER BY {self.expression()} NULLS FIRST",
                ),
                0.15,
            ),
            self.maybe(lambda: f" LIMIT {self.expression()}", 0.1),
        ]
        self._window = outer
        return "".join(parts)

    def query(self) -> str:
        if self._depth > self.deepest:
            return self.select()
        common = self.maybe(lambda: f"WITH {self.alias()} AS ({self.select()}) ", 0.15)
        return common + self.one(
            self.select,
            self.select,
            self.select,
            lambda: f"({self.select()}) UNION ALL BY NAME ({self.select()})",
            lambda: f"({self.select()}) EXCEPT ({self.select()})",
            lambda: f"FROM {self.relation()}",
            lambda: f"VALUES ({self.expression()}, {self.text()})",
        )

    def changes(self) -> str:
        """Return a statement that changes rows of a table, in most cases with RETURNING."""
        self._depth, self._scope = 2, ["o"]
        table = self.random.choice(self.tables)
        returning = self.maybe(lambda: f" RETURNING {self.some(self.item)}", 0.8)
        return returning and self.one(
            lambda: f"INSERT INTO {table} ({self.name()}) {self.query()}{returning}",
            lambda: f"INSERT INTO {table} {self.query()}{returning}",
            lambda: f"UPDATE {table} AS {self.alias()} SET {self.name()} = {self.expression()}{returning}",
            lambda: f"UPDATE {table} o SET id = {self.expression()} WHERE {self.expression()}{returning}",
            lambda: f"UPDATE {table} o SET id = 1 FROM {self.relation()} WHERE {self.expression()}{returning}",
            lambda: f"DELETE FROM {table} o USING {self.relation()} WHERE {self.expression()}{returning}",
            lambda: f"DELETE FROM {table} AS {self.alias()} WHERE {self.expression()}{returning}",
            lambda: (
                f"MERGE INTO {table} o USING {self.relation()} ON {self.expression()}"
                f" WHEN MATCHED AND {self.expression()} THEN UPDATE SET {self.name()} = {self.expression()}{returning}"
            ),
            lambda: (
                f"MERGE INTO {table} o USING {self.relation()} USING ({self.name()})"
                f" WHEN NOT MATCHED THEN INSERT ({self.name()}) VALUES ({self.expression()}){returning}"
            ),
        )

    def other(self) -> str:
        """Return another statement that holds names or expressions."""
        self._depth, self._scope = 2, ["o"]
        return self.one(
            lambda: f"DESCRIBE {self.name()}",
            lambda: f"DESCRIBE {self.query()}",
            lambda: f"SUMMARIZE {self.query()}",
            lambda: f"SHOW TABLES FROM {self.name()}.{self.name()}",
            lambda: f"SHOW CREATE TABLE {self.name()}",
            lambda: f"USE {self.name()}",
            lambda: f"CALL {self.name()}({self.expression()})",
            lambda: f"CALL table_changes({self.text()}, {self.expression()}, {self.expression()})",
            lambda: f"EXPLAIN {self.query()}",
            lambda: f"EXPLAIN ANALYZE {self.query()}",
            lambda: f"PREPARE {self.name()} AS {self.query()}",
            lambda: f"PREPARE p AS SELECT ${self.name()}",
            lambda: f"EXECUTE p({self.name()} := {self.expression()})",
            lambda: f"EXECUTE {self.name()}({self.expression()})",
            lambda: f"PIVOT {self.random.choice(self.tables)} ON {self.name()} IN ({self.text()}) USING count(*)",
            lambda: f"UNPIVOT {self.random.choice(self.tables)} ON {self.name()} INTO NAME {self.name()} VALUE x",
            lambda: f"SET {self.name()} = {self.expression()}",
            lambda: f"SELECT getvariable({self.text()}), current_setting({self.text()})",
            lambda: f"COMMENT ON TABLE {self.name()} IS {self.expression()}",
            lambda: f"CREATE MACRO {self.name()}({self.name()}) AS {self.expression()}",
            lambda: f"FROM query({self.text()})",
        )
