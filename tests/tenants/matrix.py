"""Every public operation, called by one catalog of a shared lake with what belongs to another."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import quacklake
from quacklake import Lake, Table
from quacklake.core.access import LakeAccess
from quacklake.core.format.objects import BatchContent
from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
from quacklake.core.materialized.views import MaterializedViews
from quacklake.core.operations.options import LakeHistory, LakeOptions, StreamPositions
from quacklake.core.sql.safety import Safety

ROWS = pa.table({"a": [1], "b": ["x"]})
SECRET = "zq-secret"


@dataclass
class Row:
    """A row of ``ROWS``."""

    a: int
    b: str


@dataclass(frozen=True)
class Theirs:
    """The names and contents of the other catalog, which nobody but its owner may learn."""

    name: str
    uuid: str
    folder: Path
    file: Path
    snapshot: int
    grant: str
    rule: str
    table: str = "umbral"
    deep: str = "hidden.umbral_deep"
    view: str = "umbral_view"
    macro: str = "umbral_macro"
    tag: str = "umbral_tag"
    stream: str = "umbral_stream"
    user: str = "umbral_user"
    role: str = "umbral_role"
    policy: str = "umbral_policy"

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that nothing shows to another catalog."""
        return self.name, self.uuid, str(self.folder), SECRET, "umbral", "hidden"


def fill(lake: Lake) -> None:
    """Give the other catalog a history, longer than that of the one that looks."""
    rows = pa.table({"a": list(range(60)), "b": [f"{SECRET} {i}" for i in range(60)]})
    t = lake.create_table("umbral", rows)
    t.append(rows.slice(0, 2))
    t.delete("a = 3")
    t.set_comment(f"{SECRET} comment")
    lake.create_schema("hidden")
    lake.create_table("hidden.umbral_deep", rows.slice(0, 30)).delete("a > 25")
    lake.create_view("umbral_view", "SELECT * FROM umbral")
    lake.create_macro("umbral_macro", ["x"], f"x || '{SECRET}'")
    lake.create_table("umbral_gone", rows)
    lake.drop_table("umbral_gone")
    lake.options.set("target_file_size", "64MB", table="umbral")
    lake.history.set_retention("umbral", "60 days")
    lake.tag("umbral_tag", 3)
    lake.access.create_user("umbral_user", ["reader"])
    lake.access.create_role("umbral_role")
    lake.access.add_member("umbral_role", "umbral_user")
    lake.access.grant("SELECT", "umbral_user", table="umbral")
    lake.access.create_policy("umbral_policy", "umbral", f"b <> '{SECRET}'")
    mark = lake.streams.claim("umbral_stream", "umbral_query")
    with lake.transaction(message=SECRET, author="umbral_author") as tx:
        tx.table("umbral").append(ROWS)
        tx.mark(mark.name, 0, mark.run)
    for _ in range(6):
        t.append(ROWS)


Call = Callable[[Lake, Theirs], Any]


@dataclass(frozen=True)
class Case:
    """A call of ``method``; ``given`` are the texts that the caller knows, which an error may repeat."""

    method: str
    what: str
    call: Call
    given: Callable[[Theirs], tuple[str, ...]]
    refused: bool = True

    @property
    def id(self) -> str:
        """The name of the test."""
        return f"{self.method} {self.what}".replace(" ", "-")


def _named(name: str) -> Callable[[Theirs], tuple[str, ...]]:
    return lambda theirs: (str(getattr(theirs, name)),)


