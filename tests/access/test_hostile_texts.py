"""Names that are SQL without their quotes show nothing, in any place, by any door."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyarrow import flight

import quacklake
from quacklake import Lake, dbapi
from quacklake.core.sql.safety import Safety
from quacklake.core.sql.session import Session
from quacklake.errors import InputError, NotFoundError, NotPermittedError, QuacklakeError, SqlError
from quacklake.service.access_gate import AccessGate
from quacklake.service.app import create_app
from quacklake.service.flight import FlightService, FlightSettings
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from tests.access.secrets import CANARY, MARKS, fill, shown
from tests.hostile import NAMES, Writer, payloads
from tests.seeds import LONG, chance, some
from tests.service.flight.calls import described
from tests.service.serving import client
from tests.tenants.hostile_values import opened_files

OUTSIDE = f"{CANARY} outside"


@dataclass
class Place:
    """A lake with secrets, and files beside and in it that nobody may read."""

    lake: Lake
    outside: str

    def names(self) -> list[str]:
        inside = f"{self.lake.data_path}notes.txt"
        return [*NAMES, *payloads(self.outside), *payloads(inside), *payloads(f"{self.lake.data_path}**/*.parquet")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    (folder / "outside.txt").write_text(OUTSIDE)
    with fill(folder) as lake:
        Path(lake.data_path, "notes.txt").write_text(OUTSIDE)
        lake.sql("CREATE TABLE orders AS SELECT 1 AS id, 'x' AS a")
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            lake.access.grant(privilege, "ann", table="orders")
        yield Place(lake, str(folder / "outside.txt"))


def writing(lake: Lake) -> Session:
    """Return a safe session of ann's that may change rows."""
    session = quacklake.session(safety=Safety(read_only=False, timeout=5.0))
    session.attach(lake.as_principal("ann"), "lake")
    session.use("lake")
    return session


def test_the_types_of_parameters_show_nothing_hidden(place: Place) -> None:
    with writing(place.lake) as session:
        assert session.parameter_types("UPDATE orders SET a = ? WHERE id = ?") == {"1": "VARCHAR", "2": "INTEGER"}
        for sql in (
            "SELECT 1 FROM people WHERE salary = ?",
            "UPDATE people SET salary = ?",
            "UPDATE people SET note = 'x' WHERE salary = ?",
            "INSERT INTO people (salary) VALUES (?)",
            "INSERT INTO vault (number) VALUES (?)",
            "DELETE FROM vault WHERE number = ?",
            "SELECT 1 FROM vault_view WHERE number = ?",
            "MERGE INTO orders USING vault ON number = ? WHEN MATCHED THEN DELETE",
        ):
            try:
                found = str(session.parameter_types(sql))
            except QuacklakeError as error:
                found = shown(error)
            assert "BIGINT" not in found, sql


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders WHERE id = ?) FROM read_text('{0}') WHERE (true",
        "DELETE FROM orders USING read_text('{0}') WHERE id = ?",
        "UPDATE orders SET a = ?) , (SELECT content FROM read_text('{0}')",
        "UPDATE orders SET a = (SELECT content FROM read_text('{0}') WHERE 'x' = ?)",
        "UPDATE orders SET a = ? FROM '{0}'",
        "INSERT INTO orders SELECT 1, content FROM read_text('{0}') WHERE content = ?",
        "INSERT INTO orders VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET a = (SELECT content FROM read_text('{0}'))",
        "MERGE INTO orders USING read_csv('{0}') c ON id = ? WHEN MATCHED THEN DELETE",
        "MERGE INTO orders USING orders o ON o.id = ?) FROM read_csv('{0}') x, (SELECT 1 WHEN MATCHED THEN DELETE",
        "MERGE INTO orders USING orders o ON o.id = ? WHEN MATCHED AND (SELECT true FROM read_csv('{0}')) THEN DELETE",
        "WITH x AS (SELECT * FROM read_csv('{0}')) DELETE FROM orders USING x WHERE id = ?",
        "SELECT ?, current_setting('secret_directory') AS \"{0}\"",
    ],
)
def test_the_types_of_parameters_open_no_file(statement: str, place: Place) -> None:
    sql = statement.format(place.outside)
    with writing(place.lake) as session, opened_files([Path(place.outside).parent]) as opened:
        with pytest.raises((NotPermittedError, SqlError)):
            session.parameter_types(sql)
    assert not [path for path in opened if path == place.outside]


