"""Connections of the pool that end while nobody uses them: the next who reads or writes gets another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from services import DatabaseServer
from tests.prove.outages import kill_connections, shut_connections

SERVERS = ["postgres", "mysql"]
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


@pytest.mark.postgres
def test_a_connection_that_was_interrupted_within_a_message_is_replaced(postgres_url: str, tmp_path: Path) -> None:
    with quacklake.connect(postgres_url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 1}])

        def read() -> None:
            with lake._context.catalog.reading() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                rows = driver.cursor().copy("COPY (SELECT generate_series(1, 1000000)) TO STDOUT")
                rows.__enter__().read()
                raise KeyboardInterrupt

        try:
            read()
        except KeyboardInterrupt:  # which lives, with its frames
            assert lake.tables() == ["main.t"]
            lake.table("t").append([{"id": 2}])
            assert lake.table("t").count() == 2
