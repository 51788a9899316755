"""``quacklake import`` and ``export`` as people and programs see them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.cli.conftest import Run


@pytest.fixture
def file(elsewhere: Path) -> Path:
    path = elsewhere / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE orders AS SELECT i AS id, 'x' AS item FROM range(10) r(i)")
        connection.execute("CREATE TABLE tmp_1 (a UNION(n INTEGER, s VARCHAR)); CREATE SEQUENCE s")
    return path


def test_an_import_tells_what_came_and_what_did_not(run: Run, lake: Path, file: Path) -> None:
    refused = run("import", f"duckdb:{file}")
    assert (refused.code, refused.out) == (1, "")
    assert "hint: map the type" in refused.err and "--map-type 'UNION=…'" in refused.err
    told = run("import", f"duckdb:{file}", "--exclude", "tmp_*", "--exclude", "x")
    assert told.out == (
        "main.orders: imported, 10 rows\n"
        "not taken over: sequence main.s: a lake has no sequence of a database\n"
        f"imported 1 table with 10 rows from duckdb:{file}\n"
    )
    again = run("import", f"duckdb:{file}", "--include", "orders", "--output", "json")
    assert again.json["tables"] == [
        {"table": "main.orders", "rows": 0, "rows_before": 10, "bytes": 0, "state": "already imported"}
    ]
    run("import", f"duckdb:{file}", "--schema", "other", "--map-type", "UNION=VARCHAR")
    assert run("sql", "SELECT count(*) AS n FROM other.orders", "--output", "json").json == [{"n": 10}]


def test_an_import_takes_the_options_of_csv_files(run: Run, lake: Path, elsewhere: Path) -> None:
    (elsewhere / "in").mkdir()
    (elsewhere / "in" / "levels.csv").write_bytes("Ort;Stand\nKöln;1,5\nBonn;n/a\n".encode("utf-16le"))
    refused = run("import", "csv:in").err
    assert "levels.csv: it is UTF-16 text" in refused and "--encoding utf-16le" in refused
    told = run("import", "csv:in", "--encoding", "utf-16le", "--decimal", ",")
    assert 'the column "Stand" of' in told.err and "--null n/a reads them as NULL" in told.err
    assert run("sql", 'SELECT "Stand" FROM levels', "--output", "json").json == [{"Stand": "1,5"}, {"Stand": "n/a"}]
    run("sql", "DROP TABLE levels")
    assert run("import", "csv:in", "--encoding", "utf-16le", "--decimal", ",", "--null", "n/a").err == ""
    assert run("sql", 'SELECT "Stand" FROM levels', "--output", "json").json == [{"Stand": 1.5}, {"Stand": None}]
    assert run("import", "duckdb:x.duckdb", "--decimal", ",").code != 0


def test_the_last_argument_of_export_is_the_target(run: Run, lake: Path) -> None:
    one = run("export", "people", "duckdb:one.duckdb")
    assert one.out.splitlines()[-1].startswith("exported 1 table with 3 rows of snapshot ")
    two = run("export", "people", "big.numbers", "parquet:two", "--output", "json")
    assert [table["table"] for table in two.json["tables"]] == ["big.numbers", "main.people"]
    everything = run("export", "duckdb:all.duckdb")
    assert "big.numbers: exported" in everything.out
    refused = run("export", "duckdb:all.duckdb")
    assert refused.code == 1 and "--force" in refused.err
    assert run("export", "duckdb:all.duckdb", "--force").code == 0
    old = run("export", "duckdb:old.duckdb", "--at", "1", "--output", "json")
    assert old.json["snapshot_id"] == 1


def test_options_that_do_not_go_together_are_refused(run: Run, lake: Path) -> None:
    for words in (
        ["export", "people.parquet"],
        ["export", "people", "big.numbers", "out.parquet"],
        ["export", "people", "out.parquet", "--partition-by", "id"],
        ["export", "people", "parquet:out", "--where", "id = 1"],
        ["export", "people", "duckdb:out", "--partition-by", "id"],
        ["import", "nothing"],
        ["import", "csv:people.csv", "--in-place"],
    ):
        answer = run(*words)
        assert (answer.code, answer.out) == (1, ""), words
        assert "hint:" in answer.err, words
    assert run("import", "duckdb:x", "--map-type", "UNION").code == 2
    assert not Path("out").exists()
