"""Workbooks from the command line: what is appended, exported and refused."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("lake")


def workbook(path: str, **sheets: list[tuple[object, ...]]) -> None:
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made.save(path)


def test_a_sheet_is_appended_and_a_table_is_made_of_one(run: Run) -> None:
    workbook("a.xlsx", North=[("id", "name"), (10, "Dan")], South=[("Report",), ("id", "name"), (11, "n/a")])
    refused = run("append", "people", "a.xlsx")
    assert refused.code == 1 and "several sheets with rows: North, South" in refused.err and "--sheet" in refused.err
    assert run("append", "people", "a.xlsx", "--sheet", "North").out.startswith("appended 1 row to people")
    words = ("a.xlsx", "--sheet", "2", "--skip-lines", "1", "--null", "n/a")
    assert run("merge", "people", *words, "--on", "id").code == 0
    rows = run("show", "people", "--where", "id >= 10", "--output", "json").json
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": 10, "name": "Dan"}, {"id": 11, "name": None}]
    assert run("append", "new", *words, "--create").code == 0
    assert run("show", "new", "--output", "json").json == [{"id": 11, "name": None}]


def test_a_column_that_becomes_text_is_a_warning(run: Run) -> None:
    workbook("a.xlsx", Data=[("id",), (1,), ("n/a",)])
    answer = run("append", "new", "a.xlsx", "--create")
    assert answer.code == 0 and "the column 'id' of a.xlsx is text" in answer.err


def test_a_table_is_exported_as_a_workbook_and_comes_back(run: Run) -> None:
    assert run("export", "people", "people.xlsx").out == "exported 3 rows of people to people.xlsx\n"
    header, *rows = openpyxl.load_workbook("people.xlsx").active.iter_rows(values_only=True)
    assert (header, sorted(rows)) == (("id", "name"), [(1, "Ann"), (2, "Bea"), (3, "Cid")])
    assert "exists already" in run("export", "people", "people.xlsx").err
    run("export", "people", "some", "--format", "excel", "--where", "id = 1")
    Path("some").rename("some.xlsx")
    assert openpyxl.load_workbook("some.xlsx").active.max_row == 2
    assert run("append", "copy", "people.xlsx", "--create").code == 0
    assert run("show", "copy", "--output", "json").json == run("show", "people", "--output", "json").json


def test_an_export_that_fails_leaves_no_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quacklake.cli.excel_writer.MAX_ROWS", 3)
    refused = run("export", "people", "people.xlsx")
    assert refused.code == 1 and "more than 2 rows" in refused.err
    assert not list(Path().glob("*people*"))
