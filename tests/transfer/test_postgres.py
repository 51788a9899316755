"""Import from a PostgreSQL server and export to one: its own texts are the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import AlreadyExistsError, ConnectorError, ConnectorUnavailableError, InputError
from tests.transfer.conftest import texts

TYPES = """
    CREATE SCHEMA shop;
    CREATE TYPE shop.mood AS ENUM ('low', 'it''s "high"');
    CREATE DOMAIN shop.cents AS numeric(12,2) CHECK (VALUE >= 0);
    CREATE TABLE shop.everything (
        id bigint PRIMARY KEY, b boolean, i2 smallint, i4 integer NOT NULL DEFAULT 7, f4 real, f8 double precision,
        n numeric(38,10), c shop.cents, t text DEFAULT 'it''s', v varchar(10), p char(4), m shop.mood, bin bytea, d date,
        ti time, ts timestamp, tz timestamptz, iv interval, u uuid, j json, jb jsonb, ia integer[], ta text[], na numeric(5,2)[],
        made bigint GENERATED ALWAYS AS IDENTITY, "Odd ""name" text DEFAULT lower('X'), UNIQUE (i4)
    );
    COMMENT ON TABLE shop.everything IS 'one of each';
    COMMENT ON COLUMN shop.everything.t IS 'it''s text';
    INSERT INTO shop.everything VALUES
        (1, true, -32768, 1, 'NaN', 1.7976931348623157e308, 1234567890123456789012345678.0123456789, 0.01, E'a\\nb,"c"\\t', '', 'ab', 'low',
         '\\x00ff27', '0044-03-15 BC', '23:59:59.999999', '0044-03-15 01:02:03 BC', '2024-06-01 12:00:00.123456+05',
         '1 year -2 months 3 days -04:05:06.789', '9b5e598b-1e2d-4f82-9123-37f0493f49ac', '{"a": 1.10}', '{"a":  [null]}',
         '{1,NULL,3}', ARRAY['a"b', '', NULL, 'NULL', 'x,{y}\\'], '{1.25,-3.00}'),
        (2, NULL, NULL, 2, '-Infinity', 5e-324, NULL, NULL, '', NULL, NULL, NULL, '', 'infinity', NULL, '-infinity', 'infinity',
         '-10 days', NULL, 'null', NULL, '{}', NULL, NULL),
        (3, false, 1, 3, 0.1, 0.1, -0.0000000001, 5, NULL, ' ', NULL, 'it''s "high"', NULL, '9999-12-31', '00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL);
    CREATE TABLE single (x text);
    INSERT INTO single VALUES (NULL), (''), ('\\.'), (NULL), (E'\\n');
    CREATE TABLE parted (k integer, v text) PARTITION BY LIST (k);
    CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
    CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2);
    INSERT INTO parted VALUES (1, 'a'), (2, 'b');
    CREATE TABLE parent (a integer); CREATE TABLE child () INHERITS (parent);
    INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2);
    CREATE VIEW seen AS SELECT 1 AS one;
    CREATE TABLE "empty; DROP TABLE single" (x integer);
