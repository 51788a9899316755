"""``hydrovu``: readings of devices from HydroVu, one series for each device.

A run asks for what came after the newest reading of the device's own series, so that a run that was killed loses and
doubles nothing: the position is the data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import InputError, NotFoundError, QuacklakeError
from quacklake.pond import FS, EntryType, ImportOptions
from quacklake.pond.collectors import Failure, Report, Run, Runnable
from quacklake.pond.collectors.base import Item, commit
from quacklake.pond.collectors.wide import REFUSE, open_connection, widen
from quacklake.pond.factories import register
from quacklake.pond.series import Imported, Origin, append_series
from quacklake_sensors.hydrovu_api import LONG, HydroVu, Names
from quacklake_sensors.hydrovu_options import Device, HydroVuOptions

_MICROS = 1_000_000


@register
class HydroVuCollector(Runnable):
    """Collects the readings of devices: ``collect`` (the default), ``archive`` or ``locations``."""

    name = "hydrovu"
    description = "Collects readings of devices from HydroVu"
    resource = "HydroVu"

    def check(self, config: Mapping[str, Any]) -> None:
        HydroVuOptions.of(config)

    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        options = HydroVuOptions.of(config)
        command, *more = run.words or ("collect",)
        if command == "archive":
            return _archive(run, options, more)
        if command not in ("collect", "locations") or more:
            raise InputError(f"hydrovu cannot {' '.join(run.words)}", hint="collect, archive [DEVICE] or locations")
        client = options.client(run.wait)
        try:
            if command == "locations":
                return Report(notes=tuple(f"{each['id']} {each.get('name', '')}" for each in client.locations()))
            with open_connection() as connection:
                return _collect(run, options, client, connection)
        finally:
            client.client.close()


def _collect(run: Run, options: HydroVuOptions, client: HydroVu, connection: duckdb.DuckDBPyConnection) -> Report:
    fs = run.pond.fs()
    fs.tree  # noqa: B018 (read whole: each device asks for its series, and the transaction reads it anyway)
    names = client.names()
    items, failures, more = [], [], False
    devices = [each for each in options.devices if each.active]
    for number_, device in enumerate(devices):
        run.progress(f"reading {device.name}", number_, len(devices))
        try:
            start = resume(fs, options, device)
            points, truncated = fetch(client, device.id, start, options)
        except QuacklakeError as error:
            if error.code == "cancelled":
                raise
            failures.append(Failure(device.name, error))
            continue
        more |= truncated
        if points.num_rows:
            try:
                rows = wide_rows(connection, points, names, device.name, options.on_conflict)
                items.append(_item(options, device, rows))
            except QuacklakeError as error:
                failures.append(Failure(device.name, error))
    done = commit(run, items)
    return Report(done.imported, (*failures, *done.failures), more)


def _item(options: HydroVuOptions, device: Device, rows: pa.Table) -> Item:
    def write(fs: FS) -> list[Imported]:
        fs.make_directory(options.folder(device), parents=True)
        given = ImportOptions("timestamp", allow_future=options.allow_future)
        return [append_series(fs, options.active_series(device), rows, given, Origin(f"HydroVu {device.name}"))]

    return Item(device.name, write)


def resume(fs: FS, options: HydroVuOptions, device: Device) -> int:
    """Return the first second to ask for: the one after the newest reading of any series of the device.

    Raise ``NotFoundError`` when readings were archived elsewhere and the archive has none of this device.
    """
    newest = _newest(fs, options.folder(device))
    if options.archive_path is not None:
        archived = _newest(fs, f"{options.archive_path.rstrip('/')}/devices/{device.id}")
        if archived is None and newest is None and not options.begin:
            raise NotFoundError(
                f"{options.archive_path} has no series of {device.name}, and all of its history would be read again",
                hint="set begin to the time to begin at, or leave archive_path out",
            )
        newest = max(filter(None, (newest, archived)), default=None)
    if newest is None:
        return options.begin
    return max(options.begin, int(newest.timestamp()) + 1)


def _newest(fs: FS, folder: str) -> dt.datetime | None:
    found = [
        row.max_event_time
        for each in fs.glob(f"{folder}/*.series")
        if each.entry_type is EntryType.SERIES
        for row in each.versions
        if row.max_event_time is not None
    ]
    return max(found, default=None)


def fetch(client: HydroVu, location: int, start: int, options: HydroVuOptions) -> tuple[pa.Table, bool]:
    """Return readings from a time on, and whether there are more than a run takes.

    A run that stops early leaves out the last time it has seen: the next page may have readings of it, too.
    """
    pages, count = [LONG.empty_table()], 0
    for page, following in client.pages(location, start, max_pages=options.max_pages):
        pages.append(page)
        count += page.num_rows
        if following and count >= options.max_points:
            found = pa.concat_tables(pages)
            times = found.column("timestamp")
            earlier = found.filter(pc.less(times, pc.max(times)))
            return (earlier if earlier.num_rows else found), True
    return pa.concat_tables(pages), False


def wide_rows(
    connection: duckdb.DuckDBPyConnection, points: pa.Table, names: Names, what: str, on_conflict: str = REFUSE
) -> pa.Table:
    """Return readings as rows with a column ``{parameter}.{unit}`` for each parameter."""
    pairs = points.group_by(["parameter", "unit"]).aggregate([])
    columns = [
        names.column(p, u) for p, u in zip(*(pairs.column(n).to_pylist() for n in pairs.column_names), strict=True)
    ]
    named = pairs.append_column("name", pa.array(columns, pa.string()))
    long = points.join(named, ["parameter", "unit"])
    limit = 1 << 40  # beyond it, microseconds do not fit: `widen` refuses them as no times
    seconds = pc.if_else(pc.less(pc.abs_checked(long.column("timestamp")), limit), long.column("timestamp"), limit)
    return widen(
        connection,
        pa.table({"name": long.column("name"), "micros": pc.multiply(seconds, _MICROS), "value": long.column("value")}),
        what,
        on_conflict,
    )


def _archive(run: Run, options: HydroVuOptions, words: list[str]) -> Report:
    """Give the growing series of devices the name of an archive, so that the next run begins another one."""
    known = {each.name: each for each in options.devices}
    unknown = next((word for word in words if word not in known), None)
    if unknown is not None:
        raise InputError(f"hydrovu has no device {unknown!r}", hint=f"one of {', '.join(known)}")
    chosen = [known[word] for word in words] or list(options.devices)

    def work(fs: FS) -> list[str]:
        done = []
        for device in chosen:
            found = fs.find(options.active_series(device))
            newest = _newest(fs, options.folder(device)) if found is not None else None
            if newest is None:
                continue
            place = options.folder(device)
            if options.archive_path is not None:
                place = f"{options.archive_path.rstrip('/')}/devices/{device.id}"
                fs.make_directory(place, parents=True)
            target = f"{place}/{device.name}_archive_{newest:%Y%m%d}.series"
            done.append(fs.move(options.active_series(device), target).path)
        return done

    return Report(notes=tuple(f"archived {path}" for path in run.transact(work)))
