"""Read workbooks: Excel (.xlsx, .xlsm, .xls, .xlsb) and OpenDocument (.ods). A process of its own reads each."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quacklake.config import resolve
from quacklake.core.engines.duckdb.exact_reading import WHOLE, ZONED, day, whole
from quacklake.core.format.names import literal, quote
from quacklake.errors import (
    InputError,
    InternalError,
    LimitError,
    MissingExtraError,
    QuacklakeError,
    StatementTimeoutError,
)
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.excel_reader import SheetFacts, SheetRequest

_PACKAGE = Path(__file__).parents[3]
_PROGRAM = ["-m", "quacklake.inputs.excel_reader"]
_PRECISION = "1e-14"
_SHOWN = 100
_SHOWN_BYTES = 4000
_ERRORS: dict[str, type[QuacklakeError]] = {"InputError": InputError, "LimitError": LimitError}
_log = logging.getLogger("quacklake.files")


def check_installed(name: str) -> None:
    """Raise ``MissingExtraError`` when the package that reads workbooks is missing."""
    if importlib.util.find_spec("python_calamine") is None:
        raise MissingExtraError(
            f"reading {name} needs the package python-calamine", hint="pip install 'quacklake[excel]'"
        )


def convert(path: Path, name: str, target: Path, options: CsvOptions) -> SheetFacts:
    """Write a sheet of a workbook as Parquet. Errors call the workbook by ``name``.

    Raise ``InputError`` for one that cannot be read, and ``LimitError`` for one that is beyond the settings
    ``excel_max_bytes``, ``excel_memory`` and ``excel_seconds``.
    """
    config = resolve()
    request = SheetRequest(
        path=str(path),
        name=name,
        target=str(target),
        sheet=options.sheet,
        header=options.header,
        skip=options.skip,
        nulls=list(options.nulls),
        max_bytes=config.excel_max_bytes,
        memory=config.excel_memory,
    )
    try:
        answer = _ask(request, config.excel_seconds)
    except subprocess.TimeoutExpired:
        raise StatementTimeoutError(
            f"reading {name} as excel takes longer than {config.excel_seconds} seconds",
            hint="the setting excel_seconds is the limit; a CSV file is read much faster",
        ) from None
    if answer is None:
        raise LimitError(
            f"cannot read {name} as excel: it is damaged, or needs more than {request.memory:,} bytes of memory",
            hint="a cell far below or beside the others makes a sheet large; the setting excel_memory is the limit",
        )
    if "error" in answer:
        found = answer["error"]
        raise _ERRORS[found["type"]](found["message"], hint=found["hint"])
    facts = SheetFacts(**answer["facts"])
    for column, (text, row) in facts.mixed.items():
        _log.warning(
            "the column %r of %s is text: among other values it has %r in row %d; --null or nulls=[%r] makes that NULL",
            column,
            name,
            text,
            row,
            text,
        )
    return facts


def _ask(request: SheetRequest, seconds: int) -> dict[str, Any] | None:
    """Return the answer of a process that reads a sheet, or None when it ended without one.

    Raise ``TimeoutExpired`` after some seconds; the process has ended then.
    """
    paths = [str(_PACKAGE), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-P", *_PROGRAM],
        input=json.dumps(asdict(request)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RUST_BACKTRACE": "0", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
    )
    if done.returncode == 0:
        return dict(json.loads(done.stdout))
    _log.debug("the reader of workbooks ended with %s: %s", done.returncode, done.stderr[-_SHOWN_BYTES:])
    if done.returncode == 1:  # an error of Python that nobody expects
        raise InternalError(f"reading {request.name} as excel failed: {done.stderr.strip().splitlines()[-1:]}")
    return None


def exact_cell(name: str, type_: str, guess: str, wide: str) -> str | None:
    """Return SQL for a column of a workbook as another type than it has there; None to take it as it is.

    ``wide`` is the type that holds all of what a text may say for ``type_``. The SQL raises an error where a value
    would be lost. Workbooks have numbers of 15 digits, so that a decimal may differ from a number beyond them, and
    times without a zone, which are taken for UTC.
    """
    column = quote(name)
    if type_ == guess:
        return f"CAST({column} AS INTERVAL)" if guess == "INTERVAL" else None
    if guess == "INTERVAL":
        guess = "VARCHAR"  # such columns are written as text
    if guess == "VARCHAR":
        return None if type_ == "VARCHAR" else _cast_text(name, type_, wide)
    if type_ == "VARCHAR":
        plain = f"CASE WHEN {column} = trunc({column}) AND abs({column}) < {1 << 53:d} THEN {column}::BIGINT::VARCHAR "
        return f"{plain}ELSE {column}::VARCHAR END" if guess == "DOUBLE" else f"{column}::VARCHAR"
    if guess == "DOUBLE" and type_ in WHOLE:
        return whole(name, type_)
    if guess == "DOUBLE" and type_.startswith("DECIMAL"):
        value = f"CAST({column} AS {type_})"
        wrong = f"abs({value}::DOUBLE - {column}) > abs({column}) * {_PRECISION}"
        return f"CASE WHEN {wrong} THEN error({_refusal(name, type_)} || {column}) ELSE {value} END"
    if guess == "TIMESTAMP" and type_ == "DATE":
        return day(name, guess)
    if guess in ("DATE", "TIMESTAMP") and type_ == ZONED:
        return f"CAST({column} AS {type_})"
    return None


def _cast_text(name: str, type_: str, wide: str) -> str:
    """Return SQL for texts as another type, which raises an error for one that is no such value."""
    column = quote(name)
    return (
        f"CASE WHEN {column} IS NOT NULL AND (TRY_CAST({column} AS {wide}) IS NULL OR "
        f"TRY_CAST(TRY_CAST({column} AS {type_}) AS {wide}) IS DISTINCT FROM TRY_CAST({column} AS {wide})) "
        f"THEN error({_refusal(name, type_)} || left({column}, {_SHOWN})) ELSE CAST({column} AS {type_}) END"
    )


def _refusal(name: str, type_: str) -> str:
    return literal(f'the column "{name}" has the type {type_}, which cannot hold ')
