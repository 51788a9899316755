"""Options and arguments that several commands share."""

from __future__ import annotations

import csv
import datetime as dt
from typing import Annotated, Literal

import typer

from quacklake.cli.completion import complete_table, complete_version
from quacklake.config import parse_duration

EVERY = "Options of every command"

TableName = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="table or schema.table", autocompletion=complete_table, show_default=False),
]
Where = Annotated[
    str | None, typer.Option("--where", metavar="CONDITION", help="Only rows that satisfy an SQL condition.")
]
Columns = Annotated[str | None, typer.Option("--columns", metavar="NAMES", help="Only these columns, as in id,name.")]
Limit = Annotated[str, typer.Option("--limit", "-n", metavar="ROWS", help="How many rows, or all.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="VERSION",
        help="As it was at a snapshot: its number, its tag, or a time such as '2024-01-01 12:00'.",
        autocompletion=complete_version,
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="VERSION",
        help="A snapshot: its number, its tag, or a time.",
        autocompletion=complete_version,
        show_default=False,
    ),
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="VERSION",
        help="The first snapshot: its number, its tag, or a time.",
        autocompletion=complete_version,
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, only tell what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Message = Annotated[
    str | None, typer.Option("--message", "-m", metavar="TEXT", help="The commit message of the snapshot.")
]
Author = Annotated[str | None, typer.Option("--author", metavar="NAME", help="The author of the snapshot.")]
FileFormat = Annotated[
    Literal["parquet", "csv", "json", "arrow"] | None,
    typer.Option(
        "--format", help="parquet, csv, json or arrow, when the name of the file does not say so.", metavar="FORMAT"
    ),
]

COMMON: dict[str, tuple[object, object]] = {
    "lake": (
        Annotated[
            str | None,
            typer.Option(
                "--lake",
                "-l",
                metavar="URL",
                help="Where the metadata is: sqlite:///lake.db, duckdb:///FILE, postgresql://…, mysql://…",
                rich_help_panel=EVERY,
            ),
        ],
        None,
    ),
    "catalog": (
        Annotated[
            str | None,
            typer.Option(
                "--catalog",
                metavar="NAME",
                help="A catalog (tenant) of a shared lake.",
                rich_help_panel=EVERY,
            ),
        ],
        None,
    ),
    "data_path": (
        Annotated[
            str | None,
            typer.Option(
                "--data-path",
                metavar="PATH",
                help="A folder or s3:// URL for the files of the lake; needed only to make one.",
                rich_help_panel=EVERY,
            ),
        ],
        None,
    ),
    "config_file": (
        Annotated[
            str | None,
            typer.Option(
                "--config", metavar="FILE", help="A settings file other than quacklake.toml.", rich_help_panel=EVERY
            ),
        ],
        None,
    ),
    "output": (
        Annotated[
            Literal["table", "json", "csv", "arrow"] | None,
            typer.Option("--output", "-o", help="The form of the answer.", rich_help_panel=EVERY),
        ],
        None,
    ),
    "verbose": (
        Annotated[
            int,
            typer.Option(
                "--verbose",
                "-v",
                count=True,
                help="Log statements and steps with their times; -vv also what databases and stores are asked.",
                show_default=False,
                rich_help_panel=EVERY,
            ),
        ],
        0,
    ),
    "log_format": (
        Annotated[
            Literal["text", "json"] | None,
            typer.Option("--log-format", help="The form of the log on standard error.", rich_help_panel=EVERY),
        ],
        None,
    ),
    "debug": (
        Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=EVERY)],
        False,
    ),
}
"""The options of every command, which may come before or after it: name -> annotation and default."""


def count_of(text: str, option: str = "--limit") -> int | None:
    """Parse a number of rows; None for all rows."""
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(f"{text!r} is neither a number nor all", param_hint=f"'{option}'")
    return int(text)


def duration_of(name: str, text: str) -> dt.timedelta:
    """Parse the duration of an option. ``name`` is the name of its parameter."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=f"'--{name.replace('_', '-')}'") from None


def names_of(text: str | None) -> list[str] | None:
    """Split a list of names at commas. A name that contains a comma is in double quotes."""
    return None if text is None else [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
