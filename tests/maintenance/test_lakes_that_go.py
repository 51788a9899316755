"""Another lake of the database may be dropped while its data path is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.core.catalog import file_names


@pytest.mark.daily(1)
def test_a_lake_that_is_dropped_meanwhile_has_no_data_path(
    mysql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_names, "_schemas_of_lakes", lambda *_: ["a_database_that_is_gone"])
    with quacklake.connect(mysql_url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", {"a": [1]})
        assert lake.delete_orphaned_files("1s").files == 0
        with lake._context.catalog.read() as reader:
            assert file_names.lake_data_paths(reader.connection, reader.backend, reader.meta.metadata.schema) == []
