from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.cli.conftest import Run

PEOPLE = "id,name\n10,Dan\n11,Eva\n"


def _names(run: Run) -> set[str]:
    return {row["name"] for row in run("show", "people", "--limit", "all", "--output", "json").json}


def test_the_rows_of_a_file_are_added(run: Run, lake: Path) -> None:
    Path("people.csv").write_text(PEOPLE)
    answer = run("append", "people", "people.csv")
    assert answer.code == 0
    assert answer.out.startswith("appended 2 rows to people in snapshot ")
    assert _names(run) == {"Ann", "Bea", "Cid", "Dan", "Eva"}


def test_the_answer_has_facts_for_programs(run: Run, lake: Path) -> None:
    Path("people.csv").write_text(PEOPLE)
    facts = run("append", "people", "people.csv", "--output", "json", "--message", "new", "--author", "me").json
    newest = run("snapshots", "--limit", "1", "--output", "json").json[0]
    assert facts == {"table": "people", "rows": 2, "files": 1, "snapshot": newest["snapshot_id"], "created": False}
    assert (newest["commit_message"], newest["author"]) == ("new", "me")


def test_a_table_and_its_schema_are_made_when_asked_for(run: Run, lake: Path) -> None:
    pq.write_table(pa.table({"x": range(1000)}), "x.parquet")
    refused = run("append", "new.points", "x.parquet")
    assert refused.code == 1
    assert "--create" in refused.err
    before = run("info", "--output", "json").json["snapshot"]
    facts = run("append", "new.points", "x.parquet", "--create", "--output", "json").json
    assert facts == {"table": "new.points", "rows": 1000, "files": 1, "snapshot": before + 1, "created": True}
    more = run("append", "new.points", "x.parquet", "--create", "--output", "json").json
    assert more["created"] is False
    rows = {row["table"]: row["rows"] for row in run("tables", "--output", "json").json}
    assert rows["new.points"] == 2000


def test_a_lake_is_made_when_asked_for(run: Run) -> None:
    Path("people.csv").write_text(PEOPLE)
    words = ("append", "people", "people.csv", "--lake", "sqlite:///new.db")
    assert run(*words).code == 1
    assert run(*words, "--create").code == 0
    assert run("info", "--lake", "sqlite:///new.db", "--output", "json").json["data_path"] == f"{Path.cwd()}/data/"
    assert run("tables", "--lake", "sqlite:///new.db", "--output", "json").json[0]["rows"] == 2


def test_a_file_larger_than_a_batch_streams_in(run: Run, lake: Path) -> None:
    count = 200_000
    pq.write_table(pa.table({"n": range(count), "half": pa.array([n / 2 for n in range(count)])}), "n.parquet")
    assert run("append", "big.numbers", "n.parquet", "--output", "json").json["rows"] == count
    assert run("tables", "--output", "json").json[0]["rows"] == 198 + count


def test_rows_that_do_not_fit_change_nothing(run: Run, lake: Path) -> None:
    Path("people.csv").write_text("id,nme\n10,Dan\n")
    before = run("info", "--output", "json").json
    answer = run("append", "people", "people.csv")
    assert answer.code == 1
    assert 'did you mean "name"?' in answer.err
    assert run("info", "--output", "json").json == before


def test_a_bad_value_far_into_a_file_changes_nothing(run: Run, lake: Path) -> None:
    lines = [f"{n},{n}.5" for n in range(150_000)]
    Path("n.csv").write_text("n,half\n" + "\n".join([*lines, "oops,1.0"]) + "\n")
    before = run("info", "--output", "json").json
    files = set((lake / "data").rglob("*.parquet"))
    answer = run("append", "big.numbers", "n.csv")
    assert answer.code == 1
    assert 'Line: 150002: Error when converting column "n"' in answer.err
    assert run("info", "--output", "json").json == before
    assert set((lake / "data").rglob("*.parquet")) == files


def test_an_empty_file_adds_no_snapshot(run: Run, lake: Path) -> None:
    Path("people.csv").write_text("id,name\n")
    before = run("info", "--output", "json").json["snapshot"]
    facts = run("append", "people", "people.csv", "--output", "json").json
    assert (facts["rows"], facts["snapshot"]) == (0, before)
