"""A shared lake with a tenant that writes anything into its metadata, and everything that its owner does with it.

``amber`` is hostile, ``onyx`` its neighbour, and ``jade`` a fork of amber, made before. ``Scene.play`` writes one value
into one column as amber, lets the owner do all there is to do with amber, and returns what went wrong: a file, row or
setting of somebody else that was read or changed, or an error that is none of ours.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import json
import os
import random
import re
import shutil
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

import quacklake
from quacklake import Lake
from quacklake.connectors import PreparedCommit, WrittenFile
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.core.format.objects import Checkpoint
from quacklake.core.format.options import OPTIONS, READ_ONLY_KEYS
from quacklake.errors import QuacklakeError
from quacklake.pipelines.checkpoints import Manifest
from quacklake.pipelines.definitions import Definitions
from quacklake.service import runners
from services import PostgresServer

SETTINGS = {"duckdb_threads": 1, "storage_max_retries": 0, "ducklake_max_retry_count": 2, "ducklake_retry_wait_ms": 0}
SECRET = "zq-secret"
AMBER, ONYX, JADE = 0, 1, 2
#: What the owner does with each column that amber can write, by the kind of its use.
USES: Mapping[str, str] = {
    "identity": "names rows of the catalog; statements are bound to it, so that it finds none of others",
    "history": "says when something exists; compared with other numbers of the catalog",
    "counter": "the next id or row id, or a count or size; planned with, and proved by footers and verify",
    "path": "leads to a file, which must be below the data path that the registry gives the catalog",
    "name": "a name of something, quoted in SQL",
    "type": "a type, transform, format or kind out of a fixed set",
    "value": "a value or bound as text, read by its type and never by SQL",
    "sql": "SQL that is parsed and checked before it runs",
    "json": "read as JSON, each part of it checked",
    "text": "shown to people, and nothing else",
    "key": "of the encryption of one file",
    "option": "an option of the catalog, checked by its name; identity and data path come from the registry",
    "access": "a user, token, grant or rule, for this catalog alone",
    "state": "of something in progress, for this catalog alone",
}
_LIFE = {"begin_snapshot": "history", "end_snapshot": "history"}
_PATH = {"path": "path", "path_is_relative": "path"}
_BOUNDS = {
    **dict.fromkeys(["min_value", "max_value", "extra_stats"], "value"),
    **dict.fromkeys(["min_is_exact", "max_is_exact", "contains_nan"], "value"),
}


def _as(use: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), use)


#: Every column that a role with a grant, or of a writable exposed catalog, can write, and its use.
WRITABLE: Mapping[str, Mapping[str, str]] = {
    "ducklake_metadata": _as("option", "key value scope scope_id"),
    "ducklake_snapshot": {
        **_as("history", "snapshot_id snapshot_time schema_version"),
        **_as("counter", "next_catalog_id next_file_id"),
    },
    "ducklake_snapshot_changes": {
        "snapshot_id": "history",
        "changes_made": "json",
        **_as("text", "author commit_message commit_extra_info"),
    },
    "ducklake_schema": {**_as("identity", "schema_id schema_uuid parent_schema_id"), **_LIFE, **_PATH}
    | {"schema_name": "name"},
    "ducklake_table": {**_as("identity", "table_id table_uuid schema_id"), **_LIFE, **_PATH, "table_name": "name"},
    "ducklake_view": {
        **_as("identity", "view_id view_uuid schema_id"),
        **_LIFE,
        "view_name": "name",
        "dialect": "type",
        "sql": "sql",
        "column_aliases": "name",
    },
    "ducklake_tag": {"object_id": "identity", **_LIFE, "key": "name", "value": "json"},
    "ducklake_column_tag": {**_as("identity", "table_id column_id"), **_LIFE, "key": "name", "value": "text"},
    "ducklake_data_file": {
        **_as("identity", "data_file_id table_id partition_id mapping_id"),
        **_LIFE,
        **_PATH,
        **_as(
            "counter", "file_order record_count file_size_bytes footer_size row_id_start partial_max row_group_count"
        ),
        "file_format": "type",
        "encryption_key": "key",
    },
    "ducklake_file_column_stats": {
        **_as("identity", "data_file_id table_id column_id"),
        **_as("counter", "column_size_bytes value_count null_count"),
        **_BOUNDS,
    },
    "ducklake_file_variant_stats": {
        **_as("identity", "data_file_id table_id column_id"),
        **_as("counter", "column_size_bytes value_count null_count"),
        **_as("value", "variant_path min_value max_value contains_nan extra_stats"),
        "shredded_type": "type",
    },
    "ducklake_delete_file": {
        **_as("identity", "delete_file_id table_id data_file_id"),
        **_LIFE,
        **_PATH,
        **_as("counter", "delete_count file_size_bytes footer_size partial_max row_group_count"),
        "format": "type",
        "encryption_key": "key",
    },
    "ducklake_column": {
        **_as("identity", "column_id table_id parent_column"),
        **_LIFE,
        "column_order": "counter",
        "column_name": "name",
        **_as("type", "column_type nulls_allowed default_value_type default_value_dialect"),
        "initial_default": "value",
        "default_value": "sql",
    },
    "ducklake_table_stats": {"table_id": "identity", **_as("counter", "record_count next_row_id file_size_bytes")},
    "ducklake_table_column_stats": {**_as("identity", "table_id column_id"), "contains_null": "value", **_BOUNDS},
    "ducklake_partition_info": {**_as("identity", "partition_id table_id"), **_LIFE},
    "ducklake_partition_column": {
        **_as("identity", "partition_id table_id column_id"),
        "partition_key_index": "counter",
        "transform": "type",
    },
    "ducklake_file_partition_value": {
        **_as("identity", "data_file_id table_id"),
        "partition_key_index": "counter",
        "partition_value": "value",
    },
    "ducklake_files_scheduled_for_deletion": {"data_file_id": "identity", **_PATH, "schedule_start": "history"},
    "ducklake_inlined_data_tables": {"table_id": "identity", "table_name": "name", "schema_version": "history"},
    "ducklake_column_mapping": {**_as("identity", "mapping_id table_id"), "type": "type"},
    "ducklake_name_mapping": {
        **_as("identity", "mapping_id column_id target_field_id parent_column"),
        "source_name": "name",
        "is_partition": "type",
    },
    "ducklake_schema_versions": {**_as("history", "begin_snapshot schema_version"), "table_id": "identity"},
    "ducklake_macro": {**_as("identity", "schema_id macro_id"), "macro_name": "name", **_LIFE},
    "ducklake_macro_impl": {**_as("identity", "macro_id impl_id"), **_as("type", "dialect type"), "sql": "sql"},
    "ducklake_macro_parameters": {
        **_as("identity", "macro_id impl_id column_id"),
        "parameter_name": "name",
        **_as("type", "parameter_type default_value_type"),
        "default_value": "sql",
    },
    "ducklake_sort_info": {**_as("identity", "sort_id table_id"), **_LIFE},
    "ducklake_sort_expression": {
        **_as("identity", "sort_id table_id"),
        "sort_key_index": "counter",
        "expression": "sql",
        **_as("type", "dialect sort_direction null_order"),
    },
    "ducklake_view_column_tag": {
        "view_id": "identity",
        "column_name": "name",
        **_LIFE,
        "key": "name",
        "value": "text",
    },
    "quacklake_commits": {"token": "state", "snapshot_id": "history"},
    "quacklake_snapshot_tags": {"name": "name", "snapshot_id": "history", "created": "text"},
    "quacklake_retention": {"table_id": "identity", "keep": "option"},
    "quacklake_leases": _as("state", "lease_id holder expires_ms"),
    "quacklake_streams": _as("state", "name query run epoch position snapshot_id"),
    "quacklake_checkpoints": {**_as("state", "stream checkpoint_id state created"), "manifest": "json"},
    "quacklake_definitions": {**_as("name", "kind name"), "body": "json", **_as("state", "state created")},
    "quacklake_principals": _as("access", "name state created"),
    "quacklake_tokens": _as("access", "token_id principal hash expires_ms created"),
    "quacklake_roles": _as("access", "role member created"),
    "quacklake_privileges": _as("access", "grant_id grantee privilege scope schema_id object_id column_id created"),
    "quacklake_policies": {
        **_as(
            "access", "policy_id kind name table_id schema_name table_name column_id column_name role columns created"
        ),
        "expression": "sql",
    },
    "ducklake_inlined_rows": {
        **_as("identity", "table_id row_id"),
        **_as("history", "schema_version begin_snapshot end_snapshot"),
        "payload": "json",
    },
    "ducklake_inlined_deletes": {**_as("identity", "table_id file_id row_id"), "begin_snapshot": "history"},
}
COLUMNS = [(table, column) for table, columns in WRITABLE.items() for column in columns]

_NUMBERS = (None, -1, 0, 1, 2, 3, 5, 7, 64, 1000, 10**6, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1)
NUMBERS = (*_NUMBERS, -(2**31), -(2**53), -(2**62), -(2**63))
TEXTS = (
    None,
    "",
    " ",
    "../onyx/main/t/{file}",
    "../../onyx/main/t/{file}",
    "{root}/onyx/main/t/{file}",
    "file://{root}/onyx/main/t/{file}",
    "{root}/amber/../onyx/main/t/{file}",
    "{root}/onyx/",
    "{root}/",
    "{outside}/secret.parquet",
    "//{outside}/secret.parquet",
    "/etc/hostname",
    "s3://nobody/onyx/x.parquet",
    "nope://x y",
    "%2e%2e/onyx/main/t/{file}",
    "main/t/../../../onyx/main/t/{file}",
    "*.parquet",
    "../onyx/**/*.parquet",
    "'; DROP TABLE ducklake_catalog; --",
    "\"; SELECT * FROM read_parquet('{root}/onyx/**/*.parquet'); --",
    "(SELECT content FROM read_text('{outside}/secret.txt'))",
    "SELECT * FROM read_parquet('{root}/onyx/main/t/{file}')",
    "COPY (SELECT 1) TO '{outside}/made.csv'",
    "ATTACH '{outside}/secret.db' AS x",
    "{{",
    '{{"a": [1',
    "[]",
    "{{}}",
    "null",
    "[[[[[[[[" * 500,
    "x" * 100_000,
    "9" * 400,
    "-1",
    "1e999",
    "NaN",
    "true",
    "t",
    "onyx",
    "line\nbreak\x1b[31m",
    "ünïcode ☃ \U0001f986",
    "DECIMAL(999, -3)",
    "STRUCT(a INTEGER",
    "expression",
    "bucket(0)",
    "bucket(99999999999)",
    "truncate(-1)",
    "inserted_into_table:999,dropped_table:-1",
    'created_table:"main"."t',
    "2024-13-45",
    "AAAA",
    "everything",
    "1 day",
    "999999999999 years",
)
FLAGS = (None, True, False)
UIDS = (None, "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "{uuid}")
INSTANTS = (
    *(None, "infinity", "-infinity", "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
    *("294276-12-31 00:00:00+00", "1970-01-01 00:00:00+00", "4713-01-01 00:00:00+00 BC", "2262-04-12 00:00:00+00"),
)
#: Values of no type that SQLite stores in a column of any other.
LOOSE = ("", "x", "-1", "99999999999999999999", "2024-13-45 99:99:99")
_LEAVES = (None, -1, 2**63, [], {}, "", "x" * 10_000, "{root}/onyx/main/t/{file}", "{outside}/secret.parquet")
_LEAVES += ("SELECT * FROM read_parquet('{root}/onyx/main/t/{file}')", "'; --", 1.5, True)


_SETTINGS = ("-1", "0", "99999999999999999999", "x", "", "{outside}", "1e999", "-5 days", "100000 years", "true", "0.1")


@dataclass(frozen=True)
class Case:
    """A value for a column; ``way`` is the rows that get it: all, one, or a new copy of one."""

    table: str
    column: str
    value: Any
    way: str

    def __str__(self) -> str:
        shown = repr(self.value)
        return f"{self.table}.{self.column} = {shown if len(shown) < 100 else shown[:80] + '…'} ({self.way})"


def values_of(table: str, column: str, loose: bool) -> tuple[Any, ...]:
    """Return the hostile values of a column; those of ``loose`` databases may be of another type."""
    kind = type(SharedTables.of(None).definitions[table].c[column].type).__name__
    values: dict[str, tuple[Any, ...]] = {"Flag": FLAGS, "Uid": UIDS, "Instant": INSTANTS, "Id": NUMBERS}
    found: tuple[Any, ...] = values.get(kind, NUMBERS if kind == "BigInteger" else TEXTS)
    if loose and found is not TEXTS:
        found += LOOSE
    if (table, column) == ("ducklake_metadata", "value"):
        found += tuple(("option", key, text) for key in sorted({*OPTIONS, *READ_ONLY_KEYS}) for text in _SETTINGS)
    if WRITABLE[table][column] == "json":
        found += tuple(("leaf", leaf) for leaf in _LEAVES)
    return found


def cases(choice: random.Random, loose: bool) -> Iterator[Case]:
    """Yield every column with every value, each in one of the ways."""
    for table, column in COLUMNS:
        for value in values_of(table, column, loose):
            yield Case(table, column, value, choice.choice(["all", "one", "copy"]))


# -- the lake ----------------------------------------------------------------------------------------------------------


def build(tenants: quacklake.Tenants, data: Path, *, forks: bool = True) -> None:
    """Make the catalogs, amber with something of everything."""
    outside = data.parent / "outside"
    outside.mkdir()
    pq.write_table(pa.table({"a": [SECRET]}), outside / "secret.parquet")
    (outside / "secret.txt").write_text(SECRET)
    tenants.create_many(["amber", "onyx"])
    with tenants.open("onyx", data_inlining_row_limit=0, **SETTINGS) as lake:
        lake.create_table("t", [{"id": number, "v": SECRET} for number in range(30)])
        lake.table("t").append([{"id": 1, "v": SECRET}])
    with tenants.open("amber", **SETTINGS) as lake:
        _fill(lake, data)
    if forks:
        tenants.fork("amber", "jade")


def _insert_rest(url: str) -> None:
    """Insert rows into the tables of amber that only later versions of the format, and work in progress, fill."""
    engine = sa.create_engine(re.sub("^postgresql:", "postgresql+psycopg:", url), poolclass=sa.pool.NullPool)
    tables = SharedTables.of(None).definitions
    written = PreparedCommit(1, (WrittenFile("part-1.parquet", 10, 1),), 10, 1)
    manifest = Manifest(1, "3", {"copy": written}).to_json()
    rows: dict[str, dict[str, Any]] = {
        "ducklake_view_column_tag": {
            "view_id": sa.select(sa.func.max(tables["ducklake_view"].c.view_id)).where(
                tables["ducklake_view"].c.catalog_id == AMBER
            ).scalar_subquery(),
            "column_name": "id", "begin_snapshot": 1, "end_snapshot": None, "key": "comment", "value": "of a column",
        },
        "quacklake_leases": {"lease_id": 1, "holder": str(uuid.UUID(int=7)), "expires_ms": 1},
        "quacklake_checkpoints": {
            "stream": "pipe", "checkpoint_id": 1, "state": Checkpoint.CONFIRMED, "manifest": manifest,
            "created": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        },
    }  # fmt: skip
    with engine.begin() as connection:
        for name, values in rows.items():
            connection.execute(sa.insert(tables[name]).values(catalog_id=AMBER, **values))


def _fill(lake: Lake, data: Path) -> None:
    rows = [{"id": number, "v": f"v{number}", "f": number / 2} for number in range(40)]
    t = lake.create_table("t", rows)
    t.append([{"id": 40, "v": None, "f": -0.0}])
    t.append([{"id": number, "v": "more", "f": 1.0} for number in range(50, 80)])
    t.delete("id < 5")
    t.delete("id = 60")
    t.set_default("v", "none")
    t.set_comment("a comment")
    t.set_column_comment("v", "of a column")
    t.set_sorted_by("id")
    p = lake.create_table("p", rows, partition_by=["bucket(2, id)"])
    p.append(rows[:2])
    lake.sql("CREATE TABLE j (id BIGINT, v VARIANT)")
    lake.sql("INSERT INTO j SELECT i, {'a': i}::VARIANT FROM range(40) r(i)")
    part = data / "amber/main/t/taken.parquet"
    pq.write_table(pa.table({"v": ["taken"] * 3, "id": [100, 101, 102], "f": [0.5] * 3}), part)
    t.add_files(part)
    t.set_tags({"k": "v"})
    lake.create_view("w", "SELECT id, v FROM t WHERE id > 10")
    lake.create_macro("m", ["x"], "x + 1")
    lake.create_schema("s2")
    lake.create_table("s2.old", rows)
    lake.create_table("s2.gone", rows)
    lake.drop_table("s2.gone")
    lake.sql("CREATE MATERIALIZED VIEW mv REFRESH ON COMMIT AS SELECT v, count(*) AS n FROM t GROUP BY v")
    lake.options.set("target_file_size", "1MB", table="t")
    lake.history.set_retention("t", "30 days")
    lake.tag("first", 2)
    lake.access.create_user("ann", ["reader"])
    lake.access.create_role("r")
    lake.access.add_member("r", "ann")
    lake.access.grant("SELECT", "ann", table="t")
    lake.access.create_policy("pol", "t", "id > 3")
    lake.access.create_mask("t", "v", "'masked'")
    lake.access.tokens.create("ann")
    mark = lake.streams.claim("stream", "SELECT 1")
    with lake.transaction(message="m", author="me") as tx:
        tx.table("t").append(rows[:2])
        tx.mark(mark.name, 0, mark.run)
    Definitions(lake).apply(
        {
            "pipeline": "pipe",
            "source": {"type": "lake", "table": "t"},
            "sinks": [{"name": "copy", "type": "lake", "table": "copied"}],
        }
    )
    lake.drop_table("s2.old")
    lake.table("j").append([{"id": 99, "v": None}])
    t.delete("id BETWEEN 50 AND 70")  # more than are kept inline: a delete file
    lake.expire_snapshots(keep_last=8)


# -- what the owner does -----------------------------------------------------------------------------------------------


def _read(lake: Lake) -> None:
    for name in lake.tables():
        lake.table(name).to_arrow()


def _operations(folder: Path) -> Mapping[str, Callable[[Lake], Any]]:
    """Return what the owner does with an open catalog; ``folder`` is for backups."""
    return {
        "tables": lambda m: (m.tables(), m.views(), m.macros(), m.schemas()),
        "read": lambda m: m.table("t").to_pylist(),
        "read j": lambda m: m.table("j").to_pylist(),
        "filter": lambda m: m.sql("SELECT count(*), min(id) FROM t WHERE id BETWEEN 3 AND 60 AND v <> 'x'").fetchall(),
        "partitions": lambda m: m.sql("SELECT * FROM p WHERE id = 3").fetchall(),
        "past": lambda m: m.at(version=6).table("t").count(),
        "view": lambda m: m.sql("SELECT * FROM w").fetchall(),
        "macro": lambda m: m.sql("SELECT m(1)").fetchall(),
        "changes": lambda m: m.table("t").changes(since=4).to_arrow(),
        "files": lambda m: (m.table("t").files(), m.table("t").history()),
        "snapshots": lambda m: m.snapshots().to_pylist(),
        "options": lambda m: (m.options.list(), m.history.tags(), m.history.retentions(), m.streams.list()),
        "access": lambda m: (m.access.users(), m.access.grants(), m.access.policies(), m.access.tokens.list()),
        "principal": lambda m: m.as_principal("ann").table("t").to_arrow(),
        "definitions": lambda m: (Definitions(m).list("pipeline"), runners.listed(m)),
        "append": lambda m: m.table("t").append([{"id": 200, "v": "new", "f": 1.0}]),
        "insert": lambda m: m.sql("INSERT INTO t (id) SELECT i FROM range(300, 340) r(i)"),
        "write p": lambda m: m.table("p").append([{"id": n, "v": "new", "f": 1.0} for n in range(40)]),
        "update": lambda m: m.table("t").update({"f": 2.0}, "id = 20"),
        "delete": lambda m: m.table("t").delete("id = 21"),
        "merge on": lambda m: m.table("t").merge([{"id": 22, "v": "merged", "f": 3.0}], on="id"),
        "add column": lambda m: m.table("t").add_column("c", "INTEGER"),
        "create": lambda m: m.create_table("made", [{"a": 1}] * 20),
        "refresh": lambda m: m.materialized_views.refresh_due(),
        "refresh full": lambda m: m.refresh("mv", full=True),
        "verify": lambda m: m.verify(deep=True),
        "backup": lambda m: m.backup(folder / "backup"),
        "flush": lambda m: m.maintenance.flush_inlined_data(),
        "merge": lambda m: m.maintenance.merge_adjacent_files(),
        "rewrite": lambda m: m.maintenance.rewrite_data_files(delete_threshold=0.0),
        "undrop": lambda m: m.undrop("s2.old"),
        "rollback": lambda m: m.rollback(to=10),
        "repair": lambda m: m.maintenance.repair(dry_run=False),
        "maintain": lambda m: m.maintain(),
        "expire": lambda m: m.expire_snapshots(older_than="0s"),
        "cleanup": lambda m: m.cleanup_old_files(cleanup_all=True),
        "orphans": lambda m: m.delete_orphaned_files(cleanup_all=True),
        "migrate": lambda m: m.migrate(),
        "drop table": lambda m: m.drop_table("p"),
        "cleanup again": lambda m: (m.expire_snapshots(older_than="0s"), m.cleanup_old_files(cleanup_all=True)),
    }


def _of_tenants(folder: Path, exposes: bool) -> Mapping[str, Callable[[quacklake.Tenants], Any]]:
    """Return what the owner does with catalogs as a whole, before and after the work with an open one."""
    before: dict[str, Callable[[quacklake.Tenants], Any]] = {
        "fork": lambda t: t.fork("amber", "twin"),
        "export": lambda t: t.export("amber", f"sqlite:///{folder}/exported.db", copy_data=True),
    }
    if exposes:
        before["expose"] = lambda t: (t.expose("amber", writable=False), t.unexpose("amber"))
    return before


#: What the owner does with all catalogs at once, which none of them can make fail.
ALL: Mapping[str, Callable[[quacklake.Tenants], Any]] = {
    "stats": lambda t: (t.stats(), t.list(), t.dropped()),
    "due": lambda t: t.maintainer().due(),
}
AFTER: Mapping[str, Callable[[quacklake.Tenants], Any]] = {
    "rename": lambda t: (t.rename("amber", "umber"), t.rename("umber", "amber")),
    "drop": lambda t: t.drop("amber"),
}
PURGE: Mapping[str, Callable[[quacklake.Tenants], Any]] = {"purge": lambda t: t.purge()}


# -- the oracle --------------------------------------------------------------------------------------------------------

_IN_OPEN, _IN_MODIFY, _IN_ACCESS = 0x20, 0x2, 0x1
_EVENT = struct.Struct("iIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def opened_files(folders: list[Path]) -> Iterator[list[str]]:
    """Note which files in some folders are opened by anybody, by the kernel's word."""
    watch = _LIBC.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0, os.strerror(ctypes.get_errno())
    names: dict[int, Path] = {}
    found: list[str] = []
    for folder in {each for top in folders for each in (top, *(path for path in top.rglob("*") if path.is_dir()))}:
        names[_LIBC.inotify_add_watch(watch, os.fsencode(folder), _IN_OPEN | _IN_MODIFY | _IN_ACCESS)] = folder
    try:
        yield found
        try:
            while data := os.read(watch, 1 << 16):
                while data:
                    number, _, _, length = _EVENT.unpack_from(data)
                    name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
                    if name:  # the folder itself may be listed
                        found.append(str(names[number] / name))
                    data = data[_EVENT.size + length :]
        except BlockingIOError:
            pass
    finally:
        os.close(watch)


