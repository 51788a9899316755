"""``quacklake init``: create a lake, and a settings file that names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.settings_file import FILE, set_value
from quacklake.config import redact
from quacklake.errors import NotFoundError

_URL = "sqlite:///lake.db"


def init(
    context: Context,
    encrypted: Annotated[bool, typer.Option("--encrypted", help="Encrypt every file with a key of its own.")] = False,
    format_version: Annotated[
        str | None,
        typer.Option("--format-version", metavar="VERSION", help="Version of the format: 1.0, the default, or 1.1."),
    ] = None,
    no_config: Annotated[bool, typer.Option("--no-config", help=f"Do not write the URL into {FILE}.")] = False,
) -> None:
    """Without --lake it is in the file lake.db of this folder. What exists already is left as it is.

    Its files go to --data-path; without one to the folder data beside a SQLite file, or FILE.files beside a DuckDB
    file. A lake in PostgreSQL or MySQL needs a --data-path that every user of it can reach.

    The URL goes into quacklake.toml, so that commands in this folder need no --lake; one with a password does not.
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
        words = "made a lake at" if created else "there is a lake already at"
        context.output.result(
            f"{words} {lake.url}, files in {lake.data_path}",
            {"url": lake.url, "data_path": lake.data_path, "created": created},
        )
    if no_config or context.config.sources["url"] not in ("default", "flag") or options.config_file is not None:
        return
    if redact(url) != url:
        context.output.say(f"the URL has a password, which does not go into {FILE}: set QUACKLAKE_URL")
        return
    if not Path(FILE).exists():
        set_value(Path(FILE), "url", url)
        context.output.say(f"wrote {FILE}: commands in this folder need no --lake")
