"""A lake and a plain DuckDB with the same tables: every statement must do the same to both, to the last type."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import quacklake
from quacklake.core.duckdb_versions import IS_2, run
from quacklake.core.format.names import quote

__all__ = ["Answer", "Twins"]

Parameters = list[Any] | dict[str, Any] | None


@dataclass(frozen=True)
class Answer:
    """The result of a statement: names and types of its columns, and its rows in any order; or its error."""

    columns: tuple[tuple[str, str], ...] = ()
    rows: frozenset[tuple[Any, int]] = frozenset()
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None

    def __str__(self) -> str:
        if self.error is not None:
            return f"fails: {self.error.splitlines()[0] if self.error else ''}"
        heads = ", ".join(f"{name} {type_}" for name, type_ in self.columns)
        return f"({heads}) {sorted(self.rows, key=repr)}"


def _exact(value: Any) -> Any:
    """A value that equals another only if it is the same: 0.0 is not -0.0, NaN is NaN, 1 is not True."""
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else ("float", struct.pack(">d", value))
    if isinstance(value, dict):
        return tuple((key, _exact(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return ("list", *(_exact(item) for item in value))
    return (type(value).__name__, value) if isinstance(value, bool | int) else (type(value).__name__, str(value))


def _answer(columns: Iterable[tuple[str, Any]], table: pa.Table) -> Answer:
    lists = [column.to_pylist() for column in table.columns]
    rows = Counter(tuple(map(_exact, row)) for row in zip(*lists, strict=True))
    return Answer(tuple((name, str(type_)) for name, type_ in columns), frozenset(rows.items()))


class Twins:
    """A session with a lake and a DuckDB without; tables are made in both by the same statements."""

    def __init__(self, folder: Path, catalog: str = "sqlite") -> None:
        database = {"sqlite": f"sqlite:///{folder}/twin.db", "duckdb": f"duckdb:///{folder}/twin.duckdb"}[catalog]
        self.lake = quacklake.connect(database, data_path=f"{folder}/data/")
        self.session = self.lake._sessions.current()
        self.safe = quacklake.session(safety=quacklake.Safety())
        self.safe.attach(self.lake)
        self.safe.use("lake")
        self.plain = duckdb.connect()
        self.plain.execute("ATTACH ':memory:' AS lake; USE lake")
        for connection in (self.plain, self.session.connection):
            connection.execute("SET TimeZone = 'UTC'")
        for connection in (self.plain, self.session.connection, self.safe.connection):
            connection.execute("SET threads = 1")  # a dozen rows are quicker without others

    @property
    def broken(self) -> bool:
        """True when plain DuckDB no longer answers, after an internal error."""
        try:
            self.plain.cursor().execute("SELECT 1")
        except duckdb.Error:
            return True
        return False

    def close(self) -> None:
        self.plain.close()
        self.safe.close()
        self.lake.close()

    def prepare(self, *statements: str) -> None:
        """Run statements that give nothing to compare, on both."""
        for sql in statements:
            self.session.sql(sql)
            self.plain.execute(sql)

    def plain_view(self, name: str, sql: str) -> str:
        """Return the statement that makes a view in plain DuckDB, with the titles of the query itself.

        2.x leaves the catalog out of the text of a view that names it, and so out of titles; a lake keeps it.
        """
        titles = self.plain.sql(sql).columns if IS_2 else []
        is_other = any("lake." in title for title in titles) and len(set(map(str.lower, titles))) == len(titles)
        columns = f"({', '.join(map(quote, titles))})" if is_other else ""
        return f"CREATE VIEW {name}{columns} AS {sql}"

    def both(self, sql: str, params: Parameters = None) -> tuple[Answer, Answer]:
        """Return the results of a statement in the lake and in plain DuckDB."""
        return self.mine(sql, params), self._caught(self._of_plain, sql, params)

    def mine(self, sql: str, params: Parameters = None, *, safe: bool = False) -> Answer:
        """Return the result of a statement in the lake, in a safe session if ``safe``."""
        return self._caught(self._of_safe if safe else self._of_lake, sql, params)

    @property
    def version(self) -> int:
        """The newest snapshot."""
        return int(self.session.sql("FROM lake.current_snapshot()").fetchall()[0][0])

    def same(self, sql: str, params: Parameters = None) -> Answer:
        """Run a statement on both, which must agree; returns the answer."""
        mine, plain = self.both(sql, params)
        assert mine.failed == plain.failed, f"{sql} {params or ''}\n  lake {mine}\n  DuckDB {plain}"
        if not plain.failed:
            assert mine == plain, f"{sql} {params or ''}\n  lake {mine}\n  DuckDB {plain}"
        return plain

    def undone(self, sql: str, params: Parameters, tables: Iterable[str]) -> Answer:
        """Like ``same``, in a transaction that is rolled back; the tables must be the same after the statement too."""
        self.prepare("BEGIN")
        try:
            found = self.same(sql, params)
            if not found.failed:
                for table in tables:
                    self.same(f"FROM {table}")
        finally:
            self.prepare("ROLLBACK")
        return found

    @staticmethod
    def _caught(run: Callable[[str, Parameters], Answer], sql: str, params: Parameters) -> Answer:
        try:
            return run(sql, params)
        except (quacklake.QuacklakeError, duckdb.Error) as error:
            return Answer(error=str(error) or type(error).__name__)

    def _of_lake(self, sql: str, params: Parameters) -> Answer:
        return self._of(self.session, sql, params)

    def _of_safe(self, sql: str, params: Parameters) -> Answer:
        return self._of(self.safe, sql, params)

    @staticmethod
    def _of(session: quacklake.Session, sql: str, params: Parameters) -> Answer:
        result = session.sql(sql, params)
        types = [str(type_) for type_ in result.types]
        return _answer(zip(result.columns, types, strict=True), result.to_arrow())

    def _of_plain(self, sql: str, params: Parameters) -> Answer:
        types, reader = run(self.plain, sql, params, batch_rows=100_000)
        if reader is None:
            return Answer()
        table = reader.read_all()
        return _answer(zip(table.column_names, types, strict=True), table)
