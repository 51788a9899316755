"""Numbers, days, times and missing values of CSV files, in the form in which people write them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError
from quacklake.inputs.csv_files import CsvOptions
from quacklake.inputs.exact_values import option_for
from quacklake.inputs.files import open_files

pytestmark = pytest.mark.usefixtures("folder")


def column(text: str, **options: Any) -> list[Any]:
    """Return the type and the values of a column in a file."""
    Path("a.csv").write_text("id;v\n" + "".join(f"{n};{value}\n" for n, value in enumerate(text.split("|"))))
    found = open_files("a.csv", csv=CsvOptions(**options)).read().read_all().column("v")
    return [str(found.type), *found.to_pylist()]


def test_german_numbers() -> None:
    assert column("1,5|2", decimal=",") == ["double", 1.5, 2.0]
    assert column("1.234,5|2|1.234.567", decimal=",", thousands=".") == ["double", 1234.5, 2.0, 1234567.0]
    assert column("1.234|2", decimal=",", thousands=".") == ["int64", 1234, 2]
    assert column("1,234.5|2", thousands=",") == ["double", 1234.5, 2.0]
    assert column("1'234.5|-2", thousands="'") == ["double", 1234.5, -2.0]
    assert column("1.5|x", decimal=",") == ["string", "1.5", "x"]


@pytest.mark.parametrize("value", ["12.34", "1.2.3", "1.2345", "1.23,4"])
def test_groups_that_are_not_of_three_digits_are_refused(value: str) -> None:
    with pytest.raises(InputError, match=f"takes numbers such as 1.234, and has {value}"):
        column(f"1.234,5|{value}", decimal=",", thousands=".")


@pytest.mark.parametrize("type_", ["INTEGER", "DECIMAL(18,2)", "DOUBLE", "VARCHAR"])
def test_german_numbers_get_the_type_of_the_table(lake: quacklake.Lake, type_: str) -> None:
    table = lake.create_table("t", {"v": type_})
    Path("a.csv").write_text('v\n"1.234,00"\n-7\n')
    table.append(open_files("a.csv", csv=CsvOptions(decimal=",", thousands=".")))
    expected = {"INTEGER": [1234, -7], "DECIMAL(18,2)": [Decimal(1234), Decimal(-7)], "DOUBLE": [1234.0, -7.0]}
    assert table.to_arrow().column("v").to_pylist() == expected.get(type_, ["1.234,00", "-7"])
    if type_ == "INTEGER":
        Path("b.csv").write_text('v\n"1.234,5"\n')
        with pytest.raises(InputError, match="takes numbers such as"):
            table.append(open_files("b.csv", csv=CsvOptions(decimal=",", thousands=".")))


def test_german_days_and_times() -> None:
    day, moment = dt.date(2024, 4, 3), dt.datetime(2024, 4, 3, 10, 11)
    assert column("03.04.2024", date_format="%d.%m.%Y") == ["date32[day]", day]
    assert column("03.04.2024 10:11", timestamp_format="%d.%m.%Y %H:%M") == ["timestamp[us]", moment]
    assert column("03/04/2024", date_format="%d/%m/%Y")[1] == day
    assert column("03/04/2024", date_format="%m/%d/%Y")[1] == dt.date(2024, 3, 4)


@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_days_and_times_get_the_type_of_the_table(lake: quacklake.Lake, type_: str) -> None:
    table = lake.create_table("t", {"v": type_})
    Path("day.csv").write_text("v\n03.04.2024\n")
    Path("time.csv").write_text("v\n03.04.2024 00:00\n")
    forms = CsvOptions(date_format="%d.%m.%Y", timestamp_format="%d.%m.%Y %H:%M")
    for name in ("day.csv", "time.csv"):
        table.append(open_files(name, csv=forms))
    value = {"DATE": dt.date(2024, 4, 3), "TIMESTAMP": dt.datetime(2024, 4, 3)}.get(
        type_, dt.datetime(2024, 4, 3, tzinfo=dt.UTC)
    )
    assert table.to_arrow().column("v").to_pylist() == [value, value]
    Path("bad.csv").write_text("v\n2024-04-31 00:00\n")
    with pytest.raises(InputError):
        table.append(open_files("bad.csv", csv=forms))


def test_texts_that_mean_null() -> None:
    assert column("1|n/a|-|2", nulls=["n/a", "-"]) == ["int64", 1, None, None, 2]
    assert column("1,5|k. A.", decimal=",", nulls=["k. A."]) == ["double", 1.5, None]
    assert column("1.234,5|k. A.", decimal=",", thousands=".", nulls=["k. A."]) == ["double", 1234.5, None]


@pytest.mark.parametrize(
    ("type_", "value", "hint"),
    [
        ("INTEGER", "n/a", "--null n/a"),
        ("DOUBLE", "1,5", "--decimal ,"),
        ("DOUBLE", "1.234,5", "--decimal , --thousands ."),
        ("DOUBLE", "1,234.5", "--thousands ,"),
        ("DOUBLE", "1,234", "--decimal , or --thousands ,"),
        ("DOUBLE", "1.234.567", "--decimal , --thousands ."),
        ("DOUBLE", "1 234,5", '--decimal , --thousands " "'),
        ("DOUBLE", "1'234'567.5", '--thousands "\'"'),
        ("DATE", "31/12/2024 x", None),
        ("TIMESTAMP", "04/13/2024 10:11", "--timestamp-format '%m/%d/%Y %H:%M'"),
        ("TIMESTAMP", "13.04.2024 10:11 Uhr", None),
    ],
)
def test_a_refused_value_names_the_option_that_reads_it(
    lake: quacklake.Lake, type_: str, value: str, hint: str | None
) -> None:
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    table.add_column("v", type_)
    Path("a.csv").write_text(f"id;v\n1;{value}\n")
    with pytest.raises(InputError) as caught:
        table.append("a.csv")
    assert hint is None or hint in str(caught.value.hint)


def test_a_day_that_could_be_a_month_is_left_to_the_user() -> None:
    hint = "--timestamp-format '%d/%m/%Y %H:%M:%S' reads it as a time, if the month is not first"
    assert option_for("04/03/2024 10:11:12") == hint
    assert option_for("04.03.24") == "--date-format %d.%m.%y reads it as a day"


@pytest.mark.parametrize(
    "options",
    [{"decimal": "x"}, {"decimal": ",", "thousands": ","}, {"thousands": "."}, {"decimal": ",,"}, {"nulls": "n/a"}],
)
def test_forms_that_contradict_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        CsvOptions(**options)


def test_a_warning_names_the_option_for_numbers_that_become_text(caplog: pytest.LogCaptureFixture) -> None:
    many = "|".join(["1"] * 30_000)
    for text, noted, options in (
        ("1|n/a|2|n/a|-", "of 3 values that are not numbers; --null - --null n/a reads them as NULL", {}),
        (f"{many}|k. A.", "of 1 values that are not numbers; --null 'k. A.' reads", {}),
        ("1,5|n/a", "--null n/a", {"decimal": ","}),
        ("1.234,5|n/a", "--null n/a", {"decimal": ",", "thousands": "."}),
        ("1|n/a|two", None, {}),
        ("n/a|-", None, {}),
        ("1|n/a", None, {"nulls": ["n/a"]}),
    ):
        caplog.clear()
        column(text, **options)
        messages = [record.getMessage() for record in dict.fromkeys(caplog.records)]
        assert (noted is None and messages == []) or (noted is not None and noted in messages[0]), text
        assert noted is None or 'the column "v" of a.csv is text because' in messages[0]


def test_a_text_of_the_table_needs_no_warning(lake: quacklake.Lake, caplog: pytest.LogCaptureFixture) -> None:
    Path("a.csv").write_text("v;w\n1;1\nn/a;n/a\n")
    lake.create_table("t", {"v": "VARCHAR"}).append("a.csv", evolve=True)
    assert [record.getMessage().split(" of ")[0] for record in dict.fromkeys(caplog.records)] == ['the column "w"']
