"""Text in other encodings than UTF-8, with other line ends, and with rows that are too short."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import InputError
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.files import open_files

TEXT = "id;name\n1;Jörg – 5 €\n2;Åse\n"
ROWS = [{"id": 1, "name": "Jörg – 5 €"}, {"id": 2, "name": "Åse"}]


pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_tells_the_encoding(lake: quacklake.Lake, encoding: str) -> None:
    Path("a.csv").write_bytes(TEXT.encode(encoding))
    Path("b.csv.gz").write_bytes(gzip.compress(("\ufeff" + TEXT).encode("utf-16be")))
    Path("a.json").write_bytes('[{"id": 1, "name": "Jörg"}]'.encode(encoding))
    assert lake.create_table("t", "a.csv").to_pylist() == ROWS
    assert lake.create_table("u", "b.csv.gz").to_pylist() == ROWS
    assert lake.create_table("v", "a.json").to_pylist() == [{"id": 1, "name": "Jörg"}]


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16-be", "windows-1252", "cp850", "utf-16", "utf-8", "GB18030"])
def test_an_encoding_can_be_chosen(lake: quacklake.Lake, encoding: str) -> None:
    text = TEXT.replace("– 5 €", "5") if encoding == "cp850" else TEXT
    Path("a.csv").write_bytes(text.encode(encoding))
    files = open_files("a.csv", csv=quacklake.CsvOptions(encoding=encoding))
    assert [row["name"] for row in lake.create_table("t", files).to_pylist()] == [
        line.split(";")[1] for line in text.splitlines()[1:]
    ]
    assert files.read().read_all().num_rows == 2, "files can be read again"


def test_the_columns_of_folders_are_kept(lake: quacklake.Lake) -> None:
    for year in (2024, 2025):
        Path(f"in/year={year}").mkdir(parents=True)
        Path(f"in/year={year}/a.csv").write_bytes(f"id;name\n{year};ä\n".encode("utf-16"))
    rows = lake.create_table("t", open_files("in")).to_pylist()
    assert sorted(row["id"] for row in rows) == [2024, 2025]
    assert all(row["year"] == row["id"] for row in rows)


def test_text_of_many_blocks_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quacklake.inputs.texts._BLOCK", 7)
    Path("a.csv").write_bytes(TEXT.encode("utf-16"))
    assert open_files("a.csv").read().read_all().to_pylist() == ROWS


def test_an_unknown_encoding_is_refused() -> None:
    for name in ("utf-9", "base64", "x\0y"):
        with pytest.raises(InputError, match="there is no text encoding"):
            CsvOptions(encoding=name)


@pytest.mark.parametrize(
    ("content", "line", "hint"),
    [
        (b"id;name\n1;a\n2;J\xf6rg\n", "line 3 is not UTF-8", "--encoding windows-1252"),
        ("id;name\n1;ä\n".encode() + b"2;J\xf6rg\n", "line 3 is not UTF-8", "the text before line 3 is UTF-8"),
        ("id;name\n1;ab\n".encode("utf-16le"), "UTF-16 text", "--encoding utf-16le"),
        ("id;name\n1;ab\n".encode("utf-16be"), "UTF-16 text", "--encoding utf-16be"),
        (b"id;name\n1;\x81\x8d\n", "line 2 is not UTF-8", "neither UTF-8 nor windows-1252"),
    ],
)
def test_text_that_is_not_utf_8_names_its_line_and_the_encoding(content: bytes, line: str, hint: str) -> None:
    Path("a.csv").write_bytes(content)
    with pytest.raises(InputError, match=line) as caught:
        open_files("a.csv").read().read_all()
    assert hint in str(caught.value.hint)


def test_text_of_another_encoding_than_the_chosen_one_names_its_line() -> None:
    Path("a.csv").write_bytes("id;name\n1;a\n2;ä\n".encode())
    with pytest.raises(InputError, match="line 3 is not ascii text") as caught:
        open_files("a.csv", csv=CsvOptions(encoding="ascii")).read()
    assert "--encoding utf-8" in str(caught.value.hint)


def test_a_late_line_is_named_with_many_files() -> None:
    Path("in").mkdir()
    Path("in/a.csv").write_text("id;name\n1;a\n")
    Path("in/b.csv").write_bytes(b"id;name\n" + b"1;a\n" * 200_000 + b"2;J\xf6rg\n")
    with pytest.raises(InputError, match=r"in/b\.csv as csv: line 200002 is not UTF-8 text"):
        open_files("in").read().read_all()


def test_short_rows_are_filled_on_request(lake: quacklake.Lake) -> None:
    Path("a.csv").write_text('id,a,b\n1,"x\ny",2\n2,z\n\n3\n')
    with pytest.raises(InputError, match="line 4 has 2 fields, and line 1 has 3") as caught:
        lake.create_table("t", "a.csv")
    assert "--fill-short-rows" in str(caught.value.hint)
    rows = lake.create_table("t", open_files("a.csv", csv=CsvOptions(fill_short_rows=True))).to_pylist()
    assert rows == [{"id": 1, "a": "x\ny", "b": 2}, {"id": 2, "a": "z", "b": None}, {"id": 3, "a": None, "b": None}]


@pytest.mark.parametrize("before", [0, 1, 30_000])
def test_long_rows_stay_an_error(before: int) -> None:
    Path("a.csv").write_text("id,a\n" + "1\n" * before + "2,x,y\n")
    with pytest.raises(InputError, match=f"line {before + 2} has 3 fields, and line 1 has 2") as caught:
        open_files("a.csv", csv=CsvOptions(fill_short_rows=True)).read().read_all()
    assert "--fill-short-rows" not in str(caught.value.hint)


LINES = {
    "both": b"id,a\n1,x\r\n2,y\n",
    "the last one": b"id,a\r\n1,x\r\n2,y\n",
    "a carriage return": b"id,a\n1,x\r2,y\n",
    "carriage returns": b"id,a\r1,x\r2,y\r",
    "none at the end": b"id,a\r\n1,x\n2,y",
    "a line end above": b"sep=,\nid,a\r\n1,x\r\n2,y\r\n",
    "blank lines": b"\n\nid,a\n\r\n1,x\n2,y\n\n\r\n",
    "tabs": b"id\ta\r\n1\tx\n2\ty\n",
    "Excel's first line": b"sep=;\r\nid;a\r\n1;x\r\n2;y\r\n",
    "Excel's first line with a mark": b'\xef\xbb\xbf"sep=|"\nid|a\r\n1|x\n2|y\n',
    "another encoding": "sep=;\nid;a\r\n1;x\n2;y\n".encode("utf-16"),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_may_end_in_any_way(case: str) -> None:
    Path("a.csv").write_bytes(LINES[case])
    assert open_files("a.csv").read().read_all().to_pylist() == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}]


@pytest.mark.parametrize("title", ['"a title', '"a\ntitle"', 'a "title"', '\ufeff"a title"'])
def test_lines_that_are_skipped_may_have_quotes(title: str) -> None:
    Path("a.csv").write_text(f"{title}\nid,a\n1,x\n2,y\n")
    found = open_files("a.csv", csv=CsvOptions(skip=title.count("\n") + 1)).read().read_all()
    assert found.to_pylist() == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}]
    Path("a.csv").write_text(f"{title}\nid,a\n1,x\n2,y,z\n")
    with pytest.raises(InputError, match=f"line {title.count(chr(10)) + 4} has 3 fields"):
        open_files("a.csv", csv=CsvOptions(skip=title.count("\n") + 1)).read().read_all()


@pytest.mark.parametrize("block", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize("escape", ['"', "\\"])
def test_line_ends_in_quotes_stay(block: int, escape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quote within a text does not begin a quotation."""
    monkeypatch.setattr("quacklake.inputs.texts._BLOCK", block)
    values = ["a\r\nb", "c\nd", 'e"\r\n"f', "", "\r", 'g"', "ä;h"]
    text = "id;a;b\r\n" + "".join(
        f'{n};"{value.replace(chr(34), escape + chr(34))}";2" x{end}'
        for n, (value, end) in enumerate(zip(values, ["\n", "\r\n"] * 4, strict=False))
    )
    Path("a.csv").write_bytes(text.encode())
    found = open_files("a.csv", csv=CsvOptions(escape=escape)).read().read_all()
    assert found.column("a").to_pylist() == [value or None for value in values]
    assert found.column("b").to_pylist() == ['2" x'] * len(values)


