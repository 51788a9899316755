"""Marks: records beside the tables of a lake, which make no snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import InputError, NotFoundError, StreamBatchDoneError
from quacklake.extend.marks import Mark, mark_once, open_marks


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as opened:
        opened.sql("CREATE TABLE t (id INTEGER)")
        yield opened


def test_a_change_that_fails_changes_nothing_and_marks_make_no_snapshot(lake: quacklake.Lake) -> None:
    before = lake.current_snapshot()
    with pytest.raises(ZeroDivisionError), open_marks(lake, "job", change=True) as marks:
        marks.put(Mark("a", "q", "r", 0))
        raise ZeroDivisionError
    with open_marks(lake, "job", change=True) as marks:
        assert marks.count() == 0
        marks.put(Mark("a", "q", "r", 1))
        marks.put(Mark("ab", "q", "r", 2))
        marks.put(Mark("b", "q", "r", 3))
    with open_marks(lake, "job", change=True) as marks:
        assert ([mark.name for mark in marks.list("a")], marks.count("a"), marks.count()) == (["a", "ab"], 2, 3)
        assert {name: mark.epoch for name, mark in marks.find_all(["b", "ab", "c"]).items()} == {"ab": 2, "b": 3}
        assert marks.expire(3) == 2
        marks.remove("b")
        assert marks.list() == []
    assert lake.current_snapshot() == before


def test_kinds_never_meet_and_users_see_none_of_them_as_streams(lake: quacklake.Lake) -> None:
    with open_marks(lake, "job", change=True) as marks:
        marks.put(Mark("a", "q", "r", 0))
    with open_marks(lake, "consumer") as marks:
        assert marks.find("a") is None
        with pytest.raises(InputError, match="only be read"):
            marks.remove("a")
    assert lake.streams.list().num_rows == 0
    with pytest.raises(InputError, match="kind 'jobs'"), open_marks(lake, "jobs"):
        pass


def test_of_two_commits_with_one_mark_the_second_fails(lake: quacklake.Lake) -> None:
    mark = Mark("once", "load", run="", epoch=0)

    def load(change: quacklake.LakeTransaction) -> None:
        mark_once(change, "request", mark)
        change.table("t").append({"id": [1]})

    lake.run(load)
    with pytest.raises(StreamBatchDoneError):
        lake.run(load)
    assert lake.table("t").count() == 1


def test_a_catalog_that_was_dropped_takes_no_marks(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", tmp_path / "shared") as shared:
        shared.create("ann")
        with shared.open("ann") as lake:
            shared.drop("ann")
            with pytest.raises(NotFoundError), open_marks(lake, "job", change=True) as marks:
                marks.put(Mark("a", "q", "r", 0))
