"""The lake of a service has the methods of a lake, and its errors."""

from __future__ import annotations

import datetime as dt
import socket
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pytest

import quacklake
from quacklake.client import RemoteLake
from quacklake.errors import (
    ConnectorUnavailableError,
    ConstraintError,
    InputError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    ReadOnlyError,
    SchemaMismatchError,
    SqlError,
    UnauthenticatedError,
)
from tests.lake.random_frames import KEY, compare, make_frame
from tests.seeds import LONG, chance
from tests.service.serving import Served, sample_lake, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = sample_lake(tmp_path_factory.mktemp("client"))
    lake.create_schema("s")
    lake.create_table('s."odd.name"', {"id": "BIGINT", "v": "VARCHAR"}, primary_key="id")
    lake.create_table("w", {"id": "BIGINT", "name": "VARCHAR"})
    with served(lake) as found:
        yield found


@pytest.fixture(scope="module")
def lake(service: Served) -> Iterator[RemoteLake]:
    with quacklake.connect(service.url, token="writer-token") as found:
        assert isinstance(found, RemoteLake)
        yield found


def test_reading_is_the_same_as_in_the_process(service: Served, lake: RemoteLake) -> None:
    local, remote = service.lake.table("t"), lake.table("t")
    assert remote.to_arrow().sort_by("id") == local.to_arrow().sort_by("id")
    assert remote.schema == local.schema
    assert remote.count() == local.count() == 90
    assert remote.count("id > 80") == local.count("id > 80")
    assert remote.to_pylist(["name"], "id = 3") == local.to_pylist(["name"], "id = 3")
    assert remote.head(3).num_rows == 3
    assert sum(batch.num_rows for batch in remote.to_batches()) == 90
    assert remote.to_pandas(where="id < 2").shape == (2, 2)
    assert remote.to_polars(where="id < 2").shape == (2, 2)


@dataclass
class Sold:
    id: int
    v: str | None = None


def test_dataclasses_go_to_a_service_and_come_back(service: Served, lake: RemoteLake) -> None:
    """P54."""
    service.lake.create_table("sold", Sold, primary_key="id")
    table = lake.table("sold")
    assert table.append([Sold(1, "a"), Sold(2)]) == 2
    assert table.merge(iter([Sold(2, "b"), Sold(3, "c")])).updated == 1
    assert sorted(table.rows(Sold), key=lambda row: row.id) == [Sold(1, "a"), Sold(2, "b"), Sold(3, "c")]
    assert list(table.rows(Sold, "id = 3")) == [Sold(3, "c")]
    assert list(lake.sql("SELECT id FROM sold WHERE id = 1").rows(Sold)) == [Sold(1)]
    with pytest.raises(SchemaMismatchError, match=r'"Sold\.v" holds int, not str'):
        table.append([Sold(4, 4)])  # type: ignore[arg-type]


def test_names_are_the_same(service: Served, lake: RemoteLake) -> None:
    assert (lake.schemas(), lake.tables(), lake.tables("s")) == (
        service.lake.schemas(),
        service.lake.tables(),
        service.lake.tables("s"),
    )
    assert list(lake) == lake.tables() and lake.views() == []
    assert "t" in lake and "no" not in lake and 3 not in lake
    assert lake["t"].columns == ["id", "name"]
    with pytest.raises(NotFoundError):
        lake["no"]


def test_sql_with_parameters_of_all_kinds(service: Served, lake: RemoteLake) -> None:
    assert lake.sql("SELECT name FROM t WHERE id = ?", [4]).fetchall() == [("n4",)]
    assert lake.sql("SELECT $a + 1 AS x", {"a": 1}).to_arrow().to_pydict() == {"x": [2]}
    when = dt.datetime(2024, 1, 2, 3, 4, 5)
    assert lake.sql("SELECT ?::TIMESTAMP AS t, ?::DATE AS d", (when, when.date())).fetchone() == (when, when.date())
    assert lake.sql("INSERT INTO w VALUES (7, 'x')") is not None
    assert service.lake.table("w").count("id = 7") == 1


def test_the_past_is_read_only(service: Served, lake: RemoteLake) -> None:
    past = lake.at(version=2)
    assert past.table("t").count() == 100 and past.snapshot_id == 2
    assert past.sql("SELECT count(*) FROM t").fetchone() == (100,)
    assert lake.at(timestamp=dt.datetime(2999, 1, 1)).table("t").count() == 90
    assert past.tables() == ["main.t"]
    with pytest.raises(ReadOnlyError):
        past.table("t").append([{"id": 1}])
    with pytest.raises(NotFoundError):
        lake.at(version=999)
    with pytest.raises(InputError):
        lake.at()
    service.lake.tag("full", 2)
    assert [each.snapshot_id for each in (lake.at(tag="full"), lake.at(version="full"), lake.at("full"))] == [2, 2, 2]
    with pytest.raises(NotFoundError, match='no tag "empty"'):
        lake.at(tag="empty")


