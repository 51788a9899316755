"""Failing statements inside and outside of transactions: what each leaves behind, here and in plain DuckDB.

A case is a statement and a way to fail. ``play`` runs it after two changes of its transaction, asks for rows, and ends
the transaction. Two players agree on a case when all of their answers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import quacklake
from quacklake.core import duckdb_versions
from tests.layout import NAMED

#: Expressions of type INTEGER that fail, by the way in which they fail. ``i`` is a column of the statement's table.
VALUES = {
    "parser": "(1 +)",
    "unknown column": "nope",
    "unknown function": "nope(1)",
    "unknown type": "1::NOPE::INTEGER",
    "unknown table": "(SELECT i FROM nope)",
    "types": "[1]::STRUCT(a INTEGER)::INTEGER",
    "aggregate": "sum(sum(1))",
    "parameter": "?",
    "conversion": "'x'::INTEGER",
    "conversion of a row": "('x' || i)::INTEGER",
    "date": "date_part('year', ('x' || i)::DATE)::INTEGER",
    "decimal": "(99999 + i)::DECIMAL(4, 1)::INTEGER",
    "timestamp": "epoch(strptime('bad', '%Y'))::INTEGER",
    "timestamp of a row": "epoch(strptime('bad' || i, '%Y'))::INTEGER",
    "error()": "error('boo')::INTEGER",
    "error() of a row": "CASE WHEN i >= 0 THEN error('boo') ELSE '1' END::INTEGER",
    "json": "json_extract('{bad' || i, '$.a')::INTEGER",
    "cast to json": "json_array_length(('{bad' || i)::JSON)::INTEGER",
    "regex": "regexp_matches('a', '(')::INTEGER",
    "regex of a row": "regexp_matches('a', '(' || i)::INTEGER",
    "two rows": "(SELECT r.i FROM range(2) r(i))::INTEGER",
    "out of range": "abs((-128)::TINYINT)::INTEGER",
    "out of range in a row": "(i::INTEGER * 2147483647::INTEGER * 3::INTEGER)",
    "text": "length(repeat('x', 99999999999999 + i))::INTEGER",
    "format": "length(printf('%d', 'x' || i))::INTEGER",
    "file": "(SELECT count(*) FROM read_csv('/nowhere/nope.csv'))::INTEGER",
    "macro": "broken(i)",
    "view": "(SELECT max(v.i) FROM wrong v)",
}
#: Statements with a value at each place where one may stand.
PLACES = {
    "select": "SELECT {v} FROM t",
    "where": "SELECT i FROM t WHERE {v} > 0",
    "order": "SELECT i FROM t ORDER BY {v}, i",
    "aggregate": "SELECT max({v}) FROM t",
    "join": "SELECT count(*) FROM t JOIN u ON u.i = {v2}",
    "subquery": "SELECT (SELECT max({v}) FROM t)",
    "common table": "WITH c AS MATERIALIZED (SELECT {v} AS x FROM t) SELECT max(x) FROM c",
    "set operation": "SELECT i FROM t UNION ALL SELECT {v} FROM t",
    "from first": "FROM t SELECT {v}",
    "insert": "INSERT INTO t SELECT {v}, 'n' FROM u",
    "insert values": "INSERT INTO t VALUES ({v0}, 'n')",
    "insert after rows": "INSERT INTO t SELECT 7, 'n' UNION ALL SELECT {v}, 'n' FROM u",
    "insert returning": "INSERT INTO t SELECT i, 'n' FROM u RETURNING {v}",
    "update": "UPDATE t SET i = {v}",
    "update where": "UPDATE t SET i = 9 WHERE {v} > 0",
    "update from": "UPDATE t SET i = {v2} FROM u WHERE t.i = u.i",
    "update returning": "UPDATE t SET s = 'z' RETURNING {v}",
    "delete": "DELETE FROM t WHERE {v} > 0",
    "delete using": "DELETE FROM t USING u WHERE t.i = u.i AND {v2} > 0",
    "delete returning": "DELETE FROM t RETURNING {v}",
    "merge update": "MERGE INTO t USING u ON t.i = u.i WHEN MATCHED THEN UPDATE SET i = {v2}",
    "merge insert": "MERGE INTO t USING u ON t.i = u.i + 100 WHEN NOT MATCHED THEN INSERT VALUES ({v3}, 'n')",
    "merge condition": "MERGE INTO t USING u ON t.i = u.i WHEN MATCHED AND {v2} > 0 THEN DELETE",
    "merge source": "MERGE INTO t USING (SELECT {v} AS i FROM u) n ON t.i = n.i WHEN MATCHED THEN DELETE",
    "merge on": "MERGE INTO t USING u ON t.i = u.i AND {v2} > 0 WHEN MATCHED THEN DELETE",
    "upsert": "INSERT INTO k SELECT {v}, 'n' FROM u ON CONFLICT DO UPDATE SET s = 'q'",
    "upsert update": "INSERT INTO k SELECT i, 'n' FROM u ON CONFLICT DO UPDATE SET s = ({v3} || '')",
    "create as": "CREATE TABLE made AS SELECT {v} AS x FROM t",
    "replace as": "CREATE OR REPLACE TABLE u AS SELECT {v} AS i FROM t",
    "temporary": "CREATE TEMP TABLE made AS SELECT {v} AS x FROM t",
    "copy": "COPY (SELECT {v} AS x FROM t) TO '{folder}/made.csv'",
    "explain analyze": "EXPLAIN ANALYZE SELECT {v} FROM t",
    "summarize": "SUMMARIZE SELECT {v} AS x FROM t",
    "call": "CALL range({v0})",
    "variable": "SET VARIABLE made = {v0}",
    "limit": "SELECT i FROM t LIMIT {v0}",
    "prepared": "PREPARE made AS SELECT {v} FROM t; EXECUTE made",
    "pivot": "PIVOT (SELECT i, {v} AS x FROM t) ON s USING max(x)",
}
#: Whole statements that fail.
STATEMENTS = {
    "no statement": "SELEC 1",
    "unfinished": "SELECT 1 FROM",
    "begin": "BEGIN",
    "start": "START TRANSACTION",
    "null": "INSERT INTO t VALUES (NULL, 'x')",
    "null in update": "UPDATE t SET i = NULL",
    "null in merge": "MERGE INTO t USING u ON t.i = u.i WHEN MATCHED THEN UPDATE SET i = NULL",
    "null in an upsert": "INSERT INTO k VALUES (NULL, 'x') ON CONFLICT DO NOTHING",
    "nulls of a default": "INSERT INTO t (s) VALUES ('x')",
    "text for a number": "INSERT INTO t VALUES ('x', 'x')",
    "too large": "INSERT INTO t SELECT 9223372036854775807, 'x'",
    "too many values": "INSERT INTO t VALUES (1, 'x', 2)",
    "too few values": "INSERT INTO t (i, s) VALUES (1)",
    "column of an insert": "INSERT INTO t (nope) VALUES (1)",
    "column twice": "INSERT INTO t (i, i) VALUES (1, 2)",
    "column of an update": "UPDATE t SET nope = 1",
    "column set twice": "UPDATE t SET i = 1, i = 2",
    "table of an insert": "INSERT INTO nope VALUES (1)",
    "table of an update": "UPDATE nope SET i = 1",
    "table of a delete": "DELETE FROM nope",
    "table of a merge": "MERGE INTO nope USING u ON true WHEN MATCHED THEN DELETE",
    "source of a merge": "MERGE INTO t USING nope ON true WHEN MATCHED THEN DELETE",
    "schema": "SELECT * FROM nope.t",
    "table exists": "CREATE TABLE t (i INTEGER)",
    "view exists": "CREATE VIEW wrong AS SELECT 1",
    "schema exists": "CREATE SCHEMA main",
    "table in no schema": "CREATE TABLE nope.t (i INTEGER)",
    "column twice in a table": "CREATE TABLE made (a INTEGER, a INTEGER)",
    "type of a table": "CREATE TABLE made (a NOPE)",
    "view of nothing": "CREATE VIEW made AS SELECT nope FROM t",
    "drop table": "DROP TABLE nope",
    "drop view": "DROP VIEW nope",
    "drop schema": "DROP SCHEMA nope",
    "drop macro": "DROP MACRO nope",
    "drop view as table": "DROP TABLE wrong",
    "drop column": "ALTER TABLE t DROP COLUMN nope",
    "drop the last column": "ALTER TABLE u DROP COLUMN i",
    "add column twice": "ALTER TABLE t ADD COLUMN s VARCHAR",
    "rename to another": "ALTER TABLE t RENAME TO u",
    "rename a column to another": "ALTER TABLE t RENAME i TO s",
    "alter nothing": "ALTER TABLE nope ADD COLUMN s VARCHAR",
    "not null over nulls": "ALTER TABLE n ALTER i SET NOT NULL",
    "comment": "COMMENT ON TABLE nope IS 'x'",
    "use": "USE nope",
    "set": "SET nope = 1",
    "reset": "RESET nope",
    "set to nonsense": "SET threads = 'nope'",
    "pragma": "PRAGMA nope",
    "execute": "EXECUTE nope",
    "call": "CALL nope()",
    "detach": "DETACH nope",
    "attach": "ATTACH '/nowhere/nope.db' AS nope (READ_ONLY)",
    "copy from": "COPY t FROM '/nowhere/nope.csv'",
    "copy to": "COPY t TO '/nowhere/nope.csv'",
    "negative limit": "SELECT i FROM t LIMIT -1",
    "missing parameter": "SELECT i FROM t WHERE i = $a",
    "truncate": "TRUNCATE nope",
    "describe": "DESCRIBE nope",
    "summarize": "SUMMARIZE nope",
    "explain": "EXPLAIN SELECT nope FROM t",
    "replace by nothing": "CREATE OR REPLACE TABLE u AS SELECT nope FROM t",
    "replace by a column twice": "CREATE OR REPLACE TABLE u (i INTEGER, i INTEGER)",
    "replace a view": "CREATE OR REPLACE VIEW wrong AS SELECT nope FROM t",
    "replace a macro": "CREATE OR REPLACE MACRO broken(x) AS (SELECT FROM)",
    "two databases": "CREATE TABLE memory.main.made (i INTEGER)",
}
SETUP = (
    "CREATE OR REPLACE TABLE t (i INTEGER NOT NULL, s VARCHAR)",
    "CREATE OR REPLACE TABLE u (i INTEGER)",
    "CREATE OR REPLACE TABLE n (i INTEGER)",
    "CREATE OR REPLACE TABLE k (i INTEGER PRIMARY KEY, s VARCHAR)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "INSERT INTO u VALUES (1), (2)",
    "INSERT INTO n VALUES (NULL)",
    "INSERT INTO k VALUES (1, 'a')",
    "CREATE OR REPLACE MACRO broken(x) AS ('x' || x)::INTEGER",
    "CREATE OR REPLACE VIEW wrong AS SELECT ('x' || i)::INTEGER AS i FROM t",
)
ROWS = {
    "t": ["(1, 'a')", "(2, 'b')", "(3, 'c')"],
    "u": ["(1,)", "(2,)"],
    "n": ["(None,)"],
    "k": ["(1, 'a')"],
}
"""The rows of the tables, as texts."""
ENDINGS = ("COMMIT", "ROLLBACK", "END", "ABORT", "BEGIN")


@dataclass(frozen=True)
class Case:
    """A statement, the name of what it does, and the name of the way in which it fails."""

    statement: str
    kind: str
    way: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.way}"


def cases() -> list[Case]:
    """Return every statement with every way to fail that it can have."""
    found = [Case(sql, "statement", way) for way, sql in STATEMENTS.items()]
    for kind, place in PLACES.items():
        for way, value in VALUES.items():
            if kind.endswith(("returning", "upsert update")) and "SELECT" in value:
                continue  # DuckDB takes no subquery there
            # where t has no rows in reach, or two tables have an ``i``
            qualified = value.replace("broken(i)", "broken(t.i)").replace("|| i)", "|| t.i)")
            qualified = qualified.replace("+ i)", "+ t.i)").replace("WHEN i ", "WHEN t.i ").replace("(i::", "(t.i::")
            constant = value.replace("|| i)", "|| 1)").replace("+ i)", "+ 1)").replace("WHEN i ", "WHEN 1 ")
            constant = constant.replace("(i::", "(1::").replace("broken(i)", "broken(1)")
            source = qualified.replace("t.i", "u.i")
            text = place.replace("{v0}", constant).replace("{v2}", qualified).replace("{v3}", source)
            found.append(Case(text.replace("{v}", value), kind, way))
    return found


class Player(Protocol):
    """A connection on which statements run."""

    def run(self, sql: str) -> list[Any]:
        """Run a statement and return its rows."""


class PlainPlayer:
    """Plain DuckDB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connection = duckdb_versions.connect()
        self.connection.execute("SET threads = 1; ATTACH ':memory:' AS lake; USE lake")

    def run(self, sql: str) -> list[Any]:
        return self.connection.execute(sql.replace("{folder}", str(self.folder))).fetchall()

    def close(self) -> None:
        self.connection.close()


