"""Two transactions that change one row cannot both commit, wherever the row is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import CommitConflict


@pytest.mark.parametrize("inlined", [True, False], ids=["inlined", "in a file"])
@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.update({"n": 20}, "n < 20"),
        lambda table: table.delete("n = 1"),
        lambda table: table.merge([{"id": 1, "n": 30}], on="id"),
        lambda table: table.overwrite([{"id": 7, "n": 7}]),
    ],
    ids=["update", "delete", "merge", "overwrite"],
)
def test_a_row_that_another_has_updated_is_a_conflict(
    tmp_path: Path, inlined: bool, change: Callable[[quacklake.Table], object]
) -> None:
    url = f"sqlite:///{tmp_path / 'l.db'}"
    limit = None if inlined else 0
    with (
        quacklake.connect(url, tmp_path / "data", data_inlining_row_limit=limit) as mine,
        quacklake.connect(url, data_inlining_row_limit=limit) as theirs,
    ):
        mine.create_table("t", [{"id": 1, "n": 1}])
        with pytest.raises(CommitConflict), mine.transaction() as tx:
            change(tx.table("t"))
            theirs.table("t").update({"n": 40}, "id = 1")
        assert mine.table("t").to_pylist() == [{"id": 1, "n": 40}]
