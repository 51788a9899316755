"""Make one lake in the current folder with the DuckDB of this environment, and ``expected.json`` beside it.

Started by ``make.py`` as ``script.py CATALOG FORMAT``, in an environment that holds nothing but DuckDB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

Row = list[str | None]
State = tuple[list[list[str]], list[Row]]
States = dict[int, dict[str, State]]

CATALOG_FILES = {"sqlite": "catalog.sqlite", "duckdb": "catalog.duckdb"}

STATEMENTS = [
    "CREATE SCHEMA lake.sales",
    """CREATE TABLE lake.main.things(id INTEGER NOT NULL, name VARCHAR, weight DOUBLE, price DECIMAL(10,2), born DATE,
         seen TIMESTAMP, tags VARCHAR[], spot STRUCT(x INTEGER, label VARCHAR))""",
    """INSERT INTO lake.main.things VALUES
         (1, 'duck', 1.5, 12.34, '2024-02-29', '2024-02-29 23:59:59.123456', ['a', 'b'], {'x': 1, 'label': 'one'}),
         (2, 'Zürich ☃ 鴨', -0.25, -0.01, '1969-12-31', '1969-12-31 23:59:59', [], {'x': NULL, 'label': NULL}),
         (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
    "INSERT INTO lake.main.things VALUES (4, '', 1e300, 99999999.99, '9999-12-31', '2000-01-01', ['x', NULL], NULL)",
    """INSERT INTO lake.main.things
         SELECT 100 + i, 'thing ' || i, i / 8, i / 100, DATE '2024-01-01' + i::INTEGER,
                TIMESTAMP '2024-01-01' + INTERVAL (i) HOUR, [i::VARCHAR], {'x': i, 'label': 'l' || i}
         FROM range(40) r(i)""",
    "CREATE TABLE lake.main.numbers(id INTEGER, name VARCHAR, value BIGINT)",
    "INSERT INTO lake.main.numbers SELECT i, 'n' || (i % 10), i * 1000000007 FROM range(1000) r(i)",
    "INSERT INTO lake.main.numbers VALUES (1000, 'late', NULL), (1001, NULL, -1)",
    "DELETE FROM lake.main.numbers WHERE id BETWEEN 100 AND 149",
    "DELETE FROM lake.main.numbers WHERE id % 100 = 7",
    "UPDATE lake.main.numbers SET name = 'changed', value = value + 1 WHERE id BETWEEN 500 AND 509",
    "CREATE TABLE lake.sales.orders(id BIGINT, amount DECIMAL(12,3))",
    "INSERT INTO lake.sales.orders SELECT i, i / 7 FROM range(25) r(i)",
    "ALTER TABLE lake.main.things ADD COLUMN grade INTEGER DEFAULT 7",
    """INSERT INTO lake.main.things
         VALUES (200, 'graded', 0.5, 1.00, '2025-01-01', '2025-01-01', ['g'], {'x': 5, 'label': 'g'}, 9),
                (201, 'ungraded', 0.5, 1.00, '2025-01-01', '2025-01-01', NULL, NULL, NULL)""",
    "ALTER TABLE lake.main.things RENAME COLUMN name TO title",
    """INSERT INTO lake.main.things (id, title)
         SELECT 300 + i, 'titled ' || i FROM range(12) r(i)""",
    "UPDATE lake.main.things SET grade = id, title = upper(title) WHERE id IN (1, 110, 200, 305)",
    "DELETE FROM lake.main.things WHERE id IN (2, 111, 306)",
    "CREATE TABLE lake.sales.days(region VARCHAR, day DATE, amount INTEGER)",
    "ALTER TABLE lake.sales.days SET PARTITIONED BY (region, year(day))",
    """INSERT INTO lake.sales.days
         SELECT CASE i % 3 WHEN 0 THEN 'north' WHEN 1 THEN 'süd' ELSE 'a b/c' END,
                DATE '2023-12-01' + (i * 9)::INTEGER, i
         FROM range(48) r(i)""",
    "DELETE FROM lake.sales.days WHERE region = 'north' AND amount > 30",
    "DROP TABLE lake.sales.orders",
    "INSERT INTO lake.sales.days SELECT 'west', DATE '2025-06-01', 1000 + i FROM range(20) r(i)",
]


def tables_at(connection: duckdb.DuckDBPyConnection, snapshot: int) -> list[tuple[str, str]]:
    """The (schema, table) pairs visible at a snapshot, as the catalog holds them."""
    visible = "{0}.begin_snapshot <= ? AND ({0}.end_snapshot IS NULL OR ? < {0}.end_snapshot)"
    return connection.execute(
        "SELECT s.schema_name, t.table_name FROM __ducklake_metadata_lake.ducklake_table t"
        " JOIN __ducklake_metadata_lake.ducklake_schema s USING (schema_id)"
        f" WHERE {visible.format('t')} AND {visible.format('s')} ORDER BY 1, 2",
        [snapshot] * 4,
    ).fetchall()


