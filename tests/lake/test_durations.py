"""Ages and durations are written in the same ways wherever one is taken."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from quacklake.config import parse_duration, resolve
from quacklake.core.format.options import parse_option
from quacklake.core.operations.times import span
from quacklake.errors import InputError

TEXTS = {
    "30s": dt.timedelta(seconds=30),
    "90m": dt.timedelta(minutes=90),
    "12h": dt.timedelta(hours=12),
    "7d": dt.timedelta(days=7),
    "2w": dt.timedelta(weeks=2),
    "1h 30m": dt.timedelta(minutes=90),
    "7 days": dt.timedelta(days=7),
    "12 Hours, 30 minutes": dt.timedelta(hours=12, minutes=30),
    "1.5h": dt.timedelta(minutes=90),
    "1 day 02:00:00.5": dt.timedelta(days=1, hours=2, milliseconds=500),
    "1 month": dt.timedelta(days=31),
    "1y": dt.timedelta(days=366),
    "250ms": dt.timedelta(milliseconds=250),
}
PLACES: dict[str, Callable[[str], object]] = {
    "a parser": parse_duration,
    "a setting": lambda text: resolve({"orphan_grace": text}, env={}).orphan_grace,
    "an option of a lake": lambda text: parse_option("expire_older_than", text),
    "an age in Python": span,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", TEXTS)
def test_a_duration_is_read_alike_everywhere(place: str, text: str) -> None:
    if place != "a setting" or TEXTS[text] <= dt.timedelta(days=365):
        assert PLACES[place](text) == TEXTS[text]


@pytest.mark.parametrize("text", ["7", "7 dogs", "-1d", "d", "1d x", ""])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a span of time"):
        span(text)


def test_short_ages_are_taken_by_the_operations_of_a_lake(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data") as lake:
        lake.create_schema("s")
        assert lake.expire_snapshots(older_than="7d", dry_run=True).snapshots == ()
        assert lake.cleanup_old_files(older_than="12h", dry_run=True).files == 0
        lake.options.set("expire_older_than", "2w")
        assert lake.expire_snapshots().snapshots == ()
