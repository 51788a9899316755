"""Comments and tags of tables, columns and views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import CommitConflict, InputError, NotFoundError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        lake.create_table("t", [{"a": 1, "b": "x"}])
        yield lake


def test_comments_are_set_changed_and_taken_back(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert (table.comment, table.column_comments, table.tags) == (None, {}, {})
    table.set_comment("first")
    first = lake.current_snapshot()
    table.set_comment("it's the second; --")
    table.set_column_comment("B", "a column")
    table.set_tags({"owner": "me", "stage": "gold"})
    assert (table.comment, table.column_comments) == ("it's the second; --", {"b": "a column"})
    table.set_tags({"owner": None})
    assert table.tags == {"stage": "gold"}
    table.set_comment(None)
    table.set_column_comment("b", None)
    assert (table.comment, table.column_comments, table.tags) == (None, {}, {"stage": "gold"})
    assert lake.at(version=first).table("t").comment == "first"
    assert lake.at(version=first - 1).table("t").comment is None


def test_what_is_so_already_makes_no_snapshot(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    table.set_comment("same")
    before = lake.current_snapshot()
    table.set_comment("same")
    table.set_column_comment("a", None)
    table.set_tags({"nothing": None})
    assert lake.current_snapshot() == before


def test_comments_stay_with_a_renamed_table_and_go_with_a_dropped_one(lake: quacklake.Lake) -> None:
    lake.table("t").set_comment("mine")
    assert lake.rename_table("t", "u").comment == "mine"
    lake.drop_table("u")
    assert lake.create_table("u", [{"a": 1}]).comment is None


def test_a_transaction_comments_what_it_makes_and_sees_it(lake: quacklake.Lake) -> None:
    with lake.transaction() as tx:
        table = tx.create_table("new", [{"i": 1}])
        table.set_comment("new")
        table.set_column_comment("i", "number")
        tx.create_view("v", "SELECT i FROM new").set_comment("view")
        tx.table("t").set_comment("old")
        tx.table("t").set_comment("older")
        assert (table.comment, table.column_comments, tx.view("v").comment) == ("new", {"i": "number"}, "view")
        tx.create_table("gone", [{"i": 1}]).set_comment("lost")
        tx.drop_table("gone")
    assert lake.table("new").comment == "new"
    assert lake.table("new").column_comments == {"i": "number"}
    assert (lake.view("v").comment, lake.table("t").comment) == ("view", "older")
    changes = lake.snapshots().column("changes").to_pylist()[-1]
    assert "altered_table:1" in changes
    assert "altered_view" not in changes


def test_an_append_beside_a_comment_conflicts_as_with_any_other_change_of_the_table(lake: quacklake.Lake) -> None:
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("t").set_comment("mine")
        lake.table("t").set_comment("theirs")
    with lake.transaction() as tx:
        tx.table("t").set_comment("mine")
        lake.table("t").append([{"a": 2, "b": "y"}])
    assert (lake.table("t").comment, lake.table("t").count()) == ("mine", 2)


@pytest.mark.parametrize("tags", [{"": "x"}, {1: "x"}, {"a": 1}, {"quacklake_primary_key": "[1]"}])
def test_what_is_no_tag_is_refused(lake: quacklake.Lake, tags: Any) -> None:
    with pytest.raises(InputError):
        lake.table("t").set_tags(tags)
    with pytest.raises(InputError):
        lake.table("t").set_comment(b"bytes")  # type: ignore[arg-type]
    with pytest.raises((InputError, NotFoundError)):
        lake.table("t").set_column_comment("missing", "x")
    with pytest.raises(NotFoundError):
        lake.table("missing").set_comment("x")
    assert lake.current_snapshot() == 1
