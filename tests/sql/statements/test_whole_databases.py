"""COPY FROM DATABASE, prepared statements, and what a lake cannot have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import InputError, SqlError
from tests.layout import NAMED

Run = Callable[..., list[tuple[Any, ...]]]


def test_a_whole_lake_is_copied(tmp_path: Path) -> None:
    with quacklake.session() as session:
        for name in ("a", "b"):
            session.sql(
                f"ATTACH 'ducklake:sqlite:{tmp_path}/{name}.db' AS {name} ({NAMED}DATA_PATH '{tmp_path}/{name}')"
            )
        session.sql("USE a; CREATE SCHEMA more; CREATE TABLE more.u (i INTEGER NOT NULL, s VARCHAR DEFAULT 'x')")
        session.sql("CREATE TABLE t AS SELECT * FROM range(30); CREATE VIEW v AS SELECT count(*) AS n FROM t")
        session.sql("INSERT INTO more.u (i) VALUES (1)")
        session.sql("COPY FROM DATABASE a TO b; USE b")
        assert session.sql("FROM v").fetchall() == [(30,)]
        session.sql("INSERT INTO more.u (i) VALUES (2)")
        assert session.sql("FROM more.u ORDER BY i").fetchall() == [(1, "x"), (2, "x")]
        assert session.sql("FROM current_snapshot()").fetchall() == [(2,)]
        session.sql("COPY FROM DATABASE b TO memory (SCHEMA)")
        assert session.sql("SELECT count(*) FROM memory.more.u").fetchone() == (0,)


def test_prepared_statements_see_what_is_there_when_they_run(run: Run) -> None:
    run("CREATE TABLE t AS SELECT 1 AS id; PREPARE p AS SELECT count(*) FROM t WHERE id >= $least")
    assert run("EXECUTE p(least := 1)") == [(1,)]
    run("INSERT INTO t VALUES (2)")
    assert run("EXECUTE p(least := 1)") == [(2,)]
    run("PREPARE add AS INSERT INTO t VALUES (?); EXECUTE add(3); DEALLOCATE add")
    assert run("SELECT max(id) FROM t") == [(3,)]
    with pytest.raises(SqlError, match="does not exist"):
        run("EXECUTE add(4)")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SEQUENCE s",
        "CREATE INDEX i ON t (id)",
        "CREATE TYPE mood AS ENUM ('ok')",
        "EXPORT DATABASE 'folder'",
        "CREATE TABLE u (id INTEGER CHECK (id > 0))",
        "CREATE TABLE u (id INTEGER, twice INTEGER GENERATED ALWAYS AS (id * 2))",
        "CREATE TABLE u (s VARCHAR COLLATE NOCASE)",
        "CREATE TABLE u (e ENUM('a', 'b'))",
    ],
)
def test_what_a_lake_cannot_have_is_refused(run: Run, text: str) -> None:
    run("CREATE TABLE t (id INTEGER)")
    with pytest.raises((SqlError, InputError), match=r"Not implemented|unsupported type ENUM\('a', 'b'\)"):
        run(text)
