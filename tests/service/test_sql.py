"""SQL over HTTP: the same rows as in the process, in every format, within the limits, until it is cancelled."""

from __future__ import annotations

import io
import math
import random
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import httpx
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from quacklake.service.encoding import ARROW, CSV, FORMATS, JSON, NDJSON, PARQUET, chosen
from tests.seeds import SEED
from tests.service.serving import Served, client, is_problem, sample_lake, served

SLOW = "SELECT sum(a.id * b.id * c.id * d.id * e.id) FROM t a, t b, t c, t d, t e"


def test_parameters_by_position_and_by_name(service: Served) -> None:
    assert service.rows("SELECT name FROM t WHERE id = ?", [7]) == [{"name": "n7"}]
    assert service.rows("SELECT name FROM t WHERE id = $id", {"id": 8}) == [{"name": "n8"}]
    assert service.rows("SELECT ? AS x", ["'; DROP TABLE t; --"]) == [{"x": "'; DROP TABLE t; --"}]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_the_same_rows(service: Served, format: str) -> None:
    answer = service.reader.post(
        "/api/v1/sql", json={"sql": "SELECT id, name FROM t ORDER BY id"}, headers={"Accept": format}
    )
    assert answer.headers["content-type"].partition(";")[0] == format
    wanted = [{"id": number, "name": f"n{number}"} for number in range(90)]
    read = {
        JSON: lambda data: httpx.Response(200, content=data).json()["rows"],
        NDJSON: lambda data: [httpx.Response(200, content=line).json() for line in data.splitlines()],
        CSV: lambda data: pcsv.read_csv(io.BytesIO(data)).to_pylist(),
        ARROW: lambda data: pa.ipc.open_stream(data).read_all().to_pylist(),
        PARQUET: lambda data: pq.read_table(io.BytesIO(data)).to_pylist(),
    }
    assert read[format](answer.content) == wanted


@pytest.mark.parametrize("format", FORMATS)
def test_no_rows_are_an_answer_in_every_format(service: Served, format: str) -> None:
    answer = service.reader.post("/api/v1/sql", json={"sql": "FROM t WHERE false"}, headers={"Accept": format})
    assert answer.status_code == 200
    if format == PARQUET:
        assert pq.read_table(io.BytesIO(answer.content)).num_rows == 0


VALUES = """
    SELECT 1::BIGINT AS i, 9007199254740993 AS big, 1.5::DOUBLE AS f, 'nan'::DOUBLE AS nan, '-inf'::FLOAT AS low,
        1.10::DECIMAL(10, 2) AS d, TIMESTAMPTZ '2024-01-02 03:04:05.678+00' AS tz, TIMESTAMP '2024-01-02 03:04:05' AS ts,
        DATE '2024-01-02' AS day, TIME '03:04:05' AS t, [1, NULL, 3] AS l, {'a': 1.5::DOUBLE, 'B': [DATE '2024-01-02']} AS s,
        MAP {'k': 'v'} AS m, '\\xAB\\x00'::BLOB AS b, NULL AS n, true AS yes, 'ä"\n,\\' AS text, INTERVAL 1 DAY AS iv,
        'x' AS "A", 'y' AS a, 'z' AS "A"
"""


def test_values_of_all_kinds_are_json(service: Served) -> None:
    [row] = service.rows(VALUES)
    assert row == {
        "i": 1, "big": 9007199254740993, "f": 1.5, "nan": "NaN", "low": "-Infinity", "d": "1.10",
        "tz": "2024-01-02T03:04:05.678+00:00", "ts": "2024-01-02T03:04:05", "day": "2024-01-02", "t": "03:04:05",
        "l": [1, None, 3], "s": {"a": 1.5, "B": ["2024-01-02"]}, "m": [{"key": "k", "value": "v"}], "b": "ab00",
        "n": None, "yes": True, "text": 'ä"\n,\\', "iv": "1 day", "A": "x", "a": "y", "A_1": "z",
    }  # fmt: skip
    answer = service.reader.post("/api/v1/sql", json={"sql": VALUES}, headers={"Accept": CSV})
    assert answer.status_code == 200 and "ab00" in answer.text


