"""``quacklake views``: list, describe, refresh, explain, verify and drop materialized views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from quacklake.cli.context import Context
from quacklake.cli.options import argument, complete_table, option
from quacklake.errors import InputError

if TYPE_CHECKING:
    from quacklake import RefreshReport

_WRONG = 1
ViewName = Annotated[str, argument("VIEW", "The view, or schema.view.", autocompletion=complete_table)]
AnyView = Annotated[
    str | None, argument("VIEW", "The view, or schema.view; without it, all of them.", autocompletion=complete_table)
]


def list_(context: Context) -> None:
    """The lag is the number of snapshots between the one at which a view stands and the newest."""
    with context.open() as lake:
        context.output.rows(lake.materialized_views.list())


def describe(context: Context, view: ViewName) -> None:
    """It shows the query, the tables, where the view stands, and what its last refresh did."""
    with context.open() as lake:
        context.output.facts(lake.materialized_views.describe(view))


def create(
    context: Context,
    view: ViewName,
    query: Annotated[str, argument("QUERY", "The query, in SQL.")],
    refresh: Annotated[
        str, option("--refresh", 'When to refresh: "manual", "on commit" or "every 1 minute".', "WHEN")
    ] = "manual",
    partition_by: Annotated[str | None, option("--partition-by", "Partition the rows by these keys.", "KEYS")] = None,
    full: Annotated[bool, option("--full", "Allow a query that must be computed anew each time.")] = False,
    replace: Annotated[bool, option("--replace", "Replace a view of this name.")] = False,
) -> None:
    """The rows are computed now; `views refresh` brings them up to date from the changes of the tables."""
    keys = [key.strip() for key in (partition_by or "").split(",") if key.strip()]
    with context.open(write=True) as lake:
        report = lake.materialized_views.create(
            view, query, refresh=refresh, full=full, partition_by=keys, replace=replace
        )
        assert report is not None
        _print(context, [report])


def refresh(
    context: Context,
    view: AnyView = None,
    full: Annotated[bool, option("--full", "Compute the view anew.")] = False,
    due: Annotated[bool, option("--due", "Only the views whose schedule asks for it.")] = False,
) -> None:
    """Each view is brought to the newest snapshot by the cheapest way that is right, after the views that it reads."""
    if view is not None and due:
        raise InputError("--due is for all views, not for one")
    with context.open(write=True) as lake:
        views = lake.materialized_views
        if due:
            _print(context, views.refresh_due())
        else:
            _print(context, [views.refresh(name, full=full) for name in ([view] if view else views.names())])


def explain(context: Context, view: ViewName) -> None:
    """It shows the way that a refresh would take, and how many keys, changes and files it would read."""
    with context.open() as lake:
        context.output.facts(asdict(lake.materialized_views.explain(view)))


def verify(context: Context, view: AnyView = None) -> int:
    """Each is compared with a full computation at the snapshot at which it stands. The exit code is 1 if any differ."""
    with context.open() as lake:
        found = lake.materialized_views.verify(view)
    rows = [
        {
            "view": each.view,
            "snapshot": each.snapshot,
            "rows": each.count,
            "missing": each.missing,
            "unexpected": each.unexpected,
            "problem": each.problem,
        }
        for each in found
    ]
    import pyarrow as pa

    columns = [(name, pa.string() if name in ("view", "problem") else pa.int64()) for name in _VERIFIED]
    context.output.rows(pa.Table.from_pylist(rows, pa.schema(columns)))
    for each in found:
        if each.rows.num_rows and context.output.for_people:
            context.output.rows(each.rows)
    return 0 if all(each.ok for each in found) else _WRONG


_VERIFIED = ("view", "snapshot", "rows", "missing", "unexpected", "problem")


def drop(context: Context, view: ViewName) -> None:
    """Its rows go with it; older snapshots still show them."""
    with context.open(write=True) as lake:
        lake.materialized_views.drop(view)
        context.output.result(f"dropped {view}", {"dropped": view})


def _print(context: Context, reports: Sequence[RefreshReport]) -> None:
    if not context.output.for_people:
        context.output.facts({"refreshed": [asdict(report) for report in reports]})
        return
    for report in reports:
        context.output.say(sentence(report))
    if not reports:
        context.output.say("nothing is due")


def sentence(report: RefreshReport) -> str:
    """Return what a refresh did, for people."""
    if report.way == "none":
        return f"{report.view}: nothing new at snapshot {report.snapshot}"
    why = f" ({report.reason})" if report.reason else ""
    rows = f"{report.inserted} rows in, {report.deleted} out"
    return f"{report.view}: {report.way}{why}, {rows}, at snapshot {report.snapshot}, {report.seconds:.3f} s"