def _table_calls() -> Iterator[tuple[str, Callable[[Table], Any]]]:
    calls: dict[str, Callable[[Table], Any]] = {
        "add_column": lambda t: t.add_column("c", "INTEGER"),
        "add_files": lambda t: t.add_files("x.parquet"),
        "alter_column": lambda t: t.alter_column("a", "VARCHAR"),
        "append": lambda t: t.append(ROWS),
        "changes": lambda t: t.changes(since=1).to_arrow(),
        "count": lambda t: t.count(),
        "delete": lambda t: t.delete("a = 1"),
        "deletions": lambda t: t.deletions(since=1).to_arrow(),
        "drop_column": lambda t: t.drop_column("b"),
        "drop_default": lambda t: t.drop_default("a"),
        "drop_not_null": lambda t: t.drop_not_null("a"),
        "files": lambda t: t.files(),
        "flush_inlined_data": lambda t: t.flush_inlined_data(),
        "history": lambda t: t.history(),
        "insertions": lambda t: t.insertions(since=1).to_arrow(),
        "is_current": lambda t: t.is_current(),
        "manifest": lambda t: t.manifest(),
        "merge": lambda t: t.merge(ROWS, on="a"),
        "merge_builder": lambda t: t.merge_builder(ROWS, "a").when_matched_update_all().execute(),
        "merge_adjacent_files": lambda t: t.merge_adjacent_files(),
        "optimize": lambda t: t.optimize(order_by="a"),
        "overwrite": lambda t: t.overwrite(ROWS),
        "plan": lambda t: t.plan(),
        "rename_column": lambda t: t.rename_column("a", "z"),
        "reset_partitioned_by": lambda t: t.reset_partitioned_by(),
        "reset_sorted_by": lambda t: t.reset_sorted_by(),
        "restore": lambda t: t.restore(to=1),
        "rewrite_data_files": lambda t: t.rewrite_data_files(),
        "rows": lambda t: list(t.rows(Row)),
        "scan": lambda t: t.scan().to_arrow(),
        "scan_polars": lambda t: t.scan_polars().collect(),
        "set_column_comment": lambda t: t.set_column_comment("a", "x"),
        "set_comment": lambda t: t.set_comment("x"),
        "set_default": lambda t: t.set_default("a", 1),
        "set_not_null": lambda t: t.set_not_null("a"),
        "set_partitioned_by": lambda t: t.set_partitioned_by("a"),
        "set_sorted_by": lambda t: t.set_sorted_by("a"),
        "set_tags": lambda t: t.set_tags({"k": "v"}),
        "show": lambda t: t.show(),
        "to_arrow": lambda t: t.to_arrow(),
        "to_arrow_dataset": lambda t: t.to_arrow_dataset().to_table(),
        "to_batches": lambda t: list(t.to_batches()),
        "to_pandas": lambda t: t.to_pandas(),
        "to_polars": lambda t: t.to_polars(),
        "to_pylist": lambda t: t.to_pylist(),
        "update": lambda t: t.update({"a": 1}, "b = 'x'"),
        "head": lambda t: t.head(),
        "to_duckdb": lambda t: t.to_duckdb().fetchall(),
    }
    yield from calls.items()
    for name in [
        "name",
        "info",
        "schema",
        "columns",
        "partitioned_by",
        "sorted_by",
        "comment",
        "column_comments",
        "tags",
        "primary_key",
    ]:
        if name != "name":
            yield name, lambda t, name=name: getattr(t, name)  # type: ignore[misc]


def _of_table(call: Callable[[Table], Any], name: str) -> Call:
    return lambda lake, theirs: call(lake.table(getattr(theirs, name)))


def _tables() -> Iterator[Case]:
    for number, (method, call) in enumerate(_table_calls()):
        name = "deep" if number % 4 == 0 else "table"
        yield Case(f"Table.{method}", name, _of_table(call, name), _named(name))


