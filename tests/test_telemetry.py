from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from quacklake import telemetry
from quacklake.errors import ConfigError

logger = logging.getLogger("quacklake.test")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    root = logging.getLogger("quacklake")
    before = (list(root.handlers), root.level, root.propagate)
    telemetry.reset()
    yield
    telemetry.reset()
    root.handlers, root.level, root.propagate = before


def test_counts_add_up() -> None:
    telemetry.count("a")
    telemetry.count("a", 4)
    telemetry.count("b", 0)
    assert telemetry.snapshot().counters == {"a": 5, "b": 0}


@pytest.mark.concurrency
def test_counts_from_many_threads_are_not_lost() -> None:
    def work(_: int) -> None:
        for _ in range(2000):
            telemetry.count("n")
        with telemetry.timed("t"):
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert telemetry.snapshot().counters == {"n": 16_000}
    assert telemetry.snapshot().timings["t"].count == 8


def test_counting_is_cheap() -> None:
    # The promise is a microsecond; the limit leaves room for a slow machine.
    counted = timeit.repeat(lambda: telemetry.count("n"), timer=time.process_time, number=10_000, repeat=5)
    seconds = min(counted) / 10_000
    assert seconds < 5e-6


def test_a_block_is_timed_even_when_it_raises() -> None:
    with telemetry.timed("t"):
        pass
    with pytest.raises(KeyError), telemetry.timed("t"):
        raise KeyError
    timing = telemetry.snapshot().timings["t"]
    assert timing.count == 2
    assert 0 <= timing.shortest <= timing.longest <= timing.seconds


def test_a_snapshot_does_not_change() -> None:
    telemetry.count("a")
    snapshot = telemetry.snapshot()
    telemetry.count("a")
    telemetry.reset()
    assert snapshot.counters == {"a": 1}
    with pytest.raises(TypeError):
        snapshot.counters["a"] = 2  # type: ignore[index]
    assert telemetry.snapshot().counters == {}


def test_nothing_is_printed_unless_the_program_asks_for_it() -> None:
    code = "import logging, quacklake.telemetry; logging.getLogger('quacklake').error('oops')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_text_logs_are_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure_logging("info")
    logger.info("opening %s", "postgresql://u:hush@h/d")
    logger.debug("not this")
    output = capsys.readouterr().err
    assert "postgresql://u:***@h/d" in output
    assert "hush" not in output
    assert "not this" not in output


def test_json_logs_are_redacted_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure_logging("debug", "json")
    try:
        raise ValueError("password=" + "hu" + "sh")
    except ValueError:
        logger.exception("failed at\n%s", "mysql://u:hush@h/d", extra={"token": "hush", "rows": 3, "path": "a\nb"})
    output = capsys.readouterr().err
    assert "hush" not in output
    entry = json.loads(output)
    assert output.count("\n") == 1
    assert entry["level"] == "error"
    assert entry["logger"] == "quacklake.test"
    assert entry["message"] == "failed at\nmysql://u:***@h/d"
    assert (entry["token"], entry["rows"], entry["path"]) == ("***", 3, "a\nb")
    assert "ValueError: password=***" in entry["exception"]
    assert entry["time"].endswith("+00:00")


# P53
def test_an_error_in_a_json_log_has_its_code_hint_and_context(capsys: pytest.CaptureFixture[str]) -> None:
    """P53."""
    telemetry.configure_logging("info", "json")
    error = ConfigError("no lake", hint="pass --lake, not password=" + "hush")
    logger.warning("it failed: %s", error.message, extra=telemetry.error_facts(error, pipeline="p", table=None))
    try:
        raise error
    except ConfigError:
        logger.exception("it failed")
    logger.warning("a bug", extra=telemetry.error_facts(ZeroDivisionError()))
    output = capsys.readouterr().err
    told, raised, bug = map(json.loads, output.splitlines())
    assert (told["message"], told["code"], told["pipeline"]) == ("it failed: no lake", "config", "p")
    assert "table" not in told
    assert (raised["code"], raised["hint"]) == ("config", told["hint"])
    assert told["hint"].startswith("pass --lake")
    assert "hush" not in output
    assert bug["code"] == "internal"
    assert "hint" not in bug


def test_configuring_again_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure_logging("info", "json")
    telemetry.configure_logging("info", "text")
    logger.info("once")
    assert capsys.readouterr().err.count("once") == 1


@pytest.mark.parametrize(("level", "form"), [("loud", "text"), ("info", "xml")])
def test_unknown_levels_and_formats_are_refused(level: str, form: str) -> None:
    with pytest.raises(ConfigError, match="unknown log"):
        telemetry.configure_logging(level, form)
