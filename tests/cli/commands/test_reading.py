from __future__ import annotations

import contextlib
import csv
import io
import os
import tracemalloc
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.cli import main
from tests.cli.conftest import Run
from tests.duckdbs import import_extension


def test_info_tells_where_the_lake_is_and_how_big(run: Run, lake: Path) -> None:
    facts = run("info", "--output", "json").json
    assert facts["url"] == os.environ["QUACKLAKE_URL"]
    assert facts["data_path"] == f"{lake / 'data'}/"
    assert (facts["schemas"], facts["tables"]) == (2, 2)
    # 3 people; 200 numbers less 3 plus 1, of which 1 inlined
    assert (facts["rows"], facts["inlined_rows"], facts["data_files"]) == (201, 4, 2)
    size = sum(path.stat().st_size for path in (lake / "data").rglob("*.parquet"))
    assert facts["data_bytes"] == size
    with quacklake.connect(facts["url"]) as opened:
        assert (facts["snapshot"], facts["format_version"]) == (opened.current_snapshot(), opened.version)


def test_info_hides_the_password(run: Run, postgres_url: str) -> None:
    import sqlalchemy as sa

    password = sa.make_url(postgres_url).password
    quacklake.connect(postgres_url, data_path=Path("data")).close()
    answer = run("info", "--lake", postgres_url)
    assert answer.code == 0
    assert password is None or password not in answer.out


def test_tables_lists_sizes(run: Run, lake: Path) -> None:
    rows = {row["table"]: row for row in run("tables", "--output", "json").json}
    assert list(rows) == ["big.numbers", "main.people"]
    assert rows["main.people"] == {
        "table": "main.people",
        "columns": 2,
        "rows": 3,
        "inlined_rows": 3,
        "files": 0,
        "bytes": 0,
    }
    assert (rows["big.numbers"]["rows"], rows["big.numbers"]["files"]) == (198, 2)


def test_tables_is_a_table_for_people(run: Run, lake: Path) -> None:
    answer = run("tables")
    assert "│ big.numbers │" in answer.out
    assert answer.out.splitlines()[-1] == "2 rows"


def test_a_table_that_cannot_be_read_does_not_hide_the_others(run: Run, lake: Path) -> None:
    with duckdb.connect(config={"extension_directory": str(lake / "extensions")}) as connection:
        import_extension("sqlite_scanner", con=connection)
        connection.execute(f"LOAD sqlite_scanner; ATTACH '{lake / 'lake.db'}' AS db (TYPE sqlite)")
        connection.execute("UPDATE db.ducklake_data_file SET path = '/elsewhere.parquet', path_is_relative = 0")
    answer = run("tables", "--output", "json")
    assert answer.code == 0
    assert [row["rows"] for row in answer.json] == [None, 3]
    assert "outside the data root" in answer.err


def test_show_prints_rows(run: Run, lake: Path) -> None:
    rows = run("show", "people", "--output", "json").json
    assert sorted(rows, key=lambda row: int(row["id"])) == [
        {"id": 1, "name": "Ann"},
        {"id": 2, "name": "Bea"},
        {"id": 3, "name": "Cid"},
    ]


def test_show_chooses_columns_and_rows(run: Run, lake: Path) -> None:
    answer = run("show", "big.numbers", "--where", "n > 150", "--columns", "half, n", "--limit", "3", "--output", "csv")
    header, *rows = csv.reader(io.StringIO(answer.out))
    assert header == ["half", "n"]
    assert len(rows) == 3
    assert all(float(half) * 2 == int(n) > 150 for half, n in rows)


def test_show_says_how_many_rows_it_leaves_out(run: Run, lake: Path) -> None:
    *_, count, way = run("show", "big.numbers").out.splitlines()
    assert (count, way) == ("198 rows, 20 shown", "… and 178 more; --all shows them")
    assert run("show", "big.numbers", "--all").out.splitlines()[-1] == "198 rows"
    assert run("show", "big.numbers", "--where", "n < 10").out.splitlines()[-1] == "7 rows"


def test_show_can_print_all_rows(run: Run, lake: Path) -> None:
    assert len(run("show", "big.numbers", "--limit", "all", "--output", "json").json) == 198


