"""``quacklake sql``."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake.cli.commands.sql import Statements
from quacklake.cli.context import Context, Options
from quacklake.core.sql.sessions import session_of
from quacklake.errors import CancelledError
from tests.cli.conftest import Run


def test_a_statement_gives_rows_in_any_form(run: Run, lake: Path) -> None:
    query = "SELECT id, name FROM people WHERE id < 3 ORDER BY id"
    assert "│  1 │ Ann  │" in run("sql", query).out
    assert run("sql", query, "-o", "csv").out == "id,name\n1,Ann\n2,Bea\n"
    assert run("sql", query, "-o", "json").json == [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bea"}]


def test_a_change_is_a_snapshot_and_says_how_many_rows(run: Run, lake: Path) -> None:
    before = run("info", "-o", "json").json["snapshot"]
    assert run("sql", "UPDATE people SET name = 'x' WHERE id <= 2").out == "2 rows changed\n"
    assert run("sql", "CREATE TABLE u(a INTEGER)").out == "done\n"
    assert run("info", "-o", "json").json["snapshot"] == before + 2


def test_statements_come_from_a_file_and_from_standard_input(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("many.sql").write_text(
        "BEGIN; INSERT INTO people VALUES (7, 'Gus'); COMMIT; SELECT count(*) AS n FROM people;"
    )
    assert run("sql", "-f", "many.sql", "-o", "json").json == [{"n": 4}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS a; SELECT 2 AS b"))
    shown = run("sql")
    assert "a" in shown.out and "b" in shown.out
    assert run("sql", "-f", "none.sql").code == 1
    assert run("sql", "SELECT 1", "-f", "many.sql").code == 1


def test_statements_do_without_a_lake_or_attach_one(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = os.environ["QUACKLAKE_URL"].removeprefix("sqlite:///")
    monkeypatch.delenv("QUACKLAKE_URL")
    assert run("sql", "SELECT 1 AS a", "-o", "json").json == [{"a": 1}]
    attached = f"ATTACH 'ducklake:sqlite:{place}' AS other; SELECT count(*) AS n FROM other.people"
    assert run("sql", attached, "-o", "json").json == [{"n": 3}]
    missing = run("sql", "SELECT * FROM people")
    assert (missing.code, missing.out) == (1, "")
    assert "hint: no lake was given: pass --lake" in missing.err
    assert "no lake" not in run("sql", "SELEC 1").err


def test_a_lake_is_opened_by_the_statement_that_speaks_of_it(run: Run, lake: Path) -> None:
    assert run("sql", "SELECT 1 AS a", "--lake", "sqlite:///none.db", "-o", "json").json == [{"a": 1}]
    for statement in ("SELECT * FROM people", "SHOW TABLES", "CREATE TABLE u (i INTEGER)", "BEGIN; DELETE FROM people"):
        missing = run("sql", statement, "--lake", "sqlite:///none.db")
        assert missing.code == 1
        assert "there is no lake at sqlite:///none.db" in missing.err
    assert not Path("none.db").exists()
    assert run("sql", "BEGIN; DELETE FROM people").code == 0  # which ends without COMMIT
    assert run("sql", "SELECT 1; SELECT count(*) AS n FROM people", "-o", "json").json == [{"n": 3}]


def test_the_past_can_be_asked(run: Run, lake: Path) -> None:
    run("tag", "first", "--at", "1")
    for at in ("1", "first"):
        assert run("sql", "SELECT name FROM people WHERE id = 2", "--at", at, "-o", "json").json == [{"name": "Bob"}]
    refused = run("sql", "DELETE FROM people", "--at", "1")
    assert refused.code == 1


def test_a_table_shows_the_first_rows_and_how_many_there_are(run: Run, lake: Path) -> None:
    shown = run("sql", "FROM range(250000)", "--limit", "3")
    assert shown.out.splitlines()[-2:] == ["250,000 rows, 3 shown", "… and 249,997 more; --all shows them"]
    assert run("sql", "FROM range(200)").out.splitlines()[-2] == "200 rows, 100 shown"
    assert run("sql", "FROM range(200)", "--all").out.splitlines()[-1] == "200 rows"
    assert len(run("sql", "FROM range(200)", "-o", "csv").out.splitlines()) == 201


def test_an_error_shows_the_place(run: Run, lake: Path) -> None:
    answer = run("sql", "SELECT nme FROM people")
    assert answer.code == 1
    lines = answer.err.splitlines()
    assert "LINE 1: SELECT nme FROM people" in lines
    assert lines[lines.index("LINE 1: SELECT nme FROM people") + 1].strip() in ("^", "^^^")
    told = json.loads(run("sql", "SELEC 1", "-o", "json").err)
    assert told["code"] == "input.sql"


def test_variables_of_this_program_are_no_tables(run: Run, lake: Path) -> None:
    context = pa.table({"secret": ["geheim"]})
    assert context.num_rows == 1
    assert run("sql", "FROM context").code == 1


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT as a terminal has it; test processes that are started by others may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_statement_is_cancelled_and_the_session_goes_on(lake: Path) -> None:
    with Context(Options()).open(write=True) as opened:
        statements = Statements(session_of(opened.handle))
        begun = threading.Event()

        def press() -> None:
            begun.wait()
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press).start()

        def work(session: object) -> None:
            begun.set()
            session.statement("SELECT count(*) FROM range(10000000000000)").fetchall()  # type: ignore[attr-defined]

        with pytest.raises(CancelledError):
            statements.run(work)
        assert statements.run(lambda session: session.statement("SELECT 1").fetchall()) == [(1,)]
        statements.close()


def test_arrow_goes_to_a_program(lake: Path) -> None:
    command = [sys.executable, "-m", "quacklake.cli", "sql", "SELECT 42 AS x", "--output", "arrow"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert pa.ipc.open_stream(done.stdout).read_all().to_pylist() == [{"x": 42}]
