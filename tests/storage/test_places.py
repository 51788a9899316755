"""Buckets that are there, and that are not."""

from __future__ import annotations

from typing import Any

import pytest

from quacklake.core.storage import S3Options, Store
from quacklake.core.storage.failures import outage_of
from quacklake.errors import CorruptFileError, StorageError


def test_files_of_a_missing_bucket_are_not_damaged(s3_options: S3Options) -> None:
    absent = Store.open("s3://no-such-bucket-here/lake", s3=s3_options)
    for call in (absent.read, absent.size, absent.open_input, lambda path: absent.delete([path])):
        with pytest.raises(StorageError, match="there is no bucket no-such-bucket-here") as caught:
            call("f")
        assert type(caught.value) is StorageError
    told = outage_of("HTTP GET error reading 's3://no-such-bucket-here/lake/f' (HTTP 404 Not Found)", "read")
    assert told is not None and "no-such-bucket-here" in told.message


def test_a_bucket_that_is_there_is_asked_for_once(
    s3_options: S3Options, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(f"{s3_bucket}/lake", s3=s3_options)
    asked: list[str] = []
    place = store.attempts.place.__self__  # type: ignore[attr-defined]

    class Counting:
        def get_file_info(self, name: str) -> Any:
            asked.append(name)
            return store.filesystem.get_file_info(name)

    monkeypatch.setattr(place, "_filesystem", Counting())
    for number in range(5):
        with pytest.raises(CorruptFileError):
            store.read(f"none-{number}")
    assert store.delete(["none"]) == 0
    assert asked == [s3_bucket.removeprefix("s3://")]
