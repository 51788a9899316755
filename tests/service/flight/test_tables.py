"""Tables through plain Flight are what the in-process reader reads, each row once."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from quacklake.errors import CommitConflict
from quacklake.service.flight.failures import to_status
from tests.seeds import SEED
from tests.service.flight.conftest import ADMIN, READER, WRITER, Served, command, options, path

_TYPES = {
    "bo": "true::BOOLEAN",
    "i1": "(-128)::TINYINT",
    "i2": "(-32768)::SMALLINT",
    "i4": "(-2147483648)::INTEGER",
    "i8": "(-9223372036854775808)::BIGINT",
    "u1": "255::UTINYINT",
    "u2": "65535::USMALLINT",
    "u4": "4294967295::UINTEGER",
    "u8": "18446744073709551615::UBIGINT",
    "hu": "(2**53)::HUGEINT",
    "uh": "(2**53)::UHUGEINT",
    "fl": "1.5::FLOAT",
    "dou": "'nan'::DOUBLE",
    "d9": "1.25::DECIMAL(9,2)",
    "d38": "12345678901234567890.123456789::DECIMAL(38,9)",
    "da": "DATE '0001-01-01'",
    "ti": "TIME '23:59:59.999999'",
    "ts": "TIMESTAMP '1969-12-31 23:59:59.123456'",
    "ts_s": "TIMESTAMP_S '2024-02-29 12:00:00'",
    "ts_ms": "TIMESTAMP_MS '2024-02-29 12:00:00.123'",
    "ts_ns": "TIMESTAMP_NS '2024-02-29 12:00:00.123456789'",
    "tz": "TIMESTAMPTZ '2024-02-29 12:00:00.5+02'",
    "iv": "INTERVAL '1 year 2 days 3 seconds'",
    "te": "'žluťoučký 🦆'::VARCHAR",
    "bl": "'\\x00\\xFF'::BLOB",
    "uu": "'0f0e0d0c-0b0a-0908-0706-050403020100'::UUID",
    "js": """'{"a": [1, null]}'::JSON""",
    "li": "[1, NULL, 3]::INTEGER[]",
    "ll": "[['a'], [], NULL]::VARCHAR[][]",
    "st": "{'a': 1, 'b': {'c': ['x', NULL]}}::STRUCT(a INTEGER, b STRUCT(c VARCHAR[]))",
    "ma": "MAP {'k': 1.5, 'l': NULL}::MAP(VARCHAR, DOUBLE)",
}


@pytest.fixture(scope="module")
def typed(served: Served) -> Served:
    columns = ", ".join(f"{value} AS {name}" for name, value in _TYPES.items())
    nulls = ", ".join(["NULL"] * len(_TYPES))
    served.lake.sql(f"CREATE TABLE typed AS SELECT {columns}")
    served.lake.sql(f"INSERT INTO typed VALUES ({nulls})")
    served.lake.sql(f"INSERT INTO typed SELECT {columns} FROM range(20)")
    served.lake.sql("CREATE TABLE empty AS FROM typed LIMIT 0")
    return served


def rows(table: pa.Table) -> list[str]:
    """The rows of a table as sorted texts."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", ["typed", "empty"])
def test_every_type_goes_through_a_scan_and_a_query_unchanged(typed: Served, name: str) -> None:
    scanned = typed.read(path("main", name))
    known = typed.lake.table(name).to_arrow()
    assert scanned.schema.equals(known.schema) and rows(scanned) == rows(known)
    assert typed.info(path("main", name)).schema.equals(known.schema)
    asked = typed.sql(f"FROM {name}")
    expected = typed.lake.sql(f"FROM {name}").to_arrow()
    assert asked.schema.equals(expected.schema) and rows(asked) == rows(expected)


def test_every_type_comes_back_as_it_was_sent(typed: Served) -> None:
    known = typed.lake.table("typed").to_arrow()
    typed.lake.create_table("sent", typed.lake.table("typed").schema)
    answer = typed.put("sent", known.to_batches())
    assert answer == {"rows": known.num_rows, "snapshot": typed.lake.current_snapshot(), "repeated": False}
    assert rows(typed.lake.table("sent").to_arrow()) == rows(known)


def test_a_result_without_columns_of_its_own_names_has_those_of_the_query(served: Served) -> None:
    info = served.info(command("SELECT 1 AS a, 2 AS a, NULL AS b WHERE false"))
    [table] = served.parts(info)
    assert info.schema.names == table.schema.names == ["a", "a", "b"] and table.num_rows == 0


@pytest.mark.parametrize("given", [[1, "x"], {"n": 1, "t": "x"}])
def test_parameters_are_values(served: Served, given: Any) -> None:
    text = "SELECT ? + 1 AS n, ? AS t" if isinstance(given, list) else "SELECT $n + 1 AS n, $t AS t"
    assert served.sql(text, parameters=given).to_pylist() == [{"n": 2, "t": "x"}]


