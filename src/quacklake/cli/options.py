"""Options and arguments that several commands share, with the completions that a shell offers for them."""

from __future__ import annotations

import csv
import datetime as dt
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import typer

from quacklake.config import Setting, parse_duration
from quacklake.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def option(names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    """Describe an option by its names, separated by spaces, and its help text."""
    return typer.Option(*names.split(), help=help, metavar=metavar, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Describe an argument. The help does not show its default."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, **more)


Bundle = Mapping[str, tuple[object, object]]
"""Options that several commands share: name -> annotation and default."""


def parameters_of(bundle: Bundle) -> list[inspect.Parameter]:
    """Return the options of a bundle as parameters."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in bundle.items()
    ]


def also(bundle: Bundle) -> Callable[[F], F]:
    """Give a command the options of a bundle, which it takes by its ``**`` parameter."""

    def extended(function: F) -> F:
        own = inspect.signature(function, eval_str=True)
        parameters = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*parameters, *parameters_of(bundle)])  # type: ignore[attr-defined]
        return function

    return extended


_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "list": list[str]}


def setting_options(settings: Iterable[Setting]) -> Bundle:
    """Return the options of settings that have one; an option that is not given is ``None``."""
    return {
        each.name: (
            Annotated[
                _type_of(each) | None,
                option(each.option, f"{each.help}{_default_of(each)}.", each.metavar, show_default=False),
            ],
            None,
        )
        for each in settings
        if each.option
    }


def _type_of(setting: Setting) -> Any:
    return Literal.__getitem__(setting.choices) if setting.choices else _TYPES.get(setting.kind, str)


def _default_of(setting: Setting) -> str:
    is_said = setting.kind != "bool" and setting.shown_default
    return f"; by default {setting.shown_default}" if is_said else ""


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings of texts such as ``max_rows=100``. Raise ``ConfigError``.

    >>> parse_assignments(["max_rows=100", "prefix=/a=b"])
    {'max_rows': '100', 'prefix': '/a=b'}
    """
    found = {}
    for text in texts:
        name, assigned, value = text.partition("=")
        if not assigned:
            raise ConfigError(f"{text!r} sets nothing", hint="write NAME=VALUE")
        found[name.strip()] = value
    return found


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the lake, those in ``main`` also without their schema."""
    return _matching(
        ctx, incomplete, lambda lake: [name for table in lake.tables() for name in (table, table.removeprefix("main."))]
    )


def complete_version(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tags of the lake."""
    return _matching(ctx, incomplete, lambda lake: lake.history.tags().column("tag").to_pylist())


def _matching(ctx: typer.Context, incomplete: str, names: Callable[[Any], list[str]]) -> list[str]:
    """Return the names with this prefix, or none without a lake: no error may disturb the line being typed."""
    from quacklake.cli.context import Context, Options

    try:
        with Context(Options.of(ctx)).open() as lake:
            return sorted({name for name in names(lake) if name.startswith(incomplete)})
    except Exception:
        return []


TableName = Annotated[str, argument("TABLE", "The table, or schema.table.", autocompletion=complete_table)]
Where = Annotated[str | None, option("--where", "Only rows that satisfy this SQL condition.", "CONDITION")]
Columns = Annotated[str | None, option("--columns", "Only these columns, separated by commas.", "NAMES")]
Limit = Annotated[str, option("--limit -n", 'The number of rows to show, or "all".', "ROWS")]
ShownRows = Annotated[
    str | None,
    option("--limit -n", 'The number of rows in a table, or "all"; by default the setting shown_rows.', "ROWS"),
]
AllRows = Annotated[bool, option("--all", "Show all rows, like --limit all.")]
At = Annotated[
    str | None,
    option(
        "--at",
        "Read at a snapshot: a snapshot number, a tag, or a time such as '2024-01-01 12:00'.",
        "VERSION",
        autocompletion=complete_version,
    ),
]
To = Annotated[
    str,
    option(
        "--to",
        "The snapshot to return to: a snapshot number, a tag, or a time.",
        "VERSION",
        autocompletion=complete_version,
        show_default=False,
    ),
]
DryRun = Annotated[bool, option("--dry-run", "Show what would be done, without changing anything.")]
Yes = Annotated[bool, option("--yes -y", "Do not ask for confirmation.")]
SIGNATURE: Bundle = {
    "message": (Annotated[str | None, option("--message -m", "The commit message of the snapshot.", "TEXT")], None),
    "author": (Annotated[str | None, option("--author", "The author of the snapshot.", "NAME")], None),
}
FileFormat = Annotated[
    Literal["parquet", "csv", "json", "arrow", "excel"] | None,
    option("--format", "parquet, csv, json, arrow or excel; by default taken from the file name.", "FORMAT"),
]


def _common(names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return option(names, help, metavar, rich_help_panel="Options of every command", **more)


_LAKE = "The URL of the lake's catalog: sqlite:///lake.db, duckdb:///FILE, postgresql://… or mysql://…"
_DATA_PATH = "The folder or s3:// URL of the lake's files; only needed to create a lake."
_OUTPUT = "The output format."
_VERBOSE = "Log SQL statements and larger steps with their times; -vv also logs database and store requests."
COMMON: Bundle = {
    "lake": (Annotated[str | None, _common("--lake -l", _LAKE, "URL")], None),
    "catalog": (Annotated[str | None, _common("--catalog", "The catalog (tenant) of a shared lake.", "NAME")], None),
    "data_path": (Annotated[str | None, _common("--data-path", _DATA_PATH, "PATH")], None),
    "config_file": (
        Annotated[str | None, _common("--config", "The settings file, instead of quacklake.toml.", "FILE")],
        None,
    ),
    "output": (Annotated[Literal["table", "json", "csv", "arrow"] | None, _common("--output -o", _OUTPUT)], None),
    "verbose": (Annotated[int, _common("--verbose -v", _VERBOSE, count=True, show_default=False)], 0),
    "log_format": (
        Annotated[Literal["text", "json"] | None, _common("--log-format", "The log format, on standard error.")],
        None,
    ),
    "debug": (Annotated[bool, _common("--debug", "Show the traceback of an error.")], False),
}
"""The options of every command, which may come before or after it."""


def count_of(text: str) -> int | None:
    """Parse the number of rows of ``--limit``; None for all rows."""
    return None if text == "all" else whole_number(text, "--limit", 'a whole number or "all"')


def whole_number(text: str, option: str, expected: str = "a whole number") -> int:
    """Parse the number of an option."""
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(f"{text!r} is not {expected}", param_hint=f"'{option}'")
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
