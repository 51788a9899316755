"""The second lock, the lists behind the first, and what a safe session is made of."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake import Safety
from quacklake.core.duckdb_versions import IS_2
from quacklake.core.engines.duckdb import connections
from quacklake.core.engines.duckdb.expressions import _SINCE_2, FUNCTIONS
from quacklake.errors import ConfigError, NotPermittedError, ReadOnlyError
from services.s3 import S3Server
from tests.sql.safety.conftest import Place

#: Functions of DuckDB that are known and left out: they reach settings, files, time or DuckDB's insides.
_LEFT_OUT = frozenset(
    """
    combine current_connection_id current_query current_query_id current_setting current_transaction_id currval finalize
    format_type get_block_size getvariable json_deserialize_sql json_serialize_plan json_serialize_sql nextval
    parse_duckdb_log_message pg_get_constraintdef pg_get_viewdef pg_sleep remap_struct setseed sleep_ms stats
    txid_current variant_bytes_to_variant variant_to_parquet_variant vector_type write_log
    """.split()  # noqa: SIM905
)
#: Of those that came with 2.0: comparisons and casts, which a tree has otherwise, states of aggregates, sequences.
_LEFT_OUT_SINCE_2 = frozenset(
    """
    != < <= = > >= __between __cast bitstring_byte_comparable combine_aggr index_key setval to_aggregate_state
    variant_comparator
    """.split()  # noqa: SIM905
) | {"is distinct from", "is not distinct from"}
_ELSEWHERE = {"unnest", "unlist", "percentile_cont", "percentile_disc"}


def test_every_function_of_duckdb_is_allowed_or_left_out_on_purpose() -> None:
    with duckdb.connect() as connection:
        query = "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN (?, ?, ?, ?)"
        known = {name for (name,) in connection.execute(query, ["scalar", "aggregate", "macro", "window"]).fetchall()}
    named = {name for name in known if not name.startswith(("__internal_", "icu_collate_", "collate_"))}
    assert named - FUNCTIONS == (_LEFT_OUT | _LEFT_OUT_SINCE_2 if IS_2 else _LEFT_OUT)
    # those that the parser knows by other names
    assert FUNCTIONS - known - (frozenset() if IS_2 else _SINCE_2) == _ELSEWHERE


@pytest.mark.parametrize(
    "statement",
    [
        "FROM read_text('{canary}')",
        "FROM '{data}/numbers.csv'",
        "FROM glob('{data}/*')",
        "COPY (SELECT 1) TO '{data}/out.csv'",
        "ATTACH '{data}/x.db'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET memory_limit = '100GB'",
        "LOAD httpfs",
        "FROM read_text('{files}/../canary.txt')",
        "FROM read_text('{files}/link')",
    ],
)
def test_duckdb_itself_refuses_what_would_pass_the_first_lock(
    safe: quacklake.Session, place: Place, statement: str
) -> None:
    safe.sql("SELECT 1")
    link = place.home / "files" / "link"
    if not link.exists():
        link.symlink_to(place.home / "canary.txt")
    before = place.state()
    for connection in (safe.connection, safe.attachments.planner):
        with pytest.raises(duckdb.Error, match=r"disabled|locked"):
            connection.execute(place.filled(statement)).fetchall()
    assert place.state() == before


def test_a_safe_session_spills_into_a_private_folder_that_goes_with_it(lake: quacklake.Lake) -> None:
    session = quacklake.session(safety=Safety(max_memory="30MB", max_spill="1GB", threads=1))
    session.attach(lake, "lake")
    folder = session.connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
    assert Path(folder).stat().st_mode & 0o077 == 0
    rows = session.sql("SELECT max(h) FROM (SELECT hash(range) AS h FROM range(3_000_000) ORDER BY h DESC OFFSET 1)")
    assert rows.fetchone() is not None
    session.close()
    assert not Path(folder).exists()


def test_lakes_are_attached_before_the_first_statement(lake: quacklake.Lake, tmp_path: Path) -> None:
    with (
        quacklake.connect(f"sqlite:///{tmp_path}/other.db", data_path=tmp_path / "other") as other,
        quacklake.session(safety=Safety()) as session,
    ):
        session.attach(lake, "lake")
        session.sql("SELECT 1")
        session.attach(lake, "again")
        with pytest.raises(ConfigError, match="attach all lakes first"):
            session.attach(other, "other")
        assert session.cursor().sql("SELECT count(*) FROM again.t").fetchone() == (22,)


def test_rows_can_be_changed_where_that_is_allowed_and_nothing_else(tmp_path: Path) -> None:
    with (
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake,
        quacklake.session(safety=Safety(read_only=False)) as session,
    ):
        lake.sql("CREATE TABLE t (id INTEGER, name VARCHAR)")
        session.attach(lake, "lake")
        session.use("lake")
        assert session.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b') RETURNING id").fetchall() == [(1,), (2,)]
        assert session.sql("UPDATE t SET name = upper(name) WHERE id = 1").rowcount == 1
        session.sql("MERGE INTO t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
        assert session.sql("SELECT * FROM t").fetchall() == [(1, "A")]
        version = lake.current_snapshot()
        for statement in (
            "INSERT INTO t SELECT 1, content FROM read_text('/etc/passwd')",
            "INSERT INTO memory.main.t VALUES (1, 'a')",
            "UPDATE t SET name = (SELECT content FROM read_text('/etc/passwd'))",
            "DELETE FROM t WHERE name = getvariable('x')",
            "DELETE FROM t RETURNING current_setting('threads')",
            "DELETE FROM t RETURNING (SELECT count(*) FROM '/etc/passwd.csv')",
            "MERGE INTO t USING (FROM '/etc/passwd') s ON true WHEN MATCHED THEN DELETE",
            "CREATE TABLE u (a INTEGER)",
            "DROP TABLE t",
            "COPY t FROM '/etc/passwd'",
            "CALL lake.expire_snapshots()",
        ):
            with pytest.raises(NotPermittedError):
                session.sql(statement)
        assert lake.current_snapshot() == version


def test_a_lake_that_is_read_only_stays_so(place: Place) -> None:
    with (
        quacklake.connect(place.url, read_only=True) as lake,
        quacklake.session(safety=Safety(read_only=False)) as session,
    ):
        session.attach(lake, "lake")
        with pytest.raises(ReadOnlyError):
            session.sql("DELETE FROM lake.t")


@pytest.mark.parametrize(
    "limits",
    [{"timeout": "soon"}, {"timeout": 0}, {"max_rows": -1}, {"max_rows": "10"}, {"max_memory": "much"}, {"threads": 0}],
)
def test_a_limit_that_makes_no_sense_is_refused(limits: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Safety(**limits)  # type: ignore[arg-type]


def test_the_limits_of_a_server_can_be_changed_one_by_one() -> None:
    limits = Safety.server(timeout="5s", max_rows=None)
    assert (limits.read_only, limits.seconds, limits.max_rows, limits.result_bytes) == (True, 5.0, None, 100_000_000)


def _answers(lake: quacklake.Lake) -> list[tuple[object, ...]]:
    """Return what a safe session reads from a lake with files, deletes and inlined rows."""
    lake.sql("CREATE TABLE t AS SELECT range AS id, {'a': range} AS s FROM range(100)")
    lake.sql("DELETE FROM t WHERE id BETWEEN 10 AND 49; INSERT INTO t VALUES (1000, {'a': 1})")
    with quacklake.session(safety=Safety()) as session:
        session.attach(lake, "lake")
        for statement in ("FROM read_text('/etc/passwd')", "FROM glob('s3://*')", "FROM 's3://b/x.parquet'"):
            with pytest.raises(NotPermittedError):
                session.sql(statement)
        for elsewhere in ("/etc/passwd", "s3://elsewhere/x"):
            with pytest.raises(duckdb.Error, match="disabled"):
                session.connection.execute("FROM read_text(?)", [elsewhere])
        return session.sql("SELECT count(*), max(id), sum(s.a) FROM lake.t WHERE id > 5").fetchall()


@pytest.mark.parametrize("keys", [True, False], ids=["httpfs", "arrow"])
def test_a_sealed_session_reads_a_lake_in_an_object_store(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: bool
) -> None:
    if not keys:  # then DuckDB goes through Arrow's file system
        monkeypatch.setattr(connections, "load_httpfs", lambda _: False)
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db",
        data_path=f"{s3_bucket}/lake",
        s3_endpoint=s3_server.url,
        s3_access_key=s3_server.access_key,
        s3_secret_key=s3_server.secret_key,
        s3_region=s3_server.region,
    ) as lake:
        assert _answers(lake) == [(55, 1000, 3756)]


def test_a_sealed_session_reads_an_encrypted_lake_and_tells_no_keys(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", encrypted=True) as lake:
        assert _answers(lake) == [(55, 1000, 3756)]
