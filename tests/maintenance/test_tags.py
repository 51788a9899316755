"""Snapshots can have names, which lead to them wherever a version does, and keep them from expiring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.cli import main
from quacklake.errors import AlreadyExistsError, InputError, InvalidNameError, NotFoundError, SnapshotExpiredError
from tests.catalog.stock import Stock
from tests.maintenance.past import numbers


@pytest.fixture
def tagged(lake: quacklake.Lake) -> quacklake.Lake:
    """A lake with five snapshots; the second has a tag."""
    table = lake.create_table("t", numbers(0, 1))
    for number in range(3):
        table.append(numbers(number, 1))
    assert lake.tag("release-1", 2) == 2
    return lake


def test_a_tag_leads_to_its_snapshot(tagged: quacklake.Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert tagged.tag("newest") == 4
    for view in (tagged.at("release-1"), tagged.at(tag="release-1"), tagged.at(version="release-1")):
        assert (view.snapshot_id, view.table("t").count()) == (2, 2)
    assert tagged.table("t").changes("release-1", "newest").count() == 3
    assert tagged.at("newest").table("t").changes(3, "newest").count() == 2
    assert tagged.history.tags().select(["tag", "snapshot_id"]).to_pylist() == [
        {"tag": "newest", "snapshot_id": 4},
        {"tag": "release-1", "snapshot_id": 2},
    ]
    assert main(["--lake", tagged.url, "show", "t", "--at", "release-1", "--output", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_tag_keeps_its_snapshot_until_it_is_taken_away(tagged: quacklake.Lake) -> None:
    assert tagged.expire_snapshots("0 seconds").snapshots == (0, 1, 3)
    with pytest.raises(InputError, match="release-1"):
        tagged.expire_snapshots(versions=[2])
    assert tagged.at("release-1").table("t").count() == 2
    tagged.history.untag("release-1")
    assert tagged.expire_snapshots("0 seconds").snapshots == (2,)
    with pytest.raises(NotFoundError):
        tagged.history.untag("release-1")


def test_a_tag_is_given_once_and_may_be_moved(tagged: quacklake.Lake) -> None:
    with pytest.raises(AlreadyExistsError, match="snapshot 2"):
        tagged.tag("release-1", 3)
    assert tagged.tag("release-1", 3, replace=True) == 3
    assert tagged.at("release-1").snapshot_id == 3
    for version, error in ((99, NotFoundError), (-1, InputError), ("2", InputError), (True, InputError)):
        with pytest.raises(error):
            tagged.tag("other", version)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match='did you mean "release-1"'):
        tagged.at("releas-1")
    with pytest.raises(InputError):
        tagged.at("release-1", tag="release-1")


@pytest.mark.parametrize(
    "name", ["", "7", "2024-01-01", "a b", "a'; DROP TABLE x; --", "a\0", "\ud800", "a" * 129, None, 3, "a\n", "-a"]
)
def test_a_name_that_is_none_is_refused(lake: quacklake.Lake, name: str) -> None:
    for work in (lake.tag, lake.history.untag):
        with pytest.raises(InvalidNameError):
            work(name)
    assert lake.history.tags().num_rows == 0


@pytest.mark.parametrize("name", ["v1.0", "Größe", "feature/x+y_z", "a" * 128])
def test_names_are_kept_as_they_are(lake: quacklake.Lake, name: str) -> None:
    lake.tag(name)
    assert lake.at(name).snapshot_id == 0
    assert lake.history.tags().column("tag").to_pylist() == [name]


@pytest.mark.parametrize(
    "database",
    [
        "duckdb",
        "postgres",
        "mysql",
    ],
)
def test_tags_are_kept_in_every_database(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        lake.tag("a")
        lake.create_table("t", numbers(0, 1))
        with pytest.raises(AlreadyExistsError):
            lake.tag("a")
        lake.tag("A")
        lake.tag("a", replace=True)
        assert lake.history.tags().select(["tag", "snapshot_id"]).to_pydict() == {
            "tag": ["A", "a"],
            "snapshot_id": [1, 1],
        }
        lake.history.set_retention("t", "1 day")
        lake.history.set_retention("t", "2 days")
        assert lake.history.retentions() == {"main.t": "2 days"}


def test_a_lake_of_another_client_has_no_tags_until_one_is_given(stock: Stock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    stock.run(url, "CREATE TABLE t (id BIGINT)", options=[f"DATA_PATH '{tmp_path / 'data'}/'"])
    with quacklake.connect(url) as lake:
        assert lake.history.tags().num_rows == 0
        with pytest.raises(NotFoundError):
            lake.at("v1")
        assert "quacklake_snapshot_tags" not in sa.inspect(sa.create_engine(url)).get_table_names()
        lake.tag("v1", 0)
        assert lake.at("v1").tables() == []
    stock.run(url, "SELECT count(*) FROM ducklake_expire_snapshots('l', versions => [0])")  # it knows no tags
    with quacklake.connect(url) as lake:
        with pytest.raises(SnapshotExpiredError, match="another client has expired"):
            lake.at("v1")
        lake.history.untag("v1")
