"""A first look at sources, sinks and pipelines, as an installed package shows them.

As in ``test_smoke.py``, nothing but the package and what it depends on is used. ``SMOKE_NATS_URL`` names a server with
JetStream, ``SMOKE_NATS_SEED`` the nkey with which it lets one in, and ``SMOKE_HUDI_TABLE`` a table that Hudi wrote.
"""

from __future__ import annotations

import importlib.util
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import errors
from quacklake.connectors import PreparedCommit, Sink, SourceCheckpoint, connector
from quacklake.pipelines import Pipeline

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string())])
PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg", "hudi": "hudi", "nats": "numpy"}


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def place(kind: str, folder: Path) -> dict[str, Any]:
    """Return the options that say where a table is."""
    if kind == "delta":
        return {"location": str(folder / "t")}
    catalog = {"catalog_type": "sql", "catalog_uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    return {**catalog, "namespace": "n", "table_name": "t"}


def commit(sink: Sink, number: int, *ids: int) -> PreparedCommit:
    sink.write_batch(pa.record_batch({"id": list(ids), "region": [f"r{n % 2}" for n in ids]}, schema=SCHEMA))
    prepared = PreparedCommit.from_json(sink.prepare_commit(number).to_json())
    sink.finalize_commit(prepared)
    return prepared


def ids(kind: str, options: dict[str, Any], checkpoint: SourceCheckpoint | None = None) -> list[int]:
    source = connector(kind, "source")(options)
    source.start(checkpoint)
    found = [number for batch in iter(source.poll_next, None) for number in batch.column("id").to_pylist()]
    source.close()
    return sorted(found)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_a_sink_writes_a_table_that_its_source_reads(kind: str, mode: str, tmp_path: Path) -> None:
    if not has(PACKAGES[kind]):
        pytest.skip(f"the extra {kind} is not installed")
    options = place(kind, tmp_path)
    sink = connector(kind, "sink")({**options, "mode": mode, "key": "id"})
    sink.initialize(SCHEMA)
    commit(sink, 0, 1, 2)
    prepared = commit(sink, 1, 2, 3)
    sink.finalize_commit(prepared)  # a repeat changes nothing
    assert ids(kind, options) == {"append": [1, 2, 2, 3], "overwrite": [2, 3], "upsert": [1, 2, 3]}[mode]
    assert sink.maintain().due
    sink.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_source_goes_on_behind_its_checkpoint(kind: str, tmp_path: Path) -> None:
    if not has(PACKAGES[kind]):
        pytest.skip(f"the extra {kind} is not installed")
    options = place(kind, tmp_path)
    sink = connector(kind, "sink")({**options, "partition_by": "region"})
    sink.initialize(SCHEMA)
    commit(sink, 0, 1, 2)
    follow = {**options, "mode": "continuous", "poll_interval": "1 ms"}
    source = connector(kind, "source")(follow)
    source.start()
    while source.poll_next() is not None:
        pass
    position = source.current_checkpoint()
    commit(sink, 1, 3)
    assert ids(kind, follow, SourceCheckpoint.from_json(position.to_json())) == [3]


@pytest.mark.skipif(not (has("deltalake") and has("pyiceberg")), reason="an extra is not installed")
def test_a_delta_table_is_an_iceberg_table_too(tmp_path: Path) -> None:
    from pyiceberg.table import StaticTable

    sink = connector("delta", "sink")(place("delta", tmp_path))
    sink.initialize(SCHEMA)
    commit(sink, 0, 1, 2)
    assert StaticTable.from_metadata(str(tmp_path / "t")).scan().count() == 2


@pytest.mark.skipif(not has("hudi") or "SMOKE_HUDI_TABLE" not in os.environ, reason="no table of Hudi was named")
def test_a_hudi_table_is_read(tmp_path: Path) -> None:
    assert len(ids("hudi", {"location": os.environ["SMOKE_HUDI_TABLE"]})) > 0


@pytest.mark.skipif("SMOKE_NATS_URL" not in os.environ, reason="no NATS server was named")
def test_a_pipeline_reads_and_writes_streams_of_nats(tmp_path: Path) -> None:
    from quacklake.connectors.nats.connection import NatsConnection
    from quacklake.connectors.nats.credentials import NatsCredentials

    seed = os.environ.get("SMOKE_NATS_SEED") if has("nkeys") else None
    server, name = os.environ["SMOKE_NATS_URL"], f"s{uuid.uuid4().hex}"
    with NatsConnection(server, NatsCredentials(nkey_seed=seed)) as nats:
        for stream in (name, f"{name}out"):
            nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
        bodies = [b'{"id": 1}', b"no JSON", b'{"id": 2}']
        assert nats.publish([(f"{name}.x", body, None) for body in bodies]) == 3
        keys = {"nkey_seed": seed} if seed else {}
        with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
            given = {
                "pipeline": "p",
                "source": {"type": "nats", "servers": server, "stream": name, "schema": "id BIGINT", **keys},
                "query": "SELECT id FROM source",
                "sinks": [
                    {"type": "lake", "table": "t"},
                    {"type": "nats", "servers": server, "stream": f"{name}out", "subject": f"{name}out.x", **keys},
                ],
                "dead_letters": "bad",
            }
            for count in (2, 0):
                assert Pipeline(lake, given).run(until_caught_up=True).rows == count
            assert lake.sql("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,)]
            assert lake.sql("SELECT _data FROM bad").fetchall() == [(b"no JSON",)]
        [part] = nats.read_range(f"{name}out", 1, 100)
        assert part.data.to_pylist() == [b'{"id":1}', b'{"id":2}']


@pytest.mark.parametrize(("kind", "package"), PACKAGES.items())
def test_a_missing_extra_of_a_connector_is_one_sentence(kind: str, package: str) -> None:
    if has(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(errors.MissingExtraError) as raised:
        connector(kind, "source")
    assert f"quacklake[{kind}]" in str(raised.value.hint)
