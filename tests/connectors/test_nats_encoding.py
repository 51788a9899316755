"""Rows as messages of NATS: what is written is what the source reads back."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors.nats.decoding import Decoder
from quacklake.connectors.nats.encoding import Encoder, SubjectTemplate, encoded_rows
from quacklake.connectors.nats.protocol import StoredMessages
from quacklake.errors import ConfigError, InputError, SchemaMismatchError
from tests.seeds import SEED

SUBJECT = SubjectTemplate("orders")


def stored(messages: pa.Table) -> StoredMessages:
    bodies = messages.column("data").to_pylist()
    count = len(bodies)
    return StoredMessages.of([b"s"] * count, list(range(1, count + 1)), [0] * count, [b""] * count, bodies)


def there_and_back(form: str, rows: pa.Table, columns: str) -> list[dict[str, Any]]:
    decoded = Decoder(form, columns).decode(stored(Encoder(form, SUBJECT).messages(rows)))
    assert decoded.rejected.to_pylist() == []
    found: list[dict[str, Any]] = decoded.rows.select(rows.column_names).to_pylist()
    return found


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_rows_come_back_as_they_were(form: str) -> None:
    dice = random.Random(SEED)
    texts = ["a", 'q"x', "é", "a,b", "line\nbreak", "\r\n", " space ", "{}", "null", "'", "\\", "\t"]

    def row(number: int) -> dict[str, Any]:
        values = {
            "id": dice.randint(-(2**63), 2**63 - 1),
            "v": dice.choice(texts),
            "x": dice.choice([0.1, -1e300, 5e-324, math.inf, -math.inf, 1 / 3]),
            "f": dice.random() < 0.5,
            "d": dt.date(1900, 1, 1) + dt.timedelta(days=dice.randint(0, 99_999)),
            "t": dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=dice.randint(-(10**15), 10**16)),
            "n": dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=dice.randint(0, 10**16)),
            "m": Decimal(dice.randint(-(10**9), 10**9)) / 100,
            "l": [dice.randint(0, 9) for _ in range(dice.randint(0, 3))],
            "s": {"a": number, "b": dice.choice(texts), "c": 0.5},
        }
        return {key: None if dice.random() < 0.1 else value for key, value in values.items()}

    kinds = {
        "id": pa.int64(),
        "v": pa.string(),
        "x": pa.float64(),
        "f": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "m": pa.decimal128(18, 2),
        "l": pa.list_(pa.int64()),
        "s": pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())]),
    }
    columns = """id BIGINT, v VARCHAR, x DOUBLE, f BOOLEAN, d DATE, t TIMESTAMPTZ, n TIMESTAMP, m DECIMAL(18, 2),
        l BIGINT[], s STRUCT(a BIGINT, b VARCHAR, c DOUBLE)"""
    rows = pa.Table.from_pylist([row(number) for number in range(500)], pa.schema(list(kinds.items())))
    assert there_and_back(form, rows, columns) == rows.to_pylist()


def test_json_is_what_other_programs_expect() -> None:
    utc, local = pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Vienna")
    moment = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    inner = pa.struct([("t", utc), ("raw", pa.binary())])
    schema = pa.schema(
        [
            ("when", utc),
            ("local", local),
            ("nano", pa.timestamp("ns")),
            ("x", pa.float64()),
            ("raw", pa.binary()),
            ("none", pa.int32()),
            ("word", pa.dictionary(pa.int8(), pa.string())),
            ("nested", pa.list_(inner)),
            ("pairs", pa.map_(pa.string(), pa.int64())),
        ]
    )
    values = [moment, moment, moment.replace(tzinfo=None), math.nan, b"\x00\xff", None, "w"]
    given = dict(zip(schema.names, [*values, [{"t": moment, "raw": b"a"}, None], [("k", 1)]], strict=True))
    [body] = Encoder("json", SUBJECT).messages(pa.Table.from_pylist([given], schema)).column("data").to_pylist()
    assert json.loads(body) == {
        "when": "2024-01-01T12:00:00.000000Z",
        "local": "2024-01-01T12:00:00.000000Z",
        "nano": "2024-01-01T12:00:00.000000000",
        "x": "nan",
        "raw": "AP8=",
        "none": None,
        "word": "w",
        "nested": [{"t": "2024-01-01T12:00:00.000000Z", "raw": "YQ=="}, None],
        "pairs": {"k": 1},
    }


def test_a_csv_line_of_one_column_is_never_empty() -> None:
    rows = pa.table({"v": pa.array([None, "", "a", '"'])})
    bodies = Encoder("csv", SUBJECT).messages(rows).column("data").to_pylist()
    assert bodies == [b'""', b'""', b"a", b'""""']
    assert [row["v"] for row in there_and_back("csv", rows, "v VARCHAR")] == [None, None, "a", '"']


