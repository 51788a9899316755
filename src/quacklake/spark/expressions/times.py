"""DuckDB's date and time functions in Spark SQL, by DuckDB's names."""

from __future__ import annotations

from collections.abc import Mapping

from quacklake.spark.expressions.casts import STAMPS
from quacklake.spark.expressions.function_calls import Maker, TranslatedCall


def days(call: TranslatedCall) -> str | None:
    """Translate a date plus or minus days, or the days between two dates."""
    if call.types == ["date", "date"] and call.name == "-":
        return f"CAST(datediff({call.sql(0)}, {call.sql(1)}) AS BIGINT)"
    order = (0, 1) if call.types[0] == "date" else (1, 0)
    date, days = (call.arguments[number] for number in order)
    if date.type != "date" or days.type not in ("int8", "int16", "int32") or (call.name == "-" and order == (1, 0)):
        return None
    return f"{'date_add' if call.name == '+' else 'date_sub'}({date.sql}, CAST({days.sql} AS INT))"


def shifted(call: TranslatedCall) -> str | None:
    """Translate a time plus or minus a constant interval: first the months, then the rest."""
    order = (0, 1) if call.types[1] == "interval" else (1, 0)
    time, span = (call.arguments[number] for number in order)
    zoned = time.type == "timestamptz"
    if span.type != "interval" or not span.constant or time.type not in ("date", "timestamptz", *STAMPS):
        return None
    found = call.translator.binder.interval(span.node)
    if found is None or (zoned and (found[0] or found[1])):  # the length of a day depends on the zone
        return None
    months, days, micros = (-part if call.name == "-" else part for part in found)
    if zoned:  # Spark takes 24 hours of an interval for a day in its zone
        return f"timestamp_micros(unix_micros({time.sql}) + {micros}L)"
    value = f"CAST({time.sql} AS TIMESTAMP_NTZ)"
    value = f"({value} + make_ym_interval(0, {months}))" if months else value
    sign, left = "-" if micros < 0 else "", abs(micros)
    seconds = f"CAST({sign}{left // 1_000_000}.{left % 1_000_000:06d}BD AS DECIMAL(18,6))"
    return f"{value} + make_dt_interval({days}, 0, 0, {seconds})" if days or micros else value


_DATE_PARTS: Mapping[str, str] = {
    "year": "year({0})",
    "month": "month({0})",
    "day": "day({0})",
    "dayofmonth": "day({0})",
    "quarter": "quarter({0})",
    "week": "weekofyear({0})",
    "weekofyear": "weekofyear({0})",
    "dayofyear": "dayofyear({0})",
    "doy": "dayofyear({0})",
    "dayofweek": "(dayofweek({0}) - 1)",
    "dow": "(dayofweek({0}) - 1)",
    "weekday": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
}
_TIME_PARTS: Mapping[str, str] = {"hour": "hour({0})", "minute": "minute({0})"}


def _date_part(call: TranslatedCall) -> str | None:
    """Translate ``year(x)``, ``date_part('year', x)`` and ``extract(year FROM x)``."""
    name = call.name if call.count == 1 else (call.constant(0) or "").lower()
    kind = call.types[-1]
    form = _DATE_PARTS.get(name) or (_TIME_PARTS.get(name) if kind in STAMPS else None)
    if form is None or kind not in ("date", *STAMPS):
        return None
    return f"CAST({form.format(call.sql(call.count - 1))} AS BIGINT)"


def _truncated(call: TranslatedCall) -> str | None:
    unit = (call.constant(0) or "").lower()
    if call.types[1] not in ("date", *STAMPS) or unit not in ("year", "quarter", "month", "week", "day"):
        return None
    day = f"CAST({call.sql(1)} AS DATE)"
    day = day if unit == "day" else f"trunc({day}, '{unit}')"
    return day if call.type.type == "date" else f"CAST({day} AS TIMESTAMP_NTZ)"


def _difference(call: TranslatedCall) -> str | None:
    if (call.constant(0) or "").lower() != "day" or not all(type_ in ("date", *STAMPS) for type_ in call.types[1:]):
        return None
    return f"CAST(datediff(CAST({call.sql(2)} AS DATE), CAST({call.sql(1)} AS DATE)) AS BIGINT)"


def _last_day(call: TranslatedCall) -> str | None:
    return f"last_day({call.sql(0)})" if call.types[0] in ("date", *STAMPS) else None


OF_TIMES: Mapping[str, Maker] = {
    **dict.fromkeys(("date_part", "datepart", *_DATE_PARTS, *_TIME_PARTS), _date_part),
    **dict.fromkeys(("date_trunc", "datetrunc"), _truncated),
    **dict.fromkeys(("date_diff", "datediff"), _difference),
    "last_day": _last_day,
}
