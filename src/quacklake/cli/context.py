"""What a command is given to work with."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from quacklake.cli.output import Output
from quacklake.config import Config
from quacklake.errors import ConfigError, NotFoundError
from quacklake.lake import Lake, connect

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """The words of the command line, the settings they amount to, and where the answer goes."""

    arguments: argparse.Namespace
    config: Config
    output: Output

    def open(self, *, write: bool = False, create: bool = False) -> Lake:
        """The lake that the settings name: read-only unless ``write``, and only with ``create`` made when missing."""
        if self.config.url is None:
            raise ConfigError(
                "no catalog URL was given",
                hint="pass --url sqlite:///lake.db, set QUACKLAKE_URL, or write url = … into quacklake.toml",
            )
        try:
            return connect(
                self.arguments.url,
                self.arguments.data_path,
                config_file=self.arguments.config,
                create=None if create else False,
                read_only=not write,
            )
        except NotFoundError as error:
            error.hint = "check the URL; `quacklake append --create` with --data-path makes a lake"
            raise
        except ConfigError as error:
            if error.hint is not None and error.hint.startswith("pass data_path="):
                error.hint = "pass --data-path, a folder or s3:// URL for its files"
            raise