def _names() -> Iterator[Case]:
    """Operations of the lake with the names of the other's things."""
    calls: list[tuple[str, str, Call]] = [
        ("table", "table", lambda m, o: m.table(o.table).count()),
        ("scan", "table", lambda m, o: m.scan(o.table).to_arrow()),
        ("view", "view", lambda m, o: m.view(o.view).to_arrow()),
        ("create_table", "deep", lambda m, o: m.create_table(o.deep, ROWS)),
        ("create_view", "view", lambda m, o: m.create_view("mine_too", f"SELECT * FROM {o.view}")),
        ("create_materialized_view", "table", lambda m, o: m.create_materialized_view("new", _all_of(o.table))),
        ("materialized_views.create", "deep", lambda m, o: m.materialized_views.create("new", _all_of(o.deep))),
        ("materialized_views.describe", "table", lambda m, o: m.materialized_views.describe(o.table)),
        ("materialized_views.explain", "deep", lambda m, o: m.materialized_views.explain(o.deep)),
        ("materialized_views.alter", "table", lambda m, o: m.materialized_views.alter(o.table, refresh="manual")),
        ("materialized_views.drop", "table", lambda m, o: m.materialized_views.drop(o.table)),
        ("refresh", "table", lambda m, o: m.refresh(o.table)),
        ("drop_table", "table", lambda m, o: m.drop_table(o.table)),
        ("drop_schema", "deep", lambda m, o: m.drop_schema("hidden", cascade=True)),
        ("drop_view", "view", lambda m, o: m.drop_view(o.view)),
        ("drop_macro", "macro", lambda m, o: m.drop_macro(o.macro)),
        ("rename_table", "table", lambda m, o: m.rename_table(o.table, "now_mine")),
        ("rename_view", "view", lambda m, o: m.rename_view(o.view, "now_mine")),
        ("undrop", "table", lambda m, o: m.undrop("umbral_gone")),
        ("options.get", "table", lambda m, o: m.options.get("target_file_size", table=o.table)),
        ("options.set", "table", lambda m, o: m.options.set("target_file_size", "1MB", table=o.table)),
        ("options.set", "deep", lambda m, o: m.options.set("target_file_size", "1MB", schema="hidden")),
        ("options.unset", "table", lambda m, o: m.options.unset("target_file_size", table=o.table)),
        ("history.set_retention", "table", lambda m, o: m.history.set_retention(o.table, "1 day")),
        ("maintenance.flush_inlined_data", "table", lambda m, o: m.maintenance.flush_inlined_data(table=o.table)),
        ("maintenance.merge_adjacent_files", "deep", lambda m, o: m.maintenance.merge_adjacent_files("hidden")),
        ("maintenance.rewrite_data_files", "table", lambda m, o: m.maintenance.rewrite_data_files(table=o.table)),
        ("transaction", "table", _in_transaction),
        ("run", "table", lambda m, o: m.run(lambda tx: tx.table(o.table).append(ROWS))),
        ("unregister", "table", lambda m, o: m.unregister(o.table)),
        ("history.untag", "tag", lambda m, o: m.history.untag(o.tag)),
        ("at", "tag", lambda m, o: m.at(o.tag)),
        ("revert", "tag", lambda m, o: m.revert(o.tag)),
        ("revert", "snapshot", lambda m, o: m.revert(o.snapshot)),
        ("diff", "tag", lambda m, o: m.diff(o.tag)),
        ("diff", "snapshot", lambda m, o: m.diff(0, o.snapshot)),
        ("diff", "table", lambda m, o: m.diff(0).rows(o.table)),
        ("bisect", "tag", lambda m, o: m.bisect("SELECT true", o.tag)),
        ("bisect", "snapshot", lambda m, o: m.bisect("SELECT true", bad=o.snapshot)),
        ("bisect", "table", lambda m, o: m.bisect(f"SELECT * FROM {o.table}")),
        ("rollback", "tag", lambda m, o: m.rollback(to=o.tag)),
        ("streams.forget", "stream", lambda m, o: m.streams.forget(o.stream)),
        ("transaction", "stream", _mark),
        ("access.drop_user", "user", lambda m, o: m.access.drop_user(o.user)),
        ("access.disable_user", "user", lambda m, o: m.access.disable_user(o.user)),
        ("access.enable_user", "user", lambda m, o: m.access.enable_user(o.user)),
        ("access.check_user", "user", lambda m, o: m.access.check_user(o.user)),
        ("access.grant", "user", lambda m, o: m.access.grant("SELECT", o.user, table="mine")),
        ("access.revoke", "user", lambda m, o: m.access.revoke("SELECT", o.user, table="mine")),
        ("access.revoke_grant", "grant", lambda m, o: m.access.revoke_grant(o.grant)),
        ("access.drop_rule", "rule", lambda m, o: m.access.drop_rule(o.rule)),
        ("as_principal", "user", lambda m, o: m.as_principal(o.user)),
        ("access.drop_role", "role", lambda m, o: m.access.drop_role(o.role)),
        ("access.add_member", "role", lambda m, o: m.access.add_member(o.role, "reader")),
        ("access.remove_member", "role", lambda m, o: m.access.remove_member(o.role, "reader")),
        ("access.create_policy", "table", lambda m, o: m.access.create_policy("p", o.table, "true")),
        ("access.drop_policy", "policy", lambda m, o: m.access.drop_policy(o.policy, "mine")),
        ("access.create_mask", "table", lambda m, o: m.access.create_mask(o.table, "a", "0")),
        ("access.drop_mask", "table", lambda m, o: m.access.drop_mask(o.table, "a")),
        ("at", "snapshot", lambda m, o: m.at(version=o.snapshot)),
        ("tag", "snapshot", lambda m, o: m.tag("late", o.snapshot)),
        ("rollback", "snapshot", lambda m, o: m.rollback(to=o.snapshot)),
        ("expire_snapshots", "snapshot", lambda m, o: m.expire_snapshots(versions=[o.snapshot])),
        ("adopt", "folder", lambda m, o: m.adopt(f"delta:{o.folder}", "adopted")),
        ("adopt", "folder below", lambda m, o: m.adopt(f"iceberg:{o.folder}/main", "adopted")),
        ("import_from", "folder", lambda m, o: m.import_from(f"parquet:{o.folder}", "taken")),
        ("import_from", "folder by dots", lambda m, o: m.import_from(f"parquet:{m.data_path}../{o.name}", "taken")),
        ("import_from", "folder below", lambda m, o: m.import_from(f"delta:{o.folder}/main", "taken", in_place=True)),
        ("export_to", "folder", lambda m, o: m.export_to(f"parquet:{o.folder}", replace=True)),
        ("export_to", "folder below", lambda m, o: m.export_to(f"delta:{o.folder}/new")),
        ("export_to", "folder above", lambda m, o: m.export_to(f"duckdb:{o.folder.parent}/new.duckdb")),
        ("export_to", "table", lambda m, o: m.export_to("parquet:nowhere", o.table)),
        ("maintenance.check_backup", "folder", lambda m, o: m.maintenance.check_backup(o.folder, "none")),
        ("backup", "folder", lambda m, o: m.backup(o.folder)),
        ("backup", "folder below", lambda m, o: m.backup(o.folder / "new")),
        ("backup", "folder above", lambda m, o: m.backup(o.folder.parent)),
    ]
    for method, what, call in calls:
        # the schema is a part of the name that was given
        yield Case(f"Lake.{method}", what, call, lambda o, what=what: _given(o, what))  # type: ignore[misc]
    own: list[tuple[str, str, Call]] = [
        ("restore", "snapshot", lambda m, o: m.table("mine").restore(to=o.snapshot)),
        ("add_files", "file", lambda m, o: m.table("mine").add_files(o.file)),
        ("add_files", "file by url", lambda m, o: m.table("mine").add_files(f"file://{o.file}")),
        ("add_files", "folder", lambda m, o: m.table("mine").add_files(f"{o.folder}/**/*.parquet")),
        ("add_files", "folder by dots", lambda m, o: m.table("mine").add_files(f"{m.data_path}../{o.name}/main/*/*")),
        ("add_files", "nothing there", lambda m, o: m.table("mine").add_files(f"{o.folder}/main/none.parquet")),
    ]
    for method, what, call in own:
        yield Case(f"Table.{method}", what, call, lambda o, what=what: _given(o, what))  # type: ignore[misc]


