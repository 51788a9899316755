"""Input of people: rows and files of any kind, addresses of lakes, and times.

``quacklake.open_files`` opens Parquet, CSV, JSON, Arrow and Excel files, with ``quacklake.CsvOptions`` where they need
them; the result is ``InputFiles``, streamed in bounded memory.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from quacklake.core.catalog import parse_url
from quacklake.core.operations.sources import Input, Source
from quacklake.core.operations.times import before
from quacklake.extend.schemas import TableSchema
from quacklake.inputs.files import InputFiles
from quacklake.inputs.frames import to_source
from quacklake.inputs.paths import is_path

__all__ = [
    "Input",
    "InputFiles",
    "Source",
    "before",
    "is_path",
    "open_rows",
    "parse_url",
    "to_source",
]


def open_rows(rows: Any, wanted: TableSchema | None = None) -> pa.RecordBatchReader:
    """Return rows of any kind that ``Table.append`` takes as a stream: frames, files, dictionaries or dataclasses.

    Text of files has the types of ``wanted``. Raise ``SchemaMismatchError`` for anything else, and ``InputError`` for
    files that cannot be read, now or later.

    >>> open_rows([{"id": 1, "name": "Ann"}]).read_all().to_pylist()
    [{'id': 1, 'name': 'Ann'}]
    """
    opened = to_source(rows).opened(wanted)
    if opened.stream is not None:
        return opened.stream
    assert opened.table is not None
    return opened.table.to_reader()
