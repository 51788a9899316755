"""Create the views of a source in a lake, where it can run their queries."""

from __future__ import annotations

from collections.abc import Sequence

from quacklake import Lake
from quacklake.errors import AlreadyExistsError, InputError, QuacklakeError
from quacklake.extend.names import DEFAULT_SCHEMA
from quacklake.extend.sql import check_query
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.tables import SourceView, sql_name


def import_views(
    lake: Lake, views: Sequence[SourceView], *, moved: bool, dry_run: bool
) -> tuple[list[str], list[LeftOut]]:
    """Create views and return their names, and those that cannot be created with the reasons.

    A view may read others, so that those that fail are tried again as long as others succeed. ``moved`` says that the
    tables have other names than in the source, which the queries do not know.
    """
    if moved:
        return [], [LeftOut(f"view {view.qualified_name}", "its tables have other names in the lake") for view in views]
    done: list[str] = []
    left = list(views)
    while left:
        reasons: dict[SourceView, str] = {}
        for view in left:
            try:
                _check(view)
                if not dry_run:
                    _create(lake, view)
                done.append(view.qualified_name)
            except QuacklakeError as error:
                reasons[view] = error.message
        if len(reasons) == len(left):
            return sorted(done), [LeftOut(f"view {view.qualified_name}", why) for view, why in reasons.items()]
        left = list(reasons)
    return sorted(done), []


def _check(view: SourceView) -> None:
    """Raise ``NotPermittedError`` for a query that could read anything but tables: who reads the view runs it."""
    if not view.query:
        raise InputError("its statement is not understood")
    check_query(view.query)


def _create(lake: Lake, view: SourceView) -> None:
    name = sql_name(view.schema, view.name)
    if view.qualified_name in lake.views():
        raise AlreadyExistsError("the lake has a view of that name")
    if view.schema != DEFAULT_SCHEMA:
        lake.create_schema(view.schema, if_not_exists=True)
    made = lake.create_view(name, view.query, columns=list(view.columns) or None)
    if view.comment is not None:
        made.set_comment(view.comment)
