"""Rows shown to people: in a terminal, in a notebook, and as Python values."""

from quacklake.core.operations.cells import html_table
from quacklake.core.operations.display import print_rows, print_table
from quacklake.core.operations.python_values import python_values

__all__ = ["html_table", "print_rows", "print_table", "python_values"]