def test_random_queries_answer_as_plain_duckdb_does(service: Served) -> None:
    dice = random.Random(SEED)
    plain = duckdb.connect()
    plain.execute("CREATE TABLE t AS SELECT i::BIGINT AS id, 'n' || i AS name FROM range(90) r(i)")
    for _ in range(15):
        low, step = dice.randrange(90), dice.randrange(1, 9)
        sql = f"SELECT id % {step} AS k, count(*) AS n, max(name) AS m FROM t WHERE id >= ? GROUP BY 1 ORDER BY 1"
        wanted = [dict(zip(("k", "n", "m"), row, strict=True)) for row in plain.execute(sql, [low]).fetchall()]
        assert service.rows(sql, [low]) == wanted


def test_reads_of_the_past(service: Served) -> None:
    assert service.rows("SELECT count(*) AS n FROM t", version=2) == [{"n": 100}]
    assert service.rows("SELECT count(*) AS n FROM t", version=1) == [{"n": 0}]
    assert service.rows("SELECT count(*) AS n FROM t AT (VERSION => 2)") == [{"n": 100}]
    assert service.rows("SELECT count(*) AS n FROM t", timestamp="2999-01-01") == [{"n": 90}]
    is_problem(service.reader.post("/api/v1/sql", json={"sql": "FROM t", "version": 77}), 404, "not_found")
    both = {"sql": "FROM t", "version": 1, "timestamp": "2024-01-01"}
    is_problem(service.reader.post("/api/v1/sql", json=both), 400, "input")
    wrong = {"sql": "FROM t", "timestamp": "not a time"}
    assert service.reader.post("/api/v1/sql", json=wrong).status_code == 400


def test_a_plan_names_no_file(service: Served) -> None:
    [row] = service.rows("EXPLAIN SELECT * FROM t WHERE id = 3")
    assert "PARQUET" in row["explain_value"].upper() or "SCAN" in row["explain_value"].upper()
    assert service.lake.data_path not in row["explain_value"]


def test_readers_read_and_writers_write(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path)) as found:
        insert = {"sql": "INSERT INTO t VALUES (?, ?)", "parameters": [1000, "new"]}
        is_problem(found.reader.post("/api/v1/sql", json=insert), 403, "not_permitted")
        assert found.writer.post("/api/v1/sql", json=insert).json()["changed_rows"] == 1
        assert found.rows("SELECT name FROM t WHERE id = 1000") == [{"name": "new"}]
        is_problem(found.admin.post("/api/v1/sql", json={"sql": "DROP TABLE t"}), 403, "not_permitted")


def test_nothing_is_left_behind_for_the_next_request(service: Served) -> None:
    service.reader.post("/api/v1/sql", json={"sql": "BEGIN"})
    service.reader.post("/api/v1/sql", json={"sql": "PREPARE p AS SELECT 1"})
    service.reader.post("/api/v1/sql", json={"sql": "USE lake.main; SELECT 1"})
    for _ in range(3):
        is_problem(service.reader.post("/api/v1/sql", json={"sql": "ROLLBACK"}), 400, "input.sql")
        assert service.reader.post("/api/v1/sql", json={"sql": "EXECUTE p"}).status_code == 400
        assert service.rows("SELECT count(*) AS n FROM t") == [{"n": 90}]


ESCAPES = [
    "SELECT * FROM read_csv('/etc/passwd')", "FROM '/etc/passwd'", "COPY t TO '/tmp/x.csv'", "ATTACH '/tmp/x.db' AS x",
    "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true", "PRAGMA database_list", "CREATE TABLE x (i INT)",
    "SELECT getenv('HOME')", "SELECT * FROM glob('/*')", "SELECT * FROM duckdb_settings()", "CALL pragma_version()",
    "SELECT current_setting('temp_directory')", "EXPORT DATABASE '/tmp/x'", "SELECT * FROM parquet_metadata('/x')",
    "SELECT * FROM __ducklake_metadata_lake.ducklake_snapshot", "SELECT * FROM sqlite_master", "VACUUM", "CHECKPOINT",
    "SELECT * FROM query('SELECT 1')", "SELECT read_text('/etc/passwd')", "SHOW DATABASES", "DETACH lake",
]  # fmt: skip


