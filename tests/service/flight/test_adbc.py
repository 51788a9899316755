"""Flight SQL as ADBC's driver speaks it: what BI tools and data frames use."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import pyarrow as pa
import pytest

from quacklake.service.flight.messages import MESSAGES
from tests.service.flight.calls import Calls, described
from tests.service.flight.conftest import ADMIN, READER, WRITER, Served, options


@pytest.fixture(scope="module")
def shop(served: Served) -> Served:
    served.lake.sql("CREATE TABLE items AS SELECT range AS id, 'item ' || range AS name FROM range(100)")
    served.lake.create_table("keyed", {"a": int, "b": str, "c": float}, primary_key=["b", "a"])
    served.lake.sql("CREATE VIEW cheap AS SELECT id FROM items WHERE id < 10")
    served.lake.sql("CREATE SCHEMA stock")
    served.lake.sql("CREATE TABLE stock.items AS SELECT 'other' AS name")
    return served


def asked(connection: dbapi.Connection, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def test_a_query_gives_rows_and_columns(shop: Served) -> None:
    with shop.adbc(READER) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, name FROM items ORDER BY id LIMIT 2")
        assert [column[0] for column in cursor.description] == ["id", "name"]
        assert cursor.fetchall() == [(0, "item 0"), (1, "item 1")]
        cursor.execute("SELECT 1 AS a, 2 AS a WHERE false")
        assert cursor.fetch_arrow_table().schema.names == ["a", "a"]


@pytest.mark.parametrize(
    "value",
    [1, -1.5, "žluť", b"\x00\xff", True, dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, 12), Decimal("1.25"), None],
    ids=repr,
)
def test_a_parameter_keeps_its_value(shop: Served, value: object) -> None:
    with shop.adbc(READER) as connection:
        assert asked(connection, "SELECT ? AS v, ? IS NULL", (value, value)) == [(value, value is None)]


def test_the_types_of_parameters_are_told(shop: Served) -> None:
    made = (
        "CREATE TABLE kinds (n DECIMAL(8, 2), t TIME, ts TIMESTAMP, tz TIMESTAMPTZ, b BLOB, u UUID, l INT[], h HUGEINT)"
    )
    shop.lake.sql(made)
    with shop.adbc() as connection, connection.cursor() as cursor:
        schema = cursor.adbc_prepare("SELECT name FROM items WHERE id = ? AND name LIKE ?")
        assert (schema.names, schema.types) == (["1", "2"], [pa.int64(), pa.string()])
        schema = cursor.adbc_prepare("INSERT INTO kinds VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
        assert schema.types == [
            pa.decimal128(8, 2),
            pa.time32("ms"),
            pa.timestamp("ms"),
            pa.timestamp("ms", "UTC"),
            pa.binary(),
            pa.string(),
            pa.string(),
            pa.decimal128(38, 0),
        ]
        values = (
            Decimal("1.25"),
            dt.time(1, 2, 3, 4),
            dt.datetime(2024, 1, 1, 0, 0, 0, 5),
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            b"x",
            "6a7e7f0c-0b0a-4d3f-8a2a-111111111111",
            "[1, 2]",
            5,
        )
        cursor.execute("INSERT INTO kinds VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        rows = asked(connection, "SELECT n, t, ts, tz, b, u::VARCHAR, l::VARCHAR, h::BIGINT FROM kinds")
        assert rows == [values]  # a client may send another type than the one that it was told
        assert cursor.adbc_execute_schema("SELECT ? + id AS n FROM items").types == [pa.int64()]


def test_named_parameters_are_found_by_name_or_in_their_order(shop: Served) -> None:
    sql = "SELECT $b || $a || $b AS v"
    with shop.adbc(READER) as connection, connection.cursor() as cursor:
        assert cursor.adbc_prepare(sql).names == ["b", "a"]
        for batch in ({"b": ["x"], "a": ["y"]}, {"A": ["y"], "b": ["x"]}, {"first": ["x"], "second": ["y"]}):
            assert asked(connection, sql, pa.record_batch(batch)) == [("xyx",)]
        with pytest.raises(dbapi.Error, match="has 2 parameters, and 1 values were sent"):
            asked(connection, sql, pa.record_batch({"a": ["y"]}))
        assert asked(connection, "SELECT $2 || $1 || $2", ("a", "b")) == [("bab",)]


def test_names_of_parameters_may_need_quotes(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE quoted (id BIGINT, name VARCHAR)")
    insert = 'INSERT INTO quoted VALUES ($"the id", $"""x"", y")'
    with shop.adbc() as connection, connection.cursor() as cursor:
        schema = cursor.adbc_prepare(insert)
        assert (schema.names, schema.types) == (["the id", '"x", y'], [pa.int64(), pa.string()])
        cursor.execute(insert, pa.record_batch({'"x", y': ["a"], "the id": [7]}))
        assert asked(connection, 'SELECT name, $"the id" FROM quoted WHERE id = $"The ID"', (7,)) == [("a", 7)]


