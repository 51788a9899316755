"""``quacklake doctor``: what it finds in an installation, the settings, databases and stores, and what it says to do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.cli.commands import doctor
from services.s3 import S3Server
from tests.cli.conftest import Answer, Run

Rows = dict[str, dict[str, Any]]


def _rows(answer: Answer) -> Rows:
    return {row["what"]: row for row in answer.json}


def _failed(answer: Answer) -> Rows:
    assert answer.code == 1
    rows = {what: row for what, row in _rows(answer).items() if row["state"] == "failed"}
    assert all(row["fix"] for row in rows.values())
    return rows


def test_a_lake_in_order_is_told_so(run: Run, lake: Path) -> None:
    answer = run("doctor", "-o", "json")
    rows = _rows(answer)
    in_order = (
        "Python",
        "quacklake",
        "duckdb",
        "pyarrow",
        "sqlalchemy",
        "database",
        "catalog",
        "files",
        "format version",
    )
    assert {what: rows[what]["state"] for what in in_order} == dict.fromkeys(in_order, "ok")
    assert rows["database"]["detail"].startswith("SQLite 3.")
    assert rows["files"]["detail"] == f"{lake}/data/, 2 data files, can be written"
    assert not list((lake / "data").glob(".quacklake*"))
    told = run("doctor")
    assert told.code == 0
    assert told.out.endswith("all checks passed\n")


def test_before_there_is_a_lake_it_says_how_to_make_one(run: Run) -> None:
    answer = run("doctor", "-o", "json")
    assert answer.code == 0
    assert _rows(answer)["catalog"]["state"] == "absent"
    assert "quacklake init" in _rows(answer)["catalog"]["fix"]


@pytest.mark.parametrize(
    ("url", "told", "fix"),
    [
        ("sqlite:///none.db", "there is no lake at sqlite:///none.db", "quacklake init"),
        ("sqlite:///junk.db", "junk.db is not a SQLite database", "check the path"),
        ("postgresql://ann:geheim@127.0.0.1:1/lake", "nothing listens on port 1", "start PostgreSQL"),
        ("mysql://ann:geheim@no-such-host.invalid/lake", "host no-such-host.invalid is not known", "check the name"),
    ],
)
def test_a_catalog_that_cannot_be_used_comes_with_what_to_do(run: Run, url: str, told: str, fix: str) -> None:
    Path("junk.db").write_bytes(b"certainly no database " * 100)
    answer = run("doctor", "-o", "json", "--lake", url)
    failed = _failed(answer)
    assert list(failed) == ["catalog"]
    assert told in failed["catalog"]["detail"]
    assert fix in failed["catalog"]["fix"]
    assert "geheim" not in answer.out + answer.err


@pytest.mark.parametrize(
    ("database", "product"),
    [
        pytest.param("postgres", "PostgreSQL ", marks=pytest.mark.postgres),
        pytest.param("mysql", "MariaDB ", marks=pytest.mark.mysql),
    ],
)
def test_the_version_of_a_server_is_told(
    database: str, product: str, run: Run, request: pytest.FixtureRequest, elsewhere: Path
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    quacklake.connect(url, data_path=elsewhere / "data").close()
    rows = _rows(run("doctor", "-o", "json", "--lake", url))
    assert rows["database"]["detail"].startswith(product)
    assert rows["catalog"]["state"] == "ok"
    assert rows["files"]["detail"] == f"{elsewhere}/data will be created with the first file"
    missing = sa.make_url(url).set(database="nowhere").render_as_string(hide_password=False)
    assert 'no database "nowhere"' in _failed(run("doctor", "-o", "json", "--lake", missing))["catalog"]["detail"]


def test_a_folder_of_files_that_is_gone_is_found(run: Run, lake: Path) -> None:
    (lake / "data").rename(lake / "elsewhere")
    failed = _failed(run("doctor", "-o", "json"))
    assert f"the folder {lake}/data does not exist, but the lake has 2 data files there" in failed["files"]["detail"]


@pytest.fixture
def s3_lake(s3_server: S3Server, s3_bucket: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a lake whose files are on S3."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"sqlite:///{elsewhere}/s3.db"
    with quacklake.connect(url, data_path=f"{s3_bucket}/lake/") as lake:
        lake.create_table("t", [{"n": n} for n in range(100)])
    return url


@pytest.mark.s3
def test_a_store_is_looked_into(run: Run, s3_lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 data file, can be written" in _rows(run("doctor", "-o", "json", "--lake", s3_lake))["files"]["detail"]
    monkeypatch.setenv("QUACKLAKE_S3_ENDPOINT", "http://127.0.0.1:1")
    failed = _failed(run("doctor", "-o", "json", "--lake", s3_lake))
    assert "the S3 endpoint http://127.0.0.1:1 cannot be reached: Connection refused" in failed["files"]["detail"]


@pytest.mark.s3
def test_a_bucket_that_is_missing_is_found(run: Run, s3_lake: str, elsewhere: Path) -> None:
    url = f"sqlite:///{elsewhere}/other.db"
    quacklake.connect(url, data_path="s3://no-such-bucket-here/lake/").close()
    failed = _failed(run("doctor", "-o", "json", "--lake", url))
    assert failed["files"]["detail"] == "there is no bucket no-such-bucket-here"


class _Refusing(BaseHTTPRequestHandler):
    """A store that lets nobody in: the one of the tests takes any key."""

    def do_HEAD(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_HEAD

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing_store() -> Iterator[str]:
    """The URL of a store that refuses all keys."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_wrong_keys_are_found(run: Run, refusing_store: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("S3_ENDPOINT", "S3_ACCESS_KEY", "S3_SECRET_KEY", "S3_SECURE", "S3_REGION")
    for name, value in zip(names, (refusing_store, "ann", "geheim", "false", "us-east-1"), strict=True):
        monkeypatch.setenv(f"QUACKLAKE_{name}", value)
    url = f"sqlite:///{elsewhere}/s3.db"
    quacklake.connect(url, data_path="s3://bucket/lake/").close()
    answer = run("doctor", "-o", "json", "--lake", url)
    failed = _failed(answer)["files"]
    assert "no permission for s3://bucket/lake/" in failed["detail"]
    assert "credentials" in failed["fix"]
    assert "geheim" not in answer.out


