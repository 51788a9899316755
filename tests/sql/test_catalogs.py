"""ATTACH of the catalogs of a shared lake, in the promised words and with the promised errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake import Safety
from quacklake.core.catalog import parse_url
from quacklake.errors import (
    ConfigError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    SqlError,
    UnsupportedFeatureError,
)

REQUIRED = "CATALOG is required. Please provide CATALOG when attaching the database."
DATABASES = ["sqlite", "duckdb", "postgres"]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUACKLAKE_CATALOG", "DUCKLAKE_CATALOG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session() -> Iterator[quacklake.Session]:
    with quacklake.session() as found:
        yield found


@pytest.mark.parametrize("database", DATABASES)
def test_a_catalog_is_attached_by_its_name_on_every_database(
    database: str, new_url: Callable[[str], str], session: quacklake.Session, tmp_path: Path
) -> None:
    url = new_url(database)
    session.sql(f"ATTACH 'ducklake:{url}' AS a (CATALOG 'acme', DATA_PATH '{tmp_path}/data/')")
    session.sql("CREATE TABLE a.users AS SELECT unnest(['Alice', 'Bob']) AS name")
    session.sql("CREATE TABLE a.main.many AS SELECT * FROM range(100)")
    assert [path.parent for path in (tmp_path / "data").rglob("*.parquet")] == [tmp_path / "data/acme/main/many"]
    session.sql("DETACH a")

    with pytest.raises(ConfigError) as unnamed:
        session.sql(f"ATTACH 'ducklake:{url}' AS a")
    assert (unnamed.value.message, unnamed.value.hint) == (REQUIRED, "use CATALOG '…'")
    for option in ("", ", CREATE_IF_NOT_EXISTS false"):
        with pytest.raises(NotFoundError) as unknown:
            session.sql(f"ATTACH 'ducklake:{url}' AS x (CATALOG 'x'{option})")
        assert unknown.value.message == "Catalog 'x' does not exist in this DuckLake instance"
        assert unknown.value.hint == "use CREATE_IF_NOT_EXISTS true to create it"
    assert session.sql("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall() == [("memory",)]

    session.sql(f"ATTACH 'ducklake:{url}' AS x (CATALOG 'x', CREATE_IF_NOT_EXISTS true)")
    assert session.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('x')").fetchall() == [(0,)]
    with pytest.raises(NotFoundError, match="Table with name users does not exist"):
        session.sql("SELECT * FROM x.users")
    session.sql("DETACH x")
    session.sql(f"ATTACH 'ducklake:{url}' AS a (CATALOG 'acme'); USE a")
    assert session.sql("SELECT name FROM a.main.users ORDER BY name").fetchall() == [("Alice",), ("Bob",)]


def test_two_catalogs_of_one_database_are_open_together(tmp_path: Path, session: quacklake.Session) -> None:
    place = f"ducklake:sqlite:{tmp_path}/t.db"
    session.sql(f"ATTACH '{place}' AS a (CATALOG 'tenant_a', DATA_PATH '{tmp_path}/d')")
    session.sql(f"ATTACH '{place}' AS b (CATALOG 'tenant_b', CREATE_IF_NOT_EXISTS true)")
    session.sql("CREATE TABLE a.users AS SELECT unnest(['Alice', 'Bob']) AS name")
    session.sql("CREATE TABLE b.users AS SELECT unnest(['Xavier', 'Yuki', 'Zara']) AS name")
    counts = "SELECT (SELECT count(*) FROM a.users), (SELECT count(*) FROM b.users)"
    assert session.sql(counts).fetchall() == [(2, 3)]
    assert session.sql("SELECT table_name FROM __ducklake_metadata_a.ducklake_table").fetchall() == [("users",)]
    for statement in ("DELETE FROM {}.ducklake_table", "UPDATE {}.ducklake_table SET table_name = 'x'"):
        with pytest.raises(UnsupportedFeatureError, match="other catalogs"):
            session.sql(statement.format("__ducklake_metadata_a"))
    session.sql(f"ATTACH '{place}' AS empty (CATALOG 'tenant_a', SNAPSHOT_VERSION 0)")
    with pytest.raises(QuacklakeError, match="does not exist"):
        session.sql("SELECT * FROM empty.users")


@pytest.mark.parametrize("database", DATABASES)
def test_a_duckdb_file_is_attached_for_one_catalog_at_a_time(
    database: str, new_url: Callable[[str], str], session: quacklake.Session, tmp_path: Path
) -> None:
    url = new_url(database)
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        tenants.create_many(["acme", "beta"])
    session.sql(f"ATTACH 'ducklake:{url}' AS a (CATALOG 'acme')")
    second = f"ATTACH 'ducklake:{url}' AS b (CATALOG 'beta')"
    if database == "duckdb":
        with pytest.raises(ConfigError, match=r"^Unique file handle conflict") as conflict:
            session.sql(second)
        assert "PostgreSQL" in str(conflict.value.hint)
        session.sql("DETACH a")
    session.sql(second)
    assert session.sql("SELECT count(*) FROM b.snapshots()").fetchall() == [(1,)]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_promised_indexes_are_there(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    url = new_url(database)  # not on DuckDB, where an index would only be in the way of changes
    quacklake.tenants(url, tmp_path / "data").close()
    engine = sa.create_engine(parse_url(url).url)
    found = sa.inspect(engine).get_multi_indexes().values()
    columns = {index["name"]: index["column_names"] for indexes in found for index in indexes}
    keys = sa.inspect(engine).get_pk_constraint("ducklake_snapshot")["constrained_columns"]
    engine.dispose()
    for name in ("idx_snapshot_catalog", "idx_schema_catalog", "idx_table_catalog"):
        assert columns[name][0] == "catalog_id"
    assert keys == ["catalog_id", "snapshot_id"]


def test_only_the_statement_itself_names_the_catalog(
    tmp_path: Path, session: quacklake.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, plain = f"{tmp_path}/shared.db", f"{tmp_path}/plain.db"
    with quacklake.tenants(f"sqlite:///{shared}", tmp_path / "data") as tenants:
        tenants.create("acme")
    monkeypatch.setenv("DUCKLAKE_CATALOG", "acme")
    quacklake.connect(f"sqlite:///{shared}").close()
    with pytest.raises(ConfigError) as unnamed:
        session.sql(f"ATTACH 'ducklake:sqlite:{shared}' AS a")
    assert unnamed.value.message == REQUIRED
    session.sql(f"ATTACH 'ducklake:sqlite:///{shared}?catalog=acme' AS a")
    session.sql(f"CREATE SECRET theirs (TYPE DUCKLAKE, METADATA_PATH 'sqlite:{shared}', CATALOG 'acme')")
    session.sql("ATTACH 'ducklake:theirs' AS again; CREATE TABLE again.t AS SELECT 1 AS i")
    assert session.sql("FROM a.t").fetchall() == [(1,)]
    # a plain lake has one catalog, which has no name
    session.sql(f"ATTACH 'ducklake:sqlite:{plain}' AS p (DATA_PATH '{tmp_path}/plain/')")
    assert session.sql("SELECT count(*) FROM p.snapshots()").fetchall() == [(1,)]
    with pytest.raises(ConfigError, match="not a shared one"):
        session.sql(f"ATTACH 'ducklake:sqlite:{plain}' AS q (CATALOG 'acme')")
    monkeypatch.delenv("DUCKLAKE_CATALOG")
    quacklake.connect(f"sqlite:///{plain}").close()


# -- one tenant only ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Tenants]:
    """Two catalogs, each with a table of a hundred rows."""
    home = tmp_path_factory.mktemp("tenants")
    with quacklake.tenants(f"sqlite:///{home}/lake.db", home / "data") as found:
        for name in ("mine", "umbral"):
            with found.open(name, create=True) as lake:
                lake.sql(f"CREATE TABLE {name}_rows AS SELECT '{name}' AS word, range AS i FROM range(100)")
                lake.tag(f"{name}_tag")
                if name == "umbral":
                    lake.sql("CREATE SCHEMA umbral_schema; CREATE VIEW umbral_view AS FROM umbral_rows")
        yield found


OTHERS = [
    "ATTACH 'ducklake:sqlite:{home}/lake.db' AS two (CATALOG 'umbral')",
    "ATTACH 'ducklake:sqlite:///{home}/lake.db?catalog=umbral' AS two",
    "ATTACH OR REPLACE 'ducklake:sqlite:{home}/lake.db' AS lake (CATALOG 'umbral')",
    "ATTACH '{home}/lake.db' AS two (TYPE sqlite)",
    "CREATE SECRET two (TYPE DUCKLAKE, METADATA_PATH 'sqlite:{home}/lake.db', CATALOG 'umbral')",
    "DETACH lake",
    "USE umbral",
    "USE umbral.main",
    "USE umbral_schema",
    "SET ducklake_catalog = 'umbral'",
    "SET catalog = 'umbral'",
    "SET search_path = 'umbral'",
    "FROM umbral.main.umbral_rows",
    "FROM umbral.umbral_rows",
    "FROM umbral_rows",
    "FROM umbral_view",
    "FROM lake.umbral_schema.umbral_rows",
    "FROM mine_rows AT (VERSION => 'umbral_tag')",
    "FROM mine_rows AT (VERSION => 3)",
    "FROM ducklake_snapshots('umbral')",
    "FROM umbral.snapshots()",
    "FROM ducklake_table_changes('umbral', 'main', 'umbral_rows', 0, 9)",
    "FROM lake.table_changes('umbral_rows', 0, 1)",
    "FROM lake.table_insertions('umbral_schema.umbral_rows', 0, 1)",
    "CALL ducklake_table_info('umbral')",
    "CALL ducklake_merge_adjacent_files('umbral')",
    "CALL ducklake_add_data_files('lake', 'mine_rows', '{file}')",
    "CALL lake.add_data_files('mine_rows', '{file}')",
    "FROM read_parquet('{file}')",
    "FROM '{file}'",
    "FROM read_parquet('{home}/data/mine/../umbral/**/*.parquet')",
    "FROM __ducklake_metadata_lake.ducklake_catalog",
    "FROM __ducklake_metadata_lake.ducklake_table",
    "FROM __ducklake_metadata_umbral.ducklake_table",
    "SELECT word FROM mine_rows UNION ALL SELECT word FROM umbral.umbral_rows",
    "INSERT INTO mine_rows FROM umbral.umbral_rows",
    "INSERT INTO umbral.umbral_rows VALUES ('x', 1)",
    "UPDATE umbral_rows SET word = 'x'",
    "DELETE FROM umbral.main.umbral_rows",
    "MERGE INTO mine_rows t USING umbral.umbral_rows s ON t.i = s.i WHEN MATCHED THEN DELETE",
    "DROP TABLE umbral.umbral_rows",
    "COPY mine_rows TO '{file}'",
    "EXPLAIN FROM umbral.umbral_rows",
    "DESCRIBE umbral.umbral_rows",
    "SHOW TABLES FROM umbral",
    "SUMMARIZE umbral_rows",
]
LISTINGS = [
    "SHOW ALL TABLES",
    "SHOW TABLES",
    "FROM information_schema.tables",
    "FROM information_schema.schemata",
    "FROM information_schema.columns",
    "FROM duckdb_tables()",
    "FROM duckdb_schemas()",
    "FROM lake.snapshots()",
    "FROM lake.table_info()",
]


@pytest.mark.parametrize("read_only", [True, False], ids=["reading", "changing"])
def test_a_safe_session_of_one_tenant_has_no_name_for_another(tenants: quacklake.Tenants, read_only: bool) -> None:
    file = next(Path(tenants.get("umbral").data_path).rglob("*.parquet"))
    home = Path(tenants.get("umbral").data_path).parents[1]
    with tenants.open("mine") as lake, quacklake.session(safety=Safety.server(read_only=read_only)) as session:
        session.attach(lake, "lake")
        session.use("lake")
        before = lake.current_snapshot(), tenants.stats()
        for statement in OTHERS:
            with pytest.raises((NotPermittedError, NotFoundError, SqlError)):
                print(statement, session.sql(statement.format(home=home, file=file)).fetchall())
        for statement in LISTINGS:
            try:
                assert "umbral" not in str(session.sql(statement).fetchall()), statement
            except NotPermittedError:
                continue
        assert (lake.current_snapshot(), tenants.stats()) == before
        assert session.sql("SELECT DISTINCT word FROM mine_rows").fetchall() == [("mine",)]


def test_a_safe_session_is_given_one_catalog_of_a_shared_lake(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    with (
        tenants.open("mine") as mine,
        tenants.open("umbral") as other,
        quacklake.connect(f"sqlite:///{tmp_path}/plain.db", data_path=tmp_path / "data") as plain,
        quacklake.session(safety=Safety()) as session,
    ):
        session.attach(mine, "lake")
        session.attach(mine.at(version=1), "past")
        session.attach(plain, "plain")
        with pytest.raises(ConfigError, match="one catalog"):
            session.attach(other, "other")
        with pytest.raises(ConfigError, match="one catalog"):
            session.cursor().attach(other, "other")
        assert session.sql("SELECT count(*) FROM past.mine_rows").fetchall() == [(100,)]


def test_listings_of_columns_leave_out_temporary_scans(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t AS SELECT 1 AS a, 2 AS qls_column")
        assert lake.sql("SELECT a FROM t").fetchall() == [(1,)]
        found = lake.sql("SELECT table_name, column_name FROM information_schema.columns ORDER BY 2").fetchall()
        assert found == [("t", "a"), ("t", "qls_column")]
