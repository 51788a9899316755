"""Both clients' views of a lake, snapshot by snapshot, for tests of undo."""

from __future__ import annotations

from collections.abc import Sequence

from quacklake.core.format.names import quote
from tests.conformance.clients import LakeSite, plain_duckdb
from tests.conformance.history import State, TableState, _state, ours_at

__all__ = ["HISTORIES", "both_see", "play", "same_rows", "without_types"]

#: Statements of stock DuckDB on the table ``t``, one snapshot each unless noted otherwise.
HISTORIES: dict[str, Sequence[str]] = {
    "rows": (
        "CREATE TABLE t AS SELECT i, 'v' || i AS v, i / 4 AS x FROM range(30) r(i)",
        "INSERT INTO t SELECT i, 'w' || i, NULL FROM range(100, 120) r(i)",
        "INSERT INTO t VALUES (200, 'few', 1.5), (201, 'few', 'nan')",
        "UPDATE t SET v = 'changed' WHERE i IN (1, 2, 200)",
        "DELETE FROM t WHERE i % 3 = 0",
        "DELETE FROM t WHERE i IN (4, 5, 101)",
        "UPDATE t SET x = -1 WHERE i > 105",
        "DELETE FROM t",
        "INSERT INTO t VALUES (1, 'again', 0)",
    ),
    "compacted": (
        "CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range(30) r(i)",
        "INSERT INTO t VALUES (100, 'few'), (101, 'few')",
        "INSERT INTO t SELECT i, 'w' || i FROM range(200, 220) r(i)",
        "DELETE FROM t WHERE i IN (3, 4, 100)",
        "CALL ducklake_flush_inlined_data('l')",
        "DELETE FROM t WHERE i < 25",
        "CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0.1)",
        "INSERT INTO t SELECT i, 'z' || i FROM range(300, 320) r(i)",
        "UPDATE t SET v = 'late' WHERE i IN (26, 201, 301)",
        "CALL ducklake_merge_adjacent_files('l')",
    ),
    "evolved": (
        "CREATE TABLE t AS SELECT i::INTEGER AS i, 'v' || i AS v, {'a': i::INTEGER, 'b': 's' || i} AS s"
        " FROM range(20) r(i)",
        "INSERT INTO t VALUES (50, 'few', {'a': 5, 'b': 'few'})",
        "ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7",
        "INSERT INTO t SELECT i, 'w' || i, {'a': 1, 'b': 'x'}, i FROM range(60, 80) r(i)",
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ADD COLUMN s.c INTEGER",
        "INSERT INTO t VALUES (51, {'a': 6, 'b': 'few', 'c': 9}, 8)",
        "ALTER TABLE t RENAME COLUMN more TO less",
        "DELETE FROM t WHERE i IN (2, 50, 61)",
        "CALL ducklake_flush_inlined_data('l')",
        "CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0.01)",
        "CALL ducklake_merge_adjacent_files('l')",
        "ALTER TABLE t ALTER COLUMN i SET DATA TYPE BIGINT",
        "INSERT INTO t VALUES (5000000000, {'a': 1, 'b': 'big', 'c': 0}, 1)",
        "ALTER TABLE t DROP COLUMN s.b",
        "COMMENT ON TABLE t IS 'evolved'",
        "ALTER TABLE t SET PARTITIONED BY (less)",
        "INSERT INTO t SELECT i, {'a': 1, 'c': 2}, i % 3 FROM range(80, 100) r(i)",
    ),
    "laid_out": (
        "CREATE TABLE t(i BIGINT, part VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (part)",
        "INSERT INTO t SELECT i, 'p' || (i % 3) FROM range(30) r(i)",
        "ALTER TABLE t SET SORTED BY (i DESC)",
        "UPDATE t SET part = 'p9' WHERE i < 20",
        "ALTER TABLE t RESET PARTITIONED BY",
        "DELETE FROM t WHERE i % 2 = 0",
        "INSERT INTO t SELECT i, 'q' FROM range(50, 70) r(i)",
    ),
}


def play(site: LakeSite, statements: Sequence[str]) -> None:
    """Let stock DuckDB run statements."""
    for statement in statements:
        site.stock().execute(statement)


def both_see(site: LakeSite) -> dict[int, State]:
    """Every table at every snapshot, the row id in front; both clients must agree."""
    lake = site.lake()
    with plain_duckdb() as scratch:
        versions = lake.snapshots().column(0).to_pylist()
        ours = {version: ours_at(lake, version, scratch)[1] for version in versions}
    connection = site.stock()
    for version, tables in ours.items():
        for (schema, name), state in tables.items():
            source = f"l.{quote(schema)}.{quote(name)} AT (VERSION => {version:d})"
            assert _state(connection, source, row_ids=True) == state, f"{schema}.{name} at {version}"
    return ours


def same_rows(found: State, expected: State) -> None:
    """The same tables with the same rows under the same row ids; a type may be wider."""
    assert set(found) == set(expected)
    for key, state in expected.items():
        assert without_types(found[key]) == without_types(state), key


def without_types(state: TableState) -> tuple[object, ...]:
    return [name for name, _ in state.columns], state.rows
