"""Compare the Arrow files with the lake: counts and checksums by network and hour, and the transactions that differ."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from quacklake import Lake, LakeTransaction
from quacklake.errors import InputError, MemoryLimitError, SchemaMismatchError
from quacklake.extend.duckdbs import connect
from quacklake.extend.reporting import Progress, silent
from quacklake_ekko.migration import state
from quacklake_ekko.migration.backfill import REFUSED
from quacklake_ekko.migration.folder import ArrowFolder, CheckedFile, SkippedFile
from quacklake_ekko.table import KEY, TABLE, find_key
from quacklake_ekko.transactions import ROWS, age, content, with_key

_MEMORY = 1_000_000_000
_PART_ROWS = 250_000
_KINDS = {
    "missing": "lake.tx_hash IS NULL",
    "extra": "arrow.tx_hash IS NULL",
    "newer": "arrow.checksum <> lake.checksum AND lake.copies = 1 AND lake.age.ingested > arrow.age.ingested",
    "different": "arrow.checksum <> lake.checksum AND lake.copies = 1 AND lake.age.ingested <= arrow.age.ingested",
    "doubled": "lake.copies > 1",
}
_ALLOWED = ("extra", "newer")
_COLUMNS = """tx_hash VARCHAR, network VARCHAR, block_time TIMESTAMP, checksum VARCHAR,
    age STRUCT(ingested BIGINT, block BIGINT, checksum VARCHAR)"""
_JOINED = "arrow FULL JOIN lake USING (tx_hash)"


@dataclass(frozen=True)
class HourComparison:
    """The transactions of one network and hour on both sides. Checksums do not depend on the order of rows."""

    network: str
    hour: datetime
    arrow_rows: int
    lake_rows: int
    arrow_checksum: str
    lake_checksum: str

    @property
    def equal(self) -> bool:
        """True if both sides have the same rows."""
        return (self.arrow_rows, self.arrow_checksum) == (self.lake_rows, self.lake_checksum)


@dataclass(frozen=True)
class Difference:
    """A transaction that is ``missing`` in the lake, ``extra``, ``newer`` or ``doubled`` there, or ``different``."""

    kind: str
    tx_hash: str
    network: str
    hour: datetime


@dataclass(frozen=True)
class Comparison:
    """The answer of a comparison. ``counts`` has the number of differences of each kind."""

    folder: str
    snapshot_id: int
    before: datetime | None
    allow_extra: bool
    files: tuple[CheckedFile, ...]
    skipped: tuple[SkippedFile, ...]
    hours: tuple[HourComparison, ...]
    counts: dict[str, int]
    examples: tuple[Difference, ...]
    arrow_seconds: float
    lake_seconds: float

    @property
    def arrow_rows(self) -> int:
        """The number of transactions in the Arrow files."""
        return sum(hour.arrow_rows for hour in self.hours)

    @property
    def lake_rows(self) -> int:
        """The number of rows in the lake."""
        return sum(hour.lake_rows for hour in self.hours)

    @property
    def equal(self) -> bool:
        """True if every file could be read and nothing differs, but for what the lake may have more if allowed."""
        differs = any(count for kind, count in self.counts.items() if not (kind in _ALLOWED and self.allow_extra))
        return not differs and not self.skipped


def compare(
    lake: Lake,
    folder: ArrowFolder,
    *,
    before: datetime | None = None,
    allow_extra: bool = False,
    examples: int = 10,
    record: bool = True,
    progress: Progress = silent,
) -> Comparison:
    """Compare the newest row of every transaction on both sides, and keep the answer in the lake.

    ``before`` leaves out younger blocks, which a writer may be writing. ``allow_extra`` lets the lake have
    transactions that the files lack, and newer rows of others. The work is done on disk in a temporary folder, in
    bounded memory. ``record=False`` keeps no answer. Raise ``InputError`` without ``allow_extra`` once files have been
    retired, ``SchemaMismatchError`` when the table lacks a column of the files.
    """
    if folder.retired() and not allow_extra:
        raise InputError(
            f"Arrow files of {folder.url} have been retired: only the lake has their transactions",
            hint="pass allow_extra=True to compare the files that are left",
        )
    until = None if before is None else _naive(before)
    with _workspace(lake) as database:
        began = time.monotonic()
        files, skipped = _read_files(database, folder, progress)
        middle = time.monotonic()
        snapshot_id = _read_lake(database, lake)
        lake_seconds = time.monotonic() - middle
        if before is not None and until is not None:
            _leave_out(database, until)
            files = [file for file in files if file.metadata.end_time < before]
        counts = _counts(database)
        found = Comparison(
            folder.url,
            snapshot_id,
            before,
            allow_extra,
            tuple(files),
            tuple(skipped),
            tuple(_hours(database)),
            counts,
            tuple(_examples(database, counts, examples)),
            middle - began,
            lake_seconds,
        )
    if record:
        _keep(lake, found)
    return found


@contextmanager
def _workspace(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    config = lake.handle.context.config
    limit = config.duckdb_memory_limit or _MEMORY
    with tempfile.TemporaryDirectory(prefix="quacklake-compare-") as place:
        settings: dict[str, Any] = {"memory_limit": f"{limit}B", "temp_directory": str(Path(place, "spill"))}
        if config.duckdb_threads is not None:
            settings["threads"] = config.duckdb_threads
        with connect(str(Path(place, "rows.db")), config=settings) as database:
            database.execute("SET preserve_insertion_order = false")
            try:
                yield database
            except duckdb.OutOfMemoryException as error:
                raise MemoryLimitError(
                    f"the comparison needs more than {limit:,} bytes of memory, or more space in {place}",
                    hint="raise the setting duckdb_memory_limit, or set TMPDIR to a larger disk",
                ) from error


def _read_files(
    database: duckdb.DuckDBPyConnection, folder: ArrowFolder, progress: Progress
) -> tuple[list[CheckedFile], list[SkippedFile]]:
    listed, skipped = folder.files()
    files: list[CheckedFile] = []
    database.execute(f"CREATE TABLE read ({_COLUMNS})")
    for place, file in enumerate(listed):
        progress("reading Arrow files", place, len(listed))
        try:
            checked = folder.check(file)
        except REFUSED as error:
            skipped.append(SkippedFile(file.path, error.message))
            continue
        for rows in folder.rows(file, checked):
            _insert(database, rows)
        files.append(replace(checked, kept=None))
    _keep_newest(database, "arrow")
    return files, skipped


def _read_lake(database: duckdb.DuckDBPyConnection, lake: Lake) -> int:
    at = lake.at(version=lake.current_snapshot())
    database.execute(f"CREATE TABLE read ({_COLUMNS})")
    if TABLE in at:
        table = at.table(TABLE)
        key = find_key(table.columns)
        names = [key if name == KEY else name for name in ROWS.names]
        lacking = [name for name in names if name not in table.columns]
        if lacking:
            raise SchemaMismatchError(f"{TABLE} has no column {lacking[0]!r}, which Arrow files have")
        for batch in table.scan(names).to_batches():
            _insert(database, with_key(pa.Table.from_batches([batch]), KEY))
    _keep_newest(database, "lake")
    return at.snapshot_id


def _insert(database: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    database.register("given", rows)
    moment = "make_timestamp(epoch_us(given.block_time))"
    parts = f"tx_hash, network, {moment}, {content('given')}, {age('given')}"
    database.execute(f"INSERT INTO read SELECT {parts} FROM given")
    database.unregister("given")


def _keep_newest(database: duckdb.DuckDBPyConnection, side: str) -> None:
    """Make the table of a side, with one row for each transaction, of the rows that were read.

    DuckDB cannot put an aggregate of texts on disk: what occurs once is passed on, and the rest is done in parts.
    """
    database.execute("CREATE TABLE twice AS SELECT tx_hash FROM read GROUP BY tx_hash HAVING count(*) > 1")
    database.execute(f"CREATE TABLE {side} AS SELECT *, 1::BIGINT AS copies FROM read ANTI JOIN twice USING (tx_hash)")
    database.execute("CREATE TABLE again AS SELECT * FROM read SEMI JOIN twice USING (tx_hash)")
    parts = 1 + database.execute("SELECT count(*) FROM again").fetchall()[0][0] // _PART_ROWS
    for part in range(parts):
        database.execute(
            f"""INSERT INTO {side} SELECT tx_hash, max_by(network, age), max_by(block_time, age),
            max_by(checksum, age), max(age), count(*) FROM again WHERE hash(tx_hash) % ? = ? GROUP BY tx_hash""",
            [parts, part],
        )
    for table in ("read", "twice", "again"):
        database.execute(f"DROP TABLE {table}")


def _leave_out(database: duckdb.DuckDBPyConnection, until: datetime) -> None:
    """Remove the transactions of young blocks. One that is young in the lake alone has moved, and stays."""
    database.execute("CREATE TABLE young AS SELECT tx_hash FROM arrow WHERE block_time >= ?", [until])
    database.execute(
        """INSERT INTO young SELECT tx_hash FROM lake ANTI JOIN arrow USING (tx_hash) WHERE lake.block_time >= ?""",
        [until],
    )
    for side in ("arrow", "lake"):
        database.execute(f"DELETE FROM {side} WHERE tx_hash IN (SELECT tx_hash FROM young)")


def _hours(database: duckdb.DuckDBPyConnection) -> Iterator[HourComparison]:
    def side(name: str, count: str) -> str:
        checksum = "md5(sum(md5_number_lower(checksum)::HUGEINT)::VARCHAR)"
        hour = "date_trunc('hour', block_time) AS hour"
        return f"(SELECT network, {hour}, {count} AS rows, {checksum} AS checksum FROM {name} GROUP BY ALL)"

    query = f"""SELECT network, hour, coalesce(a.rows, 0), coalesce(l.rows, 0), coalesce(a.checksum, ''),
        coalesce(l.checksum, '')
        FROM {side("arrow", "count(*)")} a FULL JOIN {side("lake", "sum(copies)")} l USING (network, hour)
        ORDER BY network, hour"""
    for network, hour, arrow_rows, lake_rows, *checksums in database.execute(query).fetchall():
        yield HourComparison(network, hour.replace(tzinfo=UTC), int(arrow_rows), int(lake_rows), *checksums)


def _counts(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    counts = ", ".join(f"count(*) FILTER ({condition})" for condition in _KINDS.values())
    row = database.execute(f"SELECT {counts} FROM {_JOINED}").fetchall()[0]
    return dict(zip(_KINDS, row, strict=True))


def _examples(database: duckdb.DuckDBPyConnection, counts: dict[str, int], most: int) -> Iterator[Difference]:
    for kind, condition in _KINDS.items():
        if not counts[kind]:
            continue
        query = f"""SELECT tx_hash, coalesce(arrow.network, lake.network),
            date_trunc('hour', coalesce(arrow.block_time, lake.block_time))
            FROM {_JOINED} WHERE {condition} ORDER BY tx_hash LIMIT ?"""
        for tx_hash, network, hour in database.execute(query, [most]).fetchall():
            yield Difference(kind, tx_hash, network, hour.replace(tzinfo=UTC))


def _keep(lake: Lake, found: Comparison) -> None:
    state.prepare(lake)

    def work(transaction: LakeTransaction) -> None:
        known = state.load(transaction, found.folder)
        answer = replace(
            known,
            equal=found.equal,
            compared_at=datetime.now(UTC),
            snapshot_id=found.snapshot_id,
            rows=found.lake_rows,
        )
        state.save(transaction, answer)
        state.replace_files(transaction, found.folder, "compared", found.files if found.equal else ())

    lake.run(work, "migrate-arrow: compare")


def _naive(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InputError("before needs a time zone", hint="datetime(…, tzinfo=UTC)")
    return moment.astimezone(UTC).replace(tzinfo=None)