def in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_cursors_of_a_connection_serve_many_threads(shop: Served) -> None:
    found: dict[int, Any] = {}
    with shop.adbc(READER) as connection:

        def ask(number: int) -> None:
            with connection.cursor() as cursor:
                for id_ in range(number, 100, 25):
                    cursor.execute("SELECT name FROM items WHERE id = ?", (id_,))
                    found[id_] = cursor.fetchall()

        in_threads(ask)
    assert found == {id_: [(f"item {id_}",)] for number in range(4) for id_ in range(number, 100, 25)}


def test_one_prepared_statement_serves_many_threads(shop: Served) -> None:
    found: dict[int, Any] = {}
    with shop.client() as client:
        calls = Calls(client, options(READER))
        handle = calls.prepare("SELECT name FROM items WHERE id = ?")

        def ask(number: int) -> None:
            for id_ in range(number, 100, 25):
                prepared = described("CommandPreparedStatementQuery", prepared_statement_handle=handle)
                answer = calls.put(prepared, pa.table({"0": [id_]}))
                bound = MESSAGES["DoPutPreparedStatementResult"].FromString(answer).prepared_statement_handle
                rows = calls.rows(described("CommandPreparedStatementQuery", prepared_statement_handle=bound))
                found[id_] = rows["name"].to_pylist()

        in_threads(ask)
        with pytest.raises(pa.ArrowInvalid, match="Values were not provided"):
            calls.rows(described("CommandPreparedStatementQuery", prepared_statement_handle=handle))
    assert found == {id_: [f"item {id_}"] for number in range(4) for id_ in range(number, 100, 25)}


def test_a_statement_that_is_wrong_fails_with_our_code(shop: Served) -> None:
    with shop.adbc(READER) as connection:
        with pytest.raises(dbapi.Error, match=r"input\.sql"):
            asked(connection, "SELECT nothing FROM items")
        with pytest.raises(dbapi.Error, match="one statement is expected"):
            asked(connection, "SELECT 1; SELECT 2")
        with pytest.raises(dbapi.Error, match=r"not_permitted"):
            asked(connection, "INSERT INTO items VALUES (1, 'x')")
        with pytest.raises(dbapi.Error, match="100000 are allowed"), connection.cursor() as cursor:
            cursor.adbc_prepare(f"SELECT ? -- {'x' * 100_000}")
        assert asked(connection, "SELECT 1") == [(1,)]


