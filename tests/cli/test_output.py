from __future__ import annotations

import csv
import datetime as dt
import io
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from quacklake.cli.output import Output

ODD = {
    "whole": 2**60,
    "real": float("inf"),
    "exact": Decimal("1.10"),
    "text": 'a "quoted", text\nwith [bold]brackets[/] and \x1b[31mcolour',
    "raw": b"\x00\xff",
    "day": dt.date(2024, 2, 29),
    "when": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "list": [1, None],
    "struct": {"a": 1.5, "b": dt.date(2024, 1, 1)},
    "flag": True,
    "nothing": None,
}


def _odd() -> pa.Table:
    return pa.Table.from_pylist([ODD])


def test_json_has_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").rows(pa.table({"a": [1, 2, 3]}))
    out = capsys.readouterr().out
    assert out == '[\n{"a": 1},\n{"a": 2},\n{"a": 3}\n]\n'


def test_json_of_no_rows_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").rows(pa.table({"a": pa.array([], pa.int64())}))
    assert json.loads(capsys.readouterr().out) == []


def test_json_says_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").rows(_odd())
    (row,) = json.loads(capsys.readouterr().out)
    assert row == ODD | {
        "real": "Infinity",
        "exact": "1.10",
        "raw": "00ff",
        "day": "2024-02-29",
        "when": "2024-02-29T12:00:00+00:00",
        "struct": {"a": 1.5, "b": "2024-01-01"},
    }


def test_csv_says_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    Output("csv").rows(_odd())
    header, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == list(ODD)
    found = dict(zip(header, row, strict=True))
    assert found["text"] == ODD["text"]
    assert found["struct"] == '{"a": 1.5, "b": "2024-01-01"}'
    assert (found["flag"], found["nothing"], found["whole"]) == ("true", "", str(2**60))


def test_a_table_shows_brackets_and_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").rows(_odd().select(["text"]))
    out = capsys.readouterr().out
    assert "[bold]brackets[/]" in out
    assert "\x1b" not in out
    assert out.splitlines()[-1] == "1 row"


def test_a_time_beyond_python_s_calendar_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    far = pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us"))
    for format in ("json", "csv", "table"):
        Output(format).rows(pa.table({"when": far}))
        assert "1970-01-01" in capsys.readouterr().out


def test_values_of_other_types_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    name = uuid.uuid4()
    Output("json").facts({"id": name, "took": dt.timedelta(seconds=90)})
    assert json.loads(capsys.readouterr().out) == {"id": str(name), "took": "0:01:30"}


def test_long_values_are_cut_only_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"path": ["x" * 200]})
    Output("table").rows(rows)
    assert "x" * 200 in capsys.readouterr().out
    Output("table").rows(rows, shorten=True)
    assert "x" * 59 + "…" in capsys.readouterr().out


def test_a_stream_is_written_like_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"a": range(10)})
    for format in ("json", "csv", "table"):
        Output(format).rows(rows)
        whole = capsys.readouterr().out
        Output(format).rows(rows.to_reader(max_chunksize=3))
        assert capsys.readouterr().out == whole


def test_facts_are_aligned_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Output("table").facts({"rows": 1234567, "data_bytes": 1234567, "name": None})
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["rows        1,234,567", "data_bytes  1.2 MB", "name"]


def test_facts_as_csv_have_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    Output("csv").facts({"rows": 1234567, "name": None})
    assert capsys.readouterr().out == "name,value\nrows,1234567\nname,\n"
