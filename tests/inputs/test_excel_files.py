"""Workbooks as rows: files as Excel, LibreOffice and Google Sheets write them, and files that do harm."""

from __future__ import annotations

import datetime as dt
import io
import logging
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import escape

import openpyxl
import pyarrow as pa
import pytest
import xlsxwriter

import quacklake
from quacklake.errors import InputError, LimitError, MissingExtraError, SchemaMismatchError, StatementTimeoutError
from quacklake.inputs import excel_files
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.files import open_files
from tests.seeds import chance, some

Cell = Any
DAY, TIME = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 15)


pytestmark = pytest.mark.usefixtures("folder")


def workbook(path: str | Path, *rows: Sequence[Cell], **sheets: Sequence[Sequence[Cell]]) -> Path:
    """Write sheets by their names, with openpyxl; rows without a name are a sheet called Data."""
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, lines in ({"Data": rows} if rows else {} | sheets).items():
        sheet = made.create_sheet(name)
        for line in lines:
            sheet.append(list(line))
    made.save(path)
    return Path(path)


def read(path: str | Path, **options: Any) -> pa.Table:
    return open_files(path, csv=CsvOptions(**options)).read().read_all()


def types(table: pa.Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


def failure(path: str | Path, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    return caught.value


# -- files of other programs -------------------------------------------------------------------------------------------

NS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
STYLES = (
    f'<styleSheet {NS}><numFmts count="1"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/></numFmts>'
    '<fonts count="1"><font/></fonts><fills count="1"><fill/></fills><borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/>'
    '<xf numFmtId="164" applyNumberFormat="1"/></cellXfs></styleSheet>'
)


def xlsx(path: str, sheet: str, *, shared: Sequence[str] = (), properties: str = "") -> Path:
    """Write a workbook from the XML of the rows of its sheet, as a program of its own would."""
    types_, relations = (
        "http://schemas.openxmlformats.org/package/2006/content-types",
        "http://schemas.openxmlformats.org/package/2006/relationships",
    )
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{types_}"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{main}.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="{main}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {NS} xmlns:r="{office}">{properties}<sheets><sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="r2" Type="{office}/styles" Target="styles.xml"/><Relationship Id="r3" Type="{office}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        "xl/styles.xml": STYLES,
        "xl/sharedStrings.xml": f"<sst {NS}>{''.join(f'<si><t>{escape(text)}</t></si>' for text in shared)}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {NS}><sheetData>{sheet}</sheetData></worksheet>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return Path(path)


def ods(path: str, *rows: str) -> Path:
    """Write a spreadsheet from the XML of the cells of its rows, as LibreOffice does, with empty cells to the end."""
    names = "".join(
        f' xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{short}:1.0"' for short in ("office", "table", "text")
    )
    cells = "".join(
        f'<table:table-row>{row}<table:table-cell table:number-columns-repeated="1000"/></table:table-row>'
        for row in rows
    )
    rest = '<table:table-row table:number-rows-repeated="1048000"><table:table-cell table:number-columns-repeated="1024"/></table:table-row>'
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr(
            "META-INF/manifest.xml",
            f'<m:manifest xmlns:m="{manifest}"><m:file-entry m:full-path="/" m:media-type="{kind}"/></m:manifest>',
        )
        archive.writestr(
            "content.xml",
            f'<office:document-content{names}><office:body><office:spreadsheet><table:table table:name="Tabelle1">{cells}{rest}</table:table></office:spreadsheet></office:body></office:document-content>',
        )
    return Path(path)


def ods_cell(value: Cell) -> str:
    match value:
        case None:
            return "<table:table-cell/>"
        case bool():
            return f'<table:table-cell office:value-type="boolean" office:boolean-value="{str(value).lower()}"/>'
        case int() | float():
            return f'<table:table-cell office:value-type="float" office:value="{value}"><text:p>{value:,}</text:p></table:table-cell>'
        case dt.date():
            return f'<table:table-cell office:value-type="date" office:date-value="{value.isoformat()}"/>'
    return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'


def test_a_file_of_excel_with_shared_strings_and_styles_is_read() -> None:
    xlsx(
        "book.xlsx",
        '<row r="1" spans="1:4"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="s"><v>2</v></c><c r="D1" t="s"><v>3</v></c></row>'
        '<row r="2"><c r="A2"><v>7</v></c><c r="B2" t="s"><v>4</v></c><c r="C2" s="1"><v>45351</v></c><c r="D2" t="str"><f>B2&amp;"x"</f><v>007x</v></c></row>'
        '<row r="3"><c r="A3"><v>8</v></c><c r="B3" t="s"><v>5</v></c><c r="C3" s="2"><v>45352</v></c><c r="D3" t="e"><f>1/0</f><v>#DIV/0!</v></c></row>',
        shared=["id", "code", "day", "formula", "007", "Köln & <b>"],
    )
    assert read("book.xlsx").to_pylist() == [
        {"id": 7, "code": "007", "day": DAY, "formula": "007x"},
        {"id": 8, "code": "Köln & <b>", "day": dt.date(2024, 3, 1), "formula": None},
    ]


def test_a_file_of_google_sheets_is_read_with_its_inline_texts_and_without_references() -> None:
    xlsx(
        "sheet.xlsx",
        '<row><c t="inlineStr"><is><t>name</t></is></c><c t="inlineStr"><is><r><t>val</t></r><r><t>ue</t></r></is></c></row>'
        '<row><c t="inlineStr"><is><t>a</t></is></c><c><v>1.5</v></c></row>',
    )
    assert read("sheet.xlsx").to_pylist() == [{"name": "a", "value": 1.5}]


def test_a_spreadsheet_of_libreoffice_is_read_without_the_empty_cells_around_it() -> None:
    rows = [
        ("id", "day", "at", "name", "ok"),
        (1, DAY, TIME, "a", True),
        (2, DAY, dt.datetime(2024, 3, 1), None, False),
    ]
    ods("table.ods", *("".join(map(ods_cell, row)) for row in rows))
    table = read("table.ods")
    assert types(table) == {"id": "int64", "day": "date32[day]", "at": "timestamp[us]", "name": "string", "ok": "bool"}
    assert [tuple(row.values()) for row in table.to_pylist()] == rows[1:]


@pytest.mark.parametrize("calendar", [1900, 1904])
def test_both_calendars_of_excel_give_the_same_days(calendar: int) -> None:
    made = xlsxwriter.Workbook("days.xlsx", {"date_1904": calendar == 1904})
    sheet = made.add_worksheet()
    sheet.write_row(0, 0, ["day", "at"])
    sheet.write_datetime(1, 0, dt.datetime(2024, 2, 29), made.add_format({"num_format": "d.m.yyyy"}))
    sheet.write_datetime(1, 1, TIME, made.add_format({"num_format": "d.m.yyyy hh:mm"}))
    made.close()
    assert read("days.xlsx").to_pylist() == [{"day": DAY, "at": TIME}]


def test_a_file_with_macros_and_one_without_the_right_ending_are_read() -> None:
    workbook("a.xlsx", ("id",), (1,))
    Path("b.xlsm").write_bytes(Path("a.xlsx").read_bytes())
    Path("c.xls").write_bytes(Path("a.xlsx").read_bytes())  # with a wrong ending
    for name in ("a.xlsx", "b.xlsm", "c.xls"):
        assert read(name).to_pylist() == [{"id": 1}]
    Path("download").write_bytes(Path("a.xlsx").read_bytes())
    assert open_files("download", "excel").read().read_all().to_pylist() == [{"id": 1}]


# -- types -------------------------------------------------------------------------------------------------------------


def test_columns_get_the_type_that_holds_all_of_their_cells() -> None:
    long = dt.timedelta(hours=30, seconds=1)
    workbook(
        "a.xlsx",
        ("whole", "price", "day", "midnight", "time", "spent", "ok", "code", "large", "empty"),
        (1, 1, DAY, dt.datetime(2024, 2, 29), dt.time(8, 30), long, True, "007", 2**53, None),
        (2, 2.5, None, TIME, dt.time(0, 0), dt.timedelta(), False, "010", 1, None),
    )
    table = read("a.xlsx")
    assert types(table) == {
        "whole": "int64",
        "price": "double",
        "day": "date32[day]",
        "midnight": "timestamp[us]",
        "time": "time64[us]",
        "spent": "month_day_nano_interval",
        "ok": "bool",
        "code": "string",
        "large": "double",
        "empty": "string",
    }
    rows = table.drop(["spent"]).to_pylist()
    assert tuple(rows[0].values()) == (
        1,
        1.0,
        DAY,
        dt.datetime(2024, 2, 29),
        dt.time(8, 30),
        True,
        "007",
        2.0**53,
        None,
    )
    assert tuple(rows[1].values()) == (2, 2.5, None, TIME, dt.time(0, 0), False, "010", 1.0, None)
    assert table.column("spent")[0].as_py().nanoseconds == 108_001 * 10**9


def test_a_column_of_texts_and_something_else_is_text_and_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    workbook("a.xlsx", ("level", "x"), (1, DAY), (2.5, "soon"), ("n/a", TIME), (True, dt.time(9, 0)))
    with caplog.at_level(logging.WARNING, "quacklake.files"):
        table = read("a.xlsx")
    assert table.column("level").to_pylist() == ["1", "2.5", "n/a", "true"]
    assert table.column("x").to_pylist() == ["2024-02-29", "soon", "2024-02-29 12:30:15", "09:00:00"]
    assert "the column 'level' of a.xlsx is text" in caplog.text and "'n/a' in row 4" in caplog.text


def test_texts_that_mean_null_leave_the_type_of_a_column_alone() -> None:
    workbook("a.xlsx", ("level",), (1,), ("n/a",), (3,))
    assert read("a.xlsx", nulls=["n/a"]).column("level").to_pylist() == [1, None, 3]


def test_values_get_the_types_of_the_table(lake: quacklake.Lake) -> None:
    table = lake.create_table(
        "t",
        {
            "id": "INTEGER",
            "code": "VARCHAR",
            "price": "DECIMAL(10,2)",
            "at": "TIMESTAMP",
            "instant": "TIMESTAMPTZ",
            "day": "DATE",
            "n": "BIGINT",
            "spent": "INTERVAL",
        },
    )
    workbook(
        "a.xlsx",
        ("id", "code", "price", "at", "instant", "day", "n", "spent"),
        (1, 7, 0.1 + 0.2, DAY, TIME, "2024-02-29", "12", dt.timedelta(hours=30)),
        (2, 1.5, 12, DAY, DAY, None, "13", None),
    )
    table.append("a.xlsx")
    rows = sorted(table.to_pylist(), key=lambda row: row["id"])
    assert [row["code"] for row in rows] == ["7", "1.5"]
    assert [str(row["price"]) for row in rows] == ["0.30", "12.00"]
    assert [row["at"] for row in rows] == [dt.datetime(2024, 2, 29)] * 2
    assert rows[0]["instant"] == TIME.replace(tzinfo=dt.UTC)
    assert (rows[0]["day"], rows[0]["n"], rows[1]["n"]) == (DAY, 12, 13)


@pytest.mark.parametrize(
    ("type_", "cell", "words"),
    [
        ("BIGINT", 1.5, 'the column "v" takes whole numbers, and has 1.5'),
        ("DECIMAL(10,2)", 1.234, "cannot hold 1.234"),
        ("BIGINT", "1.5", "cannot hold 1.5"),
        ("DOUBLE", "n/a", "cannot hold n/a"),
        ("DATE", TIME, 'the column "v" takes days'),
        ("DATE", "29.02.2024", "cannot hold 29.02.2024"),
    ],
)
def test_a_cell_that_a_column_cannot_hold_is_an_error_and_changes_nothing(
    lake: quacklake.Lake, type_: str, cell: Cell, words: str
) -> None:
    table = lake.create_table("t", {"v": type_})
    workbook("a.xlsx", ("v",), (cell,))
    with pytest.raises(InputError, match=r"cannot read a\.xlsx as excel") as caught:
        table.append("a.xlsx")
    assert words in caught.value.message
    assert table.count() == 0


def test_a_column_of_another_kind_is_refused_as_for_other_files(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"v": "DATE"})
    workbook("a.xlsx", ("v",), (1,))
    with pytest.raises(SchemaMismatchError):
        table.append("a.xlsx")


# -- sheets and headers ------------------------------------------------------------------------------------------------


def test_the_only_sheet_with_rows_is_read_and_of_several_one_is_named() -> None:
    made = openpyxl.Workbook()
    made.active.title = "Empty"
    made.create_sheet("Numbers").append(["id"])
    made["Numbers"].append([1])
    made.create_sheet("Lists").append(["hidden"])
    made["Lists"].sheet_state = "hidden"
    made.create_chartsheet("Chart")
    made.save("a.xlsx")
    assert read("a.xlsx").to_pylist() == [{"id": 1}]
    assert read("a.xlsx", sheet="Lists").column_names == ["hidden"]

    workbook("b.xlsx", North=[("a",), (1,)], South=[("b",), (2,)], **{"3": [("c",), (3,)]})
    error = failure("b.xlsx")
    assert "several sheets with rows: North, South, 3" in error.message and '--sheet "North"' in str(error.hint)
    found = {sheet: read("b.xlsx", sheet=sheet).column_names for sheet in ("South", "south", 1, "2", "3")}
    assert found == {"South": ["b"], "south": ["b"], 1: ["a"], "2": ["b"], "3": ["c"]}
    assert "North, South, 3" in str(failure("b.xlsx", sheet="West").hint)
    assert "none of number 9" in failure("b.xlsx", sheet=9).message


def test_a_workbook_without_rows_is_an_error() -> None:
    openpyxl.Workbook().save("a.xlsx")
    assert failure("a.xlsx").message == "a.xlsx has no rows"
    assert "has no rows" in failure("a.xlsx", sheet=1).message


def test_a_header_alone_is_a_table_without_rows() -> None:
    workbook("a.xlsx", ("a", "b"))
    table = read("a.xlsx")
    assert (table.column_names, table.num_rows) == (["a", "b"], 0)


def test_empty_rows_and_columns_around_and_between_are_left_out() -> None:
    made = openpyxl.Workbook()
    for cell, value in {"C4": "a", "E4": "b", "C5": 1, "E5": 2, "C8": 3, "E8": 4, "D20": " ", "H9": "=1/0"}.items():
        made.active[cell] = value
    made.active["D20"] = None
    made.save("a.xlsx")
    assert read("a.xlsx").to_pylist() == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_empty_cells_of_a_lone_column_are_null() -> None:
    workbook("a.xlsx", ("v",), (1,), (None,), (3,), (None,))
    assert read("a.xlsx").column("v").to_pylist() == [1, None, 3]


def test_a_column_without_a_name_is_called_as_in_csv_and_a_name_twice_is_an_error() -> None:
    workbook("a.xlsx", ("a", None, " c\nd "), (1, 2, 3))
    Path("a.csv").write_text("a,,c d\n1,2,3\n")
    assert read("a.xlsx").column_names == read("a.csv").column_names == ["a", "column1", "c d"]
    workbook("b.xlsx", ("a", "b", "A"), (1, 2, 3))
    assert failure("b.xlsx").message == "row 1 of the sheet 'Data' of b.xlsx names the column 'A' twice"


def test_rows_above_the_header_are_refused_or_skipped() -> None:
    workbook("a.xlsx", ("Report of May",), (), ("id", "name", "n"), (1, "a", 2))
    error = failure("a.xlsx")
    assert "row 1 of the sheet 'Data' of a.xlsx does not seem to be a header: it names 1 of 3 columns" in error.message
    assert "--skip-lines" in str(error.hint)
    assert read("a.xlsx", skip=1).to_pylist() == [{"id": 1, "name": "a", "n": 2}]
    assert "no rows below row 9" in failure("a.xlsx", skip=9).message


def test_a_sheet_without_a_header_takes_the_columns_of_the_table_in_order(lake: quacklake.Lake) -> None:
    workbook("a.xlsx", (1, DAY), (2, DAY))
    assert "does not seem to be a header: it has no text" in failure("a.xlsx").message
    assert read("a.xlsx", header=True).column_names == ["1", "2024-02-29"]
    assert read("a.xlsx", header=False).column_names == ["column0", "column1"]
    table = lake.create_table("t", {"id": "BIGINT", "day": "DATE"})
    table.append(open_files("a.xlsx", csv=CsvOptions(header=False)))
    assert table.to_pylist() == [{"id": 1, "day": DAY}, {"id": 2, "day": DAY}]
    wide = lake.create_table("wide", {"id": "BIGINT", "day": "DATE", "more": "DATE"})
    with pytest.raises(InputError, match=r"a\.xlsx has 2 columns and no header, and the table has 3"):
        wide.append(open_files("a.xlsx", csv=CsvOptions(header=False)))


def test_a_merged_cell_has_its_value_once() -> None:
    made = openpyxl.Workbook()
    for row in (("region", "n"), ("north", 1), (None, 2)):
        made.active.append(row)
    made.active.merge_cells("A2:A3")
    made.save("a.xlsx")
    assert read("a.xlsx").column("region").to_pylist() == ["north", None]


# -- many files, and places of rows ------------------------------------------------------------------------------------


def test_a_folder_of_workbooks_is_one_table_and_open_ones_of_excel_do_not_count(lake: quacklake.Lake) -> None:
    for year, number in (("2023", 1), ("2024", 2.5)):
        Path(f"in/year={year}").mkdir(parents=True)
        workbook(f"in/year={year}/a.xlsx", ("id",), (number,))
    Path("in/year=2024/~$a.xlsx").write_bytes(b"\x03Ann" + b" " * 160)
    table = lake.create_table("t", "in")
    assert sorted(table.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1.0, "year": 2023},
        {"id": 2.5, "year": 2024},
    ]
    with lake.transaction() as tx:
        tx.create_table("u", open_files("in/*/*.xlsx"))
    assert lake.table("u").count() == 2


