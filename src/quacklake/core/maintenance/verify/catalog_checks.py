"""Checks of the catalog. Each is a function that yields findings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from quacklake.core.catalog.checks.audit import LIVING
from quacklake.core.catalog.checks.audit_rows import RowAudit
from quacklake.core.catalog.shared_tables import differing
from quacklake.core.format.bounds import decode
from quacklake.core.format.inline import data_table_name, delete_table_name
from quacklake.core.format.names import fold
from quacklake.core.format.options import OPTIONS, READ_ONLY_KEYS, Scope, parse_option
from quacklake.core.format.schema import ColumnRow, unflatten
from quacklake.core.format.snapshots import ChangeKind, parse_changes
from quacklake.core.format.types import NESTED, StatsKind, scalar
from quacklake.core.maintenance.verify.findings import Finding, Fix, Known, finding
from quacklake.errors import CatalogError, ConfigError, QuacklakeError

Check = Callable[[RowAudit, Known], Iterator[Finding]]


def snapshots(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V001, V002, V003 and V007, and record which snapshots exist."""
    before: Sequence[int | None] = ()
    for id_, version, next_catalog, next_file, changes_id, text in audit.snapshot_rows():
        known.snapshots.append(id_)
        if changes_id is None:
            yield finding("V001", f"snapshot {id_}")
        yield from _changes(id_, text, next_catalog)
        known.counted = max(known.counted[0], next_catalog or 0), max(known.counted[1], next_file or 0)
        now = (version, next_catalog, next_file)
        if None in now or any(new < old for old, new in zip(before, now, strict=False) if None not in (old, new)):
            yield finding("V007", f"in snapshot {id_}")
        before = now
    for (id_,) in audit.changes_of_nothing():
        yield finding("V001", f"changes of {id_}, which is not there")


def _changes(snapshot: int, text: str | None, next_catalog: int | None) -> Iterator[Finding]:
    try:
        changes = parse_changes(text)
    except CatalogError as error:
        yield finding("V002", f"of snapshot {snapshot}: {error.message}")
        return
    for change in changes:
        if change.id is not None and next_catalog is not None and change.id >= next_catalog:
            what = "schema" if change.kind is ChangeKind.DROPPED_SCHEMA else "object"
            yield finding("V003", f"snapshot {snapshot} says {change}, but had no {what} {change.id} yet")


def counters(audit: RowAudit, known: Known) -> Iterator[Finding]:
    objects, files = audit.highest_ids()
    for code, top, following, column in (
        ("V004", max(objects + 1, known.counted[0]), known.latest.next_catalog_id, "next_catalog_id"),
        ("V005", max(files + 1, known.counted[1]), known.latest.next_file_id, "next_file_id"),
    ):
        if top > following:
            fix = Fix("counter", (known.latest.id, column, top))
            yield finding(code, f"{column} is {following}, and must be at least {top}", fix=fix)


def lives(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for name in LIVING:
        if audit.has(name):
            for id_, begin, end in audit.impossible_lives(name, known.latest.id):
                yield finding("V010", f"{name} {id_} from {begin} to {end}, and the newest is {known.latest.id}")


_IDENTITIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "table": (("table_id",), "table_id"),
    "view": (("view_id",), "view_id"),
    "macro": (("macro_id",), "macro_id"),
    "column": (("table_id", "column_id"), "column_id"),
    "partition_info": (("table_id",), "partition_id"),
    "sort_info": (("table_id",), "sort_id"),
    "tag": (("object_id", "key"), "object_id"),
    "column_tag": (("table_id", "column_id", "key"), "column_id"),
    "view_column_tag": (("view_id", "column_name", "key"), "view_id"),
}


