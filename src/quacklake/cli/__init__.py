"""The command line: ``quacklake COMMAND``, also ``python -m quacklake.cli``."""

from quacklake.cli.app import main
from quacklake.cli.parser import build_parser

__all__ = ["build_parser", "main"]