def test_a_version_a_tag_or_a_time_is_read_as_it_was(served: Served) -> None:
    served.lake.sql("CREATE TABLE aged AS SELECT 1 AS i")
    then = served.lake.current_snapshot()
    served.lake.tag("then")
    served.lake.sql("INSERT INTO aged SELECT 2")
    text = "SELECT sum(i)::INTEGER AS s FROM aged"
    assert served.sql(text).to_pylist() == [{"s": 3}]
    assert served.sql(text, version=then).to_pylist() == [{"s": 1}]
    assert served.sql(text, version="then").to_pylist() == [{"s": 1}]
    past = flight.FlightDescriptor.for_command(f'{{"table": "aged", "version": {then}}}')
    assert served.read(past).to_pylist() == [{"i": 1}]
    with pytest.raises(pa.ArrowInvalid, match="together"):
        served.sql(text, version=then, timestamp="2020-01-01")
    with pytest.raises(flight.FlightUnauthorizedError, match="not_permitted"):
        served.sql("DELETE FROM aged", WRITER, version=then)
    with pytest.raises(pa.ArrowKeyError, match="not_found"):
        served.sql(text, timestamp="1970-01-01T00:00:00Z")


@pytest.mark.parametrize("round_", range(4))
def test_the_endpoints_of_a_random_table_are_the_table_once(served: Served, round_: int) -> None:
    chance = random.Random(f"{SEED} {round_}")
    name = f"random_{round_}"
    served.lake.sql(f"CREATE TABLE {name} (id BIGINT, word VARCHAR)")
    table = served.lake.table(name)
    if chance.random() < 0.5:
        table.set_partitioned_by("bucket(3, id)")
    for step in range(chance.randint(4, 9)):
        what = chance.choice(["append", "append", "inline", "delete", "update", "rename"])
        count = chance.randint(6, 60) if what == "append" else chance.randint(1, 4)
        if what in ("append", "inline"):
            ids = [chance.randint(0, 99) for _ in range(count)]
            table.append(pa.table({"id": pa.array(ids, pa.int64()), table.columns[1]: [f"w{id_}" for id_ in ids]}))
        elif what == "delete":
            table.delete(f"id % 7 = {step % 7}")
        elif what == "update":
            table.update({"id": step}, f"id % 5 = {step % 5}")
        else:
            table.rename_column(table.columns[1], f"word_{step}")
    info = served.info(path("main", name))
    assert info.total_records == -1
    known = table.to_arrow()
    for _ in range(chance.randint(0, 3)):
        what = chance.choice(["append", "inline", "delete", "update", "rename"])
        if what in ("append", "inline"):
            count = 40 if what == "append" else 2
            table.append(pa.table({"id": pa.array(range(count), pa.int64()), table.columns[1]: ["late"] * count}))
        elif what == "delete":
            table.delete(f"id % 2 = {chance.randint(0, 1)}")
        elif what == "update":
            table.update({"id": -1}, f"id % 3 = {chance.randint(0, 2)}")
        else:
            table.rename_column(table.columns[1], "late")
    assert rows(pa.concat_tables(served.parts(info))) == rows(known)


def test_tickets_stay_good_when_later_deletes_replace_the_delete_files_they_would_read(served: Served) -> None:
    served.lake.sql("CREATE TABLE thinned (i BIGINT)")
    table = served.lake.table("thinned")
    for number in range(3):
        table.append(pa.table({"i": pa.array(range(number * 10, number * 10 + 10), pa.int64())}))
    table.delete("i % 5 = 0")
    info = served.info(path("thinned"))
    assert len(info.endpoints) == 3
    for rest in (1, 2, 3):
        table.delete(f"i % 5 = {rest}")
        assert sorted(pa.concat_tables(served.parts(info))["i"].to_pylist()) == [i for i in range(30) if i % 5]
    table.rewrite_data_files(delete_threshold=0.0)
    assert sorted(pa.concat_tables(served.parts(info))["i"].to_pylist()) == [i for i in range(30) if i % 5]
    assert sorted(served.read(path("thinned"))["i"].to_pylist()) == list(range(4, 30, 5))


def _kept(served: Served, name: str) -> tuple[flight.FlightInfo, list[int]]:
    """Make a table of files, inlined rows and deletes; return its endpoints and rows, before some more deletes."""
    served.lake.sql(f"CREATE TABLE {name} (i BIGINT)")
    table = served.lake.table(name)
    for number in range(3):
        table.append(pa.table({"i": pa.array(range(number * 10, number * 10 + 10), pa.int64())}))
        table.append(pa.table({"i": pa.array([100 + number], pa.int64())}))
    table.delete("i % 5 = 0")
    info = served.info(path(name))
    table.delete("i % 5 = 1")
    return info, [*(i for i in range(30) if i % 5), 101, 102]