@pytest.mark.parametrize("sql", ESCAPES)
def test_no_statement_reaches_beyond_the_lake(service: Served, sql: str) -> None:
    answer = service.admin.post("/api/v1/sql", json={"sql": sql})
    assert 400 <= answer.status_code < 500
    assert "root:" not in answer.text and service.lake.data_path not in answer.text


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("SELECT nothing FROM t", 400, "input.sql"),
        ("FROM missing", 403, "not_permitted"),
        ("SELECT 1 +", 400, "input.sql"),
        ("SELECT 'x'::INTEGER", 422, "input.constraint"),
        ("SELECT * FROM t; DROP TABLE t", 403, "not_permitted"),
        (";", 400, "input.sql"),
    ],
)
def test_mistakes_are_told_with_a_code(service: Served, sql: str, status: int, code: str) -> None:
    answer = service.reader.post("/api/v1/sql", json={"sql": sql})
    if sql == ";":
        assert answer.status_code in (200, 400)
    else:
        is_problem(answer, status, code)


def test_limits_of_rows_time_and_formats(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), max_rows=50, statement_seconds=0.3) as found:
        is_problem(found.reader.post("/api/v1/sql", json={"sql": "FROM t"}), 413, "limit.result")
        assert len(found.rows("FROM t LIMIT 50")) == 50
        is_problem(found.reader.post("/api/v1/sql", json={"sql": SLOW}), 408, "limit.timeout")
        odd = found.reader.post("/api/v1/sql", json={"sql": "FROM t"}, headers={"Accept": "image/png"})
        is_problem(odd, 400, "input")
        assert found.rows("SELECT count(*) AS n FROM t") == [{"n": 90}]


def _begin(url: str, id_: str, answers: list[httpx.Response]) -> threading.Thread:
    def ask() -> None:
        with client(url, "reader-token") as own:
            answers.append(own.post("/api/v1/sql", json={"sql": SLOW}, headers={"X-Request-Id": id_}))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def _under_way(service: Served) -> list[str]:
    return [each["id"] for each in service.reader.get("/api/v1/sql").json()["statements"]]


def test_a_statement_is_cancelled_by_its_own_principal_only(service: Served) -> None:
    answers: list[httpx.Response] = []
    thread = _begin(service.url, "slow-1", answers)
    while "slow-1" not in _under_way(service):
        assert not answers
    is_problem(service.writer.delete("/api/v1/sql/slow-1"), 404, "not_found")
    while not answers:
        service.reader.delete("/api/v1/sql/slow-1")
    thread.join()
    is_problem(answers[0], 409, "cancelled")
    assert "slow-1" not in _under_way(service)


def test_a_statement_ends_when_its_client_goes_away(service: Served) -> None:
    address = urlsplit(service.url)
    body = b'{"sql": "%s"}' % SLOW.encode()
    with socket.create_connection((address.hostname, address.port)) as raw:
        raw.sendall(
            b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader-token\r\nX-Request-Id: gone\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        while "gone" not in _under_way(service):
            pass
    until = time.monotonic() + 20
    while "gone" in _under_way(service):
        assert time.monotonic() < until


def test_a_reader_that_stops_reading_loses_its_answer_and_holds_nothing(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), stalled_seconds=0.3, max_statements=1) as found:
        address = urlsplit(found.url)
        body = b'{"sql": "SELECT repeat(\'x\', 1000) AS x FROM range(100000)"}'
        with socket.create_connection((address.hostname, address.port)) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.sendall(
                b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader-token\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert raw.recv(12) == b"HTTP/1.1 200"
            # the only turn is free again although nobody reads
            assert found.rows("SELECT 1 AS x") == [{"x": 1}]


def test_an_answer_that_fails_on_its_way_breaks_off(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), max_rows=9_000) as found:
        plain = {"Accept": NDJSON, "Accept-Encoding": "identity"}
        with pytest.raises(httpx.RemoteProtocolError):
            found.reader.post("/api/v1/sql", json={"sql": "SELECT * FROM range(100000)"}, headers=plain)
        assert found.rows("SELECT 1 AS x") == [{"x": 1}]


