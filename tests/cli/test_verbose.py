from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import quacklake
from tests.cli.conftest import Run


def _lines(err: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in err.splitlines()]


def test_v_logs_statements_and_steps_with_their_times(run: Run, lake: Path) -> None:
    Path("people.csv").write_text("id,name\n9,Ida\n")
    lines = _lines(run("append", "people", "people.csv", "-v", "--log-format", "json").err)
    messages = {line["logger"]: line["message"] for line in lines}
    assert set(messages) == {"quacklake.lake", "quacklake.commit"}
    assert messages["quacklake.lake"].startswith("open ")
    assert messages["quacklake.lake"].endswith(f" ms sqlite:///{lake}/lake.db")
    assert messages["quacklake.commit"].endswith(" ms")
    (told,) = [
        line["message"]
        for line in _lines(run("sql", "SELECT *\n  FROM people", "-v", "--log-format", "json").err)
        if line["logger"] == "quacklake.sql"
    ]
    assert told.endswith(" ms SELECT * FROM people")


def test_vv_logs_what_the_database_is_asked_too(run: Run, lake: Path) -> None:
    lines = _lines(run("show", "people", "-vv", "--log-format", "json").err)
    asked = [line["message"] for line in lines if line["logger"] == "quacklake.catalog"]
    assert any(message.startswith("latest_snapshot ") and "FROM ducklake_snapshot" in message for message in asked)


def test_nothing_is_logged_unless_asked_for(run: Run, lake: Path) -> None:
    assert run("show", "people").err == ""


def test_no_secret_is_logged(run: Run, lake: Path) -> None:
    told = run("sql", "CREATE SECRET s (TYPE s3, KEY_ID 'abc', SECRET 'geheim')", "-vv").err
    assert "geheim" not in told.partition("error:")[0]
    assert "CREATE SECRET s" in told


def test_python_sees_the_steps_through_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("quacklake").propagate = True  # commands that ran before have turned it off
    with (
        caplog.at_level(logging.INFO, "quacklake"),
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path) as lake,
    ):
        lake.create_table("t", [{"x": 1}])
        lake.sql("SELECT x FROM t")
    told = [(record.name, record.getMessage()) for record in caplog.records]
    assert [name for name, _ in told][:1] == ["quacklake.commit"]
    assert any(name == "quacklake.sql" and message.endswith("SELECT x FROM t") for name, message in told)