def _all_of(name: str) -> str:
    return f"SELECT * FROM {name}"


def _given(theirs: Theirs, what: str) -> tuple[str, ...]:
    word = what.split(" ", maxsplit=1)[0]
    if word in ("file", "folder", "nothing"):
        return str(theirs.file), str(theirs.folder), f"../{theirs.name}", str(theirs.folder.parent)
    if word == "deep":
        return theirs.deep, "hidden"
    return "umbral_gone", str(getattr(theirs, word)), "hidden"


def _keep_refreshed(lake: Lake) -> list[Any]:
    reports: list[Any] = []
    with lake.materialized_views.keep_refreshed(reports.append):
        return reports


def _in_transaction(lake: Lake, theirs: Theirs) -> None:
    with lake.transaction() as tx:
        tx.table("mine").append(ROWS)
        tx.table(theirs.table).append(ROWS)


def _mark(lake: Lake, theirs: Theirs) -> None:
    with lake.transaction() as tx:
        tx.table("mine").append(ROWS)
        tx.mark(theirs.stream, 1, "run")


_STATEMENTS = (
    "SELECT * FROM umbral",
    "SELECT * FROM hidden.umbral_deep",
    "INSERT INTO umbral VALUES (1, 'x')",
    "DELETE FROM umbral",
    "UPDATE umbral SET a = 1",
    "DROP TABLE umbral",
    "ALTER TABLE umbral ADD COLUMN c INTEGER",
    "SELECT umbral_macro('x')",
    "SELECT * FROM mine AT (VERSION => 12)",
    "SELECT * FROM ducklake_table_changes('lake', 'main', 'umbral', 0, 5)",
    "SELECT * FROM ducklake_list_files('lake', 'umbral')",
    "SELECT * FROM __ducklake_metadata_lake.ducklake_catalog",
    "SELECT * FROM __ducklake_metadata_lake.quacklake_shared",
    "SELECT * FROM __ducklake_metadata_lake.quacklake_shares",
    "DELETE FROM __ducklake_metadata_lake.ducklake_table",
)
"""Refused, each of them."""

