"""Import from a MariaDB server: its own texts, and those that DuckDB has for the same values, are the judge."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import duckdb
import pymysql
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import ConnectorError, ConnectorUnavailableError, InputError
from tests.seeds import chance
from tests.transfer.conftest import texts

TYPES = [
    """CREATE TABLE everything (
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, b BOOLEAN, i1 TINYINT UNSIGNED, i3 MEDIUMINT NOT NULL DEFAULT 7,
        f FLOAT, d DOUBLE, n DECIMAL(38,10), t TEXT DEFAULT 'it''s', v VARCHAR(10) CHARACTER SET latin1, c CHAR(4),
        e ENUM('low', 'it''s "high"'), s SET('a', 'b'), bin VARBINARY(10), bl BLOB, day DATE, ti TIME(6), ts DATETIME(6),
        tz TIMESTAMP(3) NULL, y YEAR, bits BIT(12), j JSON, u UUID, made BIGINT GENERATED ALWAYS AS (i3 * 2) STORED,
        `Odd ``name%s` TEXT DEFAULT (lower('X')), UNIQUE (i3)) COMMENT 'one of each'""",
    "ALTER TABLE everything MODIFY t TEXT DEFAULT 'it''s' COMMENT 'it''s text'",
    r"""INSERT INTO everything (id, b, i1, i3, f, d, n, t, v, c, e, s, bin, bl, day, ti, ts, tz, y, bits, j, u) VALUES
        (18446744073709551615, TRUE, 255, -8388608, 0.1, 1.7976931348623157e308, 1234567890123456789012345678.0123456789,
         'a\nb,"c"\t☃\0', 'ü', 'ab', 'low', 'a,b', x'00ff27', x'', '9999-12-31', '23:59:59.999999',
         '1000-01-01 00:00:00.000001', '2024-06-01 12:00:00.123', 2024, b'101', '{"a": [1.10, null]}',
         '9b5e598b-1e2d-4f82-9123-37f0493f49ac'),
        (2, NULL, NULL, 2, -3.402823e38, 5e-324, NULL, '', NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL, NULL, NULL),
        (3, FALSE, 0, 3, 16777217, 0.1, -0.0000000001, NULL, ' ', '', 'it''s "high"', 'b', x'00', x'5c27', '0001-01-01',
         '00:00:00', '9999-12-31 23:59:59.999999', '1970-01-01 00:00:01', 1901, b'0', 'null', NULL)""",
    "CREATE TABLE `drop table; -- %d` (`a``b` INTEGER)",
    "INSERT INTO `drop table; -- %d` VALUES (1), (NULL)",
    "CREATE VIEW seen AS SELECT 1 AS one",
    "CREATE TABLE old (a INTEGER) ENGINE = MyISAM",
]


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    at = urlsplit(url)
    with (
        pymysql.connect(
            host=at.hostname,
            port=at.port or 0,
            user=at.username,
            password=at.password or "",
            database=at.path[1:],
            autocommit=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET time_zone = '+00:00'")
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def test_every_value_of_a_database_comes_over(lake: quacklake.Lake, mysql_url: str) -> None:
    run(mysql_url, *TYPES)
    name = urlsplit(mysql_url).path[1:]
    report = lake.import_from(mysql_url)
    assert {table.table: table.rows for table in report.tables} == {
        f"{name}.drop table; -- %d": 2,
        f"{name}.everything": 3,
        f"{name}.old": 0,
    }
    left = {part.what for part in report.left_out}
    odd = f"{name}.everything.Odd `name%s"
    assert left == {
        "view seen",
        f"{name}.old",
        f"{name}.everything",
        f"{name}.everything.id",
        f"{name}.everything.made",
        odd,
    }
    everything = lake.table(f"{name}.everything")
    assert (everything.comment, everything.column_comments) == ("one of each", {"t": "it's text"})
    assert everything.primary_key == ("id",)
    defaults = {column.name: column.default for column in everything.info.schema.columns if column.default is not None}
    assert defaults == {"i3": "7", "t": "'it''s'"}
    shown = (
        "id, b, i1, i3, f::DOUBLE, d, n::VARCHAR, t, v, c, e, s, hex(bin), hex(bl), day::VARCHAR, ti::VARCHAR,"
        ' ts::VARCHAR, tz::VARCHAR, y, bits, j, u::VARCHAR, made, "Odd `name%s"'
    )
    rows = lake.sql(f"SELECT {shown} FROM {name}.everything ORDER BY id DESC").fetchall()
    assert rows[0] == (
        2**64 - 1, 1, 255, -8388608, 0.10000000149011612, 1.7976931348623157e308, "1234567890123456789012345678.0123456789",
        'a\nb,"c"\t☃\0', "ü", "ab", "low", "a,b", "00FF27", "", "9999-12-31", "23:59:59.999999",
        "1000-01-01 00:00:00.000001", "2024-06-01 12:00:00.123+00", 2024, 5, '{"a": [1.10, null]}',
        "9b5e598b-1e2d-4f82-9123-37f0493f49ac", -16777216, "x",
    )  # fmt: skip
    assert rows[1][:8] == (3, 0, 0, 3, 16777216.0, 0.1, "-0.0000000001", None)
    assert rows[2][4:8] == (-3.4028230607370965e38, 5e-324, None, "")
    assert {table.state for table in lake.import_from(mysql_url).tables} == {"already imported"}


def test_what_cannot_come_over_exactly_is_refused(lake: quacklake.Lake, mysql_url: str) -> None:
    run(
        mysql_url,
        "SET sql_mode = ''",
        "CREATE TABLE zero (a DATE)",
        "INSERT INTO zero VALUES ('0000-00-00')",
        "CREATE TABLE long_time (a TIME)",
        "INSERT INTO long_time VALUES ('-100:00:00')",
        "CREATE TABLE wide (n DECIMAL(65,2))",
        "INSERT INTO wide VALUES (1.5)",
        "CREATE TABLE places (p POINT)",
    )
    for name, hint in (("wide", "decimal=VARCHAR"), ("places", "point=VARCHAR")):
        with pytest.raises(InputError, match="cannot be imported") as refused:
            lake.import_from(mysql_url, include=[name])
        assert hint in str(refused.value.hint)
    for name in ("zero", "long_time"):
        with pytest.raises(ConnectorError, match=f"{name} cannot be imported"):
            lake.import_from(mysql_url, include=[name])
    assert lake.tables() == []
    lake.import_from(mysql_url, "mapped", include=["long_time"], map_types={"time": "VARCHAR"})
    assert lake.table("mapped").to_pylist() == [{"a": "-100:00:00"}]


def test_random_rows_come_over_as_duckdb_has_them_also_after_a_death(lake: quacklake.Lake, mysql_url: str) -> None:
    drawn = chance("rows of mysql")
    with duckdb.connect() as connection:
        query = f"""SELECT i AS id, nullif(hash(i + {drawn.randint(0, 10**6)}) % 1000000, 7)::BIGINT AS n,
            (hash(i) % 100000 / 64)::DOUBLE AS d, chr((32 + hash(i) % 90)::INTEGER) || i || '\\' AS t,
            TIMESTAMP '2000-01-01' + to_microseconds((hash(i) % 1000000000000000)::BIGINT) AS ts,
            ((hash(i) % 2000000)::INTEGER / 100)::DECIMAL(12,2) AS p FROM range({drawn.randint(1, 20_000)}) r(i)"""
        rows = connection.execute(f"SELECT id, n, d, t, ts::VARCHAR, p::VARCHAR FROM ({query})").fetchall()
    run(mysql_url, "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, d DOUBLE, t TEXT, ts DATETIME(6), p DECIMAL(12,2))")
    at = urlsplit(mysql_url)
    with (
        pymysql.connect(
            host=at.hostname,
            port=at.port or 0,
            user=at.username,
            password=at.password or "",
            database=at.path[1:],
            autocommit=True,
        ) as server,
        server.cursor() as cursor,
    ):
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s)", rows)
    with faults.arm(Fault(pattern="import.commit.*", at=drawn.randint(1, 2))), pytest.raises(FaultInjected):
        lake.import_from(mysql_url, "t")
    lake.import_from(mysql_url, "t")
    assert texts(lake.sql("SELECT id, n, d, t, ts::VARCHAR, p::VARCHAR FROM t").fetchall()) == texts(rows)


def test_a_server_that_is_not_there_is_named_without_its_password(lake: quacklake.Lake) -> None:
    with pytest.raises(ConnectorUnavailableError) as failed:
        lake.import_from("mysql://me:hidden@127.0.0.1:1/db")
    assert "hidden" not in str(failed.value)
    with pytest.raises(InputError, match="names no database"):
        lake.import_from("mariadb://me:hidden@127.0.0.1:1/")
    lake.create_table("t", [{"a": 1}])
    with pytest.raises(InputError, match="not a target"):
        lake.export_to("mysql://me:hidden@127.0.0.1:1/db")