def contents(connection: duckdb.DuckDBPyConnection, schema: str, table: str, at: str = "") -> State:
    """Column names and types, and every row as text, sorted."""
    source = f'lake."{schema}"."{table}" {at}'
    columns = [list(row[:2]) for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]
    texts = ", ".join(f'CAST("{name}" AS VARCHAR)' for name, _ in columns)
    rows = connection.execute(f"SELECT {texts} FROM {source}").fetchall()
    return columns, sorted((list(row) for row in rows), key=sort_key)


def sort_key(row: Row) -> list[tuple[bool, str]]:
    return [(value is not None, value or "") for value in row]


def newest(connection: duckdb.DuckDBPyConnection) -> int:
    ((snapshot,),) = connection.execute(
        "SELECT max(snapshot_id) FROM __ducklake_metadata_lake.ducklake_snapshot"
    ).fetchall()
    return int(snapshot)


def attach(connection: duckdb.DuckDBPyConnection, catalog: str) -> None:
    prefix = "sqlite:" if catalog == "sqlite" else ""
    connection.execute(f"ATTACH 'ducklake:{prefix}{CATALOG_FILES[catalog]}' AS lake (DATA_PATH 'data/')")


def make(connection: duckdb.DuckDBPyConnection) -> States:
    """Run the statements; what each snapshot held while it was the newest."""
    states: States = {0: {}}
    for statement in STATEMENTS:
        connection.execute(statement)
        snapshot = newest(connection)
        states[snapshot] = {f"{s}.{t}": contents(connection, s, t) for s, t in tables_at(connection, snapshot)}
    return states


def look_back(connection: duckdb.DuckDBPyConnection, live: States) -> list[str]:
    """Read every snapshot again with AT (VERSION); what went wrong, which is a fault of that release."""
    notes = []
    for snapshot in range(newest(connection) + 1):
        for schema, table in tables_at(connection, snapshot):
            name = f"{schema}.{table}"
            try:
                if contents(connection, schema, table, f"AT (VERSION => {snapshot})") != live[snapshot][name]:
                    notes.append(f"{name} at {snapshot}: reads otherwise than when it was new")
            except duckdb.Error as error:
                notes.append(f"{name} at {snapshot}: {str(error).splitlines()[0]}")
    return notes


def packed(states: States) -> tuple[list[Row], dict[int, dict[str, object]]]:
    """Rows are kept once and named by number: snapshots share nearly all of them."""
    pool: list[Row] = []
    numbers: dict[tuple[str | None, ...], int] = {}
    snapshots: dict[int, dict[str, object]] = {}
    for snapshot, tables in states.items():
        snapshots[snapshot] = {}
        for table, (columns, rows) in tables.items():
            for row in rows:
                if tuple(row) not in numbers:
                    numbers[tuple(row)] = len(pool)
                    pool.append(row)
            snapshots[snapshot][table] = {"columns": columns, "rows": runs([numbers[tuple(row)] for row in rows])}
    return pool, snapshots


def runs(numbers: list[int]) -> list[list[int]]:
    """Consecutive numbers as [first, count]."""
    result: list[list[int]] = []
    for number in numbers:
        if result and sum(result[-1]) == number:
            result[-1][1] += 1
        else:
            result.append([number, 1])
    return result


def document(header: Mapping[str, object], states: States) -> str:
    """``expected.json``: one snapshot and one row per line, so that a change can be read as a difference."""
    pool, snapshots = packed(states)
    lines = [f"{json.dumps(key)}: {json.dumps(value, indent=1)}," for key, value in header.items()]
    each = (f'"{number}": {json.dumps(tables, ensure_ascii=False)}' for number, tables in snapshots.items())
    rows = (json.dumps(row, ensure_ascii=False) for row in pool)
    lines += ['"snapshots": {', ",\n".join(each), "},", '"rows": [', ",\n".join(rows), "]"]
    return "\n".join(["{", *lines, "}", ""])


def main() -> None:
    catalog, version = sys.argv[1:]
    for extension in ("ducklake", "sqlite_scanner"):
        import_extension(extension)
    connection = duckdb.connect()
    connection.execute("SET threads = 1; LOAD ducklake; LOAD sqlite_scanner")
    if catalog == "duckdb":
        # Small blocks keep the file small; DuckLake takes an empty database as it finds it.
        connection.execute(f"ATTACH '{CATALOG_FILES[catalog]}' AS empty (BLOCK_SIZE 16384)")
        connection.execute("CHECKPOINT empty")
        connection.execute("DETACH empty")
    attach(connection, catalog)
    states = make(connection)
    connection.execute("DETACH lake")
    attach(connection, catalog)
    notes = look_back(connection, states)
    connection.execute("DETACH lake")
    header = {"format": version, "duckdb": duckdb.__version__, "catalog": CATALOG_FILES[catalog], "notes": notes}
    Path("expected.json").write_text(document(header, states), encoding="utf-8")


if __name__ == "__main__":
    main()