def test_rows_of_any_kind_are_appended_and_merged(service: Served, lake: RemoteLake) -> None:
    import pandas

    table = lake.table('s."odd.name"')
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    assert table.append(rows) == 2
    assert table.append([{"id": 3, "v": "c"}]) == 1
    assert table.append(pandas.DataFrame({"id": [4], "v": ["d"]})) == 1
    merged = table.merge([{"id": 4, "v": "D"}, {"id": 5, "v": "e"}])
    assert (merged.inserted, merged.updated) == (1, 1)
    assert table.merge(pa.table({"id": [5], "v": ["E"]}), on="id").updated == 1
    wanted = [{"id": number, "v": v} for number, v in enumerate("abcDE", 1)]
    assert sorted(service.lake.table('s."odd.name"').to_pylist(), key=lambda row: row["id"]) == wanted
    with pytest.raises(InputError):
        table.append("file.csv")


def test_history_and_changes(service: Served, lake: RemoteLake) -> None:
    assert lake.current_snapshot() == service.lake.current_snapshot()
    assert (
        lake.snapshots().column("snapshot_id").to_pylist() == service.lake.snapshots().column("snapshot_id").to_pylist()
    )
    assert lake.table("t").changes(3, 3).to_arrow().num_rows == 10
    assert lake.table("t").history()[-1]["snapshot_id"] == 1


def test_errors_are_those_of_a_lake(service: Served, lake: RemoteLake) -> None:
    failures: list[tuple[type[QuacklakeError], str, object]] = [
        (SqlError, "SELECT nothing FROM t", None),
        (NotPermittedError, "DROP TABLE t", None),
        (ConstraintError, "SELECT 'x'::INTEGER", None),
    ]
    for kind, text, params in failures:
        with pytest.raises(kind):
            lake.sql(text, params)  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatchError):
        lake.table("t").append([{"nope": 1}])
    with pytest.raises(NotFoundError) as raised:
        lake.table("main.tt").append([{"id": 1}])
    assert raised.value.hint
    for token in (None, "wrong"):
        with pytest.raises(UnauthenticatedError):
            quacklake.connect(service.url, token=token)
    with quacklake.connect(service.url, token="reader-token") as reader, pytest.raises(NotPermittedError):
        reader.table("w").append([{"id": 1}])


def test_a_service_that_is_not_there_is_an_error_that_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectorUnavailableError):
        quacklake.connect(f"http://127.0.0.1:{port}", token="x", retries=0)


def test_an_answer_that_breaks_off_is_an_error_and_not_fewer_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(sample_lake(tmp_path_factory.mktemp("broken")), max_rows=20_000) as found:
        with quacklake.connect(found.url, token="reader-token") as lake, pytest.raises(QuacklakeError):
            lake.sql("SELECT * FROM range(1000000)").to_arrow()


def test_an_index_of_pandas_is_sent_as_columns(service: Served, lake: RemoteLake) -> None:
    totals = pd.DataFrame({"region": ["a", "b", "a"], "qty": [1, 2, 3]}).groupby("region").sum()
    service.lake.create_table("totals", totals, primary_key="region")
    assert lake.table("totals").merge(totals * 2).updated == 2
    assert lake.table("totals").to_pylist(["qty"], "region = 'a'") == [{"qty": 8}]
    service.lake.create_table("w2", {"qty": "BIGINT"})
    assert lake.table("w2").append(totals, index=False) == 2
    with pytest.raises(SchemaMismatchError, match="region"):
        lake.table("w2").append(totals)
    with pytest.raises(InputError, match="path"):
        lake.table("w2").append("totals.parquet")


def test_random_frames_arrive_as_in_the_process(service: Served, lake: RemoteLake) -> None:
    random, sent = chance("random frames of a client"), 0
    while sent < (100 if LONG else 10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas and polars, about what these frames are made of
            frame = make_frame(random)
        if frame.refused or frame.either:
            continue
        table = service.lake.create_table("sent", frame.data, replace=True, **frame.options)
        assert lake.table("sent").merge(frame.data, on=KEY, **frame.options).updated == frame.rows
        table.delete()
        assert lake.table("sent").append(frame.data, **frame.options) == frame.rows
        compare(table, frame)
        sent += 1
