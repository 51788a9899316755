"""MIGRATE_IF_REQUIRED: what ATTACH makes of lakes of older versions and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConfigError, ReadOnlyError, UnsupportedVersionError
from tests.golden.lakes import LAKES
from tests.layout import LAYOUT
from tests.tenants import fork_versions

pytestmark = pytest.mark.skipif(LAYOUT == "shared", reason="these lakes have layouts of their own")


@pytest.fixture
def session() -> Iterator[quacklake.Session]:
    with quacklake.session() as found:
        yield found


def test_a_shared_lake_of_an_older_layout_is_migrated_unless_told_otherwise(
    session: quacklake.Session, tmp_path: Path
) -> None:
    fork_versions.build(f"sqlite:///{tmp_path}/l.db", tmp_path, "0.5-dev1", ("tenant_a", "tenant_b"))
    attach = f"ATTACH 'ducklake:sqlite:{tmp_path}/l.db' AS l"
    with pytest.raises(UnsupportedVersionError):
        session.sql(f"{attach} (CATALOG 'tenant_a', MIGRATE_IF_REQUIRED false)")
    session.sql(f"{attach} (CATALOG 'tenant_a')")
    assert session.sql("SELECT count(*) FROM l.users").fetchall() == [(5,)]


def test_a_plain_lake_of_an_older_version_is_migrated_only_when_told(
    session: quacklake.Session, tmp_path: Path
) -> None:
    copied = next(lake for lake in LAKES if "0.3" in str(lake) and "sqlite" in str(lake)).copy(tmp_path)
    options = f"DATA_PATH '{copied.data_path}', OVERRIDE_DATA_PATH true"
    attach = f"ATTACH 'ducklake:sqlite:{copied.catalog_file}' AS l ({options}"
    session.sql(f"{attach})")
    with pytest.raises(ReadOnlyError):
        session.sql("CREATE TABLE l.new (i INTEGER)")
    session.sql("DETACH l")
    session.sql(f"{attach}, MIGRATE_IF_REQUIRED true)")
    session.sql("CREATE TABLE l.new (i INTEGER)")


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"])
def test_a_plain_lake_becomes_the_first_catalog_of_a_shared_one(
    database: str, session: quacklake.Session, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_url(database)
    with quacklake.connect(url, data_path=tmp_path / "plain") as lake:
        lake.create_table("t", [{"id": i} for i in range(20)])
        lake.table("t").append([{"id": 20}])
    attach = f"ATTACH 'ducklake:{url}' AS l (CATALOG 'acme'"
    with pytest.raises(ConfigError):
        session.sql(f"{attach}, DATA_PATH '{tmp_path}/shared')")
    with pytest.raises(ConfigError, match="new catalogs"):
        session.sql(f"{attach}, MIGRATE_IF_REQUIRED true)")
    session.sql(f"{attach}, DATA_PATH '{tmp_path}/shared', MIGRATE_IF_REQUIRED true)")
    assert session.sql("SELECT count(*), max(id) FROM l.t").fetchall() == [(21, 20)]
    session.sql("DETACH l")
    session.sql(f"{attach}, MIGRATE_IF_REQUIRED true)")
    session.sql("INSERT INTO l.t VALUES (21)")
    with quacklake.tenants(url) as tenants:
        assert [tenant.name for tenant in tenants] == ["acme"]
        tenants.create("beta")
