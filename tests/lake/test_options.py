"""Options of the format: where they can be set, which one holds, and what they do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core.format.options import OPTIONS, READ_ONLY_KEYS, Scope
from quacklake.errors import ConfigError, InputError, NotFoundError, ReadOnlyError

VALUES: dict[str, tuple[Any, str, Any]] = {
    "auto_compact": (False, "false", False),
    "data_inlining_row_limit": (7, "7", 7),
    "delete_older_than": ("7 days", "7 days", dt.timedelta(days=7)),
    "expire_older_than": ("1 week", "1 week", dt.timedelta(weeks=1)),
    "hive_file_pattern": (False, "false", False),
    "parquet_compression": ("ZSTD", "zstd", "zstd"),
    "parquet_compression_level": (5, "5", 5),
    "parquet_row_group_size": (1000, "1000", 1000),
    "parquet_row_group_size_bytes": ("1MB", "1000000", 1_000_000),
    "parquet_version": (2, "V2", 2),
    "per_thread_output": (True, "true", True),
    "require_commit_message": (True, "true", True),
    "rewrite_delete_threshold": (0.5, "0.5", 0.5),
    "sort_on_insert": (False, "false", False),
    "target_file_size": ("10MiB", "10485760", 10 << 20),
    "update_mode": ("Copy_On_Write", "copy_on_write", "copy_on_write"),
    "write_deletion_vectors": (True, "true", True),
}
"""Option -> a value, how it is stored, what it means."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=2, duckdb_threads=1
    ) as lake:
        lake.create_schema("s")
        lake.create_table("s.t", [{"a": i} for i in range(20)])
        lake.create_table("s.u", [{"a": i} for i in range(20)])
        yield lake


def stored(lake: quacklake.Lake) -> set[tuple[str, str, str | None]]:
    rows = lake.options.list().to_pylist()
    return {(row["key"], row["value"], row["scope"]) for row in rows if row["key"] not in READ_ONLY_KEYS}


def test_every_option_is_set_in_every_scope_it_has_and_taken_back(lake: quacklake.Lake) -> None:
    assert set(VALUES) == set(OPTIONS) - {"skip_stats_columns"}, "which needs the format version 1.1"
    for name, (value, text, meaning) in VALUES.items():
        for scope in Scope:
            where = {Scope.GLOBAL: {}, Scope.SCHEMA: {"schema": "s"}, Scope.TABLE: {"table": "s.t"}}[scope]
            before = lake.options.get(name, **where)
            if scope not in OPTIONS[name].scopes:
                with pytest.raises(InputError, match="whole lake"):
                    lake.options.set(name, value, **where)
                continue
            lake.options.set(name, value, **where)
            assert stored(lake) == {(name, text, None if scope is Scope.GLOBAL else scope.value)}
            assert lake.options.get(name.upper(), **where) == meaning
            lake.options.unset(name, **where)
            assert stored(lake) == set()
            assert lake.options.get(name, **where) == before


def test_the_narrowest_setting_holds(lake: quacklake.Lake) -> None:
    name = "data_inlining_row_limit"

    def limits() -> tuple[int, ...]:
        return lake.options.get(name, table="s.t"), lake.options.get(name, table="s.u"), lake.options.get(name)

    assert limits() == (2, 2, 2)  # what the lake was opened with
    lake.options.set(name, 30, table="s.t")
    assert limits() == (30, 2, 2)
    lake.options.set(name, 40)
    assert limits() == (30, 40, 40)
    lake.options.set(name, 50, schema="s")
    assert limits() == (30, 50, 40)
    lake.options.set(name, 60, table="s.t")
    assert limits() == (60, 50, 40)
    lake.options.unset(name, table="s.t")
    lake.options.unset(name, schema="s")
    lake.options.unset(name)
    lake.options.unset(name)
    assert limits() == (2, 2, 2)


def test_a_limit_of_one_table_leaves_the_others_as_the_lake_was_opened(lake: quacklake.Lake) -> None:
    lake.options.set("data_inlining_row_limit", 9, table="s.t")
    counts = {name: lake.table(name).files().num_rows for name in ("s.t", "s.u")}
    for name in counts:
        lake.table(name).append([{"a": i} for i in range(5)])
    assert {name: lake.table(name).files().num_rows - before for name, before in counts.items()} == {"s.t": 0, "s.u": 1}


def test_what_is_no_option_is_refused(lake: quacklake.Lake) -> None:
    for name in READ_ONLY_KEYS:
        with pytest.raises(ConfigError, match="cannot be set"):
            lake.options.set(name, "x")
        with pytest.raises(ConfigError):
            lake.options.unset(name)
    with pytest.raises(ConfigError, match="Unsupported option target_file"):
        lake.options.get("target_file")
    with pytest.raises(ConfigError):
        lake.options.set("parquet_row_group_size_bytes", 0)
    with pytest.raises(InputError, match="not both"):
        lake.options.set("auto_compact", True, schema="s", table="s.t")
    with pytest.raises(NotFoundError):
        lake.options.set("auto_compact", True, table="s.missing")
    assert stored(lake) == set()


def test_a_read_only_lake_refuses_options(lake: quacklake.Lake) -> None:
    with (
        quacklake.connect(lake.url, read_only=True) as other,
        pytest.raises(ReadOnlyError),
    ):
        other.options.set("auto_compact", False)


def test_a_commit_message_can_be_required(lake: quacklake.Lake) -> None:
    lake.options.set("require_commit_message", True)
    before = lake.current_snapshot()
    files = sorted(Path(lake.data_path).rglob("*.parquet"))
    for work in (
        lambda: lake.table("s.t").append([{"a": i} for i in range(50)]),
        lambda: lake.create_schema("new"),
        lambda: lake.table("s.t").delete("a = 1"),
    ):
        with pytest.raises(ConfigError, match="Commit Information for the snapshot is required") as failure:
            work()
        assert "lake.transaction(message=" in str(failure.value.hint)
    with pytest.raises(ConfigError), lake.transaction() as tx:
        tx.create_schema("new")
    assert lake.current_snapshot() == before
    assert sorted(Path(lake.data_path).rglob("*.parquet")) == files
    with lake.transaction():
        pass  # nothing to say, nothing to sign
    with lake.transaction(message="why") as tx:
        tx.create_schema("new")
    signed = lake.signed(author="me", message="load", extra='{"run": 1}')
    assert signed.table("s.t").append([{"a": 100}]) == 1
    with signed.transaction() as tx:
        tx.table("s.t").append([{"a": 101}])
    with signed.transaction(author="you") as tx:
        tx.table("s.t").append([{"a": 102}])
    found = lake.snapshots().to_pylist()[-4:]
    assert [(row["author"], row["commit_message"]) for row in found] == [
        (None, "why"),
        ("me", "load"),
        ("me", "load"),
        ("you", None),
    ]
    lake.options.unset("require_commit_message")
    lake.create_schema("unsigned")
