"""A shared lake that an older version made gets the tables that came later when its operator opens it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

import quacklake
from quacklake.errors import ReadOnlyError
from quacklake.pipelines import Pipeline
from tests.catalog.test_failures import NewUrl

GIVEN = {"pipeline": "p", "source": {"type": "lake", "table": "t"}, "sinks": [{"type": "lake", "table": "u"}]}


def forget(url: str) -> None:
    """Drop what an older version did not make."""
    connect = partial(psycopg.connect, autocommit=True) if url.startswith("postgres") else sqlite3.connect
    with closing(connect(url.removeprefix("sqlite:///"))) as connection:  # type: ignore[operator]
        connection.execute("DROP TABLE quacklake_checkpoints")
        connection.execute("DROP TABLE quacklake_definitions")


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_operator_adds_what_an_older_lake_lacks(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(database)
    with quacklake.connect(url, data_path=str(tmp_path), catalog="acme", create=True) as lake:
        lake.sql("CREATE TABLE t (id BIGINT)")
        lake.sql("INSERT INTO t VALUES (1)")
    forget(url)
    with quacklake.connect(url, catalog="acme") as lake:
        assert lake.sql("SHOW PIPELINES").fetchall() == []
        with pytest.raises(ReadOnlyError, match="quacklake_definitions"):
            lake.sql("CREATE SOURCE s WITH (type='lake', table='t')")
    quacklake.tenants(url).close()
    with quacklake.connect(url, catalog="acme") as lake:
        assert Pipeline(lake, GIVEN).run(until_caught_up=True).rows == 1
        lake.sql("CREATE SOURCE s WITH (type='lake', table='t')")
        assert len(lake.sql("SHOW SOURCES").fetchall()) == 1
