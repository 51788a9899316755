"""Read numbers, days and times of CSV files as they are written: exactly, or with an error that names the value."""

from __future__ import annotations

import re
import shlex

from quacklake.core.engines.duckdb.exact_reading import LOCAL, WHOLE, ZONED, day, whole
from quacklake.core.format.names import literal, quote
from quacklake.inputs.csv_files import CsvOptions

_NUMBERS = ("DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "UHUGEINT")
_REFUSED = re.compile(r"Could not convert string \"(?P<value>.*)\" to '[A-Z]+|takes .*, and has (?P<other>.*)")
_GROUPED = re.compile(
    r"[+-]?\d{1,3}(?:(?P<group>[.,' _\u00a0\u202f\u2019])\d{3})(?:(?P=group)\d{3})*(?:(?P<point>[.,])\d+)?"
)
_MOMENT = re.compile(
    r"(?P<first>\d{1,2})(?P<separator>[./-])(?P<second>\d{1,2})(?P=separator)(?P<year>\d{4}|\d{2})"
    r"(?P<time>(?P<between>[ T])\d{1,2}:\d\d(?P<second_of_time>:\d\d)?)?"
)
_MISSING = re.compile(r"[-–—.?*]*|n\.?/?a\.?|#?n/a|none|null|nil|nan|missing|unknown|k\.? ?a\.?", re.IGNORECASE)
"""Texts that people write for a value that is missing."""


def exact_text(name: str, type_: str, guess: str, options: CsvOptions) -> tuple[str, str] | None:
    """Return the type to read a column as, and SQL for its value; None where DuckDB reads the column exactly.

    ``type_`` is the type that the rows get, ``guess`` that of the text in the file. The SQL raises an error where a
    value would be rounded, cut or shifted.
    """
    if options.thousands is not None and (type_ in WHOLE or type_.startswith(_NUMBERS)):
        return "VARCHAR", _ungroup_digits(name, type_, options)
    if type_ in WHOLE and guess == "DOUBLE":
        return guess, whole(name, type_)
    if guess == "DATE" and options.date_format is not None and (type_ in LOCAL or type_ == ZONED):
        return guess, f"{quote(name)}::{type_}"
    if type_ == ZONED and options.timestamp_format is not None:  # DuckDB would read NULL
        return "VARCHAR", f"strptime({quote(name)}, {literal(options.timestamp_format)})::{type_}"
    if type_ == "DATE" and guess.startswith("TIMESTAMP"):
        return guess, day(name, guess)
    if type_ in LOCAL and guess == ZONED:
        return guess, f"make_timestamp(epoch_us({quote(name)}))::{type_}"
    return None


def _ungroup_digits(name: str, type_: str, options: CsvOptions) -> str:
    """Return SQL for a number whose digits are in groups of three; DuckDB would take 12.34 for 1234."""
    column, decimal, thousands = quote(name), options.decimal or ".", options.thousands or ""
    group, point = re.escape(thousands), re.escape(decimal)
    fraction = f"(?:{point}0*)?" if type_ in WHOLE else f"(?:{point}[0-9]*)?(?:[eE][+-]?[0-9]+)?"
    pattern = literal(rf"\s*[+-]?(?:[0-9]+|[0-9]{{1,3}}(?:{group}[0-9]{{3}})+){fraction}\s*")
    plain = f"replace(replace(trim({column}), {literal(thousands)}, ''), {literal(decimal)}, '.')"
    if type_ in WHOLE:
        plain = f"split_part({plain}, '.', 1)"
    message = literal(f'the column "{name}" takes numbers such as 1{thousands}234, and has ')
    return (
        f"CASE WHEN {column} IS NULL THEN NULL WHEN regexp_full_match({column}, {pattern}) THEN {plain}::{type_} "
        f"ELSE error({message} || left({column}, 100)) END"
    )


def missing_values(name: str, options: CsvOptions) -> tuple[str, str]:
    """Return SQL conditions of the texts of a column that mean a value is missing, and of those that are numbers."""
    text = f"trim({quote(name)})"
    missing = f"({text} <> '' AND regexp_full_match({text}, {literal(_MISSING.pattern)}, 'i'))"
    plain = text if options.thousands is None else f"replace({text}, {literal(options.thousands)}, '')"
    plain = plain if options.decimal is None else f"replace({plain}, {literal(options.decimal)}, '.')"
    return missing, f"(NOT {missing} AND TRY_CAST({plain} AS DOUBLE) IS NOT NULL)"


def hint_of(message: str) -> str | None:
    """Return the option that reads a value that was refused, where the message names one."""
    found = _REFUSED.search(message)
    return None if found is None else option_for(next(text for text in found.groups() if text is not None))


def option_for(value: str) -> str | None:
    """Return a hint with the option that reads a text as a value, or None for a text like any other.

    >>> option_for("1,5"), option_for("n/a")
    ('--decimal , reads it', '--null n/a reads it as NULL')
    >>> option_for("1,234.5"), option_for("31/12/2024")
    ('--thousands , reads it', '--date-format %d/%m/%Y reads it as a day')
    """
    text = value.strip()
    if text and _MISSING.fullmatch(text):
        return f"--null {shlex.quote(value)} reads it as NULL"
    number = _GROUPED.fullmatch(text)
    if number is not None and (number["group"] != "." or number["point"] == "," or text.count(".") > 1):
        if text.count(",") == 1 and number["group"] == "," and number["point"] is None:
            return "--decimal , or --thousands , reads it"
        decimal = "--decimal , " if number["point"] == "," or number["group"] == "." else ""
        return f"{decimal}--thousands {_show_separator(number['group'])} reads it"
    if re.fullmatch(r"[+-]?\d+,\d+", text):
        return "--decimal , reads it"
    moment = _MOMENT.fullmatch(text)
    return None if moment is None else _form_of(moment)


def _show_separator(text: str) -> str:
    return text if text in ",._" else f'"{text}"'


def _form_of(moment: re.Match[str]) -> str:
    """Return the option with the form of a day or a time; a month is at most 12, and after a day where both may be."""
    separator, months_first = moment["separator"], int(moment["second"]) > 12
    parts = ("%m", "%d") if months_first else ("%d", "%m")
    day = separator.join((*parts, "%Y" if len(moment["year"]) == 4 else "%y"))
    other = "" if months_first or int(moment["first"]) > 12 or separator == "." else ", if the month is not first"
    if moment["time"] is None:
        return f"--date-format {day} reads it as a day{other}"
    seconds = ":%S" if moment["second_of_time"] else ""
    return f"--timestamp-format '{day}{moment['between']}%H:%M{seconds}' reads it as a time{other}"
