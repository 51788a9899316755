"""Python's database interface and SQLAlchemy over a service, with local connections to the same lake as the oracle."""

from __future__ import annotations

import datetime as dt
import logging
import math
import socket
import threading
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import quacklake
from quacklake import dbapi
from quacklake.service.app import create_app
from quacklake.service.identity import TokenGate
from quacklake.service.serving import BackgroundService, Tls
from quacklake.service.settings import ServiceSettings
from quacklake.sqlalchemy import QuacklakeDialect, ServiceDialect
from tests.service.certificates import self_signed
from tests.service.serving import TOKENS, Served, sample_lake, served

ODD = "o\"d'd; DROP TABLE t; --"
LONG = "SELECT count(*) FROM range(100000000) a, range(100000) b WHERE (a.range * 7 + b.range) % 11 = 12"


class Base(DeclarativeBase):
    pass


class Person(Base):
    __tablename__ = "people"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None]
    born: Mapped[dt.date | None]
    height: Mapped[Decimal | None] = mapped_column(sa.Numeric(5, 2))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = sample_lake(tmp_path_factory.mktemp("dbapi"))
    lake.create_schema("s")
    lake.create_table('s."odd.name"', {"id": "BIGINT", "v": "VARCHAR"}, primary_key="id")
    lake.sql("CREATE VIEW few AS SELECT id FROM t WHERE id < 3")
    lake.sql("COMMENT ON TABLE t IS 'all of them'")
    with dbapi.connect(lake) as local:
        quoted = ODD.replace('"', '""')
        local.execute(f'CREATE TABLE "{quoted}" ("{quoted}" VARCHAR)')
        local.execute("CREATE TABLE people (id INTEGER, name VARCHAR, born DATE, height DECIMAL(5, 2))")
        local.execute("CREATE TABLE wide (i INTEGER, d DATE, t TIMESTAMPTZ, b BLOB, n DECIMAL(9, 3), l INTEGER[])")
    with served(lake) as found:
        yield found


@pytest.fixture
def connection(service: Served) -> Iterator[dbapi.Connection]:
    found = dbapi.connect(service.url, token="writer-token")
    yield found
    found.close()


@pytest.fixture
def engine(service: Served) -> Iterator[sa.Engine]:
    engine = sa.create_engine(address(service, "writer-token"))
    yield engine
    engine.dispose()


@pytest.fixture
def empty(service: Served) -> Iterator[None]:
    yield
    for name in ("people", "wide"):
        service.lake.table(name).delete("true")


def address(service: Served, token: str, more: str = "") -> str:
    return service.url.replace("http://", f"quacklake+http://{token}@") + more


VALUES: list[Any] = [
    None, True, 0, -1, 2**40, 2**70, 1.5, math.inf, "", "it's", "ä€😀", "\0", "2024-01-01", b"", b"\x00\xff", Decimal("1.50"),
    Decimal("-0.001"), dt.date(2024, 2, 29), dt.time(1, 2, 3, 4), dt.datetime(2024, 1, 2, 3, 4, 5, 6),
    dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=5))), dt.timedelta(days=3, microseconds=7),
    dt.timedelta(seconds=-1), uuid.UUID(int=7), [1, None, 3], [], [[1.5], None], {"a": 1, "b": [b"x"]}, [dt.date(2024, 1, 1)],
]  # fmt: skip


def test_values_are_those_of_a_connection_in_the_process(service: Served, connection: dbapi.Connection) -> None:
    with dbapi.connect(service.lake) as local:
        for value in VALUES:
            wanted = local.execute("SELECT ? AS v, typeof(?) AS t", [value, value])
            given = connection.execute("SELECT ? AS v, typeof(?) AS t", [value, value])
            assert given.description == wanted.description, value
            assert given.fetchall() == wanted.fetchall(), value
    [(nan,)] = connection.execute("SELECT $x", {"x": math.nan}).fetchall()
    assert math.isnan(nan)
    with dbapi.connect(service.lake) as local:
        for each in (local, connection):
            with pytest.raises(dbapi.ProgrammingError) as raised:
                each.execute("SELECT ?", ["\ud800"])
            assert raised.value.code == "input.sql"
    for wrong in (object(), {1, 2}):
        with pytest.raises(dbapi.ProgrammingError, match="cannot be sent"):
            connection.execute("SELECT ?", [wrong])


