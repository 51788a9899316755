"""Check a pond: its lake, its tree, and every large file byte by byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from quacklake.errors import CorruptFileError
from quacklake.extend.names import quote
from quacklake.extend.reporting import Progress, silent
from quacklake.pond import backend
from quacklake.pond.fs import FS
from quacklake.pond.nodes import KEEPS_CONFLICTS, TIMESTAMP_COLUMN, EntryType
from quacklake.pond.paths import DATA_SCHEMA, table_of
from quacklake.pond.pond import Pond


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The report of a check: what it looked at, and what it found."""

    nodes: int
    large_files: int
    large_bytes: int
    problems: tuple[Problem, ...]


def verify(pond: Pond, *, deep: bool = False, progress: Progress = silent) -> VerifyReport:
    """Check everything. ``deep`` also reads all rows of tables and series."""
    fs = pond.fs()
    problems = [
        *(Problem("lake", f"{each.code}: {each.what}") for each in pond.lake.verify(deep).errors),
        *_tree(fs),
        *_small(fs),
        *(_double_readings(fs) if deep else ()),
    ]
    found = list(_large(fs, progress))
    problems += [problem for _, problem in found if problem is not None]
    return VerifyReport(len(fs.tree), len(found), sum(size for size, _ in found), tuple(problems))


def _tree(fs: FS) -> Iterator[Problem]:
    """Yield nodes that no path leads to, names that are used twice, and tables that are missing or nobody's."""
    names: dict[tuple[str, str], str] = {}
    expected: set[str] = set()
    for node in fs.tree:
        if node.part_id not in fs.tree:
            yield Problem(node.node_id, f"{node.name!r} is in a directory that does not exist")
            continue
        if not node.is_root and names.setdefault((node.part_id, node.name), node.node_id) != node.node_id:
            yield Problem(fs.tree.path(node.node_id), "two nodes have this name")
        if node.file_type.has_rows:
            expected.add(fs.tree.path(node.node_id))
    tables = {name.removeprefix(f"{DATA_SCHEMA}.") for name in fs.backend.lake.tables(DATA_SCHEMA)}
    yield from (Problem(path, "its table is missing in the lake") for path in sorted(expected - tables))
    yield from (Problem(path, "a table of the lake that is not in the tree") for path in sorted(tables - expected))


def _small(fs: FS) -> Iterator[Problem]:
    for node in backend.contents(fs.backend.lake):
        if node.content is not None and hashlib.sha256(node.content).hexdigest() != node.sha256:
            yield Problem(fs.tree.path(node.node_id), "its content has changed")


def _double_readings(fs: FS) -> Iterator[Problem]:
    """Yield the series that have two readings of one time, and were not told to keep them.

    Columns of text tell readings of one time apart, as the name of a sensor does.
    """
    tables = set(fs.backend.lake.tables(DATA_SCHEMA))
    for node in fs.tree:
        if node.file_type is not EntryType.SERIES or node.attribute(KEEPS_CONFLICTS):
            continue
        path = fs.tree.path(node.node_id)
        if f"{DATA_SCHEMA}.{path}" in tables:
            table, time = fs.backend.lake.table(table_of(path)), str(node.attribute(TIMESTAMP_COLUMN))
            texts = [column.name for column in table.info.schema.columns if column.type == "varchar"]
            keys = ", ".join(map(quote, [time, *texts]))
            found = fs.backend.lake.sql(
                f"SELECT min(t)::VARCHAR, count(*) FROM (SELECT {quote(time)} AS t FROM {table_of(path)}"
                f" GROUP BY {keys} HAVING count(*) > 1)"
            ).fetchall()
            if found[0][1]:
                yield Problem(path, f"it has two readings at {found[0][0]}, and at {found[0][1]} times in all")


def _large(fs: FS, progress: Progress) -> Iterator[tuple[int, Problem | None]]:
    """Yield the size of each large file, and its problem; a whole one is read once, however many nodes have it."""
    whole: set[tuple[str, int]] = set()
    external = [
        node for node in fs.tree if node.file_type is EntryType.DATA and node.extended_attributes.get("external")
    ]
    for number, node in enumerate(external, 1):
        assert node.sha256 is not None
        assert node.size is not None
        if (node.sha256, node.size) in whole:
            continue
        path = fs.tree.path(node.node_id)
        try:
            fs.backend.large_files.check(node.sha256, node.size, path)
            whole.add((node.sha256, node.size))
            yield node.size, None
        except CorruptFileError as error:
            yield node.size, Problem(path, error.message)
        progress("large files", number, len(external))
