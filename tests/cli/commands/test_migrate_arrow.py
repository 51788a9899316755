"""The migration from Arrow files on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.ekko.arrow_files import START, open_folder, transactions


@pytest.fixture
def files(lake: Path) -> Path:
    """A folder with two Arrow files, beside the lake."""
    open_folder(lake / "arrow").write(transactions(), START)
    return lake / "arrow"


def test_every_phase_from_backfill_to_retirement(run: Run, files: Path) -> None:
    assert run("migrate-arrow", "backfill", "arrow", "--dry-run").out == "2 files with 20 rows would be taken over\n"
    different = run("migrate-arrow", "compare", "arrow")
    assert different.code == 1
    assert "different: 20 transactions in 2 files, 0 in the lake (20 missing, 0 extra" in different.out
    assert "missing: 0x" in different.out
    assert run("migrate-arrow", "switch", "arrow", "--to", "lake").code == 1
    done = run("migrate-arrow", "backfill", "arrow", "--batch-rows", "7")
    assert (done.code, done.out) == (0, "took 2 files with 20 rows over: 20 inserted, 0 updated\n")
    equal = run("migrate-arrow", "compare", "arrow", "--output", "json")
    assert equal.code == 0
    assert (equal.json["equal"], equal.json["arrow_rows"], len(equal.json["hours"])) == (True, 20, 2)
    assert {hour["arrow_checksum"] == hour["lake_checksum"] for hour in equal.json["hours"]} == {True}
    assert "readers still use" in run("migrate-arrow", "retire", "arrow", "--yes").err
    assert run("migrate-arrow", "switch", "arrow", "--to", "lake").out == "readers use the lake\n"
    refused = run("migrate-arrow", "retire", "arrow")
    assert (refused.code, "must be confirmed" in refused.err) == (1, True)
    assert "2 files (" in run("migrate-arrow", "retire", "arrow", "--dry-run").out
    assert len(list(files.rglob("*.arrow"))) == 2
    assert run("migrate-arrow", "retire", "arrow", "--yes").code == 0
    assert list(files.rglob("*.arrow*")) == []
    status = run("migrate-arrow", "status", "arrow", "--output", "json").json
    assert (status["readers"], status["equal"], status["retired"]) == ("lake", True, 2)


def test_a_file_that_is_left_out_is_listed_and_the_exit_code_says_so(run: Run, files: Path) -> None:
    bad = next(files.rglob("*.arrow"))
    bad.write_bytes(b"nothing")
    done = run("migrate-arrow", "backfill", "arrow")
    assert done.code == 1
    assert f"left out: {bad.relative_to(files)}: it cannot be read" in done.out
    assert "took 1 file with 10 rows over" in done.out
    assert "cannot be read: transactions/" in run("migrate-arrow", "compare", "arrow").out


def test_a_comparison_takes_a_time_and_allows_extra_rows(run: Run, files: Path) -> None:
    run("migrate-arrow", "backfill", "arrow")
    next(files.rglob("hour=23/**/*.arrow")).unlink()
    assert run("migrate-arrow", "compare", "arrow", "--examples", "1").out.count("extra: 0x") == 1
    assert run("migrate-arrow", "compare", "arrow", "--allow-extra").code == 0
    assert run("migrate-arrow", "compare", "arrow", "--before", "2023-11-14 23:00").code == 0
    assert run("migrate-arrow", "compare", "arrow", "--before", "soon").code == 2
    assert "no Arrow files" in run("migrate-arrow", "compare", "elsewhere").err


def test_every_command_answers_in_json(run: Run, files: Path) -> None:
    for words in (
        "backfill arrow --dry-run",
        "backfill arrow",
        "compare arrow",
        "switch arrow --to lake",
        "status arrow",
        "retire arrow --dry-run",
        "retire arrow --yes",
    ):
        answer = run("migrate-arrow", *words.split(), "--output", "json")
        assert (answer.code, answer.err) == (0, ""), words
        assert answer.json, words


def test_help_lists_the_command_beside_those_of_maintenance(run: Run) -> None:
    panel = run("--help").out.partition("Maintain")[2].partition("Administer")[0]
    assert "migrate-arrow" in panel and "Move Ekko's Arrow files into the lake" in panel
