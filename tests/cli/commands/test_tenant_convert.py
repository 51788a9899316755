"""``quacklake tenant convert``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quacklake


@pytest.mark.parametrize("database", ["sqlite", "mysql"])
def test_a_plain_lake_becomes_a_shared_one(
    database: str, run: Any, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_url(database)
    with quacklake.connect(url, tmp_path / "plain") as lake:
        lake.create_table("t", [{"a": 1}])
    answer = run("tenant", "convert", "acme", "--lake", url, "--yes")
    assert answer.code == 1
    assert "needs a data path for new catalogs" in answer.err
    answer = run("tenant", "convert", "acme", "--lake", url, "--data-path", str(tmp_path / "data"), "--yes")
    assert answer.code == 0, answer
    assert "with the catalog acme" in answer.out
    with quacklake.connect(url, catalog="acme") as lake:
        assert lake.table("t").to_pylist() == [{"a": 1}]
