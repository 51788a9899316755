"""Files of this machine that go into a pond: what they are, and their rows."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from quacklake import CsvOptions, open_files
from quacklake.config.mappings import Options
from quacklake.errors import InputError, nearest
from quacklake.extend.inputs import InputFiles
from quacklake.pond.excel_html import looks_like_report, to_csv
from quacklake.pond.host_files import head_of, is_parquet
from quacklake.pond.local_times import REFUSING, LocalRule
from quacklake.pond.nodes import EntryType

_SCHEME = re.compile(r"(?P<words>[a-z][a-z0-9+]*):(?://)?(?P<path>/?[^/].*|/)", re.DOTALL)
_FORMATS = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "ndjson": "json",
    "parquet": "parquet",
    "arrow": "arrow",
    **dict.fromkeys(("excel", "xlsx", "xls", "xlsb", "ods"), "excel"),
}
_KINDS = {"table": EntryType.TABLE, "series": EntryType.SERIES, "data": EntryType.DATA}
_WORDS = ("host", "file", "excelhtml", *_FORMATS, *_KINDS)
EXCEL_HTML = "excelhtml"


@dataclass(frozen=True, slots=True)
class HostPath:
    """A path on this machine, and what its URL says of it: ``csv+series:///data/a.csv``."""

    path: Path
    format: str | None = None
    kind: EntryType | None = None


def is_host(text: str) -> bool:
    """Return whether a text names a path of this machine by a URL, as in ``host:///data/a.csv``."""
    found = _SCHEME.fullmatch(text)
    return found is not None and set(found["words"].split("+")) <= set(_WORDS)


def parse_host(text: str) -> HostPath:
    """Parse a path of this machine, with or without ``[host+]format[+table|series]://`` before it.

    Raise ``InputError`` for a word that is not known.
    """
    found = _SCHEME.fullmatch(text)
    if found is None:
        return HostPath(Path(text))
    words = [word for word in found["words"].split("+") if word not in ("host", "file")]
    unknown = next((word for word in words if word not in _WORDS), None)
    if unknown is not None:
        raise InputError(f"{text!r}: {unknown} is not known", hint=nearest(unknown, _WORDS) or ", ".join(_WORDS))
    format_ = next((word if word == EXCEL_HTML else _FORMATS[word] for word in words if word not in _KINDS), None)
    kind = next((_KINDS[word] for word in words if word in _KINDS), None)
    return HostPath(Path(found["path"]), format_, kind)


@contextmanager
def rows_of(source: HostPath, csv: CsvOptions | None = None) -> Iterator[InputFiles]:
    """Lend the rows of a file: CSV, Parquet, JSON, Arrow, Excel, or a report in HTML that is called an Excel file."""
    head = head_of(source.path)
    format_ = source.format
    if format_ == EXCEL_HTML or (format_ is None and looks_like_report(head)):
        with tempfile.TemporaryDirectory(prefix="pond-") as folder:
            target = Path(folder, f"{source.path.stem}.csv")
            to_csv(source.path, target)
            files = open_files(target, "csv", csv=CsvOptions(header=True))
            yield replace(files, found=replace(files.found, name=str(source.path)))
        return
    if format_ is None and is_parquet(source.path):
        format_ = "parquet"
    yield open_files(source.path, format_, csv=csv)


def csv_options_of(options: Options) -> CsvOptions:
    """Return what options say of CSV files and sheets, by the names of ``CsvOptions``. Raise ``InputError``."""
    return CsvOptions(
        delimiter=options.text("delimiter", "") or None,
        quote=options.text("quote", '"'),
        escape=options.text("escape", "") or None,
        header=options.boolean("header") if options.has("header") else None,
        skip=options.number("skip_lines", 0, least=0),
        encoding=options.text("encoding", "") or None,
        fill_short_rows=options.boolean("fill_short_rows"),
        decimal=options.text("decimal", "") or None,
        thousands=options.text("thousands", "") or None,
        date_format=options.text("date_format", "") or None,
        timestamp_format=options.text("timestamp_format", "") or None,
        nulls=tuple(options.texts("nulls")),
        sheet=options.text("sheet", "") or None,
    )


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options for a series of rows: the time column, the zone of local times, and what to do with odd rows."""

    timestamp_column: str | None = None
    timezone: str | None = None
    allow_future: bool = False
    keep_conflicts: bool = False
    csv: CsvOptions = field(default_factory=CsvOptions)
    local: LocalRule = REFUSING
    """Rules for local times that the zone has twice or not at all."""
