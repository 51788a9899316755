"""Questions of a single statement need no transaction on PostgreSQL, and what follows on their connection has one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg.pq import TransactionStatus

import quacklake
from quacklake.core.catalog import Catalog
from quacklake.core.catalog.databases import direct
from quacklake.core.catalog.reading.reader import Reader
from quacklake.errors import CatalogError
from quacklake.lake.lake import Lake

ONE = {"pool_size": 1, "pool_max_overflow": 0}
"""Every transaction follows the others on the same connection."""
_LEVEL = sa.text("SELECT current_setting('transaction_isolation')")
_COUNT = sa.text("SELECT count(*) FROM ducklake_snapshot")


@pytest.fixture
def lake(postgres_url: str, tmp_path: Path) -> Lake:
    return quacklake.connect(postgres_url, tmp_path / "data", **ONE)


def _status(reader: Reader) -> TransactionStatus:
    driver: Any = reader.connection.connection.driver_connection
    return TransactionStatus(driver.info.transaction_status)


def _level(catalog: Catalog) -> str:
    with catalog.read() as reader:
        assert _status(reader) is TransactionStatus.IDLE
        level = str(reader.connection.execute(_LEVEL).scalar())
        assert _status(reader) is TransactionStatus.INTRANS
    return level


def test_a_question_begins_no_transaction_and_a_read_after_it_does(lake: Lake) -> None:
    catalog = lake.handle.context.catalog
    for _ in range(2):
        with catalog.read(once=True) as reader:
            assert reader.snapshots.latest().id == 0
            assert _status(reader) is TransactionStatus.IDLE
        assert _level(catalog) == "repeatable read"
        with catalog.commit() as writer:
            assert writer.connection.execute(_LEVEL).scalar() == "read committed"
    lake.close()


def test_reads_see_one_state_and_questions_each_the_newest(lake: Lake, postgres_url: str) -> None:
    catalog = lake.handle.context.catalog
    with quacklake.connect(postgres_url) as other:
        for number in range(3):
            assert lake.current_snapshot() == number
            with catalog.read() as reader:
                before = reader.connection.execute(_COUNT).scalar()
                other.create_schema(f"s{number}")
                assert reader.connection.execute(_COUNT).scalar() == before
            assert lake.current_snapshot() == number + 1
    lake.close()


@pytest.mark.parametrize("once", [False, True])
def test_a_question_that_failed_or_was_interrupted_leaves_nothing_behind(once: bool, lake: Lake) -> None:
    catalog = lake.handle.context.catalog
    with pytest.raises(CatalogError), catalog.read(once=once) as reader:
        reader.connection.execute(sa.text("SELECT 1 / 0"))
    assert _level(catalog) == "repeatable read"
    with pytest.raises(KeyboardInterrupt), catalog.read(once=once) as reader:
        reader.snapshots.latest()
        raise KeyboardInterrupt
    assert _level(catalog) == "repeatable read"
    lake.create_table("t", {"id": [1]})
    assert lake.current_snapshot() == 1
    lake.close()


def test_newest_snapshots_never_go_back_while_others_commit(lake: Lake, postgres_url: str) -> None:
    ended = threading.Event()

    def write() -> None:
        with quacklake.connect(postgres_url) as other:
            for number in range(20):
                other.create_schema(f"s{number}")
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = [0]
    while not ended.is_set():
        seen.append(lake.current_snapshot())
    writer.join()
    assert seen == sorted(seen)
    assert lake.current_snapshot() == 20
    lake.close()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_tenants_share_the_text_of_their_questions_and_not_the_answers(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else f"sqlite:///{tmp_path}/lake.db"
    names = ["a", "b", "c"]
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        for number, name in enumerate(names):
            tenants.create(name)
            with tenants.open(name) as lake:
                for table in range(number):
                    lake.create_table(f"t{table}", {"id": [10 * number + table] * 20})
    made: list[str] = []
    real = direct.Direct.__init__

    def note(self: Any, connection: Any, statement: Any, keys: Any) -> None:
        made.append(str(statement))
        real(self, connection, statement, keys)

    monkeypatch.setattr(direct.Direct, "__init__", note)
    for number, name in enumerate(names):
        with quacklake.connect(url, catalog=name) as lake:
            made.clear()
            assert lake.current_snapshot() == number
            assert len(lake.tables()) == number
            for table in range(number):
                assert lake.sql(f"SELECT DISTINCT id FROM t{table}").fetchall() == [(10 * number + table,)]
            assert not [text for text in made if "ducklake_snapshot" in text]
