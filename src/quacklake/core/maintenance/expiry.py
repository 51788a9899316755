"""Expiry: remove snapshots and the data that only they can see. The cleanup removes the files.

An expiry is one transaction of the commit queue, which itself determines what is still in use. It makes no snapshot.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.catalog import Reader, Writer, expiring, file_names, own_tables
from quacklake.core.catalog.file_names import NamedFile
from quacklake.core.catalog.statements import parts
from quacklake.core.format.options import parse_option
from quacklake.core.format.snapshots import parse_changes
from quacklake.core.maintenance.cleanup import absolute_places, named, place
from quacklake.core.maintenance.reports import Skipped
from quacklake.core.operations.context import LakeContext
from quacklake.core.progress import Progress, Report, silent
from quacklake.core.storage import Store
from quacklake.errors import CatalogUnavailableError, InputError, NotFoundError, PathError

_TOKENS = dt.timedelta(days=1)  # the time for which the outcome of a commit with a lost reply can be looked up


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """The snapshots to expire: those before a time, those with given versions, or all but the last ones."""

    before: dt.datetime | None = None
    versions: tuple[int, ...] | None = None
    keep_last: int | None = None


@dataclass(frozen=True, slots=True)
class ExpiryReport(Report):
    """Report of an expiry. ``kept`` lists requested snapshots and files of expired snapshots that stay, with reasons.

    ``oldest`` is the oldest remaining snapshot. Files are only scheduled; ``cleanup_old_files`` removes them.
    """

    snapshots: tuple[int, ...] = ()
    data_files: int = 0
    delete_files: int = 0
    bytes: int = 0
    tables: int = 0
    inlined_rows: int = 0
    oldest: int = 0
    kept: Sequence[Skipped] = ()
    dry_run: bool = False


@dataclass
class _ExpiredFiles:
    """Files of expired snapshots, collected for the schedule."""

    data_files: int = 0
    delete_files: int = 0
    bytes: int = 0
    kept: list[Skipped] = field(default_factory=list)
    tables: set[int] = field(default_factory=set)

    def add(self, count: int, size: int, *, is_delete: bool) -> None:
        self.bytes += size
        if is_delete:
            self.delete_files += count
        else:
            self.data_files += count


class _Rehearsal(Exception):
    """Raised to roll back a dry run."""


def expire_snapshots(
    context: LakeContext, request: ExpiryRequest, *, dry_run: bool = False, progress: Progress = silent
) -> ExpiryReport:
    """Expire snapshots, except the newest, tagged and retained ones; with ``dry_run``, only report which.

    Raise ``InputError`` when one of these is requested by version, and ``NotFoundError`` for a missing version.
    """
    catalog, retry = context.catalog, context.retry
    with telemetry.timed("maintenance.expire", tenant=catalog.label):
        for attempt in range(retry.count + 1):
            report = ExpiryReport()
            try:
                with catalog.commit() as writer:
                    report = _expire(writer, context.store, request, dry_run=dry_run, progress=progress)
                    if report.snapshots and catalog.database != "mysql":
                        expiring.drop_inlined_tables(writer)
                    if dry_run:
                        raise _Rehearsal
            except _Rehearsal:
                return report
            except CatalogUnavailableError:
                if attempt == retry.count:
                    raise
                retry.pause(attempt)
            else:
                break
        if catalog.database == "mysql" and report.snapshots:
            # On MySQL, dropping a table commits the transaction, so this needs a second one.
            with catalog.commit() as writer:
                expiring.drop_inlined_tables(writer)
    return report


def _expire(writer: Writer, store: Store, request: ExpiryRequest, *, dry_run: bool, progress: Progress) -> ExpiryReport:
    now = dt.datetime.now(dt.UTC)
    writer.snapshots.check_there()
    times = dict(expiring.snapshot_times(writer))
    chosen, kept = _choose(writer, times, request, now)
    progress("snapshots", len(chosen), len(chosen))
    left = sorted(times.keys() - chosen)
    if not chosen:
        return ExpiryReport(oldest=left[0], kept=kept, dry_run=dry_run)
    old = [id_ for id_ in chosen if (time := times[id_]) is not None and time < now - _TOKENS]
    faults.reach("maintenance.expire.before")
    expiring.remove_snapshots(writer, list(_ranges(times, chosen)), max(old, default=-1))
    files = _ExpiredFiles(kept=kept)
    with expiring.spans_of_nobody(writer, left) as names:
        tables = expiring.dead_tables(writer)
        _remove_files(writer, store, tables, files, now, progress)
        for some in parts(tables):
            expiring.remove_dead_tables(writer, some)
        expiring.remove_objects(writer, names)
        rows = expiring.remove_inlined(writer, names, sorted(files.tables.difference(tables)))
    faults.reach("maintenance.expire.after")
    return ExpiryReport(
        snapshots=tuple(sorted(chosen)),
        data_files=files.data_files,
        delete_files=files.delete_files,
        bytes=files.bytes,
        tables=len(tables),
        inlined_rows=rows,
        oldest=left[0],
        kept=files.kept,
        dry_run=dry_run,
    )


def _choose(
    reader: Reader, times: Mapping[int, dt.datetime | None], request: ExpiryRequest, now: dt.datetime
) -> tuple[set[int], list[Skipped]]:
    """Return the snapshots that expire, and the requested ones that stay."""
    newest = max(times)
    wanted = _choose_snapshots(times, request)
    reasons: dict[int, str] = {newest: "it is the newest"} if newest in wanted else {}
    for tag in own_tables.tags(reader):
        if tag.snapshot_id in wanted:
            reasons.setdefault(tag.snapshot_id, f'it has the tag "{tag.name}"')
    for id_, reason in _find_retained(reader, times, wanted, now).items():
        reasons.setdefault(id_, reason)
    if request.versions is not None and reasons:
        id_, reason = min(reasons.items())
        raise InputError(f"snapshot {id_} cannot expire: {reason}")
    if request.keep_last is not None:
        for id_ in sorted(times)[-request.keep_last :]:
            if id_ in wanted:
                reasons.setdefault(id_, f"it is one of the last {request.keep_last}")
    return wanted.difference(reasons), [Skipped(f"snapshot {id_}", why) for id_, why in sorted(reasons.items())]


def _choose_snapshots(times: Mapping[int, dt.datetime | None], request: ExpiryRequest) -> set[int]:
    if request.versions is not None:
        unknown = [id_ for id_ in request.versions if id_ not in times]
        if unknown:
            raise NotFoundError(
                f"No snapshot found at version {unknown[0]}", hint="lake.snapshots() lists those that exist"
            )
        return set(request.versions)
    if request.before is None:
        return set(times) if request.keep_last is not None else set()
    return {id_ for id_, time in times.items() if time is not None and time < request.before}


def _find_retained(
    reader: Reader, times: Mapping[int, dt.datetime | None], wanted: set[int], now: dt.datetime
) -> dict[int, str]:
    """Return the snapshots that tables with their own retention need.

    Those within its span that changed the table, and the last one before, which shows the table at the start of it.
    """
    asked = own_tables.retention(reader) if wanted else {}
    if not asked:
        return {}
    names = expiring.names_of(reader, sorted(asked))
    touched = _find_touched(reader, set(asked), min(wanted), max(wanted))
    found: dict[int, str] = {}
    for table_id, keep in asked.items():
        span = parse_option("expire_older_than", keep)
        assert isinstance(span, dt.timedelta)
        limit = now - span
        mine = sorted(touched[table_id] & times.keys())
        before = [id_ for id_ in mine if (time := times[id_]) is not None and time < limit]
        needed = set(mine).difference(before[:-1]) & wanted
        found |= {id_: f"{names.get(table_id, table_id)} keeps its history for {keep}" for id_ in needed}
    return found


def _find_touched(reader: Reader, table_ids: set[int], first: int, last: int) -> dict[int, set[int]]:
    touched: dict[int, set[int]] = {id_: set() for id_ in table_ids}
    for id_, begin, end in expiring.table_lives(reader, sorted(table_ids)):
        touched[id_].update([begin] if end is None else [begin, end])
    for snapshot, text in reader.snapshots.changes_between(first, last).items():
        for id_ in {change.id for change in parse_changes(text) if change.id is not None} & table_ids:
            touched[id_].add(snapshot)
    return touched


def _ranges(times: Mapping[int, dt.datetime | None], chosen: set[int]) -> Iterable[tuple[int, int]]:
    """Yield the chosen snapshots as few ranges that contain no other snapshot."""
    first = last = -1
    for id_ in sorted(times):
        if id_ in chosen:
            first, last = (id_ if first < 0 else first), id_
        elif first >= 0:
            yield first, last
            first = -1
    if first >= 0:
        yield first, last


def _remove_files(
    writer: Writer, store: Store, tables: Sequence[int], files: _ExpiredFiles, now: dt.datetime, progress: Progress
) -> None:
    """Schedule the files that no snapshot sees, and all files of tables that no snapshot sees; remove their rows."""
    suspects: dict[str, NamedFile] = {}
    # Signs that a file may not belong to the lake or that several rows name it: paths that several rows have, and the
    # places of files with absolute paths.
    shared: set[str] | None = None
    absolute: set[str] = set()
    plain = False
    for some in [None, *parts(tables)]:
        sums = file_names.sum_dead_files(writer, some)
        if not sums:
            continue
        files.tables.update(each.table_id for each in sums if not each.is_delete)
        if shared is None:
            shared = file_names.shared_paths(writer)
            plain = not shared and next(file_names.absolute_files(writer), None) is None
            absolute = set() if plain else absolute_places(writer, store)
        if plain:
            file_names.schedule_dead(writer, some, now)
            for each in sums:
                files.add(each.files, each.bytes, is_delete=each.is_delete)
        else:
            for page in file_names.dead_files(writer, some):
                ready: dict[str, NamedFile] = {}
                for file in page:
                    try:
                        where = place(store, file)
                    except PathError:
                        where = None
                    if where is None or not (file.is_relative or where.startswith(file.folder)):
                        files.kept.append(Skipped(file.path, "it is from elsewhere, and not the lake's"))
                    elif file.path in shared or where in absolute:
                        suspects[where] = file
                    else:
                        ready[where] = file
                _schedule(writer, ready, files, now)
                progress("files", files.data_files + files.delete_files, None)
        expiring.remove_files(writer, some)
    # Only now is it known which of these paths another row names.
    if suspects:
        taken = named(writer, store, suspects, absolute_places(writer, store))
        files.kept += [Skipped(path, "another file of the catalog has the same path") for path in sorted(taken)]
        _schedule(writer, {path: file for path, file in suspects.items() if path not in taken}, files, now)
    progress("files", files.data_files + files.delete_files, None)


def _schedule(writer: Writer, ready: Mapping[str, NamedFile], files: _ExpiredFiles, now: dt.datetime) -> None:
    file_names.schedule(writer, ((file.id, path) for path, file in ready.items()), now)
    for file in ready.values():
        files.add(1, file.size, is_delete=file.is_delete)
