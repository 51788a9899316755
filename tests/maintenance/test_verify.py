"""``lake.verify`` finds every corruption that is made here, and nothing in healthy lakes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.catalog import open_catalog
from quacklake.core.maintenance.verify import RULES, VerifyReport
from quacklake.errors import CommitConflict
from tests.catalog.stock import Stock
from tests.conformance.clients import LONG
from tests.golden.lakes import LAKES, GoldenLake
from tests.layout import inlined_rows, new_inlined_delete

from .lakes import make_lake
from .sick import CORRUPTIONS, Corruption


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
    planned = lake.maintenance.repair(report)
    assert planned.dry_run
    assert planned.repaired
    assert lake.current_snapshot() == snapshot
    done = lake.maintenance.repair(report, dry_run=False)
    assert done.repaired == planned.repaired
    assert done.snapshot == snapshot + 1
    assert lake.verify(deep=case.deep).findings == ()
    assert lake.table("t").count() == rows
    lake.table("t").append([{"id": 1000, "name": "after", "x": 0.0, "day": None}])
    assert lake.table("t").count() == rows + 1


#: Corruptions that are made, and must be found, on every database.
EVERYWHERE = {
    "UPDATE ducklake_table_stats SET next_row_id = 20 WHERE table_id = 1": "V006",
    "UPDATE ducklake_snapshot_changes SET changes_made = 'optimised:1' WHERE snapshot_id = 4": "V002",
    "UPDATE ducklake_view SET view_name = 't'": "V012",
    new_inlined_delete(1, file_id=1, row_id=5000, begin_snapshot=6): "V046",
    "UPDATE ducklake_file_column_stats SET column_id = 99 WHERE data_file_id = 0 AND column_id = 1": "V028",
    "UPDATE {} SET begin_snapshot = 1000 WHERE {}".format(*inlined_rows(1, 1)): "V044",
    "UPDATE ducklake_data_file SET path = '../x' WHERE data_file_id = 1": "V060",
}


@pytest.mark.parametrize("kind", ["duckdb", "postgres", "mysql"])
def test_every_database_is_verified_alike(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    file = f"duckdb:///{tmp_path}/lake.duckdb"
    url: str = file if kind == "duckdb" else request.getfixturevalue(f"{kind}_url")
    make_lake(url, tmp_path)
    settings: dict[str, Any] = {"foreign_paths": [str(tmp_path / "foreign")], "duckdb_threads": 1}
    with quacklake.connect(url, **settings) as lake:
        assert lake.verify(deep=True).findings == ()
    engine = open_catalog(url)._engine
    with engine.begin() as connection:
        for statement in EVERYWHERE:
            connection.exec_driver_sql(statement)
    engine.dispose()
    with quacklake.connect(url, **settings) as lake:
        report = lake.verify()
        assert {found.code for found in report.findings} >= set(EVERYWHERE.values())
        done = lake.maintenance.repair(report, dry_run=False)
        assert "V006" in {found.code for found in done.repaired}
        assert "V006" not in {found.code for found in lake.verify().findings}


def test_an_encrypted_lake_is_verified_and_its_keys_stay_secret(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    make_lake(url, tmp_path, encrypted=True)
    connection = sqlite3.connect(tmp_path / "lake.db")
    keys = [key for (key,) in connection.execute("SELECT encryption_key FROM ducklake_data_file")]
    with quacklake.connect(url, duckdb_threads=1) as lake:
        assert lake.verify(deep=True).findings == ()
        with connection:
            connection.execute("UPDATE ducklake_data_file SET encryption_key = NULL WHERE data_file_id = 0")
            connection.execute(
                "UPDATE ducklake_data_file SET encryption_key = substr(encryption_key, 3) WHERE data_file_id = 1"
            )
        connection.close()
        report = lake.verify(deep=True)
    assert {found.file_id for found in report.findings if found.code == "V063"} == {0, 1}
    assert not any(key in repr(report) or key[2:] in repr(report) for key in keys)


def test_deletion_vectors_are_verified(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        lake.options.set("write_deletion_vectors", True)
        table = lake.create_table("t", pa.table({"a": range(100)}))
        table.delete("a BETWEEN 10 AND 40")
        assert lake.verify(deep=True).findings == ()
        vector = next((tmp_path / "data").rglob("*.puffin"))
        vector.write_bytes(vector.read_bytes()[:-1] + b"!")
        assert [found.code for found in lake.verify().findings] == ["V072"]


def test_what_stock_clients_write_compact_and_expire_has_no_findings(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with Stock() as stock:
        stock.run(
            url,
            "CREATE TABLE t (a INTEGER, b VARCHAR, f DOUBLE)",
            "INSERT INTO t SELECT i, 'x' || i, i / 2 FROM range(100) r(i)",
            "INSERT INTO t SELECT i, 'y' || i, -i FROM range(100) r(i)",
            "DELETE FROM t WHERE a = 5",
            "DELETE FROM t WHERE a BETWEEN 20 AND 40",
            "UPDATE t SET b = 'z' WHERE a > 80",
            "INSERT INTO t VALUES (1, 'q', 2)",
            "ALTER TABLE t ADD COLUMN s STRUCT(p INTEGER)",
            "INSERT INTO t SELECT i, 'w', 1, {'p': i} FROM range(30) r(i)",
            options=[f"DATA_PATH '{tmp_path}/data'"],
        )
        for statements in (
            ["CALL ducklake_flush_inlined_data('l')"],
            ["CALL ducklake_merge_adjacent_files('l')"],
            ["CALL ducklake_rewrite_data_files('l', delete_threshold => 0.1)"],
            ["ALTER TABLE t RENAME TO t2", "CREATE TABLE u AS SELECT 1 AS a", "DROP TABLE u"],
            ["SELECT count(*) FROM ducklake_expire_snapshots('l', versions => [1, 2, 3, 4, 5, 6])"],
            ["CALL ducklake_cleanup_old_files('l', cleanup_all => true)"],
        ):
            stock.run(url, *statements)
            with quacklake.connect(url, duckdb_threads=1) as lake:
                assert lake.verify(deep=True).findings == (), statements


def test_table_statistics_of_stock_clients_that_bound_nothing_are_told_as_a_warning(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with Stock() as stock:
        stock.run(
            url,
            "CREATE TABLE t (a DOUBLE)",
            "INSERT INTO t SELECT i FROM range(100) r(i)",
            "INSERT INTO t SELECT 'nan' FROM range(100) r(i)",
            "INSERT INTO t VALUES (7)",
            options=[f"DATA_PATH '{tmp_path}/data'"],
        )
        with quacklake.connect(url, duckdb_threads=1) as lake:
            report = lake.verify(deep=True)
            assert [(found.code, found.severity) for found in report.findings] == [("V086", "warning")]
            assert "other clients may answer wrongly" in report.findings[0].hint
            assert report.errors == ()
            lake.maintenance.repair(report, dry_run=False)
            assert lake.verify(deep=True).ok
        assert stock.run(url, "SELECT min(a) FROM t") == [(0,)]


def test_a_repair_refuses_a_report_that_is_out_of_date(copy: Path, healthy: Path) -> None:
    _ruin(next(case for case in CORRUPTIONS if case.code == "V006"), copy)
    with opened(copy, healthy) as lake:
        report = lake.verify()
        lake.create_schema("later")
        with pytest.raises(CommitConflict):
            lake.maintenance.repair(report, dry_run=False)
        assert lake.maintenance.repair(dry_run=False).repaired


@pytest.mark.parametrize("golden", LAKES if LONG else LAKES[::3], ids=lambda lake: lake.name)
def test_lakes_of_older_releases_have_no_findings(golden: GoldenLake, tmp_path: Path) -> None:
    lake_copy = golden.copy(tmp_path)
    with quacklake.connect(
        lake_copy.url, data_path=lake_copy.data_path, override_data_path=True, duckdb_threads=1
    ) as lake:
        assert lake.verify(deep=golden.version in ("0.2", "1.0")).findings == ()
