"""Appends through Flight: all of an upload or nothing, and with a key exactly once."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.service.flight.conftest import ADMIN, OTHER, READER, WRITER, Served, path

SCHEMA = pa.schema([("i", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], SCHEMA)


@pytest.fixture
def table(served: Served) -> str:
    name = f"t{uuid.uuid4().hex}"
    served.lake.create_table(name, SCHEMA)
    return name


def held(served: Served, table: str) -> list[int]:
    return sorted(served.lake.table(table).to_arrow()["i"].to_pylist())


def test_an_append_is_one_snapshot_of_its_author(served: Served, table: str) -> None:
    before = served.lake.current_snapshot()
    assert served.put(table, [batch(1, 2), batch(3)]) == {"rows": 3, "snapshot": before + 1, "repeated": False}
    assert held(served, table) == [1, 2, 3]
    author = served.lake.snapshots().to_pylist()[-1]["author"]
    assert author.startswith("token-") and WRITER not in author


@pytest.mark.parametrize("way", ["header", "metadata"])
def test_a_repeat_with_the_same_key_adds_nothing_and_gets_the_same_answer(served: Served, table: str, way: str) -> None:
    more: dict[str, Any] = {"metadata": b"k-1"} if way == "metadata" else {"x_quacklake_idempotency_key": "k-2"}
    first = served.put(table, [batch(1), batch(2)], **more)
    snapshot = served.lake.current_snapshot()
    assert first == {"rows": 2, "snapshot": snapshot, "repeated": False}
    assert served.put(table, [batch(1), batch(2)], **more) == {**first, "repeated": True}
    assert served.put(table, [batch(1, 2)], **more) == {**first, "repeated": True}, "batches are not what is asked"
    with pytest.raises(pa.ArrowInvalid, match="already_exists"):
        served.put(table, [batch(1)], **more)
    assert served.lake.current_snapshot() == snapshot and held(served, table) == [1, 2]
    served.put(table, [batch(1)], ADMIN, **more)  # the keys of another principal are others
    assert held(served, table) == [1, 1, 2]


def test_a_key_belongs_to_one_table(served: Served, table: str) -> None:
    served.put(table, [batch(1)], x_quacklake_idempotency_key="k-3")
    served.lake.create_table(f"{table}_2", SCHEMA)
    with pytest.raises(pa.ArrowInvalid, match="already_exists"):
        served.put(f"{table}_2", [batch(1)], x_quacklake_idempotency_key="k-3")
    assert held(served, f"{table}_2") == []


def test_many_clients_with_one_key_add_its_rows_once(served: Served, table: str) -> None:
    answers: list[dict[str, Any]] = []

    def put() -> None:
        answers.append(served.put(table, [batch(1, 2)], x_quacklake_idempotency_key="k-4"))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(served, table) == [1, 2]
    assert [answer["repeated"] for answer in answers].count(False) == 1
    assert {(answer["rows"], answer["snapshot"]) for answer in answers} == {(2, served.lake.current_snapshot())}


def test_rows_that_do_not_fit_change_nothing(served: Served, table: str) -> None:
    before = served.lake.current_snapshot()
    wrong = pa.record_batch({"other": ["x"]})
    for more in ({}, {"x_quacklake_idempotency_key": "k-5"}):
        with pytest.raises(pa.ArrowInvalid, match=r"input\.schema_mismatch"):
            served.put(table, [wrong], **more)
    assert served.lake.current_snapshot() == before
    assert served.put(table, [batch(1)], x_quacklake_idempotency_key="k-5")["rows"] == 1
    with pytest.raises(pa.ArrowKeyError, match="not_found"):
        served.put("nowhere", [batch(1)])


def test_an_empty_append_is_acknowledged(served: Served, table: str) -> None:
    assert served.put(table, [], schema=SCHEMA)["rows"] == 0
    assert served.put(table, [], schema=SCHEMA, x_quacklake_idempotency_key="k-6")["rows"] == 0
    assert held(served, table) == []


@pytest.mark.parametrize("token", [READER, OTHER])
def test_a_reader_appends_nothing(served: Served, table: str, token: str) -> None:
    with pytest.raises(flight.FlightUnauthorizedError, match="role writer"):
        served.put(table, [batch(1)], token)
    assert held(served, table) == []


def test_a_key_that_is_too_long_or_no_text_is_refused(served: Served, table: str) -> None:
    for more in ({"metadata": b"\xff"}, {"metadata": b"k" * 513}):
        with pytest.raises(pa.ArrowInvalid, match="key"):
            served.put(table, [batch(1)], **more)
    assert held(served, table) == []


def test_an_upload_that_its_client_gives_up_leaves_nothing(served: Served, table: str) -> None:
    with served.client() as client:
        call = flight.FlightCallOptions(timeout=0.5, headers=[(b"authorization", f"Bearer {WRITER}".encode())])
        writer, reader = client.do_put(path("main", table), SCHEMA, options=call)
        writer.write_batch(batch(1, 2, 3))
        assert reader.read() is None  # the server waits for more rows until the deadline of the client
        with pytest.raises(flight.FlightTimedOutError):
            writer.close()
    assert served.put(table, [batch(9)])["rows"] == 1
    assert held(served, table) == [9]
