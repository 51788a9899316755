"""Checks of the catalog. Each is a function that yields findings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from quacklake.catalog.checks.audit import LIVING
from quacklake.catalog.checks.audit_rows import RowAudit
from quacklake.errors import CatalogError, ConfigError, QuacklakeError
from quacklake.format.names import fold
from quacklake.format.options import OPTIONS, READ_ONLY_KEYS, OptionRow, Scope, parse_option
from quacklake.format.schema import ColumnRow, unflatten
from quacklake.format.snapshots import ChangeKind, parse_changes
from quacklake.maintenance.verify.context import Known
from quacklake.maintenance.verify.findings import Finding, Fix, finding

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


def lone_changes(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V001."""
    for (id_,) in audit.changes_of_nothing():
        yield finding("V001", f"changes of {id_}, which is not there")


def counters(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V004 and V005."""
    objects, files = audit.highest_ids()
    for code, top, following, column in (
        ("V004", max(objects + 1, known.counted[0]), known.latest.next_catalog_id, "next_catalog_id"),
        ("V005", max(files + 1, known.counted[1]), known.latest.next_file_id, "next_file_id"),
    ):
        if top > following:
            fix = Fix("counter", (known.latest.id, column, top))
            yield finding(code, f"{column} is {following}, and must be at least {top}", fix=fix)


def lives(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V010."""
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
    """Check V011."""
    for name, (keys, shown) in _IDENTITIES.items():
        if audit.has(name):
            for row in audit.overlaps(name, keys, shown):
                if known.seen(row[-1], _end(row[-2])):
                    table = known.name(row[0]) if keys[0] == "table_id" else None
                    yield finding("V011", f"{name} {'.'.join(map(str, row[: len(keys)]))}", table=table)


def names(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V012."""
    for kind in ("schema", "relation", "macro", "column"):
        if kind == "macro" and not audit.has("macro"):
            continue
        for owner, _, _, one, two, _, end, following in audit.same_names(kind):
            if fold(one) == fold(two) and known.seen(following, _end(end)):
                table = known.name(owner) if kind == "column" else None
                yield finding("V012", f'{kind}s "{one}" and "{two}" from snapshot {following}', table=table)


def in_schemas(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V020."""
    for child in ("table", "view", "macro"):
        if audit.has(child):
            for id_, schema_id in _homeless(audit, known, child, "schema", "schema_id"):
                yield finding("V020", f"{child} {id_} of schema {schema_id}")


def in_tables(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V021."""
    for child in ("column", "data_file", "partition_info", "sort_info"):
        if audit.has(child):
            # Up to format 0.2, the contents of a dropped table had no end; nobody can see them.
            for id_, table_id in _homeless(audit, known, child, "table", "table_id", may_outlive=True):
                file_id = id_ if child == "data_file" else None
                yield finding("V021", f"{child} {id_}", table=known.name(table_id), file_id=file_id)


def delete_files(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V022 and V030."""
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
    """Check V023."""
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
    """Check V024 and V028."""
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
    """Check V025."""
    for name in ("file_column_stats", "file_variant_stats", "file_partition_value"):
        if audit.has(name):
            for file_id, table_id in audit.rows_of_no_file(name):
                fix = Fix("remove_file_rows", (name, file_id, table_id))
                yield finding("V025", name, table=known.name(table_id), file_id=file_id, fix=fix)


def partitions(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V026."""
    for file_id, table_id, partition_id in audit.unknown_partitions():
        yield finding("V026", f"partitioning {partition_id}", table=known.name(table_id), file_id=file_id)
    for file_id, table_id, index in audit.stray_partition_values():
        yield finding("V026", f"a value for key {index}", table=known.name(table_id), file_id=file_id)


def mappings(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V027."""
    if audit.has("column_mapping"):
        for file_id, table_id, mapping in audit.unknown_mappings():
            yield finding("V027", f"mapping {mapping}", table=known.name(table_id), file_id=file_id)


def versions(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V040."""
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
    """Check V050, V051, V052 and V053."""
    rows = audit.options()
    facts = {row.key: row.value for row in rows if row.scope is None}
    if not facts.get("data_path"):
        yield finding("V053", "data_path")
    if facts.get("encrypted", "false") not in ("true", "false"):
        yield finding("V053", "encrypted is neither true nor false")
    for row in rows:
        yield from _option(row, known)


def _option(row: OptionRow, known: Known) -> Iterator[Finding]:
    scopes = {scope.value for scope in Scope if scope is not Scope.GLOBAL}
    if row.key not in READ_ONLY_KEYS:
        if row.key not in OPTIONS and not row.key.startswith("quacklake_"):
            yield finding("V050", f'"{row.key}"')
        elif row.key in OPTIONS:
            try:
                parse_option(row.key, row.value)
            except ConfigError as error:
                yield finding("V051", error.message)
    if row.scope is not None and row.scope not in scopes:
        yield finding("V052", f'"{row.key}" for a {row.scope}')
    elif row.scope is not None and (row.scope_id is None or not 0 <= row.scope_id < known.latest.next_catalog_id):
        yield finding("V052", f'"{row.key}" for {row.scope} {row.scope_id}')


def paths(audit: RowAudit, known: Known) -> Iterator[Finding]:
    """Check V061 and V062."""
    for (table_id, path), rows in itertools.groupby(audit.shared_paths(), key=lambda row: (row[0], row[1])):
        lives = [tuple(row[2:]) for row in rows]
        if any(_clash(one, two, known) for one, two in itertools.pairwise(lives)):
            yield finding("V061", f"{path} in {len(lives)} rows", table=known.name(table_id))
    for file_id, table_id in audit.scheduled_in_use():
        yield finding(
            "V062", f"file {file_id}", table=known.name(table_id), file_id=file_id, fix=Fix("unschedule", (file_id,))
        )


def _clash(one: tuple[str, int, int], two: tuple[str, int, int], known: Known) -> bool:
    """Return whether two rows of one file contradict each other: only the same table may have a file again later."""
    return one[0] != two[0] or known.seen(max(one[1], two[1]), min(one[2], two[2]))


def _end(end: int | None) -> int:
    return (1 << 62) if end is None else end


CATALOG_CHECKS: tuple[Check, ...] = (
    snapshots,
    lone_changes,
    counters,
    lives,
    identities,
    names,
    in_schemas,
    in_tables,
    delete_files,
    columns,
    known_columns,
    known_files,
    partitions,
    mappings,
    versions,
    options,
    paths,
)
