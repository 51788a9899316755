"""Ekko's whole way: transactions through NATS and the writer into a lake, and out of the API."""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import json
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyarrow.fs import FileSelector, S3FileSystem

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.errors import QuacklakeError
from quacklake_ekko.nats_writer import run_writer
from quacklake_ekko.service import DuckLakeService
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.transactions import DuckLakeWriter, create_table
from services import NatsServer, S3Server
from services.s3 import HEALTH
from tests.docs.blocks import REPOSITORY
from tests.duckdbs import import_extension
from tests.service.serving import client, served
from tests.service.test_serve import running

SCRIPTS = REPOSITORY / "apps" / "ekko" / "scripts"
NODE = {"network": "Avalanche", "subnet": "Mainnet", "vm_type": "EVM"}


def test_what_the_writer_flushes_the_api_answers(
    postgres_url: str, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    lake = quacklake.connect(postgres_url, f"{s3_bucket}/data", create=True)
    create_table(lake)
    with DuckLakeWriter(lake) as writer:
        for number in range(30):
            writer.write_transaction(
                {"hash": f"0x{number}", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1,
                 "input": "0x", "blockHash": "0xb", "blockNumber": number, "transactionIndex": 0, "timestamp": 1_700_000_000},
                NODE,
            )  # fmt: skip
        writer.write_transaction(
            {"hash": "0x3", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1,
             "input": "0x", "blockHash": "0xb", "blockNumber": 3, "transactionIndex": 0, "timestamp": 1_700_000_000},
            NODE,
        )  # fmt: skip
    assert len(asyncio.run(DuckLakeService(lake).get_transactions(limit=100))) == 30
    with served(lake) as found:
        page = found.reader.get("/api/transactions/", params={"limit": 100, "networks": "Avalanche"}).json()
        assert (page["total"], len({row["hash"] for row in page["transactions"]})) == (30, 30)
        assert found.anonymous.get("/health/ready").json() == {"status": "ready"}
        _ask_the_service(DuckLakeService(lake))


def _ask_the_service(service: DuckLakeService) -> None:
    """Call every method of Ekko's service on PostgreSQL and S3."""

    async def ask() -> None:
        newest = (await service.get_snapshots())[0]["snapshot_id"]
        assert len(await service.get_transactions(limit=5, network="Avalanche", subnet="Mainnet")) == 5
        assert await service.get_transactions(limit=5, network="elsewhere") == []
        assert len(await service.get_transactions(limit=100, snapshot_id=newest)) == 30
        assert await service.get_transactions(limit=100, snapshot_id=newest - 1) == []
        assert len(await service.get_recent_changes(hours=24)) == 30
        assert (await service.get_table_info())["row_count"] == 30
        before = len(await service.get_snapshots())
        await service.cleanup_old_files(dry_run=True)
        await service.expire_snapshots(older_than=dt.datetime.now(dt.UTC) - dt.timedelta(days=30))
        assert len(await service.get_snapshots()) == before, "nothing is older than a month"
        await service.expire_snapshots(older_than=dt.datetime.now(dt.UTC))
        assert len(await service.get_snapshots()) < before
        assert len(await service.get_transactions(limit=100)) == 30

    asyncio.run(ask())


@pytest.fixture
def ekko(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The environment of Ekko's guide, for a catalog in SQLite and files in a bucket."""
    word = f"e{secrets.token_hex(5)}"
    given = {
        "DUCKLAKE_ENABLED": "true",
        "DUCKLAKE_CATALOG_TYPE": "sqlite",
        "DUCKLAKE_CATALOG_PATH": str(tmp_path / "catalog.sqlite"),
        "DUCKLAKE_DATA_PATH": f"{s3_bucket}/data",
        "DUCKLAKE_BUCKET_NAME": s3_bucket.removeprefix("s3://"),
        "DUCKLAKE_BATCH_SIZE": "20",
        "DUCKLAKE_FLUSH_INTERVAL": "50ms",
        **s3_server.environment(),
        "NATS_URL": nats_server.url,
        "NATS_STREAM": word,
        "NATS_SUBJECT": f"{word}.>",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return given


def publish(ekko: dict[str, str], count: int) -> None:
    stream = ekko["NATS_STREAM"]
    with NatsConnection(ekko["NATS_URL"]) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
        bodies = [
            json.dumps(
                {"hash": f"0x{number}", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1,
                 "input": "0x", "blockHash": "0xb", "blockNumber": number, "transactionIndex": 0,
                 "timestamp": 1_700_000_000, **NODE}
            ).encode()
            for number in range(count)
        ]  # fmt: skip
        nats.publish([(f"{stream}.x", body, None) for body in bodies])


def test_the_guide_of_ekko_works_from_its_variables_alone(ekko: dict[str, str], s3_server: S3Server) -> None:
    publish(ekko, 50)
    report = run_writer(WriterSettings.resolve(), until_idle=True)
    assert (report.messages, report.commits > 1) == (50, True)
    lake_url = f"sqlite:///{ekko['DUCKLAKE_CATALOG_PATH']}"
    with quacklake.connect(lake_url) as lake:
        lake.table("blockchain.transactions").flush_inlined_data()
    with running("--lake", lake_url) as (_, url, token), client(url, token) as dashboard:
        page = dashboard.get("/api/transactions/", params={"limit": 100}).json()
        assert (page["total"], page["has_more"]) == (50, False)
        assert len(asyncio.run(_from_variables())) == 50
        used = _look_behind(ekko, s3_server)
        found = {family.name: family for family in text_string_to_metric_families(dashboard.get("/metrics").text)}
        figures = {name: family.samples[0].value for name, family in found.items() if len(family.samples) == 1}
        assert figures["quacklake_lake_catalog_bytes"] > 0
        assert figures["quacklake_lake_snapshots"] > report.commits
        assert (figures["quacklake_commit_failures"], figures["quacklake_storage_retries"]) == (0, 0)
        assert (figures["quacklake_lake_bytes"], figures["quacklake_lake_inlined_rows"]) == (used, 0)
        assert dashboard.get("/health/ready").json() == {"status": "ready"}


async def _from_variables() -> list[dict[str, object]]:
    return await DuckLakeService().get_transactions(limit=100)


def _look_behind(ekko: dict[str, str], s3_server: S3Server) -> int:
    """Look at the catalog and the bucket with their own tools while the service has the lake open; return its bytes."""
    catalog = sqlite3.connect(ekko["DUCKLAKE_CATALOG_PATH"])
    try:  # nobody waits for a lock that the service holds
        assert catalog.execute("SELECT count(*) > 2 FROM ducklake_snapshot").fetchone() == (1,)
        catalog.execute("BEGIN IMMEDIATE")
        catalog.rollback()
    finally:
        catalog.close()
    shell = shutil.which("sqlite3")
    if shell is not None:
        listed = subprocess.run(
            [shell, ekko["DUCKLAKE_CATALOG_PATH"], ".tables"], capture_output=True, text=True, check=True
        )
        assert {"ducklake_snapshot", "ducklake_data_file"} <= {*listed.stdout.split()}
    bucket = S3FileSystem(
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        endpoint_override=s3_server.host,
        scheme="http",
    )
    inside = bucket.get_file_info(FileSelector(f"{ekko['DUCKLAKE_BUCKET_NAME']}/data", recursive=True))
    files = [each for each in inside if each.is_file]
    assert files and all(each.path.endswith(".parquet") for each in files)
    return sum(each.size for each in files)


def test_a_bucket_that_is_missing_is_named(ekko: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_DATA_PATH", "s3://nowhere-at-all/data")
    with pytest.raises(QuacklakeError, match="nowhere-at-all"):
        lake = WriterSettings.resolve().connect()
        create_table(lake)
        with DuckLakeWriter(lake, batch_size=1) as writer:
            writer.write_transaction(
                {"hash": "0x1", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1,
                 "input": "0x" + "00" * 300_000, "blockHash": "0xb", "blockNumber": 1, "transactionIndex": 0,
                 "timestamp": 1_700_000_000},
                NODE,
            )  # fmt: skip
        lake.table("blockchain.transactions").flush_inlined_data()


def test_the_store_tells_that_it_is_alive_at_the_path_of_minio(s3_server: S3Server, s3_bucket: str) -> None:
    """``curl http://localhost:9000/minio/health/live`` is the first step when something is wrong with the store."""
    if not s3_server.is_real:
        pytest.skip("moto has no such path")
    assert httpx.get(f"{s3_server.url}{HEALTH}").status_code == 200
    assert httpx.get(f"{s3_server.url}/{s3_bucket.removeprefix('s3://')}").status_code == 403, "keys are still needed"


@pytest.mark.daily(0.2)
def test_the_example_script_runs_from_packages(tmp_path: Path) -> None:
    found = subprocess.run(
        [SCRIPTS / "run-ducklake-example.sh", "example"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, "TMPDIR": str(tmp_path)},
    )
    assert found.returncode == 0, found.stderr
    assert "NATS" not in found.stdout and "200 rows, 21 columns" in found.stdout


@pytest.mark.daily(0.2)
def test_the_example_script_uses_the_infrastructure_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("DUCKLAKE_", "MINIO_", "NATS_", "AWS_"))]:
        monkeypatch.delenv(name)
    environment = {**os.environ, "PYTHON": sys.executable, "TMPDIR": str(tmp_path)}

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=REPOSITORY, timeout=120
        )

    services = (sys.executable, "-m", "services")
    try:
        found = run(SCRIPTS / "run-ducklake-example.sh")
        assert found.returncode == 0, found.stderr
        assert "NATS: 200 messages" in found.stdout and "200 rows, 21 columns" in found.stdout
        assert re.search(r"files: [1-9]\d* in s3://ducklake-data/example-", found.stdout)
        assert "NATS: 200 messages" in run(SCRIPTS / "run-ducklake-example.sh", "example").stdout
    finally:
        for name in ("s3", "nats"):
            run(*services, "stop", name)
    assert run(*services, "environment").returncode == 1


def test_the_extension_of_duckdb_loads() -> None:
    import duckdb

    with duckdb.connect() as connection:
        import_extension("ducklake", con=connection)
        connection.execute("LOAD ducklake")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_duckdb_without_the_extension_says_so_and_the_lake_is_read_without_it(tmp_path: Path) -> None:
    import duckdb

    bare = {"extension_directory": str(tmp_path / "none"), "autoinstall_known_extensions": "false"}
    with duckdb.connect(config=bare) as connection, pytest.raises(duckdb.Error, match=r"(?i)extension"):
        connection.execute("LOAD ducklake")
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t AS SELECT 42 AS x")
        assert lake.sql("SELECT x FROM t").fetchall() == [(42,)]


@pytest.mark.daily(0.2)
@pytest.mark.parametrize("which", ["", "all", "unit", "integration", "minio"])
def test_the_script_of_the_tests_finds_them_from_any_folder(tmp_path: Path, which: str) -> None:
    """E11: without an argument all of them, with ``minio`` those that use an S3 server; never a sample of functions."""
    words = [which, "--collect-only", "-p", "no:cacheprovider"] if which else []
    options = {"PYTEST_ADDOPTS": "--collect-only -p no:cacheprovider"} if not which else {}
    command = [SCRIPTS / "test-ducklake.sh", *words]
    environment = {**os.environ, "PYTHON": sys.executable, **options}
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr
    tests = [line for line in found.stdout.splitlines() if "::test_" in line]
    folders = {line.split("/")[1] for line in tests}
    both = {"unit", "integration"}
    assert folders == {"": both, "all": both, "unit": {"unit"}}.get(which, {"integration"})
    functions = {line.partition("::")[2].partition("[")[0] for line in tests}
    if "integration" in folders:
        own = {name for name in globals() if name.startswith("test_")}
        with_store = {name for name in own if "s3_server" in inspect.signature(globals()[name]).parameters}
        missing = own - functions
        assert with_store <= functions
        assert missing == (own - with_store - {"test_a_bucket_that_is_missing_is_named"} if which == "minio" else set())


@pytest.mark.daily(0.3)
def test_the_script_of_the_tests_runs_them_and_tells_how_they_ended(tmp_path: Path) -> None:
    script = [SCRIPTS / "test-ducklake.sh", "integration", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHON": sys.executable, "QUACKLAKE_TEST_PROFILE": "long"}
    for chosen, ending, told in [("without_the_extension_says_so", 0, "1 passed"), ("no_such_test", 5, "deselected")]:
        command = [*script, "-k", chosen]
        found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        assert found.returncode == ending and told in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize("script", ["run-ducklake-example.sh", "test-ducklake.sh"])
@pytest.mark.parametrize("folder", [SCRIPTS, REPOSITORY / "scripts"], ids=["app", "root"])
def test_the_scripts_say_what_they_take(folder: Path, script: str) -> None:
    found = subprocess.run([folder / script, "nonsense"], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and found.stderr.startswith("usage: ")
