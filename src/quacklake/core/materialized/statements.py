"""Materialized views in SQL: CREATE, REFRESH, ALTER, DROP, SHOW, DESCRIBE, EXPLAIN REFRESH and VERIFY."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.core.format.names import quote
from quacklake.core.materialized.definition import EVERY, RefreshReport, Schedule
from quacklake.core.materialized.refresh import Request, create
from quacklake.core.materialized.views import MaterializedViews
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.sql.attached import Attached, Target
from quacklake.core.sql.result import Result
from quacklake.core.sql.words import Cursor
from quacklake.errors import InputError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session

_OPTIONS = ("engine", "full")
_VERIFIED = pa.schema(
    [
        ("view", pa.string()),
        ("snapshot", pa.int64()),
        ("rows", pa.int64()),
        ("missing", pa.int64()),
        ("unexpected", pa.int64()),
        ("ok", pa.bool_()),
        ("problem", pa.string()),
        ("differences", pa.list_(pa.string())),
    ]
)
_SHOWN = 20


def run_view_statement(session: Session, cursor: Cursor) -> Result:
    """Run one statement about materialized views."""
    if session.work.explicit:
        raise SqlError("materialized views cannot be part of a transaction", hint="COMMIT or ROLLBACK first")
    verb = cursor.take().upper
    if verb == "CREATE":
        return _create(session, cursor)
    if verb == "SHOW":
        cursor.expect("MATERIALIZED", "VIEWS")
        cursor.end()
        return Result(MaterializedViews(_whole(session.names.default)).list())
    if verb == "EXPLAIN":
        cursor.expect("REFRESH")
        cursor.accept("MATERIALIZED", "VIEW")
    else:
        cursor.expect("MATERIALIZED", "VIEW")
    forgiving = verb == "DROP" and cursor.accept("IF", "EXISTS")
    target = _target(session, cursor)
    views, name = MaterializedViews(_whole(target.attached)), _name(target)
    if verb in ("DESCRIBE", "DESC"):
        return _describe(views, name, cursor)
    if verb == "ALTER":
        cursor.expect("SET")
        schedule = _schedule(cursor)
        cursor.end()
        views.alter(name, refresh=str(schedule))
        return Result()
    full = verb == "REFRESH" and cursor.accept("FULL")
    cursor.end()
    if verb == "DROP":
        views.drop(name, if_exists=forgiving)
        return Result()
    if verb == "VERIFY":
        return _verify(views, name)
    return _show_report(views.explain(name) if verb == "EXPLAIN" else views.refresh(name, full=full))


def _target(session: Session, cursor: Cursor) -> Target:
    target = session.names.target(cursor.names())
    if target is None:
        raise SqlError("a materialized view must be in a lake", hint="select one with USE, or qualify the name")
    return target


def _whole(attached: Attached | None) -> LakeHandle:
    if attached is None or attached.whole is None:
        raise SqlError("a materialized view must be in a lake that is attached at its newest snapshot")
    return attached.whole


def _name(target: Target) -> str:
    return f"{quote(target.schema)}.{quote(target.name)}"


def _create(session: Session, cursor: Cursor) -> Result:
    """Run CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name […] AS query."""
    replacing = cursor.accept("OR", "REPLACE")
    cursor.expect("MATERIALIZED", "VIEW")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    target = _target(session, cursor)
    schedule, options, keys = Schedule(), dict[str, Any](), list[str]()
    while not cursor.accept("AS"):
        if cursor.accept("PARTITIONED", "BY") or cursor.accept("PARTITION", "BY"):
            keys = cursor.items()
        elif cursor.sees("REFRESH"):
            schedule = _schedule(cursor)
        elif cursor.accept("WITH"):
            options = _options(cursor)
        else:
            raise cursor.unexpected()
    request = Request(
        TableRef(target.schema, target.name),
        cursor.rest(),
        session.names.schema if target.attached is session.names.default else "main",
        target.attached.alias,
        schedule,
        str(options.get("engine", "auto")).lower(),
        bool(options.get("full", False)),
        tuple(keys),
        replacing,
        if_not_exists,
    )
    report = create(_whole(target.attached), request)
    return Result() if report is None else _show_report(report)


def _schedule(cursor: Cursor) -> Schedule:
    """Parse ``REFRESH ON COMMIT | EVERY '1 minute' | MANUAL``."""
    cursor.expect("REFRESH")
    if cursor.accept("ON", "COMMIT"):
        return Schedule.parse("on commit")
    if cursor.accept("MANUAL"):
        return Schedule()
    cursor.expect("EVERY")
    try:
        return Schedule.parse(f"{EVERY} {cursor.string()}")
    except InputError as error:
        raise SqlError(error.message, hint="use a duration, as in REFRESH EVERY '1 minute'") from None


def _options(cursor: Cursor) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in cursor.items():
        part = Cursor(item)
        key = part.name().lower()
        part.expect("=")
        word = part.take()
        part.end()
        if key not in _OPTIONS or key in found:
            raise SqlError(f"unknown or repeated option {key!r}", hint=f"the options are {' and '.join(_OPTIONS)}")
        if key == "full" and word.value.lower() not in ("true", "false"):
            raise SqlError("the option full must be true or false")
        found[key] = word.value.lower() == "true" if key == "full" else word.value
    return found


def _show_report(report: RefreshReport) -> Result:
    return Result(pa.Table.from_pylist([asdict(report)]))


def _describe(views: MaterializedViews, name: str, cursor: Cursor) -> Result:
    version: int | None = None
    if cursor.accept("AT"):
        inner = Cursor(cursor.parens())
        inner.expect("VERSION", "=>")
        given = inner.take().value
        inner.end()
        if not given.isdecimal():
            raise SqlError(f"{given!r} is not a version", hint="AT (VERSION => 5)")
        version = int(given)
    cursor.end()
    found = views.describe(name, version)
    shown = {key: _show_value(value) for key, value in found.items()}
    return Result(pa.table({"property": list(shown), "value": pa.array(list(shown.values()), pa.string())}))


def _show_value(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def _verify(views: MaterializedViews, name: str) -> Result:
    rows = []
    for found in views.verify(name):
        differences = [json.dumps(row, default=str) for row in found.rows.slice(0, _SHOWN).to_pylist()]
        rows.append(
            {
                "view": found.view,
                "snapshot": found.snapshot,
                "rows": found.count,
                "missing": found.missing,
                "unexpected": found.unexpected,
                "ok": found.ok,
                "problem": found.problem,
                "differences": differences,
            }
        )
    return Result(pa.Table.from_pylist(rows, _VERIFIED))