QUOTED = (
    'SELECT "{}".* FROM orders o',
    'SELECT "{}".* FROM orders AS "{}"',
    'SELECT "{}".*',
    'SELECT COLUMNS("{}".*) FROM orders o',
    'SELECT COLUMNS("{}".*) FROM orders AS "{}"',
    'SELECT struct_pack(*COLUMNS("{}".*)) FROM orders AS "{}"',
    'FROM orders AT (VERSION => "{}".*)',
    'FROM orders AT (VERSION => COLUMNS("{}".*))',
    'EXECUTE p("{}".*)',
    'EXECUTE p(v := "{}".*)',
    'SELECT $"{}" FROM orders o',
    "INSERT INTO orders VALUES (2, 'y') RETURNING \"{}\".*",
    "MERGE INTO orders o USING (SELECT 1 AS id) s ON o.id = s.id WHEN MATCHED THEN UPDATE SET a = 'y' RETURNING \"{}\".*",
    'UPDATE orders o SET a = "{}".* RETURNING *',
    'DELETE FROM orders o WHERE "{}".* RETURNING *',
)


@pytest.mark.parametrize("statement", QUOTED)
def test_a_quoted_star_is_nothing_but_a_star(statement: str, place: Place) -> None:
    with writing(place.lake) as session:
        session.sql("PREPARE p AS SELECT $v, *  FROM orders o")
        names = payloads(place.outside) + payloads(f"{place.lake.data_path}notes.txt")
        for name in some(names, 6, "quoted stars", statement):
            sql = statement.replace("{}", name.replace('"', '""'))
            text = told(session.sql, sql)
            assert not marks_in(text, place, sql), f"{sql}: {text}"


def told(run: Callable[[str], Any], sql: str) -> str:
    """Return all that a statement tells, in rows or in a typed error."""
    try:
        found = run(sql)
        return repr(found.fetchall() if hasattr(found, "fetchall") else found)
    except QuacklakeError as error:
        return shown(error)


def marks_in(text: str, place: Place, sql: str) -> list[str]:
    """Return the secrets in a text that the statement itself does not say."""
    for said in (sql, repr(sql)[1:-1], shown(SqlError(sql)), place.outside):
        text = text.replace(said, "")
    return [mark for mark in (*MARKS, "quacklake-spill-") if mark in text and mark not in sql]


@pytest.mark.parametrize("read_only", [True, False])
def test_no_hostile_statement_shows_what_is_hidden(read_only: bool, place: Place) -> None:
    writer = Writer(chance("hostile statements", read_only), place.names(), ("orders", "everybody", "people"))
    ran = 0
    before = secret_rows(place.lake)
    with writing(place.lake) as writing_session:
        run = place.lake.as_principal("ann").sql if read_only else writing_session.sql
        for number in range(4000 if LONG else 40):
            kinds = (writer.statement, writer.statement, writer.other) if read_only else (writer.changes, writer.other)
            writer.deepest = 1 + number % 2
            sql = kinds[number % len(kinds)]()
            text = told(run, sql)
            ran += text.startswith("[")
            assert not marks_in(text, place, sql), f"{sql}: {text}"
    assert secret_rows(place.lake) == before
    assert ran or not LONG


def secret_rows(lake: Lake) -> object:
    return lake.sql("SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM vault)").fetchall()


