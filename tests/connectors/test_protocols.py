"""Checkpoints are kept and read back, and options and kinds are found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import quacklake
from quacklake.connectors import (
    CommitInfo,
    CountingSource,
    DatedSource,
    MessageSource,
    PreparedCommit,
    ReadMode,
    Source,
    SourceCheckpoint,
    WrittenFile,
    connector,
    connectors,
    registry,
)
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConfigError, InputError, MissingExtraError
from quacklake.pipelines.definition import SourceDefinition
from quacklake.pipelines.sinks import open_source

OFFERED = (MessageSource, CountingSource, DatedSource)
NOW = datetime(2026, 5, 4, 3, 2, 1, 12345, tzinfo=UTC)


# L15
@pytest.mark.parametrize(
    "kept",
    [
        SourceCheckpoint(),
        SourceCheckpoint(7, ("a.parquet", "b.parquet"), NOW, {"sequence": 12, "created": "x"}),
        PreparedCommit(3),
        PreparedCommit(3, (WrittenFile("p=1/a", 10, 2, {"p": "1", "q": None}, '{"n": 1}'),), 10, 2, {"branch": "b"}),
        CommitInfo(3, 17, NOW),
    ],
)
def test_what_is_kept_comes_back_equal(kept: SourceCheckpoint | PreparedCommit | CommitInfo) -> None:
    assert type(kept).from_json(kept.to_json()) == kept


@pytest.mark.parametrize(
    ("kind", "options", "offers"),
    [
        ("lake", {"table": "t"}, {CountingSource, DatedSource}),
        ("delta", {"path": "t"}, {CountingSource}),
        ("nats", {"stream": "S", "servers": "nats://127.0.0.1:1", "schema": "id BIGINT"}, {*OFFERED}),
    ],
)
def test_sources_have_the_methods_that_a_pipeline_calls(
    tmp_path: Path, kind: str, options: dict[str, str], offers: set[type]
) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t (id BIGINT)")
        source = open_source(lake, SourceDefinition(kind, options))
        assert isinstance(source, Source)
        assert not source.mode.bounded
        assert {each for each in OFFERED if isinstance(source, each)} == offers
        source.close()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "other": 2}', '{"format": 2}', "null"]
)
def test_what_was_not_kept_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        CommitInfo.from_json(text)


def test_modes_are_made_from_options_and_half_ones_are_refused() -> None:
    assert ReadMode.parse("Batch").bounded
    assert ReadMode.parse("snapshot", timestamp=NOW) == ReadMode.snapshot(timestamp=NOW)
    assert ReadMode.parse("incremental", version=3) == ReadMode.incremental(3)
    assert not ReadMode.parse("continuous", poll_interval=timedelta(seconds=10)).bounded
    for kind in ("snapshot", "incremental", "sometimes"):
        with pytest.raises(ConfigError):
            ReadMode.parse(kind)
    with pytest.raises(ConfigError):
        ReadMode.snapshot(1, NOW)
    with pytest.raises(ConfigError):
        ReadMode.continuous(timedelta(0))


_OPTIONS = {
    "delta": {"location": "t"},
    "hudi": {"location": "t"},
    "iceberg": {"catalog_uri": "https://c", "namespace": "n", "table_name": "t"},
    "nats": {"stream": "s", "subject": "s", "schema": "id BIGINT", "staging": "staging"},
}


@pytest.mark.parametrize(
    ("kind", "role", "options"),
    [
        ("delta", "sink", {"mode": "changes", "key": "id"}),
        ("hudi", "source", {"change_data_feed": "true", "mode": "continuous"}),
        ("hudi", "sink", {"mode": "changes", "key": "id"}),
        ("hudi", "sink", {"schema_evolution": "true"}),
        ("hudi", "sink", {"compaction": "true"}),
        ("iceberg", "sink", {"mode": "changes", "key": "id"}),
        ("iceberg", "sink", {"uniform_iceberg": "true"}),
        ("nats", "source", {"mode": "snapshot"}),
        ("nats", "source", {"mode": "incremental"}),
        ("nats", "source", {"change_data_feed": "true"}),
        ("nats", "source", {"aws_region": "eu"}),
        ("nats", "sink", {"mode": "overwrite"}),
        ("nats", "sink", {"mode": "upsert", "key": "id"}),
        ("nats", "sink", {"partition_by": "id"}),
        ("nats", "sink", {"schema_evolution": "true"}),
        ("nats", "sink", {"compaction": "true"}),
        *((kind, role, {}) for kind in ("files", "kafka", "pond", "spark") for role in ("source", "sink")),
    ],
)
def test_what_a_connector_lacks_is_refused(kind: str, role: str, options: dict[str, str]) -> None:
    place = dict(_OPTIONS.get(kind, {}))
    for other in ("schema",) if role == "sink" else ("subject", "staging"):
        place.pop(other, None)
    if place:
        connector(kind, role)(place)  # it is right without them
    with pytest.raises(ConfigError):
        connector(kind, role)({**place, **options})


def test_both_spellings_of_an_option_say_the_same() -> None:
    named = ConnectorOptions(
        "delta",
        {
            "location": "x",
            "target_file_size": "128MB",
            "poll_interval": "10 seconds",
            "partition_by": "a, bucket(4, b)",
        },
    )
    dotted = ConnectorOptions(
        "delta",
        {
            "table.path": "x",
            "target.file.size": 128000000,
            "poll.interval.ms": "10000",
            "Partition.Columns": ["a", "bucket(4, b)"],
        },
    )
    for options in (named, dotted):
        assert options.text("location") == "x"
        assert options.size("target_file_size", 1) == 128_000_000
        assert options.duration("poll_interval", timedelta()) == timedelta(seconds=10)
        assert options.names("partition_by") == ["a", "bucket(4, b)"]
        options.finish()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"locaton": "x"}, "did you mean"),
        ({"location": "x", "target_file_size": "128"}, "128 of what"),
        ({"location": "x", "poll_interval": "10"}, "poll_interval"),
        ({"location": "x", "table.path": "y"}, "the same option"),
        ({}, "needs location"),
        ({"location": "${env:QUACKLAKE_TEST_NOT_SET}"}, "QUACKLAKE_TEST_NOT_SET"),
        ({"location": "${file:/nowhere/at/all}"}, "cannot be read"),
        ({"location": "x", "mode": "upsrt"}, "upsert"),
        ({"location": "x", "schema_evolution": "perhaps"}, "true or false"),
    ],
)  # fmt: skip
def test_a_bad_option_is_said_in_a_sentence(given: dict[str, str], message: str) -> None:
    def ask() -> None:
        options = ConnectorOptions("delta", given)
        if "locaton" not in given:
            options.text("location")
        else:
            options.optional("location")
        options.size("target_file_size", 1)
        options.duration("poll_interval", timedelta(seconds=1))
        options.choice("mode", ("append", "upsert"), "append")
        options.boolean("schema_evolution", False)
        options.finish()

    with pytest.raises(ConfigError) as caught:
        ask()
    assert message in str(caught.value)


def test_secrets_come_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUACKLAKE_TEST_TOKEN", "t0ken")
    (tmp_path / "secret").write_text("s3cret\n")
    given = {"token": "${env:QUACKLAKE_TEST_TOKEN}", "storage.aws_secret": f"${{file:{tmp_path}/secret}}"}
    options = ConnectorOptions("nats", given)
    assert options.text("token") == "t0ken"
    assert options.storage() == {"aws_secret": "s3cret"}


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that adds the kinds ``parrot``, and ``broken``, which lacks what it needs."""
    (tmp_path / "parrot_lake.py").write_text("def source(options):\n    return ('parrot', dict(options))\n")
    (tmp_path / "broken_lake.py").write_text("import no_such_package_at_all\n")
    info = tmp_path / "parrot_lake-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot-lake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quacklake.connectors]\nparrot = parrot_lake\nbroken = broken_lake\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._foreign.cache_clear()
    yield
    registry._foreign.cache_clear()
    sys.modules.pop("parrot_lake", None)


@pytest.mark.usefixtures("parrot")
def test_an_installed_package_adds_a_kind() -> None:
    assert "parrot" in connectors()
    assert connector("parrot", "source")({"says": "hello"}) == ("parrot", {"says": "hello"})
    with pytest.raises(ConfigError, match="no sink"):
        connector("parrot", "sink")
    with pytest.raises(ConfigError, match="parrto") as caught:
        connector("parrto", "source")
    assert "parrot" in str(caught.value.hint)
    with pytest.raises(MissingExtraError, match="no_such_package_at_all") as missing:
        connector("broken", "source")
    assert missing.value.hint == "pip install no_such_package_at_all"