@pytest.fixture
def mute_server() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield int(server.getsockname()[1])


def test_a_server_that_says_nothing_does_not_hold_the_checkup_up(
    run: Run, mute_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SECONDS", 1.0)
    begun = time.monotonic()
    failed = _failed(run("doctor", "-o", "json", "--lake", f"postgresql://ann@127.0.0.1:{mute_server}/lake"))
    assert time.monotonic() - begun < 30
    assert failed["catalog"]["detail"] == "no answer after 1 s"


def test_settings_that_cannot_work_are_found(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    Path("quacklake.toml").write_text('[s3]\nendpoint = "http://minio:9000"\nsession_token = "geheim"\n')
    Path("quacklake.toml").chmod(0o644)
    answer = run("doctor", "-o", "json")
    found = {row["what"]: row["state"] for row in answer.json if row["area"] == "settings"}
    assert found["s3_secret_key"] == "failed"
    assert found["s3_secure"] == found["quacklake.toml"] == "warning"
    assert "geheim" not in answer.out


def test_a_misspelt_variable_is_found(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUACKLAKE_DATAPATH", "x")
    answer = run("doctor", "-o", "json")
    found = _rows(answer)["QUACKLAKE_DATAPATH"]
    assert (answer.code, answer.err) == (0, "")
    assert (found["state"], found["fix"]) == ("warning", 'did you mean "QUACKLAKE_DATA_PATH"?')


def test_a_settings_file_that_is_wrong_is_found(run: Run) -> None:
    Path("quacklake.toml").write_text("pool_sze = 3\n")
    failed = _failed(run("doctor", "-o", "json"))
    assert "pool_sze" in failed["settings"]["detail"]
    assert "pool_size" in failed["settings"]["fix"]


def test_what_is_not_installed_comes_with_how_to_install_it(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"duckdb": "1.0.0", "psycopg": None, "pyspark": None}
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: versions.get(name, real(name)))
    answer = run("doctor", "-o", "json")
    rows = _rows(answer)
    assert _failed(answer)["duckdb"]["fix"].startswith("pip install --upgrade 'duckdb<")
    assert (rows["psycopg"]["state"], rows["psycopg"]["fix"]) == ("absent", "pip install 'quacklake[postgres]'")
    assert "Java" not in rows
    needed = run("doctor", "-o", "json", "--lake", "postgresql://ann@127.0.0.1:1/lake")
    assert _failed(needed)["psycopg"]["fix"] == "pip install 'quacklake[postgres]'"


@pytest.mark.parametrize(
    ("version", "state"), [("4.1.4", "ok"), ("3.5.6", "warning"), ("3.4.0", "warning"), ("5.0.0", "warning")]
)
def test_a_spark_that_does_not_fit_is_told(version: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: version)
    found = {finding.what: finding for finding in doctor._check_spark()}
    assert found["Spark"].state == state
    assert (found["Spark"].fix is None) == (state == "ok")
    assert "Java" in found


def test_a_java_that_is_missing_or_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    old = doctor.java()
    assert (old.state, "11.0.2" in old.detail, "JDK" in (old.fix or "")) == ("warning", True, True)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert doctor.java().state == "absent"
