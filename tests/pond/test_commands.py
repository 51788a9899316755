"""The command line ``pond``, as a user types it."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quacklake.cli.pond import COMMANDS
from tests.pond.conftest import Run, csv, readings

pytestmark = pytest.mark.daily(0.25)


@pytest.fixture
def inputs() -> None:
    Path("a.csv").write_text(csv(3))
    Path("b.csv").write_text(csv(3, 3))


def test_without_a_pond_every_command_says_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("POND")
    assert "POND environment variable not set" in run("list").err
    answer = run("list", "--pond", str(tmp_path / "nothing"))
    assert (answer.code, "Pond does not exist. Run 'pond init' first." in answer.err) == (1, True)


def test_init_twice_is_refused(new: Run) -> None:
    answer = new("init")
    assert (answer.code, "Pond already exists" in answer.err) == (1, True)


def test_a_pond_is_one_lake(new: Run, tmp_path: Path) -> None:
    assert sorted(each.name for each in (tmp_path / "own").iterdir()) == ["data"]


@pytest.mark.usefixtures("inputs")
def test_file_series_csv_import_workflow(new: Run) -> None:
    """From a file to a query."""
    assert new("mkdir", "/ok").code == 0
    assert new("copy", "a.csv", "/ok/test.series").out == "copied 3 rows to /ok/test.series (v1)\n"
    assert new("copy", "b.csv", "/ok/test.series").out == "copied 3 rows to /ok/test.series (v2)\n"
    assert "v2" in new("list", "/ok/*").out
    printed = new("cat", "/ok/test.series").out
    assert printed.startswith("=== SQL Query Results ===\n")
    assert printed.endswith("Summary: 6 total rows\n")
    assert [row["temp"] for row in new("cat", "/ok/test.series", "-o", "json").json] == [0, 1, 2, 3, 4, 5]
    query = new("cat", "/ok/test.series", "--query", "SELECT max(temp) AS m FROM series", "-o", "json")
    assert query.json == [{"m": 5.0}]
    assert new("cat", "/ok/test.series", "--time-start", "1704067440000", "-o", "json").json[0]["temp"] == 4.0
    assert new("cat", "/ok/test.series", "--time-start", "2030-01-01").out == "No data found after filtering\n"


@pytest.mark.usefixtures("inputs")
def test_show_command_clarity(new: Run) -> None:
    new("mkdir", "/d")
    new("copy", "a.csv", "/d/s.series")
    new("copy", "b.csv", "/d/s.series")
    printed = new("show").out
    assert "=== Transaction #001 (Command: pond init) ===" in printed
    assert "=== Transaction #003 (Command: pond copy a.csv /d/s.series) ===" in printed
    assert re.search(r"▌ Partition [0-9a-f]{8} \(1 entries\):", printed)
    assert re.search(r"Directory \[[0-9a-f]{8}\] with 1 entries:", printed)
    last = printed.partition("=== Transaction #004")[2]
    assert re.search(
        r"└─ FileSeries \[[0-9a-f]{8}\]: Binary data \(\d+ bytes\) "
        r"\(temporal: 2024-01-01 00:03:00 to 2024-01-01 00:05:00\) s\.series v2 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, 3 rows",
        last,
    )
    assert "v1" not in last
    rows = new("show", "-o", "json").json
    assert {"txn_seq", "part_id", "node_id", "file_type", "version", "timestamp"} <= set(rows[0])
    kinds = [row["record_kind"] for row in new("show", "-f", "control", "-o", "json").json]
    assert kinds == ["completed"] * 4
    assert "#004" in new("show", "--last", "1").out and "#003" not in new("show", "--last", "1").out


def test_a_line_of_list_has_type_size_id_version_time_and_path(run: Run) -> None:
    Path("f.bin").write_bytes(b"x" * 3000)
    run("mkdir", "/l")
    run("copy", "f.bin", "/l/f.bin")
    Path("link.yaml").write_text("kind: Link\nname: x\nspec: {path: /l/link, target: f.bin}\n")
    run("apply", "-f", "link.yaml")
    file, link = run("list", "/l/*").out.splitlines()
    assert re.fullmatch(r"📄 +2\.9KB [0-9a-f]{8} v1 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d /l/f\.bin", file)
    assert re.fullmatch(r"🔗 +- [0-9a-f]{8} v1 .* /l/link -> f\.bin", link)
    assert [row["type"] for row in run("list", "/l/*", "-o", "json").json] == ["file:data", "symlink"]


def test_a_long_list_shows_what_fits_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        run("mkdir", f"/long{name}")
    assert len(run("list", "/long*").out.splitlines()) == 3  # a pipe gets all of it
    monkeypatch.setenv("QUACKLAKE_SHOWN_ROWS", "2")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    *lines, way = run("list", "/long*").out.splitlines()
    assert len(lines) == 2 and way == "… and 1 more; --limit all shows them"
    assert len(run("list", "/long*", "--limit", "all").out.splitlines()) == 3
    assert len(run("list", "/long*", "-o", "json").json) == 3


def test_hidden_names_are_listed_when_asked_for(run: Run) -> None:
    Path(".dot").write_text("x")
    run("mkdir", "/h")
    run("copy", ".dot", "/h/")
    assert run("list", "/h/*").out == ""
    assert "/h/.dot" in run("list", "-a", "/h/*").out
    assert "/h/.dot" in run("list", "/h/.dot").out


def test_a_path_that_does_not_exist_is_an_error_with_a_near_name_or_none(run: Run) -> None:
    run("mkdir", "/stations")
    for command in ("list", "cat", "describe"):
        missing = run(command, "/statoins")
        assert (missing.code, missing.err) == (
            1,
            'error: there is no /statoins\n  hint: did you mean "stations"?\n',
        )
        assert "did you mean" not in run(command, "/zzz").err
    assert run("list", "/zzz/*").code == 0
    asked = run("sql", 'SELECT * FROM "/statoins"')
    assert (asked.code, asked.err) == (1, 'error: there is no /statoins\n  hint: did you mean "stations"?\n')
    assert "pond list '/stations/**/*'" in run("plot", "/stations").err


def test_copy_multiple_files_to_nonexistent_fails(run: Run) -> None:
    Path("1.txt").write_text("1")
    Path("2.txt").write_text("2")
    answer = run("copy", "1.txt", "2.txt", "/nowhere")
    assert (answer.code, answer.err.splitlines()[0]) == (
        1,
        "error: When copying multiple files, destination '/nowhere' must be an existing directory",
    )
    assert run("copy", "/x").err.startswith("error: At least one source file must be specified")
    assert run("copy").err.startswith("error: At least one source file must be specified")
    assert "pond mkdir -p /nowhere/" in run("copy", "1.txt", "/nowhere/").err


def test_copy_to_an_existing_file_is_refused_unless_it_is_a_series_or_replaced(run: Run) -> None:
    Path("f").write_text("one")
    Path("g").write_text("two")
    run("copy", "f", "/e")
    refused = run("copy", "g", "/e")
    assert "Destination '/e' exists but is not a directory (cannot copy to existing file)" in refused.err
    assert run("cat", "/e").out == "one"
    assert run("copy", "--replace", "g", "/e").out == "copied /e (v2)\n"
    assert run("cat", "/e").out == "two"


def test_copy_knows_tables_by_their_bytes_and_series_by_their_names(run: Run) -> None:
    table = pa.Table.from_pylist(readings(3))
    pq.write_table(table, "t.parquet")
    Path("disguised").write_bytes(Path("t.parquet").read_bytes())
    Path("x.csv").write_text(csv(2))
    run("mkdir", "/k")
    run("copy", "t.parquet", "disguised", "x.csv", "/k/")
    run("copy", "x.csv", "/k/x.series")
    run("copy", "--format", "parquet", "x.csv", "/k/x.table")
    run("copy", "csv+series:x.csv", "/k/y")
    types = {row["path"]: row["type"] for row in run("list", "/k/*", "-o", "json").json}
    assert types == {
        "/k/disguised": "file:table",
        "/k/t.parquet": "file:table",
        "/k/x.csv": "file:data",
        "/k/x.series": "file:series",
        "/k/x.table": "file:table",
        "/k/y": "file:series",
    }


def test_large_file_copy_correctness_non_utf8(run: Run, tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    Path("bin").write_bytes(data)
    run("copy", "bin", "/bin")
    assert run("copy", "/bin", f"host:{tmp_path}/bin.out").code == 0
    assert Path("bin.out").read_bytes() == data
    assert "exists already" in run("copy", "/bin", f"host:{tmp_path}/bin.out").err
    assert run("copy", "--force", "/bin", f"host:{tmp_path}/bin.out").code == 0


@pytest.mark.usefixtures("inputs")
def test_nodes_are_copied_out_with_their_paths(run: Run, tmp_path: Path) -> None:
    run("mkdir", "-p", "/o/deep")
    run("copy", "a.csv", "/o/deep/s.series")
    run("copy", "b.csv", "/o/b.csv")
    Path("out").mkdir()
    assert run("copy", "/o/**", f"host://{tmp_path}/out").code == 0
    assert pq.read_table("out/o/deep/s.parquet").num_rows == 3
    assert Path("out/o/b.csv").read_text() == csv(3, 3)
    assert run("copy", "/o/deep/s.series", f"host:{tmp_path}/s.csv").out.startswith("copied 3 rows of /o/deep/s.series")
    assert Path("s.csv").read_text().splitlines()[0] == "timestamp,temp"
    assert "nothing is called" in run("copy", "/o/none*", f"host:{tmp_path}/x").err


def test_describe_says_what_bytes_are_and_what_rows_hold(run: Run) -> None:
    Path("p.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    Path("s.csv").write_text(csv(4))
    run("mkdir", "/w")
    run("copy", "p.png", "s.csv", "/w")
    run("copy", "s.csv", "/w/s.series")
    assert run("describe", "/w/p.png", "-o", "json").json["content"] == "PNG"
    assert run("describe", "/w/s.csv", "-o", "json").json["content"] == "CSV"
    facts = run("describe", "/w/s.series", "-o", "json").json
    assert (facts["rows"], facts["timestamp_column"], facts["table"]) == (4, "timestamp", 'pond_data."/w/s.series"')
    assert facts["max_event_time"] == "2024-01-01T00:03:00+00:00"
    assert run("describe", "/w", "-o", "json").json["entries"] == 3


def test_moving_and_removing(run: Run) -> None:
    run("mkdir", "-p", "/m/a")
    assert run("mv", "/m/a", "/m/b").out == "moved /m/a to /m/b\n"
    assert "not empty" in run("rm", "/m").err
    assert run("rm", "-r", "/m").out == "removed 2 nodes\n"
    assert run("rm", "/m").code == 1


def test_a_removed_node_is_there_at_an_older_snapshot(new: Run) -> None:
    Path("f").write_text("old")
    new("copy", "f", "/f")
    new("rm", "/f")
    assert new("list").out == ""
    assert "/f" in new("list", "--at", "2").out
    assert new("cat", "/f", "--at", "2").out == "old"


@pytest.mark.usefixtures("inputs")
def test_sql_names_series_by_their_paths(run: Run) -> None:
    run("copy", "a.csv", "/q.series")
    answer = run("sql", "SELECT count(*) AS n FROM \"/q.series\" JOIN nodes ON path = '/q.series'", "-o", "json")
    assert answer.json == [{"n": 3}]
    assert run("sql", "DROP TABLE nodes").code == 1
    assert run("sql", "SELECT * FROM nothing").code == 1


@pytest.mark.usefixtures("inputs")
def test_log_and_status_tell_what_was_done(new: Run) -> None:
    new("copy", "a.csv", "/s.series")
    new("copy", "a.csv", "/missing/s.series")
    log = new("log", "-o", "json").json
    assert [(row["txn_seq"], row["state"]) for row in log] == [(1, "completed"), (2, "completed"), (3, "failed")]
    assert log[1]["command"] == "pond copy a.csv /s.series" and log[1]["duration_ms"] >= 0
    assert "no directory /missing" in log[2]["error"]
    status = new("status", "-o", "json").json
    assert (status["file:series"], status["recovery_needed"]) == (1, False)
    assert new("recover").out == "nothing to recover\n"


def test_verify_names_a_damaged_file_and_fails(new: Run, tmp_path: Path) -> None:
    Path("big").write_bytes(b"b" * 70_000)
    new("copy", "big", "/big")
    assert new("verify").out == "checked 2 nodes and 1 large file: no problem\n"
    (stored,) = (tmp_path / "own/data/files/_large_files").glob("sha256=*")
    stored.write_bytes(b"c" * 70_000)
    answer = new("verify")
    assert (answer.code, "/big: the content of /big has changed" in answer.out) == (1, True)
    shown = new("cat", "/big")
    assert (shown.code, shown.out) == (1, "")
    assert new("copy", "/big", f"host:{tmp_path}/out").code == 1 and not Path("out").exists()
    assert new("verify", "-o", "json").json["problems"][0]["path"] == "/big"


def test_settings_of_the_pond_hold_for_every_command(new: Run) -> None:
    Path("local.csv").write_text(csv(2, end=""))
    refused = new("copy", "local.csv", "/s.series")
    assert "pond config set timezone UTC" in refused.err
    assert new("config", "set", "timezone", "Nowhere/Land").code == 1
    assert 'did you mean "timezone"?' in new("config", "set", "timezon", "UTC").err
    assert new("config", "set", "timezone", "UTC").code == 0
    assert new("copy", "local.csv", "/s.series").code == 0
    assert new("config", "show", "-o", "json").json[0]["value"] == "UTC"


def test_bounds_and_overlaps(run: Run) -> None:
    Path("long.csv").write_text("time,sensor,temp\n2024-01-01T00:00:00Z,a,1\n2024-01-01T01:00:00Z,a,2\n")
    Path("more.csv").write_text("time,sensor,temp\n2024-01-01T00:30:00Z,b,1\n")
    run("copy", "long.csv", "/v.series")
    assert run("detect-overlaps", "/v.series").out == "no versions overlap\n"
    run("copy", "more.csv", "/v.series")
    (overlap,) = run("detect-overlaps", "/v.series", "-o", "json").json
    assert (overlap["first_version"], overlap["second_version"]) == (1, 2)
    run("set-temporal-bounds", "/v.series", "--max-time", "2024-01-01T00:30:00Z")
    assert len(run("cat", "/v.series", "-o", "json").json) == 2
    assert "is not a time" in run("set-temporal-bounds", "/v.series", "--max-time", "noon").err


def test_factories_from_the_command_line(run: Run) -> None:
    Path("s.csv").write_text(csv(4))
    run("copy", "s.csv", "/base.series")
    Path("c.yaml").write_text("patterns: {source: /base.series}\nquery: SELECT avg(temp) AS m FROM source\n")
    assert "sql-derived-series" in run("list-factories").out
    assert run("mknod", "sql-derived-table", "/mean", "--config-path", "c.yaml").code == 0
    assert run("cat", "/mean", "-o", "json").json == [{"m": 1.5}]
    assert "exists already" in run("mknod", "sql-derived-table", "/mean", "--config-path", "c.yaml").err
    assert run("mknod", "sql-derived-table", "/mean", "--config-path", "c.yaml", "--overwrite").code == 0
    Path("bad.yaml").write_text("pattern: {source: /x}\n")
    assert 'did you mean "patterns"?' in run("mknod", "sql-derived-table", "/n", "--config-path", "bad.yaml").err
    assert "cannot be read" in run("mknod", "sql-derived-table", "/n", "--config-path", "none.yaml").err


def test_apply_prints_created_and_unchanged(run: Run) -> None:
    Path("r.yaml").write_text("apiVersion: pond/v1\nkind: Directory\nname: applied\n")
    assert run("apply", "-f", "r.yaml").out == "created   Directory applied\n"
    assert run("apply", "-f", "r.yaml").out == "unchanged Directory applied\n"
    assert run("apply", "-f", "r.yaml", "-o", "json").json == [
        {"kind": "Directory", "name": "applied", "result": "unchanged"}
    ]


def test_display_raw_is_parquet(run: Run, folder: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    Path("s.csv").write_text(csv(4))
    run("copy", "s.csv", "/raw.series")
    words = [
        sys.executable,
        "-m",
        "quacklake.cli.pond",
        "--pond",
        str(folder),
        "cat",
        "/raw.series",
        "--display",
        "raw",
    ]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert pq.read_table(pa.BufferReader(done.stdout)).num_rows == 4
    assert "has no rows" in run("cat", "/", "--display", "table").err


def test_errors_are_json_for_programs(run: Run) -> None:
    answer = run("cat", "/none", "-o", "json")
    assert (answer.code, json.loads(answer.err)["code"]) == (1, "not_found")
    assert run("frobnicate").code == 2
    assert run("list", "--nonsense").code == 2


def test_wrong_dialects_are_told_and_options_help(run: Run) -> None:
    Path("semi.csv").write_text("# made by a logger\n" + csv(3).replace(",", ";"))
    assert run("copy", "semi.csv", "/semi.series", "--skip-lines", "1").code == 0
    assert len(run("cat", "/semi.series", "-o", "json").json) == 3


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_has_help(run: Run, entry: object) -> None:
    answer = run(entry.name, "--help")  # type: ignore[attr-defined]
    assert answer.code == 0 and "Usage: pond" in answer.out


def test_paths_are_completed(run: Run, folder: Path) -> None:
    import typer

    from quacklake.cli.app import command_line
    from quacklake.cli.pond import POND
    from quacklake.cli.pond.context import complete_path

    run("mkdir", "-p", "/comp/lete")
    context = typer.Context(command_line(POND), info_name="pond")
    context.params = {"pond": str(folder)}
    assert complete_path(context, "/com") == ["/comp/"]
    assert complete_path(context, "/comp/") == ["/comp/lete/"]


def test_verbose_shows_the_steps(run: Run) -> None:
    answer = run("-v", "mkdir", "/verbose")
    assert "quacklake.pond: save" in answer.err
    failed = run("--debug", "mkdir", "/verbose")
    assert "Traceback" in failed.err and "exists already" in failed.err


def test_large_dataset_performance(run: Run) -> None:
    """A hundred thousand readings go in and come out of one query; the work is not done row by row."""
    import time

    pa_table = pa.table(
        {"timestamp": pa.array(range(100_000), pa.int64()).cast(pa.timestamp("s", "UTC")), "v": [1.0] * 100_000}
    )
    pq.write_table(pa_table, "big.parquet")
    begun = time.process_time()
    assert run("copy", "big.parquet", "/perf.series").out == "copied 100,000 rows to /perf.series (v1)\n"
    answer = run("cat", "/perf.series", "--sql", "SELECT count(*) AS n, sum(v) AS s FROM source", "-o", "json")
    assert answer.json == [{"n": 100_000, "s": 100_000.0}]
    assert time.process_time() - begun < 20


def test_a_column_is_widened(new: Run) -> None:
    Path("a.csv").write_text("timestamp,v\n2024-01-01T00:00:00Z,1\n")
    Path("b.csv").write_text("timestamp,v\n2024-01-01T00:01:00Z,off\n")
    new("copy", "a.csv", "/v.series")
    assert "`pond widen /v.series v VARCHAR`" in new("copy", "b.csv", "/v.series").err
    assert new("widen", "/v.series", "v", "VARCHAR").out == "v of /v.series is VARCHAR now\n"
    assert new("copy", "b.csv", "/v.series").code == 0
    assert new("widen", "/v.series", "v", "BIGINT").code != 0
    assert new("verify").code == 0


def test_the_command_that_widens_is_named_beside_another_error(new: Run) -> None:
    """Both have to be done before the file is accepted."""
    Path("a.csv").write_text("time,v\n2024-01-01T00:00:00Z,1\n")
    pq.write_table(pa.table({"timestamp": ["2024-01-01T00:01:00Z"], "v": ["off"]}), "b.parquet")
    Path("c.csv").write_text("timestamp,v\n2024-01-01T00:01:00Z,2\n")
    new("copy", "a.csv", "/v.series")
    refused = new("copy", "b.parquet", "/v.series").err
    assert "b.parquet has no column 'time'" in refused
    assert "`pond widen /v.series v VARCHAR`" in refused
    assert "pond widen" not in new("copy", "c.csv", "/v.series").err


def test_no_command_is_named_for_columns_that_fit(new: Run) -> None:
    Path("a.csv").write_text("time,v,t,d\n2024-01-01T00:00:00Z,x,1.5,2024-01-01\n")
    Path("b.csv").write_text("time,v,t,d\n2999-01-01T00:01:00Z,1,2,2024-01-01 00:00\n")
    new("copy", "a.csv", "/v.series")
    refused = new("copy", "b.csv", "/v.series").err
    assert "future" in refused or "ahead" in refused
    assert "pond widen" not in refused


def test_workbooks_are_copied_in_and_out(run: Run, tmp_path: Path) -> None:
    made = openpyxl.Workbook()
    for row in (("time", "level"), (dt.datetime(2024, 1, 1), 1), (dt.datetime(2024, 1, 1, 12), 1.5)):
        made.active.append(row)
    made.create_sheet("notes").append(("text",))
    made.save("a.xlsx")
    refused = run("copy", "a.xlsx", "/level.series")
    assert "several sheets" in refused.err
    zoned = ("--sheet", "Sheet", "--timezone", "UTC")
    assert run("copy", "a.xlsx", "/level.series", *zoned).out.startswith("copied 2 rows to /level.series")
    made["Sheet"].append((dt.datetime(2024, 1, 2), 2))
    made.save("a.xlsx")
    assert "left out 2 rows" in run("copy", f"excel://{tmp_path}/a.xlsx", "/level.series", *zoned).out
    assert run("copy", "/level.series", f"host://{tmp_path}/out.xlsx").out.startswith("copied 3 rows of /level.series")
    rows = list(openpyxl.load_workbook("out.xlsx").active.iter_rows(values_only=True))
    assert rows[1:] == [tuple(row) for row in list(made["Sheet"].iter_rows(values_only=True))[1:]]
    Path("out").mkdir()
    run("copy", "/level.series", f"excel://{tmp_path}/out")
    assert Path("out/level.xlsx").is_file()
    assert run("copy", "a.xlsx", "/a.xlsx").code == 0
    assert run("copy", "/a.xlsx", f"host://{tmp_path}/same").code == 0
    assert Path("same").read_bytes() == Path("a.xlsx").read_bytes()


def test_a_row_without_a_time_is_named_by_its_row_in_the_sheet(run: Run) -> None:
    made = openpyxl.Workbook()
    for row in (("time", "level"), (dt.datetime(2024, 1, 1), 1), (), (None, 2)):
        made.active.append(row)
    made.save("a.xlsx")
    refused = run("copy", "a.xlsx", "/level.series", "--timezone", "UTC")
    assert "row 4 of the sheet 'Sheet'" in refused.err
