"""Rows of people as Arrow: frames, dictionaries, dataclasses, and files of any format."""

from quacklake.core.operations.rows import Row
from quacklake.core.operations.sources import Input, Source
from quacklake.inputs.column_types import to_column, to_schema
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.files import InputFiles, open_files
from quacklake.inputs.frames import to_source
from quacklake.inputs.paths import is_path
from quacklake.inputs.row_types import RowType

__all__ = [
    "CsvOptions",
    "Input",
    "InputFiles",
    "Row",
    "RowType",
    "Source",
    "is_path",
    "open_files",
    "to_column",
    "to_schema",
    "to_source",
]
