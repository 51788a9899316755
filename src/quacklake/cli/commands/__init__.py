"""The list of commands. Several share a module, which is loaded when one of them is used.

The first argument of a command's function is the :class:`~quacklake.cli.context.Context`; the others are its arguments
and options. Such a module loads nothing heavy: each function imports what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMMANDS", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, its purpose, and its function (``module:function``) or its own commands.

    A module without a dot is one of the program's own package; another package writes ``package.module:function``.
    ``shows_progress`` is True for a command that shows its own progress, or none.
    """

    name: str
    help: str
    home: str = ""
    panel: str | None = None
    commands: tuple[Entry, ...] = ()
    shows_progress: bool = False


_START, _READ, _WRITE, _BACK, _CARE, _SET = "Start", "Read", "Write", "Go back in time", "Maintain", "Administer"

_ALTER = (
    Entry("add-column", "Add a column, or a field of a struct", "alter:add_column"),
    Entry("drop-column", "Drop a column; older snapshots keep it", "alter:drop_column"),
    Entry("rename-column", "Rename a column", "alter:rename_column"),
    Entry("widen-column", "Change a column to a wider type", "alter:widen_column"),
    Entry("rename", "Rename the table", "alter:rename"),
    Entry("partition", "Set the partitioning of new files", "alter:partition"),
    Entry("sort", "Set the sort order of new files", "alter:sort"),
    Entry("comment", "Set the comment of the table or of a column", "alter:comment"),
    Entry("option", "Show or set an option of a table, a schema or the lake", "alter:option"),
)

_CONFIG = (
    Entry("show", "Show every setting, its value and its source", "config:show"),
    Entry("get", "Show one setting", "config:get"),
    Entry("set", "Write a setting to quacklake.toml", "config:set_"),
    Entry("unset", "Remove a setting from quacklake.toml", "config:unset"),
)

_PIPELINE = (
    Entry("apply", "Store the pipelines of YAML files in the lake", "pipeline:apply"),
    Entry("list", "List the pipelines of the lake", "pipeline:list_"),
    Entry("run", "Run a pipeline until it ends or is interrupted", "pipeline:run"),
    Entry("start", "Start a pipeline in a separate process", "pipeline:start"),
    Entry("stop", "Stop a pipeline, wherever it runs", "pipeline:stop"),
    Entry("status", "Show checkpoints, and how far pipelines are behind", "pipeline:status"),
    Entry("explain", "Show what a pipeline does", "pipeline:explain"),
    Entry("logs", "Print the log of a started pipeline", "pipeline:logs"),
    Entry("drop", "Remove a pipeline and its position", "pipeline:drop"),
)

_VIEWS = (
    Entry("list", "List the materialized views, and how far each is behind", "views:list_"),
    Entry("describe", "Show the query, the tables and the last refresh of a view", "views:describe"),
    Entry("create", "Create a view from a query, and fill it", "views:create"),
    Entry("refresh", "Bring one view, or all, up to date", "views:refresh"),
    Entry("explain", "Show what a refresh would do", "views:explain"),
    Entry("verify", "Compare one view, or all, with a full computation", "views:verify"),
    Entry("drop", "Drop a view with its rows", "views:drop"),
)

_TENANT = (
    Entry("create", "Create catalogs, and the shared lake if it does not exist", "tenant:create"),
    Entry("list", "List the catalogs by name", "tenant:list_"),
    Entry("show", "Show the id, data path and creation time of a catalog", "tenant:show"),
    Entry("rename", "Rename a catalog; its files stay where they are", "tenant:rename"),
    Entry("drop", "Drop a catalog; `purge` then removes its rows and files", "tenant:drop"),
    Entry("purge", "Remove the rows and files of dropped catalogs permanently", "tenant:purge"),
    Entry("export", "Create a plain lake from a catalog", "tenant:export"),
    Entry("release", "Stop keeping files for an exported lake", "tenant:release"),
    Entry("adopt", "Create a catalog from a plain lake; its files stay where they are", "tenant:adopt"),
    Entry("convert", "Convert a plain lake to a shared lake, in place", "tenant:convert"),
    Entry("fork", "Create a copy of a catalog that shares its files", "tenant:fork"),
    Entry("stats", "Show the snapshots, tables, files, rows and bytes of catalogs", "tenant:stats"),
    Entry("limit", "Set the limits of a catalog, or the default limits", "tenant:limit"),
    Entry("limits", "Show the limits of a catalog, or the default limits", "tenant:limits"),
    Entry("maintain", "Maintain the catalogs that need it, each in its turn", "tenant:maintain"),
    Entry("grant", "Let a PostgreSQL role use one catalog and no other", "tenant:grant"),
    Entry("revoke", "Undo `grant`", "tenant:revoke"),
    Entry("expose", "Let stock DuckDB read or write a catalog on PostgreSQL", "tenant:expose"),
    Entry("unexpose", "Undo `expose`", "tenant:unexpose"),
)