def test_rows_are_fetched_in_every_way(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("SELECT id, name FROM t WHERE id >= $low ORDER BY id", {"low": 80}).rowcount == -1
    assert [column[:2] for column in cursor.description or []] == [("id", "BIGINT"), ("name", "VARCHAR")]
    assert cursor.description is not None and cursor.description[0][1] == dbapi.NUMBER
    assert (cursor.fetchone(), len(cursor.fetchmany(3)), len(list(cursor))) == ((80, "n80"), 3, 6)
    assert cursor.execute("FROM t").fetch_arrow_table().num_rows == 90
    assert isinstance(cursor.execute("FROM t").fetch_record_batch(), pa.RecordBatchReader)
    assert cursor.execute("FROM t").fetch_df().shape == (90, 2)


@pytest.mark.usefixtures("empty")
def test_many_rows_are_inserted_by_one_statement(service: Served, connection: dbapi.Connection) -> None:
    before = service.lake.current_snapshot()
    zone = dt.UTC
    rows = [
        (1, dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=zone), b"\0x", Decimal("1.5"), [1, None]),
        (None, None, None, None, Decimal("12.125"), []),
        (3, dt.date(2024, 1, 3), None, b"", None, None),
    ]
    cursor = connection.cursor().executemany("INSERT INTO wide VALUES (?, ?, ?, ?, ?, ?)", rows)
    assert (cursor.rowcount, service.lake.current_snapshot()) == (3, before + 1)
    order = "FROM wide ORDER BY i NULLS LAST"
    assert connection.execute(order).fetchall() == service.lake.sql(order).fetchall() == [rows[0], rows[2], rows[1]]
    many = [(number, f"n{number}") for number in range(25_000)]
    assert connection.cursor().executemany("INSERT INTO people (id, name) VALUES (?, ?)", many).rowcount == 25_000
    assert (service.lake.table("people").count(), service.lake.current_snapshot()) == (25_000, before + 2)
    assert connection.cursor().executemany("INSERT INTO people (id) VALUES (?)", []).rowcount == 0
    mixed = [("1", 5), ("2", 1.5), ("3", "x")]
    assert connection.cursor().executemany("INSERT INTO people (id, name) VALUES (?, ?)", mixed).rowcount == 3
    found = connection.execute(
        "SELECT name FROM people WHERE id IN (1, 2, 3) AND name[1] <> 'n' ORDER BY id"
    ).fetchall()
    assert found == [("5",), ("1.5",), ("x",)]


@pytest.mark.usefixtures("empty")
def test_rows_keep_nan_zones_and_quoted_names_on_the_way(service: Served, connection: dbapi.Connection) -> None:
    service.lake.create_table("rough", {"i": "INTEGER", "v": "DOUBLE", "t": "TIMETZ", "n": "VARCHAR"})
    east = dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    rows = [(1, math.nan, east, Decimal("1.5")), (2, 1.5, None, Decimal("2")), (3, None, None, None)]
    before = service.lake.current_snapshot()
    connection.cursor().executemany("INSERT INTO rough VALUES (?, ?, ?, ?)", rows)
    assert service.lake.current_snapshot() == before + 1
    found = service.lake.sql("SELECT v, t, n FROM rough ORDER BY i").fetchall()
    assert repr(found) == repr([(math.nan, east, "1.5"), (1.5, None, "2"), (None, None, None)])
    query = 'SELECT v FROM rough WHERE i = $"the id"'
    assert connection.execute(query, {"the id": 2}).fetchall() == [(1.5,)]
    service.lake.drop_table("rough")


