from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import quacklake
from quacklake.cli import app
from quacklake.errors import CancelledError, ConfigError, InputError
from tests.cli.conftest import Run


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Makes ``quacklake info`` raise whatever is put into the list."""
    errors: list[BaseException] = []

    def info(context: object) -> None:
        raise errors.pop()

    monkeypatch.setattr("quacklake.cli.commands.tables.info", info)
    return errors


def test_an_error_is_a_message_and_a_hint_on_standard_error(run: Run, lake: Path) -> None:
    answer = run("show", "peple")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err == 'error: there is no table "main.peple"\n  hint: did you mean "main.people"?\n'


def test_an_error_is_json_when_json_is_asked_for(run: Run, lake: Path) -> None:
    answer = run("show", "peple", "--output", "json")
    assert answer.code == 1
    assert answer.out == ""
    assert json.loads(answer.err) == {
        "code": "not_found",
        "message": 'there is no table "main.peple"',
        "hint": 'did you mean "main.people"?',
    }


def test_a_traceback_is_shown_only_when_asked_for(run: Run, lake: Path) -> None:
    assert "Traceback" not in run("show", "peple").err
    assert "Traceback" not in run("show", "peple", "-v").err
    assert "Traceback" in run("show", "peple", "--debug").err


def test_an_unforeseen_error_is_told_in_one_line(run: Run, failing: list[BaseException]) -> None:
    failing.append(ZeroDivisionError("one\ntwo"))
    answer = run("info")
    assert answer.code == 1
    assert answer.err.startswith("error: unexpected error: ZeroDivisionError: one\n")
    assert "--debug" in answer.err


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("more", [(), ("-v", "--debug")])
def test_a_password_is_never_printed(
    run: Run, failing: list[BaseException], output: str, more: tuple[str, ...]
) -> None:
    failing.append(ConfigError("postgresql://ann:geheim@db/lake is down", hint="ask postgresql://ann:geheim@db/lake"))
    answer = run("info", "--output", output, *more, "--lake", "postgresql://ann:geheim@db/lake")
    assert answer.code == 1
    assert "geheim" not in answer.out + answer.err
    assert "ann:***@db" in answer.err


def test_a_password_is_not_printed_by_a_complaint_about_usage(run: Run) -> None:
    answer = run("postgresql://ann:geheim@db/lake")
    assert answer.code == 2
    assert "geheim" not in answer.err


def test_a_password_is_not_printed_by_a_real_driver(run: Run) -> None:
    answer = run("tables", "-v", "--debug", "--lake", "postgresql://ann:geheim@127.0.0.1:1/lake")
    assert answer.code == 1
    assert "ann:***@127.0.0.1" in answer.err
    assert "geheim" not in answer.out + answer.err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError("cancelled")])
def test_an_interruption_ends_with_130(run: Run, failing: list[BaseException], error: BaseException) -> None:
    failing.append(error)
    answer = run("info")
    assert (answer.code, answer.err) == (130, "interrupted\n")


# P53
@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError("cancelled")])
def test_an_interruption_is_a_line_of_a_json_log(run: Run, failing: list[BaseException], error: BaseException) -> None:
    """P53."""
    failing.append(error)
    answer = run("info", "--log-format", "json")
    (line,) = map(json.loads, answer.err.splitlines())
    assert (answer.code, line["level"], line["code"]) == (130, "error", "interrupted")


# P53
def test_an_error_that_ends_a_thread_is_a_line_of_a_json_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """P53."""

    def fail() -> None:
        raise InputError("no more", hint="look")

    def info(context: object) -> None:
        thread = threading.Thread(target=fail, name="helper")
        thread.start()
        thread.join()

    monkeypatch.setattr("quacklake.cli.commands.tables.info", info)
    before = threading.excepthook
    (line,) = map(json.loads, run("info", "--log-format", "json").err.splitlines())
    assert threading.excepthook is before
    assert (line["level"], line["code"], line["thread_name"]) == ("error", "input", "helper")
    assert "no more" in line["message"]
    assert "Traceback" in line["exception"]


def test_an_interruption_that_a_library_hides_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def info(context: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    monkeypatch.setattr("quacklake.cli.commands.tables.info", info)
    before = signal.getsignal(signal.SIGINT)
    assert run("info").code == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_without_a_lake_the_hint_names_the_options(run: Run) -> None:
    assert "--lake" in run("tables").err
    missing = run("tables", "--lake", "sqlite:///none.db")
    assert missing.code == 1
    assert "there is no lake" in missing.err
    assert "create=True" not in missing.err
    assert not Path("none.db").exists()


def test_the_settings_file_can_be_named(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = os.environ["QUACKLAKE_URL"]
    monkeypatch.delenv("QUACKLAKE_URL")
    Path("other.toml").write_text(f'url = "{url}"\n')
    assert run("tables", "--config", "other.toml").code == 0
    assert run("tables", "--config", "missing.toml").code == 1


def test_verbose_logs_and_the_log_can_be_json(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[tuple[str, str]] = []
    monkeypatch.setattr(app.telemetry, "configure_logging", lambda level, format: levels.append((level, format)))
    run("tables")
    run("tables", "-v")
    run("-vv", "tables", "--log-format", "json")
    assert levels == [("warning", "text"), ("info", "text"), ("debug", "json")]


def _start(*words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "quacklake.cli", *words]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_a_reader_that_stops_early_causes_no_complaint(lake: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    words = ("show", "big.numbers", "--limit", "all", "--output")
    processes = [_start(*words, output, stdout=write) for output in ("csv", "json", "table")]
    os.close(write)
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (141, "")


@pytest.mark.slow
def test_ctrl_c_during_an_append_leaves_the_lake_as_it_was(lake: Path) -> None:
    source = Path("long.csv")
    with source.open("w") as file:
        file.write("n,half\n")
        file.writelines(f"{n},{n / 2}\n" for n in range(4_000_000))
    process = _start("append", "big.numbers", str(source))
    files = Path("data/big/numbers")
    before = {path.name for path in files.iterdir()}
    # a new file in the table's folder shows that rows are on their way
    end = time.monotonic() + 60
    while {path.name for path in files.iterdir()} == before and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")
    assert {path.name for path in files.iterdir()} == before
    with quacklake.connect(os.environ["QUACKLAKE_URL"]) as unchanged:
        assert unchanged.table("big.numbers").count() == 198
