"""Lakes of 1.0 become lakes of 1.1 and go back, on every database and layout, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake import expr
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.tables import SPEC, WIDE_SPEC
from quacklake.errors import (
    CommitConflict,
    ConfigError,
    NotFoundError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
)
from tests.catalog.stock import Stock
from tests.layout import plain_only

NewUrl = Callable[[str], str]
Lake = quacklake.Lake
DATABASES = [
    "sqlite",
    "duckdb",
    "postgres",
    "mysql",
]
LIFE = ("row_id", "begin_snapshot", "end_snapshot")


@pytest.fixture(autouse=True)
def _plain() -> None:
    plain_only("both layouts are tested here")


def columns(url: str, table: str) -> list[str]:
    """The columns of a metadata table, as the database has them."""
    with sa.create_engine(parse_url(url).url, poolclass=sa.NullPool).connect() as connection:
        return list(connection.exec_driver_sql(f"SELECT * FROM {table} LIMIT 0").keys())


def filled(url: str, folder: Path, **settings: Any) -> Lake:
    lake = quacklake.connect(url, data_path=folder, **settings)
    table = lake.create_table("t", [{"id": i, "name": f"n{i}"} for i in range(5)])
    table.append([{"id": 10 + i, "name": "x" * 300} for i in range(40)])
    table.delete("id IN (1, 15)")
    lake.create_view("v", "SELECT id FROM t")
    return lake


def state(lake: Lake) -> list[Any]:
    versions = range(1, lake.current_snapshot() + 1)
    return [sorted(map(str, lake.at(version).table("t").to_pylist())) for version in versions]


@pytest.mark.parametrize("database", DATABASES)
def test_f14_14_a_lake_goes_to_the_next_version_and_back(
    database: str, new_url: NewUrl, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = new_url(database)
    with filled(url, tmp_path / "d") as lake:
        before = state(lake)
        assert lake.migrate("1.1") == lake.version == "1.1"
        for name, spec in WIDE_SPEC.items():
            assert columns(url, f"ducklake_{name}") == [column.name for column in spec]
        assert columns(url, "ducklake_inlined_data_1_1")[:3] == [f"_ducklake_{name}" for name in LIFE]
        assert state(lake) == before
        lake.table("t").append([{"id": 100, "name": "after"}])
        lake.view("v").set_column_comment("id", "the id")
        assert lake.verify(deep=True).findings == ()
        assert lake.migrate("1.0") == lake.version == "1.0"
        for name, spec in SPEC.items():
            assert columns(url, f"ducklake_{name}") == [column.name for column in spec]
        assert columns(url, "ducklake_inlined_data_1_1")[:3] == list(LIFE)
        assert state(lake)[: len(before)] == before
        lake.table("t").append([{"id": 101, "name": "again"}])
        assert lake.verify(deep=True).findings == ()
        count = lake.table("t").count()
    if database != "mysql":
        stock: Stock = request.getfixturevalue("stock")
        assert stock.run(url, "SELECT count(*) FROM t") == [(count,)]


@pytest.mark.parametrize("database", [each for each in DATABASES if each != "duckdb"])
def test_f14_15_catalogs_of_a_shared_lake_have_versions_of_their_own(
    database: str, new_url: NewUrl, tmp_path: Path
) -> None:
    url = new_url(database)
    with (
        filled(url, tmp_path / "d", catalog="one") as one,
        filled(url, tmp_path / "d", catalog="two", create=True, format_version="1.1") as two,
    ):
        assert [one.version, two.version] == ["1.0", "1.1"]
        assert state(one) == state(two)
        one.migrate("1.1")
        two.create_schema("s")
        two.create_schema("inner", parent="s")
        with pytest.raises(UnsupportedFeatureError, match="nested schemas"):
            two.migrate("1.0")
        one.migrate("1.0")
        assert [one.version, two.version] == ["1.0", "1.1"]
        assert state(one) == state(two)[: len(state(one))]
        assert (one.verify().findings, two.verify().findings) == ((), ())
        with pytest.raises(UnsupportedFeatureError, match=r"1\.1"):
            one.create_schema("inner", parent="main")


@pytest.mark.parametrize("database", DATABASES)
def test_a_lake_is_made_in_the_version_that_is_asked_for(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        url = new_url(database)
        with filled(url, tmp_path / version, format_version=version) as lake:
            assert lake.version == version
        with quacklake.connect(url, format_version="1.0") as lake:
            assert lake.version == version, "one that exists keeps its own"
    with pytest.raises(ConfigError, match="format_version"):
        quacklake.connect(new_url("sqlite"), data_path=tmp_path / "x", format_version="1.2")


def test_f14_16_what_1_0_has_no_place_for_is_listed_and_nothing_changes(tmp_path: Path) -> None:
    with filled(f"sqlite:///{tmp_path}/l.db", tmp_path / "d", format_version="1.1") as lake:
        lake.create_schema("inner", parent="main")
        lake.table("t").add_column("nothing_here", "null")
        lake.create_macro("m", {"a": expr("1 + 2")}, "a")
        lake.sql("CREATE TABLE p (ts TIMESTAMP)")
        lake.table("p").set_partitioned_by("epoch_month(ts)")
        lake.options.set("write_deletion_vectors", True)
        lake.options.set("data_inlining_row_limit", 0)
        for number in (20, 21):
            lake.table("t").delete(f"id = {number}")
        before = state(lake)
        with pytest.raises(UnsupportedFeatureError) as failure:
            lake.migrate("1.0")
        for what in ("nested schemas", "type null", "epochs", "several snapshots", "expression as default"):
            assert what in str(failure.value)
        assert (lake.version, state(lake)) == ("1.1", before)
        assert lake.verify().findings == ()
        with pytest.raises(UnsupportedVersionError, match=r"0\.4"):
            lake.migrate("0.4")


def test_a_column_with_a_name_that_1_1_keeps_for_itself_stops_the_migration(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "d") as lake:
        table = lake.create_table("t", [{"_ducklake_row_id": 1}])
        with pytest.raises(UnsupportedFeatureError, match="_ducklake_row_id"):
            lake.migrate("1.1")
        assert (lake.version, table.count()) == ("1.0", 1)
        table.rename_column("_ducklake_row_id", "mine")
        with pytest.raises(UnsupportedFeatureError, match="_ducklake_row_id"):
            lake.migrate("1.1")  # its rows are still in the table of the older columns
        lake.maintenance.flush_inlined_data()
        assert lake.migrate("1.1") == "1.1"
        assert table.to_pylist() == [{"mine": 1}]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_f14_17_a_client_that_opened_the_other_version_stops(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(database)
    with filled(url, tmp_path / "d") as lake, quacklake.connect(url) as other:
        other.table("t").append([{"id": 50, "name": "before"}])
        lake.migrate("1.1")
        for work in (
            lambda: other.table("t").append([{"id": 51, "name": "late"}]),
            lambda: other.table("t").count(),
            lambda: other.create_table("u", [{"i": 1}]),
        ):
            with pytest.raises(UnsupportedVersionError, match="by another connection"):
                work()
        with quacklake.connect(url) as again:
            again.table("t").append([{"id": 52, "name": "now"}])
        assert lake.table("t").count() == 45
        assert lake.verify().findings == ()


def test_f14_6_exactness_follows_the_values_and_their_merge(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, data_path=tmp_path / "d", format_version="1.1", data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", [{"s": "b"}, {"s": "c"}])
        assert _flags(url) == ("b", "c", True, True)
        table.append([{"s": "a" * 300}, {"s": "z" + chr(127) * 300}])
        low, high, *exact = _flags(url)
        assert (low, high, exact) == ("a" * 256, "{", [False, False]), "a bound that is cut may be short"
        table.append([{"s": "A"}, {"s": "~"}])
        assert _flags(url) == ("A", "~", True, True)
        assert lake.sql("SELECT min(s), max(s) FROM t").fetchall() == [("A", "~")]
        groups = sa.text("SELECT min(row_group_count), max(row_group_count) FROM ducklake_data_file")
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
            assert connection.execute(groups).all() == [(1, 1)]


def _flags(url: str) -> tuple[Any, ...]:
    query = "SELECT min_value, max_value, min_is_exact, max_is_exact FROM ducklake_table_column_stats"
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        low, high, *exact = connection.exec_driver_sql(query).one()
        return low, high, *map(bool, exact)


def test_what_expired_snapshots_changed_stays_and_is_checked(tmp_path: Path) -> None:
    with filled(f"sqlite:///{tmp_path}/l.db", tmp_path / "d", format_version="1.1") as lake:
        with pytest.raises(CommitConflict), lake.transaction() as tx:
            tx.table("t").update({"name": "mine"}, "id = 20")
            lake.table("t").update({"name": "theirs"}, "id = 20")
            lake.table("t").append([{"id": 60, "name": "late"}])
            lake.expire_snapshots(older_than="0 seconds")
        assert lake.table("t").to_pylist(where="id = 20") == [{"id": 20, "name": "theirs"}]
        with lake.transaction() as tx:
            tx.table("t").update({"name": "mine"}, "id = 21")
            lake.create_table("u", [{"i": 1}])
            lake.create_table("w", [{"i": 1}])
            lake.expire_snapshots(older_than="0 seconds")
        assert lake.table("t").to_pylist(where="id = 21") == [{"id": 21, "name": "mine"}]
        assert lake.verify().findings == ()


def test_a_time_to_come_has_no_snapshot_in_1_1(tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        with filled(f"sqlite:///{tmp_path}/{version}.db", tmp_path / version, format_version=version) as lake:
            if version == "1.0":
                assert lake.at(timestamp="2999-01-01").table("t").count() == 43
                continue
            with pytest.raises(NotFoundError, match="future"):
                lake.at(timestamp="2999-01-01")
            assert lake.table("t").changes(1, "2999-01-01").to_arrow().num_rows > 0, "a range may end there"


def test_a_dropped_column_ends_its_comments(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with filled(url, tmp_path / "d", format_version="1.1") as lake:
        lake.table("t").set_column_comment("name", "what it is")
        lake.table("t").drop_column("name")
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
            ends = connection.exec_driver_sql("SELECT end_snapshot FROM ducklake_column_tag").all()
        assert ends == [(lake.current_snapshot(),)]


def test_chosen_columns_keep_no_bounds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with filled(url, tmp_path / "d", format_version="1.1") as lake:
        lake.options.set("skip_stats_columns", ["name"], table="t")
        lake.table("t").append([{"id": 500 + i, "name": "q"} for i in range(50)])
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
            query = "SELECT column_id, min_value FROM ducklake_file_column_stats WHERE data_file_id = (SELECT max(f.data_file_id) FROM ducklake_data_file f) ORDER BY 1"
            assert connection.exec_driver_sql(query).all() == [(1, "500"), (2, None)]
        assert lake.verify(deep=True).findings == ()
    with filled(f"sqlite:///{tmp_path}/old.db", tmp_path / "old") as lake:
        with pytest.raises(UnsupportedFeatureError, match=r"1\.1"):
            lake.options.set("skip_stats_columns", ["name"], table="t")


def test_only_bounds_of_integers_and_decimals_outlive_another_type(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, data_path=tmp_path / "d", format_version="1.1") as lake:
        lake.sql("CREATE TABLE t AS SELECT 1::INTEGER AS i, 0.1::FLOAT AS f")
        lake.sql("ALTER TABLE t ALTER i TYPE BIGINT")
        lake.sql("ALTER TABLE t ALTER f TYPE DOUBLE")
        lake.sql("INSERT INTO t VALUES (5, 5)")
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
            query = "SELECT min_value, max_value FROM ducklake_table_column_stats ORDER BY column_id"
            assert connection.exec_driver_sql(query).all() == [("1", "5"), (None, None)]


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_f14_18_a_lake_of_1_1_is_backed_up_and_moved_whole(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    with filled(new_url(database), tmp_path / "d", format_version="1.1") as lake:
        lake.create_schema("inner", parent="main")
        lake.create_table("main.inner.u", [{"i": 7}])
        lake.view("v").set_column_comment("id", "the id")
        before = state(lake)
        lake.backup(tmp_path / "b")
        url = lake.url
    with quacklake.restore_backup(tmp_path / "b", new_url("sqlite"), tmp_path / "r") as again:
        assert (again.version, state(again)) == ("1.1", before)
        assert again.view("v").column_comments == {"id": "the id"}
        assert again.table("main.inner.u").to_pylist() == [{"i": 7}]
    with quacklake.tenants(new_url("sqlite"), data_path=tmp_path / "s", create=True) as tenants:
        tenants.adopt(url, "adopted")
        tenants.fork("adopted", "forked")
        for name in ("adopted", "forked"):
            foreign = {"foreign_paths": [str(tmp_path / "d")]}
            with quacklake.connect(tenants.url, catalog=name, **foreign) as lake:
                assert (lake.version, state(lake)) == ("1.1", before)
                assert lake.view("v").column_comments == {"id": "the id"}
                lake.table("main.inner.u").append([{"i": 8}])
                assert lake.verify().findings == ()
        out = tenants.export("forked", new_url("sqlite"), data_path=tmp_path / "out", copy_data=True)
    with quacklake.connect(out.url) as lake:
        assert (lake.version, state(lake)[: len(before)]) == ("1.1", before)
        assert sorted(row["i"] for row in lake.table("main.inner.u").to_pylist()) == [7, 8]
