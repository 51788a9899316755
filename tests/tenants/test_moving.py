"""Catalogs in and out of a shared lake, and forks of them: the same at every snapshot, and no file is lost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.tenancy.moving import TenantShare
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, QuacklakeError
from tests.catalog.stock import Stock
from tests.tenants import histories

CASES = [
    ("sqlite", False),
    ("postgres", False),
    *(pytest.param(name, True, marks=pytest.mark.daily(0.0)) for name in ("sqlite", "postgres", "duckdb", "mysql")),
]
NOW = dt.timedelta(0)


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[quacklake.Tenants]:
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", tmp_path / "data") as found:
        yield found


def small(tenants: quacklake.Tenants, name: str = "acme") -> None:
    with tenants.open(name, create=True) as lake:
        histories.write_little(lake, "word")


def files(tmp_path: Path) -> set[str]:
    return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}


def ids(lake: quacklake.Lake, name: str = "t") -> list[str]:
    return sorted(map(repr, lake.table(name).scan(row_ids=True).to_arrow().to_pylist()))


def drop_history(lake: quacklake.Lake) -> None:
    """Make every old file one that can be removed, and remove it."""
    lake.maintenance.rewrite_data_files(delete_threshold=0.0)
    lake.maintenance.merge_adjacent_files()
    lake.expire_snapshots(older_than=dt.datetime.now(dt.UTC))
    lake.cleanup_old_files(older_than=NOW)
    lake.delete_orphaned_files(older_than=NOW)


# -- export and adopt --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("database", "long"), CASES)
def test_a_lake_is_the_same_after_every_move(
    database: str, long: bool, new_url: Callable[[str], str], tmp_path: Path, stock: Stock
) -> None:
    place = f"sqlite:///{tmp_path}/place.db" if database == "postgres" else f"duckdb:///{tmp_path}/place.db"
    copy = f"sqlite:///{tmp_path}/copy.db"
    with quacklake.tenants(new_url(database), tmp_path / "data") as tenants:
        small(tenants) if not long else tenants.create("acme")
        with tenants.open("acme") as lake:
            if long:
                histories.write(lake, "word")
            seen, rows = histories.look(lake), ids(lake)
        report = tenants.export("acme", place)
        assert (report.files > 0, report.copied) == (True, 0)
        copied = tenants.export("acme", copy, copy_data=True)
        assert copied.copied == copied.files == report.files
        assert tenants.shares("acme") == [TenantShare(None, report.url)]
        tenants.fork("acme", "fork")
        tenants.adopt(copy, "back")
        for name in ("fork", "back"):
            with tenants.open(name) as lake:
                assert histories.look(lake) == seen
                assert ids(lake) == rows
                assert not lake.verify(deep=True).errors
    for url, options in ((place, {"foreign_paths": report.foreign_paths}), (copy, {})):
        with quacklake.connect(url, **options) as lake:
            assert histories.look(lake) == seen
            assert not lake.verify(deep=True).errors
    for url in (place, copy):
        assert_stock_sees(stock, url, seen)


def assert_stock_sees(stock: Stock, url: str, seen: dict[str, Any]) -> None:
    past = {key: seen[key]["main.t"] for key in seen if key.startswith("at ") and "main.t" in seen[key]}
    # attached once for all snapshots, which takes as long as reading one of them
    rows = stock.answers(url, *(f"SELECT * FROM t AT (VERSION => {key.removeprefix('at ')})" for key in past))
    assert dict(zip(past, map(len, rows), strict=True)) == {key: len(values) for key, values in past.items()}
    names = {name for name in stock.rows(url) if not name.startswith("main.v")}
    assert names == {name if "." in name else f"main.{name}" for name in seen["tables"]}


def test_an_export_goes_where_no_lake_is_and_apart_from_the_shared_one(
    tenants: quacklake.Tenants, tmp_path: Path
) -> None:
    small(tenants)
    url = f"sqlite:///{tmp_path}/plain.db"
    with pytest.raises(NotFoundError):
        tenants.export("nobody", url)
    with pytest.raises(InputError, match="overlaps"):
        tenants.export("acme", url, data_path=tmp_path / "data" / "plain")
    tenants.export("acme", url)
    with pytest.raises(AlreadyExistsError):
        tenants.export("acme", url)
    with pytest.raises(AlreadyExistsError):
        tenants.adopt(url, "ACME")
    with pytest.raises(InputError, match="plain lake"):
        tenants.adopt(f"{tenants.url}?catalog=acme", "other")
    assert [tenant.name for tenant in tenants] == ["acme"]


def test_an_adopted_lake_and_its_catalog_go_their_own_ways(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"
    with quacklake.connect(url, tmp_path / "plain") as lake:
        lake.create_table("t", {"a": list(range(50))})
        before = files(tmp_path)
        tenants.adopt(url, "acme")
        with tenants.open("acme") as mine:
            assert mine.table("t").append({"a": list(range(30))}) == 30
            drop_history(mine)
            mine.drop_table("t")
            drop_history(mine)
        tenants.drop("acme")
        assert tenants.purge().catalogs == 1
        assert files(tmp_path) == before
        assert lake.table("t").count() == 50
        assert not lake.verify(deep=True).errors


def test_an_encrypted_catalog_keeps_its_keys(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"
    with quacklake.tenants(f"sqlite:///{tmp_path}/s.db", tmp_path / "data", encrypted=True) as tenants:
        small(tenants)
        tenants.fork("acme", "fork")
        tenants.export("acme", url, copy_data=True)
        with tenants.open("fork") as lake:
            assert not lake.verify(deep=True).errors
            assert lake.table("t").append({"id": list(range(20)), "name": ["z"] * 20}) == 20
    with quacklake.connect(url) as lake:
        assert lake.table("t").count() == 100
        assert not lake.verify(deep=True).errors


def test_a_backup_is_restored_into_a_catalog(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    small(tenants)
    with tenants.open("acme") as lake:
        lake.backup(tmp_path / "backup")
        rows = ids(lake)
    with quacklake.restore_backup(tmp_path / "backup", tenants.url, tmp_path / "data", catalog="again") as lake:
        assert ids(lake) == rows
        assert lake.data_path.endswith("/data/again/")
    with pytest.raises(AlreadyExistsError):
        quacklake.restore_backup(tmp_path / "backup", tenants.url, tmp_path / "data", catalog="acme")
    assert [tenant.name for tenant in tenants] == ["acme", "again"]


# -- forks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["sqlite", pytest.param("mysql", marks=pytest.mark.daily(0.22))])
def test_no_file_goes_that_a_fork_still_needs(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    with quacklake.tenants(new_url(database), tmp_path / "data") as tenants:
        small(tenants)
        tenants.fork("acme", "fork")
        tenants.fork("fork", "second")
        before = files(tmp_path)
        with tenants.open("fork") as lake:
            rows = ids(lake)
            assert lake.streams.claim("s", "query").position is None
        with tenants.open("acme") as lake:
            drop_history(lake)
            drop_history(lake)
        assert before <= files(tmp_path)
        tenants.drop("acme")
        purged = tenants.purge()
        assert (purged.catalogs, purged.waiting) == (0, 1)
        for name in ("fork", "second"):
            with tenants.open(name) as lake:
                assert ids(lake) == rows
                assert not lake.verify(deep=True).errors
        with tenants.open("fork") as lake:
            lake.history.untag("first")
            lake.table("t").delete("id >= 0")
            lake.table("t").append({"id": list(range(30)), "name": ["own"] * 30})
            drop_history(lake)  # has files of its own only now
            rows = ids(lake)
        assert before <= files(tmp_path)
        assert tenants.purge().waiting == 1
        tenants.drop("second")
        while tenants.dropped():
            assert tenants.purge().catalogs > 0
        with tenants.open("fork") as lake:
            assert ids(lake) == rows
            assert not lake.verify(deep=True).errors
        assert not [path for path in files(tmp_path) if path.startswith(("data/acme", "data/second"))]


def test_a_catalog_cleans_up_again_when_nobody_shares_its_files(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    small(tenants)
    url = f"sqlite:///{tmp_path}/plain.db"
    report = tenants.export("acme", url)
    with tenants.open("acme") as lake:
        before = files(tmp_path)
        drop_history(lake)
        assert before <= files(tmp_path)
        with quacklake.connect(url, foreign_paths=report.foreign_paths) as plain:
            assert not plain.verify(deep=True).errors
            drop_history(plain)
        assert before <= files(tmp_path)
        tenants.release("acme", url)
        with pytest.raises(NotFoundError):
            tenants.release("acme", url)
        assert lake.cleanup_old_files(older_than=NOW).files > 0
        assert not lake.verify(deep=True).errors


def test_a_fork_and_its_origin_do_not_see_each_other(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    small(tenants)
    tenants.fork("acme", "fork")
    with tenants.open("acme") as one, tenants.open("fork") as other:
        assert other.at(version="first").table("t").count() == 50
        assert other.current_snapshot() == one.current_snapshot()
        other.table("t").delete("id < 10")
        one.table("t").append([{"id": 1, "name": "one"}])
        assert other.current_snapshot() == one.current_snapshot()
        assert (one.table("t").count(), other.table("t").count()) == (101, 91)
        assert not one.verify(deep=True).errors
        assert not other.verify(deep=True).errors
        with pytest.raises(QuacklakeError):
            other.table("t").add_files(f"{tmp_path}/data/acme/**/*.parquet")
    with pytest.raises(AlreadyExistsError):
        tenants.fork("acme", "Fork")
    with pytest.raises(NotFoundError):
        tenants.fork("nobody", "x")


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["export", "adopt", "fork"])
def test_what_is_interrupted_leaves_nothing_to_be_seen(what: str, tenants: quacklake.Tenants, tmp_path: Path) -> None:
    small(tenants)
    plain = f"sqlite:///{tmp_path}/plain.db"
    if what == "adopt":
        tenants.export("acme", plain, copy_data=True)

    def work(number: int) -> str:
        if what == "export":
            tenants.export("acme", f"sqlite:///{tmp_path}/p{number}.db", copy_data=True)
        elif what == "adopt":
            tenants.adopt(plain, "new")
        else:
            tenants.fork("acme", "new")
        return "new"

    with faults.record() as points:
        work(0)
    if what != "export":
        tenants.drop("new")
        tenants.purge()
    made = points.index("catalog.insert_catalogs.before" if what != "export" else "move.table.after")
    last = points.index("catalog.commit.before", made) + 1
    for number in (*range(1, last, max(1, last // 12)), last):  # every point would take long
        with faults.arm(faults.Fault(at=number)), pytest.raises(faults.FaultInjected):
            work(number)
        assert [tenant.name for tenant in tenants] == ["acme"]
        with pytest.raises(QuacklakeError):
            quacklake.connect(f"sqlite:///{tmp_path}/p{number}.db", create=False)
    work(10_000)
    assert tenants.shares("acme") == ([TenantShare("new", None)] if what == "fork" else [])
    if what != "export":
        with tenants.open("new") as lake:
            assert lake.table("t").count() == 100
            assert not lake.verify(deep=True).errors