def test_files_that_are_missing_a_column_or_have_an_interval_as_text_fit_together() -> None:
    workbook("a1.xlsx", ("id", "spent"), (1, dt.timedelta(hours=1)))
    workbook("a2.xlsx", ("id", "spent", "more"), (2, "long", "x"))
    rows = read("a?.xlsx").to_pylist()
    assert sorted(map(str, rows)) == sorted(
        map(str, [{"id": 1, "spent": "01:00:00", "more": None}, {"id": 2, "spent": "long", "more": "x"}])
    )


def test_a_column_that_is_empty_in_one_of_several_files_has_the_type_of_the_others(lake: quacklake.Lake) -> None:
    workbook("a1.xlsx", ("id", "discount", "spent", "note"), (1, None, None, None))
    workbook("a2.xlsx", ("id", "discount", "spent", "note"), (2, 0.5, dt.timedelta(hours=1), None))
    for pattern in (["a1.xlsx", "a2.xlsx"], ["a2.xlsx", "a1.xlsx"]):
        table = open_files(pattern).read().read_all()
        assert list(types(table).values()) == ["int64", "double", "month_day_nano_interval", "string"]
    made = lake.create_table("t", table)
    assert made.append("a1.xlsx") == 1
    assert made.count("discount IS NULL") == 2