_ACCESS = (
    Entry("users", "List the users and their roles", "access:users"),
    Entry("create", "Create a user", "access:create"),
    Entry("drop", "Drop a user", "access:drop"),
    Entry("token", "Make a token of a user, and show it once", "access:token"),
    Entry("tokens", "List the tokens", "access:tokens"),
    Entry("revoke-token", "Revoke a token", "access:revoke_token"),
    Entry("grants", "List the grants of users and roles", "access:grants"),
)

COMMANDS: tuple[Entry, ...] = (
    Entry("init", "Create a lake", "config:init", _START),
    Entry("serve", "Let other programs use a lake over HTTP", "serve:serve", _START, shows_progress=True),
    Entry("sql", "Run SQL statements, or open a SQL shell", "sql:sql", _READ),
    Entry("info", "Show the location, snapshot and size of a lake", "tables:info", _READ),
    Entry("tables", "List the tables with their rows, files and bytes", "tables:tables", _READ),
    Entry("describe", "Show the columns and properties of a table", "tables:describe", _READ),
    Entry("show", "Show rows of a table, and count them", "rows:show", _READ),
    Entry("head", "Show the first rows of a table", "rows:head", _READ),
    Entry("scan", "Print all rows of a table", "rows:scan", _READ),
    Entry("snapshots", "List the snapshots of the lake, newest first", "snapshots:snapshots", _READ),
    Entry("history", "List the snapshots that changed a table, newest first", "snapshots:history", _READ),
    Entry("changes", "Show the rows that snapshots inserted, updated and deleted", "rows:changes", _READ),
    Entry("files", "List the data files of a table, with the rows deleted from each", "tables:files", _READ),
    Entry("export", "Write tables to files, databases or tables of other formats", "transfer:export", _READ),
    Entry("append", "Append the rows of Parquet, CSV, JSON or Arrow files to a table", "append:append", _WRITE),
    Entry("merge", "Update rows by key, and insert new ones", "append:merge", _WRITE),
    Entry("add-files", "Add existing Parquet files to a table without copying them", "append:add_files", _WRITE),
    Entry("adopt", "Register a Delta or Iceberg table without copying it, and follow it", "append:adopt", _WRITE),
    Entry("import", "Copy all tables of a folder, a database or another format", "transfer:import_", _WRITE),
    Entry("pipeline", "Run rows from sources through queries into sinks", panel=_WRITE, commands=_PIPELINE),
    Entry("views", "Keep the answers of queries up to date", panel=_WRITE, commands=_VIEWS),
    Entry("alter", "Change the columns, layout or options of a table", panel=_WRITE, commands=_ALTER),
    Entry("tag", "Tag a snapshot, or list the tags", "snapshots:tag", _BACK),
    Entry("diff", "Show what differs between two snapshots", "snapshots:diff", _BACK, shows_progress=True),
    Entry("bisect", "Find the commit after which a check fails", "snapshots:bisect", _BACK, shows_progress=True),
    Entry("revert", "Take back one commit, and keep those after it", "snapshots:revert", _BACK),
    Entry("restore", "Restore a table to an older snapshot", "snapshots:restore", _BACK),
    Entry("undrop", "Restore a dropped table, view or macro", "snapshots:undrop", _BACK),
    Entry("rollback", "Restore the whole lake to an older snapshot", "snapshots:rollback", _BACK),
    Entry("maintain", "Run the maintenance that is due", "maintain:maintain", _CARE),
    Entry("compact", "Flush inlined rows, merge small files, remove deleted rows", "maintain:compact", _CARE),
    Entry("expire", "Expire old snapshots", "maintain:expire", _CARE),
    Entry("cleanup", "Remove files that no snapshot needs any more", "maintain:cleanup", _CARE),
    Entry("verify", "Check a lake for damage, and repair it", "maintain:verify", _CARE),
    Entry("backup", "Back up a lake: its catalog, and the files that are new", "backup:backup", _CARE),
    Entry("backups", "List the backups in a folder", "backup:backups", _CARE),
    Entry("prune-backups", "Remove old backups, and the files that only they need", "backup:prune_backups", _CARE),
    Entry("restore-backup", "Create a lake from a backup", "backup:restore_backup", _CARE),
    Entry("migrate", "Change the format version of a lake", "backup:migrate", _CARE),
    Entry("access", "Manage the users of a lake and their tokens", panel=_SET, commands=_ACCESS),
    Entry("tenant", "Manage the catalogs (tenants) of a shared lake", panel=_SET, commands=_TENANT),
    Entry("config", "Show and change settings", panel=_SET, commands=_CONFIG),
    Entry("spark-settings", "Print the Spark settings for a lake", "config:spark_settings", _SET),
    Entry("doctor", "Check the installation, the settings and the lake", "doctor:doctor", _SET),
)
"""Every command, in the order in which help lists them."""