"""


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        answer = connection.execute(statement)  # type: ignore[call-overload]
        return answer.fetchall() if answer.description else []


def test_every_value_of_a_database_comes_over_and_goes_back(
    lake: quacklake.Lake, postgres_url: str, postgres_server: Any
) -> None:
    run(postgres_url, TYPES)
    report = lake.import_from(postgres_url)
    assert {table.table: table.rows for table in report.tables} == {
        "public.child": 1,
        "public.empty; DROP TABLE single": 0,
        "public.parent": 1,
        "public.parted": 2,
        "public.single": 5,
        "shop.everything": 3,
    }
    left = {part.what: part.reason for part in report.left_out}
    assert set(left) == {"view public.seen", "shop.everything", "shop.everything.made", 'shop.everything.Odd "name'}
    everything = lake.table("shop.everything")
    assert everything.comment == "one of each"
    assert everything.column_comments == {"t": "it's text"}
    assert everything.primary_key == ("id",)
    defaults = {column.name: column.default for column in everything.info.schema.columns if column.default is not None}
    assert defaults == {"i4": "7", "t": "'it''s'"}
    assert texts(lake.table("public.single").to_arrow().column("x").to_pylist()) == texts([None, "", "\\.", None, "\n"])
    ours = lake.sql(
        "SELECT d::VARCHAR, ts::VARCHAR, tz::VARCHAR, iv::VARCHAR, f4::VARCHAR, f8, hex(bin), ia, ta, na::VARCHAR, j"
        " FROM shop.everything ORDER BY id"
    ).fetchall()
    assert ours[0] == (
        "0044-03-15 (BC)", "0044-03-15 (BC) 01:02:03", "2024-06-01 07:00:00.123456+00", "10 months 3 days -04:05:06.789", "nan",
        1.7976931348623157e308, "00FF27", [1, None, 3], ['a"b', "", None, "NULL", "x,{y}\\"], "[1.25, -3.00]", '{"a": 1.10}',
    )  # fmt: skip
    assert ours[1] == ("infinity", "-infinity", "infinity", "-10 days", "-inf", 5e-324, "", [], None, None, "null")
    with postgres_server.new_database() as other:
        lake.export_to(other, exclude=["empty*"])
        columns = ", ".join(f'"{row[0].replace(chr(34), chr(34) * 2)}"::text' for row in run(postgres_url, """
            SELECT attname FROM pg_attribute WHERE attrelid = 'shop.everything'::regclass AND attnum > 0 ORDER BY attnum"""))  # fmt: skip
        query = f"SELECT {columns} FROM shop.everything ORDER BY id"
        theirs, back = run(postgres_url, query), run(other, query)
        # an interval of months is the same in other words, jsonb has its own, and a char of 4 has blanks
        assert [tuple(v if i not in (10, 17) else None for i, v in enumerate(row)) for row in back] == [
            tuple(v if i not in (10, 17) else None for i, v in enumerate(row)) for row in theirs
        ]
        assert run(
            other,
            "SELECT count(*) FROM shop.everything a WHERE id = 1 AND iv = '1 year -2 months 3 days -04:05:06.789'",
        ) == [(1,)]
        assert texts(run(other, "SELECT x FROM public.single")) == texts(
            run(postgres_url, "SELECT x FROM public.single")
        )
        before = run(other, "SELECT count(*) FROM pg_class")
        with pytest.raises(AlreadyExistsError, match=r"public\.parent"):
            lake.export_to(other, "public.parent")
        lake.sql("INSERT INTO public.parent VALUES (5)")
        with faults.arm(Fault(pattern="export.publish.before")), pytest.raises(FaultInjected):
            lake.export_to(other, "public.parent", replace=True)
        assert run(other, "SELECT count(*) FROM public.parent") == [(1,)]
        lake.export_to(other, "public.parent", replace=True)
        assert run(other, "SELECT count(*) FROM public.parent") == [(2,)]
        assert run(other, "SELECT count(*) FROM pg_class") == before


def test_what_cannot_come_over_exactly_is_refused(lake: quacklake.Lake, postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE TABLE free (n numeric); INSERT INTO free VALUES (1.5); CREATE TABLE net (a inet); INSERT INTO net VALUES ('::1')",
    )
    run(
        postgres_url,
        "CREATE TABLE deep (a text[]); INSERT INTO deep VALUES ('{{a,b},{c,d}}'); CREATE TABLE far (n numeric(5,2)); INSERT INTO far VALUES ('NaN')",
    )
    for name, hint in (("free", "numeric=VARCHAR"), ("net", "inet=VARCHAR")):
        with pytest.raises(InputError, match="cannot be imported") as refused:
            lake.import_from(postgres_url, include=[name])
        assert hint in str(refused.value.hint)
    for name in ("deep", "far"):
        with pytest.raises(ConnectorError, match=f"a value of public.{name} cannot be imported"):
            lake.import_from(postgres_url, include=[name])
    assert lake.tables() == []
    lake.import_from(postgres_url, include=["free", "net"], map_types={"numeric": "DECIMAL(20,5)", "inet": "VARCHAR"})
    assert [str(row["n"]) for row in lake.table("public.free").to_pylist()] == ["1.50000"]
    assert lake.table("public.net").to_pylist() == [{"a": "::1/128"}]


def test_a_policy_that_would_hide_rows_is_an_error(
    lake: quacklake.Lake, postgres_url: str, postgres_server: Any
) -> None:
    role = postgres_server.create_role("reader")
    run(
        postgres_url,
        "CREATE TABLE t (a integer); INSERT INTO t VALUES (1), (2); ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    )
    run(postgres_url, f'CREATE POLICY p ON t USING (a = 1); GRANT SELECT ON t TO "{role}"')
    mine = postgres_url.replace("quacklake@", f"{role}@")
    assert run(mine, "SELECT a FROM t") == [(1,)]
    with pytest.raises(ConnectorError, match="row-level security"):
        lake.import_from(mine)
    assert lake.tables() == []


def test_a_server_that_is_not_there_is_named_without_its_password(lake: quacklake.Lake, tmp_path: Path) -> None:
    with pytest.raises(ConnectorUnavailableError) as failed:
        lake.import_from("postgresql://me:hidden@127.0.0.1:1/db")
    assert "hidden" not in str(failed.value)
    lake.create_table("t", [{"a": 1}])
    with pytest.raises(ConnectorUnavailableError) as failed:
        lake.export_to("postgresql://me:hidden@127.0.0.1:1/db")
    assert "hidden" not in str(failed.value)