def test_changes_are_counted_and_committed(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE counted (i BIGINT, t VARCHAR)")
    with shop.adbc() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO counted VALUES (?, ?)", [(1, "a"), (2, "b"), (3, None)])
        assert cursor.rowcount == 3
        before = shop.lake.current_snapshot()
        assert asked(connection, "UPDATE counted SET t = 'c' WHERE i > 1") == [(2,)]
        assert shop.lake.current_snapshot() == before + 1
        with pytest.raises(dbapi.Error):  # the second row fails, and the first is not there either
            cursor.executemany("INSERT INTO counted VALUES (?::BIGINT, 'x')", [("4",), ("no number",)])
    assert shop.lake.sql("FROM counted ORDER BY i").fetchall() == [(1, "a"), (2, "c"), (3, "c")]


def test_every_change_runs_once_for_each_row_of_parameters(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE many (i BIGINT, t VARCHAR)")
    merge = "MERGE INTO many USING (SELECT ? AS i, ? AS t) s ON many.i = s.i WHEN MATCHED THEN UPDATE SET t = s.t \
WHEN NOT MATCHED THEN INSERT VALUES (s.i, s.t)"
    with shop.adbc() as connection, connection.cursor() as cursor:
        before = shop.lake.current_snapshot()
        for sql, rows, count in (
            ("INSERT INTO many VALUES (?, ?)", [(n, str(n)) for n in range(5)], 5),
            ("UPDATE many SET t = ? WHERE i >= ?", [("x", 3), ("y", 4), ("z", 9)], 3),
            (merge, [(4, "m"), (5, "n")], 2),
            ("DELETE FROM many WHERE i = ?", [(0,), (1,), (7,)], 2),
        ):
            cursor.executemany(sql, rows)
            assert cursor.rowcount == count, sql
            before += 1
            assert shop.lake.current_snapshot() == before, sql
    rows = shop.lake.sql("FROM many ORDER BY i").fetchall()
    assert rows == [(2, "2"), (3, "x"), (4, "m"), (5, "n")]


def test_many_rows_of_every_type_are_inserted_at_once(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE loaded (i BIGINT, n DECIMAL(8, 2), d DATE, b BLOB, e VARCHAR, l INT[], u UUID)")
    unique = "6a7e7f0c-0b0a-4d3f-8a2a-111111111111"
    rows = [
        (number, Decimal(number) / 4, dt.date(2024, 1, 1), bytes([number % 256]), None, "[1, NULL]", unique)
        for number in range(9_999)
    ]
    rows.append((None, None, None, None, None, None, None))
    insert = "INSERT INTO loaded VALUES (?, ?, ?, ?, ?, ?, ?)"
    with shop.adbc() as connection, connection.cursor() as cursor:
        before = shop.lake.current_snapshot()
        cursor.executemany(insert, rows)
        assert (cursor.rowcount, shop.lake.current_snapshot()) == (10_000, before + 1)
        with pytest.raises(dbapi.Error, match="more than 10000 rows"):
            cursor.executemany(insert, [*rows, rows[0]])
        with pytest.raises(dbapi.Error):
            cursor.executemany("INSERT INTO loaded (i) VALUES (?)", [("1",), ("no number",)])
    found = shop.lake.sql("SELECT i, n, d, b, e, l::VARCHAR, u::VARCHAR FROM loaded ORDER BY i").fetchall()
    assert found == rows


def test_values_that_a_list_would_change_are_inserted_as_they_are(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE rough (i BIGINT, v DOUBLE, l DOUBLE[], s INTERVAL)")
    batch = pa.record_batch(
        {
            "i": [1, 2, 3],
            "v": [math.nan, 1.5, None],
            "l": [[math.nan, 2.5], None, []],
            "s": pa.array([dt.timedelta(days=3), dt.timedelta(seconds=1), None], pa.duration("us")),
        }
    )
    with shop.adbc() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO rough VALUES (?, ?, ?, ?)", batch)
    found = shop.lake.sql("SELECT v, l, s::VARCHAR FROM rough ORDER BY i").fetchall()
    assert repr(found) == "[(nan, [nan, 2.5], '3 days'), (1.5, None, '00:00:01'), (None, [], None)]"


@pytest.mark.parametrize("rows", [[(1, "x")], [(1, "x"), (2, "y")]], ids=["one", "many"])
def test_a_prepared_insert_fills_the_columns_that_the_table_had(shop: Served, rows: list[tuple[int, str]]) -> None:
    insert = "INSERT INTO main.moved VALUES (?, ?)"
    for change, expected in (
        ("ALTER TABLE moved DROP COLUMN a; ALTER TABLE moved ADD COLUMN c VARCHAR", None),
        ("ALTER TABLE moved RENAME a TO c", None),
        ("ALTER TABLE moved ADD COLUMN c VARCHAR DEFAULT 'new'", [(a, b, "new") for a, b in rows]),
        ("DROP TABLE moved; CREATE TABLE moved (b VARCHAR, a VARCHAR)", [(b, str(a)) for a, b in rows]),
    ):
        shop.lake.sql("CREATE TABLE moved (a BIGINT, b VARCHAR)")
        with shop.adbc() as connection, connection.cursor() as cursor:
            cursor.adbc_prepare(insert)
            shop.lake.sql(change)
            if expected is None:
                with pytest.raises(dbapi.Error, match='no column "a"'):
                    cursor.executemany(insert, rows)
            else:
                cursor.executemany(insert, rows)
        assert shop.lake.sql("FROM moved ORDER BY 1").fetchall() == (expected or []), change
        shop.lake.sql("DROP TABLE moved")


def _repeated(cursor: Any, sql: str, rows: list[tuple[int, ...]]) -> None:
    """Run a statement for many rows, again after each conflict."""
    while True:
        try:
            cursor.executemany(sql, rows)
            return
        except dbapi.OperationalError as error:
            if "[commit.conflict]" not in str(error):
                raise


def test_batches_of_two_clients_are_inserted_once_beside_one_that_deletes(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE busy (client BIGINT, n BIGINT)")
    batches, deleted = 6, []

    def work(number: int) -> None:
        with shop.adbc() as connection, connection.cursor() as cursor:
            for batch in range(batches):
                if number < 2:
                    rows = [(number, 20 * batch + place) for place in range(20)]
                    _repeated(cursor, "INSERT INTO busy VALUES (?, ?)", rows)
                else:
                    _repeated(cursor, "DELETE FROM busy WHERE n = ?", [(n,) for n in range(number, 120, 17)])
                    deleted.append(max(cursor.rowcount, 0))

    in_threads(work)
    found = shop.lake.sql("SELECT client, n FROM busy").fetchall()
    assert len(set(found)) == len(found) == 2 * 20 * batches - sum(deleted)


def test_a_transaction_is_seen_by_nobody_else_before_its_end(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE pending (i BIGINT)")
    with shop.adbc(autocommit=False) as connection:
        asked(connection, "INSERT INTO pending VALUES (1)")
        asked(connection, "INSERT INTO pending VALUES (2), (3)")
        assert asked(connection, "SELECT count(*) FROM pending") == [(3,)]
        assert shop.lake.table("pending").count() == 0
        before = shop.lake.current_snapshot()
        connection.commit()
        assert shop.lake.current_snapshot() == before + 1
        assert shop.lake.table("pending").count() == 3
        asked(connection, "DELETE FROM pending")
        assert asked(connection, "SELECT count(*) FROM pending") == [(0,)]
        connection.rollback()
        assert asked(connection, "SELECT count(*) FROM pending") == [(3,)]
    assert shop.lake.table("pending").count() == 3


def test_a_transaction_reads_one_snapshot(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE still AS SELECT 1 AS i")
    with shop.adbc(READER, autocommit=False) as connection:
        assert asked(connection, "SELECT count(*) FROM still") == [(1,)]
        shop.lake.sql("INSERT INTO still SELECT 2")
        assert asked(connection, "SELECT count(*) FROM still") == [(1,)]
        connection.commit()
        assert asked(connection, "SELECT count(*) FROM still") == [(2,)]


def test_bulk_ingestion_does_what_its_mode_says(shop: Served) -> None:
    rows, others = pa.table({"a": [1, 2]}), pa.table({"b": ["x"]})
    with shop.adbc(ADMIN) as connection, connection.cursor() as cursor:
        with pytest.raises(dbapi.Error, match="not_found"):
            cursor.adbc_ingest("bulk", rows, mode="append")
        assert cursor.adbc_ingest("bulk", rows, mode="create") == 2
        with pytest.raises(dbapi.Error, match="already_exists"):
            cursor.adbc_ingest("bulk", rows, mode="create")
        assert cursor.adbc_ingest("bulk", rows, mode="append") == 2
        assert cursor.adbc_ingest("bulk", rows.to_reader(), mode="create_append") == 2
        assert shop.lake.table("bulk").count() == 6
        assert cursor.adbc_ingest("bulk", others, mode="replace") == 1
        assert shop.lake.table("bulk").to_pylist() == [{"b": "x"}]
        assert cursor.adbc_ingest("bulk", rows, mode="create", db_schema_name="stock") == 2
        with pytest.raises(dbapi.Error, match="unsupported"):
            cursor.adbc_ingest("bulk", rows, mode="create", temporary=True)
    assert shop.lake.table("stock.bulk").count() == 2


def test_only_an_administrator_replaces_a_table(shop: Served) -> None:
    with shop.adbc(WRITER) as connection, connection.cursor() as cursor:
        with pytest.raises(dbapi.Error, match="role admin"):
            cursor.adbc_ingest("items", pa.table({"id": [1]}), mode="replace")
    assert shop.lake.table("items").count() == 100


def test_the_objects_of_a_lake_are_told(shop: Served) -> None:
    with shop.adbc(READER) as connection:
        [catalog] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        assert catalog["catalog_name"] == "lake"
        schemas = {each["db_schema_name"]: each["db_schema_tables"] for each in catalog["catalog_db_schemas"]}
        assert set(schemas) == set(shop.lake.schemas())
        main = {each["table_name"]: each for each in schemas["main"]}
        assert main["cheap"]["table_type"] == "VIEW" and main["items"]["table_type"] == "TABLE"
        assert [column["column_name"] for column in main["items"]["table_columns"]] == ["id", "name"]
        assert [column["column_name"] for column in main["cheap"]["table_columns"]] == ["id"]
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
        assert connection.adbc_get_table_schema("items") == shop.lake.table("items").schema
        narrow = connection.adbc_get_objects(
            depth="tables", db_schema_filter="st%", table_name_filter="_tems", table_types_filter=["TABLE"]
        )
        [found] = narrow.read_all().to_pylist()[0]["catalog_db_schemas"]
        assert [table["table_name"] for table in found["db_schema_tables"]] == ["items"]
        assert connection.adbc_get_info()["vendor_name"] == "Quacklake"
        assert connection.adbc_get_info()["vendor_arrow_version"] == pa.__version__
        names = [column["xdbc_type_name"] for column in main["items"]["table_columns"]]
        assert names == ["BIGINT", "VARCHAR"]


def test_a_primary_key_is_shown_though_the_driver_does_not_ask_for_it(shop: Served) -> None:
    with shop.adbc(READER) as connection:
        [catalog] = connection.adbc_get_objects(depth="columns", table_name_filter="keyed").read_all().to_pylist()
        [keyed] = [table for each in catalog["catalog_db_schemas"] for table in each["db_schema_tables"]]
        constraints = [each["constraint_column_names"] for each in keyed["table_constraints"]]
        assert constraints in ([], [["b", "a"]])  # the driver of 1.13 never sends CommandGetPrimaryKeys
        [(_, text)] = asked(connection, "SHOW CREATE TABLE keyed")
        assert 'PRIMARY KEY ("b", "a")' in text
        rows = shop.read(described("CommandGetPrimaryKeys", table="keyed")).to_pylist()
        assert [row["column_name"] for row in rows] == ["b", "a"]


def test_a_schema_is_chosen_by_a_header_or_an_option(shop: Served) -> None:
    with shop.adbc(READER, schema="stock") as connection:
        assert asked(connection, "SELECT name FROM items") == [("other",)]
        assert asked(connection, "SELECT count(*) FROM keyed") == [(0,)]  # main is looked in as well
    kwargs = {
        "adbc.flight.sql.authorization_header": f"Bearer {READER}",
        "adbc.flight.sql.rpc.with_cookie_middleware": "true",
    }
    with dbapi.connect(shop.service.location, db_kwargs=kwargs, autocommit=True) as connection:
        assert (connection.adbc_current_catalog, connection.adbc_current_db_schema) == ("lake", "main")
        connection.adbc_current_db_schema = "stock"
        assert connection.adbc_current_db_schema == "stock"
        assert asked(connection, "SELECT name FROM items") == [("other",)]
        with pytest.raises(dbapi.Error):
            connection.adbc_current_db_schema = "nowhere"


def test_a_user_may_give_the_token_as_password(shop: Served) -> None:
    kwargs = {"username": "anybody", "password": READER}
    with dbapi.connect(shop.service.location, db_kwargs=kwargs, autocommit=True) as connection:
        assert asked(connection, "SELECT 1") == [(1,)]
    with pytest.raises(dbapi.Error, match="unauthenticated"):
        dbapi.connect(shop.service.location, db_kwargs=kwargs | {"password": "wrong"}, autocommit=True)


def test_a_query_is_read_in_partitions(shop: Served) -> None:
    with shop.adbc(READER) as connection, connection.cursor() as cursor:
        partitions, schema = cursor.adbc_execute_partitions("SELECT id FROM items")
        assert schema is not None and schema.names == ["id"]
        found = []
        for partition in partitions:
            cursor.adbc_read_partition(partition)
            found += cursor.fetchall()
            cursor.adbc_read_partition(partition)  # a ticket can be read again: the query then runs again
            assert len(cursor.fetchall()) == len(found)
    assert sorted(found) == [(id_,) for id_ in range(100)]


def test_a_query_is_cancelled(shop: Served) -> None:
    with shop.adbc(READER) as connection, connection.cursor() as cursor:
        timer = threading.Timer(0.5, cursor.adbc_cancel)
        timer.start()
        with pytest.raises(dbapi.Error, match=r"(?i)cancel"):
            cursor.execute("SELECT count(*) FROM range(1000000000) a, range(100) b WHERE hash(a.range, b.range) = 1")
            cursor.fetchall()
        timer.join()
        assert asked(connection, "SELECT 1") == [(1,)]


def test_rows_of_a_transaction_outlive_its_next_statement(shop: Served) -> None:
    with shop.adbc(READER, autocommit=False) as connection, connection.cursor() as first:
        first.execute("SELECT range AS i FROM range(200000)")
        reader = first.fetch_record_batch()
        read = reader.read_next_batch().num_rows
        assert asked(connection, "SELECT count(*) FROM items") == [(100,)]
        connection.commit()
        assert read + reader.read_all().num_rows == 200_000


def test_a_statement_that_returns_rows_changes_them_once(shop: Served) -> None:
    shop.lake.sql("CREATE TABLE returned (i BIGINT)")
    with shop.adbc() as connection, connection.cursor() as cursor:
        partitions, _ = cursor.adbc_execute_partitions("INSERT INTO returned VALUES (1), (2) RETURNING i * 10 AS ten")
        cursor.adbc_read_partition(partitions[0])
        assert sorted(cursor.fetchall()) == [(10,), (20,)]
        with pytest.raises(dbapi.Error, match="not_permitted"):
            cursor.adbc_read_partition(partitions[0])
            cursor.fetchall()
    assert shop.lake.table("returned").count() == 2
