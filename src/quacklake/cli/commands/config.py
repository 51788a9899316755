"""``quacklake init``, ``config`` and ``spark-settings``: a new lake, and the settings for lakes."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.context import Context
from quacklake.cli.options import argument, option
from quacklake.config import SETTINGS, Setting, redact, resolve
from quacklake.errors import ConfigError, NotFoundError, nearest

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

FILE = "quacklake.toml"
_URL = "sqlite:///lake.db"
_BARE = ("int", "float", "bool")


def init(
    context: Context,
    encrypted: Annotated[bool, option("--encrypted", "Encrypt every file with its own key.")] = False,
    format_version: Annotated[
        str | None, option("--format-version", "The DuckLake format version, 1.0 or 1.1; by default 1.0.", "VERSION")
    ] = None,
    no_config: Annotated[bool, option("--no-config", f"Do not write the URL to {FILE}.")] = False,
) -> None:
    """Without --lake, the catalog is the file lake.db in this folder. An existing lake stays as it is.

    The files of the lake go to --data-path; by default to the folder data next to a SQLite file, or FILE.files next to
    a DuckDB file. A lake on PostgreSQL or MySQL needs a --data-path that all its users can reach.

    The URL is written to quacklake.toml, so that commands in this folder need no --lake, unless it has a password.
    """
    options = context.options
    url = context.config.url or _URL
    opener = Context(replace(options, lake=url))
    try:
        lake, created = opener.open(), False
    except NotFoundError:
        given = {"encrypted": encrypted or None, "format_version": format_version}
        chosen = {name: value for name, value in given.items() if value is not None}
        lake, created = opener.open(write=True, create=True, **chosen), True
    with lake:
        words = "created a lake at" if created else "found an existing lake at"
        context.output.result(
            f"{words} {lake.url}, files in {lake.data_path}",
            {"url": lake.url, "data_path": lake.data_path, "created": created},
        )
    if no_config or context.config.sources["url"] not in ("default", "flag") or options.config_file is not None:
        return
    if redact(url) != url:
        context.output.say(f"the URL has a password and was not written to {FILE}: set QUACKLAKE_URL instead")
        return
    if not Path(FILE).exists():
        set_value(Path(FILE), "url", url)
        context.output.say(f"wrote {FILE}: commands in this folder need no --lake")


def spark_settings(
    context: Context,
    version: Annotated[
        str | None, option("--spark", "The version of Spark; by default the installed one.", "VERSION")
    ] = None,
) -> None:
    """Append the lines to spark-defaults.conf. They have no keys or passwords. --output json prints an object."""
    import quacklake

    with context.open() as lake:
        found = quacklake.spark_settings(lake, version)
    context.output.result("\n".join(f"{key} {value}" for key, value in found.items()), found)


def complete_setting(incomplete: str) -> list[str]:
    """Return the names of the settings."""
    return [setting.name for setting in SETTINGS if setting.name.startswith(incomplete)]


Name = Annotated[
    str, argument("NAME", "The name of a setting; `show` lists all of them.", autocompletion=complete_setting)
]


def show(context: Context) -> None:
    """Secrets are masked. An option takes precedence over the environment, and the environment over the file."""
    import pyarrow as pa

    context.output.rows(pa.Table.from_pylist([row._asdict() for row in context.config.describe()]))


def get(context: Context, name: Name) -> None:
    """Secrets are masked."""
    setting = _find_setting(name)
    row = next(row for row in context.config.describe() if row.name == name)
    context.output.result(row.value, {**row._asdict(), "help": setting.help})


def set_(
    context: Context,
    name: Name,
    value: Annotated[str | None, argument("VALUE", "The value; without it, it is read from standard input.")] = None,
) -> None:
    """The value is checked before it is written. Comments and everything else in the file stay.

    Leave out the value of a secret, because other users can see the arguments of a command.
    """
    setting = _find_setting(name)
    if value is None:
        value = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    path = _path(context)
    set_value(path, name, value)
    shown = "***" if setting.secret else value
    context.output.result(f"{name} is set in {path}", {"name": name, "value": shown, "file": str(path)})
    source = context.config.sources[name]
    if source == "flag" or source.startswith("environment"):
        context.output.say(f"  note: {source} has another value, which takes precedence")


def unset(context: Context, name: Name) -> None:
    """The setting then has its value from the environment, or its default."""
    path = _path(context)
    done = unset_value(path, name)
    context.output.result(
        f"{name} is no longer set in {path}" if done else f"{name} was not set in {path}",
        {"name": name, "file": str(path), "changed": done},
    )


def _path(context: Context) -> Path:
    return Path(context.options.config_file or FILE)


def _find_setting(name: str) -> Setting:
    known = {setting.name: setting for setting in SETTINGS}
    if name not in known:
        raise NotFoundError(f'there is no setting "{name}"', hint=nearest(name, known))
    return known[name]


def set_value(path: Path, name: str, value: str) -> None:
    """Write a setting into a file, which is created when it is missing. Raise ``ConfigError`` for a bad value."""
    setting = _find_setting(name)
    config = resolve({name: value}, env={}, config_file=path if path.exists() else None)
    document = _read(path)
    table, key = _place(document, name) or (document, name)
    table[key] = getattr(config, name) if setting.kind in _BARE else value
    if setting.secret:
        path.touch(mode=0o600)
        path.chmod(0o600)
    path.write_text(document.as_string(), encoding="utf-8")


def unset_value(path: Path, name: str) -> bool:
    """Remove a setting from a file. Return False when it was not in it."""
    _find_setting(name)
    document = _read(path)
    place = _place(document, name)
    if place is None:
        return False
    table, key = place
    del table[key]
    path.write_text(document.as_string(), encoding="utf-8")
    return True


def _read(path: Path) -> TOMLDocument:
    import tomlkit  # imported here, since most commands write no settings

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _place(table: dict[str, Any], name: str) -> tuple[dict[str, Any], str] | None:
    """Return the table that holds a setting, and its key there: ``endpoint`` of ``[s3]`` is ``s3_endpoint``."""
    for key, value in table.items():
        if key == name:
            return table, key
        if isinstance(value, dict) and name.startswith(f"{key}_"):
            place = _place(value, name.removeprefix(f"{key}_"))
            if place is not None:
                return place
    return None