def test_scan_shows_what_fits_on_a_terminal(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("scan", "big.numbers").out.splitlines()[-1] == "198 rows"  # a pipe gets all rows
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    *lines, count, way = run("scan", "big.numbers").out.splitlines()
    assert len(lines) == 104 and (count, way) == ("198 rows, 100 shown", "… and 98 more; --all shows them")
    monkeypatch.setenv("QUACKLAKE_SHOWN_ROWS", "7")
    assert run("scan", "big.numbers").out.splitlines()[-2] == "198 rows, 7 shown"
    assert run("scan", "big.numbers", "--limit", "5").out.splitlines()[-1] == "… and 193 more; --all shows them"
    assert run("scan", "big.numbers", "--all").out.splitlines()[-1] == "198 rows"
    assert len(run("scan", "big.numbers", "-o", "csv").out.splitlines()) == 199


def test_a_scan_of_many_rows_is_printed_in_bounded_memory(run: Run, lake: Path) -> None:
    run("sql", "CREATE TABLE many AS SELECT i AS id, 'row ' || i || chr(10) || 'x' AS name FROM range(50000) r(i)")
    tracemalloc.start()
    try:
        with (lake / "rows.txt").open("w") as file, contextlib.redirect_stdout(file):
            assert main(["scan", "many"]) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    lines = (lake / "rows.txt").read_text().splitlines()
    assert peak < 30_000_000
    assert lines[-1] == "50,000 rows" and len(lines) == 100_005
    assert lines[-4] == "│ 49999 │ row 49999 │" and {len(line) for line in lines[-5000:-1]} == {21}


def test_show_travels_in_time(run: Run, lake: Path) -> None:
    with quacklake.connect(os.environ["QUACKLAKE_URL"]) as opened:
        snapshots = opened.snapshots().to_pylist()
    first = next(row for row in snapshots if "people" in row["changes"])
    for words in (
        ("--at", str(first["snapshot_id"])),
        ("--at", first["snapshot_time"].isoformat(sep=" ")),
    ):
        rows = run("show", "people", *words, "--output", "json").json
        assert [row["name"] for row in rows] == ["Ann", "Bob"]


def test_show_of_a_time_before_the_lake_is_an_error(run: Run, lake: Path) -> None:
    assert run("show", "people", "--at", "2001-01-01").code == 1
    assert run("show", "people", "--at", "soon").code == 1
    assert run("show", "people", "--at", "99").code == 1


@pytest.mark.parametrize("where", ["nme = 'Ann'", "id >", "1; DROP TABLE people"])
def test_show_refuses_a_wrong_condition(run: Run, lake: Path, where: str) -> None:
    answer = run("show", "people", "--where", where)
    assert answer.code == 1
    assert answer.out == ""


def test_snapshots_are_listed_newest_first(run: Run, lake: Path) -> None:
    rows = run("snapshots", "--output", "json").json
    ids = [row["snapshot_id"] for row in rows]
    assert ids == sorted(ids, reverse=True)
    assert (rows[0]["commit_message"], rows[0]["author"]) == ("two more", "Ann")
    assert rows[-1]["changes"] == 'created_schema:"main"'


def test_snapshots_can_be_limited(run: Run, lake: Path) -> None:
    everything = run("snapshots", "--output", "json").json
    assert run("snapshots", "--limit", "2", "--output", "json").json == everything[:2]
    assert run("snapshots", "--limit", "2").out.splitlines()[-1] == f"{len(everything)} rows, 2 shown"


def test_history_lists_the_snapshots_of_a_table(run: Run, lake: Path) -> None:
    changes = [row["changes"] for row in run("history", "people", "--output", "json").json]
    assert len(changes) == 3
    assert changes[-1].startswith('created_table:"main"."people"')
    assert len(run("history", "people", "--limit", "1", "--output", "json").json) == 1


def test_a_column_that_no_snapshot_fills_takes_no_room(run: Run, lake: Path) -> None:
    assert "author" in run("history", "people").out
    assert "author" not in run("history", "people", "--limit", "0").out
    assert "commit_extra_info" not in run("snapshots").out


def test_changes_tell_what_snapshots_did_to_rows(run: Run, lake: Path) -> None:
    rows = run("changes", "people", "--since", "2", "--until", "5", "--output", "json").json
    assert sorted((row["change_type"], row["rowid"], row["name"]) for row in rows) == [
        ("update_postimage", 1, "Bea"),
        ("update_preimage", 1, "Bob"),
    ]
    chosen = run(
        "changes", "big.numbers", "--since", "1", "--where", "change_type = 'delete'", "--columns", "n", "--limit", "2"
    )
    assert chosen.out.splitlines()[-2:] == ["3 rows, 2 shown", "… and 1 more; --all shows them"]
    everything = run("changes", "people", "--since", "2000-01-01", "--output", "csv").out.splitlines()
    assert everything[0] == "snapshot_id,rowid,change_type,id,name"
    assert len(everything) == 6


def test_changes_need_to_know_since_when(run: Run, lake: Path) -> None:
    assert run("changes", "people").code == 2
    answer = run("changes", "people", "--since", "yesterday")
    assert (answer.code, answer.err.splitlines()[0]) == (1, 'error: no snapshot has the tag "yesterday"')


def test_files_lists_paths_sizes_and_deletes(run: Run, lake: Path) -> None:
    rows = run("files", "big.numbers", "--output", "json").json
    assert [row["record_count"] for row in rows] == [100, 100]
    assert [row["deleted_rows"] for row in rows] == [3, 0]
    for row in rows:
        assert (lake / "data" / row["path"]).stat().st_size == row["file_size_bytes"]
    assert all(row["path"] in run("files", "big.numbers").out for row in rows)


def test_long_lists_show_what_fits_on_a_terminal(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("sql", "CALL set_option('data_inlining_row_limit', 0); CREATE TABLE days (n INT) PARTITION BY (n)")
    run("sql", "INSERT INTO days SELECT * FROM range(12)")
    monkeypatch.setenv("QUACKLAKE_SHOWN_ROWS", "2")
    assert run("files", "days").out.splitlines()[-1] == "12 rows"  # a pipe gets all of it
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert run("files", "days").out.splitlines()[-2:] == ["12 rows, 2 shown", "… and 10 more; --all shows them"]
    assert run("files", "days", "--all").out.splitlines()[-1] == "12 rows"
    assert run("files", "days", "-n", "11").out.splitlines()[-1] == "… and 1 more; --all shows them"
    assert len(run("files", "days", "-o", "csv").out.splitlines()) == 13
    many = len(run("tables", "-o", "json").json)
    assert run("tables").out.splitlines()[-1] == f"… and {many - 2} more; --all shows them"
    assert run("tables", "--all").out.splitlines()[-1] == f"{many} rows"
    for file in (lake / "data").rglob("main/days/**/*.parquet"):
        file.unlink()
    broken = run("verify")
    assert broken.code == 1
    assert broken.out.splitlines()[-2:] == ["12 rows, 2 shown", "… and 10 more; --all shows them"]
    assert run("verify", "--all").out.splitlines()[-1] == "12 rows"


def test_files_of_an_inlined_table_are_none(run: Run, lake: Path) -> None:
    assert run("files", "people", "--output", "json").json == []


def test_reading_commands_cannot_write(run: Run, lake: Path) -> None:
    before = (lake / "lake.db").read_bytes()
    for words in (
        ("info",),
        ("tables",),
        ("show", "people"),
        ("snapshots",),
        ("files", "people"),
        ("history", "people"),
        ("changes", "people", "--since", "1"),
    ):
        assert run(*words).code == 0
    assert (lake / "lake.db").read_bytes() == before


def test_settings_are_listed_with_their_sources(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("quacklake.toml").write_text('[s3]\nsecret_key = "geheim"\naccess_key = "minio"\n')
    monkeypatch.setenv("QUACKLAKE_POOL_SIZE", "7")
    answer = run("config", "show", "--output", "json", "--lake", "postgresql://ann:geheim@db/lake")
    rows = {row["name"]: row for row in answer.json}
    assert rows["url"] == {"name": "url", "value": "postgresql://ann:***@db/lake", "source": "flag"}
    assert rows["pool_size"]["value"] == "7"
    assert rows["pool_size"]["source"] == "environment QUACKLAKE_POOL_SIZE"
    assert rows["s3_secret_key"]["value"] == "***"
    assert rows["s3_secret_key"]["source"] == "file quacklake.toml"
    assert rows["turn_ms"]["source"] == "default"
    assert "geheim" not in answer.out
