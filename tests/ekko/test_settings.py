"""The settings of a writer: Ekko's variables, checked and frozen."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from quacklake.errors import ConfigError
from quacklake_ekko.settings import SUBJECTS, WriterSettings
from quacklake_ekko.transactions import DuckLakeWriter


def test_without_variables_the_defaults_are_those_of_ekko() -> None:
    settings = WriterSettings.resolve({})
    assert (settings.batch_size, settings.flush_interval) == (1000, timedelta(seconds=30))
    assert (settings.nats_url, settings.nats_stream) == ("nats://localhost:4222", "blockchain")
    assert settings.nats_subjects == SUBJECTS == ("transactions", "transactions.>")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.batch_size = 5  # type: ignore[misc]


def test_every_variable_of_the_guide_is_read(tmp_path: Path) -> None:
    settings = WriterSettings.resolve(
        {
            "DUCKLAKE_ENABLED": "true",
            "DUCKLAKE_CATALOG_TYPE": "sqlite",
            "DUCKLAKE_CATALOG_PATH": str(tmp_path / "catalog.sqlite"),
            "DUCKLAKE_DATA_PATH": "s3://ducklake-data/data",
            "DUCKLAKE_BUCKET_NAME": "ducklake-data",
            "DUCKLAKE_BATCH_SIZE": "250",
            "DUCKLAKE_FLUSH_INTERVAL": "1m30s",
            "MINIO_ENDPOINT": "localhost:9000",
            "MINIO_ACCESS_KEY": "minioadmin",
            "MINIO_SECRET_KEY": "hidden",
            "MINIO_REGION": "us-east-1",
            "MINIO_SECURE": "false",
            "NATS_URL": "nats://ann:hidden@one:4222,nats://two:4222",
            "NATS_STREAM": "BLOCKCHAIN",
            "NATS_SUBJECT": "transactions, ekko.*.*.*.persistence",
        }
    )
    assert (settings.batch_size, settings.flush_interval) == (250, timedelta(seconds=90))
    assert settings.nats_stream == "BLOCKCHAIN"
    assert settings.nats_subjects == ("transactions", "transactions.>", "ekko.*.*.*.persistence")
    lake = settings.lake
    assert lake is not None
    assert (lake.url, lake.data_path) == (f"sqlite:///{tmp_path}/catalog.sqlite", "s3://ducklake-data/data")
    assert (lake.s3_endpoint, lake.s3_region, lake.s3_secure) == ("localhost:9000", "us-east-1", False)
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DUCKLAKE_BATCH_SIZE", "0"),
        ("DUCKLAKE_BATCH_SIZE", "-5"),
        ("DUCKLAKE_BATCH_SIZE", "many"),
        ("DUCKLAKE_BATCH_SIZE", "1.5"),
        ("DUCKLAKE_BATCH_SIZE", "99999999999"),
        ("DUCKLAKE_FLUSH_INTERVAL", "30"),
        ("DUCKLAKE_FLUSH_INTERVAL", "0s"),
        ("DUCKLAKE_FLUSH_INTERVAL", "-1s"),
        ("DUCKLAKE_FLUSH_INTERVAL", "400 days"),
        ("NATS_URL", "http://localhost:4222"),
        ("NATS_URL", "nats://localhost:port"),
        ("NATS_STREAM", "two words"),
        ("NATS_STREAM", "a.b"),
        ("NATS_SUBJECT", "a..b"),
        ("NATS_SUBJECT", "a.>.b"),
        ("NATS_SUBJECT", "a,,b"),
        ("DUCKLAKE_CATALOG_TYPE", "oracle"),
        ("MINIO_SECURE", "perhaps"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_variable(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        WriterSettings.resolve({variable: value})


def test_an_error_shows_no_password() -> None:
    with pytest.raises(ConfigError) as caught:
        WriterSettings.resolve({"NATS_URL": "nats://ann:hidden@host:port"})
    assert "hidden" not in str(caught.value)


def test_settings_open_the_lake_that_they_name_and_no_other(tmp_path: Path) -> None:
    env = {"DUCKLAKE_CATALOG_PATH": str(tmp_path / "catalog.sqlite"), "DUCKLAKE_DATA_PATH": str(tmp_path / "data")}
    settings = WriterSettings.resolve({**env, "DUCKLAKE_BATCH_SIZE": "7"})
    with settings.connect() as lake, DuckLakeWriter(lake, settings=settings) as writer:
        assert lake.url == f"sqlite:///{tmp_path}/catalog.sqlite"
        assert writer._writer._batch == 7
    with pytest.raises(ConfigError, match="no lake"):
        WriterSettings.resolve({}).connect()
    with pytest.raises(ConfigError, match="enabled"):
        WriterSettings.resolve({**env, "DUCKLAKE_ENABLED": "false"}).connect()


def test_subjects_match_as_in_nats() -> None:
    settings = WriterSettings(nats_subjects=("transactions.>", "a.*.c"))
    taken = {"transactions.evm": True, "transactions": False, "a.b.c": True, "a.c": False, "a.b.c.d": False}
    assert {subject: settings.takes(subject) for subject in taken} == taken
