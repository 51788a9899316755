"""The inputs that people give to append and add-files: ragged files, folders, patterns, several files."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run

MANY = 30_000
"""More lines than DuckDB looks at to find out how a file is written."""


def _rows(run: Run, table: str) -> list[dict[str, object]]:
    """Return the rows in order: several threads write the rows of several files."""
    return sorted(run("show", table, "--limit", "all", "--output", "json").json, key=str)


@pytest.fixture
def empty(run: Run, elsewhere: Path) -> Path:
    """A lake without tables."""
    assert run("init").code == 0
    return elsewhere


RAGGED = {
    "too many": ("id,name\n1,a\n2,b,c\n3,d\n", "line 3 has 3 fields, and line 1 has 2"),
    "too few": ("id,name\n1,a\n2\n3,d\n", "line 3 has 1 field, and line 1 has 2"),
    "too few at the end": ("id,name\n1,a\n2,b\n3", "line 4 has 1 field, and line 1 has 2"),
    "short header": ("id,name\n1,a,x\n2,b,y\n", "line 2 has 3 fields, and line 1 has 2"),
    "a title": ("Books of 2024\n\nid,name\n1,a\n", "line 3 has 2 fields, and line 1 has 1"),
    "a comment": ("# made by hand\nid,name\n1,a\n", "line 2 has 2 fields, and line 1 has 1"),
    "late": ("id,name\n" + "1,a\n" * MANY + "1,2,3\n", f"line {MANY + 2} has 3 fields, and line 1 has 2"),
    "after quoted line ends": ('id,name\n1,"a\nb"\n2\n', "line 4 has 1 field, and line 1 has 2"),
    "an open quotation": ('id,name\n1,"a\n2,b\n', "a quotation that does not end"),
    "a name twice": ("id,ID\n1,2\n", "line 1 of x.csv names the column 'id' twice"),
    "nothing": ("", "x.csv is empty"),
    "blank": ("\n\n", "x.csv is empty"),
}


@pytest.mark.parametrize("case", RAGGED)
def test_a_ragged_csv_file_is_refused_with_its_line(case: str, run: Run, empty: Path) -> None:
    content, message = RAGGED[case]
    Path("x.csv").write_text(content)
    answer = run("append", "x", "x.csv", "--create")
    assert answer.code == 1
    assert message in answer.err
    assert run("tables", "--output", "json").json == []


BAD_JSON = {
    "half a line": ('{"id": 1}\n{"id":\n{"id": 3}\n', "line 2, column"),
    "a word": ('{"id": 1}\nfoo\n', "line 2, column 1"),
    "a number": ('{"id": 1}\n5\n', "line 2 is 5, not an object"),
    "an array": ('{"id": 1}\n[1]\n', "line 2 is an array, not an object"),
    "cut off": ('{"id": 1}\n{"id": 2', "line 2, column"),
    "an element": ('[{"id": 1},\n 5]', "value 2 of the array is 5, not an object"),
    "an open array": ('[{"id": 1},\n {"id": 2}', "line 2, column"),
    "nothing": ("", "x.jsonl is empty"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_a_bad_json_line_is_refused_with_its_number(case: str, run: Run, empty: Path) -> None:
    content, message = BAD_JSON[case]
    Path("x.jsonl").write_text(content)
    answer = run("append", "x", "x.jsonl", "--create")
    assert answer.code == 1
    assert message in answer.err
    assert run("tables", "--output", "json").json == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b"a,b\n1,\xe9\n"),
        ("x.csv", b"a,b\n" + b"1,2\n" * 100_000 + b"1,\xe9\n"),
        ("x.jsonl", b'{"a": "\xe9"}\n'),
    ],
)
def test_a_text_in_another_encoding_is_refused(name: str, content: bytes, run: Run, empty: Path) -> None:
    Path(name).write_bytes(content)
    answer = run("append", "x", name, "--create")
    assert answer.code == 1
    assert "not UTF-8 text" in answer.err
    assert run("tables", "--output", "json").json == []


def test_a_json_key_that_comes_late_is_not_left_out(run: Run, lake: Path) -> None:
    lines = ['{"id": 1, "name": "a"}'] * MANY + ['{"id": 2, "name": "b", "more": 3}']
    Path("x.jsonl").write_text("\n".join(lines))
    answer = run("append", "people", "x.jsonl")
    assert answer.code == 1
    assert '"more"' in answer.err


def test_a_type_that_shows_late_is_the_type_of_a_new_table(run: Run, empty: Path) -> None:
    Path("x.csv").write_text("n\n" + "1\n" * MANY + "2.5\n")
    assert run("append", "x", "x.csv", "--create").code == 0
    assert run("describe", "x", "--output", "json").json["columns"][0]["type"] == "DOUBLE"


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("id;name\n1;a,b\n2;c\n", ()),
        ("id\tname\n1\ta,b\n2\tc\n", ()),
        ("\n\nid|name\n1|a,b\n2|c\n", ()),
        ("\ufeffid,name\r\n1,'a,b'\r\n2,c\r\n", ("--quote", "'")),
        ('id,name\n1,"a,b"\n\n2,c\n', ("--delimiter", ",")),
        ("id~name\n1~a,b\n2~c\n", ("--delimiter", "~")),
        ("Books\nid\tname\n1\ta,b\n2\tc\n", ("--skip-lines", "1", "--delimiter", "\\t")),
    ],
)
def test_a_csv_file_may_be_written_in_many_ways(content: str, options: tuple[str, ...], run: Run, empty: Path) -> None:
    Path("x.csv").write_text(content)
    assert run("append", "x", "x.csv", "--create", *options).code == 0
    assert _rows(run, "x") == [{"id": 1, "name": "a,b"}, {"id": 2, "name": "c"}]


def test_a_quote_may_be_escaped_with_a_backslash(run: Run, empty: Path) -> None:
    Path("x.csv").write_text('id,name\n1,"a \\"b\\", c"\n')
    assert run("append", "x", "x.csv", "--create").code == 1
    assert run("append", "x", "x.csv", "--create", "--escape", "\\").code == 0
    assert _rows(run, "x") == [{"id": 1, "name": 'a "b", c'}]


def test_a_file_without_a_header_goes_by_the_order_of_columns_when_told_so(run: Run, lake: Path) -> None:
    Path("x.csv").write_text("7,Gus\n8,Hal\n")
    refused = run("append", "people", "x.csv")
    assert refused.code == 1
    assert "--no-header" in refused.err
    assert run("append", "people", "x.csv", "--no-header").code == 0
    assert {"id": 7, "name": "Gus"} in _rows(run, "people")
    Path("y.csv").write_text("7,Gus,9\n")
    assert "has 3 columns and no header, and the table has 2" in run("append", "people", "y.csv", "--no-header").err


def test_a_header_of_numbers_can_be_told(run: Run, empty: Path) -> None:
    Path("x.csv").write_text("2023,2024\n1,2\n")
    assert run("append", "x", "x.csv", "--create", "--header").code == 0
    assert _rows(run, "x") == [{"2023": 1, "2024": 2}]


def test_a_wrong_option_is_told(run: Run, empty: Path) -> None:
    Path("x.csv").write_text("a\n1\n")
    assert "'::' is not one character" in run("append", "x", "x.csv", "--create", "--delimiter", "::").err


def test_a_folder_stands_for_the_files_below_it(run: Run, empty: Path) -> None:
    for name, number in (("in/a.csv", 1), ("in/more/b.csv", 2), ("in/_temporary/c.csv", 3), ("in/.d.csv", 4)):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"n\n{number}\n")
    Path("in/_SUCCESS").write_text("")
    answer = run("append", "x", "in", "--create")
    assert answer.out == "appended 2 rows of 2 files to x in snapshot 1\n"
    assert _rows(run, "x") == [{"n": 1}, {"n": 2}]


def test_a_file_of_unknown_kind_in_a_folder_is_told(run: Run, empty: Path) -> None:
    Path("in").mkdir()
    Path("in/a.csv").write_text("n\n1\n")
    Path("in/notes.txt").write_text("none")
    answer = run("append", "x", "in", "--create")
    assert answer.code == 1
    assert "the name of in/notes.txt does not say what is in it" in answer.err


def test_an_empty_folder_and_a_pattern_without_files_are_told(run: Run, empty: Path) -> None:
    Path("in").mkdir()
    assert "the folder in has no files" in run("append", "x", "in", "--create").err
    assert "no file has a name like in/*.csv" in run("append", "x", "in/*.csv", "--create").err
    assert "s3://b/x.csv is not a file of this machine" in run("append", "x", "s3://b/x.csv", "--create").err


def test_files_and_patterns_come_in_one_snapshot_and_in_one_piece(run: Run, empty: Path) -> None:
    for number in range(20):
        pq.write_table(pa.table({"n": [number] * 100}), f"{number}.parquet")
    pq.write_table(pa.table({"n": [-1]}), "_hidden.parquet")
    facts = run("append", "x", "[!1]*.parquet", "1.parquet", "1?.parquet", "--create", "--output", "json").json
    assert (facts["rows"], facts["files"], facts["snapshot"]) == (2000, 20, 1)
    assert len(run("files", "x", "--output", "json").json) == 1


def test_a_code_stays_a_text_when_one_of_the_files_needs_it(run: Run, empty: Path) -> None:
    Path("a.csv").write_text("code\nx7\n")
    Path("b.csv").write_text("code;n\n007;1\n")
    assert run("append", "x", "a.csv", "b.csv", "--create").code == 0
    assert _rows(run, "x") == [{"code": "007", "n": 1}, {"code": "x7", "n": None}]


def test_files_of_several_kinds_are_refused(run: Run, empty: Path) -> None:
    Path("a.csv").write_text("code\nx7\n")
    Path("c.json").write_text(json.dumps([{"code": "8"}]))
    assert "several formats: csv and json" in run("append", "x", "a.csv", "c.json", "--create").err


def test_a_file_that_does_not_fit_is_named_and_nothing_is_changed(run: Run, empty: Path) -> None:
    Path("a.csv").write_text("n\n1\n")
    Path("b.csv").write_text("n,m\n2,3,4\n")
    answer = run("append", "x", "a.csv", "b.csv", "--create")
    assert answer.code == 1
    assert "cannot read b.csv as csv: line 2 has 3 fields, and line 1 has 2" in answer.err
    assert run("tables", "--output", "json").json == []
    Path("b.csv").write_text("n,m\n2,3\n")
    assert run("append", "x", "a.csv", "--create").code == 0
    assert run("append", "x", "b.csv").code == 1
    Path("c.csv").write_text("n\nx\n")
    answer = run("append", "x", "a.csv", "c.csv")
    assert answer.code == 1
    assert "c.csv" in answer.err
    assert run("append", "x", "b.csv", "--evolve").code == 0
    assert _rows(run, "x") == [{"n": 1, "m": None}, {"n": 2, "m": 3}]


def test_the_names_of_folders_hold_columns(run: Run, empty: Path) -> None:
    for year in (2023, 2024):
        Path(f"in/year={year}").mkdir(parents=True)
        Path(f"in/year={year}/a.csv").write_text(f"n\n{year % 10}\n")
    assert run("append", "x", "in", "--create").code == 0
    assert _rows(run, "x") == [{"n": 3, "year": 2023}, {"n": 4, "year": 2024}]
    Path("in/year=then").mkdir()
    Path("in/year=then/a.csv").write_text("n\n5\n")
    answer = run("append", "x", "in/year=then")
    assert answer.code == 1
    assert "year" in answer.err


def test_files_can_be_added_to_a_new_table(run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for year in (2023, 2024):
        Path(f"in/year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"n": [year % 10]}), f"in/year={year}/a.parquet")
    Path("in/_SUCCESS").write_text("")
    Path("in/readme.md").write_text("")
    monkeypatch.setenv("QUACKLAKE_FOREIGN_PATHS", "in")
    refused = run("add-files", "x", "in")
    assert refused.code == 1
    assert "--create" in refused.err
    answer = run("add-files", "x", "in", "--create")
    assert answer.out == "added 2 rows of 2 files to x in snapshot 1\n"
    assert _rows(run, "x") == [{"n": 3, "year": 2023}, {"n": 4, "year": 2024}]
    assert {row["path"] for row in run("files", "x", "--output", "json").json} == {
        str(empty / f"in/year={year}/a.parquet") for year in (2023, 2024)
    }


def test_an_arrow_file_is_read_by_its_name_or_when_told_so(run: Run, empty: Path) -> None:
    for name in ("x.arrow", "x.data"):
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, pa.schema([("n", pa.int64())])) as writer:
            writer.write_table(pa.table({"n": [1]}))
    assert run("append", "x", "x.arrow", "--create").code == 0
    assert run("append", "x", "x.data").code == 1
    assert run("append", "x", "x.data", "--format", "arrow").code == 0
    assert _rows(run, "x") == [{"n": 1}, {"n": 1}]


def test_the_index_of_pandas_files_is_kept_unless_told_otherwise(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUACKLAKE_FOREIGN_PATHS", "in")
    Path("in").mkdir()
    pd.DataFrame({"n": [1]}, index=["a"]).to_parquet("in/text.parquet")
    pd.DataFrame({"n": [1]}, index=pd.RangeIndex(7, 8, name="id")).to_parquet("in/range.parquet")
    pa.feather.write_feather(pa.Table.from_pandas(pd.DataFrame({"n": [1]}, index=["a"])), "in/text.feather")
    expected = {"text": {"n": 1, "index": "a"}, "range": {"n": 1, "id": 7}}
    for name, row in expected.items():
        assert run("append", name, f"in/{name}.parquet", "--create").code == 0
        assert run("append", f"{name}_alone", f"in/{name}.parquet", "--create", "--no-index").code == 0
        assert (_rows(run, name), _rows(run, f"{name}_alone")) == ([row], [{"n": 1}])
        refused = run("append", f"{name}_alone", f"in/{name}.parquet")
        assert refused.code == 1 and list(row)[1] in refused.err
        assert run("merge", f"{name}_alone", f"in/{name}.parquet", "--on", "n", "--no-index").code == 0
        in_place = {**row} if name == "text" else {"n": 1}  # whose numbers are not in the file
        assert run("add-files", f"{name}_added", f"in/{name}.parquet", "--create").code == 0
        assert _rows(run, f"{name}_added") == [in_place]
    assert run("add-files", "x", "in/text.parquet", "--create", "--no-index").code == 0
    assert _rows(run, "x") == [{"n": 1}]
    assert run("append", "arrow", "in/text.feather", "--create", "--format", "arrow").code == 0
    assert _rows(run, "arrow") == [expected["text"]]