_SHOWING = (
    "SHOW ALL TABLES",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM ducklake_snapshots('lake')",
    "SELECT * FROM ducklake_table_info('lake')",
    "SELECT * FROM ducklake_options('lake')",
    *(
        f"SELECT * FROM __ducklake_metadata_lake.ducklake_{name}"
        for name in [
            "metadata",
            "snapshot",
            "snapshot_changes",
            "schema",
            "table",
            "column",
            "view",
            "macro",
            "macro_impl",
            "tag",
            "data_file",
            "delete_file",
            "table_stats",
            "table_column_stats",
            "file_column_stats",
            "partition_info",
            "file_partition_value",
            "files_scheduled_for_deletion",
            "inlined_data_tables",
            "schema_versions",
        ]
    ),
)
"""Statements that work, and show nothing but one's own catalog."""


def _sql() -> Iterator[Case]:
    for text in _STATEMENTS:
        names = _names_in(text)
        yield Case("Lake.sql", text, _says(text), lambda _, names=names: names)  # type: ignore[misc]
    for text in _SHOWING:
        yield Case("Lake.sql", text, _says(text), lambda _: (), refused=False)
    for text in ("SELECT * FROM read_parquet('{file}')", "SELECT * FROM '{file}'", "SELECT * FROM glob('{folder}/**')"):
        yield Case("Lake.sql", f"safe {text}", _safely(text), lambda o: _given(o, "file"))


def _says(text: str) -> Call:
    return lambda lake, _: lake.sql(text).fetchall()


def _safely(text: str) -> Call:
    return lambda lake, theirs: _safe(lake, theirs, text)


def _names_in(text: str) -> tuple[str, ...]:
    return text, "hidden.umbral_deep", *re.findall(r"\w+", text)


def _safe(lake: Lake, theirs: Theirs, text: str) -> Any:
    with quacklake.session(safety=Safety.server()) as session:
        session.attach(lake, "mine")
        return session.sql(text.format(file=theirs.file, folder=theirs.folder)).fetchall()


def _attached(lake: Lake, _: Theirs) -> Any:
    lake.attach(lake, "again")
    return lake.sql("SELECT * FROM again.mine").fetchall()


def _registered(lake: Lake, _: Theirs) -> Any:
    with duckdb.connect() as connection:
        lake.register(connection)
        return connection.sql("SELECT * FROM duckdb_views()").fetchall()


