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


@pytest.mark.parametrize("where", ["option", "variable"])
def test_errors_are_lines_of_a_json_log(run: Run, lake: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--log-format", "json"] if where == "option" else []
    if where == "variable":
        monkeypatch.setenv("QUACKLAKE_LOG_FORMAT", "json")
    monkeypatch.setenv(f"QUACKLAKE_POOLSIZE_{where.upper()}", "3")
    for command, code in (
        (("sql", "SELEC 1"), "input.sql"),
        (("show", "peple"), "not_found"),
        (("show", "--nonsense"), "usage"),
    ):
        lines = _lines(run(*command, *words).err)
        assert (lines[-1]["level"], lines[-1]["logger"], lines[-1]["code"]) == ("error", "quacklake.cli", code)
        assert lines[-1]["time"] and lines[-1]["message"]
        if code == "input.sql":  # a warning comes once in a process
            assert (lines[0]["level"], lines[0]["code"]) == ("warning", "warning")
    assert _lines(run("show", "peple", *words).err)[-1]["hint"] == 'did you mean "main.people"?'
    (traced,) = (
        line for line in _lines(run("show", "peple", "--debug", *words).err) if line.get("code") == "not_found"
    )
    assert "Traceback" in traced["exception"]


def test_a_wrong_setting_is_a_line_of_the_log_that_was_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUACKLAKE_POOL_SIZE", "many")
    (line,) = _lines(run("tables", "--log-format", "json").err)
    assert line["level"] == "error" and "QUACKLAKE_POOL_SIZE" in line["message"]
