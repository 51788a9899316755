"""``lake.verify`` finds every corruption that is made here, and nothing in healthy lakes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import quacklake
from quacklake.maintenance.verify import RULES, VerifyReport
from tests.golden.lakes import LAKES, GoldenLake

from .sick import CORRUPTIONS, Corruption, make_lake


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    make_lake(f"sqlite:///{folder}/lake.db", folder)
    return folder


@pytest.fixture
def copy(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "copy"))


def opened(folder: Path, healthy: Path) -> quacklake.Lake:
    return quacklake.connect(
        f"sqlite:///{folder}/lake.db",
        data_path=folder / "data",
        override_data_path=True,
        foreign_paths=[str(healthy / "foreign")],
        duckdb_threads=1,
    )


def test_a_healthy_lake_has_no_findings(copy: Path, healthy: Path) -> None:
    with opened(copy, healthy) as lake:
        report = lake.verify(deep=True)
        assert report.findings == ()
        assert report.skipped == ()
        assert report.ok
        assert report.files > 5


@pytest.fixture(scope="module")
def patient(healthy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    folder = Path(shutil.copytree(healthy, tmp_path_factory.mktemp("patient") / "copy"))
    with opened(folder, healthy) as lake:
        yield Patient(lake, folder, healthy)


@dataclass(frozen=True)
class Patient:
    """A lake that is ruined and healed again and again."""

    lake: quacklake.Lake
    folder: Path
    healthy: Path

    @contextmanager
    def ruined(self, case: Corruption) -> Iterator[None]:
        _ruin(case, self.folder)
        try:
            yield
        finally:
            with sqlite3.connect(self.healthy / "lake.db") as good, sqlite3.connect(self.folder / "lake.db") as bad:
                good.backup(bad)
            good.close()
            bad.close()
            shutil.copytree(self.healthy / "data", self.folder / "data", dirs_exist_ok=True)


def _ruin(case: Corruption, folder: Path) -> None:
    connection = sqlite3.connect(folder / "lake.db")
    with connection:
        case.ruin(connection, folder)
    connection.close()


def _findings(lake: quacklake.Lake, case: Corruption) -> VerifyReport:
    report = lake.verify(deep=case.deep)
    mine = [found for found in report.findings if found.code == case.code]
    assert mine, f"found only {report.findings}"
    assert {found.severity for found in mine} == {RULES[case.code].severity}
    assert all(found.repairable for found in mine) == case.repairable
    return report


FATAL = [case for case in CORRUPTIONS if not case.repairable]
HARMLESS = [case for case in CORRUPTIONS if case.repairable]


@pytest.mark.parametrize("case", FATAL, ids=lambda case: f"{case.code}: {case.name}")
def test_a_corruption_is_found(case: Corruption, patient: Patient) -> None:
    with patient.ruined(case):
        _findings(patient.lake, case)


@pytest.mark.parametrize("case", HARMLESS, ids=lambda case: f"{case.code}: {case.name}")
def test_a_corruption_that_can_be_mended_is_found_and_mended(case: Corruption, copy: Path, healthy: Path) -> None:
    _ruin(case, copy)
    with opened(copy, healthy) as lake:
        _mends(lake, case, _findings(lake, case))


def _mends(lake: quacklake.Lake, case: Corruption, report: VerifyReport) -> None:
    rows, snapshot = lake.table("t").count(), lake.current_snapshot()
    planned = lake.repair(report)
    assert planned.dry_run
    assert planned.repaired
    assert lake.current_snapshot() == snapshot
    done = lake.repair(report, dry_run=False)
    assert done.repaired == planned.repaired
    assert done.snapshot == snapshot + 1
    assert lake.verify(deep=case.deep).findings == ()
    assert lake.table("t").count() == rows
    lake.table("t").append([{"id": 1000, "name": "after", "x": 0.0, "day": None}])
    assert lake.table("t").count() == rows + 1


@pytest.mark.parametrize("golden", LAKES, ids=lambda lake: lake.name)
def test_lakes_of_older_releases_have_no_findings(golden: GoldenLake, tmp_path: Path) -> None:
    lake_copy = golden.copy(tmp_path)
    with quacklake.connect(
        lake_copy.url, data_path=lake_copy.data_path, override_data_path=True, duckdb_threads=1
    ) as lake:
        assert lake.verify(deep=golden.version in ("0.2", "1.0")).findings == ()
