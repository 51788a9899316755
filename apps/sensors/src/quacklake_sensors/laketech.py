"""``laketech``: an inbox of CSV files with one reading a line, and of HTML reports that are called Excel files.

The inbox is a folder, or an address that lists its files. Files are grouped by their names; each group is a series with
one row for each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.connectors.options import resolved
from quacklake.errors import QuacklakeError
from quacklake.pond import FS, ImportOptions
from quacklake.pond.collectors import Failure, Report, Run, Runnable
from quacklake.pond.collectors.base import Item, commit
from quacklake.pond.collectors.files import Repeated
from quacklake.pond.collectors.http import HttpClient, check_url
from quacklake.pond.collectors.inbox import taken
from quacklake.pond.collectors.wide import open_connection, widen
from quacklake.pond.factories import register
from quacklake.pond.series import Imported, Origin, append_series
from quacklake_sensors.laketech_inbox import InboxFile, LakeTechOptions, list_files, long_readings, open_file

_repeated = Repeated()


@register
class LakeTechCollector(Runnable):
    """Takes the files of an inbox that it has not taken yet, by their bytes."""

    name = "laketech"
    description = "Collects the files of a LakeTech inbox"
    resource = "LakeTech"

    def check(self, config: Mapping[str, Any]) -> None:
        LakeTechOptions.of(config)

    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        options = LakeTechOptions.of(config)
        client = None
        if options.url is not None:
            url = check_url(resolved(options.url, "laketech.url"), "laketech")
            client = HttpClient(url, options.http, run.wait)
        try:
            return _collect(run, options, client)
        finally:
            if client is not None:
                client.close()


def _collect(run: Run, options: LakeTechOptions, client: HttpClient | None) -> Report:
    zone = options.timezone or run.pond.control.settings().get("timezone")
    fs, pond = run.pond.fs(), run.pond.lake.data_path
    items, failures, notes = list[Item](), list[Failure](), list[str]()
    known: dict[tuple[str, str], bool] = {}
    files = list_files(options, client)
    with tempfile.TemporaryDirectory(prefix="pond-") as folder, open_connection() as connection:
        for place, file in enumerate(files):
            run.progress(f"reading {file.name}", place, len(files))
            target = options.series_of(file.name)
            if target is None:
                notes.append(f"left out {file.name}, which belongs to no group")
                continue
            if (pond, target, file.sha256) in _repeated or file.sha256 in taken(fs, target):
                continue
            try:
                path = open_file(file, client, Path(folder))
                long = long_readings(connection, path, file.name, options, zone)
                rows = widen(connection, long, file.name, options.on_conflict)
            except QuacklakeError as error:
                if error.code == "cancelled":
                    raise
                failures.append(Failure(file.name, error))
                continue
            items.append(_item(known, file, target, rows, options))
        done = commit(run, items)
    for (series, sha256), all_known in known.items():
        if all_known:
            _repeated.add(pond, series, sha256)
    return Report(done.imported, (*failures, *done.failures), notes=tuple(notes))


def _item(
    known: dict[tuple[str, str], bool], file: InboxFile, target: str, rows: pa.Table, options: LakeTechOptions
) -> Item:
    """Return what writes the rows of a file. It notes in ``known`` whether the series had all of them."""

    def write(fs: FS) -> list[Imported]:
        fs.make_directory(options.path, parents=True)
        given = ImportOptions("timestamp", allow_future=options.allow_future)
        done = append_series(fs, target, rows, given, Origin(file.name, file.sha256))
        known[target, file.sha256] = not done.rows
        return [done]

    return Item(file.name, write)