def test_sheets_without_a_header_may_have_empty_columns_and_durations(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": "BIGINT", "day": "DATE", "spent": "INTERVAL"})
    workbook("a.xlsx", (1, DAY, dt.timedelta(hours=30)), (2, None, None))
    table.append(open_files("a.xlsx", csv=CsvOptions(header=False)))
    workbook("b.xlsx", (3, "x"), (4, "x"))
    with pytest.raises(InputError, match=r"b\.xlsx has 2 columns"):
        table.append(open_files("b.xlsx", csv=CsvOptions(header=False)))
    assert table.count("spent = INTERVAL '30 hours'") == 1 and table.count() == 2


def test_a_file_that_was_refused_can_be_corrected_and_read(lake: quacklake.Lake) -> None:
    workbook("a.xlsx", ("id", "id"), (1, 2))
    files = open_files("a.xlsx")
    for _ in range(2):
        with pytest.raises(InputError, match="twice"):
            files.read()
    workbook("a.xlsx", ("id", "more"), (1, 2))
    assert files.read().read_all().to_pylist() == [{"id": 1, "more": 2}]


def test_the_place_of_a_row_is_that_in_the_sheet() -> None:
    workbook("a.xlsx", (), ("a", "b"), (1, 1), (), (), (2, 2), (), (3, 3))
    files = open_files("a.xlsx")
    assert [files.read().read_all().num_rows, files.where(1), files.where(2), files.where(3)] == [
        3,
        "row 3 of the sheet 'Data'",
        "row 6 of the sheet 'Data'",
        "row 8 of the sheet 'Data'",
    ]


def test_rows_can_be_read_again_and_leave_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    workbook("a.xlsx", ("id",), (1,))
    files = open_files("a.xlsx")
    assert files.read().read_all() == files.read().read_all()
    assert len(list(scratch.iterdir())) == 1
    del files
    assert list(scratch.iterdir()) == []


def test_workbooks_are_imported_from_a_folder(lake: quacklake.Lake) -> None:
    Path("in").mkdir()
    workbook("in/orders.xlsx", ("id",), (1,))
    workbook("in/people.xlsx", ("name",), ("Ann",))
    lake.import_from("excel:in")
    assert lake.table("orders").to_pylist() == [{"id": 1}] and lake.table("people").to_pylist() == [{"name": "Ann"}]
    with pytest.raises(InputError, match="not a target"):
        lake.export_to("excel:out")


# -- harm --------------------------------------------------------------------------------------------------------------


def cells(rows: str) -> Callable[[str], object]:
    return lambda path: xlsx(path, f'<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>{rows}')


def damaged(change: Callable[[bytes], bytes]) -> Callable[[str], object]:
    def write(path: str) -> None:
        workbook(path, ("id", "name"), *((number, "x" * 50) for number in range(50)))
        Path(path).write_bytes(change(Path(path).read_bytes()))

    return write


def flip(content: bytes) -> bytes:
    """Change bytes of the sheet in a workbook."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        begin = archive.getinfo("xl/worksheets/sheet1.xml").header_offset + 100
    return content[:begin] + b"\xff" * 100 + content[begin + 100 :]


HARM: Mapping[str, tuple[Callable[[str], object], str]] = {
    "cut": (damaged(lambda content: content[:-200]), "damaged, or not a workbook"),
    "bits": (damaged(flip), "damaged"),
    "text": (lambda path: Path(path).write_text("a,b\n1,2\n"), "--format csv"),
    "html": (lambda path: Path(path).write_text("<html><table><tr><td>1</td></tr></table></html>"), "HTML or XML"),
    "zip": (lambda path: zipfile.ZipFile(path, "w").close(), "damaged, or not a workbook"),
    "xml": (cells("<row><c><v>1"), "damaged"),
    "far reference": (cells('<row r="4294967295"><c r="ZZZZZZ4294967295"><v>1</v></c></row>'), "damaged"),
}


@pytest.mark.parametrize("kind", HARM)
def test_a_damaged_file_is_an_error_in_one_sentence(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    write, hint = HARM[kind]
    write("bad.xlsx")
    error = failure("bad.xlsx")
    assert error.message.startswith("cannot read bad.xlsx as excel: ") and hint in str(error.hint)
    assert "\n" not in error.message and "panic" not in error.message.lower()
    assert "".join(capfd.readouterr()) == ""


def test_a_cell_far_away_ends_no_process_but_is_an_error() -> None:
    cells('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')("far.xlsx")
    with pytest.raises(LimitError, match=r"cannot read far\.xlsx as excel: .* needs more than") as caught:
        read("far.xlsx")
    assert "excel_memory" in str(caught.value.hint)


def test_a_workbook_that_takes_too_long_is_an_error_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    workbook("slow.xlsx", ["a"], [1])
    monkeypatch.setenv("QUACKLAKE_EXCEL_SECONDS", "1")
    monkeypatch.setattr(excel_files, "_PROGRAM", ["-c", "import time; time.sleep(600)"])
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **more: started.append(popen(*args, **more)) or started[-1])
    with pytest.raises(
        StatementTimeoutError, match=r"reading slow\.xlsx as excel takes longer than 1 seconds"
    ) as caught:
        read("slow.xlsx")
    assert "excel_seconds" in str(caught.value.hint)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_text_that_many_cells_share_is_within_the_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUACKLAKE_EXCEL_MEMORY", "600MB")
    rows = "".join(f'<row r="{row}"><c r="A{row}" t="s"><v>0</v></c></row>' for row in range(2, 40_000))
    xlsx("shared.xlsx", f'<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>{rows}', shared=["x" * 32_000])
    with pytest.raises(LimitError, match=r"needs more than 600,000,000 bytes"):
        read("shared.xlsx")


def test_a_file_that_is_too_large_unpacked_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile("bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b" " * 5_000_000)
    monkeypatch.setenv("QUACKLAKE_EXCEL_MAX_BYTES", "4MB")
    with pytest.raises(
        LimitError, match=r"bomb\.xlsx has 5,000,000 bytes when it is unpacked, and at most 4,000,000"
    ) as caught:
        read("bomb.xlsx")
    assert "excel_max_bytes" in str(caught.value.hint)


def test_a_protected_file_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from quacklake.inputs import excel_reader

    class Protected:
        @staticmethod
        def from_filelike(_: object) -> None:
            raise python_calamine.PasswordError("protected")

    import python_calamine

    workbook("a.xlsx", ("a",), (1,))
    monkeypatch.setattr(python_calamine, "CalamineWorkbook", Protected)
    request = excel_reader.SheetRequest("a.xlsx", "a.xlsx", "out", None, None, 0, [], 1 << 30, 1 << 32)
    with pytest.raises(InputError, match="protected by a password"):
        excel_reader.read_sheet(request)


def test_without_the_extra_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    workbook("a.xlsx", ("a",), (1,))
    monkeypatch.setattr(excel_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="python-calamine") as caught:
        read("a.xlsx")
    assert caught.value.hint == "pip install 'quacklake[excel]'"


def test_a_module_in_the_current_folder_is_not_run() -> None:
    Path("json.py").write_text("raise SystemExit(7)")
    workbook("a.xlsx", ("a",), (1,))
    assert read("a.xlsx").num_rows == 1


# -- random sheets -----------------------------------------------------------------------------------------------------

TEXTS = ("Köln", "a;b", "two\nlines", "=1+1", "007", "<r>x</r>", "&amp;", "日本", " x ", "-5", "TRUE")
KINDS = ("int64", "double", "string", "bool", "date32[day]", "timestamp[us]", "time64[us]")


def random_value(random: Random, kind: str) -> Cell:
    match kind:
        case "int64":
            return random.choice((0, 1, -7, 2**31, 10**14, random.randrange(-(10**9), 10**9)))
        case "double":
            return random.choice((0.1, -2.5, 1e300, 5e-324, 123456.789, random.random(), random.randrange(100)))
        case "bool":
            return random.random() < 0.5
        case "string":
            return random.choice(TEXTS)
        case "time64[us]":
            return dt.time(random.randrange(24), random.randrange(60), random.randrange(60))
    day = dt.date(1905, 1, 1) + dt.timedelta(days=random.randrange(60_000))
    if kind == "date32[day]":
        return day
    return dt.datetime.combine(day, dt.time()) + dt.timedelta(seconds=random.choice((0, random.randrange(86_400))))


def random_column(random: Random, kind: str, rows: int) -> list[Cell]:
    """Return cells of which the first makes the type certain."""
    first = {"double": 0.25, "timestamp[us]": TIME}.get(kind) or random_value(random, kind)
    return [first, *(None if random.random() < 0.2 else random_value(random, kind) for _ in range(rows - 1))]


def write_openpyxl(path: str, rows: Sequence[Sequence[Cell]], _: Random) -> None:
    made = openpyxl.Workbook()
    for number, row in enumerate(rows, 1):
        for place, value in enumerate(row, 1):
            cell = made.active.cell(number, place, value)
            if isinstance(value, str):
                cell.data_type = "s"  # not a formula
    made.save(path)


def write_xlsxwriter(path: str, rows: Sequence[Sequence[Cell]], random: Random) -> None:
    options = {"constant_memory": random.random() < 0.5, "date_1904": random.random() < 0.5}
    made = xlsxwriter.Workbook(path, options)
    sheet = made.add_worksheet("Data")
    formats = {
        dt.date: made.add_format({"num_format": "dd.mm.yyyy"}),
        dt.datetime: made.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}),
        dt.time: made.add_format({"num_format": "hh:mm:ss"}),
    }
    for number, row in enumerate(rows):
        for place, value in enumerate(row):
            if isinstance(value, str):
                sheet.write_string(number, place, value)
            elif value is not None:
                sheet.write(number, place, value, formats.get(type(value)))
    made.close()


def sixteen_digits(value: Cell) -> Cell:
    """Return what openpyxl and XlsxWriter write of a number."""
    return float(f"{value:.16g}") if isinstance(value, float) else value


def plain(value: Cell) -> Cell:
    """Return what XlsxWriter writes, which takes some texts for XML of its own."""
    return "r" if value == "<r>x</r>" else sixteen_digits(value)


def write_ods(path: str, rows: Sequence[Sequence[Cell]], _: Random) -> None:
    ods(path, *("".join(map(ods_cell, row)) for row in rows))


def paragraph(value: Cell) -> Cell:
    """Return what fits into one paragraph, which has no line breaks and no spaces around it."""
    return value.replace("\n", " ").strip() if isinstance(value, str) else value


Write = Callable[[str, Sequence[Sequence[Cell]], Random], None]
WRITERS: Sequence[tuple[str, Write, Callable[[Cell], Cell], Sequence[str]]] = (
    ("a.xlsx", write_openpyxl, sixteen_digits, KINDS),
    ("b.xlsx", write_xlsxwriter, plain, KINDS),
    ("c.ods", write_ods, paragraph, KINDS[:-1]),
)


@pytest.mark.parametrize("seed", some(range(60), 12, "workbooks"))
def test_random_sheets_are_read_as_they_were_written(seed: int) -> None:
    random = chance("workbook", seed)
    path, write, fit, possible = random.choice(WRITERS)
    count, kinds = random.choice((1, 5, 40)), random.choices(possible, k=random.randint(1, 6))
    names = [f"c{place}" for place in range(len(kinds))]
    columns = [list(map(fit, random_column(random, kind, count))) for kind in kinds]
    rows = list(zip(*columns, strict=True))
    write(path, [*[()] * random.choice((0, 2)), names, *rows], random)
    while rows[-1].count(None) == len(names):
        rows.pop()
    kept = rows if len(names) == 1 else [row for row in rows if row.count(None) < len(names)]
    table = read(path)
    assert types(table) == dict(zip(names, kinds, strict=True))
    assert [tuple(row.values()) for row in table.to_pylist()] == kept


def test_reading_runs_in_a_process_that_imports_little() -> None:
    program = "import sys, quacklake.inputs.excel_reader; print(sorted({'duckdb', 'sqlalchemy', 'python_calamine'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
