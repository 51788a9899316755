"""Small requests take a shorter way: what comes out is the same as by the longer one."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import random
import string
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.core.duckdb_versions import arrow_table, connect
from quacklake.core.format.schema import Column, TableSchema
from quacklake.service import encoding
from quacklake.service.bodies import joined, plain_rows, rows_of
from quacklake.service.encoding import JSON, NDJSON, Rows, encoded
from quacklake.service.json_rows import few_objects
from quacklake.service.sessions import SafeSessions
from quacklake.service.settings import ServiceSettings
from tests.seeds import SEED
from tests.service.serving import Served, sample_lake

SETTINGS = ServiceSettings()
UTC = dt.UTC


def _text(dice: random.Random) -> str:
    return "".join(dice.choice(string.printable + 'äß€😀\x00\x1f\\"/') for _ in range(dice.randrange(9)))


VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), lambda dice: dice.randrange(-(2**63), 2**63)),
    (pa.uint64(), lambda dice: dice.randrange(2**64)),
    (pa.int8(), lambda dice: dice.randrange(-128, 128)),
    (pa.bool_(), lambda dice: dice.random() < 0.5),
    (pa.float64(), lambda dice: dice.choice([math.nan, math.inf, -math.inf, -0.0, 1e300, 5e-324, dice.gauss(0, 1e9)])),
    (pa.float32(), lambda dice: dice.choice([math.nan, math.inf, 0.5, 3.0, -1.0])),
    (pa.string(), _text),
    (pa.large_string(), _text),
    (pa.binary(), lambda dice: dice.randbytes(dice.randrange(5))),
    (pa.decimal128(38, 9), lambda dice: decimal.Decimal(dice.randrange(-(10**30), 10**30)).scaleb(-9)),
    (pa.decimal128(5, 0), lambda dice: decimal.Decimal(dice.randrange(-9999, 9999))),
    (pa.date32(), lambda dice: dt.date.fromordinal(dice.randrange(1, dt.date.max.toordinal()))),
    (pa.timestamp("us"), lambda dice: dt.datetime(dice.randrange(1, 9999), 2, 3, 4, 5, 6, dice.choice([0, 5, 500_000]))),
    (pa.timestamp("ms"), lambda dice: dt.datetime(2024, 2, 3, 4, 5, 6, dice.choice([0, 1_000, 120_000]))),
    (pa.timestamp("s"), lambda dice: dt.datetime(dice.randrange(1, 9999), 2, 3, 4, 5, 6)),
    (pa.timestamp("us", "UTC"), lambda dice: dt.datetime(1999, 12, 31, 23, 59, 59, dice.randrange(10**6), UTC)),
    (pa.timestamp("us", "Europe/Berlin"), lambda dice: dt.datetime(2024, 10, 27, dice.randrange(24), 30, tzinfo=UTC)),
]  # fmt: skip


def _by_duckdb(batch: pa.RecordBatch, names: list[str]) -> list[Any]:
    asked = encoding._DuckDBEncoder(batch.schema, names, "\n")
    try:
        return [json.loads(line) for line in asked.text(batch).split("\n")]
    finally:
        asked.close()


def test_a_few_rows_read_as_those_that_duckdb_writes() -> None:
    dice = random.Random(SEED)
    for _ in range(12):
        rows = dice.randrange(1, 6)
        names = [f'{"äé"[dice.randrange(2)]} "{number}' for number in range(len(VALUES))]
        columns = [
            pa.array([None if dice.random() < 0.2 else make(dice) for _ in range(rows)], type_)
            for type_, make in VALUES
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        found = few_objects(batch, names)
        assert found is not None
        assert [json.loads(text) for text in found] == _by_duckdb(batch, names)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'infinity'::TIMESTAMP", "SELECT '-infinity'::DATE", "SELECT DATE '0044-03-15 (BC)'",
        "SELECT TIMESTAMP_NS '2024-01-01 00:00:00.123456789'", "SELECT DATE '12024-01-01'", "SELECT [1]", "SELECT {'a': 1}",
        "SELECT TIME '24:00:00'", "SELECT 'x' FROM range(2001)",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_duckdb(sql: str) -> None:
    batch = arrow_table(connect(), sql).combine_chunks().to_batches()[0]
    assert few_objects(batch, ["x"]) is None
    [answer] = [json.loads(b"".join(encoded(Rows(batch.schema, [batch]), JSON)))]
    assert answer["row_count"] == batch.num_rows == len(answer["rows"])


def test_a_small_answer_has_a_length_and_holds_no_session(service: Served) -> None:
    answer = service.reader.post("/api/v1/sql", json={"sql": "SELECT 1 AS x"})
    assert answer.headers["content-length"] == str(len(answer.content))
    plain = {"Accept-Encoding": "identity"}
    sql = "SELECT repeat('x', 1000) AS x FROM range(1000)"
    large = service.reader.post("/api/v1/sql", json={"sql": sql}, headers=plain)
    assert large.headers["transfer-encoding"] == "chunked"
    assert len(large.json()["rows"]) == 1000
    assert service.reader.get("/api/v1/sql").json() == {"statements": []}


def test_a_session_that_was_given_back_is_not_interrupted_for_the_one_who_had_it(tmp_path: Path) -> None:
    with sample_lake(tmp_path) as lake:
        sessions = SafeSessions(SETTINGS)
        first = sessions.lend(lake, writes=False)
        first.give_back()
        second = sessions.lend(lake, writes=False)
        assert second.session is first.session
        rows = second.session.sql("SELECT sum(a.id) FROM t a, t b, t c")
        working = threading.Event()

        def disturb() -> None:
            while not working.is_set():
                assert not first.interrupt()

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            assert rows.fetchall() == [(sum(range(90)) * 90 * 90,)]
        finally:
            working.set()
            thread.join()
            second.give_back()
            sessions.close()


SCHEMA = TableSchema((
    Column(1, "id", "int64"), Column(2, "name", "varchar"), Column(3, "share", "float64"), Column(4, "day", "date"),
    Column(5, "is_new", "boolean"),
))  # fmt: skip


def _value(dice: random.Random, column: str) -> Any:
    odd = [None, 1, 1.5, "7", True, "x", 2**70, [1], {"a": 1}, "\ud800", "2024-02-30"]
    good = {"id": 5, "name": _text(dice), "share": dice.random(), "day": "2024-02-29", "is_new": False}[column]
    return good if dice.random() < 0.97 else dice.choice(odd)


def _body(dice: random.Random) -> tuple[bytes, str]:
    names = dice.choice([["id", "name"], ["id", "name", "share", "day", "is_new"], ["name"], ["ID"], ["other"], []])
    rows = [
        {name: _value(dice, name.lower() if name != "other" else "id") for name in dice.sample(names, len(names))}
        for _ in range(dice.randrange(4))
    ]
    if dice.random() < 0.1:
        rows.append({"id": 1})
    if dice.random() < 0.3:
        return "\n".join(json.dumps(row) for row in rows).encode(), NDJSON
    return (json.dumps(rows) if dice.random() < 0.95 else json.dumps(rows)[:-1]).encode(), JSON


def test_rows_of_many_bodies_together_are_those_of_each() -> None:
    dice = random.Random(SEED)
    together = 0
    for _ in range(300):
        groups: dict[tuple[str, ...], list[tuple[Any, tuple[bytes, str]]]] = {}
        for body in [_body(dice) for _ in range(dice.randrange(1, 8))]:
            plain = plain_rows(*body, SCHEMA, SETTINGS)
            if plain is not None:
                groups.setdefault(plain.names, []).append((plain, body))
        for members in groups.values():
            found = joined([plain for plain, _ in members], SCHEMA, SETTINGS)
            if found is not None:
                each = [rows_of(*body, SCHEMA, SETTINGS) for _, body in members]
                assert found.equals(pa.concat_tables([table.select(found.column_names) for table in each]))
                assert [table.num_rows for table in each] == [len(plain.rows) for plain, _ in members]
                together += len(members) > 1
    assert together > 20
