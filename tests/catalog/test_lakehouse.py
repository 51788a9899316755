"""Views over the metadata of a plain lake on PostgreSQL: in the schema ``lakehouse``, or beside tables elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

import quacklake
from quacklake.core.catalog.shared_lake import VIEWS
from quacklake.errors import InputError
from tests.catalog.driver import watch_driver
from tests.catalog.lakehouse_views import shown, told, write
from tests.catalog.stock import Stock
from tests.layout import plain_only

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def plain() -> None:
    plain_only("shared lakes have views of their own")


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def views(url: str) -> set[tuple[str, str]]:
    query = "SELECT schemaname, viewname FROM pg_views WHERE schemaname !~ '^(pg_|information_schema)'"
    return {(str(schema), str(name)) for schema, name in ask(url, query)}


def test_lakes_of_one_database_each_have_views_that_show_what_they_tell(
    postgres_url: str, tmp_path: Path, stock: Stock
) -> None:
    prefixes = {
        None: "lakehouse.",
        "own": "own.lakehouse_",
        'q"Ü': '"q""Ü".lakehouse_',
        "lakehouse": "lakehouse.lakehouse_",
    }
    facts = {}
    for schema, prefix in prefixes.items():
        with quacklake.connect(postgres_url, data_path=tmp_path / f"{len(prefix)}", metadata_schema=schema) as lake:
            write(lake, f"w{len(prefix)}", files=len(facts))
            facts[prefix] = told(lake)
    for prefix, found in facts.items():
        assert shown(lambda text: ask(postgres_url, text), prefix) == found
        assert all(found.values())
    for schema in (None, "own", "lakehouse"):
        options = [] if schema is None else [f"METADATA_SCHEMA '{schema}'"]
        assert stock.run(postgres_url, "SELECT count(*) FROM l.t", options=options) == [(30,)]


@pytest.mark.parametrize("schema", [pytest.param(None, marks=pytest.mark.daily(0.22)), "own"])
def test_a_lake_that_goes_to_the_next_version_and_back_keeps_its_views(
    postgres_url: str, tmp_path: Path, schema: str | None
) -> None:
    prefix = "lakehouse." if schema is None else "own.lakehouse_"
    with quacklake.connect(postgres_url, data_path=tmp_path, metadata_schema=schema) as lake:
        write(lake, "word")
        ask(postgres_url, f"GRANT SELECT ON {prefix}tables TO PUBLIC")
        for version in ("1.1", "1.0"):
            lake.migrate(version)
            assert shown(lambda text: ask(postgres_url, text), prefix) == told(lake)
        rights = f"SELECT relacl::text FROM pg_class WHERE oid = '{prefix}tables'::regclass"
        assert "=r/" in str(ask(postgres_url, rights))


def test_a_first_write_makes_the_views_that_are_missing_and_asks_little_for_those_that_are_there(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quacklake.connect(postgres_url, data_path=tmp_path).close()
    all_views = views(postgres_url)
    assert all_views == {("lakehouse", name) for name in VIEWS}
    ask(postgres_url, "DROP SCHEMA lakehouse CASCADE")
    with quacklake.connect(postgres_url) as lake:
        lake.create_schema("s")
    assert views(postgres_url) == all_views
    sent: list[str] = []
    with monkeypatch.context() as patch, quacklake.connect(postgres_url) as lake:
        watch_driver(patch, lambda statement, _: sent.append(str(statement)))
        lake.create_schema("s2")
    assert not any("VIEW" in statement for statement in sent)


@pytest.mark.parametrize(
    "taken",
    ["CREATE TABLE lakehouse.tables (mine int)", "CREATE VIEW lakehouse.tables AS SELECT 1 AS mine"],
)
def test_what_somebody_else_has_in_the_schema_lakehouse_stays(postgres_url: str, tmp_path: Path, taken: str) -> None:
    ask(postgres_url, f"CREATE SCHEMA lakehouse; {taken}")
    with quacklake.connect(postgres_url, data_path=tmp_path / "plain") as lake:
        lake.create_table("t", [{"a": 1}])
    assert "lakehouse.catalogs" not in {".".join(name) for name in views(postgres_url)}
    quacklake.tenants(postgres_url, tmp_path / "shared", convert="acme").close()
    ask(postgres_url, "SELECT mine FROM lakehouse.tables")


def test_a_role_that_may_make_no_schema_makes_a_lake_without_views(
    postgres_url: str, postgres_server: Any, tmp_path: Path
) -> None:
    role = postgres_server.create_role("modest")
    ask(postgres_url, f"GRANT CREATE ON SCHEMA public TO {role}")
    url = postgres_url.replace("://quacklake@", f"://{role}@")
    with quacklake.connect(url, data_path=tmp_path) as lake:
        lake.create_table("t", [{"a": 1}])
        assert views(url) == set()
    assert ask(url, "SELECT count(*) > 0 FROM quacklake_commits") == [(True,)]


def test_a_lake_that_a_search_path_finds_has_its_views_beside_its_tables(postgres_url: str, tmp_path: Path) -> None:
    ask(postgres_url, "CREATE SCHEMA apart")
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-csearch_path%3Dapart"
    for place in (url, postgres_url):
        with quacklake.connect(place, data_path=tmp_path / place[-5:]) as lake:
            write(lake, f"w{len(place)}")
    for place, prefix in ((url, "apart.lakehouse_"), (postgres_url, "lakehouse.")):
        with quacklake.connect(place) as lake:
            assert shown(lambda text: ask(postgres_url, text), prefix) == told(lake)
    # where older versions made them
    ask(postgres_url, "DROP SCHEMA lakehouse CASCADE; CREATE SCHEMA lakehouse")
    ask(postgres_url, "CREATE VIEW lakehouse.tables AS SELECT table_id FROM apart.ducklake_table")
    quacklake.tenants(url, tmp_path / "shared", convert="acme").close()
    assert views(postgres_url) == {("apart", f"lakehouse_{name}") for name in VIEWS}


def test_a_view_of_somebody_else_on_a_view_over_the_metadata_stops_a_conversion(
    postgres_url: str, tmp_path: Path
) -> None:
    quacklake.connect(postgres_url, data_path=tmp_path / "plain").close()
    ask(postgres_url, "CREATE VIEW mine AS SELECT * FROM lakehouse.tables")
    with pytest.raises(InputError, match="which must be replaced: mine"):
        quacklake.tenants(postgres_url, tmp_path / "shared", convert="acme")
    quacklake.connect(postgres_url).close()
    assert ask(postgres_url, "SELECT * FROM mine") == []