def test_late_line_ends_of_another_kind_are_read(lake: quacklake.Lake) -> None:
    Path("in").mkdir()
    Path("in/a.csv").write_bytes(b"id,a\n" + b"1,x\n" * 100_000 + b"2,y\r\n")
    Path("in/b.csv").write_bytes(b"id,a\n3,z\n")
    table = lake.create_table("t", "in")
    assert table.to_arrow().column("id").value_counts().to_pylist() == [
        {"values": 1, "counts": 100_000},
        {"values": 2, "counts": 1},
        {"values": 3, "counts": 1},
    ]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_title_is_refused_with_the_option_that_skips_it(separator: str) -> None:
    Path("a.csv").write_text(f"Export of 2024\nid{separator}a\n1{separator}x\n")
    with pytest.raises(InputError, match="line 2 has 2 fields, and line 1 has 1") as caught:
        open_files("a.csv").read().read_all()
    assert "--skip-lines" in str(caught.value.hint)
    assert open_files("a.csv", csv=CsvOptions(skip=1)).read().read_all().to_pylist() == [{"id": 1, "a": "x"}]
    Path("a.csv").write_text("names\na; b\nc\nd; e\n")
    assert open_files("a.csv").read().read_all().num_rows == 3
    Path("a.csv").write_text("names\na, b\nc, d\n")
    with pytest.raises(InputError) as caught:
        open_files("a.csv").read().read_all()
    assert "one column" in str(caught.value.hint)
    assert open_files("a.csv", csv=CsvOptions(delimiter=";")).read().read_all().num_rows == 2


def test_a_very_long_field_is_read_or_an_error_of_ours() -> None:
    Path("a.csv").write_text(f"id,a\n1,{'x' * 300_000}\n")
    assert len(open_files("a.csv").read().read_all().column("a")[0].as_py()) == 300_000
    Path("a.csv").write_text(f"id,a\n1,{'x' * 3_000_000}\n")
    with pytest.raises(InputError, match=r"cannot read a\.csv as csv: .*Line"):
        open_files("a.csv").read().read_all()


def test_an_error_names_the_file_and_not_its_copy(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": "INTEGER", "a": "INTEGER"})
    Path("in").mkdir()
    for name, value in (("a", "1"), ("b", "x")):
        Path(f"in/{name}.csv").write_bytes(f"id;a\n1;{value}\n".encode("utf-16"))
    for place, name in (("in", "in/b.csv"), ("in/b.csv", "in/b.csv")):
        with pytest.raises(InputError, match=f"cannot read {name} as csv") as caught:
            table.append(place)
        assert "quacklake-" not in str(caught.value)
    Path("c.json").write_bytes('[{"id": 1, "a": "x"}]'.encode("utf-16"))
    with pytest.raises(InputError, match=r"c\.json") as caught:
        table.append("c.json")
    assert "quacklake-" not in str(caught.value)