@pytest.fixture(scope="module")
def doors(place: Place) -> Iterator[dict[str, Callable[[str], Any]]]:
    """Every way in by which ann can send a statement to a service."""
    token = place.lake.access.tokens.create("ann")
    settings = ServiceSettings(port=0)
    with ExitStack() as stack:
        gate = AccessGate(place.lake)
        url = stack.enter_context(BackgroundService(create_app(gate, settings), settings))
        web = stack.enter_context(client(url, token))
        air = stack.enter_context(FlightService(AccessGate(place.lake), FlightSettings()))
        connection = stack.enter_context(dbapi.connect(url, token=token))
        engine = sa.create_engine(url.replace("http://", f"quacklake+http://{token}@"))
        stack.callback(engine.dispose)
        yield {
            "http": lambda sql: by_http(web, sql),
            "flight": lambda sql: by_flight(air.location, token, sql),
            "dbapi": lambda sql: by_dbapi(connection, sql),
            "sqlalchemy": lambda sql: by_sqlalchemy(engine, sql),
        }


def by_http(web: httpx.Client, sql: str) -> str:
    answer = web.post("/api/v1/sql", json={"sql": sql})
    assert answer.status_code < 500, answer.text
    return answer.text


def by_flight(location: str, token: str, sql: str) -> str:
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    with flight.connect(location) as connection:
        try:
            place = described("CommandStatementQuery", query=sql)
            info = connection.get_flight_info(place, options)
            return "".join(str(connection.do_get(each.ticket, options).read_all()) for each in info.endpoints)
        except (pa.ArrowException, OSError) as error:
            return str(error)


def by_dbapi(connection: Any, sql: str) -> str:
    try:
        return str(connection.cursor().execute(sql).fetchall())
    except (dbapi.Error, QuacklakeError) as error:
        return shown(error)


def by_sqlalchemy(engine: sa.Engine, sql: str) -> str:
    try:
        with engine.connect() as connection:
            return str(connection.exec_driver_sql(sql).fetchall())
    except (sa.exc.DBAPIError, QuacklakeError) as error:
        return shown(error)


@pytest.mark.parametrize("door", ["http", "flight", "dbapi", "sqlalchemy"])
def test_no_door_shows_what_is_hidden(door: str, place: Place, doors: dict[str, Callable[[str], Any]]) -> None:
    assert "x" in doors[door]("SELECT * FROM orders")
    numbers = chance("hostile statements by a door", door)
    writer = Writer(numbers, place.names(), ("orders", "everybody"), deepest=1)
    names = payloads(place.outside)
    stars = [star.replace("{}", name.replace('"', '""')) for star in QUOTED[:6] for name in names]
    for sql in [*numbers.sample(stars, 5), *(writer.statement() for _ in range(500 if LONG else 10))]:
        text = doors[door](sql)
        assert not marks_in(text, place, sql), f"{sql}: {text}"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders WHERE false UNION ALL SELECT NULL, 2, 0",
        "DELETE FROM orders WHERE id = 1 LIMIT 1",
        "DELETE FROM orders WHERE id = 1 GROUP BY ALL",
        "DELETE FROM orders USING range(1) r(x) ORDER BY 1 WHERE id = 1",
        "UPDATE orders SET a = 'x' FROM range(1) UNION ALL SELECT 1",
        "UPDATE orders SET a = 'x' AS b WHERE id = 1",
        "INSERT INTO orders VALUES (3, 'z') RETURNING 1 FROM everybody",
        "INSERT INTO orders VALUES (3, 'z') RETURNING 1 ORDER BY 1",
        "MERGE INTO orders o USING range(1) s(id) ON true UNION ALL SELECT 1 WHEN MATCHED THEN DELETE",
        "MERGE INTO orders o USING range(1) s(id) ON true WHEN MATCHED AND true QUALIFY 1 THEN DELETE",
    ],
)
def test_a_part_of_a_statement_is_no_more_than_that_part(statement: str, place: Place) -> None:
    before = place.lake.sql("FROM orders ORDER BY ALL").fetchall()
    with writing(place.lake) as session, pytest.raises(SqlError):
        session.sql(statement)
    assert place.lake.sql("FROM orders ORDER BY ALL").fetchall() == before


