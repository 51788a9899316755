"""Appends and merges over HTTP: typed, once for each key, many in one snapshot, and each answered for itself."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from quacklake.core import faults
from quacklake.core.faults import Fault
from quacklake.errors import AlreadyExistsError
from quacklake.service.appends import Append
from quacklake.service.encoding import ARROW, CSV, JSON, NDJSON, PARQUET
from quacklake.service.idempotency import key_of
from quacklake.service.problems import TooBusyError
from tests.seeds import SEED
from tests.service.serving import Served, away, is_problem, sample_lake, served

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(sample_lake(tmp_path_factory.mktemp("writes")), max_body=200_000, max_body_rows=10_000) as found:
        found.lake.create_table(
            "typed", {"i": "INTEGER", "d": "DECIMAL(10,2)", "ts": "TIMESTAMP", "day": "DATE", "f": "DOUBLE", "ok": "BOOLEAN",
                      "l": "INTEGER[]", "s": "STRUCT(a INTEGER)", "b": "BLOB"}
        )  # fmt: skip
        found.lake.create_table("keyed", {"id": "BIGINT", "v": "VARCHAR"}, primary_key="id")
        yield found


@pytest.fixture
def table(service: Served) -> Iterator[str]:
    service.lake.create_table("w", {"id": "BIGINT", "name": "VARCHAR"})
    yield "w"
    service.lake.drop_table("w")


def append(
    service: Served, table: str, content: bytes, type_: str = JSON, key: str | None = None, **more: str
) -> httpx.Response:
    headers = {"Content-Type": type_, **({} if key is None else {"Idempotency-Key": key}), **more}
    return service.writer.post(f"/api/v1/tables/{table}/rows", content=content, headers=headers)


def _stream(rows: pa.Table, file: bool = False) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


BODIES = {
    JSON: json.dumps(ROWS.to_pylist()).encode(),
    NDJSON: b'{"id": 1, "name": "a"}\n{"id": 2}\n',
    CSV: b"id,name\n1,a\n2,\n",
    ARROW: _stream(ROWS),
    "application/vnd.apache.arrow.file": _stream(ROWS, file=True),
    PARQUET: _parquet(ROWS),
}


@pytest.mark.parametrize("type_", BODIES)
def test_rows_come_in_every_format(service: Served, table: str, type_: str) -> None:
    answer = append(service, table, BODIES[type_], type_)
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"rows": 2, "snapshot": service.lake.current_snapshot(), "repeated": False}
    assert service.lake.table(table).to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("type_", BODIES)
def test_compressed_bodies_are_unpacked(service: Served, table: str, type_: str) -> None:
    packed = {"gzip": gzip.compress(BODIES[type_]), "zstd": zstandard.compress(BODIES[type_])}
    for encoding, body in packed.items():
        assert append(service, table, body, type_, **{"Content-Encoding": encoding}).json()["rows"] == 2
    assert service.lake.table(table).count() == 4


def test_json_gets_the_types_of_the_table(service: Served) -> None:
    rows = [
        {
            "i": 1,
            "d": "1.10",
            "ts": "2024-01-02T03:04:05",
            "day": "2024-01-02",
            "f": 1,
            "ok": True,
            "l": [1, None],
            "s": {"a": 1},
        },
        {"i": None, "d": 2.5, "ts": None, "day": None, "f": 1.5, "ok": None},
        {"i": 3},
    ]
    assert append(service, "typed", json.dumps(rows).encode()).status_code == 201
    found = service.rows("SELECT * FROM typed ORDER BY i NULLS LAST")
    assert found[0] == {"i": 1, "d": "1.10", "ts": "2024-01-02T03:04:05", "day": "2024-01-02", "f": 1.0, "ok": True,
                        "l": [1, None], "s": {"a": 1}, "b": None}  # fmt: skip
    assert [row["d"] for row in found] == ["1.10", None, "2.50"]


BAD = [
    (JSON, b"", 400), (JSON, b"[1]", 400), (JSON, b'"x"', 400), (JSON, b'[{"id": "x"}]', 400), (JSON, b"\xff", 400),
    (JSON, b'[{"id": 1, "more": 1}]', 422), (JSON, b"[" * 100_000, 400), (JSON, b'[{"id": 1e30}]', 400), (NDJSON, b"{", 400),
    (CSV, b"id,name\n1,a,b\n", 400), (CSV, b"id,other\n1,a\n", 422), (ARROW, b"ARROW", 400), (ARROW, b"", 400),
    (ARROW, BODIES[ARROW][:-100], 400), (PARQUET, b"PAR1", 400), (PARQUET, BODIES[PARQUET][:-9], 400),
    ("application/vnd.apache.arrow.file", b"ARROW1\0\0", 400), ("image/png", b"x", 422),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "body", "status"), BAD)
def test_broken_bodies_are_refused_and_change_nothing(
    service: Served, table: str, type_: str, body: bytes, status: int
) -> None:
    before = service.lake.current_snapshot()
    answer = append(service, table, body, type_)
    assert answer.status_code in (status, 400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "/tmp" not in answer.text and "/dev/shm" not in answer.text and service.lake.data_path not in answer.text
    assert service.lake.current_snapshot() == before


def test_bombs_are_refused(service: Served, table: str) -> None:
    zeros = b" " * 50_000_000
    for encoding, body in (("gzip", gzip.compress(zeros)), ("zstd", zstandard.compress(zeros))):
        is_problem(append(service, table, body, JSON, **{"Content-Encoding": encoding}), 413, "limit.result")
    many = _parquet(pa.table({"id": pa.nulls(1_000_000, pa.int64()), "name": pa.nulls(1_000_000, pa.string())}))
    assert len(many) < 200_000
    is_problem(append(service, table, many, PARQUET), 413, "limit.result")
    for encoding in ("gzip", "zstd"):
        assert append(service, table, b"x", JSON, **{"Content-Encoding": encoding}).status_code == 400
    cut = gzip.compress(BODIES[JSON])[:-5]
    assert append(service, table, cut, JSON, **{"Content-Encoding": "gzip"}).status_code == 400
    assert append(service, table, b"x", JSON, **{"Content-Encoding": "br"}).status_code == 422
    assert service.lake.table(table).count() == 0


@pytest.mark.parametrize("name", ["missing", "main.missing", "other.t", "%22", "a.b.c.d", "t;drop", "x" * 599])
def test_a_table_that_is_not_there_takes_nothing(service: Served, name: str) -> None:
    answer = append(service, name, BODIES[JSON])
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"] == "application/problem+json"


def test_only_writers_append(service: Served, table: str) -> None:
    is_problem(service.reader.post(f"/api/v1/tables/{table}/rows", json=[{"id": 1}]), 403, "not_permitted")
    is_problem(service.anonymous.post(f"/api/v1/tables/{table}/rows", json=[{"id": 1}]), 401, "unauthenticated")
    is_problem(service.reader.post(f"/api/v1/tables/{table}/merge", json=[{"id": 1}]), 403, "not_permitted")
    assert service.lake.table(table).count() == 0


def test_a_retry_adds_nothing_and_gets_the_same_answer(service: Served, table: str) -> None:
    first = append(service, table, BODIES[JSON], key="k1").json()
    append(service, table, b'[{"id": 9}]')
    again = append(service, table, BODIES[JSON], key="k1").json()
    assert again == {**first, "repeated": True}
    is_problem(append(service, table, b'[{"id": 3}]', key="k1"), 409, "already_exists")
    other = service.admin.post(f"/api/v1/tables/{table}/rows", json=[{"id": 4}], headers={"Idempotency-Key": "k1"})
    assert other.status_code == 201, "keys of two principals never meet"
    assert service.lake.table(table).count() == 4
    assert "request" not in str(service.lake.streams.list().to_pylist())


def test_a_retry_may_write_the_same_rows_in_another_way(service: Served, table: str) -> None:
    first = append(service, table, b'[{"id": 1, "name": "a"}, {"id": 2, "name": null}]', key="again").json()
    for body in (
        b'[ {"name":"a", "id":1},{"id":2,"name":null} ]',
        b'[{"id": 1, "name": "\\u0061"}, {"id": 2, "name": null}]',
    ):
        assert append(service, table, body, key="again").json() == {**first, "repeated": True}
    assert append(service, table, b"id,name\n1,a\n2,\n", CSV, key="again").json() == {**first, "repeated": True}
    told = is_problem(
        append(service, table, b'[{"id": 1, "name": "b"}, {"id": 2}]', key="again"), 409, "already_exists"
    )
    assert "rows were not the same" in told["detail"] and told["hint"]
    is_problem(append(service, table, b"id,name\n1,a\n", CSV, key="again"), 409, "already_exists")
    assert service.lake.table(table).count() == 2


def test_a_request_in_another_format_does_not_follow_one_that_is_not_counted_yet() -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()

        def made(body: bytes, format: str) -> Append:
            key = key_of("k", "ann", "append", "t", format=format, body=body)
            return Append("t", body, format, key, loop.create_future())

        first = made(b'[{"id": 1}]', JSON)
        made(b'[ {"id": 1} ]', JSON).follow(first)
        with pytest.raises(TooBusyError):
            made(b"id\n1\n2\n", CSV).follow(first)
        with pytest.raises(AlreadyExistsError):
            made(b'[{"id": 2}]', JSON).follow(first)

    asyncio.run(ask())


def test_a_refused_request_uses_up_no_key(service: Served, table: str) -> None:
    assert append(service, table, b'[{"id": "x"}]', key="k2").status_code == 400
    assert append(service, table, BODIES[JSON], key="k2").json()["repeated"] is False


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_is_short_and_not_empty(service: Served, table: str, key: str) -> None:
    is_problem(append(service, table, BODIES[JSON], key=key), 400, "input")


def test_old_keys_are_forgotten(service: Served, table: str) -> None:
    append(service, table, BODIES[JSON], key="k3")
    assert service.lake.streams.forget_done(before=0) == 0
    assert service.lake.streams.forget_done(before=2**40) >= 1
    assert append(service, table, BODIES[JSON], key="k3").json()["repeated"] is False


def test_appends_that_come_at_once_share_snapshots_and_bad_ones_fail_alone(service: Served, table: str) -> None:
    before = service.lake.current_snapshot()

    def send(number: int) -> tuple[int, httpx.Response]:
        bad = number % 5 == 0
        rows = [{"id": "x"}] if bad else [{"id": number * 10 + each, "name": "n"} for each in range(number % 7)]
        where = "nowhere" if number % 11 == 0 else table
        return number, service.writer.post(f"/api/v1/tables/{where}/rows", json=rows)

    with ThreadPoolExecutor(16) as pool:
        answers = dict(pool.map(send, range(80)))
    stored = {row["id"] for row in service.lake.table(table).to_pylist()}
    wanted: set[int] = set()
    for number, answer in answers.items():
        if number % 11 == 0:
            assert answer.status_code == 404
        elif number % 5 == 0:
            assert answer.status_code == 400
        else:
            assert answer.json()["rows"] == number % 7, answer.text
            mine = {number * 10 + each for each in range(number % 7)}
            if number < 10:
                at = service.lake.at(version=answer.json()["snapshot"]).table(table)
                assert mine <= {row["id"] for row in at.to_pylist()}, "the told snapshot has the rows"
            wanted |= mine
    assert stored == wanted
    assert service.lake.table(table).count() == len(wanted)
    assert service.lake.current_snapshot() - before < 60, "appends joined"


def test_the_same_request_from_many_at_once_is_done_once(service: Served, table: str) -> None:
    def send(_: int) -> dict[str, Any]:
        key = {"Idempotency-Key": "same"}
        found: dict[str, Any] = service.writer.post(
            f"/api/v1/tables/{table}/rows", json=[{"id": 1}], headers=key
        ).json()
        return found

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(24)))
    assert service.lake.table(table).count() == 1
    assert len({answer["snapshot"] for answer in answers}) == 1
    assert sum(not answer["repeated"] for answer in answers) == 1


def test_an_append_that_dies_at_any_point_is_in_the_lake_once_after_a_retry(service: Served, table: str) -> None:
    with faults.record() as points:
        append(service, table, BODIES[JSON], key="whole")
    assert len(points) > 5
    dice = random.Random(SEED)
    for number, at in enumerate(sorted(dice.sample(range(1, len(points) + 1), min(12, len(points)))), 1):
        with faults.arm(Fault(at=at)):
            first = append(service, table, BODIES[JSON], key=f"died {at}")
        again = append(service, table, BODIES[JSON], key=f"died {at}")
        assert again.status_code == 201, (points[at - 1], again.text)
        assert first.status_code in (201, 500, 503)
        assert service.lake.table(table).count() == 2 + 2 * number, points[at - 1]


def test_merge_updates_and_inserts_once(service: Served) -> None:
    def merge(rows: list[dict[str, Any]], key: str | None = None, **params: str) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return service.writer.post("/api/v1/tables/keyed/merge", json=rows, headers=headers, params=params)

    assert merge([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]).json()["inserted"] == 2
    answer = merge([{"id": 2, "v": "c"}, {"id": 3, "v": "d"}], "m1").json()
    assert (answer["inserted"], answer["updated"], answer["repeated"]) == (1, 1, False)
    merge([{"id": 2, "v": "later"}])
    assert merge([{"id": 2, "v": "c"}, {"id": 3, "v": "d"}], "m1").json() == {**answer, "repeated": True}
    assert merge([{"id": 3, "v": "e"}], on="id").json()["updated"] == 1
    assert service.rows("SELECT * FROM keyed ORDER BY id") == [
        {"id": 1, "v": "a"}, {"id": 2, "v": "later"}, {"id": 3, "v": "e"},
    ]  # fmt: skip
    is_problem(merge([{"id": 1, "v": "x"}, {"id": 1, "v": "y"}]), 422, "input.constraint")
    assert merge([{"id": 1}], on="nothing").status_code in (400, 404, 422)


def test_random_appends_with_retries_equal_a_model(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    model: list[int] = []
    with served(sample_lake(tmp_path)) as found:
        found.lake.create_table("w", {"id": "BIGINT", "name": "VARCHAR"})
        sent: dict[str, tuple[bytes, list[int]]] = {}
        for number in range(40):
            if sent and dice.random() < 0.4:
                key = dice.choice(list(sent))
                assert append(found, "w", sent[key][0], key=key).json()["repeated"] is True
                continue
            ids = [dice.randrange(1000) for _ in range(dice.randrange(15))]
            body = json.dumps([{"id": id_} for id_ in ids]).encode()
            assert append(found, "w", body, key=f"r{number}").json()["rows"] == len(ids)
            sent[f"r{number}"] = body, ids
            model += ids
        assert sorted(row["id"] for row in found.lake.table("w").to_pylist()) == sorted(model)
        assert found.lake.verify().ok


def test_two_services_on_postgres_do_a_request_once_also_while_it_goes_away(tmp_path: Path, postgres_url: str) -> None:
    import quacklake

    lake = sample_lake(tmp_path, postgres_url)
    lake.create_table("w", {"id": "BIGINT", "name": "VARCHAR"})
    other = quacklake.connect(postgres_url)
    with served(lake) as one, served(other) as two:

        def send(number: int) -> list[int]:
            statuses = []
            for _ in range(8):
                place = one if number % 2 else two
                number += 1
                key, rows = {"Idempotency-Key": f"p{number // 4}"}, [{"id": number // 4}]
                statuses.append(place.writer.post("/api/v1/tables/w/rows", json=rows, headers=key).status_code)
            return statuses

        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(send, start * 4) for start in range(4)]
            with away(postgres_url):
                pass
            statuses = [status for each in waiting for status in each.result()]
        assert set(statuses) <= {201, 429, 503}, statuses
        for number in range(0, 24, 4):
            for place in (one, two):
                key, rows = {"Idempotency-Key": f"p{number // 4}"}, [{"id": number // 4}]
                answer = place.writer.post("/api/v1/tables/w/rows", json=rows, headers=key)
                assert answer.status_code == 201, answer.text
        assert sorted(row["id"] for row in lake.table("w").to_pylist()) == list(range(6))
