"""The inbox of LakeTech: its options, its files, and the readings of a file."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote as quote_url

import duckdb
import pyarrow as pa
import pyarrow.csv

from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    CorruptFileError,
    InputError,
    LimitError,
    SchemaMismatchError,
    nearest,
)
from quacklake.extend.duckdbs import arrow_reader, first_row
from quacklake.extend.names import literal, quote
from quacklake.pond.collectors.files import find_files, hash_of
from quacklake.pond.collectors.http import HttpClient, HttpLimits
from quacklake.pond.collectors.wide import ON_CONFLICT, REFUSE
from quacklake.pond.excel_html import looks_like_report, to_csv
from quacklake.pond.host_files import head_of
from quacklake.pond.local_times import LocalRule, instants, local_rule_of
from quacklake.pond.paths import check_name, parts
from quacklake.pond.times import TimeColumn, check_zone, is_zoned, require_column

COLUMNS = {
    "Surface pH": "AT500_Surface.pH.pH",
    "Surface Temp": "AT500_Surface.Temperature.C",
    "Surface Chl-a": "AT500_Surface.Chl-a.µg/L",
    "Surface DO": "AT500_Surface.DO.mg/L",
    "Surface Salinity": "AT500_Surface.Salinity.psu",
    "Depth": "AT500_Surface.Depth.m",
    "Bottom Temp": "AT500_Bottom.Temperature.C",
    "Bottom DO": "AT500_Bottom.DO.mg/L",
    "Bottom Salinity": "AT500_Bottom.Salinity.psu",
    "Battery Level": "Vulink.Battery Level.%",
    "Baro": "Vulink.Baro.psi",
}
"""The column of each series name in long files."""
GROUPS = {"surface": "*surface*", "bottom": "*bottom*", "vulink": "*vulink*", "report": "*.xls*"}
_SERIES_NAME = "Series Name"
_LONG = ("Series Name", "Value", "Offset")
_UNIT = re.compile(r"(?P<name>.*\S)\s*\((?P<unit>[^()]+)\)\s*")
_FILES = ("*.csv", "*.xls", "*.xlsx", "*.htm", "*.html")
_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class LakeTechOptions:
    """The options of a collector of LakeTech."""

    url: str | None
    folder: str | None
    path: str
    timezone: str | None
    groups: Mapping[str, str]
    columns: Mapping[str, str]
    settle: float
    max_files: int
    on_conflict: str
    allow_future: bool
    local: LocalRule
    http: HttpLimits

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> LakeTechOptions:
        """Return the options of a mapping. Raise ``ConfigError``."""
        options = Options("laketech", config)
        made = cls(
            url=options.text("url", "") or None,
            folder=options.text("folder", "") or None,
            path="/" + "/".join(parts(options.text("path", "/laketech"))),
            timezone=options.text("timezone", "") or None,
            groups={check_name(name): str(glob) for name, glob in (options.mapping("groups") or GROUPS).items()},
            columns={**COLUMNS, **{name: str(column) for name, column in options.mapping("columns").items()}},
            settle=options.seconds("settle", "2s"),
            max_files=options.number("max_files", 10_000),
            on_conflict=options.choice("on_conflict", ON_CONFLICT, REFUSE),
            allow_future=options.boolean("allow_future"),
            local=local_rule_of(options),
            http=HttpLimits.of("laketech.http", options.mapping("http")),
        )
        options.finish()
        if (made.url is None) == (made.folder is None):
            raise ConfigError("laketech has a url or a folder, and not both", hint="folder: inbox")
        if made.timezone is not None:
            check_zone(made.timezone)
        return made

    def series_of(self, name: str) -> str | None:
        """Return the path of the series that takes a file, or None for one that belongs to no group."""
        found = (group for group, glob in self.groups.items() if fnmatch.fnmatch(name.lower(), glob.lower()))
        group = next(found, None)
        return None if group is None else f"{self.path}/{group}.series"


class InboxFile(NamedTuple):
    """A file of the inbox, with the hash of its bytes if that is known; ``path`` is where it is on this machine."""

    name: str
    sha256: str
    path: Path | None = None


def list_files(options: LakeTechOptions, client: HttpClient | None) -> list[InboxFile]:
    """Return the files of the inbox, by name. Raise for a list that is none."""
    if client is None:
        assert options.folder is not None
        folder = Path(resolved(options.folder, "laketech.folder"))
        found = find_files(folder, _FILES, settle=options.settle, most=options.max_files, what="laketech")
        return [InboxFile(path.name, hash_of(path), path) for path in found]
    reply = client.get("")
    try:
        listed = json.loads(reply.body) if reply.status == 200 else None
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ConnectorError(
            "the address of laketech does not give a list of files",
            hint="url: the address that lists name and sha256 of each file",
            number=reply.status,
        )
    if len(listed) > options.max_files:
        raise LimitError(f"laketech: the inbox has more than {options.max_files} files", hint="raise max_files")
    return sorted(InboxFile(str(each.get("name", "")), str(each.get("sha256", ""))) for each in listed)


def open_file(file: InboxFile, client: HttpClient | None, folder: Path) -> Path:
    """Return where the bytes of a file are on this machine, which may be a copy in a folder.

    Raise ``CorruptFileError`` for bytes that are not those of the list.
    """
    if file.path is not None or client is None:
        assert file.path is not None
        return file.path
    check_name(file.name)
    reply = client.get(f"/{quote_url(file.name)}")
    if reply.status != 200:
        raise ConnectorError(f"laketech answers status {reply.status} for {file.name}", number=reply.status)
    if hashlib.sha256(reply.body).hexdigest() != file.sha256:
        raise CorruptFileError(f"{file.name} is not what the list of laketech says", hint="the next run asks again")
    path = Path(tempfile.mkdtemp(dir=folder), file.name)  # errors name the file as the inbox does
    path.write_bytes(reply.body)
    return path


def long_readings(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, options: LakeTechOptions, zone: str | None
) -> pa.Table:
    """Return the readings of a file: the column each belongs to, microseconds since 1970, and the value."""
    rows = _texts(path, name)
    time = require_column(rows.schema.names, None, name)
    connection.register("arrived", rows)
    connection.execute("CREATE OR REPLACE TEMP TABLE lines AS FROM arrived")
    moment = _moment(connection, time, name, zone, options.local)
    is_long = all(each in rows.schema.names for each in _LONG)
    query = _long(connection, time, name, options) if is_long else _report(connection, rows.schema, time, name)
    query = f"SELECT name, epoch_us({moment}) AS micros, value FROM ({query})"
    return arrow_reader(connection, query, [], batch_rows=_BATCH).read_all()


def _texts(path: Path, name: str) -> pa.Table:
    """Return the cells of a file as texts, NULL for empty ones. Raise ``InputError`` with the line that is wrong."""
    with tempfile.TemporaryDirectory(prefix="pond-") as folder:
        if looks_like_report(head_of(path)):
            to_csv(path, target := Path(folder, "report.csv"))
            path = target
        try:
            with pyarrow.csv.open_csv(path) as opened:
                columns = opened.schema.names
            return pyarrow.csv.read_csv(
                path,
                pyarrow.csv.ReadOptions(use_threads=False),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True, null_values=[""]
                ),
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"cannot read {name}: {str(error).splitlines()[0][:160]}") from None


def _moment(connection: duckdb.DuckDBPyConnection, time: str, name: str, zone: str | None, rule: LocalRule) -> str:
    """Return SQL for the instants of a column of texts. Raise for the first that is not a time."""
    column = quote(time)
    wrong = first_row(
        connection,
        f"SELECT rowid + 1, {column} FROM lines WHERE TRY_CAST({column} AS TIMESTAMPTZ) IS NULL ORDER BY rowid",
    )
    if wrong is not None:
        raise SchemaMismatchError(f"row {wrong[0]} of {name}: {str(wrong[1])[:40]!r} is not a time")
    zoned = is_zoned(column)
    zones = connection.execute(f"SELECT DISTINCT {zoned} FROM lines").fetchall()
    if len(zones) > 1:
        raise SchemaMismatchError(f"only some of the times in {time!r} of {name} have a time zone")
    known = None if zone is None else check_zone(zone)
    kind = TimeColumn(time, pa.string(), known)
    if zones != [(False,)]:
        return kind.text_expression(zoned=True)
    described = connection.execute("DESCRIBE lines").fetchall()
    keys = [quote(_SERIES_NAME)] if any(row[0] == _SERIES_NAME for row in described) else []
    moments, _ = instants(
        connection, "lines", column, kind.known_zone(), rule, lambda row: f"row {row} of {name}", keys
    )
    # written with a zone here, where the order of the rows is known
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE lines AS SELECT * REPLACE (CAST({moments} AS VARCHAR) AS {column})"
        " FROM lines ORDER BY rowid"
    )
    return kind.text_expression(zoned=True)


def _long(connection: duckdb.DuckDBPyConnection, time: str, name: str, options: LakeTechOptions) -> str:
    """Return a query for a file with one reading a line. The offset is what was added to a value."""
    for column in ("Value", "Offset"):
        _check_numbers(connection, column, name)
    found = connection.execute('SELECT DISTINCT "Series Name" FROM lines WHERE "Value" IS NOT NULL').fetchall()
    unknown = next((each for (each,) in found if each not in options.columns), None)
    if unknown is not None:
        hint = nearest(str(unknown), options.columns) or "say which column it is: columns: {NAME: Instrument.Name.unit}"
        raise SchemaMismatchError(f"{name}: the series name {str(unknown)[:60]!r} is not known", hint=hint)
    pairs = {"series": list(options.columns), "name": list(options.columns.values())}
    connection.register("columns", pa.table(pairs))
    return (
        f"SELECT {quote(time)}, columns.name, "
        'CAST("Value" AS DOUBLE) - coalesce(CAST("Offset" AS DOUBLE), 0) AS value '
        'FROM lines JOIN columns ON columns.series = "Series Name" ORDER BY lines.rowid'
    )


def _report(connection: duckdb.DuckDBPyConnection, schema: pa.Schema, time: str, name: str) -> str:
    """Return a query for a file with one time a line, whose columns are called ``Name (unit)``."""
    parts_ = []
    for column in schema.names:
        if column == time:
            continue
        found = _UNIT.fullmatch(column)
        if found is None:
            raise SchemaMismatchError(f"{name}: the column {column[:60]!r} has no unit", hint="Temperature (C)")
        _check_numbers(connection, column, name)
        called = literal(f"{found['name']}.{found['unit']}")
        parts_.append(f"SELECT {quote(time)}, {called} AS name, CAST({quote(column)} AS DOUBLE) AS value FROM lines")
    if not parts_:
        raise InputError(f"{name} has times and no readings")
    return " UNION ALL ".join(parts_)


def _check_numbers(connection: duckdb.DuckDBPyConnection, column: str, name: str) -> None:
    value = quote(column)
    wrong = first_row(
        connection,
        f"SELECT rowid + 1, CAST({value} AS VARCHAR) FROM lines "
        f"WHERE {value} IS NOT NULL AND TRY_CAST({value} AS DOUBLE) IS NULL ORDER BY rowid LIMIT 1",
    )
    if wrong is not None:
        raise SchemaMismatchError(f"row {wrong[0]} of {name}: {str(wrong[1])[:40]!r} in {column!r} is not a number")
