"""The command line ``pond``: its commands, each in a module of this package that is loaded when it is used."""

from __future__ import annotations

from typing import NoReturn

from quacklake.cli.app import main as main_of
from quacklake.cli.app import run as run_program
from quacklake.cli.commands import Entry
from quacklake.cli.pond.context import POND_COMMON, PondContext
from quacklake.cli.programs import Program

__all__ = ["COMMANDS", "POND", "main", "run"]

_START, _TREE, _ROWS, _MAKE, _SHOW, _PAST, _CARE = (
    "Start",
    "Files",
    "Rows",
    "Compute",
    "Publish",
    "History",
    "Maintain",
)

_CONFIG = (
    Entry("show", "Show the settings of the pond", "care:config_show"),
    Entry("set", "Change a setting of the pond", "care:config_set"),
)

COMMANDS: tuple[Entry, ...] = (
    Entry("init", "Create a pond", "start:init", _START),
    Entry("apply", "Create what YAML files describe, or change it", "make:apply", _START),
    Entry("status", "Show where the pond is, what it holds, and whether it needs recovery", "history:status", _START),
    Entry("list", "List files, directories, tables and series", "tree:list_", _TREE),
    Entry("copy", "Copy files into the pond, or out of it", "copying:copy", _TREE),
    Entry("mkdir", "Make a directory", "tree:mkdir", _TREE),
    Entry("mv", "Move or rename a node", "tree:mv", _TREE),
    Entry("rm", "Remove a node; older states keep it", "tree:rm", _TREE),
    Entry("describe", "Show what a node is and holds", "tree:describe", _TREE),
    Entry("cat", "Print a file, or the rows of a table or series", "rows:cat", _ROWS),
    Entry("plot", "Draw a series in the terminal, or as SVG, PNG or HTML", "looks:plot", _ROWS),
    Entry("sql", "Run a query over everything in the pond", "rows:sql", _ROWS),
    Entry("detect-overlaps", "List versions of series that cover the same time", "rows:detect_overlaps", _ROWS),
    Entry("widen", "Give a column a type that holds more", "rows:widen", _ROWS),
    Entry("set-temporal-bounds", "Show only a range of time of a series", "rows:set_temporal_bounds", _ROWS),
    Entry("mknod", "Make a node that a factory computes", "make:mknod", _MAKE),
    Entry("list-factories", "List the factories", "make:list_factories", _MAKE),
    Entry("run", "Run a collector, or keep all of them going", "running:run", _MAKE),
    Entry("export", "Write series as Parquet by year and month, or a site of charts", "looks:export", _SHOW),
    Entry("serve", "Serve the folder of a site on this machine", "looks:serve", _SHOW, shows_progress=True),
    Entry("show", "Show what each transaction changed", "history:show", _PAST),
    Entry("log", "List the commands that changed the pond", "history:log", _PAST),
    Entry("recover", "Remove what killed commands left unfinished", "history:recover", _PAST),
    Entry("verify", "Check the tree, the tables and every large file", "care:verify", _CARE),
    Entry("maintain", "Merge small files, expire old states and remove what nothing needs", "care:maintain", _CARE),
    Entry("backup", "Back up the pond to a folder or bucket", "backup:backup", _CARE),
    Entry("backups", "List the backups in a folder or bucket", "backup:backups", _CARE),
    Entry("prune-backups", "Remove old backups, and the files that only they need", "backup:prune_backups", _CARE),
    Entry("restore", "Create a pond from a backup", "backup:restore", _CARE),
    Entry("push", "Bring the pond to a remote", "backup:push", _CARE),
    Entry("pull", "Bring the pond to the state of a remote", "backup:pull", _CARE),
    Entry("config", "Show and change the settings of the pond", panel=_CARE, commands=_CONFIG),
)
"""Every command, in the order in which help lists them."""

POND = Program(
    "pond",
    "Time series, tables and files as a tree, in a lake.",
    "The pond is the folder, URL or YAML file --pond, or else the variable POND.",
    COMMANDS,
    "quacklake.cli.pond",
    POND_COMMON,
    PondContext,
    "quacklake.pond_commands",
)


def run() -> NoReturn:
    """Run the program ``pond``."""
    run_program(POND)


def main(argv: list[str] | None = None) -> int:
    """Run one command of ``pond``, and return the exit code."""
    return main_of(argv, POND)
