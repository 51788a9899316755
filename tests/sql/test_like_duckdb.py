"""Statements on a lake do what they do on plain DuckDB tables: the same rows, column names and types, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quacklake.core.duckdb_versions import IS_2
from quacklake.errors import InputError, SqlError
from tests.prove.twins import Twins

TABLES = ("t", "s", "s1.t")


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    found = Twins(tmp_path_factory.mktemp("twins"))
    found.prepare(
        "CREATE TABLE t (id INT, a INT, b VARCHAR DEFAULT 'dd')",
        "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')",
        "CREATE TABLE s (id INT, a INT, b VARCHAR)",
        "INSERT INTO s VALUES (2, 20, 's2'), (3, 30, 's3')",
        "CREATE SCHEMA s1",
        "CREATE TABLE s1.t (id INT, a INT, b VARCHAR)",
        "INSERT INTO s1.t VALUES (1, 10, 'p'), (3, 30, 'q')",
    )
    yield found
    found.close()


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN NOT MATCHED THEN INSERT",
        "WHEN NOT MATCHED THEN INSERT *",
        "WHEN NOT MATCHED THEN INSERT BY NAME",
        "WHEN NOT MATCHED THEN INSERT BY POSITION",
        "WHEN NOT MATCHED THEN INSERT BY NAME *",
        "WHEN NOT MATCHED THEN INSERT * BY NAME",
        "WHEN NOT MATCHED THEN INSERT (id, a)",
        "WHEN NOT MATCHED THEN INSERT (a, id)",
        "WHEN NOT MATCHED THEN INSERT (id)",
        "WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, DEFAULT)",
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1)",
        "WHEN NOT MATCHED THEN INSERT (id,a,b) VALUES (id,a,b)",
        "WHEN NOT MATCHED THEN INSERT VALUES (id,a,b)",
        "WHEN NOT MATCHED THEN INSERT VALUES (t.id,1,'x')",
        "WHEN NOT MATCHED THEN INSERT DEFAULT VALUES",
        "WHEN NOT MATCHED and a>25 THEN INSERT",
        "WHEN MATCHED and a>1 THEN UPDATE SET a=5",
        "WHEN MATCHED THEN UPDATE SET a = a+1",
        "WHEN MATCHED THEN UPDATE SET a = s.a",
        "WHEN MATCHED THEN UPDATE SET a = t.a+s.a, b = DEFAULT",
        "WHEN MATCHED THEN UPDATE",
        "WHEN MATCHED THEN UPDATE SET *",
        "WHEN MATCHED THEN UPDATE BY NAME",
        "WHEN MATCHED THEN UPDATE BY POSITION",
        "WHEN MATCHED THEN UPDATE SET * BY NAME",
        "WHEN MATCHED THEN UPDATE BY NAME set *",
        "WHEN MATCHED THEN UPDATE SET (a,b) = (s.a, s.b)",
        "WHEN MATCHED THEN UPDATE SET (a,b) = (select 7, 'sub')",
        "WHEN MATCHED THEN UPDATE SET (a,b)=row(1,'r')",
        "WHEN MATCHED THEN UPDATE SET a = a is distinct from 1",
        "WHEN MATCHED THEN UPDATE SET a = t.a is distinct from 1",
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = a+100",
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "WHEN NOT MATCHED BY SOURCE and a=1 THEN DELETE",
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a=s.a",
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a=t.a",
        "WHEN NOT MATCHED BY TARGET THEN INSERT",
        "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN ERROR",
        "WHEN NOT MATCHED THEN ERROR concat('bad ', s.id)",
        "WHEN NOT MATCHED THEN ERROR concat('bad ', id)",
        "WHEN MATCHED THEN UPDATE SET a=s.a WHEN NOT MATCHED THEN INSERT RETURNING *",
        "WHEN MATCHED THEN UPDATE SET a=s.a WHEN NOT MATCHED THEN INSERT RETURNING merge_action, *",
        "WHEN MATCHED THEN UPDATE SET a=s.a WHEN NOT MATCHED THEN INSERT RETURNING merge_action, id, a+1",
        "WHEN MATCHED THEN DELETE RETURNING *, merge_action",
        "WHEN MATCHED THEN DELETE RETURNING t.id",
        "WHEN MATCHED THEN UPDATE SET id = 5, id = 6",
        "WHEN MATCHED THEN UPDATE SET zz=5",
        "WHEN MATCHED THEN UPDATE SET t.a=5",
        "WHEN MATCHED THEN UPDATE SET a=5 WHEN MATCHED THEN DELETE",
        "WHEN MATCHED and s.a>25 THEN UPDATE SET a=5 WHEN MATCHED THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET a=(select max(a) from s)",
        "WHEN MATCHED THEN UPDATE SET a=(select max(x.a) from s x where x.id>=t.id)",
    ],
)
def test_clauses_of_merge_do_the_same(twins: Twins, clauses: str) -> None:
    twins.undone(f"MERGE INTO t USING s ON t.id = s.id {clauses}", None, TABLES)


@pytest.mark.parametrize(
    "statement",
    [
        "MERGE INTO t USING s on id = 2 WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING s USING (id) WHEN MATCHED THEN UPDATE SET a=s.a WHEN NOT MATCHED THEN INSERT",
        "MERGE INTO t USING s USING (id) WHEN MATCHED THEN UPDATE SET a=id",
        "MERGE INTO t USING s on t.id = (select max(id) from s) WHEN MATCHED THEN DELETE",
        "MERGE INTO t as g USING s as h on g.id=h.id WHEN MATCHED THEN UPDATE SET a=h.a WHEN NOT MATCHED THEN INSERT VALUES (h.id, h.a, h.b)",
        "MERGE INTO t USING s1.t on main.t.id=s1.t.id WHEN MATCHED THEN UPDATE SET a=s1.t.a",
        "MERGE INTO t USING s1.t on t.id=s1.t.id WHEN MATCHED THEN UPDATE SET a=s1.t.a",
        "MERGE INTO t USING s1.t USING (id) WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT",
        "MERGE INTO t USING s h(x,y,z) on t.id=h.x WHEN NOT MATCHED THEN INSERT",
        "MERGE INTO t USING s h(x,y,z) on t.id=h.x WHEN NOT MATCHED THEN INSERT BY NAME",
        "MERGE INTO t USING s h(x,y,z) on t.id=x WHEN MATCHED THEN UPDATE SET a = y",
        "MERGE INTO t USING (select id, a from s) x USING (id) WHEN NOT MATCHED THEN INSERT BY NAME WHEN MATCHED THEN UPDATE BY NAME",
        "MERGE INTO t USING (select id, a from s) x USING (id) WHEN NOT MATCHED THEN INSERT",
        "MERGE INTO t USING (select id, a from s) x USING (id) WHEN MATCHED THEN UPDATE",
        "MERGE INTO t USING (select 'zz' as b, 9 as id) x USING (id) WHEN NOT MATCHED THEN INSERT BY NAME",
        "MERGE INTO t USING (select 5 as zz, 9 as id) x USING (id) WHEN NOT MATCHED THEN INSERT BY NAME",
        "MERGE INTO t USING (select 5 as zz, 2 as id) x USING (id) WHEN MATCHED THEN UPDATE BY NAME",
        "with c as (select 2 as id, 7 as a) MERGE INTO t USING c on t.id=c.id WHEN MATCHED THEN UPDATE SET a=c.a",
        "MERGE INTO t USING (VALUES (2,'v')) x(id,b) USING (id) WHEN MATCHED THEN UPDATE SET b=x.b",
        "MERGE INTO t USING range(2,4) r(id) USING(id) WHEN NOT MATCHED THEN INSERT (id) VALUES (id)",
        "MERGE INTO t USING t as x on t.id=x.id+1 WHEN MATCHED THEN UPDATE SET a=x.a",
        "MERGE INTO t USING s on false WHEN NOT MATCHED THEN INSERT",
    ],
)
def test_merges_do_the_same(twins: Twins, statement: str) -> None:
    twins.undone(statement, None, TABLES)


@pytest.mark.skipif(IS_2, reason="DuckDB 2.0 refuses a row that is matched twice")
@pytest.mark.parametrize(
    "statement",
    [
        "MERGE INTO t USING s on t.id < s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING (select 2 as id union all select 2) x on t.id=x.id WHEN MATCHED THEN UPDATE SET a=9",
        "MERGE INTO t USING (select 2 as id union all select 2) x on t.id=x.id WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING s on true WHEN MATCHED THEN DELETE",
    ],
)
def test_a_row_that_is_matched_twice_counts_twice(twins: Twins, statement: str) -> None:
    twins.undone(statement, None, TABLES)


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        ("UPDATE t SET a = ?, id = ? WHERE id = ?", [77, 5, 1]),
        ("UPDATE t SET b = ?, a = ? + a, id = ? WHERE id < ? RETURNING *", ["k", 1, 9, 2]),
        ("UPDATE t SET b = $2, a = $1, id = $1 WHERE id = $3", [7, "k", 2]),
        ("UPDATE t SET b = $name, id = $Id WHERE id = $old", {"name": "n", "id": 8, "old": 1}),
        ("WITH c AS (SELECT ?::INT AS x) UPDATE t SET a = ?, id = c.x FROM c WHERE t.id = ?", [50, 51, 1]),
        ("DELETE FROM t USING (SELECT ?::INT AS x) y WHERE a = ? AND id = x", [1, 1]),
        ("INSERT INTO t (a, id) SELECT ?, ? UNION ALL SELECT ?, ?", [1, 2, 3, 4]),
        ("INSERT INTO t VALUES (?, ?, ?), (?, ?, ?) RETURNING a, id", [1, 2, "x", 3, 4, "y"]),
        (
            "MERGE INTO t USING (SELECT ?::INT AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET b = ?, a = ?"
            " WHEN NOT MATCHED THEN INSERT (a, id) VALUES (?, s.id)",
            [1, "m", 7, 8],
        ),
        (
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = ?"
            " WHEN NOT MATCHED THEN INSERT VALUES (?, ?, ?)",
            [7, 8, 9, "k"],
        ),
        ("SELECT ?, id, ? FROM t WHERE a = ?", ["x", 1.5, 2]),
        ("SELECT (SELECT ? FROM s LIMIT 1), ? FROM t WHERE a IN (SELECT a - ? FROM s1.t)", [1, 2, 9]),
        ("SELECT ?, $1 FROM t", [1]),
        ("SELECT ?2, ? FROM t", {"2": 1, "3": 2}),
        ("SELECT $1, $a FROM t", [1]),
        ("SELECT $a, ? FROM t", {"a": 1, "1": 2}),
        ("SELECT ? FROM t", []),
        ("SELECT ? FROM t", [1, 2]),
        ("SELECT $2 FROM t", [1, 2]),
        ("SELECT 1 FROM t", [1]),
        ("SELECT $a FROM t", {"b": 1}),
        ("DELETE FROM t WHERE id = ? RETURNING id, ?", [1, 2]),
        ("UPDATE t SET a = 1 RETURNING ?", [1]),
        ("INSERT INTO t VALUES (1, 2, 'x') RETURNING ?", [1]),
    ],
)
def test_parameters_are_counted_in_the_text_that_was_given(twins: Twins, statement: str, params: Any) -> None:
    twins.undone(statement, params, TABLES)


def test_parameters_of_prepared_statements_are_counted_too(twins: Twins) -> None:
    twins.prepare("PREPARE change AS UPDATE t SET a = ?, id = ? WHERE id = ?")
    twins.undone("EXECUTE change(77, 5, 1)", None, TABLES)
    twins.prepare("PREPARE named AS UPDATE t SET b = $b, id = $a WHERE id = $c")
    twins.undone("EXECUTE named(a := 70, c := 1, b := 'n')", None, TABLES)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT main.t.id, s1.t.id FROM main.t, s1.t",
        "SELECT t.id FROM main.t, s1.t",
        "SELECT id FROM main.t, s1.t",
        "SELECT lake.s1.t.id, lake.main.t.a FROM main.t, s1.t",
        "SELECT lake.s1.t.id + 1 AS n FROM s1.t",
        "SELECT main.t AS r FROM main.t, s1.t",
        "SELECT * FROM main.t JOIN s1.t USING (id)",
        "SELECT main.t.a, s1.t.b FROM main.t JOIN s1.t ON main.t.id = s1.t.id WHERE s1.t.a > main.t.a ORDER BY s1.t.a",
        "SELECT id, (SELECT sum(s1.t.a) FROM s1.t WHERE s1.t.id = main.t.id) AS n FROM main.t",
        "SELECT id, (SELECT sum(t.a) FROM s1.t WHERE t.id = main.t.id) AS n FROM main.t",
        "SELECT id FROM main.t WHERE EXISTS (SELECT 1 FROM s1.t WHERE s1.t.id = main.t.id)",
        "SELECT id FROM t WHERE EXISTS (FROM s1.t WHERE t.id = main.t.id)",
        "WITH t AS (SELECT 5 AS id) SELECT t.id, s1.t.id FROM t, s1.t",
        "WITH c AS (SELECT s1.t.id FROM s1.t) SELECT main.t.id, c.id FROM main.t, c",
        "SELECT x.id, t.id FROM main.t AS x, s1.t",
        "SELECT count(*), main.t.b FROM main.t, s1.t GROUP BY main.t.b HAVING max(s1.t.a) > 1",
        "SELECT sum(s1.t.a) OVER (ORDER BY main.t.id, s1.t.id) AS n FROM main.t, s1.t",
        "SELECT main.t.id FROM main.t UNION ALL SELECT s1.t.id FROM s1.t",
        "SELECT COLUMNS('^id$') FROM main.t, s1.t",
        "UPDATE main.t SET a = s1.t.a FROM s1.t WHERE main.t.id = s1.t.id RETURNING main.t.a, t.b",
        "UPDATE t SET a = s1.t.a FROM s1.t WHERE t.id = s1.t.id",
        "UPDATE s1.t SET a = main.t.a, b = main.t.b FROM main.t WHERE main.t.id = s1.t.id",
        "UPDATE main.t SET a = (SELECT max(s1.t.a) FROM s1.t WHERE s1.t.id >= main.t.id)",
        "DELETE FROM main.t USING s1.t WHERE main.t.id = s1.t.id RETURNING *",
        "DELETE FROM s1.t WHERE id IN (SELECT id FROM main.t WHERE main.t.id = s1.t.id)",
        "INSERT INTO main.t SELECT s1.t.* FROM s1.t JOIN main.t ON main.t.id = s1.t.id",
        "INSERT INTO s1.t SELECT main.t.id, s1.t.a, main.t.b FROM s1.t JOIN main.t USING (id) RETURNING s1.t.id",
    ],
)
def test_tables_of_one_name_in_two_schemas_are_told_apart(twins: Twins, statement: str) -> None:
    twins.undone(statement, None, TABLES)


@pytest.mark.parametrize("name", ["update", "delete", "insert", "merge", "values", "replace", "copy", "set"])
def test_a_common_table_may_be_called_like_a_statement(twins: Twins, name: str) -> None:
    twins.undone(f"WITH {name} AS (SELECT 1 AS id) SELECT * FROM {name} JOIN t USING (id)", None, ())
    twins.undone(f"WITH {name} AS (SELECT 1 AS id) DELETE FROM t USING {name} WHERE t.id = {name}.id", None, TABLES)
    twins.undone(
        f"WITH x AS MATERIALIZED (SELECT 1), {name}(id) AS (FROM x) INSERT INTO t (id) FROM {name}", None, TABLES
    )


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (9, 9, 'z') RETURNING nothing",
        "INSERT INTO t VALUES (9, 9, 'z') RETURNING b::INT",
        "UPDATE t SET a = 5 RETURNING b::INT",
        "DELETE FROM t RETURNING b::INT",
    ],
)
def test_nothing_is_changed_when_what_is_returned_fails(twins: Twins, statement: str) -> None:
    assert twins.same(statement).failed
    twins.same("FROM t")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET a = a IS DISTINCT FROM 1",
        "UPDATE t SET a = a IS NOT DISTINCT FROM 1, b = 'k' WHERE id = 1",
        "UPDATE t SET (a, b) = (id, 'two')",
        "UPDATE t SET id = a, a = id + 10",
        "UPDATE t SET a = id FROM s WHERE t.id = s.id",
        "UPDATE t SET b = extract(year FROM DATE '2020-01-01')",
        "UPDATE t SET b = substring(b FROM 1 FOR 1), a = trim(BOTH '1' FROM '121')::INT",
        "UPDATE t SET a = CASE WHEN a IS DISTINCT FROM 1 THEN 5 ELSE 6 END",
        "UPDATE t SET a = (SELECT max(s.a) FROM s)",
        "UPDATE t SET b = DEFAULT",
        "UPDATE t SET a = 1, a = 2",
        "UPDATE t SET zz = 1",
    ],
)
def test_updates_do_the_same(twins: Twins, statement: str) -> None:
    twins.undone(statement, None, TABLES)


def test_times_with_a_zone_are_read_in_a_transaction_whatever_the_zone_of_the_session_is(twins: Twins) -> None:
    twins.prepare("CREATE TABLE z (i INT, x TIMESTAMPTZ)", "INSERT INTO z VALUES (1, '2020-01-01 00:00:00+00')")
    twins.prepare("SET TimeZone = 'Europe/Berlin'")
    twins.undone("INSERT INTO z VALUES (2, '2020-01-01 00:00:00')", None, ["z"])
    twins.undone("UPDATE z SET i = 5", None, ["z"])
    twins.prepare("SET TimeZone = 'UTC'")


def test_a_condition_of_merge_may_have_a_subquery(twins: Twins) -> None:
    twins.undone(
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.id IN (SELECT id FROM s1.t) THEN DELETE"
        " WHEN MATCHED AND EXISTS (SELECT 1 FROM s1.t AS q WHERE q.id < t.id) THEN UPDATE SET a = (SELECT 5)"
        " WHEN NOT MATCHED AND s.id IN (SELECT id FROM s1.t) THEN INSERT",
        None,
        TABLES,
    )


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT TRY_CAST(main.t.id AS DOUBLE), CAST(s1.t.a AS INTEGER), s1.t.b::HUGEINT IS NULL FROM main.t, s1.t LIMIT 0",
        "SELECT (SELECT max(q.a::DOUBLE) FROM s1.t AS q WHERE q.id = t.id), true, 5. FROM t",
    ],
)
def test_titles_have_types_as_duckdb_writes_them(twins: Twins, statement: str) -> None:
    twins.same(statement)


@pytest.mark.parametrize(
    "statement", ["SELECT CAST(5. AS DECIMAL(9,2)) FROM t", "SELECT a::DECIMAL(9, 2) + 1e0 FROM t"]
)
def test_titles_of_safe_sessions_have_types_as_duckdb_writes_them(twins: Twins, statement: str) -> None:
    assert twins.mine(statement, safe=True) == twins.same(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "FROM query('FROM t')",
        "FROM QUERY('FROM main.t;') AS q(x, y)",
        "SELECT q.* FROM query('SELECT id, ''it''''s'' AS w FROM t WHERE a > 1') AS q",
        "SELECT sum(id) FROM query('FROM query_table(''t'') UNION ALL FROM s')",
        "FROM system.main.query('FROM t JOIN s USING (id)')",
        "FROM query('FROM ' || 's1' || '.t')",
        "WITH t AS (SELECT 9 AS a) FROM query('FROM t')",
        "WITH t AS (SELECT 9 AS a) FROM query_table('t')",
        "FROM query_table('s1.t')",
        'FROM query_table(\'"lake"."main".t\')',
        "SELECT x.b FROM query_table('t') AS x WHERE x.id = 1",
        "FROM query_table(['t', 's'])",
        "FROM query_table(['t', 's'], true)",
        "SELECT id, (SELECT count(*) FROM query('FROM s') AS o WHERE o.id = t.id) FROM t",
        "SELECT t.id FROM query_table('t')",
        "FROM query('FROM t; FROM s')",
        "FROM query('DELETE FROM t')",
        "FROM query('')",
        "FROM query('FROM nothing')",
        "FROM query(['t'])",
        "FROM query('FROM t', 'FROM s')",
        "FROM query(text := 'FROM t')",
        "FROM query_table('a.b.c.d')",
        "FROM query_table('(SELECT 1)')",
        "FROM query_table([])",
        "FROM query_table(['t', NULL])",
        "FROM query_table('t', by_name := true)",
    ],
)
def test_texts_that_stand_for_tables_are_read_as_tables(twins: Twins, statement: str) -> None:
    twins.same(statement)


def test_texts_that_stand_for_tables_may_be_parameters_but_not_in_views(twins: Twins) -> None:
    twins.same("FROM query_table(?)", ["t"])
    twins.same("FROM query('SELECT id FROM ' || $name)", {"name": "s"})
    with pytest.raises(InputError, match='uses "query"'):
        twins.session.sql("CREATE VIEW w AS FROM query('FROM t')")
    twins.undone("INSERT INTO t FROM query_table('s')", None, TABLES)


def test_texts_that_name_themselves_end(twins: Twins) -> None:
    twins.session.sql("SET VARIABLE own = 'FROM query(getvariable(''own''))'")
    with pytest.raises(SqlError, match="inside of each other"):
        twins.session.sql("FROM query(getvariable('own'))")
