"""However many catalogs a shared lake has, no statement of daily work looks through the rows of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.core.tenancy.sharing import Occupancy
from services import PostgresServer
from tests.tenants import histories
from tests.tenants.plans import Statement, astray, captured, multiply

MANY = 2_000


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a shared lake with very many catalogs, all of which hold the same."""
    home = tmp_path_factory.mktemp("crowd")
    if request.param == "sqlite":
        url = f"sqlite:///{home}/l.db"
        _fill(url, home)
        yield url
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.new_database() as url:
        _fill(url, home)
        engine = sa.create_engine(parse_url(url).url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text("VACUUM ANALYZE"))
        engine.dispose()
        yield url


def _fill(url: str, home: Path) -> None:
    with quacklake.tenants(url, home / "data") as tenants:
        tenants.create_many([f"t{i:04}" for i in range(MANY)])
        with tenants.open("t0000") as lake:
            histories.write_little(lake, "word")
            lake.create_table("p", {"day": [1, 2] * 20, "a": list(range(40))}, partition_by=["day"], sort_by=["a"])
            lake.create_view("v", "SELECT 1 AS one")
            lake.create_macro("twice", ["x"], "x * 2")
            lake.table("t").set_comment("of all")
            lake.history.set_retention("p", "60 days")
            lake.streams.claim("s", "query")
    engine = sa.create_engine(parse_url(url).url)
    with engine.connect() as connection:
        multiply(connection, 0)
    engine.dispose()


def _append_file(lake: quacklake.Lake) -> None:
    assert lake.table("t").append({"id": list(range(40)), "name": ["x"] * 40, "note": ["y"] * 40}) == 40


WORK: dict[str, Callable[[quacklake.Lake], object]] = {
    "append a row": lambda lake: lake.table("t").append([{"id": 1, "name": "x", "note": "y"}]),
    "append a file": _append_file,
    "delete": lambda lake: lake.table("t").delete("id = 7"),
    "plan": lambda lake: lake.table("t").scan(where="id > 240").to_arrow(),
    "plan a partition": lambda lake: lake.table("p").scan(where="day = 2 AND a > 3").to_arrow(),
    "count": lambda lake: lake.table("t").count(),
    "tables": lambda lake: (lake.tables(), lake.views(), lake.schemas()),
    "snapshots": lambda lake: lake.snapshots(),
    "feed": lambda lake: lake.table("t").changes(since=1).to_arrow(),
    "travel": lambda lake: lake.at(version="first").table("t").count(),
    "create a table": lambda lake: lake.create_table("new", [{"a": 1}]),
    "drop a table": lambda lake: lake.drop_table("new"),
    "expire": lambda lake: lake.expire_snapshots(versions=[2]),
}


def _check(url: str, statements: list[Statement]) -> None:
    engine = sa.create_engine(parse_url(url).url)
    found: dict[str, list[str]] = {}
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        for sql, statement in {each.sql: each for each in statements}.items():
            if "ducklake_" in sql and "quacklake_unseen_" not in sql and (lost := astray(driver, statement)):
                found[sql] = lost
    engine.dispose()
    assert not found


def test_a_lake_among_many_is_used_without_looking_at_the_others(crowd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        captured(monkeypatch) as statements,
        quacklake.connect(crowd, catalog="t1000", data_inlining_row_limit=10) as lake,
    ):
        for name, work in WORK.items():
            before = len(statements)
            work(lake)
            assert len(statements) > before, name
    assert len({each.sql for each in statements}) > 40
    _check(crowd, statements)


def test_one_of_many_catalogs_is_found_made_and_removed_without_looking_at_the_others(
    crowd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with captured(monkeypatch) as statements, quacklake.tenants(crowd) as tenants:
        tenants.create("alone")
        tenants.create_many(["more", "most"], if_not_exists=True)
        assert tenants.get("ALONE").name == "alone"
        assert len(tenants.list("t", after="t0500", limit=7)) == 7
        assert len(tenants.list(limit=3)) == 3
        tenants.rename("alone", "lonely")
        tenants.fork("t0001", "child")
        assert tenants.shares("t0001")
        assert tenants.stats("t0777")[0].rows == 100 + 40
        for name in ("lonely", "child", "more", "most"):
            tenants.drop(name)
        assert len(tenants.dropped()) == 4
        with monkeypatch.context() as patch:
            patch.setattr(Occupancy, "add", lambda *_: None)
            assert tenants.purge().catalogs == 4
    _check(crowd, statements)


def test_a_purge_looks_at_the_other_catalogs_once_however_many_it_removes(
    crowd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quacklake.tenants(crowd) as tenants:
        looks = []
        for names in (["x1"], ["x2", "x3", "x4"]):
            tenants.create_many(names)
            for name in names:
                tenants.drop(name)
            with monkeypatch.context() as patch, captured(patch) as statements:
                assert tenants.purge().catalogs == len(names)
            looks.append([each.sql for each in statements if "dropped_ms IS NULL" in each.sql])
        assert looks[0] == looks[1]
        assert len(looks[0]) == 5


def test_names_are_looked_for_with_a_plan_for_as_many_as_there_are(postgres_url: str, tmp_path: Path) -> None:
    """The plan of a prepared statement may be one for an empty table, which then is gone through for each name."""
    with quacklake.tenants(postgres_url, tmp_path / "data") as tenants:
        for number in range(8):
            tenants.create(f"t{number}")
        with tenants._tenancy._catalog.connected() as connection:
            prepared = connection.execute(sa.text("SELECT statement FROM pg_prepared_statements")).scalars().all()
    assert prepared
    assert not [sql for sql in prepared if "folder_key = ANY" in sql]


def test_a_lake_of_an_older_version_gets_the_indexes_that_it_lacks(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    quacklake.tenants(url, tmp_path / "data").close()
    engine = sa.create_engine(url)
    indexes = sa.text("SELECT name FROM sqlite_master WHERE type = 'index'")
    with engine.connect() as connection:
        wanted = set(connection.execute(indexes).scalars())
        for name in ("quacklake_catalog_gone", "idx_table_catalog"):
            connection.execute(sa.text(f"DROP INDEX {name}"))
        connection.execute(sa.text("CREATE INDEX quacklake_catalog_dropped ON ducklake_catalog (dropped_ms)"))
        connection.commit()
        quacklake.tenants(url).close()
        assert set(connection.execute(indexes).scalars()) == wanted
    engine.dispose()
