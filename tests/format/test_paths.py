"""Names and paths."""

from __future__ import annotations

import time
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format import names
from quacklake.core.format.names import MAX_NAME, check_name, fold, quote
from quacklake.errors import InvalidNameError, PathError


@pytest.mark.parametrize("name", ["t", "T_1", "a-b", "2024", "x" * 300])
def test_a_plain_name_is_its_own_directory(name: str) -> None:
    assert names.object_dir(name, "uuid") == f"{name}/"


@pytest.mark.parametrize("name", ["a b", "a.b", "é", "..", "a/b", 'a"', "a\n", "%2e", ""])
def test_any_other_name_goes_by_its_uuid(name: str) -> None:
    assert names.object_dir(name, "uuid") == "uuid/"


@pytest.mark.parametrize(
    "path", ["main/t/f.parquet", "f", "year=2024/f.parquet", "a/", "a..b/c", "...", "a%20b", "x=%2Fy", "a/é ü",
     "url=https%3A%2F%2Fexample.com%2F/f", "win=C%3A%5Cx/f", "text=a%0Ab%25/f", "p=../f", "ts=2024-01-01 00:00:00/f"]
)  # fmt: skip
def test_paths_that_stay_below_are_given_back(path: str) -> None:
    assert names.checked_relative(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "//host/share",
        "..",
        "../x",
        "a/../../x",
        "a/..",
        "a/./b",
        ".",
        "a//b",
        "a/b//",
        "C:/x",
        "C:x",
        "c:\\x",
        "\\\\host\\share",
        "a\\..\\b",
        "..\\x",
        "%2e%2e/x",
        "%2E%2E%2Fx",
        "%252e%252e/x",
        "%25252525252525252e/x",
        "%2fetc/passwd",
        "p=%2f../x/%2e%2e",
        "p=a%2F..%2F..%2Fb",
        "a%5c..%5cb",
        "a\0b",
        "a%00b",
        "a\nb",
        "s3://bucket/x",
        "file:x",
        ".. /x",
        "a/ /b",
    ],
)
def test_paths_that_could_leave_are_refused(path: str) -> None:
    with pytest.raises(PathError):
        names.checked_relative(path)


@given(st.text(st.sampled_from("ab./\\%2e5cC:\0 f"), max_size=14))
def test_whatever_is_let_through_stays_below(path: str) -> None:
    try:
        joined = f"/root/{names.checked_relative(path)}"
    except PathError:
        return
    assert joined.startswith("/root/")
    depth = 0
    for part in PurePosixPath(path).parts:
        depth += -1 if part == ".." else 1
        assert depth >= 0
    assert "\\" not in path
    assert ".." not in path.split("/")


def test_file_names_ascend_and_are_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = [names.data_file_name() for _ in range(5000)]
    assert made == sorted(set(made))
    one = names.uuid7()
    assert (one.version, one.variant) == (7, "specified in RFC 4122")
    assert before <= one.int >> 80 <= time.time_ns() // 1_000_000 + 5


def test_file_names_are_those_of_the_format() -> None:
    assert names.checked_relative(names.data_file_name()).endswith(".parquet")
    assert names.delete_file_name().endswith("-delete.parquet")
    assert names.delete_file_name("puffin").endswith("-delete.puffin")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * (MAX_NAME + 1), "\ud800"])
def test_unusable_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="table name"):
        check_name(name, "table")


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        check_name(3, "table")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "x" * MAX_NAME, 'a"b', "a.b", "日本"])
def test_other_names_are_allowed(name: str) -> None:
    assert check_name(name, "table") == name


def test_names_fold_only_ascii_letters() -> None:
    assert fold("ÀBC") == "Àbc"
    assert quote('a"b') == '"a""b"'
