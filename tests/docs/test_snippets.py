"""Every example in the documentation runs, in order, page by page."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from quacklake.cli import main
from quacklake.cli.pond import main as pond_main
from quacklake.config import SETTINGS
from tests.docs.blocks import PAGES, REPOSITORY, Block, blocks, page_id
from tests.duckdbs import needs_extensions

_PROGRAMS = {"quacklake": main, "pond": pond_main}
_RESULT = re.compile(r"# → (.+)$", re.MULTILINE)
HUDI_TABLES = REPOSITORY / "tests/connectors/hudi_tables.zip"
_WITH_EXAMPLES = [page for page in PAGES if any(block.language in ("python", "console") for block in blocks(page))]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory and no settings from outside."""
    for setting in SETTINGS:
        for name in (*setting.env, "QUACKLAKE_CONFIG"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("page", _WITH_EXAMPLES, ids=page_id)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    namespace: dict[str, object] = {"__name__": "example"}
    if page.name == "nats.md":
        monkeypatch.setenv("NATS_URL", request.getfixturevalue("nats_server").url)
    if page.name == "hudi.md":
        _unpack_hudi_table(tmp_path / "trips")
    if any("duckdb_extensions" in block.text for block in blocks(page)):
        needs_extensions()
    for block in blocks(page):
        if block.not_run is not None:
            continue
        if block.language == "python":
            _run_python(page, block, namespace)
        elif block.language == "console":
            _run_console(page, block, monkeypatch)


def _unpack_hudi_table(place: Path) -> None:
    """Put a table where the page of Hudi reads one; only Spark writes them."""
    pytest.importorskip("hudi", reason="the package hudi is not installed")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(HUDI_TABLES) as packed:
        packed.extractall(folder)
        shutil.move(Path(folder) / "copy_on_write", place)


def test_what_is_not_run_has_a_reason() -> None:
    reasons = {block.not_run for page in PAGES for block in blocks(page) if block.not_run is not None}
    assert all(len(reason) > 10 for reason in reasons)


def test_every_page_with_code_says_its_language() -> None:
    assert [page_id(page) for page in PAGES for block in blocks(page) if not block.language] == []


def _run_python(page: Path, block: Block, namespace: dict[str, object]) -> None:
    """Run a block; what it prints must be what its comments ``# → …`` say."""
    # the empty lines before it make a traceback name the line of the page
    code = compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True)
    with _printed() as output:
        exec(code, namespace)
    expected = _RESULT.findall(block.text)
    if expected:
        _check_lines(expected, output.getvalue(), f"{page_id(page)}:{block.line}", _spaced)


def _run_console(page: Path, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands after ``$``; what follows each must be what it prints, but for times, ids and places."""
    for command, expected in _commands(block.text):
        where = f"{page_id(page)}:{block.line}: {command}"
        before, piped, typed = command.rpartition(" | quacklake ")
        if piped:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(_shell(before, where).encode())))
            command = f"quacklake {typed}"
        words = shlex.split(command, comments=True)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            monkeypatch.setenv(name, value)
        elif words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif words[0] not in _PROGRAMS:
            _check_lines(expected, _shell(command, where), where, _shape)
        else:
            with _printed() as output:
                code = _PROGRAMS[words[0]](words[1:])
            failed = any(line.startswith(("error:", '{"code"')) for line in expected)
            assert code == (1 if failed else 0), f"{where}\n{output.getvalue()}"
            _check_lines(expected, output.getvalue(), where, _shape)


def _shell(command: str, where: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), where
    return done.stdout


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.splitlines()


@contextlib.contextmanager
def _printed() -> Iterator[io.StringIO]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield output


def _check_lines(expected: Iterable[str], printed: str, where: str, look: Callable[[str], str]) -> None:
    """The expected lines must be printed, in their order; ``…`` stands for anything."""
    rest = iter([look(line) for line in printed.splitlines()])
    for line in expected:
        if line.strip() in ("", "…"):
            continue
        pattern = ".*".join(re.escape(part) for part in look(line).split("…"))
        assert any(re.fullmatch(pattern, found) for found in rest), f"{where}: no line like {line!r} in\n{printed}"


def _spaced(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()


def _shape(line: str) -> str:
    """A line of a terminal without what differs from run to run: times, ids, places, and the widths that they make."""
    line = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+\d\d:\d\d)?", "TIME", line)
    line = line.replace(f"{Path.cwd()}/", "…/")
    line = re.sub(r"\^+", "^", line)  # DuckDB 2.0 marks the whole word
    return _spaced(re.sub(r"[─━]+", "─", line))


def test_a_wrong_result_is_noticed() -> None:
    page = PAGES[0]
    _run_python(page, Block("python", "print(1)  # → 1\n", 1, None), {})
    with pytest.raises(AssertionError, match="no line like '2'"):
        _run_python(page, Block("python", "print(1)  # → 2\n", 1, None), {})


def test_a_wrong_output_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGES[0]
    _run_console(
        page, Block("console", "$ quacklake config show --output csv\nname,value,source\n", 1, None), monkeypatch
    )
    with pytest.raises(AssertionError, match="no line like 'names'"):
        _run_console(page, Block("console", "$ quacklake config show\nnames\n", 1, None), monkeypatch)
