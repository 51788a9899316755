"""Columns that are inferred from the first messages of a stream."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import SourceCheckpoint
from quacklake.connectors.nats import NatsSource
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.decoding import Decoder
from quacklake.connectors.nats.inference import infer_columns
from quacklake.connectors.nats.protocol import StoredMessages
from quacklake.errors import ConfigError, InputError, SchemaMismatchError
from services import NatsServer


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


@pytest.fixture
def stream(nats: NatsConnection) -> str:
    name = f"s{secrets.token_hex(6)}"
    nats.jetstream(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    return name


def publish(nats: NatsConnection, stream: str, *rows: dict[str, Any]) -> None:
    nats.publish([(f"{stream}.a", json.dumps(row).encode(), None) for row in rows])


def sampling(server: NatsServer, stream: str, **options: Any) -> NatsSource:
    return NatsSource({"servers": server.url, "stream": stream, "sample": 1000, "mode": "batch", **options})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -1, None], "BIGINT"),
        ([1, 2**63], "UBIGINT"),
        ([-1, 2**63], "VARCHAR"),
        ([1, 1.5], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        (["a", ""], "VARCHAR"),
        ([1, "a"], "VARCHAR"),
        ([None], "VARCHAR"),
        (["2024-01-01", "2024-02-29"], "DATE"),
        (["2024-01-01", "2024-02-30"], "VARCHAR"),
        (["2024-01-01T10:00:00", "2024-01-01 10:00:00.5"], "TIMESTAMP"),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00.123+02:00"], "TIMESTAMPTZ"),
        (["2024-01-01T10:00:00Z", "noon"], "VARCHAR"),
        (["12"], "VARCHAR"),
        ([[1, 2], []], "BIGINT[]"),
        ([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], 'STRUCT("x" BIGINT, "y" VARCHAR)'),
        ([{"x": 1}, {"y": 2}], "VARCHAR"),
        ([[{"x": 1.5}]], 'STRUCT("x" DOUBLE)[]'),
        ([[1, "a"]], "VARCHAR"),
        ([{}], "VARCHAR"),
    ],
)
def test_a_json_type_is_taken_when_every_value_is_one(values: list[Any], kind: str) -> None:
    bodies = [json.dumps({"v": value}).encode() for value in values]
    columns = infer_columns("json", bodies)
    assert columns == f'"v" {kind}'
    count = len(bodies)
    messages = StoredMessages.of([b"s"] * count, list(range(1, count + 1)), [0] * count, [b""] * count, bodies)
    decoded = Decoder("json", columns).decode(messages)
    assert decoded.rejected.to_pylist() == []
    missing = [row["v"] is None for row in decoded.rows.to_pylist()]
    assert missing == [value is None for value in values]


def test_keys_of_any_name_become_columns() -> None:
    row = {'q"x': 1, "a/b": 2, "c~d": 3, "select": 4, "e'f": 5, "_time": 6}
    bodies = [json.dumps(row).encode(), b'{"late": 1}']
    columns = infer_columns("json", bodies)
    assert columns is not None
    messages = StoredMessages.of([b"s"] * 2, [1, 2], [0, 0], [b"", b""], bodies)
    rows = Decoder("json", columns).decode(messages).rows.to_pylist()
    assert [rows[0][name] for name in row if name != "_time"] == [1, 2, 3, 4, 5]
    assert (rows[1]["late"], rows[1]["select"]) == (1, None)


def test_csv_columns_are_numbered_and_bad_lines_do_not_count() -> None:
    bodies = [b"1,a,1.5,true,2024-01-01,007", b"-2,,2,false,,1", b"no row", b"\xff", b'3,"x, y",1e3,true,2024-01-02,2']
    kinds = ["BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN", "DATE", "VARCHAR"]
    assert infer_columns("csv", bodies) == ", ".join(f'"column{n}" {kind}' for n, kind in enumerate(kinds))
    assert infer_columns("csv", [b"99999999999999999999"]) == '"column0" DOUBLE'


@pytest.mark.parametrize("bodies", [[], [b"no json"], [b"[1]", b"5", b"\xff"], [b"{}"]])
def test_messages_without_columns_give_none(bodies: list[bytes]) -> None:
    assert infer_columns("json", bodies) is None


def test_a_source_infers_its_columns_once_and_leaves_out_later_keys(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    publish(nats, stream, {"id": 1, "name": "a"}, {"id": 2})
    source = sampling(nats_server, stream)
    assert source.schema().names[:2] == ["id", "name"]
    assert source.schema().types[:2] == [pa.int64(), pa.string()]
    source.start()
    first = source.poll_next()
    assert first is not None
    assert first.column("id").to_pylist() == [1, 2]
    checkpoint = SourceCheckpoint.from_json(source.current_checkpoint().to_json())
    source.close()
    publish(nats, stream, {"id": 3, "name": "c", "later": True})
    nats.jetstream(f"STREAM.PURGE.{stream}", {"seq": 3})
    again = sampling(nats_server, stream)
    again.start(checkpoint)  # the first messages are gone; the checkpoint has the columns
    rows = again.poll_next()
    assert rows is not None
    assert (rows.schema, rows.column("name").to_pylist()) == (source.schema(), ["c"])
    asked = sampling(nats_server, stream)
    assert "later" in asked.schema().names
    with pytest.raises(SchemaMismatchError, match="other columns"):
        asked.start(checkpoint)


def test_only_the_first_messages_of_the_subjects_are_looked_at(
    nats: NatsConnection, nats_server: NatsServer, stream: str
) -> None:
    nats.publish([(f"{stream}.b", b'{"other": 1}', None), (f"{stream}.a", b'{"id": 1}', None)])
    publish(nats, stream, {"id": 1, "second": 2}, {"id": 1, "third": 3})
    source = NatsSource({"servers": nats_server.url, "stream": stream, "infer": "2", "subject": f"{stream}.a"})
    assert source.schema().names[:-4] == ["id", "second"]


def test_a_stream_without_messages_has_no_columns(nats: NatsConnection, nats_server: NatsServer, stream: str) -> None:
    with pytest.raises(InputError, match="no message"):
        sampling(nats_server, stream).start()
    nats.publish([(f"{stream}.a", b"not json", None)])
    with pytest.raises(InputError, match="none of the first 1 messages"):
        sampling(nats_server, stream).schema()


@pytest.mark.parametrize("options", [{"schema": "id BIGINT"}, {"format": "raw"}, {"format": "arrow"}, {"sample": 0}])
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        NatsSource({"stream": "any", "sample": 10, **options})
