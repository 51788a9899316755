"""Making, finding, naming and removing the catalogs of a shared lake."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from quacklake.core.format.names import check_tenant_name, tenant_key
from quacklake.errors import (
    AlreadyExistsError,
    ConfigError,
    InvalidNameError,
    NotFoundError,
    QuacklakeError,
)
from tests.seeds import LONG


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/l.db"


@pytest.fixture
def tenants(url: str, tmp_path: Path) -> Iterator[quacklake.Tenants]:
    with quacklake.tenants(url, tmp_path / "data") as found:
        yield found


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_catalog_must_be_named(url: str, tenants: quacklake.Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUACKLAKE_CATALOG", raising=False)
    tenants.create("acme")
    with pytest.raises(ConfigError) as error:
        quacklake.connect(url)
    assert error.value.message == "CATALOG is required. Please provide CATALOG when attaching the database."
    monkeypatch.setenv("DUCKLAKE_CATALOG", "acme")
    quacklake.connect(url).close()
    monkeypatch.delenv("DUCKLAKE_CATALOG")
    quacklake.connect(f"{url}?catalog=acme").close()


def test_a_missing_catalog_is_made_only_when_asked_for(url: str, tenants: quacklake.Tenants) -> None:
    for create in (None, False):
        with pytest.raises(NotFoundError) as error:
            quacklake.connect(url, catalog="x", create=create)
        assert error.value.message == "Catalog 'x' does not exist in this DuckLake instance"
    with quacklake.connect(url, catalog="x", create=True) as lake:
        assert lake.schemas() == ["main"]
        assert lake.data_path.endswith("/data/x/")
    assert [tenant.name for tenant in tenants] == ["x"]


def test_a_plain_lake_has_no_catalog_by_name(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUACKLAKE_CATALOG", raising=False)
    quacklake.connect(url, tmp_path / "data").close()
    with pytest.raises(ConfigError, match="not a shared one"):
        quacklake.connect(url, catalog="acme", create=True)
    with pytest.raises(ConfigError, match="not a shared one"):
        quacklake.tenants(url)


def test_there_must_be_a_shared_lake(url: str) -> None:
    with pytest.raises(NotFoundError, match="no shared lake"):
        quacklake.tenants(url)


def test_another_data_path_is_refused(url: str, tenants: quacklake.Tenants, tmp_path: Path) -> None:
    tenants.create("acme")
    quacklake.connect(url, tmp_path / "data", catalog="acme").close()
    with pytest.raises(ConfigError, match="does not match existing data path"):
        quacklake.connect(url, tmp_path / "other", catalog="acme")


def test_a_catalog_is_opened_with_the_settings_for_all(url: str, tmp_path: Path) -> None:
    with (
        quacklake.tenants(url, tmp_path / "data", data_inlining_row_limit=0, s3_secret_key="s", pool_size=2) as tenants,
        tenants.open("acme", create=True, pool_size=3) as lake,
    ):
        config = lake._context.config
        assert (config.data_inlining_row_limit, config.pool_size) == (0, 3)
        assert config.s3_secret_key is not None and config.s3_secret_key.reveal() == "s"
        assert lake.create_table("t", [{"a": 1}]).files().num_rows == 1


# -- names -------------------------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "a\0b",
    "x" * 64,
    "x" * 300,
    "Ünïcode",
    "аcme",  # the first letter is Cyrillic
    "acme\u200b",
    "a'b",
    'a"; DROP TABLE x; --',
    "a b",
    " a",
    "a.",
    "a..b",
    ".a",
    "-a",
    "con",
    "NUL",
    "com1.txt",
    "information_schema",
    "ducklake_x",
    "pg_temp",
    "acme~1",
    "tenant\n",
    "a\tb",
    "ａcme",  # full width
    "acmé",
    "ﬁ",
    "COM1",
    "Con.x",
    "Pg_x",
    "__DuckLake_x",
    "--",
    "a;b",
    "a`b",
    "a$(b)",
    "a@b",
    "~",
    "%2e%2e",
    "a:b",
    "a*",
    "\ud800",
]


def test_hostile_names_are_refused_and_change_nothing(url: str, tenants: quacklake.Tenants, tmp_path: Path) -> None:
    tenants.create("known")
    for name in HOSTILE:
        for work in (
            lambda name=name: tenants.create_many(["good", name]),
            lambda name=name: tenants.rename("known", name),
            lambda name=name: tenants.fork("known", name),
            lambda name=name: quacklake.connect(url, catalog=name, create=True) if name else tenants.create(name),
        ):
            with pytest.raises(InvalidNameError):
                work()
        for look in (tenants.get, tenants.drop, tenants.stats):
            with pytest.raises(NotFoundError) as error:
                look(name)
            error.value.message.encode()  # can be printed and logged
    for name in ("a\0b", "\ud800", "'", "%", "Ünïcode"):
        for arguments in ({"prefix": name}, {"after": name}):
            with pytest.raises(InvalidNameError):
                tenants.list(**arguments)
    assert [tenant.name for tenant in tenants] == ["known"]
    assert not (tmp_path / "data").exists()


@settings(max_examples=300 if LONG else 60)
@given(st.text(max_size=70))
def test_a_name_that_passes_is_a_folder_of_its_own(name: str) -> None:
    try:
        check_tenant_name(name)
    except InvalidNameError:
        return
    assert name.isascii()
    assert Path(name).parts == (name,)
    assert tenant_key(name) == name.casefold()


def test_the_case_of_letters_does_not_count(url: str, tenants: quacklake.Tenants) -> None:
    tenants.create("Acme")
    with pytest.raises(AlreadyExistsError):
        tenants.create("aCME")
    with pytest.raises(AlreadyExistsError):
        tenants.create_many(["b", "B"])
    assert tenants.get("ACME").name == "Acme"
    quacklake.connect(url, catalog="acme").close()


# -- many --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_many_are_made_at_once_and_listed_by_pages(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    names = [f"t{i:04}" for i in range(1_200)]
    url = new_url(database)
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        made = tenants.create_many(names)
        assert [tenant.id for tenant in made] == list(range(1_200))
        assert [tenant.name for tenant in tenants] == names
        assert [tenant.name for tenant in tenants.list("t01", limit=3)] == ["t0100", "t0101", "t0102"]
        assert [tenant.name for tenant in tenants.list("T01", after="t0197")] == ["t0198", "t0199"]
        assert tenants.create_many(["t0003", "new"], if_not_exists=True)[0] == made[3]
        with pytest.raises(AlreadyExistsError):
            tenants.create_many(["newer", "t0003"])
        with pytest.raises(NotFoundError):
            tenants.get("newer")
    with quacklake.connect(url, catalog="t0777") as lake:
        lake.create_table("t", [{"a": 1}])
        assert not lake.verify().errors


def _create(arguments: tuple[str, str, bool]) -> int | str:
    url, data, if_not_exists = arguments
    try:
        with quacklake.tenants(url, data) as tenants:
            return tenants.create("acme", if_not_exists=if_not_exists).id
    except QuacklakeError as error:
        return error.code


@pytest.mark.parametrize("if_not_exists", [True, False])
def test_of_many_who_make_one_name_one_wins(url: str, tmp_path: Path, if_not_exists: bool) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(_create, [(url, str(tmp_path / "data"), if_not_exists)] * 32))
    assert [answer for answer in found if isinstance(answer, int)] == ([0] * 32 if if_not_exists else [0])
    assert set(found) <= {0, AlreadyExistsError.code}
    with quacklake.tenants(url) as tenants:
        assert [tenant.id for tenant in tenants] == [0]


# -- life --------------------------------------------------------------------------------------------------------------


def test_a_catalog_that_is_renamed_keeps_its_folder(url: str, tenants: quacklake.Tenants, tmp_path: Path) -> None:
    tenants.create("acme")
    with quacklake.connect(url, catalog="acme") as lake:
        lake.create_table("t", {"a": list(range(50))})
        renamed = tenants.rename("acme", "beta")
        assert lake.table("t").append([{"a": 1}]) == 1  # whoever has it open goes on
    assert renamed.data_path == f"{tmp_path}/data/acme/"
    with pytest.raises(NotFoundError):
        tenants.get("acme")
    with quacklake.connect(url, catalog="beta") as lake:
        assert lake.table("t").count() == 51
    again = tenants.create("acme")
    assert again.data_path == f"{tmp_path}/data/acme~{again.id}/"
    with pytest.raises(AlreadyExistsError):
        tenants.rename("acme", "BETA")
    assert tenants.rename("beta", "Beta").name == "Beta"
    with pytest.raises(NotFoundError):
        tenants.rename("nobody", "x")


def test_a_dropped_catalog_is_gone_for_those_who_have_it_open(url: str, tenants: quacklake.Tenants) -> None:
    tenants.create("acme")
    with quacklake.connect(url, catalog="acme") as lake:
        t = lake.create_table("t", {"a": list(range(50))})
        with pytest.raises(NotFoundError, match="was dropped"), lake.transaction() as tx:
            tx.table("t").append({"a": list(range(20))})
            tenants.drop("acme")
        for work in (t.count, lambda: t.append([{"a": 1}]), lake.tables, lake.snapshots, lambda: lake.at(version=1)):
            with pytest.raises(NotFoundError, match="was dropped"):
                work()
    with pytest.raises(NotFoundError, match="Catalog 'acme' does not exist"):
        quacklake.connect(url, catalog="acme")
    with pytest.raises(NotFoundError):
        tenants.drop("acme")


@pytest.mark.parametrize("database", ["sqlite", "postgres", pytest.param("mysql", marks=pytest.mark.daily(0.22))])
def test_purging_removes_rows_and_files_of_dropped_catalogs_alone(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_url(database)
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        for name in ("keep", "gone"):
            with tenants.open(name, create=True) as lake:
                lake.create_table("t", {"a": list(range(50))})
                lake.table("t").append([{"a": 1}])
                lake.table("t").delete("a = 3")
        assert tenants.stats("gone") == [quacklake.TenantStats("gone", 4, 1, 1, 50, tenants.stats("keep")[0].bytes)]
        before = tenants.purge()
        assert (before.catalogs, before.files, before.rows) == (0, 0, 0)
        dropped = tenants.drop("gone")
        assert [tenant.id for tenant in tenants.dropped()] == [dropped.id]
        again = tenants.create("gone")
        done = tenants.purge(batch_rows=2, grace=dt.timedelta(0))
        assert (done.catalogs, done.files) == (1, 1)
        assert tenants.dropped() == []
        assert {tenant.name: tenant.id for tenant in tenants} == {"keep": 0, "gone": again.id}
        assert again.id == 2  # ids never come back
        assert [row.rows for row in tenants.stats()] == [0, 50]
    engine = sa.create_engine(quacklake.core.catalog.parse_url(url).url)
    with engine.connect() as connection:
        for table in sa.inspect(connection).get_table_names():
            columns = {column["name"] for column in sa.inspect(connection).get_columns(table)}
            if "catalog_id" in columns:
                left = connection.execute(sa.text(f"SELECT DISTINCT catalog_id FROM {table}")).scalars().all()
                assert dropped.id not in left, table
    engine.dispose()
    with quacklake.connect(url, catalog="keep") as lake:
        assert lake.table("t").count() == 50
        assert not lake.verify(deep=True).errors
