"""Checks of totals, statistics and inlined rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from quacklake.catalog.checks.audit_rows import RowAudit
from quacklake.errors import QuacklakeError
from quacklake.format.bounds import decode
from quacklake.format.inline import data_table_name, delete_table_name
from quacklake.format.types import NESTED, StatsKind, scalar
from quacklake.maintenance.verify.catalog_checks import Check
from quacklake.maintenance.verify.context import Known
from quacklake.maintenance.verify.findings import Finding, Fix, finding

_INLINED = re.compile(r"ducklake_inlined_(?:data_([0-9]+)_([0-9]+)|delete_([0-9]+))")


def totals(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V006, V031, V036, V037 and V038."""
    for table_id, top, rows, size, count, record_count, next_row_id, file_size in audit.table_totals(known.latest.id):
        table = known.name(table_id)
        # Convert to numbers, because some databases return sums as decimals.
        top, rows, size = int(top), int(rows or 0), int(size or 0)
        fix = Fix("totals", (table_id, rows, top, size))
        if rows < 0:
            yield finding("V031", "more rows are deleted than there are", table=table)
        if count is None:
            yield finding("V036", f"its files have {rows} rows", table=table, fix=fix)
            continue
        if count > 1:
            yield finding("V038", f"{count} rows", table=table, fix=fix)
        if next_row_id is None or next_row_id < top:
            detail = f"the next row id is {next_row_id}, and {top - 1} is in use"
            yield finding("V006", detail, table=table, fix=Fix("next_row_id", (table_id, top)))
        if record_count is None or record_count < rows or file_size is None or file_size < 0:
            detail = f"{record_count} rows and {file_size} bytes are noted, {rows} and {size} are there"
            yield finding("V037", detail, table=table, fix=fix)


def file_statistics(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V031, V034 and V035 for files."""
    for key, rows in itertools.groupby(audit.file_statistics(), key=lambda row: row[:3]):
        file_id, table_id, column_id = key
        found = list(rows)
        low, high, nulls, values = found[0][3:7]
        table, fix = known.name(table_id), Fix("drop_file_bounds", (file_id, column_id))
        if (nulls or 0) < 0 or (values or 0) < 0:
            fix = Fix("drop_file_counts", (file_id, column_id))
            yield finding("V081", f"column {column_id} has negative ones", table=table, file_id=file_id, fix=fix)
        code = _bounds(low, high, [row[7] for row in found])
        if code is not None:
            yield finding(code, f"of column {column_id}", table=table, file_id=file_id, fix=fix)


def table_statistics(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V034 and V035 for tables."""
    for key, rows in itertools.groupby(audit.table_statistics(), key=lambda row: row[1:3]):
        table_id, column_id = key
        found = list(rows)
        low, high = (None if _plain_cast(text, found) else text for text in found[0][3:5])
        code = _bounds(low, high, [row[7] for row in found])
        if code is not None:
            fix = Fix("drop_table_bounds", (table_id, column_id))
            yield finding(code, f"of column {column_id}", table=known.name(table_id), fix=fix)


def _plain_cast(text: str | None, rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether a bound is a plain cast, as stock clients write for inlined rows: NaN, or a blob as characters."""
    kinds = {_kind(row[7]) for row in rows}
    return text is not None and ((text.lower() == "nan" and StatsKind.FLOAT in kinds) or StatsKind.BLOB in kinds)


def _kind(type_: str) -> StatsKind:
    try:
        return StatsKind.NONE if type_ in NESTED else scalar(type_).stats
    except QuacklakeError:
        return StatsKind.NONE  # an unknown type is reported elsewhere


def _bounds(low: str | None, high: str | None, types: Sequence[str]) -> str | None:
    """Return the code of the problem with bounds, or None if they suit one of the types that the column has had."""
    worst = None
    for type_ in types:
        if _kind(type_) in (StatsKind.NONE, StatsKind.GEOMETRY, StatsKind.VARIANT):
            return None
        one, two = decode(low, type_), decode(high, type_)
        if (low is not None and one is None) or (high is not None and two is None):
            worst = worst or "V034"
        elif one is not None and two is not None and one > two:  # type: ignore[operator]
            worst = "V035"
        else:
            return None
    return worst


def inlined_rows(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V006, V033, V036, V041, V042 and V044."""
    following = audit.next_row_ids()
    for table_id, name, version in audit.listed_inlined():
        table = known.name(table_id)
        try:
            alike = audit.has_columns(table_id, version, audit.tables.columns_at(table_id, version))
        except QuacklakeError as error:
            yield finding("V042", f"{name}: {error.message}", table=table)
            continue
        if alike is None or name != data_table_name(table_id, version):
            yield finding("V041", name, table=table)
            continue
        if not alike:
            yield finding("V042", name, table=table)
            continue
        _, live, top, wrong, twice = audit.inlined_facts(table_id, version, known.latest.id)
        if wrong:
            yield finding("V044", f"{wrong} in {name}", table=table)
        if twice:
            yield finding("V033", f"{twice} in {name}", table=table)
        if top is not None and top >= following.get(table_id, -1):
            if table_id not in following:
                yield finding(
                    "V036", f"{live} rows are inlined", table=table, fix=Fix("totals", (table_id, live, top + 1, 0))
                )
            else:
                detail = f"the next row id is {following[table_id]}, and {top} is in use"
                yield finding("V006", detail, table=table, fix=Fix("next_row_id", (table_id, top + 1)))


def inlined_tables(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V043, V045, V046 and V047."""
    listed = {row[1] for row in audit.listed_inlined()}
    for name in sorted(audit.database_tables()):
        match = _INLINED.fullmatch(name)
        if match is None:
            continue
        if match[3] is not None:
            yield from _inlined_deletes(audit, known, int(match[3]))
        elif name not in listed:
            count, *_ = audit.inlined_facts(int(match[1]), int(match[2]), known.latest.id)
            if count:
                yield finding("V043", f"{count} in {name}", table=known.name(int(match[1])))


def _inlined_deletes(audit: RowAudit, known: Known, table_id: int) -> Iterator[Finding]:
    table, name = known.name(table_id), delete_table_name(table_id)
    gone: dict[int, None] = {}
    for file_id, position, snapshot, rows, begin, end in audit.wrong_inlined_deletes(table_id, known.latest.id):
        if rows is None:
            gone[file_id] = None
        elif not 0 <= position < rows:
            yield finding("V046", f"position {position} of {rows} in {name}", table=table, file_id=file_id)
        elif end is not None and snapshot > end:
            yield finding("V047", f"position {position} at snapshot {snapshot}", table=table, file_id=file_id)
        else:
            detail = f"a delete at snapshot {snapshot} of a file that began at {begin}"
            yield finding("V044", detail, table=table, file_id=file_id)
    for file_id in gone:
        fix = Fix("remove_inlined_deletes", (table_id, file_id))
        yield finding("V045", f"file {file_id} in {name}", table=table, file_id=file_id, fix=fix)


ROW_CHECKS: tuple[Check, ...] = (totals, file_statistics, table_statistics, inlined_rows, inlined_tables)