def test_tickets_are_right_after_upkeep_that_leaves_their_files(served: Served) -> None:
    info, known = _kept(served, "kept")
    served.lake.table("kept").rewrite_data_files(delete_threshold=0.0)
    assert sorted(pa.concat_tables(served.parts(info))["i"].to_pylist()) == known


def test_tickets_are_refused_after_inlined_rows_became_a_file(served: Served) -> None:
    info, _ = _kept(served, "flushed")
    served.lake.table("flushed").flush_inlined_data()
    with pytest.raises(flight.FlightUnavailableError, match="get_flight_info again"):
        served.parts(info)


def test_tickets_of_an_expired_snapshot_find_nothing(served: Served) -> None:
    info, _ = _kept(served, "expired")
    served.lake.expire_snapshots(versions=[served.lake.current_snapshot() - 1])
    with pytest.raises(pa.ArrowKeyError, match="not_found"):
        served.parts(info)


def test_endpoints_are_one_snapshot_while_others_commit(served: Served) -> None:
    served.lake.sql("CREATE TABLE busy (batch BIGINT)")
    table = served.lake.table("busy")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            table.append(pa.table({"batch": pa.array([number] * 10, pa.int64())}))
            if number % 3 == 2:
                table.delete(f"batch = {number - 1}")
            number += 1

    table.append(pa.table({"batch": pa.array([-1] * 10, pa.int64())}))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            found = [value for part in served.parts(served.info(path("busy"))) for value in part["batch"].to_pylist()]
            counts = {batch: found.count(batch) for batch in found}
            assert set(counts.values()) == {10}
    finally:
        stop.set()
        writer.join()


def test_files_that_were_compacted_in_between_are_never_read_twice_or_left_out(served: Served) -> None:
    served.lake.sql("CREATE TABLE moved (i BIGINT)")
    table = served.lake.table("moved")
    for number in range(4):
        table.append(pa.table({"i": pa.array(range(number * 10, number * 10 + 10), pa.int64())}))
    info = served.info(path("moved"))
    assert len(info.endpoints) == 4
    table.merge_adjacent_files()
    with pytest.raises(flight.FlightUnavailableError, match=r"(?s)commit\.conflict.*get_flight_info again"):
        served.parts(info)
    assert sorted(served.read(path("moved"))["i"].to_pylist()) == list(range(40))
    assert isinstance(to_status(CommitConflict("x")), flight.FlightUnavailableError)


def test_a_table_is_named_by_its_path_in_any_way(served: Served) -> None:
    served.lake.create_schema("odd.schema")
    served.lake.sql('CREATE TABLE "odd.schema"."a ""table" AS SELECT 7 AS i')
    for descriptor in (path("odd.schema", 'a "table'), path('"odd.schema"."a ""table"')):
        assert served.read(descriptor).to_pylist() == [{"i": 7}]
    assert served.read(path('"a ""table"'), schema="odd.schema").to_pylist() == [{"i": 7}]
    for wrong in (path(), path(""), path("a", "b", "c"), path("a", "")):
        with pytest.raises(pa.ArrowInvalid):
            served.info(wrong)


def test_the_listing_has_each_table_with_its_columns(served: Served) -> None:
    with served.client() as client:
        found = list(client.list_flights(options=options(READER)))
        named = {tuple(part.decode() for part in info.descriptor.path): info.schema for info in found}
        assert {f"{schema}.{name}" for schema, name in named} == set(served.lake.tables())
        assert all(info.total_records == -1 and not info.endpoints for info in found)
        assert list(client.list_flights(b"no such schema", options=options(READER))) == []
        schema = client.get_schema(path("main", "aged"), options=options(READER)).schema
        assert schema.equals(named["main", "aged"])


def test_the_schema_of_a_query_is_told_without_running_it(served: Served) -> None:
    with served.client() as client:
        endless = "SELECT 1::SMALLINT AS n, ? AS p FROM range(10000000000) a, range(10000000000) b"
        schema = client.get_schema(command(endless, parameters=[1]), options=options(READER)).schema
        assert schema.names == ["n", "p"] and schema.field("n").type == pa.int16()
        with pytest.raises(pa.ArrowInvalid, match="no query"):
            client.get_schema(command("DELETE FROM aged"), options=options(READER))
        for sql, name in (
            ("SHOW TABLES", "name"),
            ("DESCRIBE aged", "column_name"),
            ("EXPLAIN FROM aged", "explain_key"),
        ):
            assert client.get_schema(command(sql), options=options(READER)).schema.names[0] == name


def test_another_lake_is_not_found(served: Served) -> None:
    with pytest.raises(pa.ArrowKeyError, match="no such lake"):
        served.read(command("SELECT 1"), database="other")
    assert served.read(command("SELECT 1 AS i"), database="lake").to_pylist() == [{"i": 1}]
    info = served.info(command("SELECT 1 AS i"), ADMIN)
    assert [part.to_pylist() for part in served.parts(info, ADMIN, database="lake")] == [[{"i": 1}]]
