from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quacklake.cli.commands.append import opened
from quacklake.errors import InputError

ROWS = [{"id": 1, "code": "x7"}, {"id": 2, "code": "010"}]


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def _workbook() -> bytes:
    made, sink = openpyxl.Workbook(), io.BytesIO()
    for row in (tuple(ROWS[0]), *(tuple(row.values()) for row in ROWS)):
        made.active.append(row)
    made.save(sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"id,code\n1,x7\n2,010\n", b'{"id": 1, "code": "x7"}\n{"id": 2, "code": "010"}\n', _parquet(), _workbook()],
    ids=["csv", "json", "parquet", "excel"],
)
def test_standard_input_is_read_by_how_it_begins(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with opened(["-"]) as source:
        assert source.name == "standard input"
        assert source.read().read_all().to_pylist() == ROWS


def test_standard_input_stands_alone() -> None:
    with pytest.raises(InputError, match="together with files"), opened(["-", "a.csv"]):
        pass
