"""Options, their text and their scopes."""

from __future__ import annotations

import datetime as dt

import pytest

from quacklake.core.format.options import (
    OPTIONS,
    READ_ONLY_KEYS,
    OptionRow,
    Scope,
    effective,
    format_option,
    option,
    parse_option,
)
from quacklake.errors import ConfigError

DEFAULTS = {
    "parquet_compression": "snappy",
    "parquet_version": 1,
    "parquet_compression_level": 3,
    "parquet_row_group_size": 122_880,
    "parquet_row_group_size_bytes": None,
    "target_file_size": 1 << 29,
    "data_inlining_row_limit": 10,
    "require_commit_message": False,
    "rewrite_delete_threshold": 0.95,
    "hive_file_pattern": True,
    "delete_older_than": None,
    "expire_older_than": None,
    "auto_compact": True,
    "per_thread_output": False,
    "write_deletion_vectors": False,
    "skip_stats_columns": "",
    "sort_on_insert": True,
    "update_mode": "auto",
}


def test_every_documented_option_is_there_with_its_default() -> None:
    assert {name: entry.default for name, entry in OPTIONS.items()} == DEFAULTS
    assert all(entry.help for entry in OPTIONS.values())
    assert not READ_ONLY_KEYS & set(OPTIONS)


def test_only_ages_are_global() -> None:
    assert {name for name, entry in OPTIONS.items() if entry.scopes == (Scope.GLOBAL,)} == {
        "delete_older_than",
        "expire_older_than",
    }


@pytest.mark.parametrize("name", [name for name, default in DEFAULTS.items() if default is not None])
def test_a_default_survives_its_text(name: str) -> None:
    default = OPTIONS[name].default
    assert default is not None
    assert parse_option(name, format_option(name, default)) == default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("target_file_size", "512MB", 512_000_000),
        ("target_file_size", "1 GiB", 1 << 30),
        ("target_file_size", "1.5kb", 1500),
        ("parquet_version", "V2", 2),
        ("parquet_compression", "ZSTD", "zstd"),
        ("AUTO_COMPACT", "False", False),
        ("delete_older_than", "7 days", dt.timedelta(days=7)),
        ("delete_older_than", "1 week 02:30:00.5", dt.timedelta(days=7, hours=2, minutes=30, milliseconds=500)),
        ("delete_older_than", "", None),
        ("expire_older_than", "1 month", dt.timedelta(days=31)),
        ("rewrite_delete_threshold", "0.500000", 0.5),
    ],
)
def test_texts_are_read(name: str, text: str, value: object) -> None:
    assert parse_option(name, text) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("parquet_version", 2, "V2"),
        ("target_file_size", "10MB", "10000000"),
        ("hive_file_pattern", True, "true"),
        ("delete_older_than", "7 days", "7 days"),
        ("expire_older_than", dt.timedelta(days=2), "2 days 0 seconds 0 microseconds"),
    ],
)
def test_texts_are_written_as_the_reference_implementation_does(name: str, value: object, text: str) -> None:
    assert format_option(name, value) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("target_file_size", "big"),
        ("target_file_size", "10XB"),
        ("parquet_version", "3"),
        ("parquet_compression", "rar"),
        ("parquet_row_group_size", "0"),
        ("data_inlining_row_limit", "-1"),
        ("auto_compact", "maybe"),
        ("rewrite_delete_threshold", "1.1"),
        ("rewrite_delete_threshold", "nan"),
        ("delete_older_than", "7 fortnights"),
        ("delete_older_than", "99999999999 years"),
    ],
)
def test_texts_that_are_no_value_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        parse_option(name, text)


def test_an_unknown_option_hints_at_the_one_meant() -> None:
    with pytest.raises(ConfigError, match="target_file_size"):
        option("target_filesize")


@pytest.mark.parametrize("name", sorted(READ_ONLY_KEYS))
def test_what_describes_the_lake_is_no_option(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be set"):
        option(name)


def test_the_narrowest_scope_wins() -> None:
    name = "data_inlining_row_limit"
    rows = [
        OptionRow(name, "3", "table", 7),
        OptionRow(name, "2", "schema", 5),
        OptionRow(name, "1"),
        OptionRow("version", "1.0"),
    ]
    assert effective(rows, name, schema_id=5, table_id=7) == 3
    assert effective(rows, name, schema_id=5, table_id=8) == 2
    assert effective(rows, name, schema_id=6, table_id=8) == 1
    assert effective(rows, name) == 1
    assert effective(rows[3:], name, table_id=7) == 10
    # A table's id says nothing about a schema of the same number.
    assert effective(rows, name, schema_id=7, table_id=5) == 1


def test_a_stored_text_that_is_no_value_is_reported() -> None:
    with pytest.raises(ConfigError):
        effective([OptionRow("auto_compact", "perhaps")], "auto_compact")
