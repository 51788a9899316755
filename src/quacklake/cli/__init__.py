"""The command line: ``quacklake COMMAND``, also ``python -m quacklake.cli``."""

from quacklake.cli.app import main, run

__all__ = ["main", "run"]
