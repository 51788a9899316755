"""Input rows of a command: files, folders, patterns, or standard input."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.errors import InputError

if TYPE_CHECKING:
    from quacklake.operations.input_csv import CsvOptions
    from quacklake.operations.input_files import InputFiles

STANDARD_INPUT = "-"


@contextmanager
def opened(names: Sequence[str], format: str | None = None, csv: CsvOptions | None = None) -> Iterator[InputFiles]:
    """Open the rows of files, or of standard input for ``-``."""
    from quacklake.operations.input_files import open_files

    if STANDARD_INPUT not in names:
        yield open_files(names, format, csv=csv)
        return
    if len(names) > 1:
        raise InputError("standard input cannot be read together with files", hint="append one after the other")
    # type detection and reading both need the rows from the start
    with tempfile.NamedTemporaryFile(prefix="quacklake-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        path = Path(file.name)
        files = open_files(path, format or _guess(path), csv=csv)
        yield replace(files, found=replace(files.found, name="standard input"))


def _guess(path: Path) -> str:
    """Guess the format of a file from its first bytes."""
    with path.open("rb") as file:
        begin = file.read(1000).lstrip()
    if begin.startswith(b"PAR1"):
        return "parquet"
    return "arrow" if begin.startswith(b"ARROW1") else "json" if begin[:1] in (b"[", b"{") else "csv"
