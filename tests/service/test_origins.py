"""From a row to its message: exact where it is told, and hidden from those who may not know."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.lake import Lake
from quacklake.pipelines.definitions import Definitions
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from services import NatsServer
from tests.seeds import SEED
from tests.service.serving import Served, client, is_problem, served


@dataclass
class Rows:
    """A lake with rows of a pipeline, and the messages that they come from, by their ids."""

    served: Served
    lake: Lake
    nats: NatsConnection
    stream: str
    bodies: dict[int, bytes]
    server: str

    def run(self, name: str = "orders") -> None:
        Definitions(self.lake).pipeline(name).run(until_caught_up=True)

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.bodies[number] = json.dumps({"id": number, "secret": f"s{number}"}).encode()
        self.nats.publish([(f"{self.stream}.a", self.bodies[number], {"Trace": str(number)}) for number in numbers])


def definition(server: str, stream: str, **options: Any) -> dict[str, Any]:
    return {
        "pipeline": "orders",
        "source": {"type": "nats", "servers": server, "stream": stream, "subject": f"{stream}.a", "schema": "id BIGINT"},
        "query": "SELECT id, _sequence FROM source",
        "sinks": [{"type": "lake", "table": "orders"}],
        "dead_letters": "letters",
        **options,
    }  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, nats_server: NatsServer) -> Iterator[Rows]:
    folder: Path = tmp_path_factory.mktemp("origins")
    lake = quacklake.connect(f"sqlite:///{folder}/lake.db", folder / "data", create=True)
    stream = f"o{secrets.token_hex(6)}"
    dice = random.Random(SEED)
    with NatsConnection(nats_server.url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
        Definitions(lake).apply(definition(nats_server.url, stream))
        with served(lake) as found:
            made = Rows(found, lake, nats, stream, {}, nats_server.url)
            number = 0
            for _ in range(4):
                some = dice.randint(1, 9)
                made.publish(*range(number, number + some))
                nats.publish([(f"{stream}.b", b"other", None)] * dice.randint(0, 3))
                number += some
                made.run()
            nats.publish([(f"{stream}.a", b"bad", None)])
            made.run()
            yield made


def origin(client: httpx.Client, table: str, row: int, **params: Any) -> dict[str, Any]:
    answer = client.get(f"/api/v1/tables/{table}/rows/{row}/origin", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_every_row_leads_to_the_message_that_it_was_made_of(rows: Rows) -> None:
    known = rows.lake.sql("SELECT rowid, snapshot_id, id, _sequence FROM orders").fetchall()
    assert len(known) == len(rows.bodies) > 3
    for row, snapshot, id_, sequence in known:
        found = origin(rows.served.admin, "orders", row)
        assert (found["made_in"], found["sequence"], found["why"]) == (snapshot, sequence, None)
        assert found["message"]["body"] == {
            "text": rows.bodies[id_].decode(),
            "size": len(rows.bodies[id_]),
            "cut": False,
        }
        assert found["message"]["subject"] == f"{rows.stream}.a" and f"Trace: {id_}" in found["message"]["headers"]
        assert found["batch"]["first"] <= sequence <= found["batch"]["last"]
        assert (found["batch"]["pipeline"], found["batch"]["stream"]) == ("orders", rows.stream)
        assert found["commit"]["author"] == "pipeline orders"


def test_a_compaction_does_not_change_where_rows_come_from(rows: Rows) -> None:
    before = [origin(rows.served.reader, "orders", row) for row in range(3)]
    files = rows.lake.table("orders").files().num_rows
    rows.lake.table("orders").flush_inlined_data()
    assert rows.lake.table("orders").files().num_rows > files == 0, "the rows were in the catalog, and are in files now"
    assert [origin(rows.served.reader, "orders", row) for row in range(3)] == before


def test_a_dead_letter_leads_to_its_message_too(rows: Rows) -> None:
    [(row,)] = rows.lake.sql("SELECT rowid FROM letters").fetchall()
    assert origin(rows.served.admin, "letters", row)["message"]["body"]["text"] == "bad"


def test_messages_are_for_administrators(rows: Rows) -> None:
    for client_ in (rows.served.reader, rows.served.writer):
        found = origin(client_, "orders", 0)
        assert found["message"] is None and found["why"] == "messages are for administrators"
        assert found["sequence"] is not None and "s0" not in json.dumps(found)


def test_rows_that_others_made_and_rows_of_the_past_say_so(rows: Rows) -> None:
    before = rows.lake.current_snapshot()
    rows.lake.signed("A correction", "mia").sql("UPDATE orders SET id = id + 1000 WHERE rowid = 0")
    try:
        now, then = (origin(rows.served.admin, "orders", 0, **at) for at in ({}, {"version": before}))
        assert now["commit"]["author"] == "mia" and now["why"] == "the commit was not made by a pipeline"
        assert (now["batch"], now["sequence"], now["message"]) == (None, None, None)
        assert then["message"]["body"]["text"] == rows.bodies[0].decode()
    finally:
        rows.lake.rollback(before)


def test_what_cannot_be_told_exactly_is_a_range(rows: Rows, tmp_path: Path) -> None:
    other = {**definition(rows.server, rows.stream), "pipeline": "plain", "query": "SELECT id AS _sequence FROM source"}
    Definitions(rows.lake).apply({**other, "sinks": [{"type": "lake", "table": "plain"}]})
    rows.run("plain")
    found = origin(rows.served.admin, "plain", 0)
    assert (found["sequence"], found["message"], found["why"]) == (None, None, "the row does not have its sequence")
    assert found["batch"]["first"] == 1 and found["batch"]["last"] >= len(rows.bodies)
    rows.publish(5000)
    rows.run("plain")
    single = rows.lake.sql("SELECT rowid FROM plain WHERE _sequence = 5000").fetchall()[0][0]
    assert origin(rows.served.admin, "plain", single)["message"]["body"]["text"] == rows.bodies[5000].decode()
    rows.run()


def test_a_message_that_is_gone_is_missed_with_the_reason(rows: Rows) -> None:
    rows.publish(6000, 6001)
    rows.run()
    [(row, sequence)] = rows.lake.sql("SELECT rowid, _sequence FROM orders WHERE id = 6000").fetchall()
    assert origin(rows.served.admin, "orders", row)["message"] is not None
    rows.nats.jetstream(f"STREAM.MSG.DELETE.{rows.stream}", {"seq": sequence})
    found = origin(rows.served.admin, "orders", row)
    assert (found["sequence"], found["message"]) == (sequence, None) and "not in the stream" in found["why"]
    definitions = Definitions(rows.lake)
    kept = definitions.options("pipeline", "orders")
    definitions.put(
        "pipeline", "orders", {**kept, "source": {**kept["source"], "servers": "nats://127.0.0.1:1"}}, replace=True
    )
    assert "cannot be read: connector.unavailable" in origin(rows.served.admin, "orders", row)["why"]
    definitions.put("pipeline", "orders", {**kept, "source": {**kept["source"], "stream": "other"}}, replace=True)
    assert "another stream" in origin(rows.served.admin, "orders", row)["why"]
    definitions.drop("pipeline", "orders")
    assert "not in the lake any more" in origin(rows.served.admin, "orders", row)["why"]
    definitions.put("pipeline", "orders", kept)


def test_wrong_rows_tables_and_numbers_are_refused(rows: Rows) -> None:
    get = rows.served.admin.get
    is_problem(get("/api/v1/tables/orders/rows/999999/origin"), 404, "not_found")
    is_problem(get("/api/v1/tables/nothing/rows/0/origin"), 404, "not_found")
    for wrong in ("-1", "x", "1.5", str(2**63), "1%20OR%201=1"):
        assert get(f"/api/v1/tables/orders/rows/{wrong}/origin").status_code in (400, 422), wrong
    rows.lake.sql("CREATE TABLE own (rowid BIGINT)")
    rows.lake.sql("INSERT INTO own VALUES (0)")
    is_problem(get("/api/v1/tables/own/rows/0/origin"), 400, "input")
    is_problem(get("/api/v1/tables/own/rows", params={"row_ids": True}), 400, "input")
    page = get("/api/v1/tables/orders/rows", params={"row_ids": True, "limit": 3, "columns": "id"}).json()
    assert [row["rowid"] for row in page["rows"]] == [0, 1, 2]


@pytest.mark.parametrize(
    "extra",
    [
        '{"quacklake_pipeline": {"pipeline": "orders", "checkpoint": 0, "stream": "S", "created": "x", "first": 1, "last": 1}}',
        '{"quacklake_pipeline": {"pipeline": "../../x", "checkpoint": -1, "stream": "*", "created": "", "first": -5, "last": 9e9}}',
    ],
)
def test_a_commit_that_claims_to_be_of_a_pipeline_shows_no_message_of_another_stream(rows: Rows, extra: str) -> None:
    if "forged" not in rows.lake.tables("main") and "main.forged" not in rows.lake.tables():
        rows.lake.sql("CREATE TABLE forged (id BIGINT, _sequence BIGINT)")
    row = rows.lake.sql("SELECT count(*) FROM forged").fetchall()[0][0]
    extra = extra.replace('"S"', json.dumps(rows.stream))
    rows.lake.signed("forged", "eve", extra).sql("INSERT INTO forged VALUES (1, 1)")
    found = origin(rows.served.admin, "forged", row)
    assert found["message"] is None and found["why"], "the stream was made at another time"


# -- principals ----------------------------------------------------------------------------------------------------


def test_a_hidden_row_is_not_there_and_a_restricted_reader_learns_the_snapshot_only(tmp_path: Path) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    lake.signed("CANARY", "CANARY", "CANARY").sql("CREATE TABLE t AS SELECT i AS id FROM range(4) r(i)")
    lake.access.create_user("ann")
    lake.access.create_user("root", ["admin"])
    lake.access.grant("SELECT", "ann", table="t")
    lake.access.create_policy("even", "t", "id % 2 = 0")
    tokens = {name: lake.access.tokens.create(name) for name in ("ann", "root")}
    settings = ServiceSettings(port=0)
    with BackgroundService(create_app(AccessGate(lake), settings), settings) as url:
        with client(url, tokens["ann"]) as ann:
            for row in range(4):
                answer = ann.get(f"/api/v1/tables/t/rows/{row}/origin")
                assert "CANARY" not in answer.text
                if row % 2:
                    is_problem(answer, 404, "not_found")
                else:
                    assert answer.json()["made_in"] == 1 and set(answer.json()["commit"]) == {
                        "snapshot_id",
                        "snapshot_time",
                    }
            missing = ann.get("/api/v1/tables/t/rows/77/origin").json()
            hidden = ann.get("/api/v1/tables/t/rows/1/origin").json()
            assert {**missing, "detail": "", "request_id": ""} == {**hidden, "detail": "", "request_id": ""}
        with client(url, tokens["root"]) as root:
            assert origin(root, "t", 1)["commit"]["author"] == "CANARY"
