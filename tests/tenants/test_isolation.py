"""Catalogs of one shared lake never see each other, and each is what a plain lake would be."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake
from tests.seeds import LONG
from tests.tenants import histories
from tests.tenants.statements import sent, unbound


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The content of a plain lake after the history of a word, for two words."""
    home = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUACKLAKE_CATALOG", raising=False)
        with quacklake.connect(f"sqlite:///{home}/lake.db", home / "data") as lake:
            histories.write(lake, "alpha")
            found = histories.look(lake)
    return {"alpha": found, "omega": histories.with_word(found, "alpha", "omega")}


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"] if LONG else ["sqlite"])
def test_two_catalogs_with_the_same_history_never_meet_and_every_statement_is_bound(
    database: str,
    new_url: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = new_url(database)
    with (
        quacklake.connect(url, tmp_path / "data", catalog="alpha", create=True) as one,
        quacklake.connect(url, catalog="omega", create=True) as two,
        sent(one, monkeypatch) as statements,
    ):
        histories.write(one, "alpha")
        histories.write(two, "omega")
        found = histories.look(one)
        expected = histories.with_word(found, "alpha", "omega")
        if LONG:
            assert {"alpha": found, "omega": expected} == request.getfixturevalue("expected")
        histories.tidy(one, tmp_path / "alpha")
        assert histories.look(two) == expected
        assert one.data_path == f"{tmp_path}/data/alpha/"
        assert {path.name for path in (tmp_path / "data").iterdir()} == {"alpha", "omega"}
        # more rows than travel as one statement
        one.create_table("wide", {f"c{i}": list(range(3)) for i in range(150)})
    assert len(statements) > 500
    assert [each for sql in statements for each in unbound(sql)] == []


@pytest.mark.daily(0)
def test_catalogs_in_a_duckdb_file_are_used_one_after_the_other(
    tmp_path: Path, expected: dict[str, dict[str, Any]]
) -> None:
    url = f"duckdb:///{tmp_path}/lake.db"
    for word in ("alpha", "omega"):
        with quacklake.connect(url, tmp_path / "data", catalog=word, create=True) as lake:
            histories.write(lake, word)
    for word in ("alpha", "omega"):
        with quacklake.connect(url, catalog=word) as lake:
            assert histories.look(lake) == expected[word]


@pytest.mark.daily(0.2)
@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_shared_lakes_live_in_a_schema_of_the_database_beside_others(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_url(database)
    for schema in ("lakes", "others"):
        with quacklake.connect(
            url, tmp_path / schema, catalog="one", create=True, metadata_schema=schema, data_inlining_row_limit=3
        ) as lake:
            t = lake.create_table("t", {"a": list(range(20))})
            t.append([{"a": 100}])
            t.delete("a IN (3, 100)")
            t.update({"a": 7}, "a = 8")
            assert t.count() == 19
            lake.expire_snapshots(keep_last=1, older_than=dt.timedelta(0))
            lake.delete_orphaned_files(cleanup_all=True)
            assert not lake.verify(deep=True).errors
            assert "catalog one" in repr(lake)


def test_a_duckdb_file_is_open_for_one_catalog_at_a_time(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path}/lake.db"
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        tenants.create_many(["one", "two"])
    with (
        quacklake.connect(url, catalog="one"),
        quacklake.connect(url, catalog="one"),
        pytest.raises(quacklake.errors.ConfigError, match="Unique file handle conflict"),
    ):
        quacklake.connect(url, catalog="two")
    quacklake.connect(url, catalog="two").close()


def test_the_same_names_of_snapshots_streams_and_tables_are_each_catalogs_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with (
        quacklake.connect(url, tmp_path / "data", catalog="one", create=True) as one,
        quacklake.connect(url, catalog="two", create=True) as two,
    ):
        one.create_table("t", [{"a": 1}])
        one.tag("mine")
        one.streams.claim("s", "q")
        assert two.current_snapshot() == 0
        assert two.tables() == []
        assert two.history.tags().num_rows == 0
        with pytest.raises(quacklake.errors.NotFoundError):
            two.at("mine")
        with pytest.raises(quacklake.errors.NotFoundError):
            two.at(version=1)
        with pytest.raises(quacklake.errors.NotFoundError):
            two.table("t").to_pylist()
        assert two.streams.claim("s", "other").epoch == -1
        assert two.sql("SELECT count(*) FROM __ducklake_metadata_lake.ducklake_table").fetchall() == [(0,)]


def test_a_catalog_cannot_take_the_files_of_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with (
        quacklake.connect(url, tmp_path / "data", catalog="one", create=True) as one,
        quacklake.connect(url, catalog="two", create=True) as two,
    ):
        one.create_table("t", {"a": list(range(100))})
        file = next((tmp_path / "data" / "one").rglob("*.parquet"))
        mine = two.create_table("t", [{"a": 1}])
        two.delete_orphaned_files(cleanup_all=True)
        assert file.exists()
        with pytest.raises(quacklake.QuacklakeError):
            two._context.store.read("../one/" + file.relative_to(tmp_path / "data" / "one").as_posix())
        assert mine.count() == 1