def test_arrow_messages_have_many_rows_of_one_subject_in_order_and_fit_the_limit() -> None:
    rows = pa.table({"id": range(3000), "k": [f"k{n % 2}" for n in range(3000)], "v": ["x" * 100] * 3000})
    messages = Encoder("arrow", SubjectTemplate("o.{k}"), largest=20_000).messages(rows)
    assert encoded_rows(messages) == 3000
    found: dict[str, list[int]] = {}
    for message in messages.to_pylist():
        assert len(message["data"]) <= 20_000
        table = pa.ipc.open_stream(message["data"]).read_all()
        assert table.num_rows == message["rows"]
        found.setdefault(message["subject"], []).extend(table.column("id").to_pylist())
    assert found == {"o.k0": list(range(0, 3000, 2)), "o.k1": list(range(1, 3000, 2))}
    single = Encoder("arrow", SUBJECT, "id").messages(rows.slice(0, 5))
    assert single.column("id").to_pylist() == ["0", "1", "2", "3", "4"]


def test_a_subject_is_filled_from_columns() -> None:
    rows = pa.table({"a": ["x", "y"], "n": [1, 2], "day": [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]})
    assert SubjectTemplate("o.{a}.{n}-{day}").fill(rows).to_pylist() == ["o.x.1-2024-01-01", "o.y.2-2024-01-02"]
    assert SubjectTemplate("o").fill(rows).to_pylist() == ["o", "o"]


@pytest.mark.parametrize("value", ["", " ", "a b", "a.b", "*", ">", "a\r\nPUB x 0", "\t", "\x00", None, "x" * 3000])
def test_a_value_that_is_no_token_is_refused(value: str | None) -> None:
    with pytest.raises(InputError, match="subject"):
        Encoder("json", SubjectTemplate("o.{v}")).messages(pa.table({"v": pa.array(["good", value], pa.string())}))


@pytest.mark.parametrize("value", ["", " a", "a\r\nX: y", None])
def test_a_value_that_is_no_id_is_refused(value: str | None) -> None:
    with pytest.raises(InputError, match="id of a message"):
        Encoder("json", SUBJECT, "v").messages(pa.table({"v": pa.array(["good", value], pa.string())}))


@pytest.mark.parametrize("text", ["", ".", "a..b", "a b", "a.*", "a.>", "{a", "a.{}", "a\r\n", "a.{b}."])
def test_a_template_that_can_be_no_subject_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="subject"):
        SubjectTemplate(text)


def test_rows_that_cannot_be_encoded_are_refused_before_any_is_written() -> None:
    with pytest.raises(SchemaMismatchError, match="'region'"):
        Encoder("json", SubjectTemplate("o.{region}")).check(pa.schema([("id", pa.int64())]))
    with pytest.raises(SchemaMismatchError, match="'key'"):
        Encoder("json", SUBJECT, "key").check(pa.schema([("id", pa.int64())]))
    with pytest.raises(SchemaMismatchError, match="'_data'"):
        Encoder("raw", SUBJECT).check(pa.schema([("id", pa.int64())]))
    with pytest.raises(SchemaMismatchError, match="one name"):
        Encoder("json", SUBJECT).check(pa.schema([("id", pa.int64()), ("id", pa.string())]))
    with pytest.raises(SchemaMismatchError, match="json cannot hold"):
        Encoder("json", SUBJECT).check(pa.schema([("id", pa.decimal256(60, 2))]))
    with pytest.raises(InputError, match="NULL"):
        Encoder("raw", SUBJECT).messages(pa.table({"_data": pa.array([b"a", None])}))
    with pytest.raises(InputError, match="larger"):
        Encoder("raw", SUBJECT, largest=10).messages(pa.table({"_data": [b"x" * 11]}))