@dataclass
class Scene:
    """The lake of a run. ``run`` runs SQL as amber, ``look`` as the owner; ``reset`` makes everything as it was."""

    url: str
    data: Path
    run: Callable[[str, dict[str, Any]], int]
    look: Callable[[str], list[tuple[Any, ...]]]
    reset: Callable[[], None]
    schema: str = ""
    loose: bool = False
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.data.parent / "work"

    def write(self, case: Case) -> bool:
        """Write a value as amber; return whether the database took it."""
        mine = "" if self.schema else "catalog_id = 0"
        name = f'{self.schema}"{case.table}"'
        key = f'"{case.column}"'
        if isinstance(case.value, tuple) and case.value[0] == "option":
            owner, of = ("", "") if self.schema else ("catalog_id, ", f"{AMBER}, ")
            words = {"key": case.value[1], "value": self._filled(case.value[2])}
            self.run(f"DELETE FROM {name} WHERE key = :key AND scope IS NULL{f' AND {mine}' if mine else ''}", words)
            return bool(self.run(f"INSERT INTO {name} ({owner}key, value) VALUES ({of}:key, :value)", words))
        value = self._value(case, name, mine)
        where = f" WHERE {mine}" if mine else ""
        row = "ctid" if self.url.startswith("postgresql") else "rowid"
        one = f"(SELECT {row} FROM {name}{where} ORDER BY {row} LIMIT 1)"
        columns = SharedTables.of(None).definitions[case.table].columns.keys()
        others = [f'"{column}"' for column in columns if column != case.column]
        if self.schema:
            others.remove('"catalog_id"')
        list_ = ", ".join(others)
        copied = (
            f"INSERT INTO {name} ({list_}, {key}) SELECT {list_}, {self._cast(case)} FROM {name} WHERE {row} = {one}"
        )
        update = f"UPDATE {name} SET {key} = {self._cast(case)}"
        first = {"all": [f"{update}{where}"], "copy": [copied], "one": []}
        ways = [*first[case.way], f"{update} WHERE {row} = {one}"]
        for statement in ways:
            try:
                if self.run(statement, {"value": value}):
                    return True
            except (sa.exc.DBAPIError, OverflowError, ValueError):
                continue
        return False

    def _cast(self, case: Case) -> str:
        kind = type(SharedTables.of(None).definitions[case.table].c[case.column].type).__name__
        names = {"Flag": "boolean", "Instant": "timestamptz", "Id": "bigint", "BigInteger": "bigint"}
        if not self.url.startswith("postgresql") or kind not in names:
            return "CAST(:value AS text)" if kind in ("Text", "Name") else ":value"
        return f"CAST(:value AS {names[kind]})"

    def _value(self, case: Case, name: str, mine: str) -> Any:
        value = case.value
        if isinstance(value, tuple):
            query = f'SELECT "{case.column}" FROM {name}{f" WHERE {mine}" if mine else ""}'
            texts = [text for (text,) in self.look(query) if text and text[0] in "[{"]
            choice = random.Random(repr(case))
            return (
                json.dumps(_with_leaf(json.loads(choice.choice(texts)), self._filled(value[1]), choice))
                if texts
                else None
            )
        return self._filled(value)

    def _filled(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        for key, text in self.expected["words"].items():
            value = value.replace(f"{{{key}}}", text)
        return value.replace("{{", "{").replace("}}", "}")

    # -- a case ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Remember what nobody may change."""
        (file,) = [*sorted((self.data / "onyx/main/t").glob("*.parquet"))][:1]
        ((uid,),) = self.look("SELECT catalog_uuid FROM ducklake_catalog WHERE catalog_id = 1")
        self.expected = {
            "words": {
                "root": str(self.data),
                "file": file.name,
                "outside": str(self.data.parent / "outside"),
                "uuid": str(uid),
            },
            "rows": self._rows(),
            "files": self._files(),
            "jade": self._named(),
        }

    def play(self, case: Case, told: Callable[[str], None] = lambda _: None) -> list[str] | None:
        """Write a value, do everything, and return what is wrong; None if the database did not take the value."""
        if not self.write(case):
            return None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        wrong: list[str] = []

        def attempt(name: str, call: Callable[[Any], Any], what: Any) -> None:
            told(name)
            try:
                call(what)
            except QuacklakeError as error:
                if error.code.startswith("internal") or name in ALL or name in PURGE:
                    wrong.append(f"{name}: {error!r}")
            except Exception as error:
                wrong.append(f"{name}: {type(error).__module__}.{type(error).__name__}: {str(error)[:300]}")

        outsiders = [self.data / "onyx", self.data.parent / "outside"]
        with opened_files(outsiders) as opened, quacklake.tenants(self.url, **SETTINGS) as tenants:
            for name, operation in ALL.items():
                attempt(name, operation, tenants)
            for name, operation in _of_tenants(self.folder, self.url.startswith("postgresql")).items():
                attempt(name, operation, tenants)
            attempt("open", lambda t: self._work(t, attempt), tenants)
            for name, operation in (AFTER | ALL | PURGE).items():
                attempt(name, operation, tenants)
        wrong += [f"opened {path}" for path in dict.fromkeys(opened)]
        rows = self._rows()
        wrong += [f"rows of {key} changed" for key in rows if rows[key] != self.expected["rows"][key]]
        files = self._files()
        for path in sorted(files.keys() | self.expected["files"].keys()):
            if files.get(path) != self.expected["files"].get(path):
                wrong.append(f"the file {path} is not as it was")
        wrong += [f"the fork lost {path}" for path in self.expected["jade"] if not Path(path).exists()]
        return wrong

    def _work(self, tenants: quacklake.Tenants, attempt: Callable[[str, Callable[[Any], Any], Any], None]) -> None:
        with tenants.open("amber", **SETTINGS) as lake:
            for name, operation in _operations(self.folder).items():
                attempt(name, operation, lake)

    def _rows(self) -> dict[str, Any]:
        """Return all rows that belong to others than amber and its new copies."""
        found: dict[str, Any] = {}
        for name in SharedTables.of(None).definitions:
            found[name] = sorted(map(repr, self.look(f"SELECT * FROM {name} WHERE catalog_id IN ({ONYX}, {JADE})")))
        found["ducklake_catalog"] = sorted(
            map(repr, self.look(f"SELECT * FROM ducklake_catalog WHERE catalog_id IN ({ONYX}, {JADE})"))
        )
        found["quacklake_shared"] = self.look("SELECT id, layout, data_path, encrypted, limits FROM quacklake_shared")
        found["quacklake_shares"] = self.look(f"SELECT * FROM quacklake_shares WHERE borrower_id = {JADE}")
        found["names"] = self.look(f"SELECT folder FROM ducklake_catalog WHERE catalog_id = {AMBER}")
        return found

    def _files(self) -> dict[str, tuple[int, int]]:
        """Return every file outside the folders of amber and its copies, with its size and time."""
        mine = (str(self.data / "amber") + "/", str(self.data / "twin") + "/", str(self.folder) + "/")
        found = {}
        for path in self.data.parent.rglob("*"):
            if path.is_file() and not str(path).startswith(mine) and path.parent != self.data.parent:
                status = path.stat()
                found[str(path)] = (status.st_size, status.st_mtime_ns)
        return found

    def _named(self) -> list[str]:
        """Return the files of amber that its fork needs."""
        paths: list[str] = []
        for table in ("ducklake_data_file", "ducklake_delete_file"):
            paths += [str(path) for (path,) in self.look(f"SELECT path FROM {table} WHERE catalog_id = {JADE}")]
        assert all(Path(path).exists() for path in paths)
        return paths


def _with_leaf(found: Any, leaf: Any, choice: random.Random) -> Any:
    """Return JSON with another value in one place."""
    if isinstance(found, dict) and found and choice.random() < 0.9:
        key = choice.choice(sorted(found))
        return {**found, key: _with_leaf(found[key], leaf, choice)}
    if isinstance(found, list) and found and choice.random() < 0.9:
        place = choice.randrange(len(found))
        return [*found[:place], _with_leaf(found[place], leaf, choice), *found[place + 1 :]]
    return leaf


# -- on SQLite ---------------------------------------------------------------------------------------------------------


@contextmanager
def on_sqlite(folder: Path) -> Iterator[Scene]:
    """Make the scene in a file: amber writes what it likes, with no role in between."""
    url, data = f"sqlite:///{folder}/lake/shared.db", folder / "lake/data"
    data.mkdir(parents=True)
    with quacklake.tenants(url, data) as tenants:
        build(tenants, data)
    _insert_rest(url)
    shutil.copytree(folder / "lake", folder / "golden", copy_function=shutil.copy2)

    def reset() -> None:
        shutil.rmtree(folder / "lake")
        shutil.copytree(folder / "golden", folder / "lake", copy_function=os.link)
        (folder / "lake/shared.db").unlink()
        shutil.copy2(folder / "golden/shared.db", folder / "lake/shared.db")

    def run(statement: str, values: dict[str, Any]) -> int:
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            return int(connection.execute(sa.text(statement), values).rowcount)

    def look(query: str) -> list[tuple[Any, ...]]:
        with engine.begin() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    scene = Scene(url, data, run, look, reset, loose=True)
    scene.reset()
    scene.begin()
    yield scene


# -- on PostgreSQL -----------------------------------------------------------------------------------------------------


@contextmanager
def on_postgres(server: PostgresServer, folder: Path, *, exposed: bool) -> Iterator[Scene]:
    """Make the scene on PostgreSQL: amber is a role with a grant, or one that writes an exposed catalog."""
    role, name = server.create_role("amber"), f"hostile_{uuid.uuid4().hex[:12]}"
    golden, data = f"{name}_golden", folder / "lake/data"
    data.mkdir(parents=True)
    url, schema = server.create_database(golden), ""
    with quacklake.tenants(url, data) as tenants:
        build(tenants, data, forks=not exposed)
        if exposed:
            schema = f'"{tenants.expose("amber", role, writable=True).schema}".'
        else:
            tenants.grant("amber", role)
    _insert_rest(url)
    shutil.copytree(folder / "lake", folder / "golden", copy_function=shutil.copy2)

    def reset() -> None:
        shutil.rmtree(folder / "lake")
        shutil.copytree(folder / "golden", folder / "lake", copy_function=os.link)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {golden}".encode())

    def engine(user: str) -> sa.Engine:
        at = sa.make_url(server.url_of(name)).set(drivername="postgresql+psycopg", username=user)
        return sa.create_engine(at, poolclass=sa.pool.NullPool)

    def run(statement: str, values: dict[str, Any]) -> int:
        with amber.begin() as connection:
            return int(connection.execute(sa.text(statement), values).rowcount)

    def look(query: str) -> list[tuple[Any, ...]]:
        # as text: PostgreSQL has times that Python has not
        whole = re.sub(r"SELECT \* FROM (\w+)", r"SELECT \1::text FROM \1", query)
        with owner.begin() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(whole)]

    owner, amber = engine("quacklake"), engine(role)
    scene = Scene(server.url_of(name), data, run, look, reset, schema=schema)
    scene.reset()
    scene.begin()
    try:
        yield scene
    finally:
        server.drop_database(name)
        server.drop_database(golden)