@pytest.mark.usefixtures("empty")
def test_each_statement_is_committed_and_a_rollback_of_one_says_so(
    service: Served, connection: dbapi.Connection
) -> None:
    assert connection.autocommit is True
    connection.rollback()
    connection.execute("SELECT 1").fetchall()
    connection.rollback()
    assert connection.execute("INSERT INTO people (id) VALUES (1), (2)").rowcount == 2
    assert service.lake.table("people").count() == 2
    with pytest.raises(dbapi.NotSupportedError, match="committed already"):
        connection.rollback()
    connection.rollback()
    with pytest.raises(dbapi.DatabaseError):
        connection.execute("INSERT INTO people (id) VALUES ('x')")
    connection.rollback()  # nothing was changed
    connection.execute(
        "WITH few AS (SELECT 3 AS id) INSERT INTO people (id) SELECT id FROM few RETURNING id"
    ).fetchall()
    with pytest.raises(dbapi.NotSupportedError):
        connection.rollback()
    connection.execute("UPDATE people SET name = 'x'")
    connection.commit()
    connection.rollback()
    with pytest.raises(dbapi.NotSupportedError):
        connection.autocommit = False
    connection.autocommit = True
    with pytest.raises(dbapi.NotSupportedError):
        dbapi.connect(service.url, token="writer-token", autocommit=False)


@pytest.mark.usefixtures("empty")
def test_a_transaction_ends_with_its_request_or_is_refused(service: Served, connection: dbapi.Connection) -> None:
    connection.execute("BEGIN; INSERT INTO people (id) VALUES (1); INSERT INTO people (id) VALUES (2); COMMIT")
    connection.execute("BEGIN; INSERT INTO people (id) VALUES (3); ROLLBACK")
    assert service.lake.table("people").count() == 2
    for text in ("BEGIN", "BEGIN; INSERT INTO people (id) VALUES (4)", "BEGIN; SELECT 1"):
        with pytest.raises(dbapi.ProgrammingError, match="still open at the end of the request") as raised:
            connection.execute(text)
        assert raised.value.hint == "end it with COMMIT in the same request"
    with pytest.raises(dbapi.ProgrammingError):
        connection.execute("COMMIT")
    assert service.lake.table("people").count() == 2


def test_errors_are_those_of_the_lake(connection: dbapi.Connection) -> None:
    with pytest.raises(dbapi.ProgrammingError) as raised:
        connection.execute("SELECT nam FROM t")
    assert raised.value.code == "input.sql"
    with pytest.raises(dbapi.DatabaseError) as raised:
        connection.execute("SELECT 'x'::INTEGER")
    assert raised.value.code is not None
    with pytest.raises(dbapi.ProgrammingError) as raised:
        connection.execute("DROP TABLE t")
    assert raised.value.code == "not_permitted"
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor().fetchone()
    connection.close()
    assert repr(connection).endswith(", closed>")
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        connection.execute("SELECT 1")


def test_readers_read_and_do_not_write(service: Served) -> None:
    with dbapi.connect(service.url, token="reader-token") as reader:
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (90,)
        for text in ("INSERT INTO people (id) VALUES (1)", "DELETE FROM t", "UPDATE t SET id = 1"):
            with pytest.raises(dbapi.ProgrammingError) as raised:
                reader.execute(text)
            assert raised.value.code == "not_permitted"
        reader.rollback()


def test_a_statement_is_cancelled_from_another_thread(connection: dbapi.Connection) -> None:
    assert connection.cancel() is False
    raised: list[BaseException] = []

    def run() -> None:
        try:
            connection.execute(LONG).fetchall()
        except dbapi.Error as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not connection.cancel():
        thread.join(0.02)
        assert thread.is_alive()
    thread.join(60)
    assert [getattr(each, "code", None) for each in raised] == ["cancelled"]
    assert connection.execute("SELECT 1").fetchone() == (1,)
    assert connection.cancel() is False


def test_a_lost_answer_to_a_change_says_that_it_may_have_been_made(service: Served) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()
        with quacklake.connect(service.url, token="writer-token") as lake:
            lake.transport.url = f"http://127.0.0.1:{nobody.getsockname()[1]}"  # type: ignore[attr-defined]
            lake.transport._pool.connection_pool_kw["timeout"] = 0.2  # type: ignore[attr-defined]
            with dbapi.connect(lake) as connection:
                with pytest.raises(dbapi.OperationalError) as raised:
                    connection.execute("INSERT INTO people (id) VALUES (1)")
                assert "may have been written" in str(raised.value.hint)
                with pytest.raises(dbapi.OperationalError) as raised:
                    connection.execute("SELECT 1")
                assert "may have been written" not in str(raised.value.hint)


