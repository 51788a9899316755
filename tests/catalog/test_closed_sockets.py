"""Connections of the pool that end while nobody uses them: the next who reads or writes gets another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from services import DatabaseServer
from tests.prove.outages import kill_connections, shut_connections

SERVERS = [pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("mysql", marks=pytest.mark.mysql)]
NewUrl = Callable[[str], str]


@pytest.mark.parametrize("database", SERVERS)
@pytest.mark.parametrize("how", ["shut", "killed"])
def test_a_connection_that_ended_in_the_pool_is_replaced(
    request: pytest.FixtureRequest, new_url: NewUrl, tmp_path: Path, database: str, how: str
) -> None:
    url = new_url(database)
    server: DatabaseServer = request.getfixturevalue(f"{database}_server")
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", pa.table({"id": range(100)}))

        def end() -> None:
            if how == "shut":
                shut_connections(url)
            else:
                kill_connections(server, url)

        end()
        assert table.count() == 100
        end()
        assert lake.tables() == ["main.t"]
        end()
        table.append([{"id": 100}])
        end()
        assert table.count() == 101
