"""Iceberg tables in catalogs that are servers, REST and Hive: pipelines write and read them, and others see the same."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from quacklake.connectors import PreparedCommit, connector
from quacklake.errors import ConnectorUnavailableError
from quacklake.faults import Fault, FaultInjected, arm
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


def test_a_server_that_dies_is_an_error_that_a_retry_may_help(server: Server, place: dict[str, Any]) -> None:
    """The last test: nobody can use the server behind it."""
    sink = connector("iceberg", "sink")(place)
    rows = numbers(0, 3)
    sink.initialize(rows.schema)
    sink.write_batch(rows.to_batches()[0])
    prepared = sink.prepare_commit(0)
    server.kill()
    with pytest.raises(ConnectorUnavailableError):
        sink.finalize_commit(prepared)
    server.revive()
    sink.finalize_commit(prepared)
    assert ids(foreign(place)) == [0, 1, 2]


def pairs(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(table.column("id").to_pylist(), table.column("part").to_pylist(), strict=True))