def test_more_statements_than_turns_wait_and_too_many_are_refused(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), max_statements=1, max_waiting=1, statement_seconds=20) as found:
        answers: list[httpx.Response] = []
        threads = [_begin(found.url, "first", answers)]
        while "first" not in _under_way(found):
            pass
        threads += [_begin(found.url, id_, answers) for id_ in ("second", "third")]
        while not answers:
            pass
        is_problem(answers[0], 429, "limit.busy")
        while len(answers) < 3:
            for id_ in _under_way(found):
                found.reader.delete(f"/api/v1/sql/{id_}")
        for thread in threads:
            thread.join()
    assert sorted(answer.status_code for answer in answers) == [409, 409, 429]


@pytest.mark.parametrize(
    ("accept", "format"),
    [
        (None, JSON), ("", JSON), ("*/*", JSON), ("application/json", JSON), ("text/*", CSV), ("text/html", None),
        ("text/csv;q=0.1, application/x-ndjson", NDJSON), ("application/json;q=0", None), ("application/parquet", PARQUET),
        ("text/csv;q=x", None), (f"{ARROW};q=0.9, */*;q=0.1", ARROW), (",,;", None),
    ],
)  # fmt: skip
def test_the_accept_header_chooses_the_format(accept: str | None, format: str | None) -> None:
    assert chosen(accept) == format


def test_decimals_and_infinite_numbers_survive_as_text(service: Served) -> None:
    [row] = service.rows("SELECT 0.1::DECIMAL(38, 20) AS d, 'inf'::DOUBLE AS i, 1e308::DOUBLE AS f")
    assert (row["d"], row["i"]) == ("0.10000000000000000000", "Infinity")
    assert math.isclose(row["f"], 1e308)


@pytest.mark.parametrize(
    "text",
    [
        "SELEC *\nFROM t", "SELECT *\nFORM t", "INSER INTO t VALUES (1)", "garbage", "DELETE FRM t",
        "UPDATE t SE id = 1", "DROP TABL t", "CREATE TABEL x (i INT)", "ALTER TABLE t ADD COLUM", "EXPLAIN DELETE FRM t",
    ],
)  # fmt: skip
def test_a_misspelt_statement_is_shown_where_it_is_wrong(service: Served, text: str) -> None:
    for who in (service.reader, service.admin):
        problem = who.post("/api/v1/sql", json={"sql": text}).json()
        assert (problem["status"], problem["code"]) == (400, "input.sql")
        lines = problem["detail"].splitlines()
        assert "syntax error" in lines[0] and lines[-2].startswith("LINE ") and lines[-1].strip() == "^"


@pytest.mark.parametrize(
    "text",
    [
        "ATTACH 'elsewhere.db'", "DROP TABLE t", "EXPLAIN DELETE FROM t", "CREATE TABLE x (i INT) PARTITION BY (i)",
        "ALTER TABLE t SET PARTITION BY (id)", "ALTER TABLE t SET OPTIONS (target_file_size = '1MB')",
        "CREATE MATERIALIZED VIEW v AS SELECT 1 AS a", "GRANT SELECT ON t TO ann", "SHOW SINKS",
    ],
)  # fmt: skip
def test_a_statement_that_is_right_and_not_allowed_is_forbidden(service: Served, text: str) -> None:
    for who in (service.reader, service.admin):
        is_problem(who.post("/api/v1/sql", json={"sql": text}), 403, "not_permitted")
    is_problem(service.reader.post("/api/v1/sql", json={"sql": "DELETE FROM t"}), 403, "not_permitted")