def _quiet() -> Iterator[Case]:
    """Yield calls that work, on one's own catalog alone."""
    calls: dict[str, Call] = {
        "schemas": lambda m, o: m.schemas(),
        "tables": lambda m, o: [m.tables(), m.tables("hidden")],
        "views": lambda m, o: [m.views(), m.views("hidden")],
        "macros": lambda m, o: [m.macros(), m.macros("hidden")],
        "table": lambda m, o: m.table("mine").changes(since=o.snapshot).to_pylist(),
        "history.tags": lambda m, o: m.history.tags().to_pylist(),
        "limits": lambda m, o: m.limits().asdict(),
        "streams.list": lambda m, o: m.streams.list().to_pylist(),
        "streams.done": lambda m, o: m.streams.done([o.stream]),
        "streams.forget_done": lambda m, o: m.streams.forget_done(2**40),
        "access": lambda m, o: m.access.tokens.list(),
        "access.users": lambda m, o: m.access.users(),
        "access.roles": lambda m, o: m.access.roles(),
        "access.grants": lambda m, o: m.access.grants(),
        "access.named_grants": lambda m, o: m.access.named_grants(),
        "access.policies": lambda m, o: m.access.policies(),
        "access.rules": lambda m, o: m.access.rules(o.user).roles,
        "access.is_enabled": lambda m, o: m.access.is_enabled(o.user),
        "access.create_user": lambda m, o: m.access.create_user("mine"),
        "access.create_user_with_token": lambda m, o: bool(m.access.create_user_with_token("mine_too")),
        "access.create_role": lambda m, o: m.access.create_role("my_role"),
        "access.flush_audit": lambda m, o: m.access.flush_audit(),
        "options.list": lambda m, o: m.options.list().to_pylist(),
        "history.retentions": lambda m, o: m.history.retentions(),
        "materialized_views.list": lambda m, o: m.materialized_views.list().to_pylist(),
        "materialized_views.names": lambda m, o: m.materialized_views.names(),
        "materialized_views.refresh_due": lambda m, o: m.materialized_views.refresh_due(),
        "materialized_views.keep_refreshed": lambda m, o: _keep_refreshed(m),
        "snapshots": lambda m, o: m.snapshots().to_pylist(),
        "current_snapshot": lambda m, o: m.current_snapshot(),
        "catalog": lambda m, o: m.catalog,
        "catalog_bytes": lambda m, o: m.catalog_bytes(),
        "data_path": lambda m, o: m.data_path,
        "url": lambda m, o: m.url,
        "version": lambda m, o: m.version,
        "migrate": lambda m, o: m.migrate(),
        "signed": lambda m, o: m.signed(author="x").tables(),
        "attach": _attached,
        "register": _registered,
        "streams.claim": lambda m, o: m.streams.claim(o.stream, "query of mine").epoch,
        "streams.find": lambda m, o: m.streams.find(o.stream),
        "streams.note_content": lambda m, o: m.streams.note_content(o.stream, "run", 0, BatchContent("digest")),
        "create_schema": lambda m, o: m.create_schema("both"),
        "create_macro": lambda m, o: m.create_macro("both", ["x"], "x"),
        "maintenance.maintainer": lambda m, o: m.maintenance.maintainer().due(),
        "maintain": lambda m, o: m.maintain(),
        "maintenance.backups": lambda m, o: m.maintenance.backups(o.folder),
        "maintenance.checkpoint": lambda m, o: m.maintenance.checkpoint(),
        "verify": lambda m, o: m.verify(deep=True),
        "maintenance.repair": lambda m, o: m.maintenance.repair(dry_run=False),
        "cleanup_old_files": lambda m, o: m.cleanup_old_files(cleanup_all=True),
        "delete_orphaned_files": lambda m, o: m.delete_orphaned_files(cleanup_all=True),
        "maintenance.flush_inlined_data": lambda m, o: m.maintenance.flush_inlined_data(),
        "maintenance.merge_adjacent_files": lambda m, o: m.maintenance.merge_adjacent_files(),
        "maintenance.rewrite_data_files": lambda m, o: m.maintenance.rewrite_data_files(delete_threshold=0.0),
        "expire_snapshots": lambda m, o: m.expire_snapshots(keep_last=2, dry_run=True),
    }
    for method, call in calls.items():
        # the stream of the same name is one's own now
        yield Case(f"Lake.{method}", "mine", call, lambda o: (o.stream,), refused=False)


CASES = [*_tables(), *_names(), *_sql(), *_quiet()]
GROUPS = {
    "access": LakeAccess,
    "history": LakeHistory,
    "maintenance": LakeMaintenance,
    "materialized_views": MaterializedViews,
    "options": LakeOptions,
    "streams": StreamPositions,
}
APART = {"Lake.close", "Table.name", *(f"Lake.{group}" for group in GROUPS if group != "access")}
"""Names that do not ask the catalog."""
WITHIN = {"Table.files_saved_by_merging", "Table.flush_within", "Lake.maintenance.flush_within"}
WITHIN |= {"Lake.maintenance.flush_tables", "Lake.maintenance.table"}
"""Methods that work on tables found by other methods."""


def _public(prefix: str, kind: type, without: Container[str] = ()) -> set[str]:
    return {f"{prefix}.{name}" for name in dir(kind) if not name.startswith("_") and name not in without}


PUBLIC = _public("Lake", Lake) | _public("Table", Table)
PUBLIC |= {name for group, kind in GROUPS.items() for name in _public(f"Lake.{group}", kind, dir(Lake))}
PUBLIC -= APART | WITHIN
