"""The list of commands. Each has its own module, or shares one, which is loaded when the command is used.

The first argument of a command's function is the :class:`~quacklake.cli.context.Context`; the others are its arguments
and options. Such a module loads nothing heavy: each function imports what it needs.
"""

from quacklake.cli.entry import Entry

__all__ = ["COMMANDS"]

_BEGIN, _READ, _WRITE, _UNDO, _CARE, _SET = (
    "Begin",
    "Read",
    "Write",
    "Go back",
    "Keep in shape",
    "Look after the installation",
)

_ALTER = (
    Entry("add-column", "Add a column, or a field of a struct", "alter:add_column"),
    Entry("drop-column", "Drop a column; older snapshots keep it", "alter:drop_column"),
    Entry("rename-column", "Give a column another name", "alter:rename_column"),
    Entry("widen-column", "Give a column a wider type", "alter:widen_column"),
    Entry("rename", "Give the table another name", "alter:rename"),
    Entry("partition", "Partition what is written from now on", "alter:partition"),
    Entry("sort", "Sort the rows of every file written from now on", "alter:sort"),
    Entry("comment", "Say what the table or a column is", "alter:comment"),
    Entry("option", "Set an option of the table, or of the whole lake", "alter:option"),
)

_CONFIG = (
    Entry("show", "Show every setting, its value and where that comes from", "config:show"),
    Entry("get", "Show one setting", "config:get"),
    Entry("set", "Write a setting into quacklake.toml", "config:set_"),
    Entry("unset", "Take a setting out of quacklake.toml", "config:unset"),
)

_TENANT = (
    Entry("create", "Make catalogs, and the shared lake when there is none", "tenant:create"),
    Entry("list", "List the catalogs by their names", "tenant:list_"),
    Entry("show", "Show a catalog: its id, its folder and since when it is there", "tenant:show"),
    Entry("rename", "Give a catalog another name; its files stay where they are", "tenant:rename"),
    Entry("drop", "Take a catalog away; purge removes what it holds", "tenant:drop"),
    Entry("purge", "Remove the rows and files of dropped catalogs for good", "tenant:purge"),
    Entry("export", "Make a plain lake of a catalog", "tenant:export"),
    Entry("release", "Keep files for an exported lake no longer", "tenant:release"),
    Entry("adopt", "Make a catalog of a plain lake; its files stay where they are", "tenant:adopt"),
    Entry("convert", "Make a shared lake of a plain one, in place", "tenant:convert"),
    Entry("fork", "Make a copy of a catalog that shares its files", "tenant:fork"),
    Entry("stats", "Show the snapshots, tables, files, rows and bytes of catalogs", "tenant:stats"),
    Entry("limit", "Say what a catalog may take, or each of them", "tenant_care:limit"),
    Entry("limits", "Show what a catalog may take", "tenant_care:limits"),
    Entry("maintain", "Give the catalogs that want it care, each its turn", "tenant_care:maintain"),
    Entry("grant", "Let a role of PostgreSQL use a catalog, and no other", "tenant_access:grant"),
    Entry("revoke", "Take back what grant gave", "tenant_access:revoke"),
    Entry("expose", "Let stock DuckDB read or write a catalog of PostgreSQL", "tenant_access:expose"),
    Entry("unexpose", "Take back what expose made", "tenant_access:unexpose"),
)

COMMANDS: tuple[Entry, ...] = (
    Entry("init", "Make a lake", "init:init", _BEGIN),
    Entry("demo", "Show what a lake does, in a temporary directory", "demo:demo", _BEGIN),
    Entry("sql", "Run SQL, or open a shell for it", "sql:sql", _READ),
    Entry("info", "Show where a lake is, at which snapshot, and how big", "info:info", _READ),
    Entry("tables", "List the tables with their rows, files and bytes", "tables:tables", _READ),
    Entry("describe", "Show the columns of a table, and what is known about it", "describe:describe", _READ),
    Entry("show", "Show rows of a table, and how many there are", "show:show", _READ),
    Entry("head", "Show the first rows of a table", "show:head", _READ),
    Entry("scan", "Write all rows of a table", "show:scan", _READ),
    Entry("snapshots", "List the snapshots of the lake, the newest first", "snapshots:snapshots", _READ),
    Entry("history", "List the snapshots that changed a table, the newest first", "snapshots:history", _READ),
    Entry("changes", "Show what a range of snapshots inserted, updated and deleted", "changes:changes", _READ),
    Entry("files", "List the data files of a table, with what is deleted from each", "files:files", _READ),
    Entry("export", "Write a table to a Parquet, CSV, JSON or Arrow file", "export:export", _READ),
    Entry("append", "Append the rows of Parquet, CSV or JSON files to a table", "append:append", _WRITE),
    Entry("merge", "Update rows by their keys, and insert those that are new", "append:merge", _WRITE),
    Entry(
        "add-files", "Make existing Parquet files part of a table, without copying them", "add_files:add_files", _WRITE
    ),
    Entry("alter", "Change the columns, the layout and the options of a table", panel=_WRITE, commands=_ALTER),
    Entry("tag", "Name a snapshot, or list the names", "tag:tag", _UNDO),
    Entry("restore", "Take a table back to an older state", "undo:restore", _UNDO),
    Entry("undrop", "Bring back a table, view or macro that was dropped", "undo:undrop", _UNDO),
    Entry("rollback", "Take the whole lake back to an older state", "undo:rollback", _UNDO),
    Entry("maintain", "Flush, merge, rewrite, expire and clean up what is due", "maintain:maintain", _CARE),
    Entry("compact", "Flush inlined rows, merge small files, drop deleted rows", "compact:compact", _CARE),
    Entry("expire", "Remove old snapshots; newer ones stay as they are", "expire:expire", _CARE),
    Entry("cleanup", "Remove files that no snapshot needs any more", "expire:cleanup", _CARE),
    Entry("verify", "Check that the lake is whole: catalog, files, with --deep all rows", "verify:verify", _CARE),
    Entry(
        "backup", "Back the lake up to another place: its catalog, and the files that are new", "backup:backup", _CARE
    ),
    Entry("backups", "List the backups in a place", "backup:backups", _CARE),
    Entry("prune-backups", "Remove old backups, and the files that only they have", "backup:prune_backups", _CARE),
    Entry("restore-backup", "Make a lake of a backup", "backup:restore_backup", _CARE),
    Entry("migrate", "Bring a lake of an older format version to the present one", "migrate:migrate", _CARE),
    Entry("tenant", "Look after the catalogs (tenants) of a shared lake", panel=_SET, commands=_TENANT),
    Entry("config", "Show settings and where they come from, and set them", panel=_SET, commands=_CONFIG),
    Entry("spark-settings", "Show the lines for spark-defaults.conf that a lake needs", "spark:spark_settings", _SET),
    Entry("doctor", "Check the installation, the settings and the lake, and say what to do", "doctor:doctor", _SET),
)
"""Every command, in the order in which help lists them."""
