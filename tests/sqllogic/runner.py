"""Runs one test file; the process that runs it is thrown away afterwards."""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from duckdb_extensions import import_extension

import quacklake
from tests.sqllogic.comparing import difference, says, texts
from tests.sqllogic.script import VARIABLE, Command, parse, values

__all__ = ["Outcome", "Runner", "run_file"]

#: Requirements of tests that DuckDB alone meets.
_AVAILABLE = {"ducklake", "parquet", "icu", "json", "notwindows", "no_alternative_verify", "skip_reload", "64bit"}
_EXTENSIONS = {"httpfs", "sqlite_scanner", "tpch"}


class Outcome(NamedTuple):
    """The outcome of a file: PASS, FAIL or SKIP, why, and whether it is plain.

    A plain file looks at nothing but the results of SQL: not at metadata tables, plans, files, logs or memory.
    """

    kind: str
    why: str = ""
    plain: bool = True


class Skipped(Exception):
    """The file needs something that is not here."""


class Failed(Exception):
    """A command did not do what the file says."""


class Runner:
    """Runs the commands of a file; connections are cursors of one session."""

    def __init__(self, root: Path, directory: Path, session: quacklake.Session | None = None) -> None:
        self.root = root
        self.variables = {"UUID": uuid.uuid4().hex, "TEST_DIR": str(directory)}
        self.directory = directory
        self.session = session or self._new()
        self.connections: dict[str, quacklake.Session] = {}
        self.labelled: dict[str, list[list[str]]] = {}
        self.catalog = ""
        self.skipping = False
        self.halted = False
        self.reworded: list[str] = []

    def _new(self) -> quacklake.Session:
        return quacklake.session(python_frames=False)

    def run(self, path: Path) -> None:
        self._run(parse(path))

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self.halted:
                return
            self._command(command)

    def _command(self, command: Command) -> None:
        kind, words = command.words[0], [self._fill(word) for word in command.words]
        if kind == "mode":
            self.skipping = words[1] == "skip"
        if self.skipping or not self._holds(command):
            return
        if kind in ("loop", "foreach", "concurrentloop", "concurrentforeach"):
            if kind.startswith("concurrent"):
                self._at_the_same_time(command, words)
                return
            for value in list(values(words)):
                self.variables[words[1]] = value
                self._run(command.body)
            return
        getattr(self, f"_do_{kind.replace('-', '_')}", self._unknown)(command, words)

    def _at_the_same_time(self, command: Command, words: list[str]) -> None:
        """Run a loop's body for every value, each in its own thread and connection."""
        runners = []
        for value in values(words):
            runner = Runner(self.root, self.directory, self.session.cursor())
            runner.variables = {**self.variables, words[1]: value}
            runners.append(runner)
        with ThreadPoolExecutor(len(runners)) as threads:
            futures = [threads.submit(runner._run, command.body) for runner in runners]
        for runner, future in zip(runners, futures, strict=True):
            runner.session.close()
            future.result()
            self.reworded += runner.reworded

    def _holds(self, command: Command) -> bool:
        for condition in command.conditions:
            match = re.fullmatch(r"(\w+)(<=|>=|=|<|>)(\w+)", "".join(condition[1:]))
            if match is None:
                if condition[0] == "onlyif":
                    return False
                continue
            left = self.variables.get(match[1], match[1])
            same = _compare(left, match[2], match[3])
            if same == (condition[0] == "skipif"):
                return False
        return True

    def _unknown(self, command: Command, _: list[str]) -> None:
        raise Skipped(f"the command {command.words[0]} is not known")

    # -- small commands ------------------------------------------------------------------------------------------------

    def _do_require(self, _: Command, words: list[str]) -> None:
        if words[1] == "vector_size" or words[1] in _AVAILABLE:
            return
        if words[1] not in _EXTENSIONS:
            raise Skipped(f"needs {words[1]}")
        if words[1] == "sqlite_scanner":  # such a file is about lakes in SQLite
            self.catalog = "sqlite:"
        with suppress(ImportError):  # its wheel, so that nothing is downloaded
            import_extension(words[1])
        try:
            self.session.sql(f"LOAD {words[1]}")
        except quacklake.QuacklakeError as error:
            raise Skipped(f"needs {words[1]}") from error

    def _do_require_env(self, _: Command, words: list[str]) -> None:
        raise Skipped(f"needs the environment variable {words[1]}")

    def _do_test_env(self, command: Command, words: list[str]) -> None:
        text = " ".join(command.words[2:])
        place = self.catalog if words[1] == "DUCKLAKE_CONNECTION" else ""
        self.variables[words[1]] = place + self._fill(text)

    def _nothing(self, _: Command, __: list[str]) -> None:
        return

    _do_mode = _do_hash_threshold = _do_tags = _do_set = _do_sleep = _nothing

    def _do_halt(self, _: Command, __: list[str]) -> None:
        self.halted = True

    def _do_restart(self, _: Command, __: list[str]) -> None:
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        self.session.close()
        self.session = self._new()

    _do_reconnect = _do_restart
    _do_load = _do_restart

    def _do_reset(self, command: Command, words: list[str]) -> None:
        self._do_restart(command, words)

    def _do_unzip(self, _: Command, words: list[str]) -> None:
        source, target = self.root / words[1], Path(words[2])
        target.write_bytes(gzip.decompress(source.read_bytes()))

    # -- statements ----------------------------------------------------------------------------------------------------

    def _fill(self, text: str) -> str:
        text = text.replace("__TEST_DIR__", str(self.directory)).replace("{UUID}", self.variables["UUID"])
        text = text.replace("{TEST_DIR}", str(self.directory))
        for name, value in self.variables.items():
            text = text.replace(f"{{{name}}}", value) if f"${{{name}}}" not in text else text
        for _ in range(3):
            text = VARIABLE.sub(lambda match: self.variables.get(match[1], match[0]), text)
        return text

    def _connection(self, label: str | None) -> quacklake.Session:
        if label is None:
            return self.session
        if label not in self.connections:
            self.connections[label] = self.session.cursor()
        return self.connections[label]

    def _execute(self, command: Command, label: str | None) -> pa.Table:
        sql = self._fill(command.sql)
        result = self._connection(label).sql(sql)
        return result.to_arrow()

    def _do_statement(self, command: Command, words: list[str]) -> None:
        if "enable_verification" in command.sql:
            return  # lets DuckDB check itself, not what it runs
        label = words[2] if len(words) > 2 else None
        try:
            self._execute(command, label)
        except Exception as error:
            if not isinstance(error, quacklake.QuacklakeError):
                raise Failed(f"{self._place(command)}{type(error).__name__} is no error of ours: {error}") from error
            if words[1] == "ok":
                raise Failed(f"{self._place(command)}{type(error).__name__}: {error}") from error
            self._compare_error(command, str(error))
        else:
            if words[1] == "error":
                raise Failed(f"{self._place(command)}no error was raised; expected: {(command.expected or [''])[0]}")

    def _compare_error(self, command: Command, message: str) -> None:
        expected = [self._fill(line) for line in command.expected or []]
        if not says(message, expected):
            self.reworded.append(f"line {command.line}: expected {' '.join(expected)!r}, got {message[:300]!r}")

    def _do_query(self, command: Command, words: list[str]) -> None:
        types, rest = words[1], words[2:]
        sort = next((word for word in rest if word in ("rowsort", "valuesort", "nosort")), "nosort")
        labels = [word for word in rest if word.startswith("con")]
        try:
            table = self._execute(command, labels[0] if labels else None)
            rows = texts(table)
        except Exception as error:
            raise Failed(f"{self._place(command)}{type(error).__name__}: {error}") from error
        label = next((word for word in rest if word not in labels and word != sort), None)
        if not command.expected and label is not None:
            if self.labelled.setdefault(label, rows) != rows:
                raise Failed(f"{self._place(command)}other rows than before under the label {label}")
            return
        expected = [self._fill(line) for line in command.expected or []]
        if len(expected) == 1 and expected[0].startswith("<FILE>:"):
            raise Skipped("expects rows of a file that is not in the folder")
        problem = difference(rows, expected, len(types), sort)
        if problem is not None and command.expected is not None:
            raise Failed(f"{self._place(command)}{problem}")

    def _place(self, command: Command) -> str:
        return f"line {command.line}: {self._fill(command.sql)[:300]}\n    "


