"""``quacklake adopt`` registers a foreign table, follows it, and says what it did or would do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Run
from tests.connectors.adoption import HandMade, field


@pytest.fixture
def table(run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> HandMade:
    """A foreign table that a lake may read."""
    monkeypatch.setenv("QUACKLAKE_FOREIGN_PATHS", str(elsewhere / "foreign"))
    assert run("init").code == 0
    made = HandMade(elsewhere / "foreign" / "t", [field("id", "long")])
    made.commit(made.file("a.parquet", pa.table({"id": [1, 2, 3]})))
    return made


def test_a_dry_run_tells_and_changes_nothing(run: Run, table: HandMade) -> None:
    answer = run("adopt", "delta:foreign/t", "t", "--dry-run")
    assert (answer.code, answer.out) == (
        0,
        f"would adopt 1 file with 3 rows of delta:{table.folder} at version 1 as t\n",
    )
    assert run("tables", "--output", "json").json == []


def test_a_table_is_adopted_and_followed(run: Run, table: HandMade) -> None:
    source = f"delta:{table.folder}"
    answer = run("adopt", source, "other.t", "--create", "-m", "their orders", "--output", "json").json
    assert answer == {
        "table": "other.t", "source": source, "version": 1, "created": True, "added_files": 1, "added_rows": 3,
        "removed_files": 0, "changed_files": 0, "dry_run": False, "snapshot": 2,
    }  # fmt: skip
    assert run("adopt", source, "other.t", "--sync").out == "other.t has the rows of version 1 already\n"
    table.commit(table.file("b.parquet", pa.table({"id": [4]})), {"remove": {"path": "a.parquet", "dataChange": True}})
    told = "other.t to version 2: 1 file added, 1 file removed\n"
    assert run("adopt", source, "other.t", "--sync", "--dry-run").out == f"would bring {told}"
    assert run("adopt", source, "other.t", "--sync").out == f"brought {told}".replace(":", " in snapshot 3:")
    assert run("show", "other.t", "--output", "json").json == [{"id": 4}]
    assert run("snapshots", "--output", "json").json[1]["commit_message"] == "their orders"


def test_errors_have_hints(run: Run, table: HandMade) -> None:
    assert run("adopt", "delta:foreign/t", "t").code == 0
    again = run("adopt", "delta:foreign/t", "t")
    assert (again.code, "--sync" in again.err) == (1, True), again.err
    assert run("adopt", "delta:foreign/none", "u").code == 1
    assert "does not name a foreign table" in run("adopt", "foreign/t", "u").err