@pytest.mark.parametrize(
    "at",
    [
        "VERSION => [1]",
        "VERSION => 1e400",
        "VERSION => 99999999999999999999999",
        "VERSION => {'a': 1}",
        "TIMESTAMP => [1]",
        "TIMESTAMP => {'a': 1}",
        "TIMESTAMP => INTERVAL 1 DAY",
        "TIMESTAMP => 1",
    ],
)
def test_no_value_of_at_is_anything_but_a_typed_error(at: str, place: Place) -> None:
    with pytest.raises(SqlError, match=r"is not a (snapshot|time)"):
        place.lake.as_principal("ann").sql(f"FROM orders AT ({at})")


def test_grants_are_not_shown_in_a_safe_session(place: Place) -> None:
    ann = place.lake.as_principal("ann")
    for sql in ("SHOW GRANTS", "FROM (SHOW GRANTS)", "DESCRIBE grants"):
        with pytest.raises(NotPermittedError, match="does not show grants"):
            ann.sql(sql)


def test_a_granted_view_over_something_hidden_does_not_exist(place: Place) -> None:
    place.lake.sql("CREATE VIEW of_salaries AS SELECT people.salary FROM people")
    place.lake.sql("CREATE VIEW of_those AS SELECT * FROM of_salaries")
    for view in ("of_salaries", "of_those"):
        place.lake.access.grant("SELECT", "ann", table=view)
    ann = place.lake.as_principal("ann")
    for view in ("of_salaries", "of_those", "vault_view"):
        for sql in (f"FROM {view}", f"DESCRIBE {view}", f"SELECT count(*) FROM {view}"):
            with pytest.raises(NotFoundError) as failed:
                ann.sql(sql)
            assert failed.value.message == f'View with name {view} does not exist in the lake "lake"'
        assert view not in str(ann.sql("SHOW TABLES").fetchall())
        assert view not in str(ann.sql("SELECT view_name FROM duckdb_views()").fetchall())
    assert ann.sql("SELECT count(*) FROM everybody").fetchall() == ann.sql("SELECT count(*) FROM people").fetchall()
    assert "everybody" in str(ann.sql("SHOW TABLES").fetchall())


@pytest.mark.parametrize("text", ['"id) x (".*', "*", "id.*", "COLUMNS(*)", "true; SELECT 1", "true GROUP BY ALL", "'"])
def test_a_hostile_policy_is_refused(text: str, place: Place) -> None:
    for make in (
        lambda: place.lake.access.create_policy("hostile", "orders", text),
        lambda: place.lake.access.create_mask("orders", "a", text),
    ):
        with pytest.raises(InputError):
            make()


def test_a_hostile_policy_in_the_metadata_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text(OUTSIDE)
    outside = tmp_path / "outside.txt"
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t AS SELECT 1 AS id, 'x' AS a")
        lake.sql("CREATE TABLE vault AS SELECT 'CANARY' AS secret")
        lake.access.create_user("ann")
        lake.access.grant("SELECT", "ann", table="t")
        lake.access.create_mask("t", "a", "upper(a)")
    for text in (
        f"(SELECT content FROM read_text('{outside}'))",
        "(SELECT max(secret) FROM vault)",
        f"a) AS VARCHAR)) AS v1, (SELECT content FROM read_text('{outside}')) AS v2 --",
        f"\"(SELECT content FROM read_text('{outside}')), _ql_whole\".*",
        "current_setting('allowed_directories')",
        "getvariable('x')",
        "secret",
        "a FROM vault",
        "a, a",
        "*",
        "",
        "'",
        "\0",
    ):
        with closing(sqlite3.connect(tmp_path / "lake.db")) as connection, connection:
            connection.execute("UPDATE quacklake_policies SET expression = ?", (text,))
        with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake:
            for sql in ("FROM t", "SELECT a FROM t WHERE a <> ''", "SELECT count(*) FROM t"):
                with pytest.raises(NotPermittedError) as failed:
                    lake.as_principal("ann").sql(sql).fetchall()
                assert CANARY not in str(failed.value)
                assert text == "" or text not in str(failed.value)
