"""Files before a log knows of them: what fails keeps the rows, and leaves no file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake.connectors.staging import FileStage, Values
from quacklake.core.storage import Store
from quacklake.errors import InputError


def test_rows_that_could_not_be_written_are_kept_and_raise_again(tmp_path: Path) -> None:
    failing = True

    def split(table: pa.Table) -> Iterable[tuple[str, Values, pa.Table]]:
        yield "a/", {}, table
        if failing:
            raise InputError("no")
        yield "b/", {}, table

    stage = FileStage(Store.open(str(tmp_path)), split=split, target_bytes=30)
    good = pa.record_batch({"id": [1, 2]})
    stage.add(good)
    for _ in range(2):
        with pytest.raises(InputError):
            stage.add(good)  # would make it large enough for a file
        with pytest.raises(InputError):
            stage.take()
        assert list(tmp_path.rglob("*.parquet")) == []
    failing = False
    stage.add(good)
    assert [file.records for file in stage.take()] == [4, 4]
    assert stage.take() == ()
