"""The grammar of the command line."""

from __future__ import annotations

import argparse
from typing import NoReturn

import quacklake
from quacklake.cli.commands import COMMANDS
from quacklake.cli.output import FORMATS
from quacklake.config import redact

__all__ = ["build_parser"]

_DEFAULTS = {"url": None, "data_path": None, "config": None, "output": "table", "verbose": 0, "log_format": None}
_EPILOG = "Settings also come from the environment and from quacklake.toml; `quacklake settings` shows them all."


class _Parser(argparse.ArgumentParser):
    """Full option names only, and no password in a complaint."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        super().error(redact(message))


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command. Its result has ``command``, the :class:`~quacklake.cli.commands.Command` to run."""
    parser = _Parser(prog="quacklake", description="Look into a lake, and add to it.", epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"quacklake {quacklake.__version__}")
    _add_global(parser)
    parser.set_defaults(**_DEFAULTS)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.help, description=command.help)
        command.configure(own)
        _add_global(own)
        own.set_defaults(command=command)
    return parser


def _add_global(parser: argparse.ArgumentParser) -> None:
    """Options that may stand before or after the command; where they are absent they set nothing."""
    group = parser.add_argument_group("options of every command")

    def add(*names: str, **options: object) -> None:
        group.add_argument(*names, **{"default": argparse.SUPPRESS, **options})  # type: ignore[arg-type]

    add("--url", metavar="URL", help="where the metadata is, such as sqlite:///lake.db")
    add("--data-path", metavar="PATH", help="where the files of the lake are; needed only to make one")
    add("--config", metavar="FILE", help="a settings file other than quacklake.toml")
    add("--output", choices=FORMATS, help="form of the answer (default: table)")
    add("--verbose", "-v", action="count", help="log what happens, and show where an error came from; twice for more")
    add("--log-format", choices=("text", "json"), help="form of the log on standard error")
