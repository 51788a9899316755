"""The interactive SQL shell."""

from quacklake.cli.shell.loop import run_shell

__all__ = ["run_shell"]
