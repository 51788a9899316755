"""Python's database interface, tried as PEP 249 describes it."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import quacklake
from quacklake import dbapi, errors
from quacklake.dbapi.bulk_inserts import BulkInsert
from quacklake.dbapi.failures import CLASSES
from tests import seeds


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t (id BIGINT, name VARCHAR, day DATE, price DECIMAL(10, 2))")
        yield lake


@pytest.fixture
def connection(lake: quacklake.Lake) -> Iterator[dbapi.Connection]:
    connection = dbapi.connect(lake)
    yield connection
    connection.close()


def test_the_module_has_what_pep_249_asks_for() -> None:
    assert (dbapi.apilevel, dbapi.paramstyle, dbapi.threadsafety) == ("2.0", "qmark", 1)
    assert issubclass(dbapi.Warning, Exception)
    for name in ("Data", "Operational", "Integrity", "Internal", "Programming", "NotSupported"):
        assert issubclass(getattr(dbapi, f"{name}Error"), dbapi.DatabaseError)
        assert getattr(dbapi.Connection, f"{name}Error") is getattr(dbapi, f"{name}Error")
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert dbapi.Date(2024, 1, 2) == dt.date(2024, 1, 2)
    assert dbapi.TimestampFromTicks(0).timestamp() == 0
    assert dbapi.DateFromTicks(0) == dbapi.TimestampFromTicks(0).date()
    assert dbapi.TimeFromTicks(0) == dbapi.TimestampFromTicks(0).time()
    assert dbapi.Binary(b"x") == b"x"


def test_every_error_of_a_lake_has_a_class() -> None:
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.QuacklakeError):
            assert any(issubclass(error, theirs) for theirs, _ in CLASSES)


def test_what_is_not_committed_is_seen_by_nobody_else(lake: quacklake.Lake, connection: dbapi.Connection) -> None:
    connection.execute("INSERT INTO t (id) VALUES (1)")
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert lake.table("t").count() == 0
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.execute("INSERT INTO t (id) VALUES (?)", [2])
    connection.commit()
    assert lake.table("t").to_arrow()["id"].to_pylist() == [2]
    connection.commit()  # there is nothing to commit
    connection.rollback()


def test_a_look_at_the_primary_key_does_not_hold_back_later_commits(lake: quacklake.Lake) -> None:
    with dbapi.connect(lake, autocommit=True) as connection:
        assert (connection.primary_key("main", "t"), connection.primary_key("main", "gone")) == ((), ())
        lake.sql("INSERT INTO t (id) VALUES (1)")
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_autocommit_commits_each_statement(lake: quacklake.Lake) -> None:
    with dbapi.connect(lake, autocommit=True) as connection:
        connection.execute("INSERT INTO t (id) VALUES (1)")
        assert lake.table("t").count() == 1
        connection.autocommit = False
        connection.execute("INSERT INTO t (id) VALUES (2)")
        assert lake.table("t").count() == 1
        connection.autocommit = True
        assert lake.table("t").count() == 2


def test_statements_may_begin_and_end_transactions_themselves(
    lake: quacklake.Lake, connection: dbapi.Connection
) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t (id) VALUES (1)")
    connection.execute("COMMIT;")
    connection.rollback()
    assert lake.table("t").count() == 1


def test_a_block_commits_unless_it_fails(lake: quacklake.Lake) -> None:
    with dbapi.connect(lake) as connection:
        connection.execute("INSERT INTO t (id) VALUES (1)")
    with pytest.raises(RuntimeError), dbapi.connect(lake) as connection:
        connection.execute("INSERT INTO t (id) VALUES (2)")
        raise RuntimeError
    assert lake.table("t").count() == 1


def test_columns_are_described_with_their_types(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT id, name, day, price, 'x'::BLOB, [1] FROM t")
    assert cursor.description is not None
    assert [column[0] for column in cursor.description[:4]] == ["id", "name", "day", "price"]
    types = [column[1] for column in cursor.description]
    expected = [dbapi.NUMBER, dbapi.STRING, dbapi.DATETIME, dbapi.NUMBER, dbapi.BINARY]
    for type_, group in itertools.product(types[:5], expected):
        assert (type_ == group) is (group == expected[types.index(type_)])
    assert all(types[5] != group for group in expected)
    assert connection.execute("DELETE FROM t").description is None
    assert connection.cursor().description is None


def test_rows_are_fetched_one_by_one_or_many_at_a_time(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT i FROM range(10) r(i)")
    assert cursor.fetchone() == (0,)
    assert cursor.fetchmany(2) == [(1,), (2,)]
    cursor.arraysize = 3
    assert cursor.fetchmany() == [(3,), (4,), (5,)]
    assert next(iter(cursor)) == (6,)
    assert cursor.fetchall() == [(7,), (8,), (9,)]
    assert (cursor.fetchone(), cursor.fetchmany(), cursor.fetchall()) == (None, [], [])


def test_rows_come_as_arrow_and_pandas(connection: dbapi.Connection) -> None:
    query = "SELECT i, i::VARCHAR AS s FROM range(3) r(i)"
    assert connection.execute(query).fetch_arrow_table() == pa.table({"i": [0, 1, 2], "s": ["0", "1", "2"]})
    assert connection.execute(query).fetch_record_batch().read_all().num_rows == 3
    assert list(connection.execute(query).fetch_df()["s"]) == ["0", "1", "2"]
    with pytest.warns(UserWarning, match="SQLAlchemy"):  # pandas says so of all others
        assert pd.read_sql(query, connection)["i"].sum() == 3  # type: ignore[call-overload]


def test_named_parameters_come_from_a_dictionary(connection: dbapi.Connection) -> None:
    assert connection.execute("SELECT $a + $b", {"a": 1, "b": 2}).fetchone() == (3,)


def test_many_rows_are_inserted_in_one_snapshot(lake: quacklake.Lake, connection: dbapi.Connection) -> None:
    before = lake.current_snapshot()
    rows = [(number, f"n{number}", "2024-01-02", Decimal("1.50")) for number in range(25_000)]
    cursor = connection.cursor().executemany("INSERT INTO t VALUES (?, ?, ?, ?)", iter(rows))
    assert cursor.rowcount == 25_000
    connection.commit()
    assert lake.current_snapshot() == before + 1
    sums = lake.sql("SELECT count(*), sum(id), min(day), sum(price) FROM t").fetchone()
    assert sums == (25_000, 25_000 * 24_999 // 2, dt.date(2024, 1, 2), Decimal("37500.00"))


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_bad_row_among_many_undoes_all_of_them(lake: quacklake.Lake, autocommit: bool) -> None:
    with dbapi.connect(lake, autocommit=autocommit) as connection:
        rows: list[tuple[Any, ...]] = [(number, None, None, None) for number in range(10_500)]
        rows[10_400] = ("not a number", None, None, None)
        with pytest.raises(dbapi.DatabaseError):
            connection.cursor().executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        connection.rollback()
        assert lake.table("t").count() == 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (id, name) VALUES (?, ?)",
        "insert into main.t (id, name) values ( ? , ? ) ;",
        "INSERT INTO t (id, name) VALUES (? + 0, ?)",
        "INSERT INTO t (id, name) SELECT ?, ?",
    ],
)
def test_random_rows_arrive_the_same_in_bulk_and_one_by_one(lake: quacklake.Lake, statement: str) -> None:
    chance = seeds.chance("dbapi", statement)
    values = [1, 2.0, None, "3", True, Decimal("4.00"), 2**40]
    texts = ["a", "", None, "ü'\"", 5, 1.5, b"x", dt.date(2024, 1, 1)]
    with dbapi.connect(lake) as connection:
        for _ in range(4):
            kinds = chance.sample(values, chance.randint(1, 3)), chance.sample(texts, chance.randint(1, 2))
            rows = [(chance.choice(kinds[0]), chance.choice(kinds[1])) for _ in range(5)]
            told = []
            for many in (True, False):
                try:
                    cursor = connection.cursor()
                    if many:
                        assert cursor.executemany(statement, rows).rowcount == 5
                    else:
                        for row in rows:
                            cursor.execute(statement, row)
                    told.append(sorted(connection.execute("SELECT id, name FROM t").fetchall(), key=repr))
                except dbapi.DatabaseError as error:
                    told.append(type(error).__name__)
                connection.rollback()
            assert told[0] == told[1], rows


_EAST = dt.timezone(dt.timedelta(hours=5))
SEVERAL: dict[str, list[Any]] = {
    "decimals": [Decimal("1.50"), Decimal("2"), Decimal("-1E+3")],
    "decimals in lists": [[Decimal("1.5")], [Decimal("2")]],
    "NaN": [math.nan, 1.5, -0.0],
    "NaN in lists": [[math.nan, 1.5], [2.5]],
    "NaN alone in structs": [{"a": math.nan}],
    "long numbers": [2**127, -1],
    "zoned times": [dt.time(1, tzinfo=_EAST), dt.time(2, tzinfo=dt.UTC)],
    "spans": [dt.timedelta(days=3, microseconds=7), dt.timedelta(seconds=-1)],
    "other keys": [{"a": 1}, {"b": 2}],
    "keys in another order": [{"a": 1, "b": 2}, {"b": 3, "a": 4}],
    "no keys": [{}, {}],
    "maps": [{"key": ["a", "b"], "value": [1, 2]}, {"key": ["c"], "value": [3]}],
    "lists and values": [[1], 1],
    "texts": ["a", "", "é'\""],
    "bytes": [b"", b"\0x"],
    "days": [dt.date.max, dt.date.min],
    "instants": [dt.datetime(2024, 1, 1, tzinfo=_EAST), dt.datetime(2024, 1, 1)],
}
"""Values that a list or an array can change, if one is made of all of them."""
_KINDS = ("VARCHAR", "DOUBLE", "DECIMAL(10, 2)", "HUGEINT", "TIMETZ", "INTERVAL", "DOUBLE[]", "MAP(VARCHAR, INTEGER)")


@pytest.mark.parametrize("by", ["table", "lists"])
@pytest.mark.parametrize("name", SEVERAL)
def test_values_arrive_the_same_in_bulk_and_one_by_one(
    lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch, name: str, by: str
) -> None:
    if by == "lists":  # as over Flight and HTTP
        monkeypatch.setattr(BulkInsert, "table", lambda *_: None)
    given = [*SEVERAL[name], None]
    with dbapi.connect(lake) as connection:
        for type_ in seeds.some(_KINDS, 2, "types of bulk inserts", name, always=("VARCHAR",)):
            outcomes = []
            for many in (True, False):
                connection.execute(f"CREATE TABLE several (id INTEGER, v {type_})")
                rows = list(enumerate(given))
                try:
                    if many:
                        connection.cursor().executemany("INSERT INTO several VALUES (?, ?)", rows)
                    else:
                        for row in rows:
                            connection.execute("INSERT INTO several VALUES (?, ?)", row)
                    found = connection.execute("SELECT v, v::VARCHAR FROM several ORDER BY id").fetchall()
                    outcomes.append(repr(found))
                except dbapi.DatabaseError:
                    outcomes.append("refused")
                connection.rollback()
            assert outcomes[0] == outcomes[1], (type_, given)


def test_a_decimal_with_an_exponent_and_nested_nan_keep_their_values(lake: quacklake.Lake) -> None:
    large, rough = Decimal("2000").normalize(), [math.nan, 2**53 + 1, None]
    lake.sql("CREATE TABLE exact (price DECIMAL(10, 2), levels DOUBLE[], facts STRUCT(a DOUBLE))")
    lake.sql("INSERT INTO exact VALUES (?, ?, ?)", [large, rough, {"a": math.nan}])
    kept = "[(Decimal('2000.00'), [nan, 9007199254740992.0, None], {'a': nan})]"
    assert repr(lake.sql("FROM exact").fetchall()) == kept
    lake.table("exact").update({"price": Decimal("3E+3")})
    assert lake.sql("SELECT price FROM exact WHERE price = ?", [Decimal("3E+3")]).fetchall() == [(Decimal("3000.00"),)]


def test_a_principal_inserts_many_rows_as_one_by_one(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE orders (id BIGINT NOT NULL, region VARCHAR DEFAULT 'EU', email VARCHAR)")
    for name, privileges in {"ann": "SELECT", "bob": "SELECT, INSERT"}.items():
        lake.sql(f"CREATE USER {name}")
        lake.sql(f"GRANT {privileges} ON orders TO {name}")
    lake.sql("CREATE POLICY eu ON orders USING (region = 'EU')")
    lake.sql("CREATE MASK ON orders(email) USING ('masked')")
    three, one = "INSERT INTO orders VALUES (?, ?, ?)", "INSERT INTO orders (id) VALUES (?)"
    for name in ("ann", "bob"):
        with dbapi.connect(lake.as_principal(name)) as connection:
            for sql, rows, visible in (
                (three, [(1, "EU", "a"), (2, "US", "b")], 1),
                (three, [(1, "EU", "a"), (None, "EU", "b")], 0),
                (one, [(3,), (4,)], 2),
                (one, [("5",), ("x",)], 0),
            ):
                outcomes = []
                for many in (True, False):
                    try:
                        if many:
                            connection.cursor().executemany(sql, rows)
                        else:
                            for row in rows:
                                connection.execute(sql, row)
                        outcomes.append(sorted(connection.execute("FROM orders").fetchall()))
                    except dbapi.DatabaseError:
                        outcomes.append([])
                    connection.rollback()
                assert outcomes[0] == outcomes[1], (name, sql, rows)
                assert len(outcomes[0]) == (visible if name == "bob" else 0)
    assert lake.table("orders").count() == 0


def test_errors_carry_code_and_hint(connection: dbapi.Connection) -> None:
    with pytest.raises(dbapi.ProgrammingError) as raised:
        connection.execute("SELECT * FROM tt")
    assert isinstance(raised.value.__cause__, quacklake.QuacklakeError)
    assert raised.value.code == raised.value.__cause__.code
    with pytest.raises(dbapi.ProgrammingError):
        connection.execute("SELEC 1")


def test_a_conflict_is_an_operational_error(lake: quacklake.Lake, connection: dbapi.Connection) -> None:
    lake.table("t").append([{"id": 1, "name": None, "day": None, "price": None}])
    connection.execute("UPDATE t SET name = 'mine' WHERE id = 1")
    lake.table("t").update({"name": "theirs"}, "id = 1")
    with pytest.raises(dbapi.OperationalError) as raised:
        connection.commit()
    assert raised.value.code == "commit.conflict"
    assert lake.table("t").to_arrow()["name"].to_pylist() == ["theirs"]
    connection.execute("UPDATE t SET name = 'mine' WHERE id = 1")
    connection.commit()
    assert lake.table("t").to_arrow()["name"].to_pylist() == ["mine"]


def test_closed_things_say_so(lake: quacklake.Lake) -> None:
    connection = dbapi.connect(lake)
    cursor = connection.execute("SELECT 1")
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.fetchall()
    other = connection.execute("SELECT 1")
    connection.execute("INSERT INTO t (id) VALUES (1)")
    connection.close()
    connection.close()
    for use in (connection.cursor, connection.commit, connection.rollback, other.fetchone, lambda: other.execute("")):
        with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
            use()
    assert lake.table("t").count() == 0
    with pytest.raises(dbapi.InterfaceError, match="no rows"):
        dbapi.connect(lake).cursor().fetchone()


def test_a_url_opens_a_lake_and_closes_it(tmp_path: Path) -> None:
    connection = dbapi.connect(f"sqlite:///{tmp_path}/own.db", tmp_path / "own")
    connection.execute("CREATE TABLE x AS SELECT 1 AS a")
    connection.commit()
    connection.close()
    with pytest.raises(errors.ClosedError):
        connection.lake.table("x").count()
    with pytest.raises(dbapi.ProgrammingError):
        dbapi.connect("nonsense://x")


def test_a_statement_is_cancelled_from_another_thread(connection: dbapi.Connection) -> None:
    connection.execute("SELECT 1").fetchall()
    stopped = threading.Event()

    def cancel() -> None:
        while not stopped.is_set():
            connection.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        with pytest.raises(dbapi.OperationalError) as raised:
            for _ in range(1000):
                connection.execute("SELECT sum(a.i * b.i) FROM range(200_000) a(i), range(200_000) b(i)").fetchall()
        assert raised.value.code == "cancelled"
    finally:
        stopped.set()
        thread.join()
