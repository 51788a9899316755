"""Folders that are watched, and logs that are rotated."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import openpyxl
import pytest

from quacklake.errors import ConfigError, InputError, LimitError
from quacklake.pond import Pond
from tests.pond.collectors.conftest import Collect, errors, rows
from tests.pond.conftest import csv


@pytest.fixture
def drop() -> Path:
    folder = Path("drop").absolute()
    folder.mkdir()
    return folder


def test_files_of_a_folder_become_versions_each_once(shared: Pond, collect: Collect, drop: Path) -> None:
    options = {"folder": str(drop), "path": "/drop/{name}.series", "settle": "0s"}
    (drop / "dock.csv").write_text(csv(3))
    (drop / "lake.csv").write_text(csv(2))
    assert collect("inbox", options).rows == 5
    assert collect("inbox", options).imported == ()
    (drop / "dock.csv").write_text(csv(5))  # the file has grown
    report = collect("inbox", options)
    assert [(each.path, each.version, each.rows, each.repeated) for each in report.imported] == [
        ("/drop/dock.series", 2, 2, 3)
    ]
    (drop / "dock.csv").rename(drop / "lake2.csv")
    assert collect("inbox", options).rows == 5  # another name is another series


def test_whole_numbers_take_decimals(shared: Pond, collect: Collect, drop: Path) -> None:
    (drop / "1.csv").write_text("timestamp,level\n2024-01-01T00:00:00Z,1\n")
    (drop / "2.csv").write_text("timestamp,level\n2024-01-01T00:01:00Z,1.5\n")
    collect("inbox", {"folder": str(drop), "path": "/level.series", "settle": "0s"})
    assert rows(shared, "/level.series").column("level").to_pylist() == [1.0, 1.5]


def test_files_may_be_written_in_another_way(shared: Pond, collect: Collect, drop: Path) -> None:
    text = "Zeit;Ort;Pegel\n31.12.2023 10:00;Köln;1.234,5\n31.12.2023 11:00;Köln;k. A.\n31.12.2023 12:00;Köln\n"
    (drop / "1.csv").write_bytes(text.encode("windows-1252"))
    options = {"folder": str(drop), "path": "/pegel.series", "settle": "0s", "timestamp_column": "Zeit"}
    forms = {
        "timezone": "UTC",
        "encoding": "windows-1252",
        "fill_short_rows": True,
        "decimal": ",",
        "thousands": ".",
        "timestamp_format": "%d.%m.%Y %H:%M",
        "nulls": ["k. A."],
    }
    assert "1.csv" in errors(collect("inbox", options))
    assert collect("inbox", {**options, **forms}).rows == 3
    found = rows(shared, "/pegel.series")
    assert found.column("Pegel").to_pylist() == [1234.5, None, None]
    assert found.column("Ort").to_pylist() == ["Köln"] * 3
    plain = {"delimiter": "|", "header": False, "quote": "'", "escape": "'", "skip_lines": 1}
    (drop / "1.csv").write_text("title\n2024-01-01T00:00:00Z|'a|b'\n")
    collect("inbox", {**options, "path": "/plain.series", **plain, "timestamp_column": "column0"})
    assert rows(shared, "/plain.series").column("column1").to_pylist() == ["a|b"]
    with pytest.raises(InputError):
        collect("inbox", {**options, "decimal": "x"})


def test_a_sheet_of_workbooks_is_taken(shared: Pond, collect: Collect, drop: Path) -> None:
    made = openpyxl.Workbook()
    made.active.append(("notes",))
    for row in (("timestamp", "level"), (dt.datetime(2024, 1, 1), 1), (dt.datetime(2024, 1, 2), 1.5)):
        (made["Data"] if "Data" in made.sheetnames else made.create_sheet("Data")).append(row)
    made.save(drop / "dock.xlsx")
    (drop / "~$dock.xlsx").write_bytes(b"\x03Ann")  # Excel has the file open
    options = {"folder": str(drop), "pattern": "*.xlsx", "path": "/x.series", "settle": "0s", "timezone": "UTC"}
    assert "several sheets" in errors(collect("inbox", options))["dock.xlsx"]
    assert collect("inbox", options | {"sheet": "Data"}).rows == 2
    assert rows(shared, "/x.series").column("level").to_pylist() == [1.0, 1.5]


@pytest.mark.daily(0.35)
def test_all_files_can_be_one_series(shared: Pond, collect: Collect, drop: Path) -> None:
    (drop / "1.csv").write_text(csv(3))
    (drop / "2.csv").write_text(csv(3, 3))
    (drop / "same.csv").write_text(csv(3))
    options = {"folder": str(drop), "path": "/one.series", "settle": "0s"}
    assert [each.rows for each in collect("inbox", options).imported] == [3, 3, 0]
    assert collect("inbox", options).imported == ()
    assert rows(shared, "/one.series").num_rows == 6


@pytest.mark.daily(0.35)
def test_a_bad_file_is_reported_and_the_others_are_taken(shared: Pond, collect: Collect, drop: Path) -> None:
    (drop / "bad.csv").write_text("timestamp,temp\n2024-01-01T00:00:00Z,1\n2024-01-01T00:01:00Z,1,2\n")
    (drop / "future.csv").write_text("timestamp,temp\n2999-01-01T00:00:00Z,1\n")
    (drop / "good.csv").write_text(csv(2))
    before = len(shared.commits())
    report = collect("inbox", {"folder": str(drop), "path": "/bad/{name}.series", "settle": "0s"})
    assert "line 3 has 3 fields" in errors(report)["bad.csv"]
    assert "in the future" in errors(report)["future.csv"]
    assert [each.path for each in shared.fs().glob("/bad/*")] == ["/bad/good.series"]
    assert len(shared.commits()) == before + 1


def test_a_file_that_is_still_written_is_left_for_later(collect: Collect, drop: Path) -> None:
    (drop / "now.csv").write_text(csv(2))
    assert collect("inbox", {"folder": str(drop), "path": "/later/{name}.series", "settle": "1h"}).imported == ()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"pattern": "../*.csv"}, ConfigError, "leads out of the folder"),
        ({"path": "/in/{user}.series"}, ConfigError, "path cannot be"),
        ({"folder": "nowhere"}, InputError, "there is no folder"),
        ({"max_files": 1}, LimitError, "more than 1 files"),
        ({"timezone": "Mars"}, InputError, "no time zone"),
    ],
)
def test_wrong_options_of_a_folder_are_refused(
    collect: Collect, drop: Path, options: dict[str, object], kind: type[Exception], words: str
) -> None:
    (drop / "a.csv").write_text(csv(1))
    (drop / "b.csv").write_text(csv(1))
    with pytest.raises(kind, match=words):
        collect("inbox", {"folder": str(drop), "settle": "0s", **options})


# -- logs --------------------------------------------------------------------------------------------------------------


def test_a_rotated_log_is_kept_byte_by_byte(shared: Pond, collect: Collect, drop: Path) -> None:
    active = drop / "app.log"
    options = {
        "active_pattern": str(active),
        "archived_pattern": str(drop / "app.log.*"),
        "pond_path": "/logs/app",
    }

    def kept() -> dict[str, bytes]:
        fs = shared.fs()
        return {each.path.rpartition("/")[2]: fs.read(each.path) for each in fs.glob("/logs/app/*")}

    active.write_bytes(b"one\n")
    collect("logfile-ingest", options)
    assert kept() == {"app.log": b"one\n"}
    active.write_bytes(b"one\ntwo\n")
    collect("logfile-ingest", options)
    assert kept() == {"app.log": b"one\ntwo\n"}
    assert collect("logfile-ingest", options).imported == ()
    # a line more is written, then the log is rotated
    active.write_bytes(b"one\ntwo\nthree\n")
    active.rename(drop / "app.log.1")
    active.write_bytes(b"four\n")
    collect("logfile-ingest", options)
    assert kept() == {"app.log.1": b"one\ntwo\nthree\n", "app.log": b"four\n"}
    # rotated twice since the last look: the name app.log.1 comes again with other bytes
    (drop / "app.log.1").rename(drop / "app.log.2")
    active.rename(drop / "app.log.1")
    active.write_bytes(b"five\n")
    collect("logfile-ingest", options)
    found = kept()
    assert sorted(found.values()) == [b"five\n", b"four\n", b"one\ntwo\nthree\n"]
    assert collect("logfile-ingest", options).imported == ()
    assert kept() == found


@pytest.mark.daily(0.35)
def test_a_log_that_was_cut_off_keeps_what_it_was(shared: Pond, collect: Collect, drop: Path) -> None:
    active = drop / "cut.log"
    options = {"active_pattern": str(active), "pond_path": "/logs/cut"}
    active.write_bytes(b"long ago\n")
    collect("logfile-ingest", options)
    active.write_bytes(b"new\n")
    collect("logfile-ingest", options)
    fs = shared.fs()
    assert sorted(fs.read(each.path) for each in fs.glob("/logs/cut/*")) == [b"long ago\n", b"new\n"]


def test_wrong_options_of_a_log_are_refused(collect: Collect, drop: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        collect("logfile-ingest", {"active_pattern": str(drop / "none.log"), "pond_path": "/logs/x"})
    with pytest.raises(ConfigError, match="has no pond_path"):
        collect("logfile-ingest", {"active_pattern": "x"})
    for name in ("a.log", "b.log"):
        (drop / name).write_text("x")
    with pytest.raises(InputError, match="2 files are called"):
        collect("logfile-ingest", {"active_pattern": str(drop / "*.log"), "pond_path": "/logs/x"})
