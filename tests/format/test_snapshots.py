"""Snapshots and their times."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quacklake.core.format.snapshots import Snapshot, format_time, parse_time
from quacklake.errors import CatalogError


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_a_time_comes_back(time: dt.datetime) -> None:
    assert parse_time(format_time(time)) == time


@given(st.datetimes(min_value=dt.datetime(1000, 1, 1), timezones=st.just(dt.UTC)))
def test_duckdb_reads_and_writes_the_same_text(time: dt.datetime) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        (text,) = connection.execute("SELECT ?::TIMESTAMPTZ::VARCHAR", [time]).fetchone() or ("",)
    assert format_time(time) == text


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15 03:07:52.014+00",
        "2026-11-15T03:07:52.014Z",
        "2026-11-15 04:07:52.014+01:00",
        " 2026-11-15 03:07:52.014",
    ],
)
def test_any_zone_is_read(text: str) -> None:
    assert parse_time(text) == dt.datetime(2026, 11, 15, 3, 7, 52, 14000, tzinfo=dt.UTC)


@given(st.from_regex(r"\A20[0-9]{2}-[012][0-9]-[0-3][0-9] [012][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,7})?\+00\Z"))
@example("2024-01-01 24:00:00+00")
@example("2024-02-30 00:00:00+00")
@example("0000-01-01 00:00:00+00")
def test_the_usual_form_is_read_as_any_other(text: str) -> None:
    def read(form: str) -> dt.datetime | None:
        try:
            return parse_time(form)
        except CatalogError:
            return None

    assert read(text) == read(f"{text}:00")  # a zone that is written in another way
    found = read(text)
    assert found is None or found.tzinfo is dt.UTC


def test_a_naive_time_is_utc() -> None:
    assert format_time(dt.datetime(2024, 1, 1)) == "2024-01-01 00:00:00+00"


@pytest.mark.parametrize("text", ["", "yesterday", "infinity", "12345-01-01 00:00:00+00", "2024-13-01 00:00:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(CatalogError, match="snapshot time"):
        parse_time(text)


def test_a_snapshot_is_plain_data() -> None:
    assert Snapshot(0, None, 0, 1, 0) == Snapshot(id=0, time=None, schema_version=0, next_catalog_id=1, next_file_id=0)
