"""Hints for values whose type does not fit a column: nothing is guessed, so the user must convert them."""

from __future__ import annotations

from quacklake.format.schema import Column

_NUMBERS = ("int", "uint", "float", "decimal")
_ZONED = '{frame}.dt.tz_localize("UTC") says in which zone they are'
_HINTS = {
    ("text", "timestamp"): "parse the text first: pd.to_datetime({frame}), or {cast} in SQL",
    ("text", "timestamptz"): "parse the text first: pd.to_datetime({frame}, utc=True), or {cast} in SQL",
    ("text", "date"): "parse the text first: pd.to_datetime({frame}).dt.date, or {cast} in SQL",
    ("text", "time"): "parse the text first: datetime.time.fromisoformat(…), or {cast} in SQL",
    ("text", "number"): "parse the text first: pd.to_numeric({frame}), or {cast} in SQL",
    ("text", "boolean"): "make True and False of the text first, such as {frame} == 'yes', or {cast} in SQL",
    ("float", "whole"): 'round the numbers first: {frame}.round().astype("Int64"), in which NaN is NULL',
    ("float", "decimal"): "pass decimal.Decimal, or round the numbers with {cast} in SQL",
    ("timestamp", "timestamptz"): f"the times have no zone: {_ZONED}",
    ("timestamptz", "timestamp"): "the times have a zone: {frame}.dt.tz_localize(None) drops it",
    ("timestamp", "date"): "drop the time of the day first: {frame}.dt.date, or {cast} in SQL",
    ("any", "text"): "make text of the values first: {frame}.astype(str), or {cast} in SQL",
}


def conversion_hint(given: Column, wanted: Column) -> str | None:
    """Return how to convert values of one type to another, or None if there is no simple way."""
    if wanted.type == "list" and not given.nested:
        return f'the column "{wanted.name}" takes lists: pass [value] where there is one'
    for one in _kinds(given.type):
        for two in _kinds(wanted.type):
            if (one, two) in _HINTS:
                frame = f'df["{given.name}"]'
                cast = f"CAST({given.name} AS {wanted.duckdb_type()})"
                return _HINTS[one, two].format(frame=frame, cast=cast)
    return None


def _kinds(type_: str) -> list[str]:
    """Return the kinds of a type, the closest first."""
    base = type_.partition("(")[0]
    kinds = {"varchar": ["text"], "json": ["text"], "float32": ["float"], "float64": ["float"]}.get(base, [base])
    if base.startswith(("int1", "int3", "int6", "int8", "uint")):
        kinds.append("whole")
    if base.startswith("timestamp_"):
        kinds.append("timestamp")
    if base.startswith(_NUMBERS) and base != "interval":
        kinds.append("number")
    return [*kinds, "any"]
