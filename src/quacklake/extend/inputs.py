"""Rows of people as Arrow: frames, dictionaries, dataclasses, and files of any format."""

from quacklake.core.operations.sources import Input, Source
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.files import InputFiles, open_files
from quacklake.inputs.frames import to_source
from quacklake.inputs.paths import is_path

__all__ = ["CsvOptions", "Input", "InputFiles", "Source", "is_path", "open_files", "to_source"]