def test_the_token_is_never_shown(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[Any] = []
    for url in (address(service, "sEcret"), address(service, "any:sEcret"), address(service, ":sEcret")):
        engine = sa.create_engine(url, echo="debug")
        with pytest.raises(exc.DBAPIError) as raised:
            engine.connect()
        assert raised.value.orig is not None and "unauthenticated" in str(getattr(raised.value.orig, "code", ""))
        shown += [engine, engine.url, engine.pool, raised.value, raised.value.orig, raised.value.orig.__cause__]
        engine.dispose()
    plain = service.url.replace("http://", "http://sEcret@")
    with pytest.raises(dbapi.OperationalError) as wrong:
        dbapi.connect(plain)
    with pytest.raises(dbapi.OperationalError) as nobody:
        dbapi.connect("http://sEcret@127.0.0.1:1", retries=0)
    with dbapi.connect(service.url.replace("http://", "http://writer-token@")) as connection:
        shown += [wrong.value, wrong.value.__cause__, nobody.value, nobody.value.__cause__]
        assert "writer-token" not in repr(connection) + repr(connection.lake) + connection.lake.url
    assert "sEcret" not in "".join(f"{each!r} {each}" for each in shown) + caplog.text


def test_certificates_are_checked(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    settings = ServiceSettings(port=0)
    app = create_app(TokenGate(sample_lake(tmp_path), TOKENS), settings)
    with BackgroundService(app, settings, tls=Tls(str(certificate), str(key))) as url:
        assert url.startswith("https://")
        with pytest.raises(dbapi.OperationalError, match="does not answer: SSLError"):
            dbapi.connect(url, token="writer-token", retries=0)
        with dbapi.connect(url, token="writer-token", ca_file=str(certificate)) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (90,)
        engine = sa.create_engine(
            url.replace("https://", "quacklake+https://reader-token@") + f"?ca_file={certificate}"
        )
        assert sa.inspect(engine).has_table("t")
        engine.dispose()
    with pytest.raises(dbapi.ProgrammingError, match="no file"):
        dbapi.connect(url, token="x", ca_file=str(tmp_path / "missing.pem"))


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------


def test_the_url_has_the_token_and_settings(service: Served, engine: sa.Engine) -> None:
    assert isinstance(engine.dialect, ServiceDialect) and isinstance(engine.dialect, QuacklakeDialect)
    make = engine.dialect.create_connect_args
    assert make(sa.make_url("quacklake+https://t%2Fk@lake.example/at/x?lake=a&timeout=5&retries=0")) == (
        ["https://lake.example/at/x"],
        {"token": "t/k", "lake": "a", "timeout": 5.0, "retries": 0},
    )
    assert make(sa.make_url("quacklake+http://user:tok@[::1]:80")) == (["http://[::1]:80"], {"token": "tok"})
    for wrong in ("?data_path=x", "?timeout=soon", "?lake=a&lake=b"):
        with pytest.raises(exc.ArgumentError):
            make(sa.make_url(f"quacklake+http://h{wrong}"))
    anonymous = sa.create_engine(
        service.url.replace("http", "quacklake+http", 1), connect_args={"token": "reader-token"}
    )
    with anonymous.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 90
    anonymous.dispose()


def test_what_is_reflected_is_what_a_local_engine_reflects(service: Served, engine: sa.Engine) -> None:
    local = sa.create_engine("quacklake+sqlite://", creator=lambda: dbapi.connect(service.lake))
    try:
        found, wanted = sa.inspect(engine), sa.inspect(local)
        assert found.get_schema_names() == wanted.get_schema_names() == ["main", "s"]
        assert found.get_table_names() == wanted.get_table_names()
        assert found.get_view_names() == wanted.get_view_names() == ["few"]
        assert found.get_view_definition("few") == wanted.get_view_definition("few")
        for schema, table in [(None, name) for name in wanted.get_table_names()] + [("s", "odd.name")]:
            for method in ("get_columns", "get_pk_constraint", "get_table_comment", "get_foreign_keys", "get_indexes"):
                given, known = getattr(found, method)(table, schema), getattr(wanted, method)(table, schema)
                assert repr(given) == repr(known), (method, table)
        assert found.get_pk_constraint("odd.name", "s")["constrained_columns"] == ["id"]
        assert found.has_table(ODD) and not found.has_table("missing") and found.has_schema("s")
        with pytest.raises(exc.NoSuchTableError):
            found.get_columns("missing")
        odd = sa.Table(ODD, sa.MetaData(), autoload_with=engine)
        assert odd.columns.keys() == [ODD]
    finally:
        local.dispose()


def test_a_bi_tool_finds_its_way(engine: sa.Engine) -> None:
    """Do as Superset does with a database: test, list, describe, preview, and wrap a query."""
    with engine.connect() as connection:
        assert engine.dialect.do_ping(connection.connection.dbapi_connection)  # type: ignore[arg-type]
        assert connection.get_isolation_level() == "AUTOCOMMIT"
        inspector = sa.inspect(connection)
        assert inspector.default_schema_name == "main"
        assert {"t", "people"} <= set(inspector.get_table_names("main"))
        assert set(inspector.get_multi_columns()) >= {(None, "t"), (None, "people")}
        preview = sa.select(sa.Table("t", sa.MetaData(), autoload_with=connection)).limit(5)
        assert len(connection.execute(preview).all()) == 5
        inner = (
            sa.text("SELECT id % 3 AS k, name FROM t").columns(sa.column("k"), sa.column("name")).subquery("virtual")
        )
        chart = (
            sa.select(inner.c.k, sa.func.count().label("n")).group_by(inner.c.k).order_by(sa.desc("n"), "k").limit(2)
        )
        assert connection.execute(chart).all() == [(0, 30), (1, 30)]
        raw = connection.exec_driver_sql("SELECT id, name FROM t WHERE id < ? ORDER BY 1", (2,))
        assert raw.cursor is not None and [each[1] for each in raw.cursor.description] == ["BIGINT", "VARCHAR"]


@pytest.mark.usefixtures("empty")
def test_pandas_reads_and_appends(service: Served, engine: sa.Engine) -> None:
    frame = pd.DataFrame({"id": range(300), "name": [None, "it's", "ä"] * 100, "height": [1.25, None, 3.5] * 100})
    assert frame.to_sql("people", engine, if_exists="append", index=False) == 300
    found = pd.read_sql("SELECT id, name, height::DOUBLE AS height FROM people ORDER BY id", engine)
    assert found["id"].tolist() == list(range(300))
    assert found["name"].isna().tolist() == [True, False, False] * 100
    stored = service.lake.sql("SELECT name FROM people ORDER BY id").fetchall()
    assert stored == [(None,), ("it's",), ("ä",)] * 100
    assert found["height"].sum() == service.lake.sql("SELECT sum(height)::DOUBLE FROM people").fetchall()[0][0] == 475
    assert len(pd.read_sql_table("people", engine, columns=["id"])) == 300
    chosen = pd.read_sql(
        sa.text("SELECT count(*) AS n FROM people WHERE name = :name"), engine, params={"name": "it's"}
    )
    assert chosen["n"].tolist() == [100]
    with pytest.raises(exc.ProgrammingError, match="does not run CREATE"):
        frame.to_sql("new_table", engine, index=False)


@pytest.mark.usefixtures("empty")
def test_objects_are_stored_changed_and_found(service: Served, engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Person(id=1, name="Ann", born=dt.date(2000, 1, 2), height=Decimal("1.75")), Person(id=2)])
        session.commit()
    with Session(engine) as session:
        ann = session.get_one(Person, 1)
        assert (ann.name, ann.born, ann.height) == ("Ann", dt.date(2000, 1, 2), Decimal("1.75"))
        ann.name = "Bea"
        session.delete(session.get_one(Person, 2))
        session.commit()
        assert session.execute(sa.select(Person.id, Person.name)).all() == [(1, "Bea")]
        session.add(Person(id=3))
        session.flush()
        with pytest.raises(exc.DBAPIError, match="committed already"):
            session.rollback()
    assert service.lake.table("people").count() == 2
    with engine.connect() as connection, pytest.raises(exc.ArgumentError, match="SNAPSHOT"):
        connection.execution_options(isolation_level="SNAPSHOT")
