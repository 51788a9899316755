"""What a command is given to work with."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quacklake.cli.output import Output
from quacklake.config import Config, resolve
from quacklake.errors import ConfigError, InputError, NotFoundError

if TYPE_CHECKING:
    import typer

    from quacklake.lake import Lake, LakeAt

__all__ = ["NO_LAKE", "Context", "Options", "version_of"]

NO_LAKE = "pass --lake sqlite:///lake.db, set QUACKLAKE_URL, or run `quacklake init`"
"""What to do without one."""

_LEVELS = (None, "info", "debug")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of every command."""

    lake: str | None = None
    data_path: str | None = None
    config_file: str | None = None
    output: str | None = None
    verbose: int = 0
    log_format: str | None = None
    debug: bool = False
    catalog: str | None = None

    @classmethod
    def of(cls, ctx: typer.Context) -> Options:
        """What stands before and behind the command; the nearer one counts."""
        found: dict[str, Any] = {}
        level: Any = ctx
        while level is not None:
            for name in cls.__slots__:
                found[name] = found.get(name) or level.params.get(name)
            level = level.parent
        return cls(**found)


class Context:
    """The options of every command, the settings they amount to, and where the answer goes."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.output = Output(options.output or "table")

    @cached_property
    def config(self) -> Config:
        """The settings."""
        options = self.options
        flags = {
            "url": options.lake,
            "catalog": options.catalog,
            "data_path": options.data_path,
            "log_format": options.log_format,
            "log_level": _LEVELS[min(options.verbose, 2)],
        }
        return resolve(flags, config_file=options.config_file)

    def open(self, *, write: bool = False, create: bool = False, **settings: Any) -> Lake:
        """The lake that the settings name: read-only unless ``write``, and only with ``create`` made when missing."""
        from quacklake.lake.connect import connect

        if self.config.url is None:
            raise ConfigError("no lake was given", hint=NO_LAKE)
        try:
            return connect(
                self.options.lake,
                self.options.data_path,
                catalog=self.options.catalog,
                config_file=self.options.config_file,
                create=(True if self.config.catalog else None) if create else False,
                read_only=not write,
                **settings,
            )
        except NotFoundError as error:
            if self.config.catalog:
                error.hint = "check the name, or make the catalog with `quacklake tenant create`"
            else:
                error.hint = "check the URL, or make a lake there with `quacklake init`"
            raise
        except ConfigError as error:
            if error.hint is not None and error.hint.startswith("pass data_path="):
                error.hint = "pass --data-path, a folder or s3:// URL for its files"
            raise

    def view(self, lake: Lake, at: str | None) -> Lake | LakeAt:
        """The lake, or what it was at a snapshot, tag or time."""
        return lake if at is None else self._at(lake, at)

    def snapshot(self, lake: Lake, at: str | None) -> int | None:
        """The number of a snapshot, where one is said."""
        return None if at is None else self._at(lake, at).snapshot_id

    def _at(self, lake: Lake, at: str) -> LakeAt:
        from quacklake.format.snapshot_tags import is_tag

        version = version_of(at)
        if isinstance(version, int) or is_tag(version):
            return lake.at(version=version)
        return lake.at(timestamp=version)

    def confirm(self, question: str, *, yes: bool, must: str | None = None) -> None:
        """Ask a person on a terminal. Where nobody can be asked, ``must`` names what then has to be confirmed."""
        if yes:
            return
        if not sys.stdin.isatty():
            if must is not None:
                raise InputError(f"{must} has to be confirmed", hint="pass --yes, or look first with --dry-run")
            return
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InputError("nothing was changed")


def version_of(text: str) -> int | str:
    """A snapshot as it is typed: its number, or else its tag or a time."""
    return int(text) if text.isascii() and text.isdigit() else text
