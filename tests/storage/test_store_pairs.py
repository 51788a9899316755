"""Two stores overlap when either has files inside the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from quacklake.core.storage import S3Options, Store
from quacklake.core.storage.store_pairs import overlap


def test_a_folder_overlaps_itself_and_those_inside_and_around_it(tmp_path: Path) -> None:
    def together(one: str, other: str) -> bool:
        return overlap(Store.open(f"{tmp_path}/{one}"), Store.open(f"{tmp_path}/{other}"))

    assert together("a", "a/")
    assert together("a", "a/b/c")
    assert together("a/b/c", "a")
    assert not together("a", "ab")
    assert not together("a/b", "a/c")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert overlap(Store.open(f"{tmp_path}/link/x"), Store.open(f"{tmp_path}/a"))


def test_the_case_of_letters_counts_only_where_the_file_system_tells_names_apart(tmp_path: Path) -> None:
    lower, upper = Store.open(f"{tmp_path}/a"), Store.open(f"{tmp_path}/A/b")
    assert overlap(lower, upper)  # neither is there: nobody knows
    (tmp_path / "a").mkdir()
    assert overlap(lower, upper) is (tmp_path / "A").exists()


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("s3://b/lake/", "s3://b/lake/x/", True),
        ("s3://b/lake/", "s3://b/Lake/", False),
        ("s3://b/lake/", "s3://b/lake2/", False),
        ("s3://b/", "gs://b/", False),
    ],
)
def test_object_stores_compare_buckets_and_folders(one: str, other: str, together: bool) -> None:
    s3 = S3Options(endpoint="localhost:1", access_key="k", secret_key="s", secure=False)
    first = Store.open(one, s3=s3)
    second = Store.open(other, s3=s3)
    assert overlap(first, second) is together


def test_a_local_folder_and_a_bucket_are_apart(tmp_path: Path) -> None:
    s3 = S3Options(endpoint="localhost:1", access_key="k", secret_key="s", secure=False)
    assert not overlap(Store.open(str(tmp_path)), Store.open("s3://b/", s3=s3))