def identities(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for name, (keys, shown) in _IDENTITIES.items():
        if audit.has(name):
            for row in audit.overlaps(name, keys, shown):
                if known.seen(row[-1], _end(row[-2])):
                    table = known.name(row[0]) if keys[0] == "table_id" else None
                    yield finding("V011", f"{name} {'.'.join(map(str, row[: len(keys)]))}", table=table)


def names(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for kind in ("schema", "relation", "macro", "column"):
        if kind == "macro" and not audit.has("macro"):
            continue
        for owner, _, _, one, two, _, end, following in audit.same_names(kind):
            if fold(one) == fold(two) and known.seen(following, _end(end)):
                table = known.name(owner) if kind == "column" else None
                yield finding("V012", f'{kind}s "{one}" and "{two}" from snapshot {following}', table=table)


def in_schemas(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for child in ("table", "view", "macro"):
        if audit.has(child):
            for id_, schema_id in _homeless(audit, known, child, "schema", "schema_id"):
                yield finding("V020", f"{child} {id_} of schema {schema_id}")


def in_tables(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for child in ("column", "data_file", "partition_info", "sort_info"):
        if audit.has(child):
            # Up to format 0.2, the contents of a dropped table had no end; nobody can see them.
            for id_, table_id in _homeless(audit, known, child, "table", "table_id", may_outlive=True):
                file_id = id_ if child == "data_file" else None
                yield finding("V021", f"{child} {id_}", table=known.name(table_id), file_id=file_id)


def delete_files(audit: RowAudit, known: Known) -> Iterator[Finding]:
    # When all rows of a data file are deleted, it ends but its delete file stays as it is.
    for id_, data_file in _homeless(audit, known, "delete_file", "data_file", "data_file_id", may_outlive=True):
        yield finding("V022", f"delete file {id_} of {data_file}", file_id=id_)
    for id_, mine in audit.foreign_delete_files():
        yield finding("V022", f"delete file {id_} belongs to another table than its data file", table=known.name(mine))
    for data_file, one, two, _, end, following in audit.overlaps("delete_file", ("data_file_id",), "delete_file_id"):
        if known.seen(following, _end(end)):
            yield finding("V030", f"{one} and {two} from snapshot {following}", file_id=data_file)


def _homeless(
    audit: RowAudit, known: Known, child: str, parent: str, key: str, *, may_outlive: bool = False
) -> Iterator[tuple[int, int]]:
    for id_, owner, begin, end, born, died in audit.orphans(child, parent, key):
        first = begin or 0
        if born is None:
            alone = known.seen(first, end)
        else:
            outlives = not may_outlive and known.seen(max(died, first), end)
            alone = outlives or known.seen(first, min(born, end))
        if alone:
            yield id_, owner


def columns(audit: RowAudit, known: Known) -> Iterator[Finding]:
    empty = {table_id for table_id, end in audit.table_lives().items() if end is None}
    for table_id, rows in itertools.groupby(audit.living_columns(known.latest.id), key=lambda row: row[0]):
        found = [ColumnRow(*row[1:]) for row in rows]
        table = known.name(table_id)
        empty.discard(table_id)
        try:
            unflatten(found)
        except QuacklakeError as error:
            yield finding("V023", error.message, table=table)
        orders = [row.column_order for row in found if row.parent_column is None]
        if None in orders or len(set(orders)) != len(orders):
            yield finding("V023", "two columns have one place in the order", table=table)
    for table_id in sorted(empty):
        yield finding("V023", "it has none", table=known.name(table_id))


_SPEAKING = (
    ("file_column_stats", "column_id", "data_file_id"),
    ("table_column_stats", "column_id", "table_id"),
    ("partition_column", "column_id", "partition_id"),
    ("column_tag", "column_id", "table_id"),
)


def known_columns(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for name, key, of in _SPEAKING:
        if audit.has(name):
            for id_, table_id, column_id in audit.unknown_columns(name, key, of):
                table = known.name(table_id)
                if of == "data_file_id":
                    yield finding("V028", f"column {column_id}", table=table, file_id=id_)
                else:
                    yield finding("V024", f"{name} of column {column_id}", table=table)
    if audit.has("name_mapping"):
        for mapping, table_id, column_id in audit.stray_mapped_columns():
            yield finding("V024", f"name mapping {mapping} to column {column_id}", table=known.name(table_id))


def known_files(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for name in ("file_column_stats", "file_variant_stats", "file_partition_value"):
        if audit.has(name):
            for file_id, table_id in audit.rows_of_no_file(name):
                fix = Fix("remove_file_rows", (name, file_id, table_id))
                yield finding("V025", name, table=known.name(table_id), file_id=file_id, fix=fix)


def partitions(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for file_id, table_id, partition_id in audit.files_without("partition_info", "partition_id"):
        yield finding("V026", f"partitioning {partition_id}", table=known.name(table_id), file_id=file_id)
    for file_id, table_id, index in audit.stray_partition_values():
        yield finding("V026", f"a value for key {index}", table=known.name(table_id), file_id=file_id)


def mappings(audit: RowAudit, known: Known) -> Iterator[Finding]:
    if audit.has("column_mapping"):
        for file_id, table_id, mapping in audit.files_without("column_mapping", "mapping_id"):
            yield finding("V027", f"mapping {mapping}", table=known.name(table_id), file_id=file_id)


def versions(audit: RowAudit, known: Known) -> Iterator[Finding]:
    if not audit.has("schema_versions"):
        return
    for table_id, rows in itertools.groupby(audit.version_rows(), key=lambda row: row[0]):
        before = -1
        for _, version, begin in rows:
            late = version is None or version > known.latest.schema_version or begin > known.latest.id
            if late or begin < before:
                yield finding("V040", f"version {version} from snapshot {begin}", table=known.name(table_id))
            before = begin


def options(audit: RowAudit, known: Known) -> Iterator[Finding]:
    rows = audit.options()
    facts = {row.key: row.value for row in rows if row.scope is None}
    if not facts.get("data_path"):
        yield finding("V053", "data_path")
    claims = [row.value for row in rows if row.key == "data_path" and row.scope is None]
    if known.data_path is not None and (len(claims) != 1 or differing(claims, known.data_path)):
        yield finding("V054", f"not {known.data_path}", fix=Fix("data_path", (known.data_path,)))
    if facts.get("encrypted", "false") not in ("true", "false"):
        yield finding("V053", "encrypted is neither true nor false")
    for row in rows:
        if row.key not in READ_ONLY_KEYS:
            if row.key not in OPTIONS and not row.key.startswith("quacklake_"):
                yield finding("V050", f'"{row.key}"')
            elif row.key in OPTIONS:
                try:
                    parse_option(row.key, row.value)
                except ConfigError as error:
                    yield finding("V051", error.message)
        if row.scope is not None and row.scope not in {scope.value for scope in Scope if scope is not Scope.GLOBAL}:
            yield finding("V052", f'"{row.key}" for a {row.scope}')
        elif row.scope is not None and (row.scope_id is None or not 0 <= row.scope_id < known.latest.next_catalog_id):
            yield finding("V052", f'"{row.key}" for {row.scope} {row.scope_id}')


def paths(audit: RowAudit, known: Known) -> Iterator[Finding]:
    for (table_id, path), rows in itertools.groupby(audit.shared_paths(), key=lambda row: (row[0], row[1])):
        lives = [tuple(row[2:]) for row in rows]
        # only the same table may have a file again later
        clashes = (
            one[0] != two[0] or known.seen(max(one[1], two[1]), min(one[2], two[2]))
            for one, two in itertools.pairwise(lives)
        )
        if any(clashes):
            yield finding("V061", f"{path} in {len(lives)} rows", table=known.name(table_id))
    for file_id, table_id in audit.scheduled_in_use():
        yield finding(
            "V062", f"file {file_id}", table=known.name(table_id), file_id=file_id, fix=Fix("unschedule", (file_id,))
        )


def _end(end: int | None) -> int:
    return (1 << 62) if end is None else end


_INLINED = re.compile(r"ducklake_inlined_(?:data_([0-9]+)_([0-9]+)|delete_([0-9]+))")


def totals(audit: RowAudit, known: Known) -> Iterator[Finding]:
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
    for key, rows in itertools.groupby(audit.table_statistics(), key=lambda row: row[1:3]):
        table_id, column_id = key
        found = list(rows)
        kinds = {_kind(row[7]) for row in found}
        # stock clients write plain casts for inlined rows: NaN, or a blob as characters
        low, high = (
            None if StatsKind.BLOB in kinds or (StatsKind.FLOAT in kinds and str(text).lower() == "nan") else text
            for text in found[0][3:5]
        )
        code = _bounds(low, high, [row[7] for row in found])
        if code is not None:
            fix = Fix("drop_table_bounds", (table_id, column_id))
            yield finding(code, f"of column {column_id}", table=known.name(table_id), fix=fix)


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
    listed = {row[1] for row in audit.listed_inlined()}
    for name in sorted(audit.stored_tables()):
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


CHECKS: tuple[Check, ...] = (
    *(snapshots, counters, lives, identities, names, in_schemas, in_tables, delete_files, columns, known_columns),
    *(known_files, partitions, mappings, versions, options, paths),
    *(totals, file_statistics, table_statistics, inlined_rows, inlined_tables),
)
