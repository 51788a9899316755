"""The context of a command: its options, settings and output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from quacklake import telemetry
from quacklake.cli.options import count_of
from quacklake.cli.output import Output
from quacklake.cli.progress import hush
from quacklake.config import Config, resolve
from quacklake.errors import ConfigError, InputError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from quacklake.core.operations.handles import LakeHandle
    from quacklake.lake.lake import Lake, LakeAt

T = TypeVar("T")

NO_LAKE = "pass --lake sqlite:///lake.db, set QUACKLAKE_URL, or run `quacklake init`"
"""The hint when no lake is named."""

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
    pond: str | None = None
    words: tuple[str, ...] = ()
    """The command line as it was typed."""

    @classmethod
    def of(cls, ctx: typer.Context) -> Options:
        """Return the options before and after the command. Those after the command take precedence."""
        found: dict[str, Any] = {}
        level: Any = ctx
        while level is not None:
            for name in cls.__slots__:
                found[name] = found.get(name) or level.params.get(name)
            level = level.parent
        return cls(**{**found, "words": tuple(ctx.find_root().obj or ())})


class Context:
    """The common options of a command, the resulting settings, and the output."""

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

    @property
    def is_log_json(self) -> bool:
        """True when standard error is a log of JSON lines."""
        return self.config.log_format == "json"

    def open(self, *, write: bool = False, create: bool = False, **settings: Any) -> Lake:
        """Open the lake of the settings: read-only unless ``write``, and created when missing only with ``create``.

        The files of a new lake go to the data path of the settings, or else to :func:`default_data_path`.
        """
        if self.config.url is None:
            raise ConfigError("no lake was given", hint=NO_LAKE)
        placed = self.config.data_path or self.config.bucket_name
        folder = default_data_path(self.config.url) if create and placed is None else None
        if folder is None:
            return self._connect(self.options.data_path, write, create, settings)
        try:
            return self._connect(None, write, False, settings)
        except NotFoundError:
            # either of two lakes with one folder would take the files there for its own
            if not self.config.catalog and any(folder.rglob("ducklake-*.parquet")):
                raise ConfigError(
                    f"the folder {folder} has files of another lake",
                    hint="pass --data-path with another folder or an s3:// URL",
                ) from None
            return self._connect(str(folder), write, create, settings)

    def open_for_sql(self, *, write: bool = False) -> Lake | LakeHandle:
        """Open the lake of the settings for statements: without the methods of a lake, which take long to load."""
        if self.config.url is None:
            raise ConfigError("no lake was given", hint=NO_LAKE)
        if self.options.lake is not None and self.options.lake.startswith(("http://", "https://")):
            return self.open(write=write)
        from quacklake.core.tenancy.opening import open_lake

        return self._open_with(open_lake, self.options.data_path, write, False, {})

    def _connect(self, data_path: str | None, write: bool, create: bool, settings: dict[str, Any]) -> Lake:
        from quacklake.lake.connect import connect

        return self._open_with(connect, data_path, write, create, settings)

    def _open_with(
        self, opening: Callable[..., T], data_path: str | None, write: bool, create: bool, settings: dict[str, Any]
    ) -> T:
        try:
            with telemetry.timed("lake.open", self.config.url):
                return opening(
                    self.options.lake,
                    data_path,
                    catalog=self.options.catalog,
                    config_file=self.options.config_file,
                    create=(True if self.config.catalog else None) if create else False,
                    read_only=not write,
                    **settings,
                )
        except NotFoundError as error:
            if self.config.catalog:
                error.hint = "check the name, or create the catalog with `quacklake tenant create`"
            else:
                error.hint = "check the URL, or create a lake with `quacklake init`"
            raise
        except ConfigError as error:
            if error.hint is not None and error.hint.startswith("pass data_path="):
                error.hint = "pass --data-path with a folder or s3:// URL for its files"
            raise

    def view(self, lake: Lake, at: str | None) -> Lake | LakeAt:
        """Return the lake, or its state at a snapshot, tag or time."""
        return lake if at is None else self._at(lake, at)

    def snapshot(self, lake: Lake, at: str | None) -> int | None:
        """Return the number of a snapshot, or None when none is given."""
        return None if at is None else self._at(lake, at).snapshot_id

    def _at(self, lake: Lake, at: str) -> LakeAt:
        return lake.at(to=version_of(at))

    def row_limit(self, limit: str | None, all_rows: bool) -> int | None:
        """Return the number of rows to show: that of ``--limit``, or the setting; None for all."""
        if all_rows:
            return None
        return self.config.shown_rows if limit is None else count_of(limit)

    def terminal_limit(self, limit: str | None, all_rows: bool) -> int | None:
        """Like ``row_limit``, but None where no limit is given and the output is not a table on a terminal."""
        return self.row_limit(limit, all_rows or (limit is None and not self.output.on_terminal))

    def print_list(self, rows: pa.Table, count: int | None, total: int | None = None) -> None:
        """Print the first ``count`` rows of a list (None for all) and say how many there are: ``total``, or all."""
        total = rows.num_rows if total is None else total
        shown = rows if count is None else rows.slice(0, count)
        self.output.rows(shown, total=total)
        self.output.mention_more(total - shown.num_rows)

    def confirm(self, question: str, *, yes: bool, must: str | None = None) -> None:
        """Ask for confirmation on a terminal. Elsewhere, raise ``InputError`` if ``must`` names what to confirm."""
        if yes:
            return
        if not sys.stdin.isatty():
            if must is not None:
                raise InputError(f"{must} must be confirmed", hint="pass --yes; --dry-run shows what would be done")
            return
        hush(for_good=True)
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InputError("not confirmed: nothing was changed")


def default_data_path(url: str) -> Path | None:
    """Return the default folder for the files of a new lake: ``data`` beside a SQLite file.

    None where the library has its own default, and where a folder of this machine is unsuitable.
    """
    from quacklake.extend.inputs import parse_url

    parsed = parse_url(url)
    if parsed.database != "sqlite" or parsed.path is None or parsed.data_path is not None:
        return None
    return Path(parsed.path).parent / "data"


def version_of(text: str) -> int | str:
    """Parse a snapshot: its number, or else its tag or a time."""
    return int(text) if text.isascii() and text.isdigit() else text
