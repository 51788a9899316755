"""``quacklake init``: a new lake, and a settings file that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quacklake.cli.context import Context, Options
from quacklake.cli.settings_file import FILE, set_value
from quacklake.config import redact
from quacklake.errors import NotFoundError

__all__ = ["init"]

_URL, _DATA = "sqlite:///lake.db", "data/"


def init(
    context: Context,
    encrypted: Annotated[bool, typer.Option("--encrypted", help="Encrypt every file with a key of its own.")] = False,
    format_version: Annotated[
        str | None,
        typer.Option("--format-version", metavar="VERSION", help="Version of the format: 1.0, the default, or 1.1."),
    ] = None,
    no_config: Annotated[bool, typer.Option("--no-config", help=f"Do not write the URL into {FILE}.")] = False,
) -> None:
    """Without --lake it is in the files lake.db and data/ of this folder. What exists already is left as it is.

    The URL goes into quacklake.toml, so that commands in this folder need no --lake; one with a password does not.
    """
    options = context.options
    url = context.config.url or _URL
    data_path = context.config.data_path or (_DATA if context.config.url is None else None)
    opener = Context(
        Options(url, data_path, options.config_file, options.output, debug=options.debug, catalog=options.catalog)
    )
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
