"""RESET gives a lake the value that it was opened with, not that of another lake with its name."""

from __future__ import annotations

from pathlib import Path

import quacklake


def test_a_lake_under_the_name_of_another_keeps_its_own_setting(tmp_path: Path) -> None:
    lakes = {}
    for name, retries in (("first", 3), ("second", 7)):
        url = f"sqlite:///{tmp_path}/{name}.db"
        lakes[name] = quacklake.connect(url, data_path=str(tmp_path / name), ducklake_max_retry_count=retries)
    session = quacklake.session()
    for name, retries in (("first", 3), ("second", 7)):
        session.attach(lakes[name], "l")
        session.sql("SET ducklake_max_retry_count = 1")
        assert lakes[name]._context.config.ducklake_max_retry_count == 1
        session.sql("RESET ducklake_max_retry_count")
        assert lakes[name]._context.config.ducklake_max_retry_count == retries
        session.sql("SET ducklake_max_retry_count = 2")
        session.sql("DETACH l")
        session.sql("RESET ducklake_max_retry_count")
    session.close()
    for lake in lakes.values():
        lake.close()