class SessionPlayer:
    """A session over a lake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = quacklake.session()
        self.session.sql(f"ATTACH 'ducklake:sqlite:{folder}/l.db' AS lake ({NAMED}DATA_PATH '{folder}/d'); USE lake")

    def run(self, sql: str) -> list[Any]:
        return self.session.sql(sql.replace("{folder}", str(self.folder))).fetchall()

    def close(self) -> None:
        self.session.close()


class CallPlayer:
    """Python's database interface, whose calls begin and end transactions: ``connection`` is one of PEP 249."""

    def __init__(self, connection: Any, folder: Path) -> None:
        self.connection, self.folder = connection, folder
        self._is_open = False

    def run(self, sql: str) -> list[Any]:
        if sql in ("BEGIN", "COMMIT", "ROLLBACK"):
            if self._is_open == (sql == "BEGIN"):
                raise AssertionError(f"{sql} is no call of PEP 249 now")
            self._is_open = sql == "BEGIN"
            if sql == "ROLLBACK":
                self.connection.rollback()
            elif sql == "COMMIT":
                try:
                    self.commit()
                except Exception as error:
                    if "COMMIT has rolled it back" not in str(error):  # which the statement says by its result
                        raise
            return []
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql.replace("{folder}", str(self.folder)))
                rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        except Exception:
            if not self._is_open:
                self.connection.rollback()
            raise
        if not self._is_open:
            self.connection.commit()
        return rows

    def commit(self) -> None:
        self.connection.commit()

    def close(self) -> None:
        self.connection.close()


