"""A first look at every part, as an installed package shows it.

These tests use the package, pytest and what the package depends on, and no fixture of the other tests: `make test-newest`
runs them in environments that hold nothing else. Variables name what such an environment has beside it: a
``SMOKE_POSTGRES_URL``, a ``SMOKE_MYSQL_URL``, a ``SMOKE_S3_URL`` with the ``MINIO_…`` variables, and ``SMOKE_SPARK=1``
where Spark and Java are installed.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake, errors

DATABASES = ["sqlite", "duckdb", *(name for name in ("postgres", "mysql") if f"SMOKE_{name.upper()}_URL" in os.environ)]
EXTRAS = {
    "pandas": "pandas",
    "polars": "polars",
    "psycopg": "postgres",
    "pymysql": "mysql",
    "pyspark": "spark",
    "python_calamine": "excel",
    "xlsxwriter": "excel",
}


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def url_for(database: str, directory: Path) -> str:
    if database in ("sqlite", "duckdb"):
        return f"{database}:///{directory / f'lake.{database}'}"
    return os.environ[f"SMOKE_{database.upper()}_URL"]


@pytest.fixture(params=DATABASES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A new lake on each kind of database; on a server it is a tenant with a new name."""
    url, data = url_for(request.param, tmp_path), str(tmp_path / "data")
    if request.param in ("sqlite", "duckdb"):
        with quacklake.connect(url, data_path=data) as opened:
            yield opened
        return
    with quacklake.tenants(url, data_path=data) as tenants:
        name = f"t_{uuid.uuid4().hex}"
        tenants.create(name)
        with quacklake.connect(url, catalog=name) as opened:
            yield opened
        tenants.drop(name)


def rows(count: int) -> pa.Table:
    start = dt.datetime(2025, 1, 1)
    return pa.table(
        {
            "id": range(count),
            "name": [f"n{n % 7}" for n in range(count)],
            "price": [n / 4 for n in range(count)],
            "ts": [start + dt.timedelta(hours=n) for n in range(count)],
            "tags": [[f"t{n % 3}"] for n in range(count)],
        }
    )


def test_the_whole_life_of_a_table(lake: Lake) -> None:
    table = lake.create_table("events", rows(1000), partition_by=["month(ts)"])
    assert table.append(rows(5)) == 5
    assert table.update({"name": "x"}, "id < 3") == 6
    assert table.delete("id >= 990") == 10
    merged = table.merge([{"id": 5, "name": "five"}, {"id": 5000, "name": "new"}], on="id")
    assert (merged.updated, merged.inserted) == (1, 1)
    assert table.count() == 996
    assert lake.at(version=1).table("events").count() == 1000
    assert len(table.changes(since=1).to_arrow()) > 0
    table.add_column("extra", "INTEGER")
    with lake.transaction(message="two tables") as work:
        work.create_table("other", [{"a": 1}])
        work.table("events").delete("id = 5000")
    assert table.count() == 995
    table.optimize()
    lake.expire_snapshots(keep_last=1)
    lake.cleanup_old_files(older_than=dt.timedelta(0))
    assert table.count() == 995
    assert lake.verify().ok


