"""A lake finds its Spark session, and says what to do when there is none that works."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import quacklake
from quacklake.errors import InputError, MissingExtraError, UnsupportedFeatureError, UnsupportedVersionError
from quacklake.spark.runtime import session as sessions
from services import S3Server
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

from .core import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 0)


def test_another_thread_gets_the_session_of_the_process_as_it_is(site: LakeSite, session: SparkSession) -> None:
    lake, before, found = site.lake(), settings_of(session), []
    thread = threading.Thread(target=lambda: found.append(quacklake.spark(lake).session))
    thread.start()
    thread.join()
    assert found == [session]
    assert settings_of(session) == before


@pytest.mark.needs_spark("4.0")
def test_each_session_of_a_process_has_its_own_default_lake(make_site: MakeSite, session: SparkSession) -> None:
    lakes = [make_site("sqlite", 0).lake() for _ in range(2)]
    active = type(session).getActiveSession()
    for number, (lake, own) in enumerate(zip(lakes, (session, session.newSession()), strict=True)):
        lake.create_table("t", pa.schema([("a", pa.int64())])).append([{"a": number}])
        quacklake.spark(lake, own)
        assert [row.a for row in own.read.format("quacklake").load("t").collect()] == [number]
    assert [row.a for row in session.read.format("quacklake").load("t").collect()] == [0]
    assert type(session).getActiveSession() == active


def test_what_is_no_session_is_refused(site: LakeSite, session: SparkSession) -> None:
    wrong: Any = "local[2]"
    with pytest.raises(InputError, match="str is not a Spark session"):
        quacklake.spark(site.lake(), wrong)


def test_a_session_of_spark_connect_beside_a_classic_one_is_refused(session: SparkSession) -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "version": "4.1.4"})()
    with pytest.raises(InputError, match="classic"):
        sessions.check_session(remote)


def test_versions_that_do_not_work_are_refused(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.4.1")
    with pytest.raises(UnsupportedVersionError, match=r"Spark 3\.4\.1"):
        quacklake.spark(site.lake(), session)
    old: Any = SimpleNamespace(version="3.5.9")
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(UnsupportedFeatureError, match=r"a stream on Spark 3\.5\.9"):
        sessions.require(old, "a stream")


def test_without_java_or_pyspark_one_sentence_tells_the_fix(site: LakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = site.lake()

    def none() -> None:
        raise PySparkException("there is no session")

    monkeypatch.setattr(sessions.SparkSession, "active", none)
    monkeypatch.setattr(sessions, "find_java", lambda: None)
    with pytest.raises(MissingExtraError, match="needs Java") as caught:
        quacklake.spark(lake)
    assert "JAVA_HOME" in str(caught.value)
    monkeypatch.setattr("quacklake.spark.runtime.settings._package", lambda: None)
    with pytest.raises(MissingExtraError, match="pip install 'quacklake"):
        quacklake.spark(lake)


def test_a_lake_on_s3_tells_which_jars_are_missing(
    tmp_path: Path, session: SparkSession, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake:
        lake.create_table("t", [{"id": number} for number in range(20)])
        lake.options.set("data_inlining_row_limit", 0)
        spark = quacklake.spark(lake, session)
        assert "org.apache.hadoop:hadoop-aws" in spark.spark_defaults()
        assert s3_server.secret_key not in spark.spark_defaults()
        with pytest.raises(MissingExtraError, match="jars"):
            spark.append("t", session.range(20))
        lake.table("t").append([{"id": number} for number in range(20)])
        with pytest.raises(MissingExtraError, match="spark-settings"):
            spark.table("t")


def test_a_process_without_pyspark_loads_what_tells_to_install_it() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import quacklake.spark.lake, quacklake.spark.maintenance"
    subprocess.run([sys.executable, "-c", code], check=True)
