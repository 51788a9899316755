"""Prove a view: compare its rows, both ways, with a full computation at the snapshot at which it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.names import quote
from quacklake.core.materialized import registry, rewriting
from quacklake.core.materialized.definition import MaterializedView
from quacklake.core.materialized.spans import by_text
from quacklake.core.materialized.survey import BaseChange
from quacklake.core.materialized.workspace import Workspace, target, workspace
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.sql import tree
from quacklake.errors import QuacklakeError

_SHOWN = 100
_CLOSE = 1e-9
"""The relative difference up to which sums of floating-point numbers count as equal."""
_FLOATS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class Verification:
    """The result of a comparison. ``missing`` and ``unexpected`` are numbers of rows; ``rows`` shows some of them.

    ``problem`` says why a view could not be compared; then nothing is known of its rows.
    """

    view: str
    snapshot: int | None
    count: int = 0
    missing: int = 0
    unexpected: int = 0
    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """True when the view holds exactly the answer of its query."""
        return self.problem is None and not self.missing and not self.unexpected


def verify_view(handle: LakeHandle, ref: TableRef) -> Verification:
    """Compare a view with its query at the snapshot at which the view stands."""
    context = handle.context
    tx = handle.begin(read_only=True)
    view = registry.get(context, tx.base, ref)
    while view.position is not None and view.position.committed > tx.base.id:  # it was refreshed just now
        tx = handle.begin(read_only=True)
        view = registry.get(context, tx.base, ref)
    at = view.position
    if at is None:
        return Verification(view.name, None, problem="the position of the view is unknown here: refresh it")
    try:
        past = handle.at(at.snapshot).tx.base
        with workspace(context, tx, handle) as space:
            tables = [registry.table_of(context, past, b.uuid, b.schema, b.name) for b in view.definition.bases]
            known = [
                BaseChange(table, (base.schema, base.name))
                for base, table in zip(view.definition.bases, tables, strict=True)
                if table is not None
            ]
            then = rewriting.at_version(space.connection, space.parse(view, known), past.id)
            columns = view.table.schema.columns
            listed = ", ".join(f"CAST(c{n} AS {c.duckdb_type()}) AS c{n}" for n, c in enumerate(columns))
            names = ", ".join(f"c{n}" for n in range(len(columns)))
            text = tree.render(space.connection, then)
            expected = space.keep(f"SELECT {listed} FROM ({text}) AS src({names})")
            own = ", ".join(f"{quote(c.name)} AS c{n}" for n, c in enumerate(columns))
            actual = space.keep(f"SELECT {own} FROM {target(view.table)} AT (VERSION => {tx.base.id})")
            return _compare(space, view, at.snapshot, expected, actual)
    except QuacklakeError as error:
        return Verification(view.name, at.snapshot, problem=error.message)


def _compare(space: Workspace, view: MaterializedView, snapshot: int, expected: str, actual: str) -> Verification:
    types = [column.duckdb_type() for column in view.table.schema.columns]
    floats = [n for n, type_ in enumerate(types) if type_ in _FLOATS]
    compared = ", ".join(
        f"CAST(c{n} AS VARCHAR) AS c{n}" if by_text(type_) else f"c{n}" for n, type_ in enumerate(types)
    )
    count = space.number(f"SELECT count(*) FROM {actual}")
    both = {}
    for what, one, other in (("missing", expected, actual), ("unexpected", actual, expected)):
        both[what] = space.make(f"SELECT {compared} FROM {one} EXCEPT ALL SELECT {compared} FROM {other}")
    if floats and space.number(f"SELECT count(*) FROM {both['missing']}"):
        both = _without_close(space, both, types, floats)
    missing = space.number(f"SELECT count(*) FROM {both['missing']}")
    unexpected = space.number(f"SELECT count(*) FROM {both['unexpected']}")
    named = ", ".join(f"c{n} AS {quote(column)}" for n, column in enumerate(view.table.schema.names))
    shown = " UNION ALL ".join(
        f"(SELECT '{what}' AS difference, {named} FROM {table} LIMIT {_SHOWN})" for what, table in both.items()
    )
    rows = arrow_table(space.connection, shown)
    return Verification(view.name, snapshot, count, missing, unexpected, rows)


def _without_close(space: Workspace, both: dict[str, str], types: list[str], floats: list[int]) -> dict[str, str]:
    """Leave out rows that differ in floating-point numbers alone, and there by less than a rounding error."""
    exact = [f"c{n}" for n in range(len(types)) if n not in floats]
    order = ", ".join(f"TRY_CAST(c{n} AS DOUBLE)" for n in floats)
    numbered = {}
    for what, table in both.items():
        part = f"PARTITION BY {', '.join(exact)} " if exact else ""
        numbered[what] = space.make(f"SELECT *, row_number() OVER ({part}ORDER BY {order}) AS nth FROM {table}")
    equal = [f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in (*exact, "nth")]
    for n in floats:
        one, other = f"CAST(a.c{n} AS DOUBLE)", f"CAST(b.c{n} AS DOUBLE)"
        close = f"abs({one} - {other}) <= {_CLOSE} * greatest(abs({one}), abs({other}), 1e-300)"
        equal.append(f"(a.c{n} IS NOT DISTINCT FROM b.c{n} OR {close})")
    names = ", ".join(f"a.c{n}" for n in range(len(types)))
    left = {}
    for what, other in (("missing", "unexpected"), ("unexpected", "missing")):
        on = " AND ".join(equal)
        left[what] = space.make(f"SELECT {names} FROM {numbered[what]} a ANTI JOIN {numbered[other]} b ON {on}")
    return left