def test_sql_reads_and_changes_tables(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INTEGER, v VARCHAR, d DOUBLE)")
    lake.sql("INSERT INTO t SELECT i, 'v' || i, i / 2 FROM range(100) r(i)")
    assert lake.sql("SELECT count(*) FROM t").fetchall() == [(100,)]
    assert lake.sql("SELECT sum(id), max(v), min(d) FROM t WHERE id BETWEEN 10 AND 19").fetchall() == [
        (145, "v19", 5.0)
    ]
    window = "SELECT id, row_number() OVER (ORDER BY d DESC) AS n FROM t QUALIFY n <= 2"
    assert lake.sql(window).fetchall() == [(99, 1), (98, 2)]
    assert lake.sql("WITH c AS (FROM t WHERE id < ?) SELECT count(*) FROM c JOIN t USING (id)", [7]).fetchall() == [
        (7,)
    ]
    lake.sql("UPDATE t SET v = upper(v) WHERE id = 3")
    lake.sql("DELETE FROM t WHERE id >= 50")
    lake.sql(
        "MERGE INTO t USING (SELECT 3 AS id, 'm' AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    assert lake.sql("SELECT v FROM t WHERE id = 3").fetchall() == [("m",)]
    assert lake.sql("SELECT count(*) FROM t AT (VERSION => 2)").fetchall() == [(100,)]
    lake.sql("CREATE VIEW w AS SELECT id FROM t WHERE id < 2")
    assert sorted(lake.sql("SELECT * FROM w").fetchall()) == [(0,), (1,)]
    assert lake.sql("SELECT list_transform([1, 2], lambda x: x + 1) AS l FROM t LIMIT 1").fetchall() == [([2, 3],)]
    with pytest.raises(errors.QuacklakeError):
        lake.sql("SELECT nothing FROM t")
    assert lake.sql("SELECT count(*) FROM t").fetchall() == [(50,)], "an error leaves the session usable"


def test_changes_between_begin_and_commit_are_one_snapshot(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INTEGER)")
    before = lake.current_snapshot()
    lake.sql("BEGIN")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    lake.sql("DELETE FROM t WHERE id = 1")
    lake.sql("COMMIT")
    assert lake.current_snapshot() == before + 1
    assert lake.sql("FROM t").fetchall() == [(2,)]


def test_values_of_every_kind_come_back(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE k AS SELECT 1::TINYINT a, 2::UBIGINT b, 1.5::DECIMAL(9,2) c, 'ü' d, '\\x01'::BLOB e, true f, "
        "DATE '2025-01-02' g, TIMESTAMP '2025-01-02 03:04:05.6' h, TIMESTAMPTZ '2025-01-02 03:04:05+00' i, "
        "TIME '01:02:03' j, [1, NULL] k, {'x': 1} l, MAP {'k': 2} m, uuid() n, NULL::INTEGER o, 'NaN'::FLOAT p"
    )
    table = lake.table("k").to_arrow()
    assert table.num_rows == 1
    assert table.column("d").to_pylist() == ["ü"]
    assert table.column("k").to_pylist() == [[1, None]]
    lake.table("k").flush_inlined_data()
    flushed = lake.table("k").to_arrow()
    assert [str(value) for value in flushed.to_pylist()] == [str(value) for value in table.to_pylist()]


@pytest.mark.skipif(not has("pandas"), reason="pandas is not installed here")
def test_pandas_frames_go_in_and_come_out(lake: Lake) -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": [1, 2], "when": pd.to_datetime(["2025-01-01", "2025-01-02"]), "s": ["a", None]})
    lake.create_table("p", frame)
    assert lake.table("p").to_pandas()["id"].tolist() == [1, 2]


@pytest.mark.skipif(not has("polars"), reason="polars is not installed here")
def test_polars_frames_go_in_and_come_out(lake: Lake) -> None:
    import polars as pl

    frame = pl.DataFrame({"id": [1, 2], "s": ["a", None], "l": [[1], []]})
    lake.create_table("p", frame)
    assert lake.table("p").to_polars().sort("id").to_dicts() == frame.to_dicts()


def test_two_tenants_share_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    with quacklake.tenants(url, data_path=str(tmp_path / "data")) as tenants:
        tenants.create("acme")
        tenants.create("zeta")
        with quacklake.connect(url, catalog="acme") as acme, quacklake.connect(url, catalog="zeta") as zeta:
            acme.create_table("t", rows(10))
            zeta.create_table("t", rows(20))
            assert (acme.table("t").count(), zeta.table("t").count()) == (10, 20)


def test_a_backup_becomes_a_lake_again(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path / 'l.db'}", data_path=str(tmp_path / "data")) as lake:
        lake.create_table("t", rows(500))
        lake.backup(str(tmp_path / "backups"))
    target = f"duckdb:///{tmp_path / 'again.duckdb'}"
    quacklake.restore_backup(str(tmp_path / "backups"), target, data_path=str(tmp_path / "again")).close()
    with quacklake.connect(target) as again:
        assert again.table("t").count() == 500


@pytest.mark.skipif("SMOKE_S3_URL" not in os.environ, reason="no S3 server was named")
def test_files_live_in_a_bucket(tmp_path: Path) -> None:
    data = f"{os.environ['SMOKE_S3_URL']}/{uuid.uuid4().hex}/"
    with quacklake.connect(f"sqlite:///{tmp_path / 'l.db'}", data_path=data) as lake:
        table = lake.create_table("t", rows(2000))
        table.delete("id % 2 = 0")
        assert table.count() == 1000
        assert lake.sql("SELECT sum(id) FROM t").fetchall() == [(1_000_000,)]


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., str]:
    """A function that runs a command in a new folder and returns what it prints."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUACKLAKE_")}

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "quacklake.cli", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def test_the_command_line_from_nothing_to_a_lake_and_back(command: Callable[..., str], tmp_path: Path) -> None:
    command("init")
    (tmp_path / "books.csv").write_text("id,title\n1,Emma\n2,Dune\n")
    command("append", "books", "books.csv", "--create")
    assert json.loads(command("--output", "json", "sql", "SELECT count(*) AS n FROM books"))[0]["n"] == 2
    command("sql", "DELETE FROM books")
    command("rollback", "--to", "1", "--yes")
    assert len(json.loads(command("--output", "json", "show", "books"))) == 2
    assert "no_such" in command("show", "no_such", code=1)
    for name in ("tables", "snapshots", "info", "verify", "doctor", "maintain"):
        command(name)


@pytest.mark.skipif(not has("python_calamine"), reason="the extra excel is not installed")
def test_a_table_is_exported_as_a_workbook_and_comes_back(lake: Lake, tmp_path: Path) -> None:
    from quacklake.cli.excel_writer import write_workbook

    wanted = rows(20).drop(["tags"])
    assert write_workbook(wanted.to_reader(), tmp_path / "a.xlsx") == 20
    table = lake.create_table("events", wanted.schema)
    assert table.append(tmp_path / "a.xlsx") == 20
    assert table.to_arrow().sort_by("id").equals(wanted)


@pytest.mark.skipif(not has("quacklake_demo"), reason="the package quacklake-demo is not installed")
def test_the_demo_without_spark_ends_well(command: Callable[..., str]) -> None:
    assert "steps in" in command("demo", "--events", "0")


@pytest.mark.skipif(not has("quacklake_sensors"), reason="the package quacklake-sensors is not installed")
def test_a_pond_has_the_collectors_of_a_package() -> None:
    from quacklake.pond.factories import find

    assert find("hydrovu").resource == "HydroVu"


def test_help_lists_every_command(command: Callable[..., str]) -> None:
    from quacklake.cli.commands import COMMANDS

    listed = command("--help").split()
    assert [entry.name for entry in COMMANDS if entry.name not in listed] == []


@pytest.mark.skipif(all(has(module) for module in EXTRAS), reason="every extra is installed here")
def test_a_missing_extra_is_one_sentence_with_the_line_that_installs_it(tmp_path: Path) -> None:
    from quacklake.cli.excel_writer import write_workbook

    book = tmp_path / "a.xlsx"
    book.write_bytes(b"PK")
    with quacklake.connect(f"sqlite:///{tmp_path / 'l.db'}", data_path=str(tmp_path / "data")) as lake:
        lake.create_table("t", [{"a": 1}])
        uses: dict[str, Callable[[], object]] = {
            "pandas": lambda: lake.table("t").to_pandas(),
            "polars": lambda: lake.table("t").to_polars(),
            "psycopg": lambda: quacklake.connect("postgresql://localhost/nowhere"),
            "pymysql": lambda: quacklake.connect("mysql://localhost/nowhere"),
            "pyspark": lambda: quacklake.spark(lake),
            "python_calamine": lambda: lake.create_table("book", book),
            "xlsxwriter": lambda: write_workbook(lake.table("t").scan().to_reader(), tmp_path / "b.xlsx"),
        }
        for module, use in uses.items():
            if not has(module):
                with pytest.raises(errors.QuacklakeError) as caught:
                    use()
                assert f"quacklake[{EXTRAS[module]}]" in f"{caught.value} {caught.value.hint}", module


@pytest.mark.skipif(os.environ.get("SMOKE_SPARK") != "1", reason="no Spark was promised")
def test_spark_reads_writes_and_changes_a_table(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path / 'l.db'}", data_path=str(tmp_path / "data")) as lake:
        spark = quacklake.spark(lake)
        try:
            source = spark.session.range(1000).selectExpr("id", "id % 3 AS shop", "id / 4 AS amount")
            spark.create_table("sales", source, partition_by="shop")
            spark.append("sales", source.where("id < 10"))
            spark.delete("sales", "id >= 900")
            assert spark.table("sales").count() == lake.table("sales").count() == 910
            assert spark.sql("SELECT count(*) AS n FROM sales WHERE shop = 1").collect()[0]["n"] == 303
        finally:
            spark.session.stop()


def test_an_app_that_is_installed_brings_its_commands_and_no_other_is_there(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "quacklake.cli", "--help"], capture_output=True, text=True, cwd=tmp_path, check=True
    ).stdout
    assert ("migrate-arrow" in shown) == (importlib.util.find_spec("quacklake_ekko") is not None)
