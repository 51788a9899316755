"""The same behaviour on every version of DuckDB, and files that other versions can open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake.core.duckdb_versions import IS_2, VERSION, arrow_reader, arrow_table, connect, first_row, run
from quacklake.errors import ConfigError, ConstraintError, SqlError
from tests.duckdbs import other_version

_ELSEWHERE = """
import sys, duckdb, quacklake
with quacklake.connect(sys.argv[1]) as lake:
    table = lake.table("t")
    rows = table.to_pylist()
    table.append([{"id": len(rows) + 1, "v": duckdb.__version__}])
    table.flush_inlined_data()
    print(duckdb.__version__, len(rows))
"""


def _storage_version(path: Path) -> str:
    with duckdb.connect(str(path), read_only=True) as connection:
        query = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE path IS NOT NULL AND NOT internal"
        return str(connection.execute(query).fetchall()[0][0])


@pytest.fixture
def lake(tmp_path: Path) -> quacklake.Lake:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        yield lake


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_duckdb_catalog_is_used_by_turns_with_another_version(tmp_path: Path) -> None:
    version, environment = other_version()
    url = f"duckdb:///{tmp_path}/lake.duckdb"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 1, "v": duckdb.__version__}])
    for rows in (1, 3):
        answer = subprocess.run(
            [sys.executable, "-W", "error", "-c", _ELSEWHERE, url], env=environment, capture_output=True, text=True
        )
        assert answer.stdout.split() == [version, str(rows)], answer.stderr
        with quacklake.connect(url) as lake:
            lake.table("t").append([{"id": rows + 2, "v": duckdb.__version__}])
            lake.table("t").flush_inlined_data()
            assert lake.table("t").count() == rows + 2
    assert _storage_version(tmp_path / "lake.duckdb") == "v1.5.0+"


def test_the_form_of_a_new_duckdb_catalog_is_a_setting(tmp_path: Path) -> None:
    for given, found in (("v1.4.0", "v1.4.0+"), ("latest", "v2.0.0+" if IS_2 else "v1.5.0+")):
        path = tmp_path / f"{given}.duckdb"
        quacklake.connect(f"duckdb:///{path}", data_path=tmp_path / "data", duckdb_storage_version=given).close()
        assert _storage_version(path) == found
        quacklake.connect(f"duckdb:///{path}").close()
        assert _storage_version(path) == found


def test_a_form_that_duckdb_does_not_know_is_refused_and_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "lake.duckdb"
    with pytest.raises(ConfigError, match=r"v9\.9\.9"):
        quacklake.connect(f"duckdb:///{path}", data_path=tmp_path / "data", duckdb_storage_version="v9.9.9")
    assert not path.exists()


# -- what statements mean ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lambda_", ["x -> x + 1", "lambda x: x + 1"])
def test_both_spellings_of_lambdas_work_in_queries_views_and_macros(lake: quacklake.Lake, lambda_: str) -> None:
    lake.sql("CREATE TABLE t AS SELECT [1, 2] AS l")
    lake.sql(f"CREATE VIEW v AS SELECT list_transform(l, {lambda_}) AS m FROM t")
    lake.sql(f"CREATE MACRO inc(l) AS list_transform(l, {lambda_})")
    assert lake.sql(f"SELECT list_transform(l, {lambda_}) FROM t").fetchall() == [([2, 3],)]
    assert lake.sql("SELECT m FROM v").fetchall() == [([2, 3],)]
    assert lake.sql("SELECT inc(l) FROM t").fetchall() == [([2, 3],)]
    assert lake.table("t").to_pylist(where=f"list_transform(l, {lambda_})[1] = 2") == [{"l": [1, 2]}]


def test_null_is_an_integer_where_no_type_is_given(lake: quacklake.Lake) -> None:
    assert lake.sql("SELECT NULL AS a").to_arrow().schema.field("a").type == pa.int32()
    lake.sql("CREATE TABLE t AS SELECT [] AS l, NULL AS n")
    assert [field.type for field in lake.table("t").to_arrow().schema] == [pa.list_(pa.int32()), pa.int32()]
    lake.create_table("u", [{"a": 1, "b": None}])
    assert lake.table("u").to_pylist() == [{"a": 1, "b": None}]


def test_a_statement_that_is_not_understood_leaves_its_transaction_as_it_was(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INTEGER)")
    with quacklake.session() as session:
        session.attach(lake, "lake")
        session.use("lake")
        session.sql("BEGIN")
        session.sql("INSERT INTO t VALUES (1)")
        for wrong in ("SELECT * FROM nope", "SELEC 1", "SELECT nope FROM t", "SELECT nope(1)", "FROM temp.nope"):
            with pytest.raises(quacklake.QuacklakeError):
                session.sql(wrong)
        session.sql("INSERT INTO t VALUES (2)")
        session.sql("COMMIT")
    assert lake.sql("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]


def test_an_error_of_a_row_is_raised_where_the_statement_runs(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t AS SELECT 'x' AS a")
    with pytest.raises(ConstraintError, match="Conversion"):
        lake.sql("SELECT a::INTEGER FROM t")
    assert lake.sql("SELECT a FROM t").fetchall() == [("x",)]


def test_a_name_of_four_parts_is_refused(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INTEGER)")
    for statement in ("FROM lake.x.main.t", "SELECT lake.x.main.abs(1)", "SELECT 1::lake.x.main.INTEGER"):
        with pytest.raises(SqlError):
            lake.sql(statement)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_a_result_that_is_half_read_stands_in_nobodys_way(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t AS SELECT range AS id FROM range(300000)")
    with quacklake.session() as session:
        session.attach(lake, "lake")
        half = session.sql("SELECT id FROM lake.t ORDER BY id")
        assert half.fetchone() == (0,)
        session.use("lake")
        assert session.sql("SELECT count(*) FROM t").fetchone() == (300000,)
        assert half.fetchone() == (1,)
        assert len(half.fetchall()) == 299998


def test_answers_are_read_whole_and_leave_the_connection_free() -> None:
    with connect() as connection:
        assert first_row(connection, "FROM range(3)") == (0,)
        assert first_row(connection, "FROM range(0)") is None
        assert arrow_table(connection, "SELECT $1 + 1 AS v", [1]).to_pydict() == {"v": [2]}
        assert run(connection, "CREATE TABLE t (a INTEGER)", batch_rows=10)[0] == ("BIGINT",)
        types, reader = run(connection, "SELECT 1::UTINYINT AS a, 'x' AS b", batch_rows=10)
        assert types == ("UTINYINT", "VARCHAR") and reader is not None
        assert reader.read_all().num_rows == 1
        connection.register("frame", pa.table({"a": [1]}))
        assert arrow_reader(connection, "FROM frame", batch_rows=5).read_all().num_rows == 1
        assert arrow_reader(connection, "FROM range($n)", {"n": 20}, batch_rows=5).read_next_batch().num_rows == 5


def test_the_version_is_that_of_the_library() -> None:
    assert ".".join(map(str, VERSION)) == duckdb.__version__
    assert (VERSION[0] >= 2) is IS_2


def test_a_change_of_rows_inside_a_query_is_refused(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INTEGER)")
    before = lake.current_snapshot()
    for change in ("INSERT INTO t VALUES (1)", "DELETE FROM t", "UPDATE t SET a = 2", "INSERT INTO lake.main.t FROM t"):
        with pytest.raises(SqlError):
            lake.sql(f"WITH d AS ({change} RETURNING *) SELECT * FROM d")
    assert lake.current_snapshot() == before


def test_what_2_0_made_an_error_or_a_function_is_as_in_1_5(lake: quacklake.Lake) -> None:
    lake.create_table("t", [{"a": 7, "b": 0}])
    assert lake.sql("SELECT a // b, a % b, if(b = 0, 'none', 'some') FROM t").fetchall() == [(None, None, "none")]
    assert lake.table("t").count("a // b IS NULL AND if(b = 0, true, false)") == 1