def _compare(left: str, operator: str, right: str) -> bool:
    if operator == "=":
        return left == right
    one, two = float(left), float(right)
    return {"<": one < two, ">": one > two, "<=": one <= two, ">=": one >= two}[operator]


_INTERNALS = re.compile(
    r"ducklake_metadata|metadata_catalog|\bexplain\b|\bglob\(|read_blob\(|parquet_metadata|parquet_schema|duckdb_memory"
    r"|enable_logging|list_files|\bstats\(",
    re.IGNORECASE,
)


def run_file(root: Path, path: Path) -> Outcome:
    """Run a file in its own directory."""
    plain = _INTERNALS.search(path.read_text(encoding="utf-8")) is None
    return _run_file(root, path)._replace(plain=plain)


def _run_file(root: Path, path: Path) -> Outcome:
    os.chdir(root)
    with tempfile.TemporaryDirectory(prefix="yardstick-", ignore_cleanup_errors=True) as directory:
        os.environ["QUACKLAKE_FOREIGN_PATHS"] = f"{directory},{root}"  # stock reads files from anywhere
        runner = Runner(root, Path(directory))
        try:
            runner.run(path)
        except Skipped as reason:
            return Outcome("SKIP", str(reason))
        except Failed as reason:
            return Outcome("FAIL", "\n".join([*runner.reworded, str(reason)]))
        except Exception as error:
            return Outcome("FAIL", f"{type(error).__name__}: {error}")
        return Outcome("FAIL", "\n".join(runner.reworded)) if runner.reworded else Outcome("PASS")
