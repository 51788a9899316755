"""The command line: ``quacklake COMMAND``, also ``python -m quacklake.cli``."""

from quacklake.cli.app import main

__all__ = ["main"]
