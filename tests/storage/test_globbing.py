"""Patterns in object stores mean what they mean on a disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quacklake.core.storage import Store
from quacklake.core.storage.listing import _expression
from quacklake.errors import PathError

FILES = ["a.parquet", "b.parquet", "c.txt", "x/a.parquet", "x/y/a.parquet", "x/y/[z].parquet", "x=1/f.parquet"]


@pytest.mark.parametrize(
    "pattern",
    ["*.parquet", "**/*.parquet", "[ab].parquet", "[!a].parquet", "?.txt", "x/*.parquet", "*/y/*", "x*/*", "no*"],
)
def test_both_kinds_of_store_find_the_same(tmp_path: Path, pattern: str) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    local = [path.removeprefix(f"{tmp_path}/") for path in Store.open(str(tmp_path)).find(f"{tmp_path}/{pattern}")]
    remote = sorted(name for name in FILES if re.fullmatch(_expression(pattern), name))
    assert local == remote


def test_a_file_whose_name_is_a_pattern_is_itself(tmp_path: Path) -> None:
    odd = tmp_path / "a[1].parquet"
    odd.touch()
    assert Store.open(str(tmp_path)).find(str(odd)) == [str(odd)]


def test_another_kind_of_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="another kind of store"):
        Store.open(str(tmp_path)).find("s3://bucket/*.parquet")
