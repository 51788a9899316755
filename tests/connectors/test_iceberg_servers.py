"""Iceberg tables in catalogs that are servers, REST and Hive (L24): pipelines write and read them, and others, too."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from quacklake.connectors import PreparedCommit, SourceCheckpoint, connector
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    ConnectorUnavailableError,
    NotFoundError,
    SchemaMismatchError,
    Transient,
)
from quacklake.pipelines import Pipeline
from services import HiveServer, IcebergRestServer, Server, Unavailable
from tests.connectors.sinks import numbers
from tests.pipelines.tables import connect, end_lease

THRIFT = Path(__file__).resolve().parents[2] / ".venv" / "thrift"
"""The client of Hive, apart from the other packages: most people do not have it."""
KINDS: dict[str, Callable[[], HiveServer | IcebergRestServer]] = {"rest": IcebergRestServer, "hive": HiveServer}


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The catalog. It is skipped, also where a missing server fails, without its jars, which come from Maven."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "hive":
            patch.setattr(sys, "path", [*sys.path, str(THRIFT)])
            if util.find_spec("thrift") is None:
                pytest.skip("the package thrift is not installed: `make test-jars` gets it")
        try:
            with KINDS[request.param]() as started:
                yield started
        except Unavailable as error:
            pytest.skip(str(error))


@pytest.fixture
def place(server: HiveServer | IcebergRestServer, tmp_path: Path) -> dict[str, Any]:
    """The options of a new table."""
    kind = "hive" if isinstance(server, HiveServer) else "rest"
    found = {"catalog_type": kind, "catalog_uri": server.url, "warehouse": server.warehouse}
    return {**found, "namespace": f"n_{tmp_path.name.strip('_').replace('-', '_')}", "table_name": "t"}


def foreign(place: dict[str, Any]) -> Any:
    """Return the table as the library finds it by itself."""
    kind, uri = place["catalog_type"], place["catalog_uri"]
    catalog = load_catalog("other", type=kind, uri=uri, warehouse=place["warehouse"])
    return catalog.load_table((place["namespace"], place["table_name"]))


def ids(table: Any) -> list[int]:
    found: list[int] = sorted(table.scan().to_arrow().column("id").to_pylist())
    return found


def test_a_commit_is_made_once_and_read_by_others(place: dict[str, Any]) -> None:
    sink = connector("iceberg", "sink")({**place, "partition_by": "part"})
    rows = numbers(0, 10)
    sink.initialize(rows.schema)
    sink.write_batch(rows.to_batches()[0])
    kept = sink.prepare_commit(0).to_json()
    assert ids(foreign(place)) == []
    for _ in range(2):  # whoever asks, and however often
        connector("iceberg", "sink")(place).finalize_commit(PreparedCommit.from_json(kept))
    assert (ids(foreign(place)), len(foreign(place).snapshots())) == (list(range(10)), 1)
    foreign(place).append(numbers(10, 15))
    source = connector("iceberg", "source")({**place, "mode": "batch"})
    source.start()
    found = pa.Table.from_batches(list(iter(source.poll_next, None)))
    assert sorted(found.column("id").to_pylist()) == list(range(15))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_pipeline_goes_on_after_faults(place: dict[str, Any], tmp_path: Path, mode: str) -> None:
    key = {"mode": mode, "key": "id"} if mode == "upsert" else {}
    given = {
        "pipeline": "p",
        "source": {"type": "lake", "table": "orders"},
        "sinks": [{"type": "iceberg", **place, **key}, {"type": "lake", "table": "copied", **key}],
        "lease": "5 minutes",
    }
    with connect(tmp_path) as lake:
        lake.create_table("orders", numbers(0, 1).schema)
        points = ("pipeline.confirm.before", "pipeline.confirm.after", "connector.iceberg.commit.after", "")
        for number, point in enumerate(points):
            lake.table("orders").append(numbers(number * 5, number * 5 + 5))
            if point:
                with arm(Fault(pattern=point)), pytest.raises(FaultInjected):
                    Pipeline(lake, given).run(until_caught_up=True)
                end_lease(lake)
            Pipeline(lake, given).run(until_caught_up=True)
            seen = foreign(place).scan().to_arrow().select(["id", "part"])
            assert pairs(seen) == pairs(lake.table("copied").to_arrow()) == pairs(numbers(0, number * 5 + 5)), point


def test_a_pipeline_reads_what_others_write(place: dict[str, Any], tmp_path: Path) -> None:
    kind, uri = place["catalog_type"], place["catalog_uri"]
    catalog = load_catalog("other", type=kind, uri=uri, warehouse=place["warehouse"])
    catalog.create_namespace(place["namespace"])
    catalog.create_table((place["namespace"], "t"), numbers(0, 1).schema)
    given = {
        "pipeline": "p",
        "source": {"type": "iceberg", **place},
        "sinks": [{"type": "lake", "table": "copied"}],
    }
    with connect(tmp_path) as lake:
        for number in range(2):
            foreign(place).append(numbers(number * 5, number * 5 + 5))
            assert Pipeline(lake, given).run(until_caught_up=True).rows == 5
        assert pairs(lake.table("copied").to_arrow()) == pairs(numbers(0, 10))


def test_partitions_and_new_columns_are_those_that_others_see(place: dict[str, Any]) -> None:
    first = pa.schema([("id", pa.int32()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    place = {**place, "hive.hive2-compatible": True} if place["catalog_type"] == "hive" else place
    options = {**place, "partition_by": "bucket(4, id), truncate(2, name), days(at)", "schema_evolution": True}
    sink = connector("iceberg", "sink")(options)
    sink.initialize(first)
    day = datetime(2024, 1, 1, tzinfo=UTC)
    sink.write_batch(pa.record_batch([[1], ["north"], [day]], schema=first))
    sink.finalize_commit(sink.prepare_commit(0))
    wider = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", first.field("at").type), ("n", pa.int64())])
    sink.write_batch(pa.record_batch([[2**40], ["south"], [day], [7]], schema=wider))
    sink.finalize_commit(sink.prepare_commit(1))
    table = foreign(place)
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]", "truncate[2]", "day"]
    assert table.scan().to_arrow().sort_by("id").select(["id", "name", "n"]).to_pylist() == [
        {"id": 1, "name": "north", "n": None},
        {"id": 2**40, "name": "south", "n": 7},
    ]
    assert table.scan(row_filter="at < '2024-01-01T00:00:00+00:00'").to_arrow().num_rows == 0
    with pytest.raises(ConfigError, match="other partitions"):
        connector("iceberg", "sink")({**place, "partition_by": "id"}).initialize(wider)
    with pytest.raises(SchemaMismatchError, match='"n"'):
        connector("iceberg", "sink")(place).initialize(wider.set(3, pa.field("n", pa.string())))


def test_tables_of_one_name_in_two_namespaces_are_two(place: dict[str, Any]) -> None:
    other = {**place, "namespace": [f"{place['namespace']}_b"]}  # a list of names, as options may have it
    for number, one in enumerate((place, other)):
        sink = connector("iceberg", "sink")(one)
        sink.initialize(numbers(0, 1).schema)
        sink.write_batch(numbers(number * 10, number * 10 + 2).to_batches()[0])
        sink.finalize_commit(sink.prepare_commit(0))
    assert ids(foreign(place)) == [0, 1] and ids(foreign({**other, "namespace": other["namespace"][0]})) == [10, 11]
    for lacking in ({"namespace": "nowhere"}, {"table_name": "nothing"}):
        with pytest.raises(NotFoundError, match="there is no Iceberg table"):
            connector("iceberg", "source")({**place, **lacking}).start()


def test_a_nested_namespace_is_for_catalogs_that_have_it(place: dict[str, Any]) -> None:
    options = {**place, "namespace": f"{place['namespace']}.eu"}
    if place["catalog_type"] == "hive":
        with pytest.raises(ConfigError, match="one level"):
            connector("iceberg", "sink")(options)
        return
    catalog = load_catalog("other", type="rest", uri=place["catalog_uri"], warehouse=place["warehouse"])
    catalog.create_namespace(place["namespace"])
    connector("iceberg", "sink")(options).initialize(numbers(0, 1).schema)
    assert catalog.list_tables((place["namespace"], "eu")) == [(place["namespace"], "eu", "t")]


def test_what_the_metastore_refuses_is_a_lasting_error(place: dict[str, Any]) -> None:
    if place["catalog_type"] != "hive":
        pytest.skip("a REST catalog takes any name and type")
    zoned = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    sink = connector("iceberg", "sink")(place)
    sink.initialize(zoned)
    with pytest.raises(ConnectorError) as refused:
        sink.finalize_commit(sink.prepare_commit(0))
    assert "hive.hive2-compatible" in (refused.value.hint or "")
    for odd in ({"namespace": "no such-name"}, {"table_name": "no such-name"}):
        with pytest.raises(ConnectorError, match="no such-name") as caught:
            connector("iceberg", "sink")({**place, **odd}).initialize(numbers(0, 1).schema)
        assert not isinstance(caught.value, Transient)


def test_a_source_reads_at_a_snapshot_after_one_and_as_they_come(place: dict[str, Any]) -> None:
    sink = connector("iceberg", "sink")({**place, "mode": "upsert", "key": "id"})
    sink.initialize(numbers(0, 1).schema)
    versions = []
    for number in range(2):
        sink.write_batch(numbers(number * 5, number * 5 + 5).to_batches()[0])
        versions.append(sink.finalize_commit(sink.prepare_commit(number)).version)
    assert versions == [snapshot.snapshot_id for snapshot in foreign(place).snapshots()]

    def read(**options: Any) -> Any:
        source = connector("iceberg", "source")({**place, "poll_interval": "1 millisecond", **options})
        source.start()
        return source, sorted(row["id"] for batch in iter(source.poll_next, None) for row in batch.to_pylist())

    assert read(mode="snapshot", version=versions[0])[1] == list(range(5))
    assert read(mode="incremental", version=versions[0])[1] == list(range(5, 10))
    going_on, seen = read(mode="continuous")
    assert seen == list(range(10))
    kept = SourceCheckpoint.from_json(going_on.current_checkpoint().to_json())
    foreign(place).append(numbers(10, 12))
    later = connector("iceberg", "source")({**place, "mode": "continuous", "poll_interval": "1 millisecond"})
    later.start(kept)
    assert sorted(row["id"] for batch in iter(later.poll_next, None) for row in batch.to_pylist()) == [10, 11]
    foreign(place).delete("id = 0")
    feed, _ = read(mode="incremental", version=versions[1], change_data_feed=True)
    feed.start()
    changes = [(row["_change_type"], row["id"]) for batch in iter(feed.poll_next, None) for row in batch.to_pylist()]
    assert sorted(changes) == [("delete", 0), ("insert", 10), ("insert", 11)]


def test_a_server_that_dies_is_an_error_that_a_retry_may_help(server: Server, place: dict[str, Any]) -> None:
    """The last test: nobody can use the server behind it."""
    sink = connector("iceberg", "sink")(place)
    rows = numbers(0, 3)
    sink.initialize(rows.schema)
    sink.write_batch(rows.to_batches()[0])
    prepared = sink.prepare_commit(0)
    server.kill()
    with pytest.raises(ConnectorUnavailableError) as caught:
        sink.finalize_commit(prepared)
    assert "catalog_uri" in (caught.value.hint or "")
    server.revive()
    sink.finalize_commit(prepared)
    assert ids(foreign(place)) == [0, 1, 2]


def pairs(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(table.column("id").to_pylist(), table.column("part").to_pylist(), strict=True))
