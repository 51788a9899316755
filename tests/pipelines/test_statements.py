"""Sources, sinks and pipelines in SQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import (
    AlreadyExistsError,
    ConfigError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    SqlError,
)
from tests.connectors.sinks import FORMATS, numbers
from tests.pipelines.tables import connect


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as opened:
        opened.sql("CREATE TABLE orders (id BIGINT, region VARCHAR, price DOUBLE)")
        opened.sql("INSERT INTO orders VALUES (1, 'north', 10.0), (2, 'south', 200.0)")
        yield opened


def delta_rows(path: Path) -> list[tuple[object, ...]]:
    """Return the rows of a Delta table: none before its first commit, whose files come before it."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(str(path))
    except TableNotFoundError:
        return []
    return sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())


def until(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sink_with_a_query_is_a_pipeline_that_starts_and_stops(lake: quacklake.Lake, tmp_path: Path) -> None:
    place = tmp_path / "big"
    lake.sql(
        f"CREATE SINK big WITH (type='delta', location='{place}', target_file_size='1MB', every='10 ms')"
        " AS SELECT o.id, o.price FROM orders o WHERE o.price > 100"
    )
    assert lake.sql("SHOW PIPELINES").fetchall()[0][:4] == ("big", "lake", "delta", "created")
    lake.sql("START PIPELINE big")
    with pytest.raises(QuacklakeError, match="runs already"):
        lake.sql("START PIPELINE big")
    until(lambda: len(delta_rows(place)) == 1)
    lake.sql("INSERT INTO orders VALUES (3, 'west', 300.0)")
    until(lambda: len(delta_rows(place)) == 2)
    lake.sql("STOP PIPELINE big")
    assert delta_rows(place) == [(2, 200.0), (3, 300.0)]
    described = dict(lake.sql("DESCRIBE PIPELINE big").fetchall())
    assert described["state"] == "stopped"
    assert int(described["checkpoint"]) >= 1
    lake.sql("DROP PIPELINE big")
    assert lake.sql("SHOW PIPELINES").fetchall() == []


def test_both_spellings_of_options_make_the_same_sink(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql(
        f"CREATE SINK a WITH (connector='delta-lake', 'table.path'='{tmp_path}/a', 'target.file.size'=134217728,"
        " 'write.mode'='upsert', 'merge.key.columns'='id') AS SELECT * FROM orders"
    )
    lake.sql(f"CREATE SINK b WITH (type=delta, location='{tmp_path}/b', mode=upsert, key='id') AS SELECT * FROM orders")
    for name in "ab":
        lake.sql(f"START PIPELINE {name}")
        until(lambda name=name: len(delta_rows(tmp_path / name)) == 2)
        lake.sql(f"STOP PIPELINE {name}")
    assert delta_rows(tmp_path / "a") == delta_rows(tmp_path / "b")


def test_a_source_is_queried_for_a_look(lake: quacklake.Lake, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "t"), lake.table("orders").to_arrow())
    lake.sql(
        f"CREATE SOURCE trades WITH (type='delta', location='{tmp_path}/t', mode='continuous', poll_interval='10 seconds')"
    )
    assert lake.sql("SELECT count(*), sum(price) FROM trades").fetchall() == [(2, 210.0)]
    assert lake.sql("SELECT t.id FROM trades t JOIN orders USING (id) ORDER BY 1").fetchall() == [(1,), (2,)]
    assert lake.sql("SHOW SOURCES").fetchall()[0][:2] == ("trades", "delta")
    assert dict(lake.sql("DESCRIBE SOURCE trades").fetchall())["poll_interval"] == "10 seconds"
    lake.sql("CREATE SINK copy FROM trades WITH (type='lake', table='copied')")
    lake.sql(
        "CREATE SINK joined WITH (type='lake', table='joined') AS SELECT t.id, o.region FROM trades t JOIN orders o USING (id)"
    )
    for name in ("copy", "joined"):
        lake.sql(f"START PIPELINE {name}")
        table = "copied" if name == "copy" else name
        until(lambda table=table: f"main.{table}" in lake.tables() and lake.table(table).count() == 2)
        lake.sql(f"STOP PIPELINE {name}")
    lake.sql("DROP SOURCE trades")
    lake.sql("DROP SOURCE IF EXISTS trades")
    with pytest.raises(QuacklakeError):
        lake.sql("SELECT * FROM trades")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_look_at_a_feed_begins_with_the_first_version(lake: quacklake.Lake, tmp_path: Path, kind: str) -> None:
    form = FORMATS[kind]
    if kind == "delta":
        from deltalake import write_deltalake

        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(tmp_path / "t"), numbers(0, 3), partition_by=["part"], configuration=feed)
    else:
        form.append(tmp_path, 0, 3)
    form.append(tmp_path, 3, 5)
    place = ", ".join(f"{name}='{value}'" for name, value in form.place(tmp_path).items())
    lake.sql(f"CREATE SOURCE feed WITH (type='{kind}', {place}, mode='continuous', change_data_feed=true)")
    expected = [(number, "insert") for number in range(5)]
    assert lake.sql("SELECT id, _change_type FROM feed ORDER BY id").fetchall() == expected
    lake.sql(f"CREATE SOURCE usual WITH (type='{kind}', {place}, change_data_feed=true)")
    assert lake.sql("SELECT count(*) FROM usual").fetchall() == [(5,)]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CREATE SINK s WITH (type='delta', locaton='x') AS SELECT * FROM orders", ConfigError, "needs location"),
        ("CREATE SINK s WITH (type='delta', location='x', modus='a')", ConfigError, "no option 'modus'"),
        ("CREATE SINK s WITH (type='delta', location='x', target_file_size=5)", ConfigError, "of what"),
        ("CREATE SINK s WITH (type='delta', location='x', mode='upsert')", ConfigError, "needs a key"),
        ("CREATE SINK s WITH (type='delta', location='x', type='lake')", SqlError, "given twice"),
        ("CREATE SINK s WITH (type='delta', location=1+1)", SqlError, "not a value for an option"),
        ("CREATE SINK s WITH (type='delta', location='x') AS DROP TABLE orders", SqlError, "SELECT"),
        ("CREATE SINK s WITH (type='delta', location='x') AS SELECT 1", SqlError, "reads no source"),
        ("CREATE PIPELINE s WITH (type='lake', table='x')", SqlError, "needs a query"),
        ("CREATE SOURCE s WITH (type='nats', stream='x', schema='a INT', token='abc')", ConfigError, "is a secret"),
        ("CREATE SOURCE s WITH (stream='x')", ConfigError, "no type"),
        ("CREATE SOURCE s (a INT, WATERMARK FOR a AS b) WITH (type='nats', stream='x')", SqlError, "not a delay"),
        ("START PIPELINE gone", NotFoundError, 'no pipeline "gone"'),
        ("STOP PIPELINE gone", NotFoundError, 'no pipeline "gone"'),
        ("DROP SINK gone", NotFoundError, 'no sink "gone"'),
        ("DESCRIBE SOURCE gone", NotFoundError, 'no source "gone"'),
    ],
)
def test_a_wrong_statement_leaves_nothing(
    lake: quacklake.Lake, statement: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        lake.sql(statement)
    assert "abc" not in str(raised.value)
    for kind in ("SOURCES", "SINKS", "PIPELINES"):
        assert lake.sql(f"SHOW {kind}").fetchall() == []


def test_names_are_taken_once_unless_they_are_replaced(lake: quacklake.Lake) -> None:
    lake.sql("CREATE SOURCE s WITH (type='lake', table='orders')")
    with pytest.raises(AlreadyExistsError):
        lake.sql("CREATE SOURCE S WITH (type='lake', table='orders')")
    lake.sql("CREATE SOURCE IF NOT EXISTS s WITH (type='lake', table='orders')")
    lake.sql("CREATE OR REPLACE SOURCE s WITH (type='lake', table='orders', mode='batch')")
    assert dict(lake.sql("DESCRIBE SOURCE s").fetchall())["mode"] == "batch"


def test_a_secret_is_kept_as_a_reference(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_TOKEN", "hunter2")
    lake.sql("CREATE SOURCE s WITH (type='nats', stream='x', schema='a INT', token='${env:NATS_TOKEN}')")
    assert dict(lake.sql("DESCRIBE SOURCE s").fetchall())["token"] == "${env:NATS_TOKEN}"


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE SOURCE s WITH (type='lake', table='orders')",
        "CREATE SINK s WITH (type='lake', table='x') AS SELECT * FROM orders",
        "START PIPELINE p",
        "STOP PIPELINE p",
        "DROP PIPELINE p",
        "SHOW PIPELINES",
        "SELECT * FROM trades",
    ],
)
def test_a_safe_session_refuses_them_all(lake: quacklake.Lake, statement: str) -> None:
    lake.sql("CREATE SOURCE trades WITH (type='lake', table='orders')")
    lake.sql("CREATE SINK p WITH (type='lake', table='x') AS SELECT * FROM orders")
    with quacklake.session(safety=quacklake.Safety()) as session:
        session.attach(lake, "lake")
        session.use("lake")
        with pytest.raises((NotPermittedError, SqlError, NotFoundError)):
            session.sql(statement)


def test_tables_called_like_keywords_are_still_tables(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE source (id BIGINT)")
    lake.sql("CREATE TABLE sink (id BIGINT)")
    assert lake.sql("DESCRIBE source").fetchall()[0][0] == "id"
    assert lake.sql("SELECT count(*) FROM source, sink").fetchall() == [(0,)]
    lake.sql("DROP TABLE source")
    lake.sql("START TRANSACTION")
    with pytest.raises(SqlError, match="not part of a transaction"):
        lake.sql("SHOW PIPELINES")
    lake.sql("ROLLBACK")
