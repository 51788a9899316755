"""One session of Spark compacts the tables of many catalogs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake.maintenance.policy import JobKind, Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.daily(0.5)
def test_one_session_compacts_many_catalogs(tmp_path: Path, session: SparkSession) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        for word in ("acme", "beta"):
            with tenants.open(word, create=True) as lake:
                t = lake.create_table("t", {"a": list(range(30)), "w": [word] * 30})
                t.append({"a": list(range(30, 60)), "w": [word] * 30})
        report = tenants.maintain(Policy(small_files=2, orphans_every=None), engine="spark", session=session, threads=2)
        assert sorted(visit.name for visit in report.tenants) == ["acme", "beta"]
        for visit in report.tenants:
            assert [(job.job.kind, job.error) for job in visit.report.jobs] == [(JobKind.MERGE, None)]
            assert visit.report.jobs[0].report.files_after == 1
        for word in ("acme", "beta"):
            with tenants.open(word) as lake:
                rows = lake.table("t").to_pylist()
                assert sorted(row["a"] for row in rows) == list(range(60))
                assert {row["w"] for row in rows} == {word}
                assert lake.table("t").files().num_rows == 1
                assert not lake.verify(deep=True).findings
