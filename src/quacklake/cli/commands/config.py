"""``quacklake config``: settings, their sources, and the file that holds them."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from quacklake.cli.completion import complete_setting
from quacklake.cli.context import Context
from quacklake.cli.settings_file import FILE, find_setting, set_value, unset_value

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="a setting, as `show` lists it", autocompletion=complete_setting, show_default=False
    ),
]


def show(context: Context) -> None:
    """Secrets are masked. What is not set in a stronger place comes from a weaker one: option, environment, file."""
    import pyarrow as pa

    context.output.rows(pa.Table.from_pylist([row._asdict() for row in context.config.describe()]))


def get(context: Context, name: Name) -> None:
    """Secrets are masked."""
    setting = find_setting(name)
    row = next(row for row in context.config.describe() if row.name == name)
    context.output.result(row.value, {**row._asdict(), "help": setting.help})


def set_(
    context: Context,
    name: Name,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="its value; without it, it is read from standard input")
    ] = None,
) -> None:
    """A value that cannot be right is refused. Comments and everything else in the file stay.

    Leave the value of a secret out: what stands in a command line, others can see.
    """
    setting = find_setting(name)
    if value is None:
        value = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    path = _path(context)
    set_value(path, name, value)
    shown = "***" if setting.secret else value
    context.output.result(f"{name} is set in {path}", {"name": name, "value": shown, "file": str(path)})
    source = context.config.sources[name]
    if source == "flag" or source.startswith("environment"):
        context.output.say(f"  but {source} says otherwise, and comes first")


def unset(context: Context, name: Name) -> None:
    """What holds then is the environment's value, or the default."""
    path = _path(context)
    done = unset_value(path, name)
    context.output.result(
        f"{name} is no longer set in {path}" if done else f"{name} was not set in {path}",
        {"name": name, "file": str(path), "changed": done},
    )


def _path(context: Context) -> Path:
    return Path(context.options.config_file or FILE)
