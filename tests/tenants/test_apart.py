"""Folders, names and caches of catalogs stay apart when catalogs are renamed, dropped, made again and moved."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConfigError, NotFoundError, PathError


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/l.db"


@pytest.fixture
def tenants(url: str, tmp_path: Path) -> Iterator[quacklake.Tenants]:
    with quacklake.tenants(url, tmp_path / "data") as found:
        yield found


def _fill(tenants: quacklake.Tenants, name: str, value: int) -> list[Path]:
    """A catalog with rows in a file; gives its files."""
    with tenants.open(name, create=True) as lake:
        lake.create_table("t", {"a": [value] * 50})
    return sorted(Path(tenants.get(name).data_path).rglob("*.parquet"))


def _values(tenants: quacklake.Tenants, name: str) -> set[int]:
    with tenants.open(name, read_only=True) as lake:
        return set(lake.table("t").to_arrow().column("a").to_pylist())


def test_removing_orphans_stays_in_the_folder_of_a_catalog(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    files = [file for name in ("a", "a2", "a.b", "main") for file in _fill(tenants, name, 1)]
    tenants.rename("a", "moved")
    _fill(tenants, "a", 2)  # in another folder, for that of its name is taken
    strays = []
    for folder in ("a", "a2", "a~4"):
        strays.append(tmp_path / "data" / folder / "main/t/ducklake-00000000-0000-7000-8000-000000000000.parquet")
        strays[-1].write_bytes(b"")
    with tenants.open("moved") as lake:
        lake.delete_orphaned_files(cleanup_all=True)
    assert [stray.exists() for stray in strays] == [False, True, True]
    with tenants.open("a") as lake:
        lake.delete_orphaned_files(cleanup_all=True)
    assert [stray.exists() for stray in strays] == [False, True, False]
    assert all(file.exists() for file in files)
    assert _values(tenants, "moved") == {1}
    assert _values(tenants, "a") == {2}


def test_the_files_of_a_catalog_cannot_be_put_among_those_of_others(
    url: str, tenants: quacklake.Tenants, tmp_path: Path
) -> None:
    # one is called as the folder of all: below the folder above that, it would have everybody's files
    for name in ("one", "two", "data"):
        _fill(tenants, name, 1)
    (tmp_path / "link").symlink_to(tmp_path / "data/two")
    for catalog, path in (
        ("one", tmp_path / "data/two"),
        ("one", tmp_path / "data/two/main"),
        ("one", tmp_path / "data/new"),
        ("one", tmp_path / "link"),
        ("data", tmp_path),
    ):
        with pytest.raises(ConfigError) as error:
            quacklake.connect(url, path, catalog=catalog)
        with pytest.raises(ConfigError) as error:
            quacklake.connect(url, path, catalog=catalog, override_data_path=True)
        assert "other catalogs may have files there" in error.value.message
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    with quacklake.connect(url, tmp_path / "moved", catalog="one", override_data_path=True) as lake:
        assert lake.table("t").count() == 50
        assert lake.data_path == f"{tmp_path}/moved/one/"


def test_files_of_another_catalog_are_never_added(url: str, tenants: quacklake.Tenants, tmp_path: Path) -> None:
    _fill(tenants, "one", 1)
    (theirs,) = _fill(tenants, "two", 2)
    (tmp_path / "inbox").mkdir()
    shutil.copy(theirs, tmp_path / "inbox/good.parquet")
    (tmp_path / "inbox/link.parquet").symlink_to(theirs)
    (tmp_path / "all").symlink_to(tmp_path / "data")
    for foreign in (tmp_path, tmp_path / "data", tmp_path / "all"):
        with tenants.open("one", foreign_paths=str(foreign)) as lake:
            for path in (
                theirs,
                tmp_path / "inbox/link.parquet",
                f"{tmp_path}/data/tw*/main/t/*",
                f"{tmp_path}/all/two/**",
            ):
                with pytest.raises((NotFoundError, PathError)) as error:
                    lake.table("t").add_files(path)
                assert theirs.name not in str(error.value).replace(str(path), "")
    with tenants.open("one", foreign_paths=str(tmp_path)) as lake:
        assert lake.table("t").add_files(tmp_path / "inbox/good.parquet") == 50
    with tenants.open("one", foreign_paths=f"{tmp_path / 'data/two'},{tmp_path}") as lake:
        with pytest.raises(PathError, match="may be a file of another catalog"):
            lake.table("t").add_files(theirs)  # its owner may remove it
        assert lake.table("t").count("a = 2") == 50


def test_a_session_keeps_two_catalogs_apart(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    for number, name in enumerate(("one", "two")):
        _fill(tenants, name, number)
    place = f"ducklake:sqlite:{tmp_path}/l.db"
    with quacklake.session() as session:
        for name in ("one", "two"):
            session.sql(f"ATTACH '{place}' AS {name}_ (CATALOG '{name}')")
        for _ in range(2):  # the second time from what is remembered
            for number, name in enumerate(("one", "two")):
                session.sql(f"USE {name}_")
                assert session.sql("SELECT DISTINCT a FROM t").fetchall() == [(number,)]
                assert session.sql(f"SELECT DISTINCT a FROM {name}_.t").fetchall() == [(number,)]
                assert session.sql(f"SELECT count(*) FROM ducklake_list_files('{name}_', 't')").fetchall() == [(1,)]
        session.sql("INSERT INTO two_.t SELECT a + 10 FROM one_.t")
        assert session.sql("SELECT DISTINCT a FROM two_.t ORDER BY a").fetchall() == [(1,), (10,)]
        assert session.sql("SELECT DISTINCT a FROM one_.t").fetchall() == [(0,)]
        assert session.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('one_')").fetchall() == [(1,)]


def test_tags_and_streams_of_one_name_are_two(tenants: quacklake.Tenants) -> None:
    with tenants.open("one", create=True) as one, tenants.open("two", create=True) as two:
        marks = {}
        for lake in (one, two):
            t = lake.create_table("t", [{"a": 1}])
            t.append([{"a": 2}])
            marks[lake] = lake.streams.claim("s", "q")
        one.tag("v", 1)
        two.tag("v", 2)
        assert (one.at("v").snapshot_id, two.at("v").snapshot_id) == (1, 2)
        for lake, mark in marks.items():  # claiming one has not fenced the other
            with lake.transaction() as tx:
                tx.table("t").append([{"a": 3}])
                tx.mark("s", 0, mark.run)
        one.history.untag("v")
        one.streams.forget("s")
        assert two.at("v").snapshot_id == 2
        assert two.streams.list().column("epoch").to_pylist() == [0]
        one.expire_snapshots(keep_last=1)
        assert two.at(version=1).table("t").count() == 1


def test_a_name_that_is_used_again_is_another_catalog(tenants: quacklake.Tenants) -> None:
    _fill(tenants, "a", 1)
    old = tenants.open("a")
    assert old.table("t").count("a = 1") == 50
    tenants.rename("a", "b")
    _fill(tenants, "a", 2)
    new = tenants.open("a")
    with old, new:
        assert _values(tenants, "a") == {2}
        assert _values(tenants, "b") == {1}
        assert (old.table("t").count("a = 1"), new.table("t").count("a = 2")) == (50, 50)
        old.table("t").append([{"a": 1}])
        assert (old.current_snapshot(), new.current_snapshot()) == (2, 1)
        tenants.drop("a")
        _fill(tenants, "a", 3)
        with pytest.raises(NotFoundError, match="was dropped"):
            new.table("t").count()
        with pytest.raises(NotFoundError, match="was dropped"):
            new.table("t").append([{"a": 1}])
        assert old.table("t").count() == 51
    tenants.purge()
    assert _values(tenants, "a") == {3}
    assert _values(tenants, "b") == {1}


def test_spark_finds_a_catalog_by_its_name(url: str, tenants: quacklake.Tenants) -> None:
    pytest.importorskip("pyspark")
    from quacklake.spark.datasource.driver_service import DriverService

    for name in ("a", "b"):
        with tenants.open(name, create=True) as lake:
            lake.create_table("t", [{f"of_{name}": 1}])
    desk = DriverService()

    def schema(**options: str) -> str:
        failure, answer = desk.answer("schema", {"options": {"table": "t", **options}})
        return str(answer[0] if failure is None else failure)

    with tenants.open("a") as lake:
        desk.add(lake.handle, "mine")
        assert "of_a" in schema()
        assert "of_b" in schema(lake=url, catalog="b")
        assert "of_a" in schema(lake=url, catalog="A")
        assert "of_b" in schema(lake=f"{url}?catalog=b")
        for options in ({"catalog": "b"}, {"lake": "mine", "catalog": "b"}):
            found = schema(**options)
            assert found.startswith(f"[{ConfigError.code}]")
            assert "not the URL" in found
        assert schema(lake=url, catalog="nobody").startswith(f"[{NotFoundError.code}]")
        # names change hands
        tenants.rename("a", "c")
        tenants.rename("b", "a")
        assert "of_b" in schema(lake=url, catalog="a")
        assert "of_a" in schema(lake=url, catalog="c")
        assert schema(lake=url, catalog="b").startswith(f"[{NotFoundError.code}]")
