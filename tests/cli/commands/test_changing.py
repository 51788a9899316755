"""``quacklake merge``, ``export``, ``alter`` and ``describe``."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run


class _Bytes(io.TextIOWrapper):
    def __init__(self, text: str) -> None:
        super().__init__(io.BytesIO(text.encode()))


@pytest.mark.parametrize("text", ["id,name\n10,Dan\n", '[{"id": 10, "name": "Dan"}]', '{"id": 10, "name": "Dan"}\n'])
def test_rows_come_from_standard_input(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", _Bytes(text))
    assert run("append", "people", "-").code == 0
    assert run("scan", "people", "--where", "id = 10", "-o", "json").json == [{"id": 10, "name": "Dan"}]


def test_rows_are_merged_by_their_keys(run: Run, lake: Path) -> None:
    Path("rows.csv").write_text("id,name\n1,Anna\n9,Ida\n")
    assert "primary key" in run("merge", "people", "rows.csv").err
    answer = run("merge", "people", "rows.csv", "--on", "id", "-m", "names")
    assert answer.out.startswith("updated 1 row of people and inserted 1 in snapshot ")
    names = [row["name"] for row in run("scan", "people", "-o", "json").json]
    assert sorted(names) == ["Anna", "Bea", "Cid", "Ida"]
    assert run("snapshots", "-n", "1", "-o", "json").json[0]["commit_message"] == "names"


def test_a_table_evolves_with_its_rows_when_asked_to(run: Run, lake: Path) -> None:
    Path("rows.csv").write_text("id,name,age\n4,Dan,30\n")
    assert run("append", "people", "rows.csv").code == 1
    assert run("append", "people", "rows.csv", "--evolve").code == 0
    assert run("scan", "people", "--where", "age = 30", "-o", "json").json == [{"id": 4, "name": "Dan", "age": 30}]


def test_a_table_is_exported_in_every_format(run: Run, lake: Path) -> None:
    rows = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bea"}]
    readers = {
        "p.parquet": lambda path: pq.read_table(path).to_pylist(),
        "p.arrow": lambda path: pa.ipc.open_file(path).read_all().to_pylist(),
        "p.json": lambda path: json.loads(Path(path).read_text()),
        "p.jsonl": lambda path: [json.loads(line) for line in Path(path).read_text().splitlines()],
        "p.csv": lambda path: [
            {"id": int(line.split(",")[0]), "name": line.split(",")[1]}
            for line in Path(path).read_text().splitlines()[1:]
        ],
    }
    for name, read in readers.items():
        facts = run("export", "people", name, "--where", "id < 3", "-o", "json").json
        assert (facts["rows"], facts["file"]) == (2, name)
        assert sorted(read(name), key=lambda row: row["id"]) == rows
    run("export", "people", "p.csv.gz", "--columns", "id")
    assert gzip.decompress(Path("p.csv.gz").read_bytes()).decode().splitlines()[0] == "id"
    assert run("export", "people", "old.csv", "--at", "1", "-o", "json").json["rows"] == 2


def test_an_export_replaces_nothing_and_leaves_nothing_half_done(run: Run, lake: Path) -> None:
    Path("p.csv").write_text("mine")
    assert "--force" in run("export", "people", "p.csv").err
    assert Path("p.csv").read_text() == "mine"
    assert run("export", "people", "p.csv", "--where", "no_such = 1", "--force").code == 1
    assert Path("p.csv").read_text() == "mine"
    assert run("export", "people", "p.csv", "--force").code == 0
    assert "--format" in run("export", "people", "p.data").err
    assert run("export", "people", "none/p.csv").code == 1
    assert list(Path().glob(".*")) == []


def test_columns_are_added_dropped_renamed_and_widened(run: Run, lake: Path) -> None:
    for words in (
        ("add-column", "people", "level", "INTEGER", "--default", "7"),
        ("widen-column", "people", "level", "BIGINT"),
        ("rename-column", "people", "level", "rank", "-m", "better"),
    ):
        answer = run("alter", *words)
        assert (answer.code, answer.err) == (0, "")
    assert run("scan", "people", "--where", "id = 1", "-o", "json").json == [{"id": 1, "name": "Ann", "rank": 7}]
    before = run("snapshots", "-o", "json").json
    assert before[0]["commit_message"] == "better"
    assert run("alter", "drop-column", "people", "rank", "--dry-run").out == "rank would be dropped from people\n"
    assert run("alter", "drop-column", "people", "rnk", "--dry-run").code == 1
    assert run("alter", "add-column", "people", "x", "INTEGER", "--default", "seven").code == 1
    assert run("alter", "add-column", "people", "x", "INTEGR").code == 1
    assert run("alter", "widen-column", "people", "rank", "TINYINT").code == 1
    assert run("snapshots", "-o", "json").json == before
    assert run("alter", "drop-column", "people", "rank").code == 0
    assert run("head", "people", "-n", "1", "-o", "json").json == [{"id": 1, "name": "Ann"}]


def test_what_is_known_of_a_table_is_told(run: Run, lake: Path) -> None:
    run("alter", "partition", "people", "name")
    run("alter", "sort", "people", "id DESC")
    run("alter", "comment", "people", "who they are")
    run("alter", "comment", "people", "what they are called", "--column", "name")
    facts = run("describe", "people", "-o", "json").json
    assert (facts["partitioned_by"], facts["sorted_by"]) == (["name"], ["id DESC NULLS LAST"])
    assert (facts["comment"], facts["rows"], facts["primary_key"]) == ("who they are", 3, [])
    assert facts["columns"][1] == {
        "column": "name",
        "type": "VARCHAR",
        "nullable": True,
        "default": None,
        "comment": "what they are called",
    }
    shown = run("describe", "people").out
    assert "what they are called" in shown and "partitioned_by  name" in shown
    assert run("describe", "people", "-o", "csv").out.splitlines()[0] == "column,type,nullable,default,comment"
    run("alter", "partition", "people", "--reset")
    run("alter", "sort", "people", "--reset")
    assert run("describe", "people", "-o", "json").json["partitioned_by"] == []
    assert run("describe", "people", "--at", "1", "-o", "json").json["comment"] is None
    assert run("alter", "sort", "people").code == 1
    assert run("alter", "rename", "people", "persons").code == 0
    assert run("describe", "persons").code == 0


def test_options_are_set_for_a_table_and_taken_back(run: Run, lake: Path) -> None:
    words = ("alter", "option", "data_inlining_row_limit")
    assert run(*words, "5", "--table", "people").out == "data_inlining_row_limit is 5 for people\n"
    assert run(*words, "-o", "json").json["value"] == 10
    assert run(*words, "--table", "people", "--reset").out == "data_inlining_row_limit is 10 for people\n"
    assert run("alter", "option", "data_inlinig_row_limit", "5").code == 1


def test_rows_of_the_past_by_number_tag_and_time(run: Run, lake: Path) -> None:
    run("tag", "first", "--version", "1")
    now = run("snapshots", "-n", "1", "-o", "json").json[0]["snapshot_time"]
    for at, count in (("1", 2), ("first", 2), (now, 3)):
        assert len(run("scan", "people", "--at", at, "-o", "json").json) == count
    assert [row["table"] for row in run("tables", "--at", "1", "-o", "json").json] == ["main.people"]
    assert run("info", "--at", "first", "-o", "json").json["snapshot"] == 1
    assert "`quacklake snapshots`" in run("head", "people", "--at", "99").err
    assert "no snapshot has the tag" in run("head", "people", "--at", "frist").err