def outcome(work: Callable[[], Any]) -> Any:
    """Return what a piece of work returns, or "fails"."""
    try:
        return work()
    except Exception:
        return "fails"


def _runs(player: Player, sql: str) -> str:
    return str(outcome(lambda: [player.run(part) for part in sql.split("; ")] and "runs"))


def _rows(player: Player, sql: str) -> Any:
    return outcome(lambda: sorted(map(str, player.run(sql))))


def fill(player: Player) -> None:
    """Create the tables, or restore what a case has changed."""
    _runs(player, "ROLLBACK")
    for table in ("memory.main.made", "temp.main.made", "lake.main.made"):
        _runs(player, f"DROP TABLE {table}")
    _runs(player, "DEALLOCATE made")
    if {name: _rows(player, f"FROM {name}") for name in ROWS} != ROWS:
        for sql in SETUP:
            player.run(sql)


def play(player: Player, case: Case, ending: str | None) -> dict[str, Any]:
    """Run a case, in a transaction unless ``ending`` is None, and return all that can be seen of it."""
    seen: dict[str, Any] = {}
    if ending is not None:
        player.run("BEGIN")
        player.run("DELETE FROM t WHERE i = 1")
        player.run("INSERT INTO u VALUES (50)")
    seen["statement"] = _runs(player, case.statement)
    if ending is not None:
        seen["next"] = _rows(player, "SELECT count(*), max(i) FROM t")
        seen["next change"] = _runs(player, "INSERT INTO n VALUES (7)")
        seen["ending"] = _runs(player, ending)
        if ending == "BEGIN":
            seen["after that"] = _runs(player, "SELECT 1")
            seen["and then"] = _runs(player, "COMMIT")
        seen["a transaction is open"] = _runs(player, "ROLLBACK")
    return seen | {name: _rows(player, f"FROM {name}") for name in ROWS}


def differences(player: Player, plain: Player, case: Case, ending: str | None) -> str | None:
    """Return how two players differ in a case, or None."""
    for each in (player, plain):
        fill(each)
    mine, expected = play(player, case, ending), play(plain, case, ending)
    found = {key: (mine[key], expected[key]) for key in expected if mine[key] != expected[key]}
    return f"{case}, {ending}\n  {case.statement}\n  {found}" if found else None
