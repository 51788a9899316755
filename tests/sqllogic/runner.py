"""Runs one test file; the process that runs it is thrown away afterwards."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

import quacklake
from tests.sqllogic.script import VARIABLE, Command, parse, values

__all__ = ["Failed", "Runner", "Skipped", "lacking", "run_file"]

#: What the tests may require without our having more than DuckDB itself.
_AVAILABLE = {"ducklake", "parquet", "icu", "json", "notwindows", "no_alternative_verify", "skip_reload", "64bit"}
_SEPARATOR = re.compile(r"\t+")


class Skipped(Exception):
    """The file needs something that is not here."""


class Failed(Exception):
    """A command did not do what the file says."""


class Runner:
    """Runs the commands of a file; connections are cursors of one session."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = root
        self.variables = {"UUID": uuid.uuid4().hex, "TEST_DIR": str(directory)}
        self.directory = directory
        self.session = self._new()
        self.connections: dict[str, quacklake.Session] = {}
        self.labelled: dict[str, list[list[str]]] = {}
        self.skipping = False
        self.halted = False
        self.passed = 0

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
                raise Skipped("runs statements at the same time")
            for value in list(values(words)):
                self.variables[words[1]] = value
                self._run(command.body)
            return
        getattr(self, f"_do_{kind.replace('-', '_')}", self._unknown)(command, words)

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
        raise Skipped(f"needs {words[1]}")

    def _do_require_env(self, _: Command, words: list[str]) -> None:
        raise Skipped(f"needs the environment variable {words[1]}")

    def _do_test_env(self, command: Command, words: list[str]) -> None:
        text = " ".join(command.words[2:])
        self.variables[words[1]] = self._fill(text)

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
        else:
            if words[1] == "error":
                raise Failed(f"{self._place(command)}no error was raised; expected: {(command.expected or [''])[0]}")
        self.passed += 1

    def _do_query(self, command: Command, words: list[str]) -> None:
        types, rest = words[1], words[2:]
        sort = next((word for word in rest if word in ("rowsort", "valuesort", "nosort")), "nosort")
        labels = [word for word in rest if word.startswith("con")]
        try:
            table = self._execute(command, labels[0] if labels else None)
            rows = _texts(table)
        except Exception as error:
            raise Failed(f"{self._place(command)}{type(error).__name__}: {error}") from error
        label = next((word for word in rest if word not in labels and word != sort), None)
        if not command.expected and label is not None:
            if self.labelled.setdefault(label, rows) != rows:
                raise Failed(f"{self._place(command)}other rows than before under the label {label}")
            self.passed += 1
            return
        expected = [self._fill(line) for line in command.expected or []]
        problem = _difference(rows, expected, len(types), sort, self.root)
        if problem is not None and command.expected is not None:
            raise Failed(f"{self._place(command)}{problem}")
        self.passed += 1

    def _place(self, command: Command) -> str:
        return f"line {command.line}: {self._fill(command.sql)[:300]}\n    "


def _compare(left: str, operator: str, right: str) -> bool:
    if operator == "=":
        return left == right
    one, two = float(left), float(right)
    return {"<": one < two, ">": one > two, "<=": one <= two, ">=": one >= two}[operator]


def _texts(table: pa.Table) -> list[list[str]]:
    """The values as DuckDB prints them."""
    if not table.num_columns:
        return []
    names = [f"c{number}" for number in range(table.num_columns)]
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", table.rename_columns(names))
        found = connection.execute(f"SELECT {', '.join(f'{name}::VARCHAR' for name in names)} FROM rows").fetchall()
    return [["NULL" if value is None else value.replace("\0", "\\0") or "(empty)" for value in row] for row in found]


def _difference(rows: list[list[str]], expected: list[str], columns: int, sort: str, root: Path) -> str | None:
    if len(expected) == 1 and expected[0].startswith("<FILE>:"):
        return None
    flat = [value for row in rows for value in row]
    if len(expected) == 1 and "values hashing to" in expected[0]:
        ordered = (
            sorted(flat)
            if sort == "valuesort"
            else [v for r in (sorted(rows) if sort == "rowsort" else rows) for v in r]
        )
        digest = hashlib.md5("".join(f"{value}\n" for value in ordered).encode()).hexdigest()
        return None if expected[0].endswith(digest) else f"other values than {expected[0]}"
    width = len(rows[0]) if rows else columns
    if rows and width != columns:
        return f"{width} columns, not {columns}"
    wanted = [_SEPARATOR.split(line) if columns > 1 else [line] for line in expected]
    if columns > 1 and any(len(row) != columns for row in wanted):
        wanted = [line.split("\t") for line in expected]
    if columns > 1 and all(len(row) == 1 for row in wanted):
        single = [row[0] for row in wanted]
        wanted = [single[at : at + columns] for at in range(0, len(single), columns)]
    if sort == "rowsort":
        rows, wanted = sorted(rows), sorted(wanted)
    if sort == "valuesort":
        rows, wanted = [[value] for value in sorted(flat)], [[v] for v in sorted(v for r in wanted for v in r)]
    same = len(rows) == len(wanted) and all(
        len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
        for one, two in zip(rows, wanted, strict=True)
    )
    return None if same else f"got {rows[:6]}, expected {wanted[:6]}"


def _same(found: str, wanted: str) -> bool:
    if found == wanted or found.strip() == wanted.strip():
        return True
    if wanted.startswith("<REGEX>:"):
        return re.fullmatch(wanted.removeprefix("<REGEX>:"), found, re.DOTALL) is not None
    if wanted.startswith("<!REGEX>:"):
        return re.fullmatch(wanted.removeprefix("<!REGEX>:"), found, re.DOTALL) is None
    if {found.lower(), wanted.lower()} in ({"true", "1"}, {"false", "0"}, {"true"}, {"false"}):
        return True
    try:
        return abs(float(found) - float(wanted)) <= 1e-9 * max(1.0, abs(float(wanted)))
    except ValueError:
        return False


def run_file(root: Path, path: Path) -> tuple[str, str]:
    """Run a file in a directory of its own: PASS, FAIL or SKIP, and why."""
    os.chdir(root)
    with tempfile.TemporaryDirectory(prefix="yardstick-", ignore_cleanup_errors=True) as directory:
        os.environ["QUACKLAKE_FOREIGN_PATHS"] = f"{directory},{root}"  # stock reads files from anywhere
        try:
            runner = Runner(root, Path(directory))
            runner.run(path)
        except Skipped as reason:
            return "SKIP", str(reason)
        except Failed as reason:
            return "FAIL", str(reason)
        except Exception as error:
            return "FAIL", f"{type(error).__name__}: {error}"
        return "PASS", str(runner.passed)


def lacking(path: Path) -> str | None:
    """Why a file cannot be tried at all, as its text tells; None when it can."""
    text = path.read_text(encoding="utf-8")
    for name in UPKEEP:
        if name in text and not hasattr(quacklake.Lake, name):
            return f"needs {name}"
    if re.search(r"^checkpoint\b", text, re.IGNORECASE | re.MULTILINE) and not hasattr(quacklake.Lake, UPKEEP[0]):
        return "needs CHECKPOINT"
    return "runs statements at the same time" if "concurrentloop" in text or "concurrentforeach" in text else None


UPKEEP = (
    "flush_inlined_data",
    "merge_adjacent_files",
    "rewrite_data_files",
    "expire_snapshots",
    "cleanup_old_files",
    "delete_orphaned_files",
)
