"""Statements that try to see what is hidden: in rows, errors, plans, listings, statistics, history and views."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import quacklake
from quacklake import Lake
from quacklake.core.sql.safety import Safety
from quacklake.core.sql.session import Session
from quacklake.errors import QuacklakeError
from tests.access.secrets import CANARY, MARKS, USERS, shown
from tests.seeds import some

_HIDDEN = ("people", "vault", "deep.well", "vault_view", "everybody", "telling", "totals", "lake.main.people")
#: Queries over a relation, each tried on all of them.
_OVER = """
FROM {}
SELECT count(*) FROM {}
SELECT min(COLUMNS(*)), max(COLUMNS(*)) FROM {}
DESCRIBE {}
SUMMARIZE {}
SHOW CREATE TABLE {}
SELECT stats(COLUMNS(*)) FROM {} LIMIT 1
EXPLAIN FROM {}
EXPLAIN ANALYZE SELECT count(*) FROM {}
EXPLAIN (FORMAT JSON) FROM {} WHERE id > 3
WITH c AS (FROM {}) FROM c
WITH c AS MATERIALIZED (FROM {}) SELECT count(*) FROM c
SELECT (SELECT count(*) FROM {})
SELECT * FROM (SELECT 1) WHERE EXISTS (FROM {})
FROM {} UNION ALL FROM {}
FROM {} AT (VERSION => 3)
FROM {} AT (VERSION => 4)
FROM {} AT (TIMESTAMP => now())
SELECT count(*) FROM {} TABLESAMPLE 100%
SELECT list(t) FROM {} t
SELECT to_json(t) FROM {} t
SELECT t FROM {} t
SELECT histogram(t::VARCHAR) FROM {} t
SELECT row_number() OVER (), * FROM {}
SELECT * EXCLUDE (id) FROM {}
SELECT COLUMNS('s.*') FROM {}
PIVOT {} ON region IN ('EU', 'XXCANARY') USING count(*)
UNPIVOT (SELECT note FROM {}) ON note
INSERT INTO {} SELECT * FROM {} RETURNING *
DELETE FROM {} RETURNING *
"""
_OTHERS = f"""
FROM people WHERE CAST(note AS INTEGER) = 3
SELECT * FROM people WHERE CAST(ssn AS INTEGER) = 3
SELECT * FROM people WHERE error(note)
SELECT * FROM people WHERE CASE WHEN region <> 'EU' THEN error(note) ELSE true END
SELECT * FROM people WHERE region <> 'EU' AND error(ssn)
SELECT * FROM people WHERE region <> 'EU' OR error('seen ' || region)
SELECT CASE WHEN region = 'XX{CANARY[0:3]}' THEN error(region) END FROM people
SELECT * FROM people WHERE 1 / (id - 3) > 0 AND error(id::VARCHAR || note)
SELECT * FROM people WHERE strptime(note, '%Y') > now()
SELECT * FROM people WHERE json_extract(note, '$.a') = 1
SELECT * FROM people WHERE CAST(note AS UUID) IS NULL
SELECT * FROM people WHERE regexp_full_match('x', note)
SELECT * FROM people WHERE note = ANY (SELECT note FROM people WHERE region <> 'EU')
SELECT * FROM people ORDER BY CAST(note AS DATE)
SELECT * FROM people GROUP BY ALL HAVING CAST(max(note) AS INTEGER) > 0
SELECT * FROM people QUALIFY CAST(note AS INTEGER) > row_number() OVER ()
SELECT * FROM people p JOIN people q ON CAST(p.note AS INTEGER) = q.id
SELECT * FROM people p JOIN people q ON p.id = q.id AND error(q.note)
SELECT * FROM people p LEFT JOIN people q ON p.id + 1 = q.id
SELECT * FROM people p, LATERAL (SELECT max(note) FROM people q WHERE q.id > p.id)
SELECT * FROM people ASOF JOIN (SELECT 3 AS id) x ON people.id >= x.id
SELECT salary FROM people
SELECT max(salary), sum(salary), avg(salary) FROM people
SELECT id FROM people WHERE salary > 1
SELECT id FROM people ORDER BY salary
SELECT people.salary FROM people
SELECT p.* FROM people p WHERE p.salary IS NOT NULL
SELECT id FROM people WHERE ssn LIKE '{CANARY[:3]}%'
SELECT count(*) FROM people WHERE ssn >= 'C' AND ssn < 'D'
SELECT DISTINCT ssn FROM people
SELECT ssn, count(*) FROM people GROUP BY ssn
SELECT hash(ssn), md5(ssn), ssn[4:] FROM people
SELECT rowid, snapshot_id, * FROM people
SELECT filename, file_row_number, file_index FROM people
SELECT count(*) FROM people WHERE region = 'EU' OR region = 'XX'
SELECT approx_count_distinct(note), quantile(id, 0.9) FROM people
SELECT arg_max(note, id), arg_min(note, id), first(note), last(note) FROM people
SELECT string_agg(note), bit_xor(id), mode(region) FROM people
WITH RECURSIVE r AS (SELECT 0 AS id UNION SELECT p.id FROM people p, r WHERE p.id = r.id + 1) FROM r
FROM table_changes('people', 0, 20)
FROM table_insertions('people', 0, 20)
FROM table_deletions('people', 0, 20)
FROM ducklake_table_changes('lake', 'main', 'people', 0, 20)
SELECT count(*) FROM table_changes('people', 0, 4)
SELECT * FROM table_changes('people', 0, 4) WHERE CAST(note AS INTEGER) = 1
SELECT * FROM table_changes('people', 0, 4) WHERE error(note)
SELECT change_type, count(*) FROM table_changes('people', 0, 4) GROUP BY ALL
EXPLAIN FROM table_changes('people', 0, 4)
FROM table_changes('vault', 0, 4)
FROM table_deletions('vault', 0, 12)
FROM table_info()
FROM snapshots()
FROM lake.snapshots()
FROM ducklake_snapshots('lake')
FROM list_files('people')
FROM ducklake_list_files('lake', 'people')
FROM options()
FROM settings()
FROM current_snapshot()
CALL lake.list_files('people')
CALL lake.set_option('target_file_size', '1MB')
CALL lake.merge_adjacent_files()
CALL lake.expire_snapshots(older_than => now())
CALL lake.flush_inlined_data()
CALL ducklake_set_commit_message('lake', 'a', 'b')
FROM __ducklake_metadata_lake.ducklake_table_column_stats
FROM __ducklake_metadata_lake.quacklake_tokens
FROM ducklake_table_column_stats
FROM information_schema.tables
FROM information_schema.columns
FROM information_schema.views
FROM information_schema.schemata
FROM information_schema.table_constraints
FROM duckdb_tables()
FROM duckdb_columns()
FROM duckdb_views()
FROM duckdb_schemas()
FROM duckdb_constraints()
FROM duckdb_functions()
FROM duckdb_temporary_files()
FROM duckdb_databases()
FROM pragma_storage_info('people')
FROM pragma_table_info('vault')
FROM duckdb_secrets()
FROM sqlite_master
FROM pg_catalog.pg_class
SHOW TABLES
SHOW ALL TABLES
SHOW TABLES FROM lake
SHOW TABLES FROM lake.deep
SHOW SCHEMAS
DESCRIBE HISTORY people
SHOW CREATE VIEW telling
SHOW MATERIALIZED VIEWS
REFRESH MATERIALIZED VIEW totals
SHOW PIPELINES
USE deep
USE lake.deep
FROM of_vault()
FROM lake.main.of_vault()
FROM temp.main.qls_0_visible
FROM qls_1_visible
FROM temp.qls_2
CREATE TABLE stolen AS FROM people
CREATE VIEW stolen AS FROM vault
CREATE TEMP TABLE stolen AS FROM people
CREATE MACRO m() AS TABLE FROM vault
COPY people TO '/tmp/stolen.csv'
COPY (FROM people) TO '/tmp/stolen.parquet'
EXPORT DATABASE '/tmp/stolen'
ATTACH ':memory:' AS other
INSERT INTO people SELECT * FROM people
INSERT INTO people BY NAME SELECT 1 AS id, 'XX' AS region
INSERT INTO people VALUES (1, 'EU', (SELECT max(secret) FROM vault), 0, '') RETURNING *
UPDATE people SET note = 'x' RETURNING *
UPDATE people SET note = (SELECT max(secret) FROM vault) RETURNING *
UPDATE people SET id = id WHERE error(note)
UPDATE vault SET secret = secret RETURNING *
DELETE FROM people WHERE region <> 'EU' RETURNING *
DELETE FROM people USING vault WHERE error(secret)
DELETE FROM vault RETURNING *
TRUNCATE vault
MERGE INTO people USING (SELECT 3 AS id) s ON people.id = s.id WHEN MATCHED THEN UPDATE SET note = ssn RETURNING *
MERGE INTO people USING (SELECT 3 AS id) s ON people.id = s.id WHEN MATCHED THEN ERROR note
MERGE INTO people USING vault ON error(vault.secret) WHEN MATCHED THEN DELETE
MERGE INTO vault USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE RETURNING *
SET disabled_optimizers = 'filter_pushdown'
PRAGMA enable_profiling
PREPARE p AS FROM people
EXECUTE p
CHECKPOINT
VACUUM people
ANALYZE people
LOAD sqlite
FROM read_parquet('{{data}}/**/*.parquet')
FROM sqlite_scan('{{data}}/../lake.db', 'quacklake_tokens')
FROM '{{data}}/main/people/*.parquet'
SELECT getvariable('x'), current_setting('home_directory')
FROM query('FROM vault')
FROM query_table('vault')
CREATE USER eve
GRANT SELECT ON people TO bob
DROP POLICY europe ON people
"""


def statements() -> Iterator[str]:
    """Yield every statement once."""
    for line in _OVER.strip().splitlines():
        for name in _HIDDEN:
            yield line.replace("{}", name)
    yield from _OTHERS.strip().splitlines()


_GUESS = re.compile(r"did you mean [^?]*\?|Candidate bindings:[^\n\\]*|hint: ?")


def without_guesses(text: str, *names: str) -> str:
    """Return what is told without similar names, which are among the visible ones, and without some names."""
    text = _GUESS.sub("", text)
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "!")
    return re.sub(r"\s+|None", "", text)


def told(session: Session | Lake, sql: str) -> str:
    """Return all that a statement tells a user, in rows or in an error."""
    try:
        return repr(session.sql(sql).fetchall())
    except QuacklakeError as error:
        return shown(error)


@pytest.mark.parametrize("user", USERS)
def test_no_statement_shows_what_is_hidden(user: str, own_secrets: Lake) -> None:
    lake = own_secrets.as_principal(user)
    data = own_secrets.data_path.rstrip("/")
    hidden = own_secrets.sql("SELECT count(*) FROM people WHERE region <> 'EU'").fetchall()
    for sql in some(statements(), 20, "escapes", user):
        text = told(lake, sql.replace("{data}", data))
        found = next((mark for mark in MARKS if mark in text.replace(sql, "")), None)
        assert found is None or found in sql, f"{sql}: {text}"
    # and nobody has changed what was hidden from them
    assert own_secrets.sql("SELECT count(*) FROM people WHERE region <> 'EU'").fetchall() == hidden
    assert own_secrets.table("vault").count() == 31


@pytest.mark.parametrize("user", USERS)
def test_a_safe_session_of_a_service_shows_no_more(user: str, secrets: Lake) -> None:
    with quacklake.session(safety=Safety.server()) as session:
        session.attach(secrets.as_principal(user), "lake")
        session.use("lake")
        for sql in some(statements(), 8, "safe escapes", user):
            text = told(session, sql.replace("{data}", secrets.data_path)).replace(sql, "")
            assert not any(mark in text and mark not in sql for mark in MARKS), f"{sql}: {text}"


def test_an_administrator_sees_everything(secrets: Lake) -> None:
    lake = secrets.as_principal("root")
    assert CANARY in told(lake, "FROM people")
    assert CANARY in told(lake, "FROM vault")
    assert lake.sql("SELECT count(*) FROM people").fetchall() == [(63,)]


@pytest.mark.parametrize("user", USERS)
def test_a_hidden_table_looks_like_a_missing_one(user: str, secrets: Lake) -> None:
    lake = secrets.as_principal(user)
    if user in ("wil", "rea"):
        assert lake.table("vault").count() == 0
        return
    for form in (
        "FROM {}",
        "SELECT count(*) FROM {}",
        "FROM table_changes('{}', 0, 1)",
        "DELETE FROM {}",
        "DESCRIBE {}",
    ):
        for pair in (("vault", "zzzzz"), ("deep.well", "zzzz.well"), ("totals", "zzzzzz")):
            parts = [part for name in pair for part in (name, *name.split("."))]
            hidden, missing = (without_guesses(told(lake, form.replace("{}", name)), *parts) for name in pair)
            assert hidden == missing


def test_a_hidden_column_looks_like_a_missing_one(secrets: Lake) -> None:
    lake = secrets.as_principal("ann")
    for form in ("SELECT {} FROM people", "SELECT id FROM people WHERE {} > 1", "SELECT id FROM people ORDER BY {}"):
        hidden, missing = (without_guesses(told(lake, form.replace("{}", name)), name) for name in ("salary", "zzzzzz"))
        assert hidden == missing
    table = lake.table("people")
    assert table.columns == table.schema.names == ["id", "region", "ssn", "note"]


def test_a_plain_session_does_not_take_the_lake_of_a_principal(secrets: Lake) -> None:
    with quacklake.session() as session, pytest.raises(quacklake.errors.NotPermittedError, match="safe session"):
        session.attach(secrets.as_principal("ann"), "lake")
